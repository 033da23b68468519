package store

import (
	"context"

	"github.com/mnemogate/mnemogate/flows/record"
)

const (
	// An account's events join the queue of those that already wait, even if the
	// mnemocode was different then.
	sqliteQueueOf = `
		SELECT coalesce((SELECT queue FROM outbox WHERE company = ?1 AND account = ?2 ORDER BY number DESC LIMIT 1), ?3)`
	sqliteOpenQueue   = `INSERT INTO outbox_queues (company, queue, due) VALUES (?, ?, ?) ON CONFLICT DO NOTHING`
	sqliteInsertEvent = `INSERT INTO outbox (company, queue, account, id, type, body, at, traceparent) VALUES (?, ?, ?, ?, ?, ?, ?, ?)`
)

func (tx *sqliteQueries) insertEvents(ctx context.Context, company string, account int64, events []record.OutboxEvent) error {
	for _, e := range events {
		var queue string
		if err := tx.row(ctx, sqliteQueueOf, company, account, e.Queue).Scan(&queue); err != nil {
			return err
		}
		if _, err := tx.exec(ctx, sqliteOpenQueue, company, queue, micros(e.At)); err != nil {
			return err
		}
		_, err := tx.exec(ctx, sqliteInsertEvent, company, queue, account, e.ID, e.Type, string(e.Body), micros(e.At), e.Traceparent)
		if err != nil {
			return err
		}
	}
	return nil
}
