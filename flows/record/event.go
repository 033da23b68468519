package record

import (
	"slices"
	"strings"
	"time"
)

// An Event says what happened: the outcome of a route, a lock, the end of a session,
// or a change by an administrator. The audit log, the metrics, the account's history
// and the outbox all use the same Event. The outbox stores it in the same step as the
// change; the others get it after the change has succeeded.
//
// flows.EventKinds lists the names and the fields that each can have. An Event never
// holds what a client sent, because a user may type a password as the login id. The
// exceptions are the user agent, and values that the store or the configuration also
// has. A history keeps the JSON of the Event, its time and its Ref.
type Event struct {
	Name      string    `json:"event"`
	Time      time.Time `json:"-"`
	Company   string    `json:"-"`                    // if it is configured
	Account   int64     `json:"-"`                    // the account's ID, once it is known; only for its history
	Mnemocode string    `json:"mnemocode,omitempty"`  // the account's, once it is known
	Session   string    `json:"session,omitempty"`    // Session.ID, which is not a token
	State     State     `json:"state,omitempty"`      // the session's: after the request, or before it if nothing changed
	Address   string    `json:"address,omitempty"`    // the client's
	UserAgent string    `json:"user_agent,omitempty"` // the client's, cut at 200 bytes
	Key       string    `json:"-"`                    // the client's API key: see flows.Service.Company, and flows.KeyOfPage
	Actor     string    `json:"actor,omitempty"`      // what changed the account: the name of a key for the accounts API, ActorAdmin or ActorUser
	Country   string    `json:"-"`                    // calling code, such as +370, of the phone that the SMS or its code was for
	Gateway   string    `json:"-"`                    // the one that was asked last to send a code or link
	Route     string    `json:"route,omitempty"`      // Route.Path; for RequestRefused the rule's pattern
	Result    string    `json:"result,omitempty"`     // Success, canceled or the error_code
	Reason    string    `json:"reason,omitempty"`     // why, if Result does not say it; of a success, the ID of what the user gave
	Ref       string    `json:"-"`                    // of the answer that refused the request: see wire.WithRef
	Factor    string    `json:"factor,omitempty"`     // what the user gave in a step that succeeded, or with SessionRaised: one of the AuthMethods
	Traffic   *Traffic  `json:"-"`                    // of an address that reached a limit; nil otherwise
	Noise     bool      `json:"-"`                    // clients that know a login id and no secret can cause it; for History.Record
	Apart     bool      `json:"-"`                    // a client can cause it without end; for History.Record
	Count     int       `json:"-"`                    // how often it happened in a row; only from History.Recorded
	Previous  string    `json:"-"`                    // the mnemocode before the change, if the change replaced it

	// Only the outbox uses these fields: see background.OutboxEvents.
	Fields   []string     `json:"-"` // the changed fields, as the accounts API names them
	Accepted []Acceptance `json:"-"` // disclaimers
	Until    time.Time    `json:"-"` // the end of the lock
	Provider int          `json:"-"` // the provider of the user that was bound
}

// A Traffic describes the requests of an address in the window of a limit, at the time
// that it reached the limit. Attempts comes from all nodes, the other fields from this
// node alone.
type Traffic struct {
	Attempts int // that the limit counted
	Accounts int // different ones; 64 means 64 or more
	Failures int // wrong passwords, codes, answers and login ids
	Logins   int // completed ones
}

// Results of Traffic.Guess. They help operators to decide whether to raise a limit.
const (
	TrafficOfUsers     = "users"     // most users who tried logged in
	TrafficOfStrangers = "strangers" // most did not
)

// Guess guesses whether users share the address, or a program guesses secrets or
// triggers SMS.
func (t *Traffic) Guess() string {
	if t.Logins > t.Failures && 2*t.Logins >= t.Accounts {
		return TrafficOfUsers
	}
	return TrafficOfStrangers
}

// Success is the Result of a route that succeeded.
const Success = "success"

// ActorAdmin is the Actor of changes through Caddy's admin endpoint. No key can have
// this name.
const ActorAdmin = "admin endpoint"

// ActorUser is the Actor of changes by the account's own user. No key can have this name
// either.
const ActorUser = "the user"

