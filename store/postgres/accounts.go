package postgres

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
	"github.com/mnemogate/mnemogate/store/sqlstore"
)

// accounts implements record.Accounts for PostgreSQL.
//
// To avoid deadlocks, all writes to an account lock in the same order: first the
// account's row, then the keys of keys, sorted, then everything else.
type accounts struct {
	*Store
	sqlstore.Accounts
}

// PostgreSQL plans a statement once per connection. The tables may then be empty, so
// that any index looks as good as another, and an import may fill them later. So no
// statement leaves the planner a choice that reads all rows of a company:
//
//   - A lookup for each row is a subquery, not a join.
//   - A condition that must not choose an index is not a plain comparison with a
//     column, and does not contain a constant that a partial index is made for.

var dialect = sqlstore.Dialect{
	JSON: func(object, from string) string {
		return `array_to_json(ARRAY(SELECT json_build_object(` + object + `) FROM ` + from + `))`
	},
	Position: "strpos",
	Lock:     " FOR UPDATE",
	Text:     fromText,
	// Strings that are not valid UTF-8 can't be in the database, and PostgreSQL refuses
	// to search for them.
	Findable: func(args ...any) bool {
		return !slices.ContainsFunc(args, func(arg any) bool {
			text, ok := arg.(string)
			return ok && !utf8.ValidString(text)
		})
	},
	// Skips a queue that is being claimed, written to or acknowledged instead of waiting
	// for it.
	ClaimQueues: `
		WITH due AS (
			SELECT queue FROM outbox_queues WHERE company = $1 AND due <= $2
			ORDER BY due LIMIT $5 FOR UPDATE SKIP LOCKED
		)
		UPDATE outbox_queues SET due = $3, claim = $4
		WHERE company = $1 AND queue = ANY (ARRAY(SELECT queue FROM due)) -- a join would read all queues
		RETURNING queue, tries`,
	ForgetEvents: sweep("history", "at < $1", "at"),
	Chunk:        sweepChunk,
	ForgetOf:     func(table, key string) string { return sweep(table, "company = $1", key) },
}.Complete()

// sweep returns a statement that deletes up to $2 rows. It skips rows that
// another transaction is changing. ORDER BY makes PostgreSQL use the index, which it
// would otherwise consider too slow.
func sweep(table, condition, order string) string {
	return `DELETE FROM ` + table + ` WHERE ctid = ANY (ARRAY(
		SELECT ctid FROM ` + table + ` WHERE ` + condition + ` ORDER BY ` + order + ` LIMIT $2 FOR UPDATE SKIP LOCKED))`
}

// A text that is not valid UTF-8 can't be the mnemocode of an account; the next one
// after it is the same as after its valid form.

func (s accounts) List(ctx context.Context, company, after string, limit int) ([]record.Account, error) {
	return s.Accounts.List(ctx, company, strings.ToValidUTF8(after, "\uFFFD"), limit)
}

func (s accounts) Search(ctx context.Context, company string, match record.Match, after string, limit int) (found []record.Account, last string, err error) {
	return s.Accounts.Search(ctx, company, match, strings.ToValidUTF8(after, "\uFFFD"), limit)
}

// Keys: mnemocodes, login ids and identities, which are unique within a company

const lockKeys = `SELECT pg_advisory_xact_lock(key) FROM unnest($1::bigint[]) AS keys (key)`

