package store

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/mnemogate/mnemogate/flows/record"
)

const (
	postgresLockTally = `
		SELECT count, until FROM tallies WHERE company = $1 AND account = $2 AND login_id = $3 AND kind = $4 FOR UPDATE`
	postgresInsertTally = `
		INSERT INTO tallies (company, account, login_id, kind, count, until, changed) VALUES ($1, $2, $3, $4, $5, $6, $7)
		ON CONFLICT DO NOTHING`
	postgresUpdateTally = `
		UPDATE tallies SET count = $5, until = $6, changed = $7
		WHERE company = $1 AND account = $2 AND login_id = $3 AND kind = $4`
	postgresDeleteTally = `DELETE FROM tallies WHERE company = $1 AND account = $2 AND login_id = $3 AND kind = $4`
)

func (s postgresAccounts) Tally(
	ctx context.Context, now time.Time, subject record.Subject, kind record.Kind, change func(*record.Tally) error,
) error {
	key := []any{subject.Company, subject.Account, subject.LoginID, string(kind)}
	return translatePostgres("updating tally", s.transact(ctx, func(ctx context.Context, q postgresQueries) error {
		before, err := scanTally(q.row(ctx, postgresLockTally, key...))
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
		case missing: // so there is nothing that could be locked, and another caller may be faster
			err = q.execOr(ctx, errAgain, postgresInsertTally, values...)
		case after.Count == 0 && after.Until.IsZero(): // as good as none
			_, err = q.exec(ctx, postgresDeleteTally, key...)
		default:
			_, err = q.exec(ctx, postgresUpdateTally, values...)
		}
		if err != nil {
			return err
		}
		return q.insertEvents(ctx, subject.Company, subject.Account, after.Outbox)
	}))
}

const postgresTalliesOf = `SELECT kind, count, until FROM tallies WHERE company = $1 AND account = $2 AND login_id = $3`

func (s postgresAccounts) Tallies(ctx context.Context, subject record.Subject) (map[record.Kind]record.Tally, error) {
	tallies := map[record.Kind]record.Tally{}
	scan := func(row scanner) (kind string, err error) {
		var t record.Tally
		var until int64
		err = row.Scan(&kind, &t.Count, &until)
		t.Until = fromMicros(until)
		tallies[record.Kind(kind)] = t
		return kind, err
	}
	err := s.read(ctx, func(ctx context.Context, q postgresQueries) error {
		_, err := collectPostgres(ctx, q, scan, postgresTalliesOf, subject.Company, subject.Account, subject.LoginID)
		return err
	})
	return tallies, translatePostgres("loading tallies", err)
}

// The rows that someone is changing are not waited for. The order is that of
// the index, which PostgreSQL would otherwise find too slow.
const postgresSweepTallies = `
	DELETE FROM tallies WHERE ctid = ANY (ARRAY(
		SELECT ctid FROM tallies WHERE account = 0 AND changed < $1
		ORDER BY changed LIMIT $2 FOR UPDATE SKIP LOCKED))`

func (s postgresAccounts) Sweep(ctx context.Context, now time.Time) error {
	return translatePostgres("sweeping tallies", s.sweep(ctx, postgresSweepTallies, micros(now.Add(-24*time.Hour))))
}
