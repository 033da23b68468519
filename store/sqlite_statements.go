package store

import (
	"context"
	"database/sql"
	"sync"
)

// sqliteQueries runs statements, each prepared once, on a pool or a connection.
//
// SQLite looks at the value of a parameter that bounds a LIMIT, or stands beside a
// column which the WHERE of a partial index compares, and compiles the statement again
// each time it is bound. Written as +? it doesn't.
type sqliteQueries struct {
	on       preparer
	mu       sync.Mutex
	prepared map[string]*sql.Stmt
}

// A preparer is a *sql.DB or *sql.Conn.
type preparer interface {
	PrepareContext(ctx context.Context, query string) (*sql.Stmt, error)
}

func newSQLiteQueries(on preparer) *sqliteQueries {
	return &sqliteQueries{on: on, prepared: map[string]*sql.Stmt{}}
}

func (q *sqliteQueries) prepare(ctx context.Context, query string) (*sql.Stmt, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if stmt := q.prepared[query]; stmt != nil {
		return stmt, nil
	}
	stmt, err := q.on.PrepareContext(ctx, query)
	if err == nil {
		q.prepared[query] = stmt
	}
	return stmt, err
}

// exec returns how many rows a statement changed.
func (q *sqliteQueries) exec(ctx context.Context, query string, args ...any) (int64, error) {
	stmt, err := q.prepare(ctx, query)
	if err != nil {
		return 0, err
	}
	result, err := stmt.ExecContext(ctx, args...)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

// execOr is exec that fails with otherwise where no row was changed.
func (q *sqliteQueries) execOr(ctx context.Context, otherwise error, query string, args ...any) error {
	n, err := q.exec(ctx, query, args...)
	if err == nil && n == 0 {
		return otherwise
	}
	return err
}

func (q *sqliteQueries) row(ctx context.Context, query string, args ...any) scanner {
	stmt, err := q.prepare(ctx, query)
	if err != nil {
		return noRow{err}
	}
	return stmt.QueryRowContext(ctx, args...)
}

type noRow struct{ err error }

func (r noRow) Scan(...any) error { return r.err }

// collectSQLite returns all rows of a query.
func collectSQLite[T any](
	ctx context.Context, q *sqliteQueries, scan func(scanner) (T, error), query string, args ...any,
) ([]T, error) {
	stmt, err := q.prepare(ctx, query)
	if err != nil {
		return nil, err
	}
	rows, err := stmt.QueryContext(ctx, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var all []T
	for rows.Next() {
		t, err := scan(rows)
		if err != nil {
			return nil, err
		}
		all = append(all, t)
	}
	return all, rows.Err()
}

// sweep repeats a statement that deletes up to sqliteSweepChunk rows until none
// is left. Each chunk is a write of its own, so that others come between.
func (s *SQLite) sweep(ctx context.Context, query string, before int64) error {
	for {
		var n int64
		err := s.write(ctx, func(ctx context.Context, tx *sqliteQueries) (err error) {
			n, err = tx.exec(ctx, query, before, sqliteSweepChunk)
			return err
		})
		if err != nil || n < sqliteSweepChunk {
			return err
		}
	}
}
