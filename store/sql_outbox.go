package store

import (
	"context"
	"crypto/rand"
	"errors"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
)

// For each company, reads only the queue that is due first, and not its whole backlog.
const sqlDue = `
	WITH RECURSIVE waiting (company) AS (
		SELECT min(company) FROM outbox_queues
		UNION ALL
		SELECT (SELECT min(company) FROM outbox_queues WHERE company > waiting.company)
		FROM waiting WHERE company IS NOT NULL
	)
	SELECT company FROM waiting
	WHERE (SELECT due FROM outbox_queues WHERE company = waiting.company ORDER BY due LIMIT 1) <= $1`

// Due implements record.Outbox.
func (s sqlAccounts) Due(ctx context.Context, now time.Time) ([]string, error) {
	return queryAll(ctx, s, "looking for events", scanValue[string], sqlDue, micros(now))
}

const sqlEventsOf = `
	SELECT number, id, type, body, at, traceparent FROM outbox WHERE company = $1 AND queue = $2 ORDER BY number LIMIT CAST($3 AS bigint)`

func scanOutboxEvent(row scanner) (record.OutboxEvent, error) {
	var e record.OutboxEvent
	var body string
	var at int64
	err := row.Scan(&e.Number, &e.ID, &e.Type, &body, &at, &e.Traceparent)
	e.Body, e.At = []byte(body), fromMicros(at)
	return e, err
}

// Claim implements record.Outbox. It commits the claim before it reads the events, so
// that it returns no event that another node has acknowledged meanwhile.
func (s sqlAccounts) Claim(ctx context.Context, now, until time.Time, company string, limit int) ([]record.OutboxQueue, error) {
	claim := rand.Text()
	scan := func(row scanner) (record.OutboxQueue, error) {
		q := record.OutboxQueue{Company: company, Claim: claim, Until: until}
		err := row.Scan(&q.Name, &q.Tries)
		return q, err
	}
	var queues []record.OutboxQueue
	err := s.writing(ctx, func(ctx context.Context, q queries) (err error) {
		queues, err = collect(ctx, q, scan, s.claim, company, micros(now), micros(until), claim, limit)
		return err
	})
	if err != nil || len(queues) == 0 {
		return nil, translate("claiming events", err)
	}
	err = s.reading(ctx, func(ctx context.Context, q queries) (err error) {
		for i := range queues {
			queues[i].Events, err = collect(ctx, q, scanOutboxEvent, sqlEventsOf, company, queues[i].Name, record.ClaimedEvents)
			if err != nil {
				return err
			}
		}
		return nil
	})
	return queues, translate("loading events", err)
}

const (
	sqlDeleteEvent = `DELETE FROM outbox WHERE number = $1`
	sqlGiveBack    = `UPDATE outbox_queues SET due = $4, tries = $5, claim = '' WHERE company = $1 AND queue = $2 AND claim = $3`
	sqlCloseQueue  = `
		DELETE FROM outbox_queues WHERE company = $1 AND queue = $2 AND claim = ''
			AND NOT EXISTS (SELECT 1 FROM outbox WHERE company = $1 AND queue = $2)`
	sqlBacklog = `
		SELECT company, count(*), min(at) FROM outbox WHERE company = (SELECT min(company) FROM outbox WHERE company > $1)
		GROUP BY company`
)

// Acknowledge implements record.Outbox. It locks the queue first: the statements
// after the lock see the events of transactions that held it before, and later
// writers wait.
func (s sqlAccounts) Acknowledge(ctx context.Context, q record.OutboxQueue, delivered []int64, due time.Time, tries int) error {
	return translate("acknowledging events", s.transaction(ctx, func(ctx context.Context, tx queries) error {
		err := tx.later(ctx, s.queueLock, q.Company, q.Name)
		for _, number := range delivered {
			err = errors.Join(err, tx.later(ctx, sqlDeleteEvent, number))
		}
		return errors.Join(err,
			tx.later(ctx, sqlGiveBack, q.Company, q.Name, q.Claim, micros(due), tries),
			tx.later(ctx, sqlCloseQueue, q.Company, q.Name))
	}))
}

// Backlog implements record.Outbox.
func (s sqlAccounts) Backlog(ctx context.Context, after string) (record.Backlog, error) {
	scan := func(row scanner) (b record.Backlog, err error) {
		var oldest int64
		err = row.Scan(&b.Company, &b.Events, &oldest)
		b.Oldest = fromMicros(oldest)
		return b, err
	}
	return queryOne(ctx, s, "counting events", scan, sqlBacklog, after)
}

// Interface guard
var _ record.Outbox = sqlAccounts{}
