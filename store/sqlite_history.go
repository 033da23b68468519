package store

import (
	"context"
	"encoding/json"

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
	return translate("recording events", s.write(ctx, func(ctx context.Context, tx *sqliteQueries) error {
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

// Interface guard
var _ record.History = sqliteAccounts{}
