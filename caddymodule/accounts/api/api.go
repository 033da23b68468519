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

// Query encodes a query without the + for a space, which the server can take for that of a
// phone or an email.
func Query(query url.Values) string { return "?" + strings.ReplaceAll(query.Encode(), "+", "%20") }

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
	// A sentence for developers.
	Error string `json:"error"`
	// The field at fault.
	Field string `json:"field,omitempty"`
	// The cause, as a word for programs, if there are several.
	Reason wire.Reason `json:"reason,omitempty"`
}

// A Session is a session as operators see it. Its id can't be used as a token.
type Session struct {
	// It does not work as a token.
	ID string `json:"session_id"`
	// The step that comes next, or authorized.
	State record.State `json:"session_state"`
	// When it was created.
	Created time.Time `json:"created_at"`
	// When it was last used, usually to within a minute. Open streams, and most requests in
	// the last `idle` before ends_at, do not change it.
	LastUsed time.Time `json:"last_used"`
	// When it expires if it is not used.
	Expires time.Time `json:"expires_at"`
	// When it expires in any case.
	Ends time.Time `json:"ends_at"`
	// The address of the login.
	Address string `json:"address"`
	// The User-Agent of the login, as the client chose it, cut at 200 bytes.
	UserAgent string `json:"user_agent"`
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
	// Recovery links are not listed and, with `hardened`, neither are recoveries by phone.
	Sessions []Session `json:"sessions"`
}

// An Event is an event in the history of an account. It has the same name as in the
// audit log.
type Event struct {
	// When it happened.
	Time time.Time `json:"time"`
	// What happened, named as in the audit log.
	Name string `json:"event"`
	// The session concerned.
	Session string `json:"session_id,omitempty"`
	// The state of the session.
	State record.State `json:"session_state,omitempty"`
	// The client's address.
	Address string `json:"address,omitempty"`
	// What the client says it is, cut at 200 bytes.
	UserAgent string `json:"user_agent,omitempty"`
	// The one that managed the account: the name of a key, `admin endpoint` or, with
	// `self_service`, `the user`.
	Actor string `json:"actor,omitempty"`
	// The result: `success`, `canceled` (the client hung up) or the error_code.
	Result string `json:"result,omitempty"`
	// The reason, if the result does not say it. Of a step that succeeded, the ID of the passkey,
	// the OAuth provider, or the known device that spared a code.
	Reason string `json:"reason,omitempty"`
	// What the user gave in a step that succeeded: `pwd`, `sms`, `otp`, `backup`, `oauth`,
	// `passkey`, or one of a later version.
	Factor string `json:"factor,omitempty"`
	// Of the answer that refused the request. Of refusals in a row it is the newest's.
	Ref string `json:"ref,omitempty"`
	// The company. Only in the answer that finds a `ref`.
	Company string `json:"company,omitempty"`
	// The account. Only in the answer that finds a `ref`.
	Mnemocode string `json:"profile_mnemocode,omitempty"`
	// How often the event happened in a row, if more than once. The time is that of the last.
	Count int `json:"count,omitempty"`
}

// A History lists the events of an account, newest first.
type History struct {
	// The account's events, the newest first.
	Events []Event `json:"events"`
}

// A Message is one that sms capture or mail capture has captured.
type Message struct {
	// It is unique.
	ID string `json:"id"`
	// When it was captured.
	Time time.Time `json:"time"`
	// As in webhooks, such as `otp.login`.
	Type string `json:"type"`
	// The phone (E.164) or email.
	To string `json:"to"`
	// Its code, if it has one.
	Code string `json:"code,omitempty"`
	// Its link, if it has one.
	Link string `json:"link,omitempty"`
	// What the user would have read.
	Text string `json:"text"`
}

// Messages lists captured messages, the oldest first. Next, given as after, lists those that
// came later.
type Messages struct {
	// The oldest first.
	Messages []Message `json:"messages"`
	// For `after`.
	Next string `json:"next"`
}

// Companies lists the codes of the companies that a key can access.
type Companies struct {
	// Their codes.
	Companies []string `json:"companies"`
}

// BackupCodes holds new backup codes, which are shown only once.
type BackupCodes struct {
	// As shown to the user. They are shown only this once.
	Codes []string `json:"backup_codes"`
}

// An Explanation says what would become of a request for a site.
type Explanation struct {
	Site    string            `json:"site"`
	Rules   []Rule            `json:"rules"`
	Passes  bool              `json:"passes"`
	Status  int               `json:"status,omitempty"` // of the refusal, as the next two
	Code    string            `json:"error_code,omitempty"`
	Reason  string            `json:"reason,omitempty"`
	Headers map[string]string `json:"headers,omitempty"` // for the upstream, if it passes
}

// A Rule is an option of a site that matters for a request.
type Rule struct {
	Rule  string `json:"rule"`            // public, fresh, mfa, role, company or require_api_key
	Value string `json:"value,omitempty"` // what stands after it
	File  string `json:"file,omitempty"`  // the Caddyfile; empty for a configuration in JSON
	Line  int    `json:"line,omitempty"`  // in the file
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
	// At most limit accounts.
	Accounts []Account `json:"accounts"`
	// The `after` of the next page; absent on the last.
	Next string `json:"next,omitempty"`
}

