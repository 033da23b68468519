package sqlstore

import (
	"cmp"
	"context"
	"iter"
	"slices"
	"strconv"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
)

// This file creates accounts and changes them. To avoid deadlocks in PostgreSQL, all writes
// to an account lock in the same order: first the account's row, then the generation of its
// company, then what RefuseTaken locks, then everything else. NewCompanyGeneration locks the
// generation first, and then nothing that another call holds while it waits.

var (
	insertAccount = `
		INSERT INTO accounts (company, created, updated, generation, ` + accountColumns + `)
		VALUES ($1, $2, $3, $4, ` + eachField(func(i int, _ record.Field) string { return "$" + strconv.Itoa(5+i) }) + `)
		RETURNING id`
	updateAccount = `
		UPDATE accounts SET generation = $2, inactive_generation = $3, updated = $4, ` +
		eachField(func(i int, f record.Field) string { return f.Column + " = $" + strconv.Itoa(5+i) }) + `
		WHERE id = $1`
)

func (s Accounts) Create(ctx context.Context, now time.Time, a record.Account) (int64, error) {
	a.ID = 0
	err := transact(ctx, s, "accounts.create: creating account", func(ctx context.Context, tx Queries) error {
		if err := tx.RefuseTaken(ctx, record.Account{}, a); err != nil {
			return err
		}
		args := append([]any{a.Company, record.Micros(cmp.Or(a.Created, now)), record.Micros(now), now.Unix()}, accountValues(a)...)
		if err := tx.Row(ctx, insertAccount, args...).Scan(&a.ID); err != nil {
			return err
		}
		storeKeys(ctx, tx, record.Account{}, a)
		insertAcceptances(ctx, tx, a.ID, a.Accepted)
		insertBackupCodes(ctx, tx, a.ID, a.NewBackupCodes)
		if err := insertPasskeys(ctx, tx, a.Company, a.ID, a.NewPasskeys); err != nil {
			return err
		}
		s.insertEvents(ctx, tx, a.Company, a.ID, a.Outbox)
		return spend(ctx, tx, a.Spends)
	})
	if err != nil {
		return 0, err
	}
	return a.ID, nil
}

func (s Accounts) Update(
	ctx context.Context, company string, id int64, change func(*record.Account) (ends bool, err error),
) (stored record.Account, err error) {
	err = transact(ctx, s, "accounts.update: updating account", func(ctx context.Context, tx Queries) error {
		before, err := s.lockAndLoad(ctx, tx, company, id)
		if err != nil {
			return err
		}
		a := before
		a.Identities, a.Accepted = slices.Clone(before.Identities), slices.Clone(before.Accepted)
		ends, err := change(&a)
		if err != nil {
			return refusal{err}
		}
		a.ID, a.Company = id, company
		a.SetGeneration(before, ends)
		if err := tx.RefuseTaken(ctx, before, a); err != nil {
			return err
		}
		values := append([]any{id, a.Generation, a.InactiveGeneration, record.Micros(a.Updated)}, accountValues(a)...)
		tx.Later(ctx, updateAccount, values...)
		storeKeys(ctx, tx, before, a)
		if ends {
			if !a.SpareTokens {
				tx.Later(ctx, deleteTokens, id)
			}
			if a.PasswordHash != "" && a.PasswordHash != before.PasswordHash {
				tx.Later(ctx, deleteFailures, company, id, "", string(record.WrongPasswords))
			}
			s.revokeLater(ctx, tx, record.Revocation{Company: company, Account: id, Generation: a.Generation, Keep: a.Keep}, a.Outbox)
		} else {
			s.insertEvents(ctx, tx, company, id, a.Outbox)
		}
		if err := spend(ctx, tx, a.Spends); err != nil {
			return err
		}
		stored, err = accountScan()(tx.Row(ctx, s.accountByID, company, id))
		return err
	})
	if err != nil {
		return record.Account{}, err
	}
	return stored, nil
}

// lockAccount returns ErrNotFound if there is no such account. Otherwise no other call
// changes the account until the transaction ends.
func (s Accounts) lockAccount(ctx context.Context, tx Queries, company string, id int64) error {
	return tx.Row(ctx, s.accountLock, company, id).Scan(&id)
}

