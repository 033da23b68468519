package postgres

import (
	"context"
	"errors"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/mnemogate/mnemogate/store/sqlstore"
)

// queries runs statements on a connection. It converts strings with toText and
// fromText.
type queries struct {
	on *pgxpool.Conn
	// The statements of a transaction that are sent with the next one; nil outside of a
	// transaction.
	waiting *batch
}

func (q queries) Exec(ctx context.Context, query string, args ...any) (n int64, err error) {
	var b batch
	b.Queue(query, texts(args)...).Exec(func(tag pgconn.CommandTag) error {
		n = tag.RowsAffected()
		return nil
	})
	err = q.run(ctx, &b)
	return n, err
}

func (q queries) Later(_ context.Context, query string, args ...any) { q.waiting.add(query, args...) }

func (q queries) Row(ctx context.Context, query string, args ...any) sqlstore.Scanner {
	if q.waiting == nil {
		return textRow{q.on.QueryRow(ctx, query, texts(args)...)}
	}
	return waitingRow(func(dest ...any) error {
		var b batch
		var scanned error
		b.Queue(query, texts(args)...).QueryRow(func(row pgx.Row) error {
			if scanned = (textRow{row}).Scan(dest...); errors.Is(scanned, pgx.ErrNoRows) {
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
		if err := q.run(ctx, new(batch)); err != nil {
			return err
		}
	}
	rows, err := q.on.Query(ctx, query, texts(args)...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := scan(textRow{rows}); err != nil {
			return err
		}
	}
	return rows.Err()
}

// A batch is a list of statements that are sent at once. Outside of a
// transaction they are one transaction: all or nothing. Each statement sees what was
// committed before it began, so a statement after a lock sees the changes that the
// lock waited for.
type batch struct{ pgx.Batch }

// add adds a statement whose result does not matter.
func (b *batch) add(query string, args ...any) { b.Queue(query, texts(args)...) }

// run sends the statements that wait, and those of b.
func (q queries) run(ctx context.Context, b *batch) error {
	if q.waiting != nil {
		b.QueuedQueries = append(q.waiting.QueuedQueries, b.QueuedQueries...)
		q.waiting.QueuedQueries = nil
	}
	return q.on.SendBatch(ctx, &b.Batch).Close()
}

// Texts

// PostgreSQL can't store NUL in a text. Its replacement sorts before all other
// bytes, as NUL does.
var (
	toText   = replacer("\x00", "\x01\x01", "\x01", "\x01\x02")
	fromText = replacer("\x01\x01", "\x00", "\x01\x02", "\x01")
)

// replacer returns the Replace method of a strings.Replacer, but does not copy texts
// that need no replacement.
func replacer(oldnew ...string) func(string) string {
	r := strings.NewReplacer(oldnew...)
	return func(s string) string {
		if !strings.ContainsAny(s, "\x00\x01") {
			return s
		}
		return r.Replace(s)
	}
}

// texts applies toText to the strings among the arguments of a statement.
func texts(args []any) []any {
	stored := make([]any, len(args))
	for i, arg := range args {
		switch v := arg.(type) {
		case string:
			stored[i] = toText(v)
		case []string:
			all := make([]string, len(v))
			for j, s := range v {
				all[j] = toText(s)
			}
			stored[i] = all
		default:
			stored[i] = arg
		}
	}
	return stored
}

// A textRow is a row whose strings are converted with fromText.
type textRow struct{ row sqlstore.Scanner }

func (r textRow) Scan(dest ...any) error {
	if err := r.row.Scan(dest...); err != nil {
		return err
	}
	for _, d := range dest {
		if s, ok := d.(*string); ok {
			*s = fromText(*s)
		}
	}
	return nil
}
