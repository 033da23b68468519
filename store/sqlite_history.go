package store

import (
	"context"
	"encoding/json"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
)

const (
	sqliteRecord = `
		INSERT INTO history (account, noise, at, event) SELECT id, ?3, ?4, ?5 FROM accounts WHERE company = ?1 AND id = ?2`
	sqliteForgetOldest = `
		DELETE FROM history WHERE account = ?1 AND noise = ?2 AND number <=
			(SELECT number FROM history WHERE account = ?1 AND noise = ?2 ORDER BY number DESC LIMIT 1 OFFSET ?3)`
)

// Record implements record.History.
func (s sqliteAccounts) Record(ctx context.Context, events []record.Event) error {
	return translateSQLite("recording events", s.write(ctx, func(ctx context.Context, tx *sqliteQueries) error {
		for _, e := range events {
			data, err := json.Marshal(e)
			if err != nil {
				return err
			}
			n, err := tx.exec(ctx, sqliteRecord, e.Company, e.Account, e.Noise, micros(e.Time), string(data))
			if err == nil && n > 0 {
				_, err = tx.exec(ctx, sqliteForgetOldest, e.Account, e.Noise, record.HistoryKept)
			}
			if err != nil {
				return err
			}
		}
		return nil
	}))
}

const sqliteRecorded = `
	SELECT at, event FROM (
		SELECT * FROM (SELECT number, at, event FROM history WHERE account = ?2 AND noise = 0 ORDER BY number DESC LIMIT +?3)
		UNION ALL
		SELECT * FROM (SELECT number, at, event FROM history WHERE account = ?2 AND noise = 1 ORDER BY number DESC LIMIT +?3))
	WHERE EXISTS (SELECT 1 FROM accounts WHERE company = ?1 AND id = ?2) ORDER BY number DESC LIMIT +?3`

// Recorded implements record.History.
func (s sqliteAccounts) Recorded(ctx context.Context, company string, account int64, limit int) ([]record.Event, error) {
	var events []record.Event
	err := s.read(ctx, func(ctx context.Context, q *sqliteQueries) (err error) {
		events, err = collectSQLite(ctx, q, scanEvent(company, account), sqliteRecorded, company, account, limit)
		return err
	})
	return events, translateSQLite("reading a history", err)
}

const sqliteForget = `DELETE FROM history WHERE number IN (SELECT number FROM history WHERE at < ? LIMIT +?)`

// Forget implements record.History.
func (s sqliteAccounts) Forget(ctx context.Context, before time.Time) error {
	return translateSQLite("forgetting events", s.sweep(ctx, sqliteForget, micros(before)))
}

// Interface guard
var _ record.History = sqliteAccounts{}
