package store

import (
	"context"
	"database/sql"
	"sync"
)

// sqliteQueries runs statements on a pool or a connection. It prepares each
// statement once.
//
// SQLite compiles a statement again each time a parameter is bound if the parameter
// is a LIMIT, or is next to a column that the WHERE of a partial index compares.
// Written as +?, the parameter does not cause this.
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

// exec returns the number of rows that a statement changed.
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

// execOr is exec, but returns otherwise if no row was changed.
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

// sweep repeats a statement that deletes up to sqliteSweepChunk rows until no row is
// left. Each chunk is a write of its own, so that other writes can happen in
// between.
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
