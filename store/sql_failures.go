package store

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
	sqlOneFailureCount = ` WHERE company = $1 AND account = CAST($2 AS bigint) AND login_id = $3 AND kind = $4`
	sqlDeleteFailures  = `DELETE FROM tallies` + sqlOneFailureCount
	sqlUpdateFailures  = `UPDATE tallies SET count = $5, until = $6, changed = $7` + sqlOneFailureCount
	sqlInsertFailures  = `INSERT INTO tallies (company, account, login_id, kind, count, until, changed) SELECT $1, $2, $3, $4, $5, $6, $7`

	// sqlStaleFailures are what a sweep at $1 deletes. A day has 86,400,000,000 microseconds.
	sqlStaleFailures = `account = 0 AND changed < $1 - 86400000000 AND until <= $1`
)

func (s sqlAccounts) UpdateFailures(
	ctx context.Context, now time.Time, key record.FailureKey, kind record.FailureKind, change func(*record.FailureCount) error,
) error {
	row := []any{key.Company, key.Account, cmp.Or(key.Device, key.LoginID), string(kind)}
	return translate("updating a failure count", s.transaction(ctx, func(ctx context.Context, tx queries) error {
		before, err := scanFailureCount(tx.row(ctx, s.failuresLock, row...))
		missing := errors.Is(err, sql.ErrNoRows)
		if err != nil && !missing {
			return err
		}
		after := before
		if err := change(&after); err != nil {
			return refusal{err}
		}
		values := slices.Concat(row, []any{after.Count, micros(after.Until), micros(now)})
		err = nil
		switch {
		case after.Count == before.Count && after.Until.Equal(before.Until):
		case missing: // there was no row to lock, so another node may insert it first
			err = s.insertFailures(ctx, tx, key, values)
		case after.Count == 0 && after.Until.IsZero(): // same as no row
			err = tx.later(ctx, sqlDeleteFailures, row...)
		default:
			err = tx.later(ctx, sqlUpdateFailures, values...)
		}
		if err != nil {
			return err
		}
		return tx.insertEvents(ctx, key.Company, key.Account, after.Outbox)
	}))
}

// errAgain means that a call must start again, because another call made the same
// change first.
var errAgain = errors.New("too many calls change the same")

// insertFailures stores the first count of a key, or nothing if the account has been
// deleted.
func (s sqlAccounts) insertFailures(ctx context.Context, tx queries, key record.FailureKey, values []any) error {
	insert := s.insertUnknown
	if key.Account != 0 {
		insert = s.insertKnown
	}
	err := execOr(ctx, tx, errAgain, insert, values...)
	if err == errAgain && key.Account != 0 && errors.Is(s.lockAccount(ctx, tx, key.Company, key.Account), sql.ErrNoRows) {
		return nil
	}
	return err
}

func scanFailureCount(row scanner) (record.FailureCount, error) {
	var t record.FailureCount
	var until int64
	if err := row.Scan(&t.Count, &until); err != nil {
		return record.FailureCount{}, err
	}
	t.Until = fromMicros(until)
	return t, nil
}

const sqlFailuresOf = `SELECT kind, count, until FROM tallies WHERE company = $1 AND account = CAST($2 AS bigint) AND login_id = $3`

func (s sqlAccounts) FailureCounts(ctx context.Context, key record.FailureKey) (record.Failures, error) {
	failures := record.Failures{}
	scan := func(row scanner) (kind string, err error) {
		var t record.FailureCount
		var until int64
		err = row.Scan(&kind, &t.Count, &until)
		t.Until = fromMicros(until)
		failures[record.FailureKind(kind)] = t
		return kind, err
	}
	_, err := queryAll(ctx, s, "loading failure counts", scan, sqlFailuresOf, key.Company, key.Account, cmp.Or(key.Device, key.LoginID))
	return failures, err
}
