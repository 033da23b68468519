package postgres

import (
	"context"

	"github.com/mnemogate/mnemogate/flows/record"
)

// An account's events join the queue of those that already wait, even if the
// mnemocode was different then. The queue is locked before an event gets its number,
// so that the events of a queue become visible in the order of their numbers.
const insertEvent = `
	WITH opened AS (
		INSERT INTO outbox_queues (company, queue, due)
		SELECT $1, coalesce((SELECT queue FROM outbox WHERE company = $1 AND account = $2 ORDER BY number DESC LIMIT 1), $3), $4::bigint
		ON CONFLICT (company, queue) DO UPDATE SET tries = outbox_queues.tries -- as it is: Acknowledge waits for this, or this for it
		RETURNING queue
	)
	INSERT INTO outbox (company, queue, account, id, type, body, at, traceparent)
	SELECT $1, queue, $2, $5, $6, $7, $4, $8 FROM opened`

func (q queries) InsertEvents(ctx context.Context, company string, account int64, events []record.OutboxEvent) error {
	for _, e := range events {
		err := q.Later(ctx, insertEvent, company, account, e.Queue, record.Micros(e.At), e.ID, e.Type, string(e.Body), e.Traceparent)
		if err != nil {
			return err
		}
	}
	return nil
}
