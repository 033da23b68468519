package postgres

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/store/sqlstore"
)

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
	// A row lock could not be held for a company whose sessions were never revoked: it has no row.
	HoldGeneration:  `SELECT pg_advisory_xact_lock_shared(` + generationKey + `)`,
	BeginGeneration: `SELECT pg_advisory_xact_lock(` + generationKey + `)`,
	// The queue is locked before an event gets its number, so that the events of a queue become
	// visible in the order of their numbers.
	InsertEvents: []string{`
		WITH opened AS (
			INSERT INTO outbox_queues (company, queue, due)
			SELECT $1, coalesce((SELECT queue FROM outbox WHERE company = $1 AND account = $2 ORDER BY number DESC LIMIT 1), $3), $4::bigint
			ON CONFLICT (company, queue) DO UPDATE SET tries = outbox_queues.tries -- as it is: Acknowledge waits for this, or this for it
			RETURNING queue
		)
		INSERT INTO outbox (company, queue, account, id, type, body, at, traceparent)
		SELECT $1, queue, $2, $5, $6, $7, $4, $8 FROM opened`},
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
	Chunk: sweepChunk,
	// Skips rows that another transaction is changing. ORDER BY makes PostgreSQL use the index,
	// which it would otherwise consider too slow.
	DeleteSome: func(table, condition, _, order string) string {
		return `DELETE FROM ` + table + ` WHERE ctid = ANY (ARRAY(
			SELECT ctid FROM ` + table + ` WHERE ` + condition + ` ORDER BY ` + order + ` LIMIT $2 FOR UPDATE SKIP LOCKED))`
	},
}.Complete()

const generationKey = `hashtextextended('company generation ' || $1::text, 0)`

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

// findTaken finds what accounts of the company $1 other than $3 have of the
// mnemocode $2, the login ids $5 (of the fields $4) and the identities $6, $7. The
// field of the lowest rank is the one that is reported.
const findTaken = `
	SELECT field FROM (
		SELECT 0 AS rank, 'profile_mnemocode' AS field FROM accounts WHERE company = $1 AND mnemocode = $2 AND id <> $3::bigint
		UNION ALL
		SELECT new.rank, new.field
		FROM unnest($4::text[], $5::text[]) WITH ORDINALITY AS new (field, login_id, rank)
		WHERE (SELECT account FROM login_ids WHERE company = $1 AND login_id = new.login_id) <> $3
		UNION ALL
		SELECT 9, 'oauth_identities'
		FROM unnest($6::integer[], $7::text[]) AS new (provider, subject)
		WHERE (SELECT account FROM identities WHERE company = $1 AND provider = new.provider AND subject = new.subject) <> $3
	) AS taken ORDER BY rank LIMIT 1`

// RefuseTaken implements sqlstore.Queries.
func (q queries) RefuseTaken(ctx context.Context, before, after record.Account) error {
	locks := newKeys(before, after)
	if len(locks) == 0 {
		return nil
	}
	fields, loginIDs, providers, subjects := []string{}, []string{}, []int{}, []string{}
	for field, id := range sqlstore.NewLoginIDs(before, after) {
		fields, loginIDs = append(fields, field), append(loginIDs, id)
	}
	for _, i := range after.Identities {
		providers, subjects = append(providers, i.Provider), append(subjects, i.Subject)
	}
	q.Later(ctx, lockKeys, locks)
	var taken string
	err := q.Row(ctx, findTaken, after.Company, after.Mnemocode, after.ID, fields, loginIDs, providers, subjects).Scan(&taken)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	if err != nil {
		return err
	}
	return &record.TakenError{Field: taken}
}
