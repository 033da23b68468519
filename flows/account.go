package flows

import (
	"context"
	"errors"
	"time"
)

// A Status tells whether an account may log in.
type Status string

const (
	StatusActive     Status = "active"
	StatusRestricted Status = "restricted"
	StatusClosed     Status = "closed"
	StatusDenied     Status = "denied"
)

// An Account is one user of one company.
type Account struct {
	ID              int64
	Company         string
	Mnemocode       string // profile_mnemocode
	Role            string
	Phone           string // primary phone, E.164; empty for none
	Email           string // primary email as it was given; empty for none
	LoginName       string // as it was given; empty for none
	Locale          string // what its owner reads, as ParseLocale spells it; empty for unknown
	Status          Status
	SecondFactor    bool
	MustSetPassword bool
	PasswordHash    string // empty for none
	Question        string // the control question; empty for none
	AnswerHash      string
	TOTP            string         // the sealed secret of the authenticator app; empty for none
	TOTPPending     string         // one that waits to be confirmed; empty for none
	Identities      []Identity     // ordered by provider and subject
	Accepted        []Acceptance   // ordered by code
	BackupCodes     int            // how many are left
	Epoch           int64          // grows with each change that ends the account's sessions
	Era             int64          // the company's: grows with each ending of all its sessions
	Tallies         map[Kind]Tally // wrong attempts when the account was loaded; nil without any
	Created         time.Time
	Updated         time.Time
}

// An Identity is a user of an OAuth provider.
type Identity struct {
	Provider int // 1 to 5
	Subject  string
}

// An Acceptance is a disclaimer that a user accepted, in one version.
type Acceptance struct {
	Code    string    `json:"code"`
	Version string    `json:"version"`
	At      time.Time `json:"at"`
}

// A Subject is whose wrong attempts are counted: an account or, where no
// account has the login id that was sent, that login id.
type Subject struct {
	Company string
	Account int64  // 0 with LoginID
	LoginID string // its alias; empty with Account
}

// A Kind tells one tally of a subject from another. A store keeps it as it is.
type Kind string

const (
	WrongPasswords Kind = "password"
	WrongCodes     Kind = "code" // one-time codes, of logins and recoveries, and backup codes
	WrongAnswers   Kind = "answer"
)

// A Tally counts a subject's wrong attempts.
type Tally struct {
	Count int
	// Until is, for passwords, when the lock ends; for the others, when the
	// window ends and the count with it.
	Until time.Time
}

// account loads the account of the call's session. A decoy's is empty but for
// Era and Tallies, those of the login id it stands for; it takes as many calls.
func (s *Service) account(ctx context.Context, c *call) (Account, error) {
	if c.loaded != nil {
		return *c.loaded, nil
	}
	a, err := s.ofSession(ctx, c)
	if errors.Is(err, ErrNotFound) || err == nil && (a.Epoch != c.session.Epoch || a.Era != c.session.Era) {
		return Account{}, ErrTokenInvalid // its ending is only on the way to the sessions
	}
	if err != nil {
		return Account{}, unavailable("loading the account", err)
	}
	if a.ID != 0 {
		c.found(a)
	}
	return a, nil
}

func (s *Service) ofSession(ctx context.Context, c *call) (Account, error) {
	if c.session.Account != 0 {
		return s.Accounts.ByID(ctx, c.company.Code, c.session.Account)
	}
	a, err := s.Accounts.ByLoginID(ctx, c.company.Code, "", c.session.LoginID) // which no account has
	if errors.Is(err, ErrNotFound) {
		err = nil
	}
	return a, err
}

// accountByLoginID finds the account with a normalised login id, and the login
// id's alias. An unknown one is no error: the account is then empty but for the
// alias's Tallies.
func (s *Service) accountByLoginID(ctx context.Context, c *call, loginID string) (a Account, alias string, err error) {
	if alias, err = s.alias(ctx, c.company, loginID); err != nil {
		return Account{}, "", err
	}
	a, err = s.Accounts.ByLoginID(ctx, c.company.Code, loginID, alias)
	if errors.Is(err, ErrNotFound) {
		return Account{Era: a.Era, Tallies: a.Tallies}, alias, nil
	}
	if err != nil {
		return Account{}, "", unavailable("looking up the login id", err)
	}
	c.found(a)
	return a, alias, nil
}
