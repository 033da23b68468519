package store

import (
	"context"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
)

// An account's events join the queue of those that already wait, even if the
// mnemocode was different then. The queue is locked before an event gets its number,
// so that the events of a queue become visible in the order of their numbers.
const postgresInsertEvent = `
	WITH opened AS (
		INSERT INTO outbox_queues (company, queue, due)
		SELECT $1, coalesce((SELECT queue FROM outbox WHERE company = $1 AND account = $2 ORDER BY number DESC LIMIT 1), $3), $4::bigint
		ON CONFLICT (company, queue) DO UPDATE SET tries = outbox_queues.tries -- as it is: Acknowledge waits for this, or this for it
		RETURNING queue
	)
	INSERT INTO outbox (company, queue, account, id, type, body, at, traceparent)
	SELECT $1, queue, $2, $5, $6, $7, $4, $8 FROM opened`

func (q postgresQueries) insertEvents(ctx context.Context, company string, account int64, events []record.OutboxEvent) error {
	for _, e := range events {
		err := q.later(ctx, postgresInsertEvent, company, account, e.Queue, micros(e.At), e.ID, e.Type, string(e.Body), e.Traceparent)
		if err != nil {
			return err
		}
	}
	return nil
}

const (
	postgresLockQueue    = `SELECT 1 FROM outbox_queues WHERE company = $1 AND queue = $2 FOR UPDATE`
	postgresDeleteEvents = `DELETE FROM outbox WHERE number = ANY ($1::bigint[])`
)

// Acknowledge implements record.Outbox. It locks the queue first: the statements
// after the lock see the events of transactions that held it before, and later
// writers wait.
func (s postgresAccounts) Acknowledge(ctx context.Context, q record.OutboxQueue, delivered []int64, due time.Time, tries int) error {
	return translate("acknowledging events", s.write(ctx, func(ctx context.Context, on postgresQueries) error {
		var b postgresBatch
		b.add(postgresLockQueue, q.Company, q.Name)
		if len(delivered) > 0 {
			b.add(postgresDeleteEvents, delivered)
		}
		b.add(sqlGiveBack, q.Company, q.Name, q.Claim, micros(due), tries)
		b.add(sqlCloseQueue, q.Company, q.Name)
		return on.run(ctx, &b)
	}))
}

// Interface guard
var _ record.Outbox = postgresAccounts{}
