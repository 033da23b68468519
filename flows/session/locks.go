package session

import (
	"cmp"
	"context"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// Locks ends the locks that wrong attempts have caused.
type Locks struct {
	*Config
	secrets *Secrets
}

// ClearAttempts resets the failure counts of these kinds, which also ends their locks: the
// account's own and the public ones of its login ids. The outbox events are stored with
// the last count of the account itself.
func (l *Locks) ClearAttempts(ctx context.Context, company *tenant.Company, a record.Account, kinds []record.FailureKind, events ...record.OutboxEvent) error {
	own := l.clear(ctx, record.FailureKey{Company: a.Company, Account: a.ID}, kinds, events...)
	public := l.ClearPublic(ctx, company, a, kinds)
	return cmp.Or(own, public)
}

// ClearPublic is ClearAttempts for the public counts alone.
func (l *Locks) ClearPublic(ctx context.Context, company *tenant.Company, a record.Account, kinds []record.FailureKind) error {
	public, err := l.publicKeys(ctx, company, a)
	for _, key := range public { // all of them, even if one fails
		failed := l.clear(ctx, key, kinds)
		err = cmp.Or(err, failed)
	}
	return err
}

// clear resets the failure counts of a key, which also ends their locks. The outbox
// events are stored with the last one.
func (l *Locks) clear(ctx context.Context, key record.FailureKey, kinds []record.FailureKind, events ...record.OutboxEvent) error {
	for i, kind := range kinds {
		err := l.Accounts.UpdateFailures(ctx, l.Now(), key, kind, func(t *record.FailureCount) error {
			*t = record.FailureCount{}
			if i == len(kinds)-1 {
				t.Outbox = events
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// EnablePassword resets the public counts of wrong passwords that disable the password, before
// its owner sets a new one. The others stay, because strangers would see that they end.
func (l *Locks) EnablePassword(ctx context.Context, company *tenant.Company, a record.Account) error {
	keys, err := l.publicKeys(ctx, company, a)
	for _, key := range keys { // as above
		failed := l.Accounts.UpdateFailures(ctx, l.Now(), key, record.WrongPasswords, func(t *record.FailureCount) error {
			if t.Count >= company.Limits.DisableAfter {
				*t = record.FailureCount{}
			}
			return nil
		})
		err = cmp.Or(err, failed)
	}
	if err != nil {
		return wire.Unavailable("enabling the password", err)
	}
	return nil
}

// PublicFailures returns the public failure counts of all login ids of the account. Only
// hardened companies have them.
func (l *Locks) PublicFailures(ctx context.Context, company *tenant.Company, a record.Account) (public []record.Failures, err error) {
	keys, err := l.publicKeys(ctx, company, a)
	for _, key := range keys {
		failures, failed := l.Accounts.FailureCounts(ctx, key)
		public, err = append(public, failures), cmp.Or(err, failed)
	}
	return public, err
}

// publicKeys returns the keys of the public failure counts of all login ids of the
// account. Only hardened companies have them.
func (l *Locks) publicKeys(ctx context.Context, company *tenant.Company, a record.Account) (public []record.FailureKey, err error) {
	if !company.Hardened {
		return nil, nil
	}
	keys, err := l.secrets.Keys(ctx)
	if err != nil {
		return nil, err
	}
	for _, id := range record.LoginIDs(a) {
		read, _ := company.ReadLoginID(id) // as FindAccount
		loginIDHash := keys.LoginIDHash(company.Code, read)
		public = append(public, record.FailureKey{Company: company.Code, LoginID: loginIDHash})
	}
	return public, nil
}
