package store

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/mnemogate/mnemogate/flows/record"
)

// postgresAccounts implements record.Accounts for PostgreSQL.
//
// To avoid deadlocks, all writes to an account lock in the same order: first the
// account's row, then the keys of postgresKeys, sorted, then everything else.
type postgresAccounts struct {
	*Postgres
	sqlAccounts
}

// PostgreSQL plans a statement once per connection. The tables may then be empty, so
// that any index looks as good as another, and an import may fill them later. So no
// statement leaves the planner a choice that reads all rows of a company:
//
//   - A lookup for each row is a subquery, not a join.
//   - A condition that must not choose an index is not a plain comparison with a
//     column, and does not contain a constant that a partial index is made for.

var postgresDialect = dialect{
	json: func(object, from string) string {
		return `array_to_json(ARRAY(SELECT json_build_object(` + object + `) FROM ` + from + `))`
	},
	position: "strpos",
	lock:     " FOR UPDATE",
	text:     fromText,
	// Strings that are not valid UTF-8 can't be in the database, and PostgreSQL refuses
	// to search for them.
	findable: func(args ...any) bool {
		return !slices.ContainsFunc(args, func(arg any) bool {
			text, ok := arg.(string)
			return ok && !utf8.ValidString(text)
		})
	},
	// Skips a queue that is being claimed, written to or acknowledged instead of waiting
	// for it.
	claim: `
		WITH due AS (
			SELECT queue FROM outbox_queues WHERE company = $1 AND due <= $2
			ORDER BY due LIMIT $5 FOR UPDATE SKIP LOCKED
		)
		UPDATE outbox_queues SET due = $3, claim = $4
		WHERE company = $1 AND queue = ANY (ARRAY(SELECT queue FROM due)) -- a join would read all queues
		RETURNING queue, tries`,
	forget:   postgresSweep("history", "at < $1", "at"),
	chunk:    postgresSweepChunk,
	forgetOf: func(table, key string) string { return postgresSweep(table, "company = $1", key) },
}.complete()

// postgresSweep returns a statement that deletes up to $2 rows. It skips rows that
// another transaction is changing. ORDER BY makes PostgreSQL use the index, which it
// would otherwise consider too slow.
func postgresSweep(table, condition, order string) string {
	return `DELETE FROM ` + table + ` WHERE ctid = ANY (ARRAY(
		SELECT ctid FROM ` + table + ` WHERE ` + condition + ` ORDER BY ` + order + ` LIMIT $2 FOR UPDATE SKIP LOCKED))`
}

// A text that is not valid UTF-8 can't be the mnemocode of an account; the next one
// after it is the same as after its valid form.

func (s postgresAccounts) List(ctx context.Context, company, after string, limit int) ([]record.Account, error) {
	return s.sqlAccounts.List(ctx, company, strings.ToValidUTF8(after, "\uFFFD"), limit)
}

func (s postgresAccounts) Search(ctx context.Context, company string, match record.Match, after string, limit int) (found []record.Account, last string, err error) {
	return s.sqlAccounts.Search(ctx, company, match, strings.ToValidUTF8(after, "\uFFFD"), limit)
}

// Keys: mnemocodes, login ids and identities, which are unique within a company

