package store

import (
	"context"
	"crypto/rand"
	"iter"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
)

// sqlAccounts has the methods of record.Accounts that SQLite and PostgreSQL share. If
// an account does not exist or belongs to another company, they return ErrNotFound,
// unless their comments in record say ErrConflict.
type sqlAccounts struct {
	sqlStore
	*dialect
}

// A dialect is what SQLite and PostgreSQL write differently.
type dialect struct {
	json     func(object, from string) string // a list of JSON objects, as a subquery
	position string                           // function that returns where in a text another one begins, or 0
	lock     string                           // ends a SELECT of a row that no other call may change until the transaction ends
	text     func(string) string              // converts texts that are part of JSON
	findable func(args ...any) bool           // false if no row can have these texts
	claim    string                           // claims up to $5 queues of $1 that are due at $2, until $3, as $4
	forget   string                           // deletes up to $2 rows of history from before $1
	chunk    int64                            // how many rows forget deletes at once
	forgetOf func(table, key string) string   // deletes up to $2 rows of the company $1

	// The fields below are made by complete.

	accountByID, accountByMnemocode, accountByLoginID, accountByIdentity, accountsOf, accountsFound string
	accountLock, failuresLock, queueLock, insertKnown, insertUnknown                                string
}

// complete adds the statements that the other fields make possible.
func (d dialect) complete() *dialect {
	d.accountLock = `SELECT id FROM accounts WHERE ` + oneAccount + d.lock
	d.failuresLock = `SELECT count, until FROM tallies` + sqlOneFailureCount + d.lock
	d.queueLock = `SELECT queue FROM outbox_queues WHERE company = $1 AND queue = $2` + d.lock
	d.insertKnown = sqlInsertFailures + ` FROM accounts WHERE ` + oneAccount + d.lock + ` ON CONFLICT DO NOTHING`
	d.insertUnknown = sqlInsertFailures + ` WHERE true ON CONFLICT DO NOTHING` // SQLite needs WHERE here
	failures := `'kind', kind, 'count', count, 'until', until`
	selectAccount := `
		SELECT id, company, ` + accountColumns + `, epoch, barred, created, updated, ` +
		d.json(`'provider', provider, 'subject', subject`, `identities WHERE account = accounts.id`) + `, ` +
		d.json(`'code', code, 'version', version, 'at', at`, `acceptances WHERE account = accounts.id`) + `,
			(SELECT count(*) FROM backup_codes WHERE account = accounts.id),
			(SELECT count(*) FROM passkeys WHERE account = accounts.id), ` +
		d.json(failures, `tallies WHERE company = accounts.company AND account = accounts.id AND login_id = ''`) + `,
			coalesce((SELECT era FROM eras WHERE company = accounts.company), 0)
		FROM accounts WHERE `
	d.accountByID = selectAccount + oneAccount
	d.accountByMnemocode = selectAccount + `company = $1 AND mnemocode = $2`
	// If no account is found, the row is an account 0 with the failure counts of the
	// login id hash and the company generation. The 0 is the parameter $4: see
	// postgresAccounts.
	d.accountByLoginID = selectAccount + `
		id = (SELECT account FROM login_ids WHERE company = $1 AND login_id = $2)
		UNION ALL
		SELECT 0, '', ` + noAccount + `, 0, 0, 0, 0, '[]', '[]', 0, 0, ` +
		d.json(failures, `tallies WHERE company = $1 AND account = CAST($4 AS bigint) AND login_id = $3`) + `,
			coalesce((SELECT era FROM eras WHERE company = $1), 0)
		WHERE (SELECT account FROM login_ids WHERE company = $1 AND login_id = $2) IS NULL`
	d.accountByIdentity = selectAccount + `
		id = (SELECT account FROM identities WHERE company = $1 AND provider = $2 AND subject = $3)`
	d.accountsOf = selectAccount + `company = $1 AND mnemocode > $2 ORDER BY mnemocode LIMIT CAST($3 AS bigint)`
	d.accountsFound = selectAccount + `
		company = $1 AND mnemocode > $2 AND mnemocode <= $3 AND ($4 = '' OR status = $4)
			AND ($5 = '' OR EXISTS (SELECT 1 FROM login_ids WHERE account = accounts.id AND ` + d.position + `(login_id, $5) > 0))
			AND (NOT $6 OR (` + sqlNoSecondFactor + `))
			AND ($8 = '' OR role = $8)
			AND (NOT $9 OR (SELECT 1 FROM tallies WHERE company = accounts.company AND account = accounts.id AND login_id = '' LIMIT 1) IS NOT NULL)
		ORDER BY mnemocode LIMIT CAST($7 AS bigint)`
	return &d
}

// oneAccount is the condition for the account $2 of the company $1.
const oneAccount = `id = $2 AND (company = $1) IS TRUE`

