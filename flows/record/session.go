package record

import (
	"crypto/sha256"
	"time"
)

// A Session is what a store keeps for one token.
type Session struct {
	Hash              TokenHash
	ID                string // names the session, through all its steps, to operators; of no use as a token
	Company           string
	Account           int64  // 0 for a decoy, which no step lets pass
	Mnemocode         string // the account's; empty for a decoy
	LoginID           string // a decoy's: the alias of the login id that was sent, which carries its counters
	Generation        int64  // the account's Epoch when its owner began to log in
	CompanyGeneration int64  // the company's then, see Account
	State             State
	Accepted          []Acceptance // disclaimers accepted on the way, written to the account once authorized
	Created           time.Time
	Expires           time.Time // when the token ends unless it is used; moves with use while Authorized
	Ends              time.Time // when it ends whatever happens; Expires never lies behind it
	LastUsed          time.Time // when a request was last seen to use it: see Touch
	Address           string    // from where its state was reached: of an authorized one, the login
	UserAgent         string    // of that request
	Profile           Profile   // what the application is told of the account beside its mnemocode
	Code              *Code     // the one-time code that waits to be entered; nil when there is none or it was spent
	ByApp             bool      // in CheckOTP: the code is the authenticator app's, until SetCode gives the session another
	AtMost            int       // for Create and Replace, and not kept: how many of the account's sessions may be in State; 0: any number
}

// A Code is a one-time code as a store keeps it.
type Code struct {
	Hash    [sha256.Size]byte // keyed with the session's token, so that a stored hash can't be searched
	Phone   string            // where it was sent; it is void for any other
	Expires time.Time
}

// MaxSessions is how many sessions in one state an account may ever have
// (contract, section 5).
const MaxSessions = 10_000

// IdleUntil is when a session expires that would without a bound at t.
func (s *Session) IdleUntil(t time.Time) time.Time {
	if t.After(s.Ends) {
		return s.Ends
	}
	return t
}

// Ended is the event of a session that was ended.
func (s Session) Ended(by Event) Event {
	by.Name, by.Company, by.Account, by.Mnemocode = SessionEnded, s.Company, s.Account, s.Mnemocode
	by.Session, by.State = s.ID, s.State
	return by
}
