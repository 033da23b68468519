package postgres

import (
	"flag"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/store/recordtest"
	"github.com/mnemogate/mnemogate/store/sqlstore"
	"github.com/mnemogate/mnemogate/store/storetest"
)

func TestPostgresPlansAreSeen(t *testing.T) {
	s := storetest.SharedPostgres(t)
	dsn := s.DSN(s.NewSchema(t))
	startStore(t, dsn, Options{})
	conn, err := pgx.Connect(bg, dsn)
	must(t, err)
	defer conn.Close(bg)
	must(t, second(conn.Exec(bg, "SET enable_seqscan = off")))
	for statement, want := range map[string]string{
		"DELETE FROM accounts WHERE role = $1":                       "Seq Scan on accounts",
		"DELETE FROM accounts WHERE id = $1":                         "",
		"DELETE FROM accounts WHERE company = $1 AND role = $2":      "Index Cond: (company = $1)",
		"SELECT FROM login_ids WHERE company = $1 AND login_id = $2": "",
	} {
		if got := recordtest.ReadsAll(recordtest.PostgresPlan(t, conn, statement)); !strings.Contains(got, want) || want == "" && got != "" {
			t.Errorf("of %s: %q, want %q", statement, got, want)
		}
	}
}

var plannedAccounts = flag.Int("accounts", 100_000, "how many accounts there are when TestPostgresReadsNoTableWhole looks at the plans; a million for a thorough run")

// fillPostgres creates accounts with all related rows for some of them. It does not
// check foreign keys.
var fillPostgres = []string{
	`SET session_replication_role = replica`,
	`INSERT INTO accounts (company, mnemocode, role, phone, email, login_name, status, second_factor,
		must_set_password, password_hash, question, answer_hash, created, updated)
	SELECT 'company' || n % 10, 'm' || to_char(n, 'FM0000000'), 'user', '+3706' || n, n || '@example.com', '', 'active',
		false, false, 'a hash', '', '', n, n FROM generate_series(1, ACCOUNTS) n ORDER BY 1, 2`,
	`INSERT INTO login_ids SELECT company, email, id FROM accounts`,
	`INSERT INTO identities SELECT company, 1, mnemocode, id FROM accounts WHERE id % 5 = 0`,
	`INSERT INTO acceptances SELECT id, 'terms', '1', 1 FROM accounts WHERE id % 5 = 0`,
	`INSERT INTO backup_codes SELECT id, 'hash' || n FROM accounts, generate_series(1, 2) n WHERE id % 10 = 0`,
	`INSERT INTO failures SELECT company, id, '', 'password', 1, 0, id FROM accounts WHERE id % 10 = 0`,
	`INSERT INTO failures SELECT 'company1', 0, 'unknown' || n, 'password', 1, 0, n FROM generate_series(1, 100000) n`,
	`INSERT INTO pending_revocations SELECT company, id, 2 FROM accounts WHERE id % 10 = 0`,
	`INSERT INTO company_generations SELECT 'company' || n, 1, 1 FROM generate_series(1, 1000) n`,
	`INSERT INTO seeds SELECT company, mnemocode FROM accounts WHERE id % 10 = 0`,
	`ANALYZE`,
}

func TestPostgresReadsNoTableWhole(t *testing.T) {
	s := storetest.SharedPostgres(t)
	schema := s.NewSchema(t)
	startStore(t, s.DSN(schema), Options{})
	conn, err := pgx.Connect(bg, s.DSN(schema))
	must(t, err)
	defer conn.Close(bg)
	for _, statement := range fillPostgres {
		must(t, second(conn.Exec(bg, strings.Replace(statement, "ACCOUNTS", strconv.Itoa(*plannedAccounts), 1))))
	}
	var log recordtest.StatementLog
	p := openStore(t, s.DSN(schema), Options{})
	p.config.ConnConfig.Tracer = &log
	storetest.Started(t, p.Start)
	a := create(t, p.Accounts(), someone("company1", "m1"))
	must(t, p.Accounts().SetBackupCodes(bg, a, []string{"c"}))
	for method, err := range callAllAccounts(bg, p.Accounts(), a) {
		if err != nil && !record.IsAnswer(err) {
			t.Errorf("%s: %v", method, err)
		}
	}
	subject := record.FailureKey{Company: "company1", LoginID: "unknown1"}
	must(t, p.Accounts().UpdateFailures(bg, t0, subject, record.WrongPasswords, add(1)))
	must(t, p.Accounts().UpdateFailures(bg, t0, subject, record.WrongPasswords, add(-2)))
	must(t, p.Accounts().Sweep(bg, t0.Add(24*time.Hour)))

	statements := log.Take()
	planner, err := p.open.Load().Acquire(bg) // has the settings with which the statements ran
	must(t, err)
	defer planner.Release()
	for _, statement := range statements {
		recordtest.WantIndexed(t, planner.Conn(), statement)
	}
	if len(statements) < 25 {
		t.Errorf("only %d statements were seen", len(statements))
	}
}

// Nodes ask twice a second what is due, even with a large backlog.
func TestPostgresDueReadsNoBacklog(t *testing.T) {
	s := storetest.SharedPostgres(t)
	p := openStore(t, s.DSN(s.NewSchema(t)), Options{})
	storetest.Started(t, p.Start)
	conn, err := p.open.Load().Acquire(bg) // has the settings of all statements
	must(t, err)
	defer conn.Release()
	for _, statement := range []string{
		`INSERT INTO outbox_queues (company, queue, due) SELECT 'acme', 'm' || n, n FROM generate_series(1, 20000) n`,
		`INSERT INTO outbox_queues (company, queue, due) VALUES ('other', 'm', 30000), ('third', 'm', 7)`,
		`ANALYZE outbox_queues`,
	} {
		must(t, second(conn.Exec(bg, statement)))
	}
	companies, err := p.Accounts().Due(bg, record.FromMicros(20000))
	must(t, err)
	wantEqual(t, "due", companies, []string{"acme", "third"})
	must(t, second(conn.Conn().Prepare(bg, "due", sqlstore.Due)))
	rows, err := conn.Query(bg, "EXPLAIN (ANALYZE, TIMING off) EXECUTE due(20000)", pgx.QueryExecModeSimpleProtocol)
	must(t, err)
	steps, err := pgx.CollectRows(rows, pgx.RowTo[string])
	must(t, err)
	for _, step := range steps {
		if strings.Contains(step, "on outbox_queues") && !regexp.MustCompile(`actual rows=[01](\.\d+)? `).MatchString(step) {
			t.Errorf("it reads more of a company than its first queue: %s", step)
		}
	}
}
