package store

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
)

const (
	sqlRecord       = `INSERT INTO history (account, noise, at, event) SELECT id, $3, $4, $5 FROM accounts WHERE ` + oneAccount
	sqlForgetOldest = `
		DELETE FROM history WHERE account = $1 AND noise = $2 AND number <=
			(SELECT number FROM history WHERE account = $1 AND noise = $2 ORDER BY number DESC LIMIT 1 OFFSET $3)`
)

// Record implements record.History. It fails if an account is being deleted at the
// same time. On the next attempt the account is gone.
func (s sqlAccounts) Record(ctx context.Context, events []record.Event) error {
	// In the order of accounts and kinds, two concurrent calls can't deadlock.
	events = slices.Clone(events)
	slices.SortStableFunc(events, func(a, b record.Event) int { return cmp.Compare(a.Account, b.Account) })
	return translate("recording events", s.transaction(ctx, func(ctx context.Context, tx queries) error {
		for _, e := range events {
			data, err := json.Marshal(e)
			if err == nil {
				err = tx.later(ctx, sqlRecord, e.Company, e.Account, e.Noise, micros(e.Time), string(data))
			}
			if err != nil {
				return err
			}
		}
		for _, noise := range []bool{false, true} {
			var last int64
			for _, e := range events {
				if e.Noise != noise || e.Account == last {
					continue
				}
				last = e.Account
				if err := tx.later(ctx, sqlForgetOldest, e.Account, noise, record.HistoryKept); err != nil {
					return err
				}
			}
		}
		return nil
	}))
}

const sqlRecorded = `
	SELECT at, event FROM (
		SELECT * FROM (SELECT number, at, event FROM history WHERE account = $2 AND noise = false ORDER BY number DESC LIMIT CAST($3 AS bigint)) AS quiet
		UNION ALL
		SELECT * FROM (SELECT number, at, event FROM history WHERE account = $2 AND noise = true ORDER BY number DESC LIMIT CAST($3 AS bigint)) AS noisy
	) AS recorded
	WHERE EXISTS (SELECT 1 FROM accounts WHERE ` + oneAccount + `) ORDER BY number DESC LIMIT CAST($3 AS bigint)`

// Recorded implements record.History.
func (s sqlAccounts) Recorded(ctx context.Context, company string, account int64, limit int) ([]record.Event, error) {
	scan := func(row scanner) (e record.Event, err error) {
		var at int64
		var data []byte
		if err := row.Scan(&at, &data); err != nil {
			return e, err
		}
		err = json.Unmarshal(data, &e)
		e.Time, e.Company, e.Account = fromMicros(at), company, account
		return e, err
	}
	return queryAll(ctx, s, "reading a history", scan, sqlRecorded, company, account, limit)
}

// Forget implements record.History.
func (s sqlAccounts) Forget(ctx context.Context, before time.Time) error {
	return sweep(ctx, s, "forgetting events", s.forget, micros(before), s.chunk)
}

// Interface guard
var _ record.History = sqlAccounts{}