// Loading

func (s sqlAccounts) ByLoginID(ctx context.Context, company, loginID, loginIDHash string) (record.Account, error) {
	a, err := s.load(ctx, s.accountByLoginID, company, loginID, loginIDHash, 0)
	if err == nil && a.ID == 0 {
		return record.Account{CompanyGeneration: a.CompanyGeneration, FailureCounts: a.FailureCounts}, record.ErrNotFound
	}
	return a, err
}

func (s sqlAccounts) ByID(ctx context.Context, company string, id int64) (record.Account, error) {
	return s.load(ctx, s.accountByID, company, id)
}

func (s sqlAccounts) ByMnemocode(ctx context.Context, company, mnemocode string) (record.Account, error) {
	return s.load(ctx, s.accountByMnemocode, company, mnemocode)
}

func (s sqlAccounts) ByIdentity(ctx context.Context, company string, identity record.Identity) (record.Account, error) {
	return s.load(ctx, s.accountByIdentity, company, identity.Provider, identity.Subject)
}

// load returns the one account that a query finds.
func (s sqlAccounts) load(ctx context.Context, query string, args ...any) (record.Account, error) {
	if !s.findable(args...) {
		return record.Account{}, record.ErrNotFound
	}
	return queryOne(ctx, s, "loading account", accountScan(s.text), query, args...)
}

func (s sqlAccounts) List(ctx context.Context, company, after string, limit int) ([]record.Account, error) {
	return queryAll(ctx, s, "listing accounts", accountScan(s.text), s.accountsOf, company, after, limit)
}

// The last mnemocode that a search looks at, and how many it looks at.
const sqlSearched = `
	SELECT coalesce(max(mnemocode), ''), count(*)
	FROM (SELECT mnemocode FROM accounts WHERE company = $1 AND mnemocode > $2 ORDER BY mnemocode LIMIT CAST($3 AS bigint)) AS searched`

func (s sqlAccounts) Search(ctx context.Context, company string, match record.Match, after string, limit int) (found []record.Account, last string, err error) {
	if !s.findable(match.Part, match.Role) {
		return nil, "", ctx.Err()
	}
	err = s.reading(ctx, func(ctx context.Context, q queries) error {
		var searched int
		if err := q.row(ctx, sqlSearched, company, after, match.Reach).Scan(&last, &searched); err != nil {
			return err
		}
		found, err = collect(ctx, q, accountScan(s.text), s.accountsFound, company, after, last, string(match.Status), match.Part, match.NoSecondFactor, limit,
			match.Role, match.Failed)
		if searched < match.Reach {
			last = ""
		}
		return err
	})
	return found, last, translate("searching accounts", err)
}

// Changing

// setGeneration sets Generation and InactiveGeneration of an account that Update changes.
func setGeneration(a *record.Account, before record.Account, ends bool) {
	a.Generation, a.InactiveGeneration = before.Generation, before.InactiveGeneration
	if !ends {
		return
	}
	a.Generation++
	if before.Status == record.StatusActive && a.Status != record.StatusActive {
		a.InactiveGeneration = a.Generation
	}
}

// newLoginIDs yields the login ids of an account that must be stored: all of them, or none
// if a change leaves them alone.
func newLoginIDs(before, after record.Account) iter.Seq2[string, string] {
	if record.SameLoginIDs(before, after) {
		return func(func(string, string) bool) {}
	}
	return record.LoginIDs(after)
}

// lockAccount returns ErrNotFound if there is no such account. Otherwise no other call
// changes the account until the transaction ends.
func (s sqlAccounts) lockAccount(ctx context.Context, tx queries, company string, id int64) error {
	return tx.row(ctx, s.accountLock, company, id).Scan(&id)
}

const (
	sqlDeleteAccount     = `DELETE FROM accounts WHERE ` + oneAccount // foreign keys also delete the rows that belong to it
	sqlDeleteAllFailures = `DELETE FROM tallies WHERE company = $1 AND account = CAST($2 AS bigint)`
)

func (s sqlAccounts) Delete(ctx context.Context, company string, id int64, events ...record.OutboxEvent) error {
	return translate("deleting account", s.transaction(ctx, func(ctx context.Context, tx queries) error {
		if err := execOr(ctx, tx, record.ErrNotFound, sqlDeleteAccount, company, id); err != nil {
			return err
		}
		if err := tx.later(ctx, sqlDeleteAllFailures, company, id); err != nil {
			return err
		}
		return s.revokeLater(ctx, tx, record.Revocation{Company: company, Account: id, Generation: record.AllGenerations}, events)
	}))
}

const sqlSetPassword = `
	UPDATE accounts SET password_hash = $4, must_set_password = false, epoch = epoch + 1, updated = $5
	WHERE ` + oneAccount + ` AND epoch = $3`

