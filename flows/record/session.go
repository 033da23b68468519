package record

import (
	"crypto/sha256"
	"time"
)

// A Session is what a store keeps for one token.
type Session struct {
	Hash              TokenHash
	ID                string // identifies the session to operators, through all its steps; it is not a token
	Company           string
	Account           int64  // 0 for a decoy, which cannot complete any step, and for a hidden session (session/hardened.go)
	Mnemocode         string // the account's; empty for a decoy; for a hidden session the ID of the account
	LoginID           string // for a decoy and a hidden session: the hash of the login id that was sent, for which attempts are counted
	Generation        int64  // the account's Generation when the login began
	CompanyGeneration int64  // the company's at that time, see Account
	State             State
	Accepted          []Acceptance // disclaimers accepted so far, written to the account when the session is authorized
	Created           time.Time
	Expires           time.Time    // when the token expires if it is not used; use moves it while Authorized
	Ends              time.Time    // when the session ends in any case; Expires is never later
	LastUsed          time.Time    // when a request last used the session, roughly: see Touch
	Address           string       // the client's when the session reached its state: for an authorized session, at login
	UserAgent         string       // of the same request
	Profile           Profile      // what else the session knows of its user
	Device            string       // the ID of the Device that it began on, or that was remembered then; empty for none
	Code              *Code        // the one-time code that the user must enter; nil if there is none or it was used
	NoCode            bool         // in CheckOTP: no code was sent, because the authenticator app shows it or no SMS may be sent; SetCode ends that
	Issued            *IssuedToken // that the session stands for; no store of sessions has such a session

	// For Create and Replace, and not stored:
	AtMost    int             // the account's maximum of sessions in State; 0 for any number
	Displaced func(id string) // called with the ID of each session that AtMost revokes; may be nil
}

// A Code is a one-time code as a store keeps it.
type Code struct {
	Hash    [sha256.Size]byte // see tokens.Keys.HashCode: a stolen hash can't be brute-forced
	Phone   string            // the phone it was sent to; the code is invalid for any other; empty for a decoy and a hidden session
	Expires time.Time
}

// MaxSessions is the highest number of sessions in one state that an account can have
// (contract, section 5).
const MaxSessions = 10_000

// IdleUntil returns the time to expire at: t, but no later than Ends.
func (s *Session) IdleUntil(t time.Time) time.Time {
	if t.After(s.Ends) {
		return s.Ends
	}
	return t
}

// LoginTime returns when the user last proved who they are: when they raised the session, or
// logged in at the OAuth provider, if it says so, and otherwise when the session was created.
func (s *Session) LoginTime() time.Time {
	if at := s.Profile.AuthTime(); !at.IsZero() {
		return at
	}
	return s.Created
}

// Ended returns the event that the session was revoked. The other fields come from by.
func (s Session) Ended(by Event) Event {
	by.Name, by.Company, by.Account, by.Mnemocode = SessionEnded, s.Company, s.Account, s.Mnemocode
	by.Session, by.State = s.ID, s.State
	return by
}
