package record

import (
	"slices"
	"strings"
)

// AuthMethods are the ways in which a user has proved who they are: words, separated by
// spaces, in the order of the proofs. The last word is MultiFactor if two factors were
// given.
type AuthMethods string

const (
	ByPassword   AuthMethods = "pwd"
	BySMS        AuthMethods = "sms"
	ByApp        AuthMethods = "otp" // an authenticator app
	ByBackupCode AuthMethods = "backup"
	ByOAuth      AuthMethods = "oauth"
	ByPasskey    AuthMethods = "passkey" // is two factors

	MultiFactor AuthMethods = "mfa"
)

// Words returns the words. There are none in sessions of versions that did not store
// them.
func (m AuthMethods) Words() []string { return strings.Fields(string(m)) }

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
