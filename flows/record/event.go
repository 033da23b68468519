package record

import "time"

// An Event tells what happened: the outcome of a route, a lock, the end of a
// session, a change by an administrator. It is made once; the audit log, the
// metrics, the account's history and the outbox read it, the outbox in the
// same step as the change and the others once that has succeeded.
//
// flows.EventKinds lists the names and which fields each has. None ever holds what
// a client sent, but for what the store or the configuration knows as well, and its
// user agent: a login id that was typed may be a password. In a history its JSON is
// kept, beside its time.
type Event struct {
	Name      string    `json:"event"`
	Time      time.Time `json:"-"`
	Company   string    `json:"-"`                    // if it is a configured one
	Account   int64     `json:"-"`                    // its ID, once it was found, for its history alone
	Mnemocode string    `json:"mnemocode,omitempty"`  // of the account, once it was found
	Session   string    `json:"session,omitempty"`    // Session.ID, of no use as a token
	State     State     `json:"state,omitempty"`      // of that session: what the request led to, or where it was
	Address   string    `json:"address,omitempty"`    // the client's
	UserAgent string    `json:"user_agent,omitempty"` // what the client says it is, cut at 200 bytes
	Key       string    `json:"-"`                    // which API key the client has: see flows.Service.Company, and flows.KeyOfPage
	Actor     string    `json:"actor,omitempty"`      // who managed the account: the name of a key for the accounts API, or ActorAdmin
	Country   string    `json:"-"`                    // calling code, as +370, of the phone that an SMS was for or whose code was given
	Route     string    `json:"route,omitempty"`      // Route.Path
	Result    string    `json:"result,omitempty"`     // Success or the error_code
	Reason    string    `json:"reason,omitempty"`     // why, as far as Result does not say it
	Traffic   *Traffic  `json:"-"`                    // of an address that reached a limit; else nil
	Noise     bool      `json:"-"`                    // strangers can cause it, who know a login id and no secret; for History.Record

	// What only the outbox tells, see background.OutboxEvents.
	Previous string       `json:"-"` // the mnemocode before the change, if that changed it
	Fields   []string     `json:"-"` // that were changed, in the words of the accounts API
	Accepted []Acceptance `json:"-"` // disclaimers
	Until    time.Time    `json:"-"` // a lock's end
	Provider int          `json:"-"` // whose user was bound
}

// A Traffic is what came from an address in the window of a limit, when it reached that:
// how many attempts the limit had counted, on all nodes, and what this node saw of them.
type Traffic struct {
	Attempts int
	Accounts int // different ones; 64 stands for any more
	Failures int // wrong passwords, codes, answers and login ids
	Logins   int // that came to their end
}

// Kinds of Traffic, for operators who wonder whether to raise a limit.
const (
	TrafficOfUsers     = "users"     // most of those who tried logged in
	TrafficOfStrangers = "strangers" // most did not
)

// Kind tells users who share an address from programs that guess, or have SMS sent.
func (t *Traffic) Kind() string {
	if t.Logins > t.Failures && 2*t.Logins >= t.Accounts {
		return TrafficOfUsers
	}
	return TrafficOfStrangers
}

// Success is the Result of what succeeded.
const Success = "success"

// ActorAdmin is the Actor of who came by Caddy's admin endpoint. No key can have
// this name.
const ActorAdmin = "admin endpoint"

// Names of events. A route's have its path without auth/ and with dots
// (Route.Event): mnemogate.recovery.checkotp.success, ….failure.
const (
	EventPrefix   = "mnemogate."
	LockPrefix    = EventPrefix + "lock."
	adminPrefix   = EventPrefix + "account."
	sessionPrefix = EventPrefix + "session."
	keyPrefix     = EventPrefix + "key."

	LockPassword     = LockPrefix + "password"
	LockDisabled     = LockPrefix + "disabled"
	LockCodes        = LockPrefix + "wrong_codes"
	LockAnswers      = LockPrefix + "wrong_answers"
	LockAddress      = LockPrefix + "failures_per_address"
	LockLogins       = LockPrefix + "logins_per_address"
	LockRenewals     = LockPrefix + "renewals"
	LockSMSAccount   = LockPrefix + "sms_per_account"
	LockSMSPhone     = LockPrefix + "sms_per_phone"
	LockSMSAddress   = LockPrefix + "sms_per_address"
	LockSMSCompany   = LockPrefix + "sms_per_company"
	LockSMSCountry   = LockPrefix + "sms_per_country"
	LockSMSCountries = LockPrefix + "sms_countries"
	LockMails        = LockPrefix + "mails_per_account"

	SessionEnded     = sessionPrefix + "ended"
	AllSessionsEnded = sessionPrefix + "all_ended"
	SessionMoved     = sessionPrefix + "moved"

	OutboxDropped = EventPrefix + "outbox.dropped"

	IdentityBound = adminPrefix + "identity_bound"

	// What an administrator did: for flows.Service.Emit.
	AccountCreated     = adminPrefix + "created"
	AccountChanged     = adminPrefix + "changed"
	AccountDeleted     = adminPrefix + "deleted"
	AccountUnlocked    = adminPrefix + "unlocked"
	AccountBackupCodes = adminPrefix + "backup_codes"
	AccountTOTP        = adminPrefix + "totp"

	AccountPasswordWrong = adminPrefix + "password_wrong"
	AccountWelcomed      = adminPrefix + "welcomed"

	// What befell a key for the accounts API.
	KeyWrong   = keyPrefix + "wrong"
	KeyRefused = keyPrefix + "refused"
)

