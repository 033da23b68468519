package session

import (
	"context"
	"errors"
	"strconv"

	"github.com/mnemogate/mnemogate/flows/limits"
	"github.com/mnemogate/mnemogate/flows/record"
)

// What a hardened company charges and sends for an account without the answer telling of
// it (contract, 4, hardened).

// hides reports whether the call's session is one that strangers can have of
// anyone.
func (c *Call) hides() bool { return c.Company.Hardened && c.session.State == record.RecoveryOTP }

// withinHidden is send if the account's own budgets and locks allow it.
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

// errBudgetSpent is why something was not sent. That is no failure.
var errBudgetSpent = errors.New("a budget is used up")

// chargeHidden charges budgets behind an answer that does not tell of them. It
// tells the operator.
func (c *Call) chargePrivate(ctx context.Context, a record.Account, counters ...record.Counter) error {
	return c.spentPrivate(ctx, a, c.s.Sessions.Charge(ctx, c.s.Now(), counters...))
}

// spentHidden makes errBudgetSpent of a counter that is full.
func (c *Call) spentPrivate(ctx context.Context, a record.Account, err error) error {
	if full, ok := errors.AsType[*record.Full](err); ok {
		if s := c.s; s.told.First(s.Now(), full) {
			e := c.By("")
			e.Name, e.Company, e.Account, e.Mnemocode, e.Country = limits.LockOf(full.Key), c.Company.Code, a.ID, a.Mnemocode, c.country
			s.Emit(ctx, e)
		}
		return errBudgetSpent
	}
	return err
}