func (s sqlAccounts) SetPassword(
	ctx context.Context, now time.Time, company string, id, generation int64, hash string, keep record.TokenHash, events ...record.OutboxEvent,
) error {
	return translate("setting password", s.transaction(ctx, func(ctx context.Context, tx queries) error {
		err := execOr(ctx, tx, record.ErrConflict, sqlSetPassword, company, id, generation, hash, micros(now))
		if err != nil {
			return err
		}
		if err := tx.later(ctx, sqlDeleteFailures, company, id, "", string(record.WrongPasswords)); err != nil {
			return err
		}
		return s.revokeLater(ctx, tx, record.Revocation{Company: company, Account: id, Generation: generation + 1, Keep: keep}, events)
	}))
}

const sqlAccept = `
	INSERT INTO acceptances (account, code, version, at) VALUES ($1, $2, $3, $4)
	ON CONFLICT (account, code) DO UPDATE SET version = excluded.version, at = excluded.at`

func (s sqlAccounts) Accept(
	ctx context.Context, company string, id int64, accepted []record.Acceptance, events ...record.OutboxEvent,
) error {
	return translate("storing acceptances", s.transaction(ctx, func(ctx context.Context, tx queries) error {
		if err := s.lockAccount(ctx, tx, company, id); err != nil {
			return err
		}
		if err := insertAcceptances(ctx, tx, id, accepted); err != nil {
			return err
		}
		return tx.insertEvents(ctx, company, id, events)
	}))
}

func insertAcceptances(ctx context.Context, tx queries, id int64, accepted []record.Acceptance) error {
	for _, a := range accepted {
		if err := tx.later(ctx, sqlAccept, id, a.Code, a.Version, micros(a.At)); err != nil {
			return err
		}
	}
	return nil
}

// Backup codes

const (
	sqlBackupCodes       = `SELECT hash FROM backup_codes WHERE account = (SELECT id FROM accounts WHERE ` + oneAccount + `) ORDER BY hash`
	sqlUseBackupCode     = `DELETE FROM backup_codes WHERE account = (SELECT id FROM accounts WHERE ` + oneAccount + `) AND hash = $3`
	sqlDeleteBackupCodes = `DELETE FROM backup_codes WHERE account = $1`
	sqlInsertBackupCode  = `INSERT INTO backup_codes (account, hash) VALUES ($1, $2) ON CONFLICT DO NOTHING`
)

func (s sqlAccounts) SetBackupCodes(
	ctx context.Context, company string, id int64, hashes []string, events ...record.OutboxEvent,
) error {
	return translate("storing backup codes", s.transaction(ctx, func(ctx context.Context, tx queries) error {
		if err := s.lockAccount(ctx, tx, company, id); err != nil {
			return err
		}
		if err := tx.later(ctx, sqlDeleteBackupCodes, id); err != nil {
			return err
		}
		if err := insertBackupCodes(ctx, tx, id, hashes); err != nil {
			return err
		}
		return tx.insertEvents(ctx, company, id, events)
	}))
}

func insertBackupCodes(ctx context.Context, tx queries, id int64, hashes []string) error {
	for _, hash := range hashes {
		if err := tx.later(ctx, sqlInsertBackupCode, id, hash); err != nil {
			return err
		}
	}
	return nil
}

func (s sqlAccounts) BackupCodes(ctx context.Context, company string, id int64) ([]string, error) {
	return queryAll(ctx, s, "loading backup codes", scanValue[string], sqlBackupCodes, company, id)
}

func (s sqlAccounts) UseBackupCode(ctx context.Context, company string, id int64, hash string) error {
	return change(ctx, s, "using backup code", record.ErrConflict, sqlUseBackupCode, company, id, hash)
}

// The secrets

const (
	sqlInsertFirstSecret = `INSERT INTO secret (id, value) VALUES (1, $1) ON CONFLICT DO NOTHING`
	sqlInsertSecret      = `INSERT INTO secrets (number, value, begins) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING`
	sqlSelectSecrets     = `SELECT 0, value, 0 FROM secret WHERE id = 1 UNION ALL SELECT number, value, begins FROM secrets WHERE number > 0 ORDER BY 1`
)

func (s sqlAccounts) Secrets(ctx context.Context) ([]record.Secret, error) {
	scan := func(row scanner) (found record.Secret, err error) {
		var begins int64
		err = row.Scan(&found.Number, &found.Value, &begins)
		found.Begins = fromMicros(begins)
		return found, err
	}
	secrets, err := queryAll(ctx, s, "loading secrets", scan, sqlSelectSecrets)
	if err == nil && len(secrets) == 0 {
		first := make([]byte, 32)
		rand.Read(first)
		if err = change(ctx, s, "storing a secret", nil, sqlInsertFirstSecret, first); err == nil {
			secrets, err = queryAll(ctx, s, "loading secrets", scan, sqlSelectSecrets)
		}
	}
	return secrets, err
}

