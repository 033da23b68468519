package flows

import (
	"cmp"
	"context"
	"errors"
	"strings"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// An EventKind documents the events of a name.
type EventKind struct {
	Name   string
	When   string
	Fields []string // that it can have beside name and time, in the order of Event
}

// EventKinds lists all events. Those of a route come first.
var EventKinds = eventKinds()

func eventKinds() []EventKind {
	var kinds []EventKind
	for _, r := range Routes {
		who := []string{"company", "mnemocode", "session", "state", "address", "user_agent", "key", "route", "result"}
		kinds = append(kinds,
			EventKind{r.Event(record.Success), "`" + r.Path + "` succeeded", who},
			EventKind{r.Event(""), "`" + r.Path + "` failed; result is the error_code", append(who[:len(who):len(who)], "reason")},
		)
	}
	client := []string{"company", "mnemocode", "session", "state", "address", "user_agent", "key"}
	attempt := append(client[:len(client):len(client)], "actor", "route")
	ended := []string{"company", "mnemocode", "session", "state", "address", "user_agent", "key", "actor", "route", "reason"}
	admin := []string{"company", "mnemocode", "address", "actor", "reason"}
	return append(kinds,
		EventKind{record.LockPassword, "`lock_after` wrong passwords in a row, or one more after such a lock: locked for `lock_for`", attempt},
		EventKind{record.LockDisabled, "`disable_after` wrong passwords in a row: locked until recovery or unlock", attempt},
		EventKind{record.LockCodes, "`wrong_codes` is reached", attempt},
		EventKind{record.LockAnswers, "`wrong_answers` is reached", attempt},
		EventKind{record.LockAddress, "the first request of an address that `failures_per_address` refuses; once a window and node", attempt},
		EventKind{record.LockLogins, "the first password or OAuth code of an address that `logins_per_address` refuses; once a window and node", attempt},
		EventKind{record.LockRenewals, "the first renewal of a session that `otp renewals` refuses; once a session and node", attempt},
		EventKind{record.LockSMSAccount, "the first SMS to an account that `sms_per_account` refuses; once a window and node", attempt},
		EventKind{record.LockSMSPhone, "the first SMS to a phone that `sms_per_phone` refuses; once a window and node", attempt},
		EventKind{record.LockSMSAddress, "the first SMS for an address that `sms_per_address` refuses; once a window and node", attempt},
		EventKind{record.LockSMSCompany, "the first SMS of a company that `sms_per_company` refuses; once a window and node", attempt},
		EventKind{record.LockSMSCountry, "the first SMS to a country that `sms_per_country` refuses; once a window and node", attempt},
		EventKind{record.LockSMSCountries, "the first SMS to a country that is none of `sms_countries`; once a day and node", attempt},
		EventKind{record.LockMails, "the first mail to an account that `mails_per_account` refuses; once a window and node", attempt},
		EventKind{record.SessionEnded, "a session or recovery link was ended before its time: `" + record.EndedByLogout + "`, `" + record.EndedByPassword + "` (one was set), `" +
			record.EndedByChange + "` (changed or deleted by an administrator), `" + record.EndedByAdmin + "` (ended by one), `" + record.EndedLate + "` (what a crash left over)", ended},
		EventKind{record.AllSessionsEnded, "all sessions of the company were ended: `" + record.EndedByAdmin + "`, `" + record.EndedLate + "`", []string{"company", "address", "actor", "reason"}},
		EventKind{record.SessionMoved, "an authorized token was exchanged for a cookie, in which the session goes on", client},
		EventKind{record.IdentityBound, "a provider's user was bound to the account by `link_verified_email`; reason names the provider", append(client[:len(client):len(client)], "route", "reason")},
		EventKind{record.AccountCreated, "an account was created; reason: `admin`, `import` or `configuration`", admin},
		EventKind{record.AccountChanged, "an account was changed; reason lists the fields", admin},
		EventKind{record.AccountDeleted, "an account was deleted", admin},
		EventKind{record.AccountUnlocked, "counts and locks of an account were cleared", admin},
		EventKind{record.AccountBackupCodes, "an account got new backup codes", admin},
		EventKind{record.AccountTOTP, "a secret for an authenticator app was shown; once it is confirmed, the account is changed", admin},
		EventKind{record.AccountPasswordWrong, "a wrong `current_password` of a user came from a backend", admin},
		EventKind{record.AccountWelcomed, "the owner of an account was mailed a welcome link", admin},
		EventKind{record.OutboxDropped, "an event for the `events` receiver was not delivered for three days and is dropped; reason is its type", []string{"company", "mnemocode", "reason"}},
		EventKind{record.KeyWrong, "a request to the accounts API came with a key that is none; with the reason `limit` the first of an address that had too many, once a window and node", []string{"address", "reason"}},
		EventKind{record.KeyRefused, "a key for the accounts API lacks the right, which reason names, or the company", []string{"company", "address", "actor", "reason"}},
	)
}

// Event is the name of the event that a result of the route is.
func (r *Route) Event(result string) string {
	name := record.EventPrefix + strings.ReplaceAll(strings.TrimPrefix(r.Path, "auth/"), "/", ".")
	if result == record.Success {
		return name + ".success"
	}
	return name + ".failure"
}

// Emit tells the observer, if there is one, and the account's history. A Time
// that is not set is now.
func (s *Service) Emit(ctx context.Context, e record.Event) {
	if e.Time.IsZero() {
		e.Time = s.Now()
	}
	s.remember(e)
	if s.Observe != nil {
		s.Observe(ctx, e)
	}
}

// remember puts an event into the history of its account.
func (s *Service) remember(e record.Event) {
	if s.History != nil && e.Account != 0 && isHistory(e) {
		e.Noise = isNoise(e)
		s.recorder.Remember(e)
	}
}

// isHistory reports whether an event is worth a row. What strangers can cause in
// any number is not: the first step of a login, and what was refused before a
// secret was looked at.
func isHistory(e record.Event) bool {
	switch e.Result {
	case "": // of no route
		return true
	case record.Success:
		return e.Route != "auth/login" || e.State == record.CheckOTP // for which a code was sent
	default:
		return failed(e)
	}
}

// failed reports whether somebody had a secret wrong.
func failed(e record.Event) bool {
	switch e.Result {
	case wire.ErrPasswordInvalid.Code, wire.ErrCredentialsInvalid.Code, wire.ErrOTPInvalid.Code, wire.ErrBackupCodeInvalid.Code, wire.ErrAnswerInvalid.Code:
		return true
	}
	return false
}

// isNoise reports whether an event is one that strangers can cause, who know a login
// id and no secret.
func isNoise(e record.Event) bool {
	switch e.Route {
	case "auth/login", "auth/renewotp", "auth/recovery/recover", "auth/recovery/renewotp":
		return true
	case "auth/logout":
		return e.State != record.Authorized
	}
	return failed(e) || strings.HasPrefix(e.Name, record.LockPrefix)
}

// by is an event that the call's client has caused.
func (c *call) by(reason string) record.Event {
	return record.Event{Address: c.Address, UserAgent: c.userAgent, Key: c.key, Reason: reason}
}

// found notes whose account the call is about.
func (c *call) found(a record.Account) { c.Account, c.Mnemocode = a.ID, a.Mnemocode }

// whose is the mnemocode of that account, empty if none was found.
func (c *call) whose() string {
	_, mnemocode := c.who()
	return mnemocode
}

func (c *call) who() (account int64, mnemocode string) {
	if c.Mnemocode == "" && c.session != nil {
		return c.session.Account, c.session.Mnemocode
	}
	return c.Account, c.Mnemocode
}

// emit tells the observer what came of a call, locks and endings first.
func (s *Service) emit(ctx context.Context, r *Request, c *call, reply Reply, err error) {
	e := c.by("")
	e.Time, e.Route = c.Now, r.Route.Path
	e.Account, e.Mnemocode = c.who()
	if s.Companies[r.Company] != nil {
		e.Company = r.Company
	}
	if c.session != nil {
		e.Session, e.State = c.session.ID, c.session.State
	}
	for _, noted := range c.Events {
		e.Name, e.Reason = noted.Name, noted.Reason
		s.Emit(ctx, e)
	}
	e.Result, e.Reason = outcome(err)
	e.Name = r.Route.Event(e.Result)
	if err == nil {
		e.Session = cmp.Or(e.Session, c.issued)
		e.State = cmp.Or(reply.SessionState, e.State)
	}
	s.Emit(ctx, e)
	if err == nil && reply.SessionState == record.Authorized {
		s.Recorded()
	}
}

// outcome is an error's Result and Reason.
func outcome(err error) (result, reason string) {
	if err == nil {
		return record.Success, ""
	}
	result = wire.ErrService.Code
	if code, ok := errors.AsType[*wire.Error](err); ok {
		result = code.Code
	}
	if refusal, ok := errors.AsType[*wire.Refusal](err); ok {
		reason = cmp.Or(strings.TrimPrefix(refusal.Lock, record.LockPrefix), refusal.Message, string(refusal.Reason))
		if reason == "" && refusal.Cause != nil {
			reason = refusal.Cause.Error()
		}
	}
	return result, reason
}
