package store

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"strings"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
)

// sqliteAccounts implements record.Accounts for SQLite. If an account does not exist
// or belongs to another company, methods return ErrNotFound, unless their comments
// in record say ErrConflict.
type sqliteAccounts struct{ *SQLite }

var sqliteInsertAccount = `
	INSERT INTO accounts (company, created, updated, ` + accountColumns + `)
	VALUES (?1, ?2, ?2` + strings.Repeat(", ?", len(record.Fields)) + `)
	RETURNING id`

func (s sqliteAccounts) Create(ctx context.Context, now time.Time, a record.Account) (int64, error) {
	a.ID = 0
	err := s.write(ctx, func(ctx context.Context, tx *sqliteQueries) error {
		if err := tx.refuseTaken(ctx, a); err != nil {
			return err
		}
		args := append([]any{a.Company, micros(now)}, accountValues(a)...)
		err := tx.row(ctx, sqliteInsertAccount, args...).Scan(&a.ID)
		if err != nil {
			return err
		}
		if err := tx.storeKeys(ctx, a); err != nil {
			return err
		}
		if err := tx.accept(ctx, a.Company, a.ID, a.Accepted); err != nil {
			return err
		}
		if err := tx.insertBackupCodes(ctx, a.ID, a.NewBackupCodes); err != nil {
			return err
		}
		return tx.insertEvents(ctx, a.Company, a.ID, a.Outbox)
	})
	if err != nil {
		return 0, translateSQLite("creating account", err)
	}
	return a.ID, nil
}

const (
	sqliteMnemocodeTaken = `SELECT EXISTS (SELECT 1 FROM accounts WHERE company = ? AND mnemocode = ? AND id <> ?)`
	sqliteLoginIDTaken   = `SELECT EXISTS (SELECT 1 FROM login_ids WHERE company = ? AND login_id = ? AND account <> ?)`
	sqliteIdentityTaken  = `
		SELECT EXISTS (SELECT 1 FROM identities WHERE company = ? AND provider = ? AND subject = ? AND account <> ?)`
)