// keys returns a lock key for each value that must be unique within the
// company. A call that stores such a value takes its lock and then checks that it is
// free.
func keys(a record.Account) []int64 {
	keys := []int64{key(a.Company, "mnemocode", a.Mnemocode)}
	for _, id := range record.LoginIDs(a) {
		keys = append(keys, key(a.Company, "login id", id))
	}
	for _, i := range a.Identities {
		keys = append(keys, key(a.Company, fmt.Sprint("identity of ", i.Provider), i.Subject))
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

func key(company, kind, value string) int64 {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %s %q", company, kind, value))
	return int64(binary.BigEndian.Uint64(sum[:]))
}

// newKeys returns the keys of after that before does not have.
func newKeys(before, after record.Account) []int64 {
	old := keys(before)
	return slices.DeleteFunc(keys(after), func(key int64) bool { return slices.Contains(old, key) })
}

// keyArgs returns the arguments $1 to $7 of a statement with taken.
func keyArgs(before, a record.Account) []any {
	fields, loginIDs, providers, subjects := []string{}, []string{}, []int{}, []string{}
	for field, id := range sqlstore.NewLoginIDs(before, a) {
		fields, loginIDs = append(fields, field), append(loginIDs, id)
	}
	for _, i := range a.Identities {
		providers, subjects = append(providers, i.Provider), append(subjects, i.Subject)
	}
	return []any{a.Company, a.Mnemocode, a.ID, fields, loginIDs, providers, subjects}
}

// taken finds what accounts of the company $1 other than $3 have of the
// mnemocode $2, the login ids $5 (of the fields $4) and the identities $6, $7. The
// field of the lowest rank is the one that is reported.
const taken = `
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

const findTaken = `WITH` + taken + ` SELECT coalesce((SELECT field FROM taken ORDER BY rank LIMIT 1), '')`

// RefuseTaken implements sqlstore.Queries.
func (q queries) RefuseTaken(ctx context.Context, before, after record.Account) error {
	var taken string
	var b batch
	b.add(lockKeys, newKeys(before, after))
	b.addRow(func(row sqlstore.Scanner) error { return row.Scan(&taken) }, findTaken, keyArgs(before, after)...)
	if err := q.run(ctx, &b); err != nil {
		return err
	}
	return refuseField(taken)
}

// Creating

// fields writes a list of sqlstore.AccountColumns. In format, %[1]s is the column,
// %[2]d the number of its parameter, of which the first is given, and %[3]s its type.
func fields(format string, first int) string {
	return sqlstore.EachField(func(i int, f record.Field) string {
		kind := "text"
		switch {
		case f.Flag != nil:
			kind = "boolean"
		case f.Time != nil:
			kind = "bigint"
		}
		return fmt.Sprintf(format, f.Column, first+i, kind)
	})
}

var createAccount = `
	WITH` + taken + `, created AS (
		INSERT INTO accounts (company, created, updated, ` + sqlstore.AccountColumns + `)
		SELECT $1, $8::bigint, $8, ` + fields("$%[2]d::%[3]s", 13) + `
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

func (s accounts) Create(ctx context.Context, now time.Time, a record.Account) (int64, error) {
	a.ID = 0
	codes, versions, ats := columns(a.Accepted)
	hashes := append([]string{}, a.NewBackupCodes...) // nil would be NULL
	args := slices.Concat(keyArgs(record.Account{}, a), []any{record.Micros(now), codes, versions, ats, hashes}, sqlstore.AccountValues(a))
	write := s.write
	if len(a.Outbox)+len(a.Spends)+len(a.NewPasskeys) > 0 {
		write = s.transact
	}
	var id int64
	err := s.called(ctx, "accounts.create: creating account", write, func(ctx context.Context, q queries) error {
		var taken string
		var b batch
		b.add(lockKeys, keys(a))
		b.addRow(func(row sqlstore.Scanner) error { return row.Scan(&id, &taken) }, createAccount, args...)
		if err := q.run(ctx, &b); err != nil {
			return err
		}
		if err := refuseField(taken); err != nil {
			return err
		}
		if err := sqlstore.InsertPasskeys(ctx, q, a.Company, id, a.NewPasskeys); err != nil {
			return err
		}
		if err := q.InsertEvents(ctx, a.Company, id, a.Outbox); err != nil {
			return err
		}
		return sqlstore.InsertSpent(ctx, q, a.Spends)
	})
	if err != nil {
		return 0, err
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
		codes, versions, ats = append(codes, a.Code), append(versions, a.Version), append(ats, record.Micros(a.At))
	}
	return codes, versions, ats
}

// Changing

var updateAccount = `
	WITH` + taken + `, changed AS (
		UPDATE accounts SET generation = $8, inactive_generation = $9, updated = $10, ` + fields("%[1]s = $%[2]d::%[3]s", 14) + `
		WHERE id = $3 AND NOT EXISTS (SELECT 1 FROM taken)
		RETURNING id, company, generation
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
		INSERT INTO pending_revocations (company, account, generation, keep) SELECT company, id, generation, $12 FROM changed WHERE $11::boolean` +
	sqlstore.NewerPending + `
	)
	SELECT coalesce((SELECT field FROM taken ORDER BY rank LIMIT 1), '')`

func (s accounts) Update(
	ctx context.Context, company string, id int64, change func(*record.Account) (ends bool, err error),
) (record.Account, error) {
	var stored record.Account
	err := s.called(ctx, "accounts.update: updating account", s.transact, func(ctx context.Context, q queries) error {
		before, err := s.lockAndLoad(ctx, q, company, id)
		if err != nil {
			return err
		}
		after := before
		after.Identities, after.Accepted = slices.Clone(before.Identities), slices.Clone(before.Accepted)
		ends, err := change(&after)
		if err != nil {
			return sqlstore.Refused(err)
		}
		after.ID, after.Company = id, company
		sqlstore.SetGeneration(&after, before, ends)
		if stored, err = s.storeUpdate(ctx, q, before, after, ends); err != nil {
			return err
		}
		if err := q.InsertEvents(ctx, company, id, after.Outbox); err != nil {
			return err
		}
		return sqlstore.InsertSpent(ctx, q, after.Spends)
	})
	if err != nil {
		return record.Account{}, err
	}
	return stored, nil
}

// lockAndLoad loads an account and locks it against changes and deletion until the
// transaction ends.
func (s accounts) lockAndLoad(ctx context.Context, q queries, company string, id int64) (a record.Account, err error) {
	var b batch
	b.add(s.AccountLock, company, id)
	b.addRow(func(row sqlstore.Scanner) (err error) {
		a, err = sqlstore.AccountScan(s.Text)(row)
		return err
	}, s.AccountByID, company, id)
	return a, q.run(ctx, &b)
}

// storeUpdate replaces before with after and returns the account as stored.
func (s accounts) storeUpdate(
	ctx context.Context, q queries, before, after record.Account, ends bool,
) (stored record.Account, err error) {
	args := slices.Concat(keyArgs(before, after),
		[]any{after.Generation, after.InactiveGeneration, record.Micros(after.Updated), ends, after.Keep.Bytes(), record.SameLoginIDs(before, after)}, sqlstore.AccountValues(after))
	var taken string
	var b batch
	b.add(lockKeys, newKeys(before, after))
	b.addRow(func(row sqlstore.Scanner) error { return row.Scan(&taken) }, updateAccount, args...)
	if ends && !after.SpareTokens {
		b.add(sqlstore.DeleteTokens, after.ID)
	}
	b.addRow(func(row sqlstore.Scanner) error {
		stored, err = sqlstore.AccountScan(s.Text)(row)
		return err
	}, s.AccountByID, after.Company, after.ID)
	if err := q.run(ctx, &b); err != nil {
		return record.Account{}, err
	}
	return stored, refuseField(taken)
}

var (
	sweepFailures = sweep("failures", sqlstore.StaleFailures, "changed")
	sweepTokens   = sweep("tokens", "expires < $1", "expires")
)

var sweepSpent = sweep("spent", "until < $1", "until")

func (s accounts) Sweep(ctx context.Context, now time.Time) error {
	err := sqlstore.Sweep(ctx, s.Store, "sweeping failure counts", sweepFailures, record.Micros(now), sweepChunk)
	if err != nil {
		return err
	}
	if err := sqlstore.Sweep(ctx, s.Store, "sweeping spent proofs", sweepSpent, record.Micros(now), sweepChunk); err != nil {
		return err
	}
	if err := sqlstore.Sweep(ctx, s.Store, "sweeping devices", sweepDevices, record.Micros(now), sweepChunk); err != nil {
		return err
	}
	return sqlstore.Sweep(ctx, s.Store, "sweeping tokens", sweepTokens, record.Micros(now.Add(-record.KeepExpired)), sweepChunk)
}
