package sqlite

import (
	"context"
	"strings"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/store/sqlstore"
)

// accounts implements record.Accounts for SQLite.
type accounts struct {
	*Store
	sqlstore.Accounts
}

var dialect = sqlstore.Dialect{
	JSON: func(object, from string) string {
		return `(SELECT json_group_array(json_object(` + object + `)) FROM ` + from + `)`
	},
	Position: "instr",
	Text:     func(s string) string { return s },
	Findable: func(...any) bool { return true },
	ClaimQueues: `
		UPDATE outbox_queues SET due = ?3, claim = ?4
		WHERE company = ?1 AND queue IN (SELECT queue FROM outbox_queues WHERE company = ?1 AND due <= ?2 ORDER BY due LIMIT +?5)
		RETURNING queue, tries`,
	ForgetEvents: `DELETE FROM history WHERE number IN (SELECT number FROM history WHERE at < ? LIMIT +?)`,
	Chunk:        sweepChunk,
	ForgetOf: func(table, key string) string {
		return `DELETE FROM ` + table + ` WHERE (` + key + `) IN (SELECT ` + key + ` FROM ` + table + ` WHERE company = ? LIMIT +?)`
	},
}.Complete()

var insertAccount = `
	INSERT INTO accounts (company, created, updated, ` + sqlstore.AccountColumns + `)
	VALUES (?1, ?2, ?2` + strings.Repeat(", ?", len(record.Fields)) + `)
	RETURNING id`

func (s accounts) Create(ctx context.Context, now time.Time, a record.Account) (int64, error) {
	a.ID = 0
	err := s.call(ctx, "accounts.create: creating account", func(ctx context.Context, tx *queries) error {
		if err := tx.RefuseTaken(ctx, record.Account{}, a); err != nil {
			return err
		}
		args := append([]any{a.Company, record.Micros(now)}, sqlstore.AccountValues(a)...)
		err := tx.Row(ctx, insertAccount, args...).Scan(&a.ID)
		if err != nil {
			return err
		}
		if err := tx.storeKeys(ctx, record.Account{}, a); err != nil {
			return err
		}
		if err := sqlstore.InsertAcceptances(ctx, tx, a.ID, a.Accepted); err != nil {
			return err
		}
		if err := sqlstore.InsertBackupCodes(ctx, tx, a.ID, a.NewBackupCodes); err != nil {
			return err
		}
		if err := sqlstore.InsertPasskeys(ctx, tx, a.Company, a.ID, a.NewPasskeys); err != nil {
			return err
		}
		if err := tx.InsertEvents(ctx, a.Company, a.ID, a.Outbox); err != nil {
			return err
		}
		return sqlstore.InsertSpent(ctx, tx, a.Spends)
	})
	if err != nil {
		return 0, err
	}
	return a.ID, nil
}

const (
	mnemocodeTaken = `SELECT EXISTS (SELECT 1 FROM accounts WHERE company = ? AND mnemocode = ? AND id <> ?)`
	loginIDTaken   = `SELECT EXISTS (SELECT 1 FROM login_ids WHERE company = ? AND login_id = ? AND account <> ?)`
	identityTaken  = `
		SELECT EXISTS (SELECT 1 FROM identities WHERE company = ? AND provider = ? AND subject = ? AND account <> ?)`
)

// RefuseTaken implements sqlstore.Queries. No other write can happen within the transaction. The
// primary keys would also refuse the account, but without naming the field.
func (tx *queries) RefuseTaken(ctx context.Context, before, a record.Account) error {
	check := func(field, query string, args ...any) error {
		var taken bool
		if err := tx.Row(ctx, query, args...).Scan(&taken); err != nil {
			return err
		}
		if taken {
			return &record.TakenError{Field: field}
		}
		return nil
	}
	if err := check("profile_mnemocode", mnemocodeTaken, a.Company, a.Mnemocode, a.ID); err != nil {
		return err
	}
	for field, id := range sqlstore.NewLoginIDs(before, a) {
		if err := check(field, loginIDTaken, a.Company, id, a.ID); err != nil {
			return err
		}
	}
	for _, i := range a.Identities {
		if err := check("oauth_identities", identityTaken, a.Company, i.Provider, i.Subject, a.ID); err != nil {
			return err
		}
	}
	return nil
}

const (
	deleteLoginIDs   = `DELETE FROM login_ids WHERE account = ?`
	insertLoginID    = `INSERT INTO login_ids (company, login_id, account) VALUES (?, ?, ?) ON CONFLICT DO NOTHING`
	deleteIdentities = `DELETE FROM identities WHERE account = ?`
	insertIdentity   = `
		INSERT INTO identities (company, provider, subject, account) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING`
)

