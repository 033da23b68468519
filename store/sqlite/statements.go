package sqlite

import (
	"context"
	"database/sql"
	"github.com/mnemogate/mnemogate/store/sqlstore"
	"maps"
	"slices"
	"sync"
)

// queries runs statements on a pool or a connection. It prepares each
// statement once.
//
// SQLite compiles a statement again each time a parameter is bound if the parameter
// is a LIMIT, or is next to a column that the WHERE of a partial index compares.
// Written as +? or with a CAST, the parameter does not cause this.
type queries struct {
	on       preparer
	mu       sync.Mutex
	prepared map[string]*sql.Stmt
	failed   error // the first error of Later in an op
}

// A preparer is a *sql.DB or *sql.Conn.
type preparer interface {
	PrepareContext(ctx context.Context, query string) (*sql.Stmt, error)
}

func newQueries(on preparer) *queries {
	return &queries{on: on, prepared: map[string]*sql.Stmt{}}
}

func (q *queries) prepare(ctx context.Context, query string) (*sql.Stmt, error) {
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

func (q *queries) Exec(ctx context.Context, query string, args ...any) (int64, error) {
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

func (q *queries) Later(ctx context.Context, query string, args ...any) {
	if q.failed == nil {
		_, q.failed = q.Exec(ctx, query, args...)
	}
}

func (q *queries) Row(ctx context.Context, query string, args ...any) sqlstore.Scanner {
	stmt, err := q.prepare(ctx, query)
	if err != nil {
		return noRow{err}
	}
	return stmt.QueryRowContext(ctx, args...)
}

type noRow struct{ err error }

func (r noRow) Scan(...any) error { return r.err }

func (q *queries) Each(ctx context.Context, scan func(sqlstore.Scanner) error, query string, args ...any) error {
	stmt, err := q.prepare(ctx, query)
	if err != nil {
		return err
	}
	rows, err := stmt.QueryContext(ctx, args...)
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

// Statements returns the statements that were run since Start, for tests of their plans.
func (s *Store) Statements(ctx context.Context) (all []string, err error) {
	err = s.write(ctx, func(_ context.Context, tx *queries) error {
		all = slices.AppendSeq(slices.Collect(maps.Keys(s.reads.prepared)), maps.Keys(tx.prepared))
		return nil
	})
	return all, err
}
