package session

import (
	"context"
	"errors"

	"github.com/mnemogate/mnemogate/flows/limits"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/tenant"
)

// Attempts begins the attempts of clients, and reports which limits they have reached.
type Attempts struct {
	*Config
	secrets *Secrets
	journal *Journal
}

// Attempt returns a new attempt of a client at the address. Its error is that of Keys.
func (t *Attempts) Attempt(ctx context.Context, company *tenant.Company, address string) (limits.Attempt, error) {
	keys, err := t.secrets.Keys(ctx)
	at := t.attempt(company, address)
	at.Keys = keys
	return at, err
}

// attempt is Attempt without the Keys.
func (t *Attempts) attempt(company *tenant.Company, address string) limits.Attempt {
	at := limits.Attempt{Company: company, Address: address, Now: t.Now(), Counters: t.Sessions, FailureCounts: t.Accounts}
	if t.Observe != nil {
		at.Reported, at.Traffic = &t.Node.reported, &t.Node.traffic
	}
	return at
}

// UsedUp returns the budgets of SMS with this event that are used up, as far as this node knows.
func (t *Attempts) UsedUp(event string) []limits.FullLimit {
	return t.Node.reported.Full(t.Now(), event, func(company string) tenant.Rate {
		c := t.Companies[company]
		switch {
		case c == nil:
			return tenant.Unlimited
		case event == record.LimitSMSCountry:
			return c.Limits.SMSPerCountry
		}
		return c.Limits.SMSPerCompany
	})
}

// errBudgetSpent means that a message was not sent because a budget is used up. It is
// not a failure.
var errBudgetSpent = errors.New("a budget is used up")

// chargePrivate charges budgets that no answer may reveal. If one is used up, it emits e for
// the operator, with the name of the limit.
func (t *Attempts) chargePrivate(ctx context.Context, e record.Event, counters ...record.Counter) error {
	return t.spentPrivate(ctx, e, t.Sessions.Charge(ctx, t.Now(), counters...))
}

// spentPrivate returns errBudgetSpent if err says that a counter is full, otherwise err.
// It emits one event for each window of the counter.
func (t *Attempts) spentPrivate(ctx context.Context, e record.Event, err error) error {
	full, ok := errors.AsType[*record.FullError](err)
	if !ok {
		return err
	}
	if t.Node.reported.FirstTime(t.Now(), full) {
		e.Name = limits.LimitOf(full.Key)
		t.journal.Emit(ctx, e)
	}
	return errBudgetSpent
}
