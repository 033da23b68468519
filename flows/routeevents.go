package flows

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/session"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// EventKinds lists all events. The events of routes come first.
var EventKinds = eventKinds()

func eventKinds() []record.EventKind {
	var kinds []record.EventKind
	for _, r := range Routes {
		who := []string{"company", "mnemocode", "session", "state", "address", "user_agent", "key", "country", "gateway", "route", "result", "reason"}
		kinds = append(kinds,
			record.EventKind{Name: r.Event(record.Success), When: "`" + r.Path + "` succeeded", Fields: slices.Concat(who, []string{"factor"})},
			record.EventKind{Name: r.Event(""), When: "`" + r.Path + "` failed; result is the error_code, or canceled (the client hung up)", Fields: slices.Concat(who, []string{"ref"})},
		)
	}
	return append(kinds, record.EventKinds...)
}

// Event returns the name of the event for a result of the route.
func (r *Route) Event(result string) string {
	name := record.EventPrefix + strings.ReplaceAll(strings.TrimPrefix(r.Path, "auth/"), "/", ".")
	if result == record.Success {
		return name + ".success"
	}
	return name + ".failure"
}

// emit reports the events of a call to the observer: first locks and revocations, then
// its result.
func (s *Service) emit(ctx context.Context, r *Request, c *session.Call, reply Reply, err error) {
	e := c.Event()
	e.Route, e.Ref = r.Route.Path, wire.RefOf(err)
	if s.Companies[r.Company] != nil {
		e.Company = r.Company
	}
	for _, noted := range c.Events {
		e.Name, e.Reason, e.Traffic = noted.Name, noted.Reason, noted.Traffic
		e.Noise = isNoise(e)
		s.Emit(ctx, e)
	}
	e.Traffic = nil
	authorized := err == nil && reply.SessionState == record.Authorized
	if !errors.Is(err, wire.ErrRestricted) {
		c.RecordTraffic(e.Account, authorized)
	}
	e.Result, e.Reason = outcome(ctx, err)
	e.Name = r.Route.Event(e.Result)
	if err == nil {
		e.Session = cmp.Or(e.Session, c.NextID())
		e.State = cmp.Or(reply.SessionState, e.State)
		e.Factor, e.Reason = string(c.By), c.With
	}
	e.Noise, e.Apart = isNoise(e), isUnlimited(e)
	if !isHistory(e) {
		s.EmitUnrecorded(ctx, e)
		return
	}
	s.Emit(ctx, e)
	if authorized {
		s.WaitRecorded()
	}
}

// Refused reports the event of a request that was refused with err instead of served, such as
// one with a bad Idempotency-Key.
func (s *Service) Refused(ctx context.Context, r *Request, err error) {
	s.emit(ctx, r, s.NewCall(r.Client), Reply{}, err)
}

// isHistory reports whether the result of a request belongs in the account's history.
// Strangers can cause the first step of a login without limit, so its success does not. Nor
// do refusals by a limit, whose first has an event of its own, those of a busy server, which
// must not write even more, and what a client did not wait for.
func isHistory(e record.Event) bool {
	if e.Result == record.Success {
		return e.Route != "passkey/options" && (e.Route != "auth/login" || e.State == record.CheckOTP) // an SMS code was sent
	}
	return e.Result != wire.ErrUnavailable.Code && e.Result != wire.Canceled && !strings.HasPrefix(e.Reason, "limit.")
}

// isUnlimited reports whether a client can cause the result without end: no limit counts
// refusals but those of a secret that was compared.
func isUnlimited(e record.Event) bool {
	switch e.Result {
	case "", record.Success, wire.ErrPasswordInvalid.Code, wire.ErrCredentialsInvalid.Code, wire.ErrOTPInvalid.Code, wire.ErrBackupCodeInvalid.Code, wire.ErrAnswerInvalid.Code:
		return false
	}
	return true
}

// isNoise reports whether strangers can cause an event if they know a login id but no
// secret.
func isNoise(e record.Event) bool {
	switch e.Route {
	case "auth/login", "auth/renewotp", "auth/recovery/recover", "auth/recovery/renewotp":
		return true
	case "auth/logout":
		return e.State != record.Authorized
	}
	_, limit := record.CutLimit(e.Name)
	return limit || e.Result != "" && e.Result != record.Success
}

// outcome returns the Result and Reason of the event of a request.
func outcome(ctx context.Context, err error) (result, reason string) {
	result, _ = wire.ResultOf(ctx, err)
	if refusal, ok := errors.AsType[*wire.Refusal](err); ok {
		if refusal.Cause != nil {
			reason = refusal.Cause.Error()
		}
		reason = cmp.Or(string(refusal.Reason), reason, refusal.Message)
	}
	return result, reason
}
