package store

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/mnemogate/mnemogate/flows/record"
)

// postgresAccounts implements record.Accounts for PostgreSQL.
//
// To avoid deadlocks, all writes to an account lock in the same order: first the
// account's row, then the keys of postgresKeys, sorted, then everything else.
type postgresAccounts struct{ *Postgres }

// PostgreSQL plans a statement once per connection. The tables may then be empty, so
// that any index looks as good as another, and an import may fill them later. So no
// statement leaves the planner a choice that reads all rows of a company:
//
//   - A lookup for each row is a subquery, not a join.
//   - A condition that must not choose an index is not a plain comparison with a
//     column, and does not contain a constant that a partial index is made for.

// postgresOne is the condition for the account $2 of the company $1.
const postgresOne = `id = $2 AND (company = $1) IS TRUE`

// Keys: mnemocodes, login ids and identities, which are unique within a company

const (
	postgresLockAccount = `SELECT id FROM accounts WHERE ` + postgresOne + ` FOR UPDATE`
	postgresLockKeys    = `SELECT pg_advisory_xact_lock(key) FROM unnest($1::bigint[]) AS keys (key)`
)

// postgresKeys returns a lock key for each value that must be unique within the
// company. A call that stores such a value takes its lock and then checks that it is
// free.
func postgresKeys(a record.Account) []int64 {
	keys := []int64{postgresKey(a.Company, "mnemocode", a.Mnemocode)}
	for _, id := range record.LoginIDs(a) {
		keys = append(keys, postgresKey(a.Company, "login id", id))
	}
	for _, i := range a.Identities {
		keys = append(keys, postgresKey(a.Company, fmt.Sprint("identity of ", i.Provider), i.Subject))
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

func postgresKey(company, kind, value string) int64 {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %s %q", company, kind, value))
	return int64(binary.BigEndian.Uint64(sum[:]))
}

// newPostgresKeys returns the keys of after that before does not have.
func newPostgresKeys(before, after record.Account) []int64 {
	old := postgresKeys(before)
	return slices.DeleteFunc(postgresKeys(after), func(key int64) bool { return slices.Contains(old, key) })
}

// postgresKeyArgs returns the arguments $1 to $7 of a statement with postgresTaken.
func postgresKeyArgs(a record.Account) []any {
	fields, loginIDs, providers, subjects := []string{}, []string{}, []int{}, []string{}
	ids := record.LoginIDs(a)
	for _, field := range loginIDFields {
		if id, ok := ids[field]; ok {
			fields, loginIDs = append(fields, field), append(loginIDs, id)
		}
	}
	for _, i := range a.Identities {
		providers, subjects = append(providers, i.Provider), append(subjects, i.Subject)
	}
	return []any{a.Company, a.Mnemocode, a.ID, fields, loginIDs, providers, subjects}
}

// postgresTaken finds what accounts of the company $1 other than $3 have of the
// mnemocode $2, the login ids $5 (of the fields $4) and the identities $6, $7. The
// field of the lowest rank is the one that is reported.
const postgresTaken = `
	taken (rank, field) AS (
		SELECT 0, 'profile_mnemocode' FROM accounts WHERE company = $1 AND mnemocode = $2 AND id <> $3::bigint
		UNION ALL
		SELECT new.rank, new.field
		FROM unnest($4::text[], $5::text[]) WITH ORDINALITY AS new (field, login_id, rank)
		WHERE (SELECT account FROM login_ids WHERE company = $1 AND login_id = new.login_id) <> $3
		UNION ALL
		SELECT 9, 'oauth_identities'
		FROM unnest($6::integer[], $7::text[]) AS new (provider, subject)
		WHERE (SELECT account FROM identities WHERE company = $1 AND provider = new.provider AND subject = new.subject) <> $3
	)`

// Creating

var postgresCreateAccount = `
	WITH` + postgresTaken + `, created AS (
		INSERT INTO accounts (company, created, updated, ` + accountColumns + `)
		SELECT $1, $8::bigint, $8, ` + postgresFields("$%[2]d::%[3]s", 13) + `
		WHERE NOT EXISTS (SELECT 1 FROM taken)
		RETURNING id
	), l AS (
		INSERT INTO login_ids (company, login_id, account)
		SELECT DISTINCT $1, new.login_id, id FROM created, unnest($5::text[]) AS new (login_id)
	), i AS (
		INSERT INTO identities (company, provider, subject, account)
		SELECT DISTINCT $1, new.provider, new.subject, id
		FROM created, unnest($6::integer[], $7::text[]) AS new (provider, subject)
	), accepted AS (
		INSERT INTO acceptances (account, code, version, at)
		SELECT DISTINCT ON (new.code) id, new.code, new.version, new.at
		FROM created, unnest($9::text[], $10::text[], $11::bigint[]) WITH ORDINALITY AS new (code, version, at, rank)
		ORDER BY new.code, new.rank DESC
	), codes AS (
		INSERT INTO backup_codes (account, hash)
		SELECT DISTINCT id, new.hash FROM created, unnest($12::text[]) AS new (hash)
	)
	SELECT coalesce((SELECT id FROM created), 0), coalesce((SELECT field FROM taken ORDER BY rank LIMIT 1), '')`

func (s postgresAccounts) Create(ctx context.Context, now time.Time, a record.Account) (int64, error) {
	a.ID = 0
	codes, versions, ats := columns(a.Accepted)
	hashes := append([]string{}, a.NewBackupCodes...) // nil would be NULL
	args := slices.Concat(postgresKeyArgs(a), []any{micros(now), codes, versions, ats, hashes}, accountValues(a))
	var id int64
	err := s.writeWithEvents(ctx, a.Company, &id, a.Outbox, func(ctx context.Context, q postgresQueries) error {
		var taken string
		var b postgresBatch
		b.add(postgresLockKeys, postgresKeys(a))
		b.addRow(func(row scanner) error { return row.Scan(&id, &taken) }, postgresCreateAccount, args...)
		if err := q.run(ctx, &b); err != nil {
			return err
		}
		return refuseField(taken)
	})
	if err != nil {
		return 0, translatePostgres("creating account", err)
	}
	return id, nil
}

// refuseField returns a TakenError for the field, or nil if taken is empty.
func refuseField(taken string) error {
	if taken == "" {
		return nil
	}
	return &record.TakenError{Field: taken}
}

func columns(accepted []record.Acceptance) (codes, versions []string, ats []int64) {
	codes, versions, ats = []string{}, []string{}, []int64{}
	for _, a := range accepted {
		codes, versions, ats = append(codes, a.Code), append(versions, a.Version), append(ats, micros(a.At))
	}
	return codes, versions, ats
}

// Changing

var postgresUpdateAccount = `
	WITH` + postgresTaken + `, changed AS (
		UPDATE accounts SET epoch = $8, barred = $9, updated = $10, ` + postgresFields("%[1]s = $%[2]d::%[3]s", 13) + `
		WHERE id = $3 AND NOT EXISTS (SELECT 1 FROM taken)
		RETURNING id, company, epoch
	), left_l AS (
		DELETE FROM login_ids USING changed WHERE account = changed.id AND login_id <> ALL ($5::text[])
	), new_l AS (
		INSERT INTO login_ids (company, login_id, account)
		SELECT DISTINCT $1, new.login_id, id FROM changed, unnest($5::text[]) AS new (login_id)
		WHERE (SELECT account FROM login_ids WHERE company = $1 AND login_id = new.login_id) IS NULL
	), left_i AS (
		DELETE FROM identities old USING changed WHERE account = changed.id AND NOT EXISTS
			(SELECT 1 FROM unnest($6::integer[], $7::text[]) AS new (provider, subject)
			WHERE new.provider = old.provider AND new.subject = old.subject)
	), new_i AS (
		INSERT INTO identities (company, provider, subject, account)
		SELECT DISTINCT $1, new.provider, new.subject, id
		FROM changed, unnest($6::integer[], $7::text[]) AS new (provider, subject)
		WHERE (SELECT account FROM identities WHERE company = $1 AND provider = new.provider AND subject = new.subject) IS NULL
	), owed AS (
		INSERT INTO endings (company, account, epoch, keep) SELECT company, id, epoch, $12 FROM changed WHERE $11::boolean` +
	postgresOweLater + `
	)
	SELECT coalesce((SELECT field FROM taken ORDER BY rank LIMIT 1), '')`

// postgresOweLater is the end of an INSERT INTO endings.
const postgresOweLater = `
	ON CONFLICT (company, account) DO UPDATE SET epoch = excluded.epoch, keep = excluded.keep
	WHERE excluded.epoch > endings.epoch`

func (s postgresAccounts) Update(
	ctx context.Context, company string, id int64, change func(*record.Account) (ends bool, err error),
) (record.Account, error) {
	var stored record.Account
	err := s.transact(ctx, func(ctx context.Context, q postgresQueries) error {
		before, err := lockPostgresAccount(ctx, q, company, id)
		if err != nil {
			return err
		}
		after := before
		after.Identities, after.Accepted = slices.Clone(before.Identities), slices.Clone(before.Accepted)
		ends, err := change(&after)
		if err != nil {
			return refusal{err}
		}
		after.ID, after.Company = id, company
		setGeneration(&after, before, ends)
		if stored, err = storePostgresUpdate(ctx, q, before, after, ends); err != nil {
			return err
		}
		return q.insertEvents(ctx, company, id, after.Outbox)
	})
	if err != nil {
		return record.Account{}, translatePostgres("updating account", err)
	}
	return stored, nil
}

// lockPostgresAccount loads an account and locks it against changes and deletion
// until the transaction ends.
func lockPostgresAccount(ctx context.Context, q postgresQueries, company string, id int64) (record.Account, error) {
	var a record.Account
	var b postgresBatch
	b.add(postgresLockAccount, company, id)
	b.addRow(func(row scanner) (err error) {
		a, err = scanPostgresAccount(row)
		return err
	}, postgresAccountByID, company, id)
	return a, q.run(ctx, &b)
}

// storePostgresUpdate replaces before with after and returns the account as stored.
func storePostgresUpdate(
	ctx context.Context, q postgresQueries, before, after record.Account, ends bool,
) (stored record.Account, err error) {
	args := slices.Concat(postgresKeyArgs(after),
		[]any{after.Generation, after.Barred, micros(after.Updated), ends, keptBytes(after.Keep)}, accountValues(after))
	var taken string
	var b postgresBatch
	b.add(postgresLockKeys, newPostgresKeys(before, after))
	b.addRow(func(row scanner) error { return row.Scan(&taken) }, postgresUpdateAccount, args...)
	b.addRow(func(row scanner) error {
		stored, err = scanPostgresAccount(row)
		return err
	}, postgresAccountByID, after.Company, after.ID)
	if err := q.run(ctx, &b); err != nil {
		return record.Account{}, err
	}
	return stored, refuseField(taken)
}

const postgresDeleteAccount = `
	WITH gone AS (
		DELETE FROM accounts WHERE ` + postgresOne + ` -- and, by foreign keys, what belongs to it
		RETURNING company, id
	), forgotten AS (
		DELETE FROM tallies t USING gone WHERE t.company = gone.company AND t.account = gone.id
	)
	INSERT INTO endings (company, account, epoch) SELECT company, id, $3 FROM gone` + postgresOweLater

func (s postgresAccounts) Delete(ctx context.Context, company string, id int64, events ...record.OutboxEvent) error {
	return translatePostgres("deleting account", s.writeWithEvents(ctx, company, &id, events, func(ctx context.Context, q postgresQueries) error {
		return q.execOr(ctx, record.ErrNotFound, postgresDeleteAccount, company, id, record.AllGenerations)
	}))
}

const postgresSetPassword = `
	WITH changed AS (
		UPDATE accounts SET password_hash = $4, must_set_password = false, epoch = epoch + 1, updated = $5
		WHERE ` + postgresOne + ` AND epoch = $3
		RETURNING company, id, epoch
	), forgotten AS (
		DELETE FROM tallies t USING changed
		WHERE t.company = changed.company AND t.account = changed.id AND t.login_id = '' AND t.kind = $6
	)
	INSERT INTO endings (company, account, epoch, keep) SELECT company, id, epoch, $7 FROM changed` + postgresOweLater

func (s postgresAccounts) SetPassword(
	ctx context.Context, now time.Time, company string, id, generation int64, hash string, keep record.TokenHash, events ...record.OutboxEvent,
) error {
	return translatePostgres("setting password", s.writeWithEvents(ctx, company, &id, events, func(ctx context.Context, q postgresQueries) error {
		return q.execOr(ctx, record.ErrConflict, postgresSetPassword,
			company, id, generation, hash, micros(now), string(record.WrongPasswords), keptBytes(keep))
	}))
}

// DISTINCT ON, because one statement can't change a row twice.
const postgresAccept = `
	INSERT INTO acceptances (account, code, version, at)
	SELECT DISTINCT ON (new.code) a.id, new.code, new.version, new.at
	FROM accounts a, unnest($3::text[], $4::text[], $5::bigint[]) WITH ORDINALITY AS new (code, version, at, rank)
	WHERE ` + postgresOne + `
	ORDER BY new.code, new.rank DESC
	ON CONFLICT (account, code) DO UPDATE SET version = excluded.version, at = excluded.at`

func (s postgresAccounts) Accept(
	ctx context.Context, company string, id int64, accepted []record.Acceptance, events ...record.OutboxEvent,
) error {
	if len(accepted) == 0 {
		return ctx.Err()
	}
	codes, versions, ats := columns(accepted)
	return translatePostgres("storing acceptances", s.writeWithEvents(ctx, company, &id, events, func(ctx context.Context, q postgresQueries) error {
		var b postgresBatch
		b.addOr(record.ErrNotFound, postgresLockAccount, company, id)
		b.add(postgresAccept, company, id, codes, versions, ats)
		return q.run(ctx, &b)
	}))
}

// Configured accounts

const (
	postgresInsertSeed = `INSERT INTO seeds (company, mnemocode) VALUES ($1, $2) ON CONFLICT DO NOTHING`
	postgresSelectSeed = `SELECT EXISTS (SELECT 1 FROM seeds WHERE company = $1 AND mnemocode = $2)`
)

func (s postgresAccounts) SetSeeded(ctx context.Context, company, mnemocode string) error {
	return translatePostgres("recording a configured account", s.write(ctx, func(ctx context.Context, q postgresQueries) error {
		_, err := q.exec(ctx, postgresInsertSeed, company, mnemocode)
		return err
	}))
}

func (s postgresAccounts) Seeded(ctx context.Context, company, mnemocode string) (seeded bool, err error) {
	err = s.read(ctx, func(ctx context.Context, q postgresQueries) error {
		return q.row(ctx, postgresSelectSeed, company, mnemocode).Scan(&seeded)
	})
	return seeded, translatePostgres("looking up a configured account", err)
}

// Census

const (
	// Looks up one company after the other, because the index has many entries for
	// each.
	postgresCompanies = `
		WITH RECURSIVE found (company) AS (
			SELECT min(company) FROM accounts
			UNION ALL
			SELECT (SELECT min(company) FROM accounts WHERE company > found.company) FROM found WHERE company IS NOT NULL
		)
		SELECT company FROM found WHERE company IS NOT NULL`
	postgresStranded = `
		SELECT company, count(*) FROM accounts WHERE phone = '' AND status = $1 AND (second_factor OR $2)
			AND (totp = '' OR password_hash = '')
			AND NOT EXISTS (SELECT 1 FROM backup_codes WHERE account = accounts.id)
			AND NOT EXISTS (SELECT 1 FROM identities WHERE account = accounts.id)
			AND NOT EXISTS (SELECT 1 FROM passkeys WHERE account = accounts.id)
		GROUP BY company`
)

func (s postgresAccounts) CompaniesWithAccounts(ctx context.Context) (companies []string, err error) {
	err = s.read(ctx, func(ctx context.Context, q postgresQueries) (err error) {
		companies, err = collectPostgres(ctx, q, scanString, postgresCompanies)
		return err
	})
	return companies, translatePostgres("looking for companies", err)
}

func (s postgresAccounts) Stranded(ctx context.Context, all bool) (map[string]int, error) {
	counts := map[string]int{}
	err := s.read(ctx, func(ctx context.Context, q postgresQueries) error {
		_, err := collectPostgres(ctx, q, scanCount(counts), postgresStranded, string(record.StatusActive), all)
		return err
	})
	return counts, translatePostgres("counting accounts without a second factor", err)
}

// The secret

const (
	postgresInsertSecret = `INSERT INTO secret (id, value) VALUES (1, $1) ON CONFLICT DO NOTHING`
	postgresSelectSecret = `SELECT value FROM secret WHERE id = 1`
)

func (s postgresAccounts) Secret(ctx context.Context) ([]byte, error) {
	var secret []byte
	load := func(ctx context.Context, q postgresQueries) error {
		return q.row(ctx, postgresSelectSecret).Scan(&secret)
	}
	err := s.read(ctx, load)
	if errors.Is(err, pgx.ErrNoRows) {
		err = s.write(ctx, func(ctx context.Context, q postgresQueries) error {
			candidate := make([]byte, 32)
			rand.Read(candidate) // never fails: it crashes the process instead
			if _, err := q.exec(ctx, postgresInsertSecret, candidate); err != nil {
				return err
			}
			return load(ctx, q)
		})
	}
	if err != nil {
		return nil, translatePostgres("loading secret", err)
	}
	return secret, nil
}
