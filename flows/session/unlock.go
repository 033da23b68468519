package session

import (
	"cmp"
	"context"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/tenant"
)

// ClearAttempts resets the failure counts of these kinds, which also ends their locks: the
// account's own and the public ones of its login ids. The outbox events are stored with
// the last count of the account itself.
func (s *Manager) ClearAttempts(ctx context.Context, company *tenant.Company, a record.Account, kinds []record.FailureKind, events ...record.OutboxEvent) error {
	err := s.clear(ctx, record.FailureKey{Company: a.Company, Account: a.ID}, kinds, events...)
	return cmp.Or(err, s.clearPublic(ctx, company, a, kinds...))
}

// clear resets the failure counts of a key, which also ends their locks. The outbox
// events are stored with the last one.
func (s *Manager) clear(ctx context.Context, key record.FailureKey, kinds []record.FailureKind, events ...record.OutboxEvent) error {
	for i, kind := range kinds {
		err := s.Accounts.UpdateFailures(ctx, s.Now(), key, kind, func(t *record.FailureCount) error {
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

// clearPublic resets the public failure counts of all login ids of the account. Only
// hardened companies have them.
func (s *Manager) clearPublic(ctx context.Context, company *tenant.Company, a record.Account, kinds ...record.FailureKind) error {
	if !company.Hardened {
		return nil
	}
	keys, err := s.Keys(ctx)
	if err != nil {
		return err
	}
	for _, id := range record.LoginIDs(a) {
		loginIDHash := keys.LoginIDHash(company.Code, company.ReadLoginID(id)) // as FindAccount
		if err := s.clear(ctx, record.FailureKey{Company: company.Code, LoginID: loginIDHash}, kinds); err != nil {
			return err
		}
	}
	return nil
}