// Names of events. EventKinds says when each occurs. The name for a route is its path
// without auth/ and with dots (flows.Route.Event): mnemogate.recovery.checkotp.success,
// ….failure. The name for a lock or limit is the reason of its refusals: mnemogate.lock.codes.
const (
	EventPrefix   = "mnemogate."
	AccountPrefix = EventPrefix + "account."
	sessionPrefix = EventPrefix + "session."
	keyPrefix     = EventPrefix + "key."
	companyPrefix = EventPrefix + "company."

	LockPassword = EventPrefix + "lock.password"
	LockDisabled = EventPrefix + "lock.disabled"
	LockCodes    = EventPrefix + "lock.codes"
	LockAnswers  = EventPrefix + "lock.answers"

	LimitAddress    = EventPrefix + "limit.address"
	LimitLogins     = EventPrefix + "limit.logins"
	LimitRenewals   = EventPrefix + "limit.renewals"
	LimitSMSAccount = EventPrefix + "limit.sms_account"
	LimitSMSPhone   = EventPrefix + "limit.sms_phone"
	LimitSMSAddress = EventPrefix + "limit.sms_address"
	LimitSMSCompany = EventPrefix + "limit.sms_company"
	LimitSMSCountry = EventPrefix + "limit.sms_country"
	// The API tells users limit.sms_country. Operators also learn that no budget is used up.
	LimitSMSUnlisted = EventPrefix + "limit.sms_country_unlisted"
	LimitMails       = EventPrefix + "limit.mails"
	LimitChanges     = EventPrefix + "limit.changes"

	SessionEnded     = sessionPrefix + "ended"
	AllSessionsEnded = sessionPrefix + "all_ended"
	SessionMoved     = sessionPrefix + "moved"
	SessionRaised    = sessionPrefix + "raised"

	RequestRefused = EventPrefix + "request.refused"

	ContactCodeSent = EventPrefix + "contact.code_sent"
	ContactCodeUsed = EventPrefix + "contact.code_used"
	ContactVerified = EventPrefix + TypeContactVerified
	WelcomeUsed     = EventPrefix + TypeWelcomeUsed

	OutboxDropped = EventPrefix + "outbox.dropped"

	// Changes of a whole company.
	CompanyErased     = companyPrefix + "erased"
	CompanyRenamed    = companyPrefix + "renamed"
	CompanyKeyRotated = companyPrefix + "signing_key"

	AccountsExported = EventPrefix + "accounts.exported"
	StoreBackedUp    = EventPrefix + "store.backed_up"
	StoreRekeyed     = EventPrefix + "store.rekeyed"

	IdentityBound = AccountPrefix + "identity_bound"

	// Changes by an administrator, a backend or the account's own user.
	AccountCreated       = AccountPrefix + "created"
	AccountChanged       = AccountPrefix + "changed"
	AccountDeleted       = AccountPrefix + "deleted"
	AccountUnlocked      = AccountPrefix + "unlocked"
	AccountSessionsEnded = AccountPrefix + "sessions_ended"
	AccountBackupCodes   = AccountPrefix + "backup_codes"
	AccountTOTP          = AccountPrefix + "totp"

	AccountPasskeyAdded   = AccountPrefix + "passkey_added"
	AccountPasskeyRemoved = AccountPrefix + "passkey_removed"

	AccountTokenIssued  = AccountPrefix + "token_issued"
	AccountTokenRemoved = AccountPrefix + "token_removed"
	// A login with a passkey whose sign count did not grow: it may have been copied.
	AccountPasskeyCopied = AccountPrefix + "passkey_copied"
	// A login with a passkey that could be backed up and can't be any more, or the reverse.
	AccountPasskeyChanged = AccountPrefix + "passkey_changed"

	AccountPasswordWrong = AccountPrefix + "password_wrong"
	AccountChangeFailed  = AccountPrefix + "change_failed"
	AccountWelcomed      = AccountPrefix + "welcomed"

	AccountPasswordBreached = AccountPrefix + "password_breached"
	AccountDeviceRemembered = AccountPrefix + "device_remembered"
	AccountDeviceDistrusted = AccountPrefix + "device_distrusted"
	AccountDevicesForgotten = AccountPrefix + "devices_forgotten"

	// Problems with a key for the accounts API.
	KeyWrong   = keyPrefix + "wrong"
	KeyRefused = keyPrefix + "refused"
)

