package store

import (
	"context"
	"strings"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
)

// sqliteAccounts implements record.Accounts for SQLite.
type sqliteAccounts struct {
	*SQLite
	sqlAccounts
}

var sqliteDialect = dialect{
	json: func(object, from string) string {
		return `(SELECT json_group_array(json_object(` + object + `)) FROM ` + from + `)`
	},
	position: "instr",
	text:     func(s string) string { return s },
	findable: func(...any) bool { return true },
	claim: `
		UPDATE outbox_queues SET due = ?3, claim = ?4
		WHERE company = ?1 AND queue IN (SELECT queue FROM outbox_queues WHERE company = ?1 AND due <= ?2 ORDER BY due LIMIT +?5)
		RETURNING queue, tries`,
	forget: `DELETE FROM history WHERE number IN (SELECT number FROM history WHERE at < ? LIMIT +?)`,
	chunk:  sqliteSweepChunk,
	forgetOf: func(table, key string) string {
		return `DELETE FROM ` + table + ` WHERE (` + key + `) IN (SELECT ` + key + ` FROM ` + table + ` WHERE company = ? LIMIT +?)`
	},
}.complete()

var sqliteInsertAccount = `
	INSERT INTO accounts (company, created, updated, ` + accountColumns + `)
	VALUES (?1, ?2, ?2` + strings.Repeat(", ?", len(record.Fields)) + `)
	RETURNING id`

func (s sqliteAccounts) Create(ctx context.Context, now time.Time, a record.Account) (int64, error) {
	a.ID = 0
	err := s.write(ctx, func(ctx context.Context, tx *sqliteQueries) error {
		if err := tx.refuseTaken(ctx, record.Account{}, a); err != nil {
			return err
		}
		args := append([]any{a.Company, micros(now)}, accountValues(a)...)
		err := tx.row(ctx, sqliteInsertAccount, args...).Scan(&a.ID)
		if err != nil {
			return err
		}
		if err := tx.storeKeys(ctx, record.Account{}, a); err != nil {
			return err
		}
		if err := insertAcceptances(ctx, tx, a.ID, a.Accepted); err != nil {
			return err
		}
		if err := insertBackupCodes(ctx, tx, a.ID, a.NewBackupCodes); err != nil {
			return err
		}
		return tx.insertEvents(ctx, a.Company, a.ID, a.Outbox)
	})
	if err != nil {
		return 0, translate("creating account", err)
	}
	return a.ID, nil
}

const (
	sqliteMnemocodeTaken = `SELECT EXISTS (SELECT 1 FROM accounts WHERE company = ? AND mnemocode = ? AND id <> ?)`
	sqliteLoginIDTaken   = `SELECT EXISTS (SELECT 1 FROM login_ids WHERE company = ? AND login_id = ? AND account <> ?)`
	sqliteIdentityTaken  = `
		SELECT EXISTS (SELECT 1 FROM identities WHERE company = ? AND provider = ? AND subject = ? AND account <> ?)`
)

// refuseTaken implements queries. No other write can happen within the transaction. The
// primary keys would also refuse the account, but without naming the field.
func (tx *sqliteQueries) refuseTaken(ctx context.Context, before, a record.Account) error {
	check := func(field, query string, args ...any) error {
		var taken bool
		if err := tx.row(ctx, query, args...).Scan(&taken); err != nil {
			return err
		}
		if taken {
			return &record.TakenError{Field: field}
		}
		return nil
	}
	if err := check("profile_mnemocode", sqliteMnemocodeTaken, a.Company, a.Mnemocode, a.ID); err != nil {
		return err
	}
	for field, id := range newLoginIDs(before, a) {
		if err := check(field, sqliteLoginIDTaken, a.Company, id, a.ID); err != nil {
			return err
		}
	}
	for _, i := range a.Identities {
		if err := check("oauth_identities", sqliteIdentityTaken, a.Company, i.Provider, i.Subject, a.ID); err != nil {
			return err
		}
	}
	return nil
}

