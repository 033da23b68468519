package limits

import (
	"context"
	"slices"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// This file refunds what an attempt has used up for work that was not done.

// Take is Charge before the work that the counters count. GiveBack refunds it.
func (at *Attempt) Take(ctx context.Context, counters ...record.Counter) error {
	err := at.Charge(ctx, counters...)
	if err == nil {
		at.Took(counters...)
	}
	return err
}

// Took says that counters were charged as by Take.
func (at *Attempt) Took(counters ...record.Counter) {
	at.taken = append(at.taken, slices.DeleteFunc(slices.Clone(counters), func(c record.Counter) bool { return c.CheckOnly }))
}

// Worked says that the work was done, so that GiveBack refunds nothing of it: a secret was
// compared, or a message was given to a gateway.
func (at *Attempt) Worked() { at.taken = nil }

// NotAnswered says that a plugin was asked and failed, so GiveBack refunds less: a provider
// that throttles must not get more requests for it.
func (at *Attempt) NotAnswered() { at.unanswered = true }

// GiveBack is GiveBackAll if err, the outcome of the attempt, says that the node was too
// busy for the work, or that a store or provider did not answer or has a defect.
func (at *Attempt) GiveBack(ctx context.Context, err error) {
	if wire.IsFailure(err) {
		at.GiveBackAll(ctx)
	}
}

// GiveBackAll refunds what the attempt took. A client that hangs up gets nothing back. An
// address gets back at most wideFactor times its limit, because what a try leaves in the
// store is bounded by that, and once its limit if a plugin failed.
func (at *Attempt) GiveBackAll(ctx context.Context) {
	if len(at.taken) == 0 || ctx.Err() != nil {
		return
	}
	record.SpareStoreTime(ctx) // a slow store may have used it up
	if bound := at.Company.Limits.LoginsPerAddress; bound != tenant.Unlimited {
		if !at.unanswered {
			bound.N *= wideFactor
		}
		if at.Counters.Charge(ctx, at.Now, at.perAddress("given-back", bound)...) != nil {
			return
		}
	}
	for _, counters := range at.taken {
		_ = at.Counters.Refund(ctx, at.Now, counters...) // then they count, as without GiveBack
	}
	at.taken = nil
}
