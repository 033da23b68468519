package sqlstore

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"slices"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
)

const (
	oneFailureCount = ` WHERE company = $1 AND account = CAST($2 AS bigint) AND login_id = $3 AND kind = $4`
	deleteFailures  = `DELETE FROM failures` + oneFailureCount
	updateFailures  = `UPDATE failures SET count = $5, until = $6, changed = $7` + oneFailureCount
	InsertFailures  = `INSERT INTO failures (company, account, login_id, kind, count, until, changed) SELECT $1, $2, $3, $4, $5, $6, $7`

	// StaleFailures are what a sweep at $1 deletes, a day after changed. For a lock or window
	// that is longer, changed is a day before it ends, so that a sweep reads no row that stays.
	StaleFailures = `account = 0 AND changed <= $1 - 86400000000` // microseconds
)

func (s Accounts) UpdateFailures(
	ctx context.Context, now time.Time, key record.FailureKey, kind record.FailureKind, change func(*record.FailureCount) error,
) error {
	row := []any{key.Company, key.Account, cmp.Or(key.Device, key.LoginID), string(kind)}
	return transact(ctx, s, "accounts.update_failures: updating a failure count", func(ctx context.Context, tx Queries) error {
		var before record.FailureCount
		err := tx.Row(ctx, s.failuresLock, row...).Scan(&before.Count, Time(&before.Until))
		missing := errors.Is(err, sql.ErrNoRows)
		if err != nil && !missing {
			return err
		}
		after := before
		if err := change(&after); err != nil {
			return refusal{err}
		}
		values := slices.Concat(row, []any{after.Count, record.Micros(after.Until), max(record.Micros(now), record.Micros(after.Until.Add(-24*time.Hour)))})
		switch {
		case after.Count == before.Count && after.Until.Equal(before.Until):
		case missing: // there was no row to lock, so another node may insert it first
			if err := s.insertFailures(ctx, tx, key, values); err != nil {
				return err
			}
		case after.Count == 0 && after.Until.IsZero(): // same as no row
			tx.Later(ctx, deleteFailures, row...)
		default:
			tx.Later(ctx, updateFailures, values...)
		}
		if missing && key.Account != 0 && len(after.Outbox) > 0 { // the account may have been deleted
			if err := s.lockAccount(ctx, tx, key.Company, key.Account); errors.Is(err, sql.ErrNoRows) {
				return nil
			} else if err != nil {
				return err
			}
		}
		s.insertEvents(ctx, tx, key.Company, key.Account, after.Outbox)
		return nil
	})
}

// insertFailures stores the first count of a key, or nothing if the account has been
// deleted.
func (s Accounts) insertFailures(ctx context.Context, tx Queries, key record.FailureKey, values []any) error {
	insert := s.insertUnknown
	if key.Account != 0 {
		insert = s.insertKnown
	}
	err := ExecOr(ctx, tx, ErrAgain, insert, values...)
	if err == ErrAgain && key.Account != 0 && errors.Is(s.lockAccount(ctx, tx, key.Company, key.Account), sql.ErrNoRows) {
		return nil
	}
	return err
}

const failuresOf = `SELECT kind, count, until FROM failures WHERE company = $1 AND account = CAST($2 AS bigint) AND login_id = $3`

func (s Accounts) FailureCounts(ctx context.Context, key record.FailureKey) (record.Failures, error) {
	failures := record.Failures{}
	scan := func(row Scanner) (kind string, err error) {
		var t record.FailureCount
		err = row.Scan(&kind, &t.Count, Time(&t.Until))
		failures[record.FailureKind(kind)] = t
		return kind, err
	}
	_, err := QueryAll(ctx, s, "accounts.failure_counts: loading failure counts", scan, failuresOf, key.Company, key.Account, cmp.Or(key.Device, key.LoginID))
	return failures, err
}
