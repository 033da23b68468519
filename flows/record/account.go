package record

import (
	"cmp"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// A Status says whether an account may log in.
type Status string

// Only an account with StatusActive may log in. Each other status has an error of its own,
// such as auth.user.closed.
const (
	StatusActive     Status = "active"
	StatusRestricted Status = "restricted"
	StatusClosed     Status = "closed"
	StatusDenied     Status = "denied"
)

// Statuses lists every status.
var Statuses = []Status{StatusActive, StatusRestricted, StatusClosed, StatusDenied}

// An Account is one user of one company.
type Account struct {
	ID                 int64
	Company            string
	Mnemocode          string // profile_mnemocode
	Role               string
	Phone              string    // primary phone, E.164; empty for none
	Email              string    // primary email, see typed.Email; empty for none
	PhoneVerified      time.Time // when Phone was proven; zero if it was not
	EmailVerified      time.Time // when Email was proven; zero if it was not
	LoginName          string    // as it was given; empty for none
	Locale             string    // the language of its messages, as message.Locale spells it; empty for unknown
	Status             Status
	SecondFactor       bool
	MustSetPassword    bool
	PasswordHash       string // empty for none
	Question           string // the control question; empty for none
	AnswerHash         string
	TOTP               string       // the encrypted secret of the authenticator app; empty for none
	TOTPPending        string       // an encrypted secret that is not confirmed yet; empty for none
	Identities         []Identity   // ordered by provider and subject
	Accepted           []Acceptance // ordered by code
	BackupCodes        int          // how many are left
	Passkeys           int          // how many it has
	Generation         int64        // the session generation: grows with each change that revokes the account's sessions
	InactiveGeneration int64        // the Generation that began when Status last changed from active; 0 if it never did
	CompanyGeneration  int64        // the company's session generation: grows each time that all its sessions are revoked
	FailureCounts      Failures     // wrong attempts when the account was loaded; nil for none
	Created            time.Time
	Updated            time.Time
	Storing
}

// A Storing is what Create, Update and SetBackupCodes do besides storing what they are for. It
// is never loaded.
type Storing struct {
	NewBackupCodes []string      // hashes that Create stores with the account
	OldBackupCodes []string      // hashes that SetBackupCodes may replace; nil for any
	NewPasskeys    []Passkey     // that Create stores with the account
	Outbox         []OutboxEvent // events that Create and Update store with the account
	Spends         []Spend       // what Create and Update spend with the account
	PhoneRegion    string        // that of the company, for the LoginIDs that Create and Update store
	Keep           TokenHash     // the session that Update spares if it ends the others
	SpareTokens    bool          // whether Update leaves the IssuedTokens if it ends the sessions
}

// A Field is a text, a flag or a time of an Account. Code that stores such fields, compares them
// or reads them from operators uses Fields.
type Field struct {
	// Name is the name of the field in the accounts API, in imports and exports, and in
	// events of changes. It is empty for a field that no operator changes.
	Name   string
	Column string                    // of the SQL stores
	Text   func(*Account) *string    // nil for others
	Flag   func(*Account) *bool      // nil for others
	Time   func(*Account) *time.Time // nil for others
	Limit  int                       // the longest text that an operator may give, in characters
	// Secret means that the accounts API does not show the field, and sets it by fields
	// with other names.
	Secret bool
	// EndsSessions means that a change revokes all sessions of the account. The mnemocode
	// and the role do so because sessions contain them.
	EndsSessions bool
}

// Fields lists the fields of an account that are texts, flags or times, but Created and Updated.
//
// To add a field, add:
//   - the field to Account, and its row here. One that is neither text, flag nor time, such
//     as Identities, has statements in store instead of a row.
//   - both structs and functions of caddymodule/accounts/api/account.go
//   - CheckAccount in flows/manage/check.go to check a text, and Read in
//     flows/manage/check.go to normalise it
//   - for the Caddyfile, Account in caddymodule/app/company.go and its method account,
//     accountDirectives in caddymodule/app/company.go if the names differ, and its options
//     in caddymodule/app/caddyfile.go
var Fields = []Field{
	{Name: "profile_mnemocode", Column: "mnemocode", Text: func(a *Account) *string { return &a.Mnemocode }, Limit: 1024, EndsSessions: true},
	{Name: "role", Column: "role", Text: func(a *Account) *string { return &a.Role }, Limit: 128, EndsSessions: true},
	{Name: "primary_phone", Column: "phone", Text: func(a *Account) *string { return &a.Phone }, Limit: 254, EndsSessions: true},
	{Name: "primary_email", Column: "email", Text: func(a *Account) *string { return &a.Email }, Limit: 254, EndsSessions: true},
	{Name: Phone.VerifiedField(), Column: "phone_verified", Time: Phone.Verified},
	{Name: Email.VerifiedField(), Column: "email_verified", Time: Email.Verified},
	{Name: "login_name", Column: "login_name", Text: func(a *Account) *string { return &a.LoginName }, Limit: 254},
	{Name: "locale", Column: "locale", Text: func(a *Account) *string { return &a.Locale }},
	{Name: "status", Column: "status", Text: func(a *Account) *string { return (*string)(&a.Status) }, Limit: 64, EndsSessions: true},
	{Name: "second_factor", Column: "second_factor", Flag: func(a *Account) *bool { return &a.SecondFactor }, EndsSessions: true},
	{Name: "must_set_password", Column: "must_set_password", Flag: func(a *Account) *bool { return &a.MustSetPassword }},
	{Name: "password", Column: "password_hash", Text: func(a *Account) *string { return &a.PasswordHash }, Secret: true, EndsSessions: true},
	{Name: "totp", Column: "totp", Text: func(a *Account) *string { return &a.TOTP }, Secret: true, EndsSessions: true},
	{Column: "totp_pending", Text: func(a *Account) *string { return &a.TOTPPending }, Secret: true},
	{Name: "control_question", Column: "question", Text: func(a *Account) *string { return &a.Question }, Limit: 256},
	{Name: "control_answer", Column: "answer_hash", Text: func(a *Account) *string { return &a.AnswerHash }, Secret: true},
}

// FieldNamed returns the field with a name, or the zero Field.
func FieldNamed(name string) Field {
	i := slices.IndexFunc(Fields, func(f Field) bool { return f.Name == name })
	if i < 0 {
		return Field{}
	}
	return Fields[i]
}

// Same reports whether two accounts have the same value in the field.
func (f Field) Same(a, b *Account) bool {
	switch {
	case f.Flag != nil:
		return *f.Flag(a) == *f.Flag(b)
	case f.Time != nil:
		return f.Time(a).Equal(*f.Time(b))
	default:
		return *f.Text(a) == *f.Text(b)
	}
}

// An Identity is a user of an OAuth provider.
type Identity struct {
	Provider int // 1 to MaxProvider
	Subject  string
}

// The bounds of an Identity that an operator or backend names. MaxSubject is in bytes.
const (
	MaxProvider = 5
	MaxSubject  = 255
)

// IsSubject reports whether every store can keep s as the Subject of an Identity.
func IsSubject(s string) bool {
	return s != "" && len(s) <= MaxSubject && utf8.ValidString(s) && !strings.ContainsFunc(s, unicode.IsControl)
}

// Compare orders the identities of an account.
func (i Identity) Compare(j Identity) int {
	return cmp.Or(cmp.Compare(i.Provider, j.Provider), cmp.Compare(i.Subject, j.Subject))
}

// An Acceptance records that a user accepted a version of a disclaimer.
type Acceptance struct {
	Code    string    `json:"code"`
	Version string    `json:"version"`
	At      time.Time `json:"at"`
}

// IsValid reports whether clients and backends can name what was accepted: the code has 1
// to 64 characters, the version at most 64, and neither has control characters.
func (a Acceptance) IsValid() bool {
	return a.Code != "" && utf8.RuneCountInString(a.Code) <= 64 && utf8.RuneCountInString(a.Version) <= 64 &&
		!strings.ContainsFunc(a.Code+a.Version, unicode.IsControl)
}

// Compare orders the acceptances of an account, which has one per code.
func (a Acceptance) Compare(b Acceptance) int { return cmp.Compare(a.Code, b.Code) }

// A FailureKey says what wrong attempts are counted for: an account, one of its devices
// or, if no account has the login id that the client sent, that login id.
type FailureKey struct {
	Company string
	Account int64  // 0 with LoginID
	LoginID string // a login id hash; empty with Account
	Device  string // the ID of a Device of the Account; empty for the account itself
}

// A FailureKind is the kind of a failure count. A FailureKey has one count of each. Stores
// save the values, so they must not change.
type FailureKind string

// The kinds. All but WrongSecondFactors lock what they count.
const (
	WrongPasswords FailureKind = "password"
	WrongCodes     FailureKind = "code" // one-time codes, of logins and recoveries, and backup codes
	WrongAnswers   FailureKind = "answer"
	// WrongSecondFactors are codes that were wrong after a correct password. They lock
	// nothing; the owner is notified of them.
	WrongSecondFactors FailureKind = "second_factor"
)

// Failures are the wrong attempts of a FailureKey, by their kind. A kind without any is
// missing.
type Failures = map[FailureKind]FailureCount

// A FailureCount counts wrong attempts of a FailureKind for a FailureKey.
type FailureCount struct {
	Count int
	// Until is the end of the lock, for passwords. For the other kinds it is the
	// end of the window, when the count starts again from zero.
	Until  time.Time
	Outbox []OutboxEvent // events that UpdateFailures stores with the count; never loaded
}

// ExternalPassword replaces the password hash of an account whose password only its
// former system knows. Once that system confirms a password, mnemogate stores its own
// hash of it and does not ask again.
const ExternalPassword = "$webhook$"

// SameGenerations reports whether no revocation of all sessions of the account, or of its
// company, lies between two states of it.
func (a Account) SameGenerations(b Account) bool {
	return a.Generation == b.Generation && a.CompanyGeneration == b.CompanyGeneration
}

// HasCredential reports whether the account was given something to log in with, beyond what
// it receives at its phone or email.
func (a Account) HasCredential() bool {
	return a.PasswordHash != "" || a.Passkeys > 0 || len(a.Identities) > 0
}

// LogsInByCode reports whether a login with a login id of the account needs a code in place
// of a password. Where there is no account (ID 0), it needs none.
func (a Account) LogsInByCode() bool { return a.ID != 0 && a.PasswordHash == "" }

// HasApp reports whether the account's second factor is an authenticator app. The app
// needs a password first: an account without one logs in by SMS.
func (a Account) HasApp() bool { return a.TOTP != "" && a.PasswordHash != "" }
