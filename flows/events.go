package flows

import (
	"cmp"
	"context"
	"errors"
	"strings"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// EventKinds lists all events. Those of a route come first.
var EventKinds = eventKinds()

func eventKinds() []record.EventKind {
	var kinds []record.EventKind
	for _, r := range Routes {
		who := []string{"company", "mnemocode", "session", "state", "address", "user_agent", "key", "country", "route", "result"}
		kinds = append(kinds,
			record.EventKind{Name: r.Event(record.Success), When: "`" + r.Path + "` succeeded", Fields: who},
			record.EventKind{Name: r.Event(""), When: "`" + r.Path + "` failed; result is the error_code", Fields: append(who[:len(who):len(who)], "reason")},
		)
	}
	return append(kinds, record.EventKinds...)
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

// who is that account, if one was found.
func (c *call) who() (account int64, mnemocode string) {
	if c.Mnemocode == "" && c.session != nil {
		return c.session.Account, c.session.Mnemocode
	}
	return c.Account, c.Mnemocode
}

// emit tells the observer what came of a call, locks and endings first.
func (s *Service) emit(ctx context.Context, r *Request, c *call, reply Reply, err error) {
	e := c.by("")
	e.Time, e.Route, e.Country = c.Now, r.Route.Path, c.country
	e.Account, e.Mnemocode = c.who()
	if s.Companies[r.Company] != nil {
		e.Company = r.Company
	}
	if c.session != nil {
		e.Session, e.State = c.session.ID, c.session.State
	}
	for _, noted := range c.Events {
		e.Name, e.Reason, e.Traffic = noted.Name, noted.Reason, noted.Traffic
		s.Emit(ctx, e)
	}
	e.Traffic = nil
	authorized := err == nil && reply.SessionState == record.Authorized
	if !errors.Is(err, wire.ErrRestricted) {
		c.Ended(e.Account, authorized)
	}
	e.Result, e.Reason = outcome(err)
	e.Name = r.Route.Event(e.Result)
	if err == nil {
		e.Session = cmp.Or(e.Session, c.issued)
		e.State = cmp.Or(reply.SessionState, e.State)
	}
	s.Emit(ctx, e)
	if authorized {
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