// Reasons of SessionEnded.
const (
	EndedByLogout   = "logout"   // its own
	EndedByPassword = "password" // one was set by auth/setpassword
	EndedByChange   = "account"  // an administrator changed or deleted the account
	EndedByAdmin    = "admin"    // an administrator ended it
	EndedLate       = "owed"     // a change that was cut short before it could end it
)

// An EventKind documents the events of a name.
type EventKind struct {
	Name   string
	When   string
	Fields []string // that it can have beside name and time, in the order of Event
}

// EventKinds lists the events that are not the outcome of a route. flows.EventKinds
// lists those, too.
var EventKinds = eventKinds()

func eventKinds() []EventKind {
	client := []string{"company", "mnemocode", "session", "state", "address", "user_agent", "key"}
	attempt := append(client[:len(client):len(client)], "actor", "country", "route")
	address := append(attempt[:len(attempt):len(attempt)], "reason", "attempts", "accounts", "failures", "logins")
	ended := []string{"company", "mnemocode", "session", "state", "address", "user_agent", "key", "actor", "route", "reason"}
	admin := []string{"company", "mnemocode", "address", "actor", "reason"}
	return []EventKind{
		{LockPassword, "`lock_after` wrong passwords in a row, or one more after such a lock: locked for `lock_for`", attempt},
		{LockDisabled, "`disable_after` wrong passwords in a row: locked until recovery or unlock", attempt},
		{LockCodes, "`wrong_codes` is reached", attempt},
		{LockAnswers, "`wrong_answers` is reached", attempt},
		{LockAddress, "the first request of an address that `failures_per_address` refuses; once per window and node. Reason says whose traffic it is: see [Shared addresses](#shared-addresses)", address},
		{LockLogins, "the first password or OAuth code of an address that `logins_per_address` refuses; once per window and node. Reason as above", address},
		{LockRenewals, "the first renewal of a session that `otp renewals` refuses; once per session and node", attempt},
		{LockSMSAccount, "the first SMS to an account that `sms_per_account` refuses; once per window and node", attempt},
		{LockSMSPhone, "the first SMS to a phone that `sms_per_phone` refuses; once per window and node", attempt},
		{LockSMSAddress, "the first SMS for an address that `sms_per_address` refuses; once per window and node. Reason as above", address},
		{LockSMSCompany, "the first SMS of a company that `sms_per_company` refuses; once per window and node", attempt},
		{LockSMSCountry, "the first SMS to a country that `sms_per_country` refuses; once per window and node", attempt},
		{LockSMSCountries, "the first SMS to a country that is not in `sms_countries`; once per day and node", attempt},
		{LockMails, "the first mail to an account that `mails_per_account` refuses; once per window and node", attempt},
		{SessionEnded, "a session or recovery link was revoked: `" + EndedByLogout + "`, `" + EndedByPassword + "` (one was set), `" +
			EndedByChange + "` (changed or deleted by an administrator), `" + EndedByAdmin + "` (ended by one), `" + EndedLate + "` (what a crash left over)", ended},
		{AllSessionsEnded, "all sessions of the company were revoked: `" + EndedByAdmin + "`, `" + EndedLate + "`", []string{"company", "address", "actor", "reason"}},
		{SessionMoved, "an authorized token was exchanged for a cookie, in which the session continues", client},
		{IdentityBound, "a provider's user was linked to the account by `link_verified_email`; reason names the provider", append(client[:len(client):len(client)], "route", "reason")},
		{AccountCreated, "an account was created; reason: `admin`, `import` or `configuration`", admin},
		{AccountChanged, "an account was changed; reason lists the fields", admin},
		{AccountDeleted, "an account was deleted", admin},
		{AccountUnlocked, "counts and locks of an account were cleared", admin},
		{AccountBackupCodes, "an account got new backup codes", admin},
		{AccountTOTP, "a secret for an authenticator app was shown; once it is confirmed, the account is changed", admin},
		{AccountPasswordWrong, "a backend sent a wrong `current_password` of a user", admin},
		{AccountWelcomed, "a welcome link was mailed to the owner of an account", admin},
		{OutboxDropped, "an event for the `events` receiver could not be delivered for three days and was dropped; reason is its type", []string{"company", "mnemocode", "reason"}},
		{KeyWrong, "a request to the accounts API had a wrong key; the reason `limit` marks the first one of an address that had too many, once per window and node", []string{"address", "reason"}},
		{KeyRefused, "a key for the accounts API does not cover the company, or lacks the right that reason names", []string{"company", "address", "actor", "reason"}},
	}
}
