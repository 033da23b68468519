package store

import (
	"context"
	"crypto/rand"
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
		ON CONFLICT (company, queue) DO UPDATE SET tries = outbox_queues.tries -- as it is: Settle waits, or we for it
		RETURNING queue
	)
	INSERT INTO outbox (company, queue, account, id, type, body, at, traceparent)
	SELECT $1, queue, $2, $5, $6, $7, $4, $8 FROM opened`

// insertEvents stores the outbox events of a change to an account, in the change's
// transaction.
func (q postgresQueries) insertEvents(ctx context.Context, company string, account int64, events []record.OutboxEvent) error {
	for _, e := range events {
		_, err := q.exec(ctx, postgresInsertEvent, company, account, e.Queue, micros(e.At), e.ID, e.Type, string(e.Body), e.Traceparent)
		if err != nil {
			return err
		}
	}
	return nil
}

// writeWithEvents is write for a change to an account with outbox events. It uses a
// transaction only if there are any events.
func (p *Postgres) writeWithEvents(
	ctx context.Context, company string, account *int64, events []record.OutboxEvent,
	f func(context.Context, postgresQueries) error,
) error {
	if len(events) == 0 {
		return p.write(ctx, f)
	}
	return p.transact(ctx, func(ctx context.Context, q postgresQueries) error {
		if err := f(ctx, q); err != nil {
			return err
		}
		return q.insertEvents(ctx, company, *account, events)
	})
}

// For each company, read only the queue that is due first, and not its whole
// backlog.
const postgresDue = `
	WITH RECURSIVE first (company, due) AS (
		(SELECT company, due FROM outbox_queues ORDER BY company, due LIMIT 1)
		UNION ALL
		SELECT next.* FROM first CROSS JOIN LATERAL
			(SELECT company, due FROM outbox_queues WHERE company > first.company ORDER BY company, due LIMIT 1) AS next
	)
	SELECT company FROM first WHERE due <= $1`

// Due implements record.Outbox.
func (s postgresAccounts) Due(ctx context.Context, now time.Time) ([]string, error) {
	var companies []string
	err := s.read(ctx, func(ctx context.Context, q postgresQueries) (err error) {
		companies, err = collectPostgres(ctx, q, scanString, postgresDue, micros(now))
		return err
	})
	return companies, translatePostgres("looking for events", err)
}

const (
	// Skips a queue that is being claimed, written to or acknowledged instead of
	// waiting for it.
	postgresClaim = `
		WITH due AS (
			SELECT queue FROM outbox_queues WHERE company = $1 AND due <= $2
			ORDER BY due LIMIT $5 FOR UPDATE SKIP LOCKED
		)
		UPDATE outbox_queues SET due = $3, claim = $4
		WHERE company = $1 AND queue = ANY (ARRAY(SELECT queue FROM due)) -- a join would read all queues
		RETURNING queue, tries`
	postgresEventsOf = `
		SELECT number, id, type, body, at, traceparent FROM outbox WHERE company = $1 AND queue = $2 ORDER BY number LIMIT $3`
)

// Claim implements record.Outbox. It commits the claim before it reads the events,
// so that it returns no event that another node has acknowledged meanwhile.
func (s postgresAccounts) Claim(ctx context.Context, now, until time.Time, company string, limit int) ([]record.OutboxQueue, error) {
	claim := rand.Text()
	var queues []record.OutboxQueue
	err := s.write(ctx, func(ctx context.Context, q postgresQueries) (err error) {
		queues, err = collectPostgres(ctx, q, scanQueue(company, claim, until), postgresClaim,
			company, micros(now), micros(until), claim, limit)
		return err
	})
	if err != nil || len(queues) == 0 {
		return nil, translatePostgres("claiming events", err)
	}
	err = s.read(ctx, func(ctx context.Context, q postgresQueries) error {
		var b postgresBatch
		for i := range queues {
			b.addRows(func(row scanner) error {
				e, err := scanOutboxEvent(row)
				queues[i].Events = append(queues[i].Events, e)
				return err
			}, postgresEventsOf, company, queues[i].Name, record.ClaimedEvents)
		}
		return q.run(ctx, &b)
	})
	return queues, translatePostgres("loading events", err)
}

const (
	postgresLockQueue    = `SELECT 1 FROM outbox_queues WHERE company = $1 AND queue = $2 FOR UPDATE`
	postgresDeleteEvents = `DELETE FROM outbox WHERE number = ANY ($1::bigint[])`
	postgresGiveBack     = `UPDATE outbox_queues SET due = $4, tries = $5, claim = '' WHERE company = $1 AND queue = $2 AND claim = $3`
	postgresCloseQueue   = `
		DELETE FROM outbox_queues WHERE company = $1 AND queue = $2 AND claim = ''
			AND NOT EXISTS (SELECT 1 FROM outbox WHERE company = $1 AND queue = $2)`
)

// Acknowledge implements record.Outbox. It locks the queue first: the statements
// after the lock see the events of transactions that held it before, and later
// writers wait.
func (s postgresAccounts) Acknowledge(ctx context.Context, q record.OutboxQueue, delivered []int64, due time.Time, tries int) error {
	return translatePostgres("settling events", s.write(ctx, func(ctx context.Context, on postgresQueries) error {
		var b postgresBatch
		b.add(postgresLockQueue, q.Company, q.Name)
		if len(delivered) > 0 {
			b.add(postgresDeleteEvents, delivered)
		}
		b.add(postgresGiveBack, q.Company, q.Name, q.Claim, micros(due), tries)
		b.add(postgresCloseQueue, q.Company, q.Name)
		return on.run(ctx, &b)
	}))
}

const postgresBacklog = `
	SELECT company, count(*), min(at) FROM outbox WHERE company = (SELECT min(company) FROM outbox WHERE company > $1)
	GROUP BY company`

// Backlog implements record.Outbox.
func (s postgresAccounts) Backlog(ctx context.Context, after string) (record.Backlog, error) {
	var b record.Backlog
	err := s.read(ctx, func(ctx context.Context, q postgresQueries) (err error) {
		b, err = scanBacklog(q.row(ctx, postgresBacklog, after))
		return err
	})
	return b, translatePostgres("counting events", err)
}

// Interface guard
var _ record.Outbox = postgresAccounts{}