// refuseTaken returns a TakenError if another account of the company has a login id,
// identity or mnemocode of a. No other write can happen within the transaction, so
// the answer stays true. The primary keys would also refuse the account, but without
// naming the field.
func (tx *sqliteQueries) refuseTaken(ctx context.Context, a record.Account) error {
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
	ids := record.LoginIDs(a)
	for _, field := range loginIDFields {
		id, ok := ids[field]
		if !ok {
			continue
		}
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
func (tx *sqliteQueries) storeKeys(ctx context.Context, a record.Account) error {
	if _, err := tx.exec(ctx, sqliteDeleteLoginIDs, a.ID); err != nil {
		return err
	}
	for _, id := range record.LoginIDs(a) {
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

var (
	sqliteSelectAccount = `
		SELECT id, company, ` + accountColumns + `, epoch, barred, created, updated,
			(SELECT json_group_array(json_object('provider', provider, 'subject', subject))
				FROM identities WHERE account = accounts.id),
			(SELECT json_group_array(json_object('code', code, 'version', version, 'at', at))
				FROM acceptances WHERE account = accounts.id),
			(SELECT count(*) FROM backup_codes WHERE account = accounts.id),
			(SELECT count(*) FROM passkeys WHERE account = accounts.id),
			(SELECT json_group_array(json_object('kind', kind, 'count', count, 'until', until)) FROM tallies
				WHERE company = accounts.company AND account = accounts.id AND login_id = ''),
			coalesce((SELECT era FROM eras WHERE company = accounts.company), 0)
		FROM accounts`
	sqliteAccountByID        = sqliteSelectAccount + ` WHERE company = ? AND id = ?`
	sqliteAccountByMnemocode = sqliteSelectAccount + ` WHERE company = ? AND mnemocode = ?`
	// If no account is found, the second part gives the only row: an account 0 with
	// the failure counts of the login id hash and the company generation.
	sqliteAccountByLoginID = sqliteSelectAccount + `
		WHERE id = (SELECT account FROM login_ids WHERE company = ?1 AND login_id = ?2)
		UNION ALL
		SELECT 0, '', ` + noAccount + `, 0, 0, 0, 0, '[]', '[]', 0, 0,
			(SELECT json_group_array(json_object('kind', kind, 'count', count, 'until', until)) FROM tallies
				WHERE company = ?1 AND account = 0 AND login_id = ?3),
			coalesce((SELECT era FROM eras WHERE company = ?1), 0)
		WHERE NOT EXISTS (SELECT 1 FROM login_ids WHERE company = ?1 AND login_id = ?2)`
	sqliteAccountByIdentity = sqliteSelectAccount + `
		WHERE id = (SELECT account FROM identities WHERE company = ? AND provider = ? AND subject = ?)`
)

func (s sqliteAccounts) ByLoginID(ctx context.Context, company, loginID, loginIDHash string) (record.Account, error) {
	a, err := s.load(ctx, sqliteAccountByLoginID, company, loginID, loginIDHash)
	if err == nil && a.ID == 0 {
		return record.Account{CompanyGeneration: a.CompanyGeneration, FailureCounts: a.FailureCounts}, record.ErrNotFound
	}
	return a, err
}

func (s sqliteAccounts) ByID(ctx context.Context, company string, id int64) (record.Account, error) {
	return s.load(ctx, sqliteAccountByID, company, id)
}

func (s sqliteAccounts) ByMnemocode(ctx context.Context, company, mnemocode string) (record.Account, error) {
	return s.load(ctx, sqliteAccountByMnemocode, company, mnemocode)
}

func (s sqliteAccounts) ByIdentity(ctx context.Context, company string, identity record.Identity) (record.Account, error) {
	return s.load(ctx, sqliteAccountByIdentity, company, identity.Provider, identity.Subject)
}

var sqliteAccountsOf = sqliteSelectAccount + ` WHERE company = ? AND mnemocode > ? ORDER BY mnemocode LIMIT +?`

func (s sqliteAccounts) List(ctx context.Context, company, after string, limit int) ([]record.Account, error) {
	var all []record.Account
	err := s.read(ctx, func(ctx context.Context, q *sqliteQueries) (err error) {
		all, err = collectSQLite(ctx, q, accountScan(asItIs), sqliteAccountsOf, company, after, limit)
		return err
	})
	return all, translateSQLite("listing accounts", err)
}

var (
	// The last mnemocode that a search looks at, and how many it looks at.
	sqliteSearched = `
		SELECT coalesce(max(mnemocode), ''), count(*)
		FROM (SELECT mnemocode FROM accounts WHERE company = ? AND mnemocode > ? ORDER BY mnemocode LIMIT +?)`
	sqliteFound = sqliteSelectAccount + `
		WHERE company = ?1 AND mnemocode > ?2 AND mnemocode <= ?3 AND (?4 = '' OR status = ?4)
			AND (?5 = '' OR EXISTS (SELECT 1 FROM login_ids WHERE account = accounts.id AND instr(login_id, ?5) > 0))
		ORDER BY mnemocode LIMIT +?6`
)

func (s sqliteAccounts) Search(ctx context.Context, company string, match record.Match, after string, limit int) (found []record.Account, last string, err error) {
	err = s.read(ctx, func(ctx context.Context, q *sqliteQueries) error {
		var searched int
		if err := q.row(ctx, sqliteSearched, company, after, match.Reach).Scan(&last, &searched); err != nil {
			return err
		}
		found, err = collectSQLite(ctx, q, accountScan(asItIs), sqliteFound, company, after, last, string(match.Status), match.Part, limit)
		if searched < match.Reach {
			last = ""
		}
		return err
	})
	return found, last, translateSQLite("searching accounts", err)
}

func (s sqliteAccounts) load(ctx context.Context, query string, args ...any) (record.Account, error) {
	var a record.Account
	err := s.read(ctx, func(ctx context.Context, q *sqliteQueries) (err error) {
		a, err = scanSQLiteAccount(q.row(ctx, query, args...))
		return err
	})
	return a, translateSQLite("loading account", err)
}

func scanSQLiteAccount(row scanner) (record.Account, error) { return accountScan(asItIs)(row) }

var sqliteUpdateAccount = `
	UPDATE accounts SET ` + eachField(func(_ int, f record.Field) string { return f.Column + " = ?" }) + `,
		epoch = ?, barred = ?, updated = ?
	WHERE id = ?`

const sqliteAddPending = `
	INSERT INTO endings (company, account, epoch, keep) VALUES (?, ?, ?, ?)
	ON CONFLICT (company, account) DO UPDATE SET epoch = excluded.epoch, keep = excluded.keep
	WHERE excluded.epoch > epoch`

func (s sqliteAccounts) Update(
	ctx context.Context, company string, id int64, change func(*record.Account) (ends bool, err error),
) (record.Account, error) {
	var stored record.Account
	err := s.write(ctx, func(ctx context.Context, tx *sqliteQueries) error {
		before, err := scanSQLiteAccount(tx.row(ctx, sqliteAccountByID, company, id))
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
		if err := tx.storeUpdate(ctx, a, ends); err != nil {
			return err
		}
		if err := tx.insertEvents(ctx, company, id, a.Outbox); err != nil {
			return err
		}
		stored, err = scanSQLiteAccount(tx.row(ctx, sqliteAccountByID, company, id))
		return err
	})
	if err != nil {
		return record.Account{}, translateSQLite("updating account", err)
	}
	return stored, nil
}

func (tx *sqliteQueries) storeUpdate(ctx context.Context, a record.Account, ends bool) error {
	if err := tx.refuseTaken(ctx, a); err != nil {
		return err
	}
	_, err := tx.exec(ctx, sqliteUpdateAccount, append(accountValues(a), a.Generation, a.Barred, micros(a.Updated), a.ID)...)
	if err != nil {
		return err
	}
	if ends {
		if _, err := tx.exec(ctx, sqliteAddPending, a.Company, a.ID, a.Generation, keptBytes(a.Keep)); err != nil {
			return err
		}
	}
	return tx.storeKeys(ctx, a)
}

const (
	sqliteDeleteAccount     = `DELETE FROM accounts WHERE company = ? AND id = ?` // foreign keys also delete the rows that belong to it
	sqliteDeleteAllFailures = `DELETE FROM tallies WHERE company = ? AND account = +?`
)

func (s sqliteAccounts) Delete(ctx context.Context, company string, id int64, events ...record.OutboxEvent) error {
	return translateSQLite("deleting account", s.write(ctx, func(ctx context.Context, tx *sqliteQueries) error {
		if err := tx.execOr(ctx, record.ErrNotFound, sqliteDeleteAccount, company, id); err != nil {
			return err
		}
		if _, err := tx.exec(ctx, sqliteDeleteAllFailures, company, id); err != nil {
			return err
		}
		if _, err := tx.exec(ctx, sqliteAddPending, company, id, record.AllGenerations, []byte{}); err != nil {
			return err
		}
		return tx.insertEvents(ctx, company, id, events)
	}))
}

const sqliteSetPassword = `
	UPDATE accounts SET password_hash = ?, must_set_password = 0, epoch = epoch + 1, updated = ?
	WHERE company = ? AND id = ? AND epoch = ?`

func (s sqliteAccounts) SetPassword(
	ctx context.Context, now time.Time, company string, id, generation int64, hash string, keep record.TokenHash, events ...record.OutboxEvent,
) error {
	return translateSQLite("setting password", s.write(ctx, func(ctx context.Context, tx *sqliteQueries) error {
		err := tx.execOr(ctx, record.ErrConflict, sqliteSetPassword, hash, micros(now), company, id, generation)
		if err != nil {
			return err
		}
		if _, err := tx.exec(ctx, sqliteDeleteFailures, company, id, "", string(record.WrongPasswords)); err != nil {
			return err
		}
		if _, err := tx.exec(ctx, sqliteAddPending, company, id, generation+1, keptBytes(keep)); err != nil {
			return err
		}
		return tx.insertEvents(ctx, company, id, events)
	}))
}

const sqliteAcceptOne = `
	INSERT INTO acceptances (account, code, version, at)
	SELECT id, ?, ?, ? FROM accounts WHERE company = ? AND id = ?
	ON CONFLICT (account, code) DO UPDATE SET version = excluded.version, at = excluded.at`

func (s sqliteAccounts) Accept(
	ctx context.Context, company string, id int64, accepted []record.Acceptance, events ...record.OutboxEvent,
) error {
	return translateSQLite("storing acceptances", s.write(ctx, func(ctx context.Context, tx *sqliteQueries) error {
		if err := tx.accept(ctx, company, id, accepted); err != nil {
			return err
		}
		return tx.insertEvents(ctx, company, id, events)
	}))
}

func (tx *sqliteQueries) accept(ctx context.Context, company string, id int64, accepted []record.Acceptance) error {
	for _, a := range accepted {
		err := tx.execOr(ctx, record.ErrNotFound, sqliteAcceptOne, a.Code, a.Version, micros(a.At), company, id)
		if err != nil {
			return err
		}
	}
	return nil
}

const (
	sqliteInsertSecret = `INSERT INTO secret (id, value) VALUES (1, ?) ON CONFLICT DO NOTHING`
	sqliteSelectSecret = `SELECT value FROM secret WHERE id = 1`
)

func (s sqliteAccounts) Secret(ctx context.Context) ([]byte, error) {
	var secret []byte
	load := func(ctx context.Context, q *sqliteQueries) error { return q.row(ctx, sqliteSelectSecret).Scan(&secret) }
	err := s.read(ctx, load)
	if errors.Is(err, sql.ErrNoRows) {
		err = s.write(ctx, func(ctx context.Context, tx *sqliteQueries) error {
			candidate := make([]byte, 32)
			rand.Read(candidate) // never fails: it crashes the process instead
			if _, err := tx.exec(ctx, sqliteInsertSecret, candidate); err != nil {
				return err
			}
			return load(ctx, tx)
		})
	}
	if err != nil {
		return nil, translateSQLite("loading secret", err)
	}
	return secret, nil
}

const (
	sqliteInsertSeed = `INSERT INTO seeds (company, mnemocode) VALUES (?, ?) ON CONFLICT DO NOTHING`
	sqliteSelectSeed = `SELECT EXISTS (SELECT 1 FROM seeds WHERE company = ? AND mnemocode = ?)`
)

func (s sqliteAccounts) SetSeeded(ctx context.Context, company, mnemocode string) error {
	return translateSQLite("recording a configured account", s.write(ctx, func(ctx context.Context, tx *sqliteQueries) error {
		_, err := tx.exec(ctx, sqliteInsertSeed, company, mnemocode)
		return err
	}))
}

func (s sqliteAccounts) Seeded(ctx context.Context, company, mnemocode string) (seeded bool, err error) {
	err = s.read(ctx, func(ctx context.Context, q *sqliteQueries) error {
		return q.row(ctx, sqliteSelectSeed, company, mnemocode).Scan(&seeded)
	})
	return seeded, translateSQLite("looking up a configured account", err)
}

const (
	// Looks up one company after the other, because the index has many entries for
	// each.
	sqliteCompanies = `
		WITH RECURSIVE found (company) AS (
			SELECT min(company) FROM accounts
			UNION ALL
			SELECT (SELECT min(company) FROM accounts WHERE company > found.company) FROM found WHERE company IS NOT NULL
		)
		SELECT company FROM found WHERE company IS NOT NULL`
	sqliteStranded = `
		SELECT company, count(*) FROM accounts WHERE phone = '' AND status = ? AND (second_factor OR ?)
			AND (totp = '' OR password_hash = '')
			AND NOT EXISTS (SELECT 1 FROM backup_codes WHERE account = accounts.id)
			AND NOT EXISTS (SELECT 1 FROM identities WHERE account = accounts.id)
			AND NOT EXISTS (SELECT 1 FROM passkeys WHERE account = accounts.id)
		GROUP BY company`
)

func (s sqliteAccounts) CompaniesWithAccounts(ctx context.Context) (companies []string, err error) {
	err = s.read(ctx, func(ctx context.Context, q *sqliteQueries) (err error) {
		companies, err = collectSQLite(ctx, q, scanString, sqliteCompanies)
		return err
	})
	return companies, translateSQLite("looking for companies", err)
}

func (s sqliteAccounts) Stranded(ctx context.Context, all bool) (map[string]int, error) {
	counts := map[string]int{}
	err := s.read(ctx, func(ctx context.Context, q *sqliteQueries) error {
		_, err := collectSQLite(ctx, q, scanCount(counts), sqliteStranded, string(record.StatusActive), all)
		return err
	})
	return counts, translateSQLite("counting accounts without a second factor", err)
}

// asItIs is the text argument of accountScan for SQLite. It changes nothing.
func asItIs(s string) string { return s }
