package sqlstore

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
)

// earlier selects the event with which a new one would be one entry: the newest of its
// name if it is kept apart, otherwise the newest of all.
const earlier = `
	SELECT number FROM history WHERE account = $2 AND noise = $3 AND ($4 = '' AND number > COALESCE(
		(SELECT number FROM history WHERE account = $2 AND noise = NOT $3 ORDER BY number DESC LIMIT 1), 0) OR $4 <> '' AND apart = $4)
	ORDER BY number DESC LIMIT 1`

const (
	recordEvent = `
		INSERT INTO history (account, noise, apart, event, at, ref, times)
			SELECT id, $3, $4, $5, $6, $7, 1 + COALESCE((SELECT times FROM history WHERE number = (` + earlier + `) AND event = $5), 0)
			FROM accounts WHERE ` + oneAccount
	forgetEarlier = `
		DELETE FROM history WHERE event = $5 AND number = (` + earlier + ` OFFSET 1)
			AND number < (SELECT max(number) FROM history WHERE account = $2 AND noise = $3 AND apart = $4 AND event = $5) -- not the new one, if another node was faster
			AND EXISTS (SELECT 1 FROM accounts WHERE ` + oneAccount + `)`
	forgetOldest = `
		DELETE FROM history WHERE account = $1 AND noise = $2 AND apart = $3 AND number <=
			(SELECT number FROM history WHERE account = $1 AND noise = $2 AND apart = $3 ORDER BY number DESC LIMIT 1 OFFSET $4)`
)

// Record implements record.History. It fails if an account is being deleted at the
// same time. On the next attempt the account is gone.
func (s Accounts) Record(ctx context.Context, events []record.Event) error {
	// In the order of accounts, two concurrent calls seldom deadlock.
	events = slices.Clone(events)
	slices.SortStableFunc(events, func(a, b record.Event) int { return cmp.Compare(a.Account, b.Account) })
	return transact(ctx, s, "recording events", func(ctx context.Context, tx Queries) error {
		type kind struct {
			account int64
			noise   bool
			apart   string
		}
		var kinds []kind
		for _, e := range events {
			k := kind{e.Account, e.Noise, ""}
			if e.Apart {
				k.apart = e.Name
			}
			if !slices.Contains(kinds, k) {
				kinds = append(kinds, k)
			}
			data, err := json.Marshal(e)
			if err != nil {
				return err
			}
			args := []any{e.Company, e.Account, k.noise, k.apart, string(data), record.Micros(e.Time), e.Ref}
			tx.Later(ctx, recordEvent, args...)
			tx.Later(ctx, forgetEarlier, args[:5]...)
		}
		for _, k := range kinds {
			kept := record.HistoryKept
			if k.apart != "" {
				kept = record.HistoryKeptApart
			}
			tx.Later(ctx, forgetOldest, k.account, k.noise, k.apart, kept)
		}
		return nil
	})
}

const recordedOf = `
	SELECT at, times, event, ref FROM (
		SELECT * FROM (SELECT number, at, times, event, ref FROM history WHERE account = $2 AND noise = false ORDER BY number DESC LIMIT CAST($3 AS bigint)) AS quiet
		UNION ALL
		SELECT * FROM (SELECT number, at, times, event, ref FROM history WHERE account = $2 AND noise = true ORDER BY number DESC LIMIT CAST($3 AS bigint)) AS noisy
	) AS recorded
	WHERE EXISTS (SELECT 1 FROM accounts WHERE ` + oneAccount + `) ORDER BY number DESC LIMIT CAST($3 AS bigint)`

func (s Accounts) Recorded(ctx context.Context, company string, account int64, limit int) ([]record.Event, error) {
	scan := func(row Scanner) (e record.Event, err error) {
		e, err = scanEvent(row)
		e.Company, e.Account = company, account
		return e, err
	}
	return QueryAll(ctx, s, "reading a history", scan, recordedOf, company, account, limit)
}

const referredTo = `
	SELECT at, times, event, ref, account, mnemocode FROM (
		SELECT number, at, times, event, ref, account,
			(SELECT mnemocode FROM accounts WHERE id = history.account) AS mnemocode, (SELECT company FROM accounts WHERE id = history.account) AS owner
		FROM history WHERE ref = $2 AND ref <> ''
	) AS found
	WHERE owner = $1 ORDER BY number DESC`

func (s Accounts) Referred(ctx context.Context, company, ref string) ([]record.Event, error) {
	scan := func(row Scanner) (record.Event, error) {
		var account int64
		var mnemocode string
		e, err := scanEvent(row, &account, &mnemocode)
		e.Company, e.Account, e.Mnemocode = company, account, mnemocode
		return e, err
	}
	return QueryAll(ctx, s, "finding a ref", scan, referredTo, company, ref)
}

// scanEvent scans an event, then what else is in the row.
func scanEvent(row Scanner, more ...any) (e record.Event, err error) {
	var data []byte
	if err := row.Scan(append([]any{Time(&e.Time), &e.Count, &data, &e.Ref}, more...)...); err != nil {
		return e, err
	}
	err = json.Unmarshal(data, &e) // which keeps Time, Count and Ref
	return e, err
}

func (s Accounts) Forget(ctx context.Context, before time.Time) error {
	return Sweep(ctx, s, "forgetting events", s.DeleteSome("history", "at < $1", "number", "at"), record.Micros(before), s.Chunk)
}
