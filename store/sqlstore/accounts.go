package sqlstore

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
)

// Accounts implements record.Accounts for SQLite and PostgreSQL. An account of another company
// is none: methods that list return nothing then, and others what record says.
type Accounts struct {
	Database
	*Dialect
}

// A Dialect is what SQLite and PostgreSQL write differently.
type Dialect struct {
	JSON         func(object, from string) string // a list of JSON objects, as a subquery
	Position     string                           // function that returns where in a text another one begins, or 0
	Lock         string                           // ends a SELECT of a row that no other call may change until the transaction ends
	InsertEvents []string                         // stores an outbox event: see insertEvents
	ClaimQueues  string                           // claims up to $5 queues of $1 that are due at $2, until $3, as $4
	Chunk        int64                            // how many rows DeleteSome deletes at once
	// HoldGeneration lets no call of NewCompanyGeneration for the company $1 commit until the
	// transaction ends. BeginGeneration waits for the transactions that do so.
	HoldGeneration, BeginGeneration string
	// DeleteSome deletes up to $2 rows of a table for which the condition is true. The columns
	// of key are unique, those of order have an index.
	DeleteSome func(table, condition, key, order string) string

	// The fields below are made by Complete.

	accountByID, accountByMnemocode, accountByLoginID, accountByIdentity, accountsOf, accountsFound string
	accountLock, failuresLock, queueLock, insertKnown, insertUnknown                                string
}

// Complete adds the statements that the other fields make possible.
func (d Dialect) Complete() *Dialect {
	d.accountLock = `SELECT id FROM accounts WHERE ` + oneAccount + d.Lock
	d.failuresLock = `SELECT count, until FROM failures` + oneFailureCount + d.Lock
	d.queueLock = `SELECT queue FROM outbox_queues WHERE company = $1 AND queue = $2` + d.Lock
	d.insertKnown = InsertFailures + ` FROM accounts WHERE ` + oneAccount + d.Lock + ` ON CONFLICT DO NOTHING`
	d.insertUnknown = InsertFailures + ` WHERE true ON CONFLICT DO NOTHING` // SQLite needs WHERE here
	failures := `'kind', kind, 'count', count, 'until', until`
	selectAccount := `
		SELECT id, company, ` + accountColumns + `, generation, inactive_generation, created, updated, ` +
		d.JSON(`'provider', provider, 'subject', subject`, `identities WHERE account = accounts.id`) + `, ` +
		d.JSON(`'code', code, 'version', version, 'at', at`, `acceptances WHERE account = accounts.id`) + `,
			(SELECT count(*) FROM backup_codes WHERE account = accounts.id),
			(SELECT count(*) FROM passkeys WHERE account = accounts.id), ` +
		d.JSON(failures, `failures WHERE company = accounts.company AND account = accounts.id AND login_id = ''`) + `,
			` + companyGeneration + `
		FROM accounts WHERE `
	d.accountByID = selectAccount + oneAccount
	d.accountByMnemocode = selectAccount + `company = $1 AND mnemocode = $2`
	// If no account is found, the row is an account 0 with the failure counts of the
	// login id hash and the company generation. The 0 is the parameter $4: see
	// postgres.dialect.
	d.accountByLoginID = selectAccount + `
		id = (SELECT account FROM login_ids WHERE company = $1 AND login_id = $2)
		UNION ALL
		SELECT 0, '', ` + noAccount + `, 0, 0, 0, 0, '[]', '[]', 0, 0, ` +
		d.JSON(failures, `failures WHERE company = $1 AND account = CAST($4 AS bigint) AND login_id = $3`) + `,
			coalesce((SELECT generation FROM company_generations WHERE company = $1), 0)
		WHERE (SELECT account FROM login_ids WHERE company = $1 AND login_id = $2) IS NULL`
	d.accountByIdentity = selectAccount + `
		id = (SELECT account FROM identities WHERE company = $1 AND provider = $2 AND subject = $3)`
	d.accountsOf = selectAccount + `company = $1 AND mnemocode > $2 ORDER BY mnemocode LIMIT CAST($3 AS bigint)`
	d.accountsFound = selectAccount + `
		company = $1 AND mnemocode > $2 AND mnemocode <= $3 AND ($4 = '' OR status = $4)
			AND ($5 = '' OR (SELECT 1 FROM login_ids WHERE account = accounts.id AND ` + d.Position + `(login_id, $5) > 0 LIMIT 1) IS NOT NULL)
			AND (NOT $6 OR (` + noSecondFactor + `))
			AND ($8 = '' OR role = $8)
			AND updated >= CAST($10 AS bigint) AND (CAST($11 AS bigint) < 0 OR (password_hash <> '') = (CAST($11 AS bigint) = 1))
			AND (NOT $9 OR (SELECT 1 FROM failures WHERE company = accounts.company AND account = accounts.id AND login_id = '' LIMIT 1) IS NOT NULL)
		ORDER BY mnemocode LIMIT CAST($7 AS bigint)`
	return &d
}

