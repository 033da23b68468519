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
	sqliteSelectFailures = `SELECT count, until FROM tallies WHERE company = ? AND account = +? AND login_id = ? AND kind = ?`
	sqliteDeleteFailures = `DELETE FROM tallies WHERE company = ? AND account = +? AND login_id = ? AND kind = ?`
	sqliteStoreFailures  = `
		INSERT INTO tallies (company, account, login_id, kind, count, until, changed) VALUES (?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT (company, account, login_id, kind) DO UPDATE
		SET count = excluded.count, until = excluded.until, changed = excluded.changed`
)

func (s sqliteAccounts) UpdateFailures(
	ctx context.Context, now time.Time, subject record.FailureKey, kind record.Kind, change func(*record.FailureCount) error,
) error {
	key := []any{subject.Company, subject.Account, cmp.Or(subject.Device, subject.LoginID), string(kind)}
	return translateSQLite("updating tally", s.write(ctx, func(ctx context.Context, tx *sqliteQueries) error {
		before, err := scanFailureCount(tx.row(ctx, sqliteSelectFailures, key...))
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		after := before
		if err := change(&after); err != nil {
			return refusal{err}
		}
		err = nil
		switch {
		case after.Count == before.Count && after.Until.Equal(before.Until):
		case after.Count == 0 && after.Until.IsZero(): // same as no row
			_, err = tx.exec(ctx, sqliteDeleteFailures, key...)
		default:
			_, err = tx.exec(ctx, sqliteStoreFailures, append(slices.Clone(key), after.Count, micros(after.Until), micros(now))...)
		}
		if err != nil {
			return err
		}
		return tx.insertEvents(ctx, subject.Company, subject.Account, after.Outbox)
	}))
}

const sqliteFailuresOf = `SELECT kind, count, until FROM tallies WHERE company = ? AND account = +? AND login_id = ?`

func (s sqliteAccounts) FailureCounts(ctx context.Context, subject record.FailureKey) (map[record.Kind]record.FailureCount, error) {
	failures := map[record.Kind]record.FailureCount{}
	scan := func(row scanner) (kind record.Kind, err error) {
		var t record.FailureCount
		var until int64
		err = row.Scan(&kind, &t.Count, &until)
		t.Until = fromMicros(until)
		failures[kind] = t
		return kind, err
	}
	err := s.read(ctx, func(ctx context.Context, q *sqliteQueries) error {
		_, err := collectSQLite(ctx, q, scan, sqliteFailuresOf, subject.Company, subject.Account, cmp.Or(subject.Device, subject.LoginID))
		return err
	})
	return failures, translateSQLite("loading tallies", err)
}

const sqliteSweepFailures = `
	DELETE FROM tallies WHERE account = 0 AND (company, login_id, kind) IN
		(SELECT company, login_id, kind FROM tallies WHERE account = 0 AND changed < ? LIMIT +?)`

func (s sqliteAccounts) Sweep(ctx context.Context, now time.Time) error {
	if err := s.sweep(ctx, sqliteSweepFailures, micros(now.Add(-24*time.Hour))); err != nil {
		return translateSQLite("sweeping tallies", err)
	}
	if err := s.sweepDevices(ctx, now); err != nil {
		return err
	}
	if s.backups.Load() > 0 {
		return nil // backups need the log; the next sweep empties it
	}
	return translateSQLite("emptying the log", s.emptyLog(ctx))
}
