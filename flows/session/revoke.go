package session

import (
	"cmp"
	"context"
	"errors"

	"golang.org/x/sync/errgroup"

	"github.com/mnemogate/mnemogate/flows/panics"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// This file revokes sessions. A logout revokes one (Revoke). A change of an account revokes
// all its sessions (RevokeAll). What a crash left over is done later (RevokePending).

// Revoke revokes the call's session. Of concurrent callers, one succeeds.
func (c *Call) Revoke(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx) // a logout ends the session even if the client hangs up
	var err error
	if c.stateless != nil { // anyone can get many stateless tokens, so revoking them is what counts against the address
		err = c.m.Sessions.Charge(ctx, c.Now, append(c.CountLogin(), c.stateless.claim)...)
	} else {
		err = c.m.Sessions.Delete(ctx, c.session.Hash)
	}
	if errors.Is(err, record.ErrNotFound) || c.stateless != nil && isFull(err, c.stateless.claim) {
		return wire.ErrTokenInvalid // another request has revoked it
	}
	if full, ok := errors.AsType[*record.FullError](err); ok {
		return c.LimitError(full)
	}
	if err != nil {
		return wire.Unavailable("ending the session", err)
	}
	c.revoked = true
	return nil
}

// abandon revokes a session whose token was not given out. A failure is only logged.
func (c *Call) abandon(ctx context.Context, hash record.TokenHash) {
	ctx = record.Detached(ctx)
	if err := c.m.Sessions.Delete(ctx, hash); err != nil && !errors.Is(err, record.ErrNotFound) {
		c.m.Log.Warn("a session that nobody can use stays until it expires", "error", err)
	}
}

// A Revoker ends the sessions that a change of an account or a company ends.
type Revoker struct {
	*Config
	journal *Journal
}

// RevokeAll revokes the sessions of older session generations of an account or a
// company. The session that it spares gets the account's present values. RevokeAll emits
// an event for each session of an account, and one for a company if it is late. The events
// are copies of by, which says who revoked the sessions and why. If RevokeAll fails, Run
// retries until it succeeds.
func (r *Revoker) RevokeAll(ctx context.Context, e record.Revocation, by record.Event) error {
	ctx = context.WithoutCancel(ctx) // the change is stored; finish its revocation
	events, unlisted := r.revocationEvents(ctx, e, by)
	if err := r.Sessions.End(ctx, r.Now(), e); err != nil {
		return wire.Unavailable("ending the sessions", err)
	}
	if unlisted != nil {
		r.Warn("sessions were revoked that could not be listed, so they are not in the audit log", "company", e.Company, "error", unlisted)
	}
	for _, event := range events {
		r.journal.Emit(ctx, event)
	}
	if e.Account != 0 && e.Keep != (record.TokenHash{}) {
		if err := r.refresh(ctx, e); err != nil {
			return err
		}
	}
	if err := r.Accounts.RevocationDone(ctx, e); err != nil {
		r.Warn("a revocation that was done will be done again", "company", e.Company, "error", err)
	}
	return nil
}

// refresh gives the sessions that a revocation has spared the account's present values: that
// which it keeps, which may have another token by now. Backends get them with its next
// request. After it has stored values, refresh looks again: another change of the account may
// have come in between, and found nothing to refresh.
func (r *Revoker) refresh(ctx context.Context, e record.Revocation) error {
	for range raises {
		sessions, err := r.Sessions.List(ctx, r.Now(), e.Company, e.Account)
		if err != nil {
			return wire.Unavailable("loading the sessions", err)
		}
		a, err := r.Accounts.ByID(ctx, e.Company, e.Account)
		if errors.Is(err, record.ErrNotFound) {
			return nil // its deletion ends the sessions
		}
		if err != nil {
			return wire.Unavailable("loading the account", err)
		}
		done := true
		for _, found := range sessions {
			present := found.Profile.Of(a, r.Forwarded)
			if present == found.Profile || found.State != record.Authorized {
				continue
			}
			done = false
			err = r.Sessions.Raise(ctx, r.Now(), found.Hash, found.Profile, present)
			if err != nil && !errors.Is(err, record.ErrConflict) {
				return wire.Unavailable("refreshing the session", err)
			}
		}
		if done {
			return nil
		}
	}
	return wire.Unavailable("refreshing the session", record.ErrConflict)
}

// revocationEvents returns the events of the sessions that RevokeAll is about to revoke,
// or of a company if they are late. It fails if the sessions can't be listed.
func (r *Revoker) revocationEvents(ctx context.Context, e record.Revocation, by record.Event) ([]record.Event, error) {
	if r.Observe == nil {
		return nil, nil
	}
	if e.Account == 0 {
		if by.Reason != record.EndedLate {
			return nil, nil // who revoked them emits one
		}
		by.Name, by.Company = record.AllSessionsEnded, e.Company
		return []record.Event{by}, nil
	}
	sessions, err := r.Sessions.List(ctx, r.Now(), e.Company, e.Account)
	var events []record.Event
	for _, session := range sessions {
		if session.Generation < e.Generation && session.Hash != e.Keep {
			events = append(events, session.Ended(by))
		}
	}
	return events, err
}

const (
	revocationsAtOnce = 16
	revocationsPage   = 1000 // loaded at once
)

// RevokePending does the pending revocations for which is true. If one fails, RevokePending
// goes on with the others and returns an error. If ctx ends, it begins no more of them:
// they stay pending, and a reload need not wait for a store that does not answer.
func (r *Revoker) RevokePending(ctx context.Context, which func(record.Revocation) bool) error {
	var after record.Revocation
	var group errgroup.Group
	group.SetLimit(revocationsAtOnce)
	var failed error
	for {
		pending, err := r.Accounts.PendingRevocations(ctx, after, revocationsPage)
		for _, e := range pending {
			after = e
			if !which(e) {
				continue
			}
			group.Go(func() error {
				if ctx.Err() != nil {
					return ctx.Err()
				}
				return panics.Contain(func() error { return r.RevokeAll(ctx, e, record.Event{Reason: record.EndedLate}) })
			})
		}
		revoking := group.Wait()
		failed = cmp.Or(failed, revoking, err)
		if err != nil || len(pending) < revocationsPage {
			return failed
		}
	}
}
