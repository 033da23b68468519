package record

import (
	"strconv"
	"strings"
	"time"
)

// A Profile is what a session knows of its user in addition to the mnemocode. It is
// taken at login, and Raised later. It holds five values, separated by spaces: role, email
// and phone, each escaped, AuthTime in Unix microseconds, and the AuthMethods. A value may
// be empty. The profile is empty if all values are.
type Profile string

// A ProfileField is one of a Profile's values.
type ProfileField int

// The fields, in the order in which a Profile holds them.
const (
	ProfileRole ProfileField = iota
	ProfileEmail
	ProfilePhone
	profileAuthTime
	profileMethods // the last, because it has spaces
)

// NewProfile returns a profile with the role of the account and the requested fields.
// authTime may be zero.
func NewProfile(a Account, fields []ProfileField, authTime time.Time, methods AuthMethods) Profile {
	values := [...]string{ProfileRole: EscapeProfile(a.Role), profileMethods: string(methods)}
	values[profileAuthTime] = formatAuthTime(authTime)
	for _, f := range fields {
		values[f] = EscapeProfile([]string{a.Role, a.Email, a.Phone}[f])
	}
	p := Profile(strings.Join(values[:], " "))
	if len(p) == len(values)-1 {
		return ""
	}
	return p
}

// Value returns the escaped value of a field, or "" if it has none. url.PathUnescape
// returns the value as the account has it.
func (p Profile) Value(f ProfileField) string {
	value, _, _ := strings.Cut(p.from(f), " ")
	return value
}

// AuthTime returns when the user last raised the session, or else logged in at the OAuth
// provider. It is zero for neither.
func (p Profile) AuthTime() time.Time {
	at, _ := strconv.ParseInt(p.Value(profileAuthTime), 10, 64) // an empty value is 0, which is no time
	return FromMicros(at)
}

// formatAuthTime keeps microseconds: with whole seconds, a fresh login could be a second old.
func formatAuthTime(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return strconv.FormatInt(Micros(t), 10)
}

// Raised returns the profile after the user has also given the proof by, at this time.
func (p Profile) Raised(at time.Time, by AuthMethods) Profile {
	values := strings.SplitN(string(p)+strings.Repeat(" ", int(profileMethods)), " ", int(profileMethods)+1)
	values[profileAuthTime] = formatAuthTime(at)
	values[profileMethods] = string(p.Methods().With(by))
	return Profile(strings.Join(values, " "))
}

// Of returns the profile with the account's present role and requested fields.
func (p Profile) Of(a Account, fields []ProfileField) Profile {
	return NewProfile(a, fields, p.AuthTime(), p.Methods())
}

// Methods returns how the user has proved who they are in this login.
func (p Profile) Methods() AuthMethods { return AuthMethods(p.from(profileMethods)) }

// from returns the values from f on.
func (p Profile) from(f ProfileField) string {
	rest := string(p)
	for range f {
		_, rest, _ = strings.Cut(rest, " ")
	}
	return rest
}

// EscapeProfile percent-encodes % and every byte that is not visible ASCII.
func EscapeProfile(s string) string {
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
