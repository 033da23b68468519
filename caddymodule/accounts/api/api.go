// Package api defines the JSON of the accounts API and the lines of imports and
// exports. Package accounts, the server, and package command, the client, share it.
package api

import (
	"net/url"
	"strings"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/wire"
)

const (
	// Root is the prefix of all paths on Caddy's admin endpoint.
	Root = "/mnemogate/"
	// MaxAccount limits the JSON of one account, in a body or in a line, in bytes.
	MaxAccount = 64 << 10
)

// PathEscape is url.PathEscape, but also escapes a segment of one or two dots. Otherwise
// it would be removed when the path is cleaned, and the path would name something else.
func PathEscape(segment string) string {
	if segment == "." || segment == ".." {
		return strings.ReplaceAll(segment, ".", "%2E")
	}
	return url.PathEscape(segment)
}

// An Error is the body of every error response.
type Error struct {
	Error  string      `json:"error"`            // a sentence
	Field  string      `json:"field,omitempty"`  // the field at fault
	Reason wire.Reason `json:"reason,omitempty"` // for programs, if an error has several causes
}

// A Session is a session as operators see it. Its id can't be used as a token.
type Session struct {
	ID      string       `json:"session_id"`
	State   record.State `json:"session_state"`
	Created time.Time    `json:"created_at"`
	// LastUsed is when the session was last seen in use. The last request usually
	// came less than a minute later.
	LastUsed time.Time `json:"last_used"`
	Expires  time.Time `json:"expires_at"` // unless it is used before
	Ends     time.Time `json:"ends_at"`
	// Address and UserAgent are those of the request that brought the session into
	// its state. For an authorized session that is the login.
	Address   string `json:"address"`
	UserAgent string `json:"user_agent"` // the first 200 bytes
}

// SessionOf returns a session as it is shown.
func SessionOf(s record.Session) Session {
	return Session{
		ID:        s.ID,
		State:     s.State,
		Created:   s.Created.UTC(),
		LastUsed:  s.LastUsed.UTC(),
		Expires:   s.Expires.UTC(),
		Ends:      s.Ends.UTC(),
		Address:   s.Address,
		UserAgent: s.UserAgent,
	}
}

// Sessions lists the sessions of an account, oldest first.
type Sessions struct {
	Sessions []Session `json:"sessions"`
}

// An Event is an event in the history of an account. It has the same name as in the
// audit log.
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
	Count     int          `json:"count,omitempty"` // 0 for once
}

// A History lists the events of an account, newest first.
type History struct {
	Events []Event `json:"events"`
}

// Companies lists the codes of the companies that a key can access.
type Companies struct {
	Companies []string `json:"companies"`
}

// BackupCodes holds new backup codes, which are shown only once.
type BackupCodes struct {
	Codes []string `json:"backup_codes"`
}

// Findings is what explains a login.
type Findings struct {
	Findings []Finding `json:"findings"`
}

// Emptied says what a part of erasing or renaming a company did.
type Emptied struct {
	Accounts int  `json:"accounts"` // erased or moved
	Done     bool `json:"done"`     // nothing is left
}

// A Page is a page of a list or search of accounts.
type Page struct {
	Accounts []Account `json:"accounts"`
	// Next is the parameter after of the next page; empty on the last page. A page
	// of a search can have fewer accounts than its limit, or none, and still have a
	// next page.
	Next string `json:"next,omitempty"`
}

// The default and the largest number of accounts on a page.
const (
	DefaultPage = 100
	MaxPage     = 1000
)

// Passkeys is a list of passkeys.
type Passkeys struct {
	Passkeys []Passkey `json:"passkeys"`
}

// A Passkey is a passkey of an account.
type Passkey struct {
	ID       string     `json:"id"` // WebAuthn's credential ID
	Name     string     `json:"name"`
	BackedUp bool       `json:"backed_up"` // it exists on other devices, too
	Created  time.Time  `json:"created_at"`
	LastUsed *time.Time `json:"last_used"` // null until the first login
}

// PasskeysOf returns passkeys as the API shows them.
func PasskeysOf(passkeys []record.Passkey) Passkeys {
	views := make([]Passkey, len(passkeys))
	for i, p := range passkeys {
		views[i] = PasskeyOf(p)
	}
	return Passkeys{views}
}

// PasskeyOf returns a passkey as the API shows it.
func PasskeyOf(p record.Passkey) Passkey {
	v := Passkey{ID: p.ID(), Name: p.Name, BackedUp: p.BackedUp, Created: p.Created.UTC()}
	if !p.LastUsed.IsZero() {
		v.LastUsed = new(p.LastUsed.UTC())
	}
	return v
}

// Devices is a list of known devices.
type Devices struct {
	Devices []Device `json:"devices"`
}

// A Device is a known device of an account.
type Device struct {
	ID               string    `json:"device_id"`
	Created          time.Time `json:"created_at"`
	Expires          time.Time `json:"expires_at"`
	Address          string    `json:"address"`
	UserAgent        string    `json:"user_agent"` // the first 200 bytes
	SkipSecondFactor bool      `json:"skip_second_factor"`
}

// DeviceOf returns a device of the company as the API shows it.
func DeviceOf(company *tenant.Company, d record.Device) Device {
	skips := company.Devices.SkipSecondFactor && time.Now().Before(d.FactorUntil)
	return Device{d.ID, d.Created.UTC(), d.Expires.UTC(), d.Address, d.UserAgent, skips}
}

// Changed names the account that was changed, for a key without the right to read
// it.
type Changed struct {
	Mnemocode string `json:"profile_mnemocode"`
}

// A Failure describes a line that was not imported, or was imported with a Warning. Error
// is set if the line failed, and Skipped if it was skipped.
type Failure struct {
	Line    int    `json:"line"`
	Field   string `json:"field,omitempty"`
	Error   string `json:"error,omitempty"`
	Skipped string `json:"skipped,omitempty"`
	Warning string `json:"warning,omitempty"`
}

// Counts are the last line of the response to an import. If Error is set, the import was
// aborted at Line: send the lines from there on again.
type Counts struct {
	Created int    `json:"created"`
	Updated int    `json:"updated"`
	Skipped int    `json:"skipped"`
	Failed  int    `json:"failed"`
	Warned  int    `json:"warned,omitempty"`
	Line    int    `json:"line,omitempty"`
	Error   string `json:"error,omitempty"`
}

// Rekeyed is the response to a rekey.
type Rekeyed struct {
	Apps int `json:"apps"` // whose secrets were sealed again
}

// NoAccount is the error of a path whose account does not exist.
const NoAccount = "the company has no such account"

// A Finding is a result of the doctor.
type Finding struct {
	Check   string `json:"check"`
	Company string `json:"company,omitempty"` // empty if it concerns all companies
	Result  string `json:"result"`            // ok, warning or failed
	Took    string `json:"took,omitempty"`
	Message string `json:"message"`
	Advice  string `json:"advice,omitempty"` // what to do
}

// The results of a finding.
const (
	OK      = "ok"
	Warning = "warning"
	Failed  = "failed"
)

// MaxSkew is the difference between clocks that is worth a warning. Nodes read the
// times that other nodes have stored.
const MaxSkew = 2 * time.Second