// oneAccount is the condition for the account $2 of the company $1.
const oneAccount = `id = $2 AND (company = $1) IS TRUE`

// presentAccount is the condition for that account in the generation $3 and the company
// generation $4.
const presentAccount = oneAccount + ` AND generation = $3 AND ` + companyGeneration + ` = $4`

// Loading

func (s Accounts) ByLoginID(ctx context.Context, company, loginID, loginIDHash string) (record.Account, error) {
	a, err := s.load(ctx, "accounts.by_login_id", s.accountByLoginID, company, loginID, loginIDHash, 0)
	if err == nil && a.ID == 0 {
		return record.Account{CompanyGeneration: a.CompanyGeneration, FailureCounts: a.FailureCounts}, record.ErrNotFound
	}
	return a, err
}

func (s Accounts) ByID(ctx context.Context, company string, id int64) (record.Account, error) {
	return s.load(ctx, "accounts.by_id", s.accountByID, company, id)
}

func (s Accounts) ByMnemocode(ctx context.Context, company, mnemocode string) (record.Account, error) {
	return s.load(ctx, "accounts.by_mnemocode", s.accountByMnemocode, company, mnemocode)
}

func (s Accounts) ByIdentity(ctx context.Context, company string, identity record.Identity) (record.Account, error) {
	return s.load(ctx, "accounts.by_identity", s.accountByIdentity, company, identity.Provider, identity.Subject)
}

// load returns the one account that a query finds.
func (s Accounts) load(ctx context.Context, method, query string, args ...any) (record.Account, error) {
	return QueryOne(ctx, s, method+": loading account", accountScan(), query, args...)
}

// startOf returns a text that PostgreSQL can search for, and after which the same mnemocodes
// come: none has a NUL or is not valid UTF-8.
func startOf(after string) string {
	after, _, _ = strings.Cut(after, "\x00")
	return strings.ToValidUTF8(after, "\uFFFD")
}

func (s Accounts) List(ctx context.Context, company, after string, limit int) ([]record.Account, error) {
	return QueryAll(ctx, s, "accounts.list: listing accounts", accountScan(), s.accountsOf, company, startOf(after), limit)
}

// The last mnemocode that a search looks at, and how many it looks at.
const searchedPart = `
	SELECT coalesce(max(mnemocode), ''), count(*)
	FROM (SELECT mnemocode FROM accounts WHERE company = $1 AND mnemocode > $2 ORDER BY mnemocode LIMIT CAST($3 AS bigint)) AS searched`

func (s Accounts) Search(ctx context.Context, company string, match record.Match, after string, limit int) (found []record.Account, last string, err error) {
	after = startOf(after)
	err = Read(ctx, s, "accounts.search: searching accounts", func(ctx context.Context, q Queries) error {
		searched, passwordSet := 0, -1 // -1 for both
		if match.PasswordSet != nil {
			passwordSet = 0
			if *match.PasswordSet {
				passwordSet = 1
			}
		}
		if err := q.Row(ctx, searchedPart, company, after, match.Reach).Scan(&last, &searched); err != nil {
			return err
		}
		found, err = Collect(ctx, q, accountScan(), s.accountsFound, company, after, last, string(match.Status), match.Part, match.NoSecondFactor, limit,
			match.Role, match.Failed, record.Micros(match.UpdatedSince), passwordSet)
		if searched < match.Reach {
			last = ""
		}
		return err
	})
	if errors.Is(err, record.ErrNotFound) { // of a text that no row can have
		return nil, "", nil
	}
	return found, last, err
}

// Changing

const (
	deleteAccount     = `DELETE FROM accounts WHERE ` + oneAccount // foreign keys also delete the rows that belong to it
	deleteAllFailures = `DELETE FROM failures WHERE company = $1 AND account = CAST($2 AS bigint)`
)

func (s Accounts) Delete(ctx context.Context, company string, id int64, match func(record.Account) bool, events ...record.OutboxEvent) error {
	return transact(ctx, s, "accounts.delete: deleting account", func(ctx context.Context, tx Queries) error {
		if match != nil {
			a, err := s.lockAndLoad(ctx, tx, company, id)
			if err != nil {
				return err
			}
			if !match(a) {
				return record.ErrConflict
			}
		}
		if err := ExecOr(ctx, tx, record.ErrNotFound, deleteAccount, company, id); err != nil {
			return err
		}
		tx.Later(ctx, deleteAllFailures, company, id)
		s.revokeLater(ctx, tx, record.Revocation{Company: company, Account: id, Generation: record.AllGenerations}, events)
		return nil
	})
}