const (
	sqliteDeleteLoginIDs   = `DELETE FROM login_ids WHERE account = ?`
	sqliteInsertLoginID    = `INSERT INTO login_ids (company, login_id, account) VALUES (?, ?, ?) ON CONFLICT DO NOTHING`
	sqliteDeleteIdentities = `DELETE FROM identities WHERE account = ?`
	sqliteInsertIdentity   = `
		INSERT INTO identities (company, provider, subject, account) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING`
)

// storeKeys replaces the login ids and identities that find a. After refuseTaken, a
// conflict can only be within a: two of its fields have the same login id.
func (tx *sqliteQueries) storeKeys(ctx context.Context, before, a record.Account) error {
	if !record.SameLoginIDs(before, a) {
		if _, err := tx.exec(ctx, sqliteDeleteLoginIDs, a.ID); err != nil {
			return err
		}
	}
	for _, id := range newLoginIDs(before, a) {
		if _, err := tx.exec(ctx, sqliteInsertLoginID, a.Company, id, a.ID); err != nil {
			return err
		}
	}
	if _, err := tx.exec(ctx, sqliteDeleteIdentities, a.ID); err != nil {
		return err
	}
	for _, i := range a.Identities {
		if _, err := tx.exec(ctx, sqliteInsertIdentity, a.Company, i.Provider, i.Subject, a.ID); err != nil {
			return err
		}
	}
	return nil
}

var sqliteUpdateAccount = `
	UPDATE accounts SET ` + eachField(func(_ int, f record.Field) string { return f.Column + " = ?" }) + `,
		epoch = ?, barred = ?, updated = ?
	WHERE id = ?`

func (s sqliteAccounts) Update(
	ctx context.Context, company string, id int64, change func(*record.Account) (ends bool, err error),
) (record.Account, error) {
	var stored record.Account
	scan := accountScan(s.text)
	err := s.write(ctx, func(ctx context.Context, tx *sqliteQueries) error {
		before, err := scan(tx.row(ctx, s.accountByID, company, id))
		if err != nil {
			return err
		}
		a := before
		ends, err := change(&a)
		if err != nil {
			return refusal{err}
		}
		a.ID, a.Company = id, company
		setGeneration(&a, before, ends)
		if err := tx.storeUpdate(ctx, before, a); err != nil {
			return err
		}
		if ends {
			err = s.revokeLater(ctx, tx, record.Revocation{Company: company, Account: id, Generation: a.Generation, Keep: a.Keep}, a.Outbox)
		} else {
			err = tx.insertEvents(ctx, company, id, a.Outbox)
		}
		if err != nil {
			return err
		}
		stored, err = scan(tx.row(ctx, s.accountByID, company, id))
		return err
	})
	if err != nil {
		return record.Account{}, translate("updating account", err)
	}
	return stored, nil
}

func (tx *sqliteQueries) storeUpdate(ctx context.Context, before, a record.Account) error {
	if err := tx.refuseTaken(ctx, before, a); err != nil {
		return err
	}
	_, err := tx.exec(ctx, sqliteUpdateAccount, append(accountValues(a), a.Generation, a.InactiveGeneration, micros(a.Updated), a.ID)...)
	if err != nil {
		return err
	}
	return tx.storeKeys(ctx, before, a)
}

const sqliteSweepFailures = `
	DELETE FROM tallies WHERE account = 0 AND (company, login_id, kind) IN
		(SELECT company, login_id, kind FROM tallies WHERE ` + sqlStaleFailures + ` LIMIT +$2)`

func (s sqliteAccounts) Sweep(ctx context.Context, now time.Time) error {
	err := sweep(ctx, s, "sweeping failure counts", sqliteSweepFailures, micros(now), sqliteSweepChunk)
	if err != nil {
		return err
	}
	if err := s.sweepDevices(ctx, now); err != nil {
		return err
	}
	if s.backups.Load() > 0 {
		return nil // backups need the log; the next sweep empties it
	}
	return translate("emptying the log", s.emptyLog(ctx))
}
