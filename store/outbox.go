package store

import (
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
)

func scanQueue(company, claim string, until time.Time) func(scanner) (record.OutboxQueue, error) {
	return func(row scanner) (record.OutboxQueue, error) {
		q := record.OutboxQueue{Company: company, Claim: claim, Until: until}
		err := row.Scan(&q.Name, &q.Tries)
		return q, err
	}
}

func scanOutboxEvent(row scanner) (record.OutboxEvent, error) {
	var e record.OutboxEvent
	var body string
	var at int64
	err := row.Scan(&e.Number, &e.ID, &e.Type, &body, &at, &e.Traceparent)
	e.Body, e.At = []byte(body), fromMicros(at)
	return e, err
}

func scanBacklog(row scanner) (record.Backlog, error) {
	var b record.Backlog
	var oldest int64
	err := row.Scan(&b.Company, &b.Events, &oldest)
	b.Oldest = fromMicros(oldest)
	return b, err
}
