package record

import "time"

// An Event tells an operator what happened: the outcome of a route, a lock, the
// end of a session, a change by an administrator. EventKinds lists the names
// and which fields each has. None ever holds what a client sent, but for what
// the store or the configuration knows as well, and its user agent: a login id
// that was typed may be a password.
type Event struct {
	Name      string
	Time      time.Time
	Company   string // if it is a configured one
	Account   int64  // its ID, once it was found, for its history alone
	Mnemocode string // of the account, once it was found
	Session   string // Session.ID, of no use as a token
	State     State  // of that session: what the request led to, or where it was
	Address   string // the client's
	UserAgent string // what the client says it is, cut at 200 bytes
	Key       string // which API key the client has: see Service.Company, and KeyOfPage
	Actor     string // who managed the account: the name of a key for the accounts API, or ActorAdmin
	Route     string // Route.Path
	Result    string // Success or the error_code
	Reason    string // why, as far as Result does not say it
	Noise     bool   // strangers can cause it, who know a login id and no secret; for History.Record, and not kept
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

	// What an administrator did: for Service.Emit.
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
