package store

import (
	"context"
	"encoding/json"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
)

// The DELETE sees the table as it was before the INSERT.
const postgresRecord = `
	WITH added AS (
		INSERT INTO history (account, noise, at, event)
		SELECT id, $3, $4, $5 FROM accounts WHERE ` + postgresOne + `
	)
	DELETE FROM history WHERE account = $2 AND noise = $3 AND number <=
		(SELECT number FROM history WHERE account = $2 AND noise = $3 ORDER BY number DESC LIMIT 1 OFFSET $6)`

// Record implements record.History. It fails if an account is being deleted at the
// same time. On the next attempt the account is gone.
func (s postgresAccounts) Record(ctx context.Context, events []record.Event) error {
	var b postgresBatch
	for _, e := range byAccount(events) {
		data, err := json.Marshal(e)
		if err != nil {
			return err
		}
		b.add(postgresRecord, e.Company, e.Account, e.Noise, micros(e.Time), string(data), record.HistoryKept-1)
	}
	return translatePostgres("recording events", s.write(ctx, func(ctx context.Context, q postgresQueries) error { return q.run(ctx, &b) }))
}

const postgresRecorded = `
	SELECT at, event FROM (
		(SELECT number, at, event FROM history WHERE account = $2 AND noise = false ORDER BY number DESC LIMIT $3)
		UNION ALL
		(SELECT number, at, event FROM history WHERE account = $2 AND noise = true ORDER BY number DESC LIMIT $3)) h
	WHERE EXISTS (SELECT 1 FROM accounts WHERE ` + postgresOne + `) ORDER BY number DESC LIMIT $3`

// Recorded implements record.History.
func (s postgresAccounts) Recorded(ctx context.Context, company string, account int64, limit int) ([]record.Event, error) {
	var events []record.Event
	err := s.read(ctx, func(ctx context.Context, q postgresQueries) (err error) {
		events, err = collectPostgres(ctx, q, scanEvent(company, account), postgresRecorded, company, account, limit)
		return err
	})
	return events, translatePostgres("reading a history", err)
}

const postgresForget = `
	DELETE FROM history WHERE ctid = ANY (ARRAY(
		SELECT ctid FROM history WHERE at < $1 ORDER BY at LIMIT $2 FOR UPDATE SKIP LOCKED))`

// Forget implements record.History.
func (s postgresAccounts) Forget(ctx context.Context, before time.Time) error {
	return translatePostgres("forgetting events", s.sweep(ctx, postgresForget, micros(before)))
}

// Interface guard
var _ record.History = postgresAccounts{}
