package store

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"

	"github.com/mnemogate/mnemogate/flows/record"
)

// The DELETE sees the table as it was before the INSERT.
const postgresRecord = `
	WITH added AS (
		INSERT INTO history (account, noise, at, event)
		SELECT id, $3, $4, $5 FROM accounts WHERE ` + oneAccount + `
	)
	DELETE FROM history WHERE account = $2 AND noise = $3 AND number <=
		(SELECT number FROM history WHERE account = $2 AND noise = $3 ORDER BY number DESC LIMIT 1 OFFSET $6)`

// Record implements record.History. It fails if an account is being deleted at the
// same time. On the next attempt the account is gone.
func (s postgresAccounts) Record(ctx context.Context, events []record.Event) error {
	return translate("recording events", s.write(ctx, func(ctx context.Context, q postgresQueries) error {
		var b postgresBatch // write may call this again, and pgx sends a batch only once
		for _, e := range byAccount(events) {
			data, err := json.Marshal(e)
			if err != nil {
				return err
			}
			b.add(postgresRecord, e.Company, e.Account, e.Noise, micros(e.Time), string(data), record.HistoryKept-1)
		}
		return q.run(ctx, &b)
	}))
}

// byAccount sorts events by account, so that two concurrent calls that store some
// can't deadlock. The events of an account stay in order.
func byAccount(events []record.Event) []record.Event {
	events = slices.Clone(events)
	slices.SortStableFunc(events, func(a, b record.Event) int { return cmp.Compare(a.Account, b.Account) })
	return events
}

// Interface guard
var _ record.History = postgresAccounts{}
