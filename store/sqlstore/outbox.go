package sqlstore

import (
	"context"
	"crypto/rand"
	"fmt"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
)

// For each company, reads only the queue that is due first, and not its whole backlog.
const Due = `
	WITH RECURSIVE waiting (company) AS (
		SELECT min(company) FROM outbox_queues
		UNION ALL
		SELECT (SELECT min(company) FROM outbox_queues WHERE company > waiting.company)
		FROM waiting WHERE company IS NOT NULL
	)
	SELECT company FROM waiting
	WHERE (SELECT due FROM outbox_queues WHERE company = waiting.company ORDER BY due LIMIT 1) <= $1`

func (s Accounts) Due(ctx context.Context, now time.Time) ([]string, error) {
	return QueryAll(ctx, s, "looking for events", ScanValue[string], Due, record.Micros(now))
}

// insertEvents stores the outbox events of a change to an account, in the change's
// transaction. An account's events join the queue of those that already wait, even if the
// mnemocode was different then.
func (s Accounts) insertEvents(ctx context.Context, tx Queries, company string, account int64, events []record.OutboxEvent) {
	for _, e := range events {
		for _, insert := range s.InsertEvents {
			tx.Later(ctx, insert, company, account, e.Queue, record.Micros(e.At), e.ID, e.Type, string(e.Body), e.Traceparent)
		}
	}
}

// dueTooLate makes due at once what would be due after $1, which is MaxDue from now.
var dueTooLate = fmt.Sprintf(`
	UPDATE outbox_queues SET due = $1 - %d
	WHERE (company, queue) IN (SELECT company, queue FROM outbox_queues WHERE due > $1 LIMIT CAST($2 AS bigint))`,
	record.MaxDue.Microseconds())

const eventsOf = `
	SELECT number, id, type, body, at, traceparent FROM outbox WHERE company = $1 AND queue = $2 ORDER BY number LIMIT CAST($3 AS bigint)`

func scanOutboxEvent(row Scanner) (record.OutboxEvent, error) {
	var e record.OutboxEvent
	var body string
	err := row.Scan(&e.Number, &e.ID, &e.Type, &body, Time(&e.At), &e.Traceparent)
	e.Body = []byte(body)
	return e, err
}

// Claim implements record.Outbox. It commits the claim before it reads the events, so
// that it returns no event that another node has acknowledged meanwhile.
func (s Accounts) Claim(ctx context.Context, now, until time.Time, company string, limit int) ([]record.OutboxQueue, error) {
	claim := rand.Text()
	scan := func(row Scanner) (record.OutboxQueue, error) {
		q := record.OutboxQueue{Company: company, Claim: claim, Until: until}
		err := row.Scan(&q.Name, &q.Tries)
		return q, err
	}
	var queues []record.OutboxQueue
	err := write(ctx, s, "claiming events", func(ctx context.Context, q Queries) (err error) {
		queues, err = Collect(ctx, q, scan, s.ClaimQueues, company, record.Micros(now), record.Micros(until), claim, limit)
		return err
	})
	if err != nil || len(queues) == 0 {
		return nil, err
	}
	err = Read(ctx, s, "loading events", func(ctx context.Context, q Queries) (err error) {
		for i := range queues {
			queues[i].Events, err = Collect(ctx, q, scanOutboxEvent, eventsOf, company, queues[i].Name, record.ClaimedEvents)
			if err != nil {
				return err
			}
		}
		return nil
	})
	return queues, err
}

const (
	deleteEvent = `DELETE FROM outbox WHERE number = $1`
	giveBack    = `UPDATE outbox_queues SET due = $4, tries = $5, claim = '' WHERE company = $1 AND queue = $2 AND claim = $3`
	closeQueue  = `
		DELETE FROM outbox_queues WHERE company = $1 AND queue = $2 AND claim = ''
			AND NOT EXISTS (SELECT 1 FROM outbox WHERE company = $1 AND queue = $2)`
	// Looks up one company after the other. Each has its own part of an index.
	backlogs = `
		WITH RECURSIVE waiting (company) AS (
			SELECT min(company) FROM outbox
			UNION ALL
			SELECT (SELECT min(company) FROM outbox WHERE company > waiting.company) FROM waiting WHERE company IS NOT NULL
		)
		SELECT company, (SELECT count(*) FROM outbox WHERE company = waiting.company), (SELECT min(at) FROM outbox WHERE company = waiting.company)
		FROM waiting WHERE company IS NOT NULL`
)

// Acknowledge implements record.Outbox. It locks the queue first: the statements
// after the lock see the events of transactions that held it before, and later
// writers wait.
func (s Accounts) Acknowledge(ctx context.Context, q record.OutboxQueue, delivered []int64, due time.Time, tries int) error {
	return transact(ctx, s, "acknowledging events", func(ctx context.Context, tx Queries) error {
		tx.Later(ctx, s.queueLock, q.Company, q.Name)
		for _, number := range delivered {
			tx.Later(ctx, deleteEvent, number)
		}
		tx.Later(ctx, giveBack, q.Company, q.Name, q.Claim, record.Micros(due), tries)
		tx.Later(ctx, closeQueue, q.Company, q.Name)
		return nil
	})
}

func (s Accounts) Backlogs(ctx context.Context) ([]record.Backlog, error) {
	scan := func(row Scanner) (b record.Backlog, err error) {
		err = row.Scan(&b.Company, &b.Events, Time(&b.Oldest))
		return b, err
	}
	return QueryAll(ctx, s, "counting events", scan, backlogs)
}
