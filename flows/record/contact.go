package record

import (
	"crypto/sha256"
	"time"
)

// A Contact is one of the two values with which the owner of an account is reached, and
// which the owner can prove (contract, section 22).
type Contact struct {
	Name     string // phone or email, as in routes
	Value    func(*Account) *string
	Verified func(*Account) *time.Time // when the value was proven; zero if it was not
}

// The contacts.
var (
	Phone = Contact{"phone", func(a *Account) *string { return &a.Phone }, func(a *Account) *time.Time { return &a.PhoneVerified }}
	Email = Contact{"email", func(a *Account) *string { return &a.Email }, func(a *Account) *time.Time { return &a.EmailVerified }}
)

// Contacts lists every contact.
var Contacts = []Contact{Phone, Email}

// Field returns the name of the value in the accounts API, VerifiedField that of the time,
// and ProofField that of a proof.
func (c Contact) Field() string         { return "primary_" + c.Name }
func (c Contact) VerifiedField() string { return c.Name + "_verified_at" }
func (c Contact) ProofField() string    { return c.Name + "_proof" }

// VerifiedEvent returns the event that the value was proven.
func (c Contact) VerifiedEvent() Event {
	return Event{Name: ContactVerified, Reason: c.Name, Fields: []string{c.Field()}}
}

// A Spend is something that works once, and is spent in the same step as the change of an
// account that it allows.
type Spend struct {
	Field string // for the SpentError
	Hash  [sha256.Size]byte
	Until time.Time // not before it has expired; later it may be forgotten
}