// lockLater locks an account, if there is one, and the generation of its company. A later
// statement sees the present ones: no revocation of either is acknowledged, and overtaken by
// the transaction.
func (s Accounts) lockLater(ctx context.Context, tx Queries, company string, id int64) {
	tx.Later(ctx, s.accountLock, company, id)
	tx.Later(ctx, s.HoldGeneration, company)
}

const selectPresent = `SELECT id FROM accounts WHERE ` + presentAccount

// lockPresent is lockLater for the account in a.Generation and a.CompanyGeneration.
func (s Accounts) lockPresent(ctx context.Context, tx Queries, a record.Account) error {
	s.lockLater(ctx, tx, a.Company, a.ID)
	return tx.Row(ctx, selectPresent, a.Company, a.ID, a.Generation, a.CompanyGeneration).Scan(&a.ID)
}

// lockAndLoad is lockLater, and returns the account.
func (s Accounts) lockAndLoad(ctx context.Context, tx Queries, company string, id int64) (record.Account, error) {
	s.lockLater(ctx, tx, company, id)
	return accountScan()(tx.Row(ctx, s.accountByID, company, id))
}

// NewLoginIDs yields the login ids that RefuseTaken looks for: all of an account, or none if a
// change leaves them alone.
func NewLoginIDs(before, after record.Account) iter.Seq2[string, string] {
	if record.SameLoginIDs(before, after) {
		return func(func(string, string) bool) {}
	}
	return record.LoginIDs(after)
}

const (
	deleteLoginIDs   = `DELETE FROM login_ids WHERE account = $1`
	insertLoginID    = `INSERT INTO login_ids (company, login_id, account) VALUES ($1, $2, $3)`
	deleteIdentities = `DELETE FROM identities WHERE account = $1`
	insertIdentity   = `INSERT INTO identities (company, provider, subject, account) VALUES ($1, $2, $3, $4)`
)

// storeKeys replaces the login ids and identities that find a. Two of its fields may have the
// same login id. A conflict with another account, which RefuseTaken sees if the call begins
// again, fails.
func storeKeys(ctx context.Context, tx Queries, before, a record.Account) {
	if !record.SameLoginIDs(before, a) {
		tx.Later(ctx, deleteLoginIDs, a.ID)
		var stored []string
		for _, id := range record.LoginIDs(a) {
			if !slices.Contains(stored, id) {
				stored = append(stored, id)
				tx.Later(ctx, insertLoginID, a.Company, id, a.ID)
			}
		}
	}
	if slices.Equal(before.Identities, a.Identities) {
		return
	}
	tx.Later(ctx, deleteIdentities, a.ID)
	for n, i := range a.Identities {
		if slices.Contains(a.Identities[:n], i) {
			continue
		}
		tx.Later(ctx, insertIdentity, a.Company, i.Provider, i.Subject, a.ID)
	}
}

const insertSpent = `INSERT INTO spent (hash, until) VALUES ($1, $2) ON CONFLICT DO NOTHING`

// spend spends what a change of an account spends. It must come last, because it waits for
// another transaction that spends the same.
func spend(ctx context.Context, tx Queries, spends []record.Spend) error {
	for _, s := range spends {
		if err := ExecOr(ctx, tx, &record.SpentError{Field: s.Field}, insertSpent, s.Hash[:], record.Micros(s.Until)); err != nil {
			return err
		}
	}
	return nil
}

func (s Accounts) Sweep(ctx context.Context, now time.Time) error {
	for _, old := range []struct {
		what, query string
		before      time.Time
	}{
		{"sweeping failure counts", s.DeleteSome("failures", StaleFailures, "company, account, login_id, kind", "changed"), now},
		{"sweeping spent proofs", s.DeleteSome("spent", "until < $1", "hash", "until"), now},
		{"sweeping tokens", s.DeleteSome("tokens", "expires < $1", "number", "expires"), now.Add(-record.KeepExpired)},
		{"looking for events that wait too long", dueTooLate, now.Add(record.MaxDue)},
	} {
		if err := Sweep(ctx, s, old.what, old.query, record.Micros(old.before), s.Chunk); err != nil {
			return err
		}
	}
	return s.sweepDevices(ctx, now)
}
