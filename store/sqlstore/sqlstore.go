// Package sqlstore is what SQLite and PostgreSQL do with the same statements.
//
// Parameters are written as $1, which both know. Where a statement must differ, it is
// a field of Dialect. These forms mean the same to both, and are there for one:
//
//   - LIMIT CAST($1 AS bigint): SQLite compiles a statement again for each value of a
//     plain parameter (see the package sqlite).
//   - (company = $1) IS TRUE: PostgreSQL must not choose an index by this condition
//     (see the package postgres).
package sqlstore

import (
	"context"
	"errors"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
)

// Queries runs statements: *sqlite.queries or postgres.queries.
type Queries interface {
	// Exec returns the number of rows that a statement changed.
	Exec(ctx context.Context, query string, args ...any) (int64, error)
	// Later is Exec for a statement in a Transaction whose result does not matter. If it
	// fails, so does the transaction.
	Later(ctx context.Context, query string, args ...any)
	// Row returns the first row of a query.
	Row(ctx context.Context, query string, args ...any) Scanner
	// Each passes the rows of a query to scan, one by one.
	Each(ctx context.Context, scan func(Scanner) error, query string, args ...any) error
	// RefuseTaken returns a TakenError if another account of the company has a login id,
	// identity or mnemocode that is new in after. No call stores one of them until the
	// transaction ends.
	RefuseTaken(ctx context.Context, before, after record.Account) error
}

// A Database is the store of SQLite or PostgreSQL.
type Database interface {
	// Reading runs f, which changes nothing. Its error is sql.ErrNoRows if a text in a query is
	// one that the database can't store.
	Reading(ctx context.Context, f func(context.Context, Queries) error) error
	// Writing runs f, of which at most one statement changes something.
	Writing(ctx context.Context, f func(context.Context, Queries) error) error
	// Transaction runs f, of which nothing is stored if it fails.
	Transaction(ctx context.Context, f func(context.Context, Queries) error) error
	// Answer returns the error that the interfaces promise for an error of the driver, or
	// the same error with what an operator can do about it.
	Answer(err error) error
	// Called is that of record.Observed.
	Called(ctx context.Context, what string, began time.Time, err error) error
}

// A Scanner is a row of a result.
type Scanner interface{ Scan(dest ...any) error }

// QueryOne returns the first row of a query.
func QueryOne[T any](
	ctx context.Context, s Database, what string, scan func(Scanner) (T, error), query string, args ...any,
) (found T, err error) {
	err = Read(ctx, s, what, func(ctx context.Context, q Queries) (err error) {
		found, err = scan(q.Row(ctx, query, args...))
		return err
	})
	return found, err
}

// QueryAll returns all rows of a query, or none for a text that no row can have.
func QueryAll[T any](
	ctx context.Context, s Database, what string, scan func(Scanner) (T, error), query string, args ...any,
) (all []T, err error) {
	err = Read(ctx, s, what, func(ctx context.Context, q Queries) (err error) {
		all, err = Collect(ctx, q, scan, query, args...)
		return err
	})
	if errors.Is(err, record.ErrNotFound) {
		return nil, nil
	}
	return all, err
}

// Read is Call for a function that changes nothing.
func Read(ctx context.Context, s Database, what string, f func(context.Context, Queries) error) error {
	return Call(ctx, s, what, func() error { return s.Reading(ctx, f) })
}

// write is Call for a function of which at most one statement changes something.
func write(ctx context.Context, s Database, what string, f func(context.Context, Queries) error) error {
	return Call(ctx, s, what, func() error { return s.Writing(ctx, f) })
}

// transact is Call for a function of which nothing is stored if it fails.
func transact(ctx context.Context, s Database, what string, f func(context.Context, Queries) error) error {
	return Call(ctx, s, what, func() error { return s.Transaction(ctx, f) })
}

// Change runs a statement. If it changes no row, Change returns otherwise.
func Change(ctx context.Context, s Database, what string, otherwise error, query string, args ...any) error {
	return write(ctx, s, what, func(ctx context.Context, q Queries) error {
		return ExecOr(ctx, q, otherwise, query, args...)
	})
}

// ChangeOne runs a statement that returns the row that it changed.
func ChangeOne[T any](
	ctx context.Context, s Database, what string, scan func(Scanner) (T, error), query string, args ...any,
) (changed T, err error) {
	err = write(ctx, s, what, func(ctx context.Context, q Queries) (err error) {
		changed, err = scan(q.Row(ctx, query, args...))
		return err
	})
	return changed, err
}

// Sweep repeats a statement that deletes up to chunk rows until no row is left. Each
// chunk is a write of its own, so that other writes can happen in between.
func Sweep(ctx context.Context, s Database, what, query string, before any, chunk int64) error {
	return Call(ctx, s, what, func() error { return sweep(ctx, s, query, before, chunk) })
}

func sweep(ctx context.Context, s Database, query string, before any, chunk int64) error {
	for {
		var n int64
		err := s.Writing(ctx, func(ctx context.Context, q Queries) (err error) {
			n, err = q.Exec(ctx, query, before, chunk)
			return err
		})
		if err != nil || n < chunk {
			return err
		}
	}
}

// ExecOr is Exec, but returns otherwise if no row was changed.
func ExecOr(ctx context.Context, q Queries, otherwise error, query string, args ...any) error {
	n, err := q.Exec(ctx, query, args...)
	if err == nil && n == 0 {
		return otherwise
	}
	return err
}

// Collect returns all rows of a query, or those before an error.
func Collect[T any](
	ctx context.Context, q Queries, scan func(Scanner) (T, error), query string, args ...any,
) (all []T, err error) {
	err = q.Each(ctx, func(row Scanner) error {
		t, err := scan(row)
		if err == nil {
			all = append(all, t)
		}
		return err
	}, query, args...)
	return all, err
}

// ScanValue scans a row that has one column.
func ScanValue[T any](row Scanner) (value T, err error) {
	err = row.Scan(&value)
	return value, err
}
