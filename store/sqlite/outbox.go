package sqlite

import (
	"context"

	"github.com/mnemogate/mnemogate/flows/record"
)

const (
	// An account's events join the queue of those that already wait, even if the
	// mnemocode was different then.
	queueOf = `
		SELECT coalesce((SELECT queue FROM outbox WHERE company = ?1 AND account = ?2 ORDER BY number DESC LIMIT 1), ?3)`
	openQueue   = `INSERT INTO outbox_queues (company, queue, due) VALUES (?, ?, ?) ON CONFLICT DO NOTHING`
	insertEvent = `INSERT INTO outbox (company, queue, account, id, type, body, at, traceparent) VALUES (?, ?, ?, ?, ?, ?, ?, ?)`
)

func (tx *queries) InsertEvents(ctx context.Context, company string, account int64, events []record.OutboxEvent) error {
	for _, e := range events {
		var queue string
		if err := tx.Row(ctx, queueOf, company, account, e.Queue).Scan(&queue); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, openQueue, company, queue, record.Micros(e.At)); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, insertEvent, company, queue, account, e.ID, e.Type, string(e.Body), record.Micros(e.At), e.Traceparent)
		if err != nil {
			return err
		}
	}
	return nil
}
