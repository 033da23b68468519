package store

import (
	"context"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// postgresQueries runs statements on a connection or in a transaction. It converts
// strings with toText and fromText.
type postgresQueries struct{ on postgresRunner }

// A postgresRunner is a *pgxpool.Conn or pgx.Tx.
type postgresRunner interface {
	Begin(ctx context.Context) (pgx.Tx, error)
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
	SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
}

func (q postgresQueries) exec(ctx context.Context, query string, args ...any) (int64, error) {
	tag, err := q.on.Exec(ctx, query, texts(args)...)
	return tag.RowsAffected(), err
}

func (q postgresQueries) row(ctx context.Context, query string, args ...any) scanner {
	return textRow{q.on.QueryRow(ctx, query, texts(args)...)}
}

func (q postgresQueries) each(ctx context.Context, scan func(scanner) error, query string, args ...any) error {
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

// A postgresBatch is a list of statements that are sent at once. Outside of a
// transaction they are one transaction: all or nothing. Each statement sees what was
// committed before it began, so a statement after a lock sees the changes that the
// lock waited for.
type postgresBatch struct{ pgx.Batch }

// add adds a statement whose result does not matter.
func (b *postgresBatch) add(query string, args ...any) { b.Queue(query, texts(args)...) }

// addOr adds a statement. If it returns or changes no row, the batch fails with
// otherwise, but the statements after it still run.
func (b *postgresBatch) addOr(otherwise error, query string, args ...any) {
	b.Queue(query, texts(args)...).Exec(func(tag pgconn.CommandTag) error {
		if tag.RowsAffected() == 0 {
			return otherwise
		}
		return nil
	})
}

// addRow adds a statement that returns one row.
func (b *postgresBatch) addRow(scan func(scanner) error, query string, args ...any) {
	b.Queue(query, texts(args)...).QueryRow(func(row pgx.Row) error { return scan(textRow{row}) })
}

func (q postgresQueries) run(ctx context.Context, b *postgresBatch) error {
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
type textRow struct{ row scanner }

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