const setPassword = `
	UPDATE accounts SET password_hash = $5, must_set_password = false, generation = generation + 1, updated = $6
	WHERE ` + presentAccount

func (s Accounts) SetPassword(
	ctx context.Context, now time.Time, a record.Account, hash string, keep record.TokenHash, events ...record.OutboxEvent,
) error {
	return transact(ctx, s, "accounts.set_password: setting password", func(ctx context.Context, tx Queries) error {
		s.lockLater(ctx, tx, a.Company, a.ID)
		err := ExecOr(ctx, tx, record.ErrConflict, setPassword, a.Company, a.ID, a.Generation, a.CompanyGeneration, hash, record.Micros(now))
		if err != nil {
			return err
		}
		tx.Later(ctx, deleteFailures, a.Company, a.ID, "", string(record.WrongPasswords))
		s.revokeLater(ctx, tx, record.Revocation{Company: a.Company, Account: a.ID, Generation: a.Generation + 1, Keep: keep}, events)
		return nil
	})
}

const accept = `
	INSERT INTO acceptances (account, code, version, at) VALUES ($1, $2, $3, $4)
	ON CONFLICT (account, code) DO UPDATE SET version = excluded.version, at = excluded.at
	WHERE excluded.at >= acceptances.at`

func (s Accounts) Accept(
	ctx context.Context, company string, id int64, accepted []record.Acceptance, events ...record.OutboxEvent,
) error {
	return transact(ctx, s, "accounts.accept: storing acceptances", func(ctx context.Context, tx Queries) error {
		if err := s.lockAccount(ctx, tx, company, id); err != nil {
			return err
		}
		insertAcceptances(ctx, tx, id, accepted)
		s.insertEvents(ctx, tx, company, id, events)
		return nil
	})
}

// insertAcceptances stores disclaimers that the account has accepted.
func insertAcceptances(ctx context.Context, tx Queries, id int64, accepted []record.Acceptance) {
	for _, a := range accepted {
		tx.Later(ctx, accept, id, a.Code, a.Version, record.Micros(a.At))
	}
}

// Backup codes

const (
	firstBackupCode   = `SELECT coalesce((SELECT min(hash) FROM backup_codes WHERE account = accounts.id), '') FROM accounts WHERE ` + presentAccount
	backupCodes       = `SELECT hash FROM backup_codes WHERE account = (SELECT id FROM accounts WHERE ` + oneAccount + `) ORDER BY hash`
	useBackupCode     = `DELETE FROM backup_codes WHERE account = (SELECT id FROM accounts WHERE ` + oneAccount + `) AND hash = $3`
	deleteBackupCodes = `DELETE FROM backup_codes WHERE account = $1`
	insertBackupCode  = `INSERT INTO backup_codes (account, hash) VALUES ($1, $2) ON CONFLICT DO NOTHING`
)

func (s Accounts) SetBackupCodes(ctx context.Context, a record.Account, hashes []string, events ...record.OutboxEvent) error {
	return transact(ctx, s, "accounts.set_backup_codes: storing backup codes", func(ctx context.Context, tx Queries) error {
		var first string // of codes that are stored together, so all of them are new if it is
		s.lockLater(ctx, tx, a.Company, a.ID)
		if err := tx.Row(ctx, firstBackupCode, a.Company, a.ID, a.Generation, a.CompanyGeneration).Scan(&first); err != nil {
			return err
		}
		if first != "" && a.OldBackupCodes != nil && !slices.Contains(a.OldBackupCodes, first) {
			return record.ErrNotFound
		}
		tx.Later(ctx, deleteBackupCodes, a.ID)
		insertBackupCodes(ctx, tx, a.ID, hashes)
		s.insertEvents(ctx, tx, a.Company, a.ID, events)
		return nil
	})
}

// insertBackupCodes stores hashes of backup codes.
func insertBackupCodes(ctx context.Context, tx Queries, id int64, hashes []string) {
	for _, hash := range hashes {
		tx.Later(ctx, insertBackupCode, id, hash)
	}
}

func (s Accounts) BackupCodes(ctx context.Context, company string, id int64) ([]string, error) {
	return QueryAll(ctx, s, "accounts.backup_codes: loading backup codes", ScanValue[string], backupCodes, company, id)
}

func (s Accounts) UseBackupCode(ctx context.Context, company string, id int64, hash string) error {
	return Change(ctx, s, "accounts.use_backup_code: using backup code", record.ErrConflict, useBackupCode, company, id, hash)
}

// The secrets

const (
	insertSecret  = `INSERT INTO secrets (number, value, begins) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING`
	selectSecrets = `SELECT number, value, begins FROM secrets WHERE number >= 0 ORDER BY number`
)

