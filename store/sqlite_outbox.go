package store

import (
	"context"
	"crypto/rand"
	"time"

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

// insertEvents stores the outbox events of a change to an account.
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

// For each company, read only the queue that is due first, and not its whole
// backlog.
const sqliteDue = `
	WITH RECURSIVE waiting (company) AS (
		SELECT min(company) FROM outbox_queues
		UNION ALL
		SELECT (SELECT min(company) FROM outbox_queues WHERE company > waiting.company)
		FROM waiting WHERE company IS NOT NULL
	)
	SELECT company FROM waiting
	WHERE (SELECT min(due) FROM outbox_queues INDEXED BY outbox_queues_turn WHERE company = waiting.company) <= ?`

// Due implements record.Outbox.
func (s sqliteAccounts) Due(ctx context.Context, now time.Time) ([]string, error) {
	var companies []string
	err := s.read(ctx, func(ctx context.Context, q *sqliteQueries) (err error) {
		companies, err = collectSQLite(ctx, q, scanString, sqliteDue, micros(now))
		return err
	})
	return companies, translateSQLite("looking for events", err)
}

const (
	sqliteClaim = `
		UPDATE outbox_queues SET due = ?3, claim = ?4
		WHERE company = ?1 AND queue IN (SELECT queue FROM outbox_queues WHERE company = ?1 AND due <= ?2 ORDER BY due LIMIT +?5)
		RETURNING queue, tries`
	sqliteEventsOf = `
		SELECT number, id, type, body, at, traceparent FROM outbox WHERE company = ? AND queue = ? ORDER BY number LIMIT +?`
)

// Claim implements record.Outbox.
func (s sqliteAccounts) Claim(ctx context.Context, now, until time.Time, company string, limit int) ([]record.OutboxQueue, error) {
	var queues []record.OutboxQueue
	err := s.write(ctx, func(ctx context.Context, tx *sqliteQueries) (err error) {
		claim := rand.Text()
		queues, err = collectSQLite(ctx, tx, scanQueue(company, claim, until), sqliteClaim,
			company, micros(now), micros(until), claim, limit)
		for i := range queues {
			q := &queues[i]
			if q.Events, err = collectSQLite(ctx, tx, scanOutboxEvent, sqliteEventsOf, company, q.Name, record.ClaimedEvents); err != nil {
				return err
			}
		}
		return err
	})
	return queues, translateSQLite("claiming events", err)
}

const (
	sqliteDeleteEvent = `DELETE FROM outbox WHERE number = ?`
	sqliteGiveBack    = `UPDATE outbox_queues SET due = ?, tries = ?, claim = '' WHERE company = ? AND queue = ? AND claim = ?`
	sqliteCloseQueue  = `
		DELETE FROM outbox_queues WHERE company = ?1 AND queue = ?2 AND claim = ''
			AND NOT EXISTS (SELECT 1 FROM outbox WHERE company = ?1 AND queue = ?2)`
)

// Acknowledge implements record.Outbox.
func (s sqliteAccounts) Acknowledge(ctx context.Context, q record.OutboxQueue, delivered []int64, due time.Time, tries int) error {
	return translateSQLite("settling events", s.write(ctx, func(ctx context.Context, tx *sqliteQueries) error {
		for _, number := range delivered {
			if _, err := tx.exec(ctx, sqliteDeleteEvent, number); err != nil {
				return err
			}
		}
		if _, err := tx.exec(ctx, sqliteGiveBack, micros(due), tries, q.Company, q.Name, q.Claim); err != nil {
			return err
		}
		_, err := tx.exec(ctx, sqliteCloseQueue, q.Company, q.Name)
		return err
	}))
}

const sqliteBacklog = `
	SELECT company, count(*), min(at) FROM outbox WHERE company = (SELECT min(company) FROM outbox WHERE company > ?)
	GROUP BY company`

// Backlog implements record.Outbox.
func (s sqliteAccounts) Backlog(ctx context.Context, after string) (record.Backlog, error) {
	var b record.Backlog
	err := s.read(ctx, func(ctx context.Context, q *sqliteQueries) (err error) {
		b, err = scanBacklog(q.row(ctx, sqliteBacklog, after))
		return err
	})
	return b, translateSQLite("counting events", err)
}

// Interface guard
var _ record.Outbox = sqliteAccounts{}
