package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/store/sqlstore"
)

const (
	answerOf = `SELECT answer FROM answers WHERE name = ? AND until > ?`
	// If no row changes, the name has a holder.
	claimAnswer = `
		INSERT INTO answers (name, holder, until) VALUES (?1, ?2, ?3)
		ON CONFLICT (name) DO UPDATE SET holder = ?2, answer = NULL, until = ?3 WHERE until <= ?4`
	endClaim   = `DELETE FROM answers WHERE name = ?1 AND holder = ?2 AND until > ?3 AND answer IS NULL`
	keepAnswer = `UPDATE answers SET answer = ?1, until = ?2 WHERE name = ?3 AND holder = ?4 AND until > ?5 AND answer IS NULL`
)

// Claim reads before it writes, so that those who wait for an answer do not queue for the
// writer.
func (s sessions) Claim(
	ctx context.Context, now time.Time, name, holder string, until time.Time, counters ...record.Counter,
) (answer []byte, err error) {
	err = sqlstore.Call(ctx, s, "sessions.claim: claiming a request", func() error {
		err := s.Reading(ctx, func(ctx context.Context, q sqlstore.Queries) (err error) {
			answer, err = sqlstore.ScanValue[[]byte](q.Row(ctx, answerOf, name, record.Micros(now)))
			return err
		})
		if err == nil && answer == nil {
			err = record.ErrConflict
		}
		if !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		return s.write(ctx, func(ctx context.Context, tx *queries) error {
			err := sqlstore.ExecOr(ctx, tx, record.ErrConflict, claimAnswer, name, holder, record.Micros(until), record.Micros(now))
			if err != nil {
				return err
			}
			return charge(ctx, tx, now, counters)
		})
	})
	return answer, err
}

func (s sessions) Keep(ctx context.Context, now time.Time, name, holder string, answer []byte, until time.Time) error {
	const what = "sessions.keep: keeping an answer"
	if !until.After(now) { // else a renewal that overtakes the end would bring the claim back
		return sqlstore.Change(ctx, s, what, record.ErrConflict, endClaim, name, holder, record.Micros(now))
	}
	return sqlstore.Change(ctx, s, what, record.ErrConflict, keepAnswer, answer, record.Micros(until), name, holder, record.Micros(now))
}