func (s Accounts) Secrets(ctx context.Context) ([]record.Secret, error) {
	scan := func(row Scanner) (found record.Secret, err error) {
		err = row.Scan(&found.Number, &found.Value, Time(&found.Begins))
		return found, err
	}
	secrets, err := QueryAll(ctx, s, "loading secrets", scan, selectSecrets)
	if err == nil && len(secrets) == 0 {
		first := make([]byte, 32)
		rand.Read(first)
		if err = Change(ctx, s, "storing a secret", nil, insertSecret, 0, first, 0); err == nil {
			secrets, err = QueryAll(ctx, s, "loading secrets", scan, selectSecrets)
		}
	}
	return secrets, err
}

func (s Accounts) AddSecret(ctx context.Context, secret record.Secret) error {
	return Change(ctx, s, "storing a secret", record.ErrConflict, insertSecret, secret.Number, secret.Value, record.Micros(secret.Begins))
}

// Configured accounts

const (
	insertSeed = `INSERT INTO seeds (company, mnemocode) VALUES ($1, $2) ON CONFLICT DO NOTHING`
	selectSeed = `SELECT EXISTS (SELECT 1 FROM seeds WHERE company = $1 AND mnemocode = $2)`
)

func (s Accounts) SetSeeded(ctx context.Context, company, mnemocode string) error {
	return Change(ctx, s, "recording a configured account", nil, insertSeed, company, mnemocode)
}

func (s Accounts) Seeded(ctx context.Context, company, mnemocode string) (bool, error) {
	return QueryOne(ctx, s, "looking up a configured account", ScanValue[bool], selectSeed, company, mnemocode)
}

// Census

const (
	// Looks up one company after the other, because the index has many entries for
	// each.
	companies = `
		WITH RECURSIVE found (company) AS (
			SELECT min(company) FROM accounts
			UNION ALL
			SELECT (SELECT min(company) FROM accounts WHERE company > found.company) FROM found WHERE company IS NOT NULL
		)
		SELECT company FROM found WHERE company IS NOT NULL`
	count    = `SELECT count(*) FROM accounts`
	stranded = `SELECT company, count(*) FROM accounts WHERE status = $1 AND (second_factor OR $2) AND ` + noSecondFactor + ` GROUP BY company`
	// With NOT EXISTS, PostgreSQL would read the whole tables for a Search.
	noSecondFactor = `phone = '' AND (totp = '' OR password_hash = '')
			AND (SELECT 1 FROM backup_codes WHERE account = accounts.id LIMIT 1) IS NULL
			AND (SELECT 1 FROM identities WHERE account = accounts.id LIMIT 1) IS NULL
			AND (SELECT 1 FROM passkeys WHERE account = accounts.id LIMIT 1) IS NULL`
)

func (s Accounts) CompaniesWithAccounts(ctx context.Context) ([]string, error) {
	return QueryAll(ctx, s, "looking for companies", ScanValue[string], companies)
}

func (s Accounts) Count(ctx context.Context) (int, error) {
	return QueryOne(ctx, s, "counting accounts", ScanValue[int], count)
}

func (s Accounts) Stranded(ctx context.Context, all bool) (map[string]int, error) {
	counts := map[string]int{}
	scan := func(row Scanner) (company string, err error) {
		var n int
		err = row.Scan(&company, &n)
		counts[company] = n
		return company, err
	}
	_, err := QueryAll(ctx, s, "counting accounts without a second factor", scan, stranded, string(record.StatusActive), all)
	return counts, err
}

// Signing keys

const (
	signingKeys       = `SELECT number, sealed, created FROM signing_keys WHERE company = $1 ORDER BY number`
	insertSigningKey  = `INSERT INTO signing_keys (company, number, sealed, created) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING`
	deleteSigningKeys = `DELETE FROM signing_keys WHERE company = $1 AND number < $2`
)

func (s Accounts) SigningKeys(ctx context.Context, company string) ([]record.SigningKey, error) {
	scan := func(row Scanner) (k record.SigningKey, err error) {
		err = row.Scan(&k.Number, &k.Sealed, Time(&k.Created))
		return k, err
	}
	return QueryAll(ctx, s, "loading signing keys", scan, signingKeys, company)
}

func (s Accounts) AddSigningKey(ctx context.Context, company string, key record.SigningKey) error {
	return Change(ctx, s, "storing a signing key", record.ErrConflict, insertSigningKey, company, key.Number, key.Sealed, record.Micros(key.Created))
}

func (s Accounts) RemoveSigningKeys(ctx context.Context, company string, number int64) error {
	return Change(ctx, s, "removing signing keys", nil, deleteSigningKeys, company, number)
}
