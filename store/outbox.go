package store

import (
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
)

// outgoing is all that there is to tell of a change that was made.
func outgoing(tell []record.Tell) (all []record.Outgoing) {
	for _, t := range tell {
		all = append(all, t()...)
	}
	return all
}

func scanQueue(company, claim string, until time.Time) func(scanner) (record.OutQueue, error) {
	return func(row scanner) (record.OutQueue, error) {
		q := record.OutQueue{Company: company, Claim: claim, Until: until}
		err := row.Scan(&q.Name, &q.Tries)
		return q, err
	}
}

func scanWaiting(row scanner) (record.Waiting, error) {
	var w record.Waiting
	var body string
	var at int64
	err := row.Scan(&w.Number, &w.ID, &w.Type, &body, &at)
	w.Body, w.At = []byte(body), fromMicros(at)
	return w, err
}

func scanBacklog(row scanner) (record.Backlog, error) {
	var b record.Backlog
	var oldest int64
	err := row.Scan(&b.Company, &b.Events, &oldest)
	b.Oldest = fromMicros(oldest)
	return b, err
}
