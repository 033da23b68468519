package recordtest

import (
	"context"
	"database/sql"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	_ "modernc.org/sqlite" // the driver

	"github.com/mnemogate/mnemogate/store/storetest"
)

// This file checks the plans of statements.

// A StatementLog is a tracer that records which statements were not checked yet.
type StatementLog struct {
	mu      sync.Mutex
	seen    map[string]bool
	pending []string
}

func (l *StatementLog) add(statement string) {
	words := strings.Fields(statement)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.seen[statement] || !slices.Contains([]string{"SELECT", "WITH", "INSERT", "UPDATE", "DELETE"}, words[0]) ||
		slices.Contains(words, "mnemogate_migrations") {
		return
	}
	if l.seen == nil {
		l.seen = map[string]bool{}
	}
	l.seen[statement] = true
	l.pending = append(l.pending, statement)
}

// Take returns the statements that were not taken before.
func (l *StatementLog) Take() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	taken := l.pending
	l.pending = nil
	return taken
}

// TraceQueryStart implements pgx.QueryTracer.
func (l *StatementLog) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	l.add(data.SQL)
	return ctx
}

// TraceQueryEnd implements pgx.QueryTracer.
func (l *StatementLog) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// TraceBatchStart implements pgx.BatchTracer.
func (l *StatementLog) TraceBatchStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceBatchStartData) context.Context {
	for _, q := range data.Batch.QueuedQueries {
		l.add(q.SQL)
	}
	return ctx
}

// TraceBatchQuery implements pgx.BatchTracer.
func (l *StatementLog) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}

// TraceBatchEnd implements pgx.BatchTracer.
func (l *StatementLog) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

// WantIndexes checks the statements that were not checked before. The tables of
// tests are so small that a scan would be faster, so WantIndexes makes scans
// expensive. Scans that remain have no index to use.
func (l *StatementLog) WantIndexes(t testing.TB, dsn string) {
	t.Helper()
	statements := l.Take()
	if len(statements) == 0 {
		return
	}
	conn, err := pgx.Connect(bg, dsn)
	storetest.Must(t, err)
	defer conn.Close(bg)
	_, err = conn.Exec(bg, "SET enable_seqscan = off")
	storetest.Must(t, err)
	for _, statement := range statements {
		WantIndexed(t, conn, statement)
	}
}

// WantIndexed checks the generic plan of a statement. It must not read a whole
// table, or all rows of a company.
func WantIndexed(t testing.TB, conn *pgx.Conn, statement string) {
	t.Helper()
	// These count all accounts, read no table of ours, or delete chunks of all that a company
	// without accounts has.
	for _, seldom := range []string{"AND (second_factor OR", "SELECT count(*) FROM accounts", "FROM pg_settings", "FROM seeds WHERE company = $1 ON CONFLICT", "WHERE company = $1 ORDER BY company, "} {
		if strings.Contains(statement, seldom) {
			return
		}
	}
	if step := ReadsAll(PostgresPlan(t, conn, statement)); step != "" {
		t.Errorf("%s:\n%s", statement, step)
	}
}

// ReadsAll returns the step of a plan that reads a whole table or all rows of a
// company, or that compiles the statement, which takes even longer.
func ReadsAll(plan []string) string {
	for i, step := range plan {
		before, next := "", ""
		if i > 0 {
			before = plan[i-1]
		}
		if i+1 < len(plan) {
			next = plan[i+1]
		}
		switch {
		case strings.Contains(step, "Seq Scan on secret"): // it has one row
		case strings.Contains(step, "Index Only Scan") && strings.Contains(before, "Limit ") && !strings.Contains(next, "Filter: "): // it ends early
		case strings.Contains(step, "Seq Scan"), strings.HasPrefix(step, "JIT:"),
			pgTableRead.MatchString(step) && (!strings.Contains(next, "Cond: ") || pgCompanyAlone.MatchString(next)):
			return step + "\n" + next
		}
	}
	return ""
}

var (
	pgTableRead    = regexp.MustCompile(`Scan .*\bon (accounts|login_ids|identities|acceptances|backup_codes|passkeys|failures|pending_revocations|seeds|history)\b`)
	pgCompanyAlone = regexp.MustCompile(`Cond: \((\w+\.)?company = [^()]*\)$`)
)

// PostgresPlan returns the steps of a statement's generic plan.
func PostgresPlan(t testing.TB, conn *pgx.Conn, statement string) []string {
	t.Helper()
	_, err := conn.Exec(bg, "SET plan_cache_mode = force_generic_plan")
	storetest.Must(t, err)
	prepared, err := conn.Prepare(bg, "planned", statement)
	storetest.Must(t, err)
	defer conn.Deallocate(bg, "planned")
	execute := "EXPLAIN EXECUTE planned"
	if n := len(prepared.ParamOIDs); n > 0 {
		execute += "(NULL" + strings.Repeat(", NULL", n-1) + ")"
	}
	rows, err := conn.Query(bg, execute, pgx.QueryExecModeSimpleProtocol)
	storetest.Must(t, err)
	steps, err := pgx.CollectRows(rows, pgx.RowTo[string])
	storetest.Must(t, err)
	return steps
}

// WantNoScans asks SQLite for the plan of each statement that a store in the file has
// prepared. Every store of every test is checked, so no statement is missed. One that was
// found good is not planned again: all files have the same tables, and no statistics.
func WantNoScans(t testing.TB, file string, statements []string) {
	t.Helper()
	for _, query := range statements {
		if _, ok := good.Load(query); ok {
			continue
		}
		failed := false
		if bad := compiledAgain.FindString(query); bad != "" {
			t.Errorf("%s: it is compiled each time it is run; write +? in %q", query, bad)
			failed = true
		}
		for _, step := range SQLitePlan(t, file, query) {
			if strings.HasPrefix(step, "SCAN") && step != "SCAN CONSTANT ROW" && step != "SCAN waiting" && step != "SCAN found" && // lists of companies
				!mayScan.MatchString(query) {
				t.Errorf("%s: %s", query, step)
				failed = true
			}
		}
		if !failed {
			good.Store(query, true)
		}
	}
}

var (
	good sync.Map // statements
	// compiledAgain finds parameters of which SQLite compiles the statement again: they
	// need a + or CAST.
	compiledAgain = regexp.MustCompile(`LIMIT [?$]|failures WHERE company = [?$]\d* AND account = [?$]`)
	// mayScan finds the statements that read a part of an index in order, or that only the
	// doctor and the start run.
	mayScan = regexp.MustCompile(`FROM pending_revocations WHERE \(company, account\) >|AS searched|AS recorded|AND \(second_factor OR|^SELECT count\(\*\) FROM accounts$`)
)

// SQLitePlan returns the steps of a statement's plan.
func SQLitePlan(t testing.TB, file, query string) []string {
	t.Helper()
	db, err := sql.Open("sqlite", file)
	storetest.Must(t, err)
	defer db.Close()
	rows, err := db.Query("EXPLAIN QUERY PLAN "+query, make([]any, 30)...)
	storetest.Must(t, err)
	defer rows.Close()
	var steps []string
	for rows.Next() {
		var id, parent, unused int
		var step string
		storetest.Must(t, rows.Scan(&id, &parent, &unused, &step))
		steps = append(steps, step)
	}
	storetest.Must(t, rows.Err())
	return steps
}
