package record

import (
	"slices"
	"strings"
)

// AuthMethods are the ways in which a user has proved who they are: words, separated by
// spaces, in the order of the proofs. The last word is MultiFactor if two factors were
// given.
type AuthMethods string

// The words of AuthMethods. Assertions have them as amr, so they must not change.
const (
	ByPassword   AuthMethods = "pwd"
	BySMS        AuthMethods = "sms"
	ByApp        AuthMethods = "otp" // an authenticator app
	ByBackupCode AuthMethods = "backup"
	ByOAuth      AuthMethods = "oauth"
	ByPasskey    AuthMethods = "passkey" // counts as two factors
	ByToken      AuthMethods = "token"   // an IssuedToken, alone

	MultiFactor AuthMethods = "mfa"
)

// Words returns the words.
func (m AuthMethods) Words() []string { return strings.Fields(string(m)) }

// Multi reports whether two factors were given.
func (m AuthMethods) Multi() bool {
	return m == MultiFactor || strings.HasSuffix(string(m), " "+string(MultiFactor))
}

// With returns the methods after the user has also given the proof next, which may be
// empty.
func (m AuthMethods) With(next AuthMethods) AuthMethods {
	words := m.Words()
	if next == "" || slices.Contains(words, string(next)) {
		return m
	}
	words = slices.DeleteFunc(words, func(word string) bool { return word == string(MultiFactor) })
	words = append(words, string(next))
	if len(words) > 1 || next == ByPasskey {
		words = append(words, string(MultiFactor))
	}
	return AuthMethods(strings.Join(words, " "))
}
