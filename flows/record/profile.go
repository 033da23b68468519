package record

import "strings"

// A Profile is what the backend gets of an account in addition to its mnemocode. It is
// taken at login. It holds three values, each escaped, separated by spaces; a value may
// be empty. It is empty if all values are.
type Profile string

// A ProfileField is one of a Profile's values.
type ProfileField int

const (
	ProfileRole ProfileField = iota
	ProfileEmail
	ProfilePhone
)

// NewProfile returns a profile with the requested fields of the account.
func NewProfile(a Account, fields []ProfileField) Profile {
	var values [3]string
	for _, f := range fields {
		values[f] = escape([]string{a.Role, a.Email, a.Phone}[f])
	}
	p := Profile(strings.Join(values[:], " "))
	if len(p) == len(values)-1 {
		return ""
	}
	return p
}

// Value returns the escaped value of a field, or "" if it has none.
func (p Profile) Value(f ProfileField) string {
	rest := string(p)
	for range f {
		_, rest, _ = strings.Cut(rest, " ")
	}
	value, _, _ := strings.Cut(rest, " ")
	return value
}

// escape percent-encodes % and every byte that is not visible ASCII.
func escape(s string) string {
	const hex = "0123456789ABCDEF"
	var b strings.Builder
	for i := range len(s) {
		if c := s[i]; c <= ' ' || c >= 0x7f || c == '%' {
			b.Write([]byte{'%', hex[c>>4], hex[c&15]})
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}
