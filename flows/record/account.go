package record

import "time"

// A Status tells whether an account may log in.
type Status string

const (
	StatusActive     Status = "active"
	StatusRestricted Status = "restricted"
	StatusClosed     Status = "closed"
	StatusDenied     Status = "denied"
)

// Statuses are all that there are.
var Statuses = []Status{StatusActive, StatusRestricted, StatusClosed, StatusDenied}

// An Account is one user of one company.
type Account struct {
	ID                int64
	Company           string
	Mnemocode         string // profile_mnemocode
	Role              string
	Phone             string // primary phone, E.164; empty for none
	Email             string // primary email as it was given; empty for none
	LoginName         string // as it was given; empty for none
	Locale            string // what its owner reads, as message.ParseLocale spells it; empty for unknown
	Status            Status
	SecondFactor      bool
	MustSetPassword   bool
	PasswordHash      string // empty for none
	Question          string // the control question; empty for none
	AnswerHash        string
	TOTP              string                // the sealed secret of the authenticator app; empty for none
	TOTPPending       string                // one that waits to be confirmed; empty for none
	Identities        []Identity            // ordered by provider and subject
	Accepted          []Acceptance          // ordered by code
	BackupCodes       int                   // how many are left
	NewBackupCodes    []string              // for Create, which stores these hashes with the account; never loaded
	Generation        int64                 // grows with each change that ends the account's sessions
	Barred            int64                 // the Epoch that began when Status was last changed from active; 0: never
	CompanyGeneration int64                 // the company's: grows with each ending of all its sessions
	FailureCounts     map[Kind]FailureCount // wrong attempts when the account was loaded; nil without any
	Outbox            []OutboxEvent         // for Create and Update, which store these events with the account; never loaded
	Created           time.Time
	Updated           time.Time
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
type FailureKey struct {
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
type FailureCount struct {
	Count int
	// Until is, for passwords, when the lock ends; for the others, when the
	// window ends and the count with it.
	Until  time.Time
	Outbox []OutboxEvent // for Tally, which stores these events with the tally; never loaded
}

// AskedElsewhere stands in the place of a password's hash for an account whose
// password only the system that it came from knows. That is asked once: a right
// password is kept as a hash of our own.
const AskedElsewhere = "$webhook$"

// HasApp reports whether the account's second factor is its app. It follows a
// password: an account without one logs in by SMS.
func (a Account) HasApp() bool { return a.TOTP != "" && a.PasswordHash != "" }
