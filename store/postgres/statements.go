package postgres

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/mnemogate/mnemogate/store/sqlstore"
)

// queries runs statements on a connection.
type queries struct {
	on *pgxpool.Conn
	// The statements of a transaction that are sent with the next one; nil outside of a
	// transaction.
	waiting *pgx.Batch
}

func (q queries) Exec(ctx context.Context, query string, args ...any) (n int64, err error) {
	var b pgx.Batch
	b.Queue(query, args...).Exec(func(tag pgconn.CommandTag) error {
		n = tag.RowsAffected()
		return nil
	})
	err = q.run(ctx, &b)
	return n, err
}

func (q queries) Later(_ context.Context, query string, args ...any) { q.waiting.Queue(query, args...) }

func (q queries) Row(ctx context.Context, query string, args ...any) sqlstore.Scanner {
	if q.waiting == nil {
		return q.on.QueryRow(ctx, query, args...)
	}
	return waitingRow(func(dest ...any) error {
		var b pgx.Batch
		var scanned error
		b.Queue(query, args...).QueryRow(func(row pgx.Row) error {
			if scanned = row.Scan(dest...); errors.Is(scanned, pgx.ErrNoRows) {
				return nil // after an error, pgx would prepare the statements again
			}
			return scanned
		})
		if err := q.run(ctx, &b); err != nil {
			return err
		}
		return scanned
	})
}

// A waitingRow runs its query when it is scanned.
type waitingRow func(dest ...any) error

func (r waitingRow) Scan(dest ...any) error { return r(dest...) }

func (q queries) Each(ctx context.Context, scan func(sqlstore.Scanner) error, query string, args ...any) error {
	if q.waiting != nil {
		if err := q.run(ctx, new(pgx.Batch)); err != nil {
			return err
		}
	}
	rows, err := q.on.Query(ctx, query, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := scan(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// run sends the statements that wait, and those of b, at once. Outside of a
// transaction they are one transaction: all or nothing. Each statement sees what was
// committed before it began, so a statement after a lock sees the changes that the
// lock waited for.
func (q queries) run(ctx context.Context, b *pgx.Batch) error {
	if q.waiting != nil {
		b.QueuedQueries = append(q.waiting.QueuedQueries, b.QueuedQueries...)
		q.waiting.QueuedQueries = nil
	}
	return q.on.SendBatch(ctx, b).Close()
}