func (s sqlAccounts) AddSecret(ctx context.Context, secret record.Secret) error {
	return change(ctx, s, "storing a secret", record.ErrConflict, sqlInsertSecret, secret.Number, secret.Value, micros(secret.Begins))
}

// Configured accounts

const (
	sqlInsertSeed = `INSERT INTO seeds (company, mnemocode) VALUES ($1, $2) ON CONFLICT DO NOTHING`
	sqlSelectSeed = `SELECT EXISTS (SELECT 1 FROM seeds WHERE company = $1 AND mnemocode = $2)`
)

func (s sqlAccounts) SetSeeded(ctx context.Context, company, mnemocode string) error {
	return change(ctx, s, "recording a configured account", nil, sqlInsertSeed, company, mnemocode)
}

func (s sqlAccounts) Seeded(ctx context.Context, company, mnemocode string) (bool, error) {
	return queryOne(ctx, s, "looking up a configured account", scanValue[bool], sqlSelectSeed, company, mnemocode)
}

// Census

const (
	// Looks up one company after the other, because the index has many entries for
	// each.
	sqlCompanies = `
		WITH RECURSIVE found (company) AS (
			SELECT min(company) FROM accounts
			UNION ALL
			SELECT (SELECT min(company) FROM accounts WHERE company > found.company) FROM found WHERE company IS NOT NULL
		)
		SELECT company FROM found WHERE company IS NOT NULL`
	sqlCount    = `SELECT count(*) FROM accounts`
	sqlStranded = `SELECT company, count(*) FROM accounts WHERE status = $1 AND (second_factor OR $2) AND ` + sqlNoSecondFactor + ` GROUP BY company`
	// With NOT EXISTS, PostgreSQL would read the whole tables for a Search.
	sqlNoSecondFactor = `phone = '' AND (totp = '' OR password_hash = '')
			AND (SELECT 1 FROM backup_codes WHERE account = accounts.id LIMIT 1) IS NULL
			AND (SELECT 1 FROM identities WHERE account = accounts.id LIMIT 1) IS NULL
			AND (SELECT 1 FROM passkeys WHERE account = accounts.id LIMIT 1) IS NULL`
)

func (s sqlAccounts) CompaniesWithAccounts(ctx context.Context) ([]string, error) {
	return queryAll(ctx, s, "looking for companies", scanValue[string], sqlCompanies)
}

func (s sqlAccounts) Count(ctx context.Context) (int, error) {
	return queryOne(ctx, s, "counting accounts", scanValue[int], sqlCount)
}

func (s sqlAccounts) Stranded(ctx context.Context, all bool) (map[string]int, error) {
	counts := map[string]int{}
	scan := func(row scanner) (company string, err error) {
		var n int
		err = row.Scan(&company, &n)
		counts[company] = n
		return company, err
	}
	_, err := queryAll(ctx, s, "counting accounts without a second factor", scan, sqlStranded, string(record.StatusActive), all)
	return counts, err
}

// Signing keys

const (
	sqlSigningKeys       = `SELECT number, sealed, created FROM signing_keys WHERE company = $1 ORDER BY number`
	sqlInsertSigningKey  = `INSERT INTO signing_keys (company, number, sealed, created) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING`
	sqlDeleteSigningKeys = `DELETE FROM signing_keys WHERE company = $1 AND number < $2`
)

// SigningKeys implements record.SigningKeys.
func (s sqlAccounts) SigningKeys(ctx context.Context, company string) ([]record.SigningKey, error) {
	scan := func(row scanner) (k record.SigningKey, err error) {
		var created int64
		err = row.Scan(&k.Number, &k.Sealed, &created)
		k.Created = fromMicros(created)
		return k, err
	}
	return queryAll(ctx, s, "loading signing keys", scan, sqlSigningKeys, company)
}

// AddSigningKey implements record.SigningKeys.
func (s sqlAccounts) AddSigningKey(ctx context.Context, company string, key record.SigningKey) error {
	return change(ctx, s, "storing a signing key", record.ErrConflict, sqlInsertSigningKey, company, key.Number, key.Sealed, micros(key.Created))
}

// RemoveSigningKeys implements record.SigningKeys.
func (s sqlAccounts) RemoveSigningKeys(ctx context.Context, company string, number int64) error {
	return change(ctx, s, "removing signing keys", nil, sqlDeleteSigningKeys, company, number)
}

// Interface guards
var (
	_ record.SigningKeys = sqlAccounts{}
	_ record.Census      = sqlAccounts{}
)
