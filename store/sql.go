package store

import (
	"context"

	"github.com/mnemogate/mnemogate/flows/record"
)

// The files sql*.go hold what SQLite and PostgreSQL do with the same statements.
// Parameters are written as $1, which both know. Where a statement must differ, it is
// a field of dialect. These forms mean the same to both, and are there for one:
//
//   - LIMIT CAST($1 AS bigint): SQLite compiles a statement again for each value of a
//     plain parameter (see sqliteQueries).
//   - (company = $1) IS TRUE: PostgreSQL must not choose an index by this condition
//     (see postgresAccounts).

// queries runs statements: *sqliteQueries or postgresQueries.
type queries interface {
	// exec returns the number of rows that a statement changed.
	exec(ctx context.Context, query string, args ...any) (int64, error)
	// later is exec for a statement in a transaction whose result does not matter. If it
	// fails, a later call or the transaction may return the error.
	later(ctx context.Context, query string, args ...any) error
	// row returns the first row of a query.
	row(ctx context.Context, query string, args ...any) scanner
	// each passes the rows of a query to scan, one by one.
	each(ctx context.Context, scan func(scanner) error, query string, args ...any) error
	// refuseTaken returns a TakenError if another account of the company has a login id,
	// identity or mnemocode that is new in after. No call stores one of them until the
	// transaction ends.
	refuseTaken(ctx context.Context, before, after record.Account) error
	// insertEvents stores the outbox events of a change to an account, in the change's
	// transaction.
	insertEvents(ctx context.Context, company string, account int64, events []record.OutboxEvent) error
}

// A sqlStore is a *SQLite or *Postgres.
type sqlStore interface {
	// reading runs f, which changes nothing.
	reading(ctx context.Context, f func(context.Context, queries) error) error
	// writing runs f, of which at most one statement changes something.
	writing(ctx context.Context, f func(context.Context, queries) error) error
	// transaction runs f, of which nothing is stored if it fails.
	transaction(ctx context.Context, f func(context.Context, queries) error) error
}

// with returns f for the queries of one store.
func with[Q queries](f func(context.Context, queries) error) func(context.Context, Q) error {
	return func(ctx context.Context, q Q) error { return f(ctx, q) }
}

// A scanner is a row of a result.
type scanner interface{ Scan(dest ...any) error }

// queryOne returns the first row of a query. The text doing is for the error.
func queryOne[T any](
	ctx context.Context, s sqlStore, doing string, scan func(scanner) (T, error), query string, args ...any,
) (found T, err error) {
	err = s.reading(ctx, func(ctx context.Context, q queries) (err error) {
		found, err = scan(q.row(ctx, query, args...))
		return err
	})
	return found, translate(doing, err)
}

// queryAll returns all rows of a query.
func queryAll[T any](
	ctx context.Context, s sqlStore, doing string, scan func(scanner) (T, error), query string, args ...any,
) (all []T, err error) {
	err = s.reading(ctx, func(ctx context.Context, q queries) (err error) {
		all, err = collect(ctx, q, scan, query, args...)
		return err
	})
	return all, translate(doing, err)
}

// change runs a statement. If it changes no row, change returns otherwise.
func change(ctx context.Context, s sqlStore, doing string, otherwise error, query string, args ...any) error {
	return translate(doing, s.writing(ctx, func(ctx context.Context, q queries) error {
		return execOr(ctx, q, otherwise, query, args...)
	}))
}

// changeOne runs a statement that returns the row that it changed.
func changeOne[T any](
	ctx context.Context, s sqlStore, doing string, scan func(scanner) (T, error), query string, args ...any,
) (changed T, err error) {
	err = s.writing(ctx, func(ctx context.Context, q queries) (err error) {
		changed, err = scan(q.row(ctx, query, args...))
		return err
	})
	return changed, translate(doing, err)
}

// sweep repeats a statement that deletes up to chunk rows until no row is left. Each
// chunk is a call of its own, so that other writes can happen in between.
func sweep(ctx context.Context, s sqlStore, doing, query string, before any, chunk int64) error {
	for {
		var n int64
		err := s.writing(ctx, func(ctx context.Context, q queries) (err error) {
			n, err = q.exec(ctx, query, before, chunk)
			return err
		})
		if err != nil || n < chunk {
			return translate(doing, err)
		}
	}
}

// execOr is exec, but returns otherwise if no row was changed.
func execOr(ctx context.Context, q queries, otherwise error, query string, args ...any) error {
	n, err := q.exec(ctx, query, args...)
	if err == nil && n == 0 {
		return otherwise
	}
	return err
}

// collect returns all rows of a query, or those before an error.
func collect[T any](
	ctx context.Context, q queries, scan func(scanner) (T, error), query string, args ...any,
) (all []T, err error) {
	err = q.each(ctx, func(row scanner) error {
		t, err := scan(row)
		if err == nil {
			all = append(all, t)
		}
		return err
	}, query, args...)
	return all, err
}

// scanValue scans a row that has one column.
func scanValue[T any](row scanner) (value T, err error) {
	err = row.Scan(&value)
	return value, err
}
