package session

import (
	"context"
	"errors"
	"strconv"

	"github.com/mnemogate/mnemogate/flows/limits"
	"github.com/mnemogate/mnemogate/flows/record"
)

// This file stores sessions, charges budgets and sends messages for a hardened company, in
// ways that the answer does not reveal (contract, section 4, hardened).

// hides reports whether strangers can begin a session in this state for any login id.
func (c *Call) hides(state record.State) bool {
	return c.Company.Hardened && state == record.RecoveryOTP
}

// hide makes a session a decoy for the store, with the ID of its account as Mnemocode.
// Otherwise it would be in the bucket of its account, which a client can compute from the
// token: one bucket for all login ids of the account, for as long as it can be recovered.
func hide(s *record.Session) {
	if s.Account != 0 {
		s.Account, s.Mnemocode = 0, strconv.FormatInt(s.Account, 10)
	}
}

// reveal undoes hide, except for the Mnemocode. It reports whether the session was hidden.
func reveal(s *record.Session) bool {
	if s.Account != 0 || s.Mnemocode == "" {
		return false
	}
	s.Account, _ = strconv.ParseInt(s.Mnemocode, 10, 64) // no error: hide has formatted it
	s.Mnemocode = ""
	return true
}

// withinPrivate returns a function that calls send if the account's own budgets and
// locks allow it.
func (c *Call) withinPrivate(a record.Account, send func(context.Context) error) func(context.Context) error {
	budgets := append(c.AccountSMS(strconv.FormatInt(a.ID, 10), a.Phone), c.CompanySMS()...)
	country, full := c.CountrySMS(a.Phone)
	budgets = append(budgets, country...)
	locked := c.CheckCodes(a) != nil
	return func(ctx context.Context) error {
		if locked {
			return errBudgetSpent
		}
		if full != nil {
			return c.spentPrivate(ctx, a, full)
		}
		if err := c.chargePrivate(ctx, a, budgets...); err != nil {
			return err
		}
		return send(ctx)
	}
}

// errBudgetSpent means that a message was not sent because a budget is used up. It is
// not a failure.
var errBudgetSpent = errors.New("a budget is used up")

// chargePrivate charges budgets that the answer does not reveal. If one is used up, it
// emits an event for the operator.
func (c *Call) chargePrivate(ctx context.Context, a record.Account, counters ...record.Counter) error {
	return c.spentPrivate(ctx, a, c.s.Sessions.Charge(ctx, c.s.Now(), counters...))
}

// spentPrivate returns errBudgetSpent if err says that a counter is full, otherwise err.
// It emits one event for each window of the counter.
func (c *Call) spentPrivate(ctx context.Context, a record.Account, err error) error {
	if full, ok := errors.AsType[*record.FullError](err); ok {
		if s := c.s; s.reported.FirstTime(s.Now(), full) {
			e := c.ClientEvent("")
			e.Name, e.Company, e.Account, e.Mnemocode, e.Country = limits.LimitOf(full.Key), c.Company.Code, a.ID, a.Mnemocode, c.country
			s.Emit(ctx, e)
		}
		return errBudgetSpent
	}
	return err
}