// storeKeys replaces the login ids and identities that find a. After RefuseTaken, a
// conflict can only be within a: two of its fields have the same login id.
func (tx *queries) storeKeys(ctx context.Context, before, a record.Account) error {
	if !record.SameLoginIDs(before, a) {
		if _, err := tx.Exec(ctx, deleteLoginIDs, a.ID); err != nil {
			return err
		}
	}
	for _, id := range sqlstore.NewLoginIDs(before, a) {
		if _, err := tx.Exec(ctx, insertLoginID, a.Company, id, a.ID); err != nil {
			return err
		}
	}
	if _, err := tx.Exec(ctx, deleteIdentities, a.ID); err != nil {
		return err
	}
	for _, i := range a.Identities {
		if _, err := tx.Exec(ctx, insertIdentity, a.Company, i.Provider, i.Subject, a.ID); err != nil {
			return err
		}
	}
	return nil
}

var updateAccount = `
	UPDATE accounts SET ` + sqlstore.EachField(func(_ int, f record.Field) string { return f.Column + " = ?" }) + `,
		generation = ?, inactive_generation = ?, updated = ?
	WHERE id = ?`

func (s accounts) Update(
	ctx context.Context, company string, id int64, change func(*record.Account) (ends bool, err error),
) (record.Account, error) {
	var stored record.Account
	scan := sqlstore.AccountScan(s.Text)
	err := s.call(ctx, "accounts.update: updating account", func(ctx context.Context, tx *queries) error {
		before, err := scan(tx.Row(ctx, s.AccountByID, company, id))
		if err != nil {
			return err
		}
		a := before
		ends, err := change(&a)
		if err != nil {
			return sqlstore.Refused(err)
		}
		a.ID, a.Company = id, company
		sqlstore.SetGeneration(&a, before, ends)
		if err := tx.storeUpdate(ctx, before, a); err != nil {
			return err
		}
		if ends && !a.SpareTokens {
			if _, err := tx.Exec(ctx, sqlstore.DeleteTokens, id); err != nil {
				return err
			}
		}
		if ends {
			err = s.RevokeLater(ctx, tx, record.Revocation{Company: company, Account: id, Generation: a.Generation, Keep: a.Keep}, a.Outbox)
		} else {
			err = tx.InsertEvents(ctx, company, id, a.Outbox)
		}
		if err != nil {
			return err
		}
		if err := sqlstore.InsertSpent(ctx, tx, a.Spends); err != nil {
			return err
		}
		stored, err = scan(tx.Row(ctx, s.AccountByID, company, id))
		return err
	})
	if err != nil {
		return record.Account{}, err
	}
	return stored, nil
}

func (tx *queries) storeUpdate(ctx context.Context, before, a record.Account) error {
	if err := tx.RefuseTaken(ctx, before, a); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, updateAccount, append(sqlstore.AccountValues(a), a.Generation, a.InactiveGeneration, record.Micros(a.Updated), a.ID)...)
	if err != nil {
		return err
	}
	return tx.storeKeys(ctx, before, a)
}

const sweepFailures = `
	DELETE FROM failures WHERE account = 0 AND (company, login_id, kind) IN
		(SELECT company, login_id, kind FROM failures WHERE ` + sqlstore.StaleFailures + ` LIMIT +$2)`

const sweepSpent = `DELETE FROM spent WHERE hash IN (SELECT hash FROM spent WHERE until < ? LIMIT +?)`
const sweepTokens = `DELETE FROM tokens WHERE number IN (SELECT number FROM tokens WHERE expires < ? LIMIT +?)`

func (s accounts) Sweep(ctx context.Context, now time.Time) error {
	err := sqlstore.Sweep(ctx, s.Store, "sweeping failure counts", sweepFailures, record.Micros(now), sweepChunk)
	if err != nil {
		return err
	}
	if err := s.sweepDevices(ctx, now); err != nil {
		return err
	}
	if err := sqlstore.Sweep(ctx, s.Store, "sweeping spent proofs", sweepSpent, record.Micros(now), sweepChunk); err != nil {
		return err
	}
	if err := sqlstore.Sweep(ctx, s.Store, "sweeping tokens", sweepTokens, record.Micros(now.Add(-record.KeepExpired)), sweepChunk); err != nil {
		return err
	}
	if s.backups.Load() > 0 {
		return nil // backups need the log; the next sweep empties it
	}
	return sqlstore.Call(ctx, s.Store, "emptying the log", func() error { return s.emptyLog(ctx) })
}