const postgresLockKeys = `SELECT pg_advisory_xact_lock(key) FROM unnest($1::bigint[]) AS keys (key)`

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
func postgresKeyArgs(before, a record.Account) []any {
	fields, loginIDs, providers, subjects := []string{}, []string{}, []int{}, []string{}
	for field, id := range newLoginIDs(before, a) {
		fields, loginIDs = append(fields, field), append(loginIDs, id)
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

const postgresFindTaken = `WITH` + postgresTaken + ` SELECT coalesce((SELECT field FROM taken ORDER BY rank LIMIT 1), '')`

// refuseTaken implements queries.
func (q postgresQueries) refuseTaken(ctx context.Context, before, after record.Account) error {
	var taken string
	var b postgresBatch
	b.add(postgresLockKeys, newPostgresKeys(before, after))
	b.addRow(func(row scanner) error { return row.Scan(&taken) }, postgresFindTaken, postgresKeyArgs(before, after)...)
	if err := q.run(ctx, &b); err != nil {
		return err
	}
	return refuseField(taken)
}

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
	args := slices.Concat(postgresKeyArgs(record.Account{}, a), []any{micros(now), codes, versions, ats, hashes}, accountValues(a))
	write := s.write
	if len(a.Outbox) > 0 {
		write = s.transact
	}
	var id int64
	err := write(ctx, func(ctx context.Context, q postgresQueries) error {
		var taken string
		var b postgresBatch
		b.add(postgresLockKeys, postgresKeys(a))
		b.addRow(func(row scanner) error { return row.Scan(&id, &taken) }, postgresCreateAccount, args...)
		if err := q.run(ctx, &b); err != nil {
			return err
		}
		if err := refuseField(taken); err != nil {
			return err
		}
		return q.insertEvents(ctx, a.Company, id, a.Outbox)
	})
	if err != nil {
		return 0, translate("creating account", err)
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
		UPDATE accounts SET epoch = $8, barred = $9, updated = $10, ` + postgresFields("%[1]s = $%[2]d::%[3]s", 14) + `
		WHERE id = $3 AND NOT EXISTS (SELECT 1 FROM taken)
		RETURNING id, company, epoch
	), left_l AS (
		DELETE FROM login_ids USING changed WHERE account = changed.id AND NOT $13::boolean AND login_id <> ALL ($5::text[])
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
	), pending AS (
		INSERT INTO endings (company, account, epoch, keep) SELECT company, id, epoch, $12 FROM changed WHERE $11::boolean` +
	sqlNewerPending + `
	)
	SELECT coalesce((SELECT field FROM taken ORDER BY rank LIMIT 1), '')`

func (s postgresAccounts) Update(
	ctx context.Context, company string, id int64, change func(*record.Account) (ends bool, err error),
) (record.Account, error) {
	var stored record.Account
	err := s.transact(ctx, func(ctx context.Context, q postgresQueries) error {
		before, err := s.lockAndLoad(ctx, q, company, id)
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
		if stored, err = s.storeUpdate(ctx, q, before, after, ends); err != nil {
			return err
		}
		return q.insertEvents(ctx, company, id, after.Outbox)
	})
	if err != nil {
		return record.Account{}, translate("updating account", err)
	}
	return stored, nil
}

// lockAndLoad loads an account and locks it against changes and deletion until the
// transaction ends.
func (s postgresAccounts) lockAndLoad(ctx context.Context, q postgresQueries, company string, id int64) (a record.Account, err error) {
	var b postgresBatch
	b.add(s.accountLock, company, id)
	b.addRow(func(row scanner) (err error) {
		a, err = accountScan(s.text)(row)
		return err
	}, s.accountByID, company, id)
	return a, q.run(ctx, &b)
}

// storeUpdate replaces before with after and returns the account as stored.
func (s postgresAccounts) storeUpdate(
	ctx context.Context, q postgresQueries, before, after record.Account, ends bool,
) (stored record.Account, err error) {
	args := slices.Concat(postgresKeyArgs(before, after),
		[]any{after.Generation, after.InactiveGeneration, micros(after.Updated), ends, keptBytes(after.Keep), record.SameLoginIDs(before, after)}, accountValues(after))
	var taken string
	var b postgresBatch
	b.add(postgresLockKeys, newPostgresKeys(before, after))
	b.addRow(func(row scanner) error { return row.Scan(&taken) }, postgresUpdateAccount, args...)
	b.addRow(func(row scanner) error {
		stored, err = accountScan(s.text)(row)
		return err
	}, s.accountByID, after.Company, after.ID)
	if err := q.run(ctx, &b); err != nil {
		return record.Account{}, err
	}
	return stored, refuseField(taken)
}

var postgresSweepFailures = postgresSweep("tallies", sqlStaleFailures, "changed")

func (s postgresAccounts) Sweep(ctx context.Context, now time.Time) error {
	err := sweep(ctx, s, "sweeping failure counts", postgresSweepFailures, micros(now), postgresSweepChunk)
	if err != nil {
		return err
	}
	return sweep(ctx, s, "sweeping devices", postgresSweepDevices, micros(now), postgresSweepChunk)
}