// The default and the largest number of accounts on a page.
const (
	DefaultPage = 100
	MaxPage     = 1000
)

// Passkeys is a list of passkeys.
type Passkeys struct {
	// Oldest first.
	Passkeys []Passkey `json:"passkeys"`
}

// A Passkey is a passkey of an account.
type Passkey struct {
	// WebAuthn's credential ID, in base64url.
	ID string `json:"id"`
	// What the user calls it, or else the provider that keeps it, such as 1Password, or
	// the browser and system.
	Name string `json:"name"`
	// The user's other devices have it, too.
	BackedUp bool `json:"backed_up"`
	// When it was created.
	Created time.Time `json:"created_at"`
	// When a login last used it; null until the first.
	LastUsed *time.Time `json:"last_used"`
}

// PasskeyOf returns a passkey as the API shows it.
func PasskeyOf(p record.Passkey) Passkey {
	return Passkey{ID: p.ID(), Name: p.Name, BackedUp: p.BackedUp, Created: p.Created.UTC(), LastUsed: instant(p.LastUsed)}
}

// Devices is a list of known devices.
type Devices struct {
	// Oldest first.
	Devices []Device `json:"devices"`
}

// A Device is a known device of an account.
type Device struct {
	// Identifies the device; it is not a token.
	ID string `json:"device_id"`
	// When it was remembered.
	Created time.Time `json:"created_at"`
	// Until when it is known.
	Expires time.Time `json:"expires_at"`
	// The client's address at that time.
	Address string `json:"address"`
	// The first 200 bytes of its user agent at that time.
	UserAgent string `json:"user_agent"`
	// Its logins need no code now.
	SkipSecondFactor bool `json:"skip_second_factor"`
}

// DeviceOf returns a device of the company as the API shows it.
func DeviceOf(company *tenant.Company, d record.Device) Device {
	skips := company.Devices.SkipSecondFactor && time.Now().Before(d.FactorUntil) && !company.Limits.ForgetsDevice(d.Failures)
	return Device{d.ID, d.Created.UTC(), d.Expires.UTC(), d.Address, d.UserAgent, skips}
}

// A NewToken asks for a token.
type NewToken struct {
	// For people, at most 128 characters. Default: the actor; without one, it is required.
	Name string `json:"name,omitempty"`
	// The paths that it opens, in the syntax of `fresh`. An application may read a path in
	// several ways: each must match one of them.
	Paths []string `json:"paths"`
	// The methods that it opens them for, in upper case; `GET` is also for `HEAD`.
	Methods []string `json:"methods"`
	// How many seconds it is valid. Default, and at most: `lifetime`, with an actor `acting`.
	ExpiresIn int64 `json:"expires_in,omitempty"`
	// The person or program that acts as the user with it, at most 128 characters.
	Actor string `json:"actor,omitempty"`
	// Why the actor acts as the user, at most 128 characters.
	Reason string `json:"reason,omitempty"`
}

// A Token is a token that was issued for an account.
type Token struct {
	// Identifies the token; it is not a token.
	ID string `json:"id"`
	// For people.
	Name string `json:"name"`
	// The token itself. Only the answer that issues it has it.
	Token string `json:"token,omitempty"`
	// The paths that it opens.
	Paths []string `json:"paths"`
	// The methods that it opens them for; `GET` is also for `HEAD`.
	Methods []string `json:"methods"`
	// The person or program that acts as the user with it.
	Actor string `json:"actor,omitempty"`
	// Why the actor acts as the user.
	Reason string `json:"reason,omitempty"`
	// When it was issued.
	Created time.Time `json:"created_at"`
	// When it expires.
	Expires time.Time `json:"expires_at"`
	// When a request last used it, to the minute; null if none did.
	LastUsed *time.Time `json:"last_used"`
}

// Tokens lists the issued tokens of an account.
type Tokens struct {
	// Oldest first.
	Tokens []Token `json:"tokens"`
}

// TokenOf returns an issued token as the API shows it.
func TokenOf(t *record.IssuedToken) Token {
	v := Token{ID: t.ID, Name: t.Name, Paths: t.Paths, Methods: t.Methods, Actor: t.Actor, Reason: t.Reason, Created: t.Created, Expires: t.Expires}
	if !t.LastUsed.IsZero() {
		v.LastUsed = &t.LastUsed
	}
	return v
}

// Changed names the account that was changed, for a key without the right to read
// it.
type Changed struct {
	// Identifies the account, and its user to the application: visible ASCII, no braces.
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
	Apps int       `json:"apps"` // whose secrets were sealed again
	Next time.Time `json:"next"` // from when a rekey makes another secret
	// When the secret of an earlier rekey began, if this one continued it.
	Continued time.Time `json:"continued,omitzero"`
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

// A ProvenContact is a phone or email with a proof, which works once.
type ProvenContact struct {
	// The phone, as it will be stored.
	Phone string `json:"phone,omitempty"`
	// The email, as it will be stored.
	Email string `json:"email,omitempty"`
	// The phone_proof or email_proof of an account. It works once, within 15 minutes.
	Proof string `json:"proof"`
}
