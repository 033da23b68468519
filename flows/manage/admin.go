// Package manage implements the operations of operators and backends. It creates,
// changes, unlocks and deletes accounts, sets up their backup codes and authenticator
// apps, and revokes their sessions.
//
// Start with Admin, which acts for one operator on one company, and Change. The package
// builds on package session, so its changes revoke sessions, count attempts and emit
// events like those of users. A Seed is an account in the configuration.
package manage

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/mnemogate/mnemogate/flows/background"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/session"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// An Admin acts for an operator. It creates, changes and deletes accounts of one company
// and revokes their sessions. The caller must authenticate the operator first.
//
// Its errors are in errors.go.
type Admin struct {
	*session.Manager
	Company *tenant.Company
	Address string // the operator's, for the events
	Actor   string // the name of the operator, for the events
	// Bulk is for imports. Plain secrets then wait for hashing without a time limit, users get
	// no notices, and nothing waits for the history.
	Bulk bool

	user user // of a Self; zero for operators
}

// A user is the client of a Self.
type user struct {
	account int64  // its ID
	session string // the ID of the request's
	agent   string // for events and notices
	device  func() (string, error)
}

// isUser reports whether the Admin is that of a Self.
func (ad *Admin) isUser() bool { return ad.user.account != 0 }

// stillIn fails if the session of a Self was revoked meanwhile.
func (ad *Admin) stillIn(ctx context.Context, a record.Account) error {
	_, err := ad.sessionToKeep(ctx, a, ad.user.session)
	return err
}

// Create stores a new account. If Apply sets a Created time, it is kept; Updated is now.
func (ad *Admin) Create(ctx context.Context, ch Change) (record.Account, error) {
	reason := "admin"
	if ad.Bulk {
		reason = "import"
	}
	a, err := ad.create(ctx, ch, reason)
	if err == nil && !ad.Bulk {
		ad.WaitRecorded()
	}
	return a, err
}

// create is Create for this reason. It does not wait for the history.
func (ad *Admin) create(ctx context.Context, ch Change, reason string) (record.Account, error) {
	a := record.Account{Status: record.StatusActive}
	if err := ad.openProofs(ctx, &ch); err != nil {
		return record.Account{}, err
	}
	if err := ad.apply(ch, &a); err != nil {
		return record.Account{}, err
	}
	a.Company = ad.Company.Code
	setSecrets, err := ad.secrets(ctx, ch)
	if err != nil {
		return record.Account{}, err
	}
	setSecrets(&a)
	slices.SortFunc(a.Identities, record.Identity.Compare)
	a.Accepted = slices.SortedFunc(slices.Values(ch.Accepted), record.Acceptance.Compare)
	a.NewBackupCodes, a.NewPasskeys = ch.BackupCodes, ch.Passkeys
	now := ad.Now()
	a.Created = cmp.Or(a.Created, now).UTC().Truncate(time.Microsecond)
	a.Updated = now.UTC().Truncate(time.Microsecond)
	created := ad.event(record.AccountCreated, a)
	created.Reason = reason
	a.Outbox = ad.outbox(ctx, ad.withProven(created, ch, a))
	if a.ID, err = ad.Accounts.Create(ctx, now, a); err != nil {
		return record.Account{}, adminError("creating the account", err)
	}
	a.BackupCodes, a.Passkeys = len(ch.BackupCodes), len(ch.Passkeys)
	a.Storing = record.Storing{}
	created.Account = a.ID
	for _, e := range ad.withProven(created, ch, a) {
		ad.Emit(ctx, e)
	}
	return a, nil
}

// IsUsable reports whether somebody can log in to an account, now or after a recovery. It
// says yes of one whose status forbids logins.
func (ad *Admin) IsUsable(a record.Account) bool {
	recovered := a
	recovered.PasswordHash = "set"
	return a.Status != record.StatusActive || len(a.Identities) > 0 || a.Passkeys > 0 || session.CheckOwner(ad.Company, a) == nil ||
		ad.Company.CanRecover(a) && session.CheckOwner(ad.Company, recovered) == nil
}

