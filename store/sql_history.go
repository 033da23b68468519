package store

import (
	"context"
	"encoding/json"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
)

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
