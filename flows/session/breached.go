package session

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/mnemogate/mnemogate/flows/background"
	"github.com/mnemogate/mnemogate/flows/limits"
	"github.com/mnemogate/mnemogate/flows/password"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/wire"
)

const (
	// breachedMemory is how long the answer about a password counts (contract, section 18).
	breachedMemory = 30 * 24 * time.Hour
	// breachedTime is more than it takes to ask and to store the answer.
	breachedTime = 5 * time.Second
	// breachedWait is how long a login waits for the answer that another login asks for.
	// It is a little more than the second that a list has for its answer.
	breachedWait = 1200 * time.Millisecond
	breachedPoll = 50 * time.Millisecond
	// breachedRecent is more than the time from the beginning of a login until it has
	// stored an answer, and the difference of the clocks of two nodes.
	breachedRecent = time.Minute
)

// Breached reports whether a password is in the company's list of breached passwords. If
// the list does not answer, the password passes, unless the company requires an answer.
func (p *Passwords) Breached(ctx context.Context, company *tenant.Company, typed string) (bool, error) {
	if company.Breached.List == nil {
		return false, nil
	}
	ctx = context.WithoutCancel(ctx) // a client that hangs up is no failure of the list
	listed, err := company.Breached.List.Has(ctx, password.Normalize(typed))
	if err == nil {
		return listed, nil
	}
	if company.Breached.Require {
		return false, wire.Unavailable("asking whether a password was breached", err)
	}
	p.Warn("the list of breached passwords did not answer, so a password passed", "company", company.Code, "error", err)
	return false, nil
}

// RefuseBreached returns an error of tenant.BreachedRule if a new password, as it was typed
// into field, is Breached.
func (p *Passwords) RefuseBreached(ctx context.Context, company *tenant.Company, field, typed string) error {
	breached, err := p.Breached(ctx, company, typed)
	if err == nil && breached {
		err = tenant.BreachedRule(field)
	}
	return err
}

// CheckBreached asks whether the right password of a login was breached. If so, it sets
// MustSetPassword in the store and in a. It asks each list at most once in 30 days about each
// password, except while only the former system knows it. The caller has already told the
// client that the password is right, or does so next, so the time that this takes reveals
// nothing.
func (p *Passwords) CheckBreached(ctx context.Context, at *limits.Attempt, a *record.Account, typed string) error {
	breached := &at.Company.Breached
	if !breached.AtLogin || breached.List == nil || a.MustSetPassword {
		return nil
	}
	ctx = context.WithoutCancel(ctx) // clients that hang up must not get around it

	// If the former system's password was not replaced just now, all its accounts have the
	// same hash.
	if a.PasswordHash == record.ExternalPassword {
		return p.askBreached(ctx, at, a, typed)
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %t %s", breached.From, breached.Require, a.PasswordHash)) // another list may know more
	of := hex.EncodeToString(sum[:16])
	asked := record.Counter{Key: limits.Key(at.Company.Code, "breached", of), Limit: 1, Window: breachedMemory}
	asking := record.Counter{Key: limits.Key(at.Company.Code, "breached-asking", of), Limit: 1, Window: breachedTime}
	asking.CheckOnly = breached.Require // then each login waits for an answer of its own
	err := at.Counters.Charge(ctx, at.Now, append(record.CheckOnly(asked), asking)...)
	full, isFull := errors.AsType[*record.FullError](err)
	for waited := time.Duration(0); isFull && full.Key == asking.Key && waited < breachedWait; waited += breachedPoll {
		<-p.after(breachedPoll) // another login is asking
		err = at.Counters.Charge(ctx, at.Now, record.CheckOnly(asked, asking)...)
		full, isFull = errors.AsType[*record.FullError](err)
	}
	if isFull && full.Key == asked.Key {
		if full.Until.After(at.Now.Add(breachedMemory - breachedRecent)) { // perhaps after a was loaded
			return p.reloadMustSetPassword(ctx, at, a)
		}
		return nil
	}
	if err != nil && !isFull { // if the other login has no answer, this one asks
		return at.LimitError(err)
	}
	if err := p.askBreached(ctx, at, a, typed); err != nil {
		return err
	}
	_, err = at.MarkUsed(ctx, asked) // last, so that no answer is lost
	return err
}

func (p *Passwords) askBreached(ctx context.Context, at *limits.Attempt, a *record.Account, typed string) error {
	listed, err := p.Breached(ctx, at.Company, typed)
	if err == nil && listed {
		err = p.mustSetPassword(ctx, at, a)
	}
	return err
}

// reloadMustSetPassword takes over what another login has found out about the password.
func (p *Passwords) reloadMustSetPassword(ctx context.Context, at *limits.Attempt, a *record.Account) error {
	stored, err := p.Accounts.ByID(ctx, at.Company.Code, a.ID)
	if err != nil && !record.IsAnswer(err) {
		return wire.Unavailable("loading the account", err)
	}
	if stored.Generation == a.Generation { // otherwise the next step finds out that the password was changed
		a.MustSetPassword = stored.MustSetPassword
	}
	return nil
}

// mustSetPassword makes the user set a new password in place of a breached one.
func (p *Passwords) mustSetPassword(ctx context.Context, at *limits.Attempt, a *record.Account) error {
	changed := record.Event{Name: record.AccountChanged, Time: at.Now, Mnemocode: a.Mnemocode, Fields: []string{"must_set_password"}}
	_, err := p.Accounts.Update(ctx, at.Company.Code, a.ID, func(stored *record.Account) (ends bool, err error) {
		if stored.Generation != a.Generation { // compare no hashes: another login may have rehashed the same password
			return false, record.ErrConflict // the password was changed
		}
		stored.MustSetPassword, stored.Updated = true, at.Now
		stored.Outbox = background.OutboxEvents(ctx, at.Company, changed)
		return false, nil
	})
	if record.IsAnswer(err) {
		return nil // the next step finds out that the account was changed or deleted
	}
	if err != nil {
		return wire.Unavailable("demanding a new password", err)
	}
	a.MustSetPassword = true
	at.Events = append(at.Events, record.Event{Name: record.AccountPasswordBreached})
	return nil
}