// Delete removes an account with all its data and revokes its sessions. An operator who
// repeats a deletion gets no record.ErrNotFound before the sessions are revoked. The account
// must match, as in a Change.
func (ad *Admin) Delete(ctx context.Context, mnemocode string, match func(record.Account) bool) error {
	a, err := ad.ByMnemocode(ctx, mnemocode)
	if errors.Is(err, record.ErrNotFound) {
		deleted := func(e record.Revocation) bool {
			return e.Company == ad.Company.Code && e.Generation == record.AllGenerations
		}
		if err := ad.RevokePending(ctx, deleted); err != nil {
			ad.Warn("sessions of a deleted account could not be revoked yet", "company", ad.Company.Code, "error", err)
			return ErrRevocationPending
		}
	}
	if err != nil {
		return err
	}
	deleted := ad.event(record.AccountDeleted, a)
	if err := ad.Accounts.Delete(ctx, a.Company, a.ID, match, background.OutboxEvents(ctx, ad.Company, deleted)...); err != nil {
		if errors.Is(err, record.ErrConflict) {
			return ErrVersion
		}
		return adminError("deleting the account", err)
	}
	e := record.Revocation{Company: a.Company, Account: a.ID, Generation: record.AllGenerations}
	err = ad.revoke(ctx, e, record.EndedByChange)
	ad.emit(ctx, deleted)
	return err
}

// Unlock resets the account's failure counts, which also ends all its locks. It revokes
// no sessions.
func (ad *Admin) Unlock(ctx context.Context, mnemocode string) (record.Account, error) {
	a, err := ad.ByMnemocode(ctx, mnemocode)
	if err != nil {
		return record.Account{}, err
	}
	ctx = context.WithoutCancel(ctx) // otherwise the first locks could end without the event
	kinds := []record.FailureKind{record.WrongPasswords, record.WrongCodes, record.WrongAnswers}
	unlocked := ad.event(record.AccountUnlocked, a)
	if err := ad.clear(ctx, a, kinds, background.OutboxEvents(ctx, ad.Company, unlocked)...); err != nil {
		return record.Account{}, err
	}
	ad.emit(ctx, unlocked)
	a.FailureCounts = nil
	return a, nil
}

func (ad *Admin) clear(ctx context.Context, a record.Account, kinds []record.FailureKind, events ...record.OutboxEvent) error {
	return adminError("clearing the counts of wrong attempts", ad.ClearAttempts(ctx, ad.Company, a, kinds, events...))
}

// event returns an event of an account that the operator caused.
func (ad *Admin) event(name string, a record.Account) record.Event {
	e := ad.actorEvent("")
	e.Name, e.Time, e.Company, e.Account, e.Mnemocode = name, ad.Now(), ad.Company.Code, a.ID, a.Mnemocode
	return e
}

// emit reports an event after its change was made. It waits until the account's history
// has the event, unless Bulk is set.
func (ad *Admin) emit(ctx context.Context, e record.Event) {
	ad.Emit(ctx, e)
	if !ad.Bulk {
		ad.WaitRecorded()
	}
}

// orChanged returns ErrChanged if a store did not find the account as it was.
func orChanged(err error) error {
	if errors.Is(err, record.ErrNotFound) {
		return ErrChanged
	}
	return err
}

// adminError returns err if the operator may see it. It wraps any other error in
// wire.ErrUnavailable.
func adminError(doing string, err error) error {
	_, refused := errors.AsType[*Error](err)
	_, field := errors.AsType[*FieldError](err)
	_, taken := errors.AsType[*record.TakenError](err)
	_, spent := errors.AsType[*record.SpentError](err)
	_, rule := errors.AsType[*tenant.RuleError](err)
	if err == nil || refused || field || taken || spent || rule || errors.Is(err, record.ErrNotFound) || wire.IsFailure(err) {
		return err
	}
	return wire.Unavailable(doing, err)
}
