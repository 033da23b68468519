// Package api is what the accounts API says: its JSON, and the lines of imports
// and exports, for accounts, which answers, and for command, which asks.
package api

import (
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/wire"
)

const (
	// Root is what its paths begin with on Caddy's admin endpoint.
	Root = "/mnemogate/"
	// MaxAccount bounds the JSON of one account, in a body or in a line.
	MaxAccount = 64 << 10
)

// An Error is every answer that is no success.
type Error struct {
	Error  string      `json:"error"`            // a sentence
	Field  string      `json:"field,omitempty"`  // that is at fault
	Reason wire.Reason `json:"reason,omitempty"` // for programs, where there are several
}

// A Session is a session as an operator sees it. The id is of no use as a
// token.
type Session struct {
	ID      string       `json:"session_id"`
	State   record.State `json:"session_state"`
	Created time.Time    `json:"created_at"`
	// LastUsed is when it was last seen to be used: as a rule the last request
	// lies less than a minute behind it.
	LastUsed time.Time `json:"last_used"`
	Expires  time.Time `json:"expires_at"` // unless it is used
	Ends     time.Time `json:"ends_at"`
	// Address and UserAgent are those of the request that brought the session to
	// its state: of an authorized one, the login.
	Address   string `json:"address"`
	UserAgent string `json:"user_agent"` // its first 200 bytes
}

// Sessions are an account's, oldest first.
type Sessions struct {
	Sessions []Session `json:"sessions"`
}

// An Event is what happened to an account, named as in the audit log.
type Event struct {
	Time      time.Time    `json:"time"`
	Name      string       `json:"event"`
	Session   string       `json:"session_id,omitempty"`
	State     record.State `json:"session_state,omitempty"`
	Address   string       `json:"address,omitempty"`
	UserAgent string       `json:"user_agent,omitempty"`
	Actor     string       `json:"actor,omitempty"`
	Result    string       `json:"result,omitempty"`
	Reason    string       `json:"reason,omitempty"`
}

// A History is an account's, the newest first.
type History struct {
	Events []Event `json:"events"`
}

// Companies are those that a key has, by their codes.
type Companies struct {
	Companies []string `json:"companies"`
}

// BackupCodes are shown once.
type BackupCodes struct {
	Codes []string `json:"backup_codes"`
}

// A Page is an answer to a search for accounts.
type Page struct {
	Accounts []Account `json:"accounts"`
	// Next is the after of the next page; empty if there is none. Where accounts are
	// searched, a page can have fewer than its limit, also none, and a next one.
	Next string `json:"next,omitempty"`
}

// How many accounts a page has if nothing is said of it, and at most.
const (
	DefaultPage = 100
	MaxPage     = 1000
)

// An Account is an account as the admin API shows it. Every field is
// always there.
type Account struct {
	Mnemocode       string        `json:"profile_mnemocode"`
	Role            *string       `json:"role"`
	Phone           *string       `json:"primary_phone"`
	Email           *string       `json:"primary_email"`
	LoginName       *string       `json:"login_name"`
	Locale          *string       `json:"locale"`
	Status          record.Status `json:"status"`
	SecondFactor    bool          `json:"second_factor"`
	MustSetPassword bool          `json:"must_set_password"`
	PasswordSet     bool          `json:"password_set"`
	Question        *string       `json:"control_question"`
	BackupCodes     int           `json:"backup_codes_left"`
	TOTP            bool          `json:"totp"` // an authenticator app was confirmed
	Identities      []Identity    `json:"oauth_identities"`
	Accepted        []Acceptance  `json:"disclaimers_accepted"`
	LockedUntil     *time.Time    `json:"locked_until"`
	CaptchaDue      bool          `json:"captcha_due"` // the next password needs one
	Created         time.Time     `json:"created_at"`
	Updated         time.Time     `json:"updated_at"`
}

// Changed names an account that was changed by who may not read it.
type Changed struct {
	Mnemocode string `json:"profile_mnemocode"`
}

// An Identity is a user of an OAuth provider who logs in as the account.
type Identity struct {
	Provider int    `json:"provider_id"`
	Subject  string `json:"subject"`
}

// An Acceptance is a disclaimer that was accepted.
type Acceptance struct {
	Code    string `json:"code"`
	Version string `json:"version"`
	// At is now, where it is not given.
	At time.Time `json:"accepted_at,omitzero"`
}

// Fields are the names of the fields that can be written, in the order in
// which they are applied.
var Fields = []string{
	"profile_mnemocode", "role", "primary_phone", "primary_email", "login_name", "locale", "status", "second_factor",
	"password", "password_hash", "must_set_password", "control_question", "control_answer", "control_answer_hash",
	"oauth_identities", "disclaimers_accepted", "backup_code_hashes", "totp_secret", "created_at",
}

// A Failure is the answer to a line that was not imported: one with an error has failed,
// one that was skipped tells why.
type Failure struct {
	Line    int    `json:"line"`
	Field   string `json:"field,omitempty"`
	Error   string `json:"error,omitempty"`
	Skipped string `json:"skipped,omitempty"`
}

// Counts is the last line of the answer. With Error the import was given
// up at Line: what comes from there on has to be sent again.
type Counts struct {
	Created int    `json:"created"`
	Updated int    `json:"updated"`
	Skipped int    `json:"skipped"`
	Failed  int    `json:"failed"`
	Line    int    `json:"line,omitempty"`
	Error   string `json:"error,omitempty"`
}

// A Finding is what the doctor has to say of one thing.
type Finding struct {
	Check   string `json:"check"`
	Company string `json:"company,omitempty"` // none: it is everybody's
	Result  string `json:"result"`            // ok, warning or failed
	Took    string `json:"took,omitempty"`
	Message string `json:"message"`
	Advice  string `json:"advice,omitempty"` // what to do
}

// Results of a finding.
const (
	OK      = "ok"
	Warning = "warning"
	Failed  = "failed"
)

// MaxSkew is when clocks that differ begin to hurt: times that one node
// stores are read by others.
const MaxSkew = 2 * time.Second
