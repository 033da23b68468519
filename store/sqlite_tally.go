package store

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
)

const (
	sqliteSelectTally = `SELECT count, until FROM tallies WHERE company = ? AND account = +? AND login_id = ? AND kind = ?`
	sqliteDeleteTally = `DELETE FROM tallies WHERE company = ? AND account = +? AND login_id = ? AND kind = ?`
	sqliteStoreTally  = `
		INSERT INTO tallies (company, account, login_id, kind, count, until, changed) VALUES (?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT (company, account, login_id, kind) DO UPDATE
		SET count = excluded.count, until = excluded.until, changed = excluded.changed`
)

func (s sqliteAccounts) Tally(
	ctx context.Context, now time.Time, subject record.Subject, kind record.Kind, change func(*record.Tally) error,
) error {
	key := []any{subject.Company, subject.Account, subject.LoginID, string(kind)}
	return translateSQLite("updating tally", s.write(ctx, func(ctx context.Context, tx *sqliteQueries) error {
		before, err := scanTally(tx.row(ctx, sqliteSelectTally, key...))
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
		case after.Count == 0 && after.Until.IsZero(): // as good as none
			_, err = tx.exec(ctx, sqliteDeleteTally, key...)
		default:
			_, err = tx.exec(ctx, sqliteStoreTally, append(slices.Clone(key), after.Count, micros(after.Until), micros(now))...)
		}
		if err != nil {
			return err
		}
		return tx.insertEvents(ctx, subject.Company, subject.Account, after.Outbox)
	}))
}

const sqliteTalliesOf = `SELECT kind, count, until FROM tallies WHERE company = ? AND account = +? AND login_id = ?`

func (s sqliteAccounts) Tallies(ctx context.Context, subject record.Subject) (map[record.Kind]record.Tally, error) {
	tallies := map[record.Kind]record.Tally{}
	scan := func(row scanner) (kind record.Kind, err error) {
		var t record.Tally
		var until int64
		err = row.Scan(&kind, &t.Count, &until)
		t.Until = fromMicros(until)
		tallies[kind] = t
		return kind, err
	}
	err := s.read(ctx, func(ctx context.Context, q *sqliteQueries) error {
		_, err := collectSQLite(ctx, q, scan, sqliteTalliesOf, subject.Company, subject.Account, subject.LoginID)
		return err
	})
	return tallies, translateSQLite("loading tallies", err)
}

const sqliteSweepTallies = `
	DELETE FROM tallies WHERE account = 0 AND (company, login_id, kind) IN
		(SELECT company, login_id, kind FROM tallies WHERE account = 0 AND changed < ? LIMIT +?)`

func (s sqliteAccounts) Sweep(ctx context.Context, now time.Time) error {
	if err := s.sweep(ctx, sqliteSweepTallies, micros(now.Add(-24*time.Hour))); err != nil {
		return translateSQLite("sweeping tallies", err)
	}
	if s.backups.Load() > 0 {
		return nil // they need the log: the next sweep empties it
	}
	return translateSQLite("emptying the log", s.emptyLog(ctx))
}