// CutLimit returns what follows EventPrefix in the name of the event of a lock or limit. ok
// is false for other events.
func CutLimit(name string) (reason string, ok bool) {
	reason = strings.TrimPrefix(name, EventPrefix)
	return reason, strings.HasPrefix(reason, "lock.") || strings.HasPrefix(reason, "limit.")
}

// Reasons of SessionEnded.
const (
	EndedByLogout   = "logout"   // its user logged out
	EndedByPassword = "password" // its user set a password
	EndedByChange   = "account"  // the account was changed or deleted
	EndedByAdmin    = "admin"    // an administrator revoked it
	EndedByUser     = "user"     // its user revoked it, in the list of the account's sessions
	EndedByLimit    = "limit"    // a newer session of the account needed its place (Session.AtMost)
	EndedLate       = "late"     // a crash delayed the revocation of a change
)

// AddressLimits are the limits that all clients of an address share.
var AddressLimits = []string{LimitAddress, LimitLogins, LimitSMSAddress}

// An EventKind documents the events of one name.
type EventKind struct {
	Name   string
	When   string
	Fields []string // the fields it can have, except name and time
}

// EventKinds lists the events that are not the outcome of a route. flows.EventKinds
// includes them.
var EventKinds = eventKinds()

// To add an event, add:
//   - its name, and its row here
//   - where it happens, after the change, emit in flows/manage/admin.go, or the Events of a
//     session.Call
//   - if strangers can cause it, isNoise in flows/routeevents.go
//   - for backends, its type in flows/record/outbox.go, and flows/background/outbox.go
//     (relay.go delivers it)
func eventKinds() []EventKind {
	client := []string{"company", "mnemocode", "session", "state", "address", "user_agent", "key"}
	attempt := slices.Concat(client, []string{"actor", "country", "gateway", "route", "ref"})
	address := slices.Concat(attempt, []string{"reason", "attempts", "accounts", "failures", "logins"})
	ended := slices.Concat(client, []string{"actor", "route", "reason", "ref"})
	admin := []string{"company", "mnemocode", "session", "address", "user_agent", "actor", "reason"}
	// A lock or limit is also a reason of refusals, which docs/api.md explains.
	const reached = "this [lock or limit](api.md#reasons) was reached"
	const named = "what the name says"
	const byAddress = "an address reached this limit; reason says [whose traffic it is](operators.md#shared-addresses)"
	return []EventKind{
		{LockPassword, reached, attempt},
		{LockDisabled, reached, attempt},
		{LockCodes, reached, attempt},
		{LockAnswers, reached, attempt},
		{LimitRenewals, reached, attempt},
		{LimitSMSAccount, reached, attempt},
		{LimitSMSPhone, reached, attempt},
		{LimitSMSCompany, reached, attempt},
		{LimitSMSCountry, reached, attempt},
		{LimitMails, reached, attempt},
		{LimitChanges, reached, attempt},
		{LimitAddress, byAddress, address},
		{LimitLogins, byAddress, address},
		{LimitSMSAddress, byAddress, address},
		{LimitSMSUnlisted, "`sms_countries` refused an SMS; once per day and node", attempt},
		{SessionEnded, "a session or recovery link was revoked; reason: `" + EndedByLogout + "`, `" + EndedByPassword + "` (one was set), `" +
			EndedByChange + "` (it was changed or deleted), `" + EndedByAdmin + "`, `" + EndedByUser + "` (in the list of sessions), `" + EndedByLimit + "` (`sessions_per_account`), `" + EndedLate + "` (what a crash left over)", ended},
		{AllSessionsEnded, "all sessions of the company were revoked; reason: `" + EndedByAdmin + "`, `" + EndedLate + "`", admin},
		{SessionMoved, "a cookie replaced a token", client},
		{SessionRaised, "a user gave another factor, named as in [auth_methods](backends.md#the-user-and-the-session)", slices.Concat(client, []string{"factor", "reason"})},
		{RequestRefused, "a path needs more than the user's session; route is the pattern in `role`, `mfa` or `fresh`; once a minute for each user, reason, pattern and node",
			[]string{"company", "mnemocode", "session", "state", "address", "user_agent", "actor", "route", "result", "reason", "ref"}},
		{IdentityBound, "`link_verified_email` linked a user of the provider in reason", slices.Concat(client, []string{"route", "reason", "ref"})},
		{AccountCreated, "an account was created; reason: `admin`, `import` or `configuration`", admin},
		{AccountChanged, "an account was changed; reason lists the fields, with the values of those that name nobody, as in `role (admin)`", slices.Concat(admin, []string{"previous_mnemocode"})},
		{AccountDeleted, named, admin},
		{AccountUnlocked, named, admin},
		{AccountBackupCodes, named, admin},
		{AccountPasskeyAdded, "a passkey was added or removed; reason is its id", admin},
		{AccountPasskeyRemoved, "a passkey was added or removed; reason is its id", admin},
		{AccountWelcomed, named, slices.Concat(admin, []string{"gateway"})},
		{AccountDeviceRemembered, "a known device was added; reason is its id", slices.Concat(attempt, []string{"reason"})},
		{WelcomeUsed, named, slices.Concat(client, []string{"route", "ref"})},
		{StoreRekeyed, named, []string{"address", "actor"}},
		{StoreBackedUp, "a backup of the store began", []string{"address", "actor"}},
		{AccountSessionsEnded, "the sessions of the account were ended; reason: `" + EndedByAdmin + "`", admin},
		{AccountTOTP, "a secret for an authenticator app was shown", admin},
		{AccountTokenIssued, "a token was issued; reason is its id and, if somebody acts as the user, who and why", admin},
		{AccountTokenRemoved, "a token was removed, but not by a change that revokes sessions; reason is its id", admin},
		{AccountPasskeyCopied, "a passkey was refused that may be a copy: its sign count went back; reason is its id", slices.Concat(client, []string{"route", "reason", "ref"})},
		{AccountPasskeyChanged, "a passkey was refused because it could be backed up and now can't, or the reverse; reason is its id", slices.Concat(client, []string{"route", "reason", "ref"})},
		{AccountPasswordWrong, "a user, or a backend for a user, sent a wrong `current_password`", slices.Concat(admin, []string{"ref"})},
		{AccountChangeFailed, "another change by a user (`self_service`), or a code of `contacts/confirm`, failed; result is `canceled` or the error_code",
			[]string{"company", "mnemocode", "session", "address", "user_agent", "actor", "route", "result", "reason", "ref"}},
		{ContactCodeSent, "a code for a new `phone` or `email`, which reason names, was sent, or was correct", slices.Concat(admin, []string{"country", "gateway"})},
		{ContactCodeUsed, "a code for a new `phone` or `email`, which reason names, was sent, or was correct", slices.Concat(admin, []string{"country"})},
		{ContactVerified, "the owner has proven the `phone` or `email`, which reason names, or used the first code or link there", slices.Concat(attempt, []string{"reason"})},
		{AccountPasswordBreached, "a correct password is in the `breached` list", attempt},
		{AccountDeviceDistrusted, "a known device has sent `lock_after` wrong passwords, and is unknown from now on; reason is its id", slices.Concat(attempt, []string{"reason"})},
		{AccountDevicesForgotten, "known devices were removed, or the one in reason, but not by a change that revokes sessions", admin},
		{AccountsExported, "an export with hashes began; reason is `secrets` if it includes those of authenticator apps", []string{"company", "address", "actor", "reason"}},
		{CompanyErased, "accounts of the company were erased, or moved to the code in reason; several events if that takes long", []string{"company", "address", "actor"}},
		{CompanyRenamed, "accounts of the company were erased, or moved to the code in reason; several events if that takes long", []string{"company", "address", "actor", "reason"}},
		{CompanyKeyRotated, "the company got a new key that signs assertions", []string{"company", "address", "actor"}},
		{OutboxDropped, "the receiver did not accept an event of the type in reason for three days", []string{"company", "mnemocode", "reason"}},
		{KeyWrong, "the accounts API got a wrong key; with the reason `limit.address`, too many from there, once per window and node", []string{"address", "reason"}},
		{KeyRefused, "a key for the accounts API lacks the company, or the right in reason", []string{"company", "address", "actor", "reason"}},
	}
}
