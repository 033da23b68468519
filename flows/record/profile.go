package record

import "strings"

// A Profile is what an application is told of an account beside its mnemocode,
// as it was at the login: up to three values, each escaped, with a space
// between them; empty where there is none.
type Profile string

// A ProfileField is one of a Profile's values.
type ProfileField int

const (
	ProfileRole ProfileField = iota
	ProfileEmail
	ProfilePhone
)

// NewProfile returns those of the account's values that are asked for.
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

// Value returns a field's, escaped; empty if there is none.
func (p Profile) Value(f ProfileField) string {
	rest := string(p)
	for range f {
		_, rest, _ = strings.Cut(rest, " ")
	}
	value, _, _ := strings.Cut(rest, " ")
	return value
}

// escape percent-encodes each byte that is no visible ASCII or a %.
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
