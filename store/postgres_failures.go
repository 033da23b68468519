package store

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/mnemogate/mnemogate/flows/record"
)

const (
	postgresLockFailures = `
		SELECT count, until FROM tallies WHERE company = $1 AND account = $2 AND login_id = $3 AND kind = $4 FOR UPDATE`
	postgresInsertFailures = `
		INSERT INTO tallies (company, account, login_id, kind, count, until, changed) VALUES ($1, $2, $3, $4, $5, $6, $7)
		ON CONFLICT DO NOTHING`
	postgresUpdateFailures = `
		UPDATE tallies SET count = $5, until = $6, changed = $7
		WHERE company = $1 AND account = $2 AND login_id = $3 AND kind = $4`
	postgresDeleteFailures = `DELETE FROM tallies WHERE company = $1 AND account = $2 AND login_id = $3 AND kind = $4`
)

func (s postgresAccounts) UpdateFailures(
	ctx context.Context, now time.Time, subject record.FailureKey, kind record.Kind, change func(*record.FailureCount) error,
) error {
	key := []any{subject.Company, subject.Account, cmp.Or(subject.Device, subject.LoginID), string(kind)}
	return translatePostgres("updating tally", s.transact(ctx, func(ctx context.Context, q postgresQueries) error {
		before, err := scanFailureCount(q.row(ctx, postgresLockFailures, key...))
		missing := errors.Is(err, pgx.ErrNoRows)
		if err != nil && !missing {
			return err
		}
		after := before
		if err := change(&after); err != nil {
			return refusal{err}
		}
		values := append(slices.Clone(key), after.Count, micros(after.Until), micros(now))
		err = nil
		switch {
		case after.Count == before.Count && after.Until.Equal(before.Until):
		case missing: // there was no row to lock, so another call may insert it first
			err = q.execOr(ctx, errAgain, postgresInsertFailures, values...)
		case after.Count == 0 && after.Until.IsZero(): // same as no row
			_, err = q.exec(ctx, postgresDeleteFailures, key...)
		default:
			_, err = q.exec(ctx, postgresUpdateFailures, values...)
		}
		if err != nil {
			return err
		}
		return q.insertEvents(ctx, subject.Company, subject.Account, after.Outbox)
	}))
}

const postgresFailuresOf = `SELECT kind, count, until FROM tallies WHERE company = $1 AND account = $2 AND login_id = $3`

func (s postgresAccounts) FailureCounts(ctx context.Context, subject record.FailureKey) (map[record.Kind]record.FailureCount, error) {
	failures := map[record.Kind]record.FailureCount{}
	scan := func(row scanner) (kind string, err error) {
		var t record.FailureCount
		var until int64
		err = row.Scan(&kind, &t.Count, &until)
		t.Until = fromMicros(until)
		failures[record.Kind(kind)] = t
		return kind, err
	}
	err := s.read(ctx, func(ctx context.Context, q postgresQueries) error {
		_, err := collectPostgres(ctx, q, scan, postgresFailuresOf, subject.Company, subject.Account, cmp.Or(subject.Device, subject.LoginID))
		return err
	})
	return failures, translatePostgres("loading tallies", err)
}

// Skips rows that another transaction is changing. ORDER BY makes PostgreSQL use the
// index, which it would otherwise consider too slow.
const postgresSweepFailures = `
	DELETE FROM tallies WHERE ctid = ANY (ARRAY(
		SELECT ctid FROM tallies WHERE account = 0 AND changed < $1
		ORDER BY changed LIMIT $2 FOR UPDATE SKIP LOCKED))`

func (s postgresAccounts) Sweep(ctx context.Context, now time.Time) error {
	if err := s.sweep(ctx, postgresSweepFailures, micros(now.Add(-24*time.Hour))); err != nil {
		return translatePostgres("sweeping tallies", err)
	}
	return translatePostgres("sweeping devices", s.sweep(ctx, postgresSweepDevices, micros(now)))
}
