package session

import (
	"context"
	"errors"
	"strconv"

	"github.com/mnemogate/mnemogate/flows/limits"
	"github.com/mnemogate/mnemogate/flows/record"
)

// This file charges budgets and sends messages for a hardened company, in ways that the
// answer does not reveal (contract, section 4, hardened).

// hides reports whether strangers can begin a session like the call's for any login id.
func (c *Call) hides() bool { return c.Company.Hardened && c.session.State == record.RecoveryOTP }

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
			e.Name, e.Company, e.Account, e.Mnemocode, e.Country = limits.LockOf(full.Key), c.Company.Code, a.ID, a.Mnemocode, c.country
			s.Emit(ctx, e)
		}
		return errBudgetSpent
	}
	return err
}
