package store

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/store/storetest"
)

// openPostgres opens a store that is closed with the test.
func openPostgres(t testing.TB, dsn string, options PostgresOptions) *Postgres {
	t.Helper()
	p, err := OpenPostgres(dsn, options)
	must(t, err)
	p.config.ConnConfig.Tracer = &pgStatements
	t.Cleanup(func() { must(t, p.Close()) })
	return p
}

func startPostgres(t testing.TB, dsn string, options PostgresOptions) *Postgres {
	t.Helper()
	p := openPostgres(t, dsn, options)
	must(t, p.Start(bg))
	return p
}

func postgresAccountNodes(t *testing.T) (one, two record.Accounts) {
	s := storetest.SharedPostgres(t)
	dsn := s.DSN(s.NewSchema(t))
	t.Cleanup(func() { wantIndexes(t, dsn) })
	return startPostgres(t, dsn, PostgresOptions{}).Accounts(), startPostgres(t, dsn, PostgresOptions{}).Accounts()
}

// pgStatements collects the statements that any test runs.
var pgStatements statementLog

// A statementLog is a tracer that knows which statements were not checked yet.
type statementLog struct {
	mu      sync.Mutex
	seen    map[string]bool
	pending []string
}

func (l *statementLog) add(statement string) {
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

func (l *statementLog) take() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	taken := l.pending
	l.pending = nil
	return taken
}

func (l *statementLog) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	l.add(data.SQL)
	return ctx
}

func (l *statementLog) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (l *statementLog) TraceBatchStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceBatchStartData) context.Context {
	for _, q := range data.Batch.QueuedQueries {
		l.add(q.SQL)
	}
	return ctx
}

func (l *statementLog) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}

func (l *statementLog) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

// wantIndexes checks the statements that were not checked before. Where tables
// are as small as in tests a scan is faster, so scans are made expensive: what
// is left of them is without an index.
func wantIndexes(t testing.TB, dsn string) {
	t.Helper()
	conn, err := pgx.Connect(bg, dsn)
	must(t, err)
	defer conn.Close(bg)
	_, err = conn.Exec(bg, "SET enable_seqscan = off")
	must(t, err)
	for _, statement := range pgStatements.take() {
		wantNoSeqScan(t, conn, statement)
	}
}

// wantNoSeqScan asks for the plan of a statement that knows nothing of its
// arguments. Neither a table nor all that a company has in one may be read.
func wantNoSeqScan(t testing.TB, conn *pgx.Conn, statement string) {
	t.Helper()
	if statement == postgresStranded { // which counts a company's accounts
		return
	}
	if step := readsAll(pgPlan(t, conn, statement)); step != "" {
		t.Errorf("%s:\n%s", statement, step)
	}
}

// readsAll returns the step of a plan that reads a table, or what a company has in one,
// or takes longer than that.
func readsAll(plan []string) string {
	for i, step := range plan {
		next := ""
		if i+1 < len(plan) {
			next = plan[i+1]
		}
		switch {
		case strings.Contains(step, "Seq Scan on secret"): // which has one row
		case strings.Contains(step, "Seq Scan"), strings.HasPrefix(step, "JIT:"),
			pgTableRead.MatchString(step) && (!strings.Contains(next, "Cond: ") || pgCompanyAlone.MatchString(next)):
			return step + "\n" + next
		}
	}
	return ""
}

var (
	pgTableRead    = regexp.MustCompile(`Scan .*\bon (accounts|login_ids|identities|acceptances|backup_codes|tallies|endings|seeds|history)\b`)
	pgCompanyAlone = regexp.MustCompile(`Cond: \((\w+\.)?company = [^()]*\)$`)
)

func pgPlan(t testing.TB, conn *pgx.Conn, statement string) []string {
	t.Helper()
	_, err := conn.Exec(bg, "SET plan_cache_mode = force_generic_plan")
	must(t, err)
	prepared, err := conn.Prepare(bg, "planned", statement)
	must(t, err)
	defer conn.Deallocate(bg, "planned")
	execute := "EXPLAIN EXECUTE planned"
	if n := len(prepared.ParamOIDs); n > 0 {
		execute += "(NULL" + strings.Repeat(", NULL", n-1) + ")"
	}
	rows, err := conn.Query(bg, execute, pgx.QueryExecModeSimpleProtocol)
	must(t, err)
	steps, err := pgx.CollectRows(rows, pgx.RowTo[string])
	must(t, err)
	return steps
}

func TestPostgresPlansAreSeen(t *testing.T) {
	s := storetest.SharedPostgres(t)
	dsn := s.DSN(s.NewSchema(t))
	startPostgres(t, dsn, PostgresOptions{})
	conn, err := pgx.Connect(bg, dsn)
	must(t, err)
	defer conn.Close(bg)
	_, err = conn.Exec(bg, "SET enable_seqscan = off")
	must(t, err)
	for statement, want := range map[string]string{
		"DELETE FROM accounts WHERE role = $1":                       "Seq Scan on accounts",
		"DELETE FROM accounts WHERE id = $1":                         "",
		"DELETE FROM accounts WHERE company = $1 AND role = $2":      "Index Cond: (company = $1)",
		"SELECT FROM login_ids WHERE company = $1 AND login_id = $2": "",
	} {
		if got := readsAll(pgPlan(t, conn, statement)); !strings.Contains(got, want) || want == "" && got != "" {
			t.Errorf("of %s: %q, want %q", statement, got, want)
		}
	}
}

// fillPostgres makes n accounts and all that belongs to some, without asking
// whether it belongs.
var fillPostgres = []string{
	`SET session_replication_role = replica`,
	`INSERT INTO accounts (company, mnemocode, role, phone, email, login_name, status, second_factor,
		must_set_password, password_hash, question, answer_hash, created, updated)
	SELECT 'company' || n % 10, 'm' || to_char(n, 'FM0000000'), 'user', '+3706' || n, n || '@example.com', '', 'active',
		false, false, 'a hash', '', '', n, n FROM generate_series(1, 1000000) n ORDER BY 1, 2`,
	`INSERT INTO login_ids SELECT company, email, id FROM accounts`,
	`INSERT INTO identities SELECT company, 1, mnemocode, id FROM accounts WHERE id % 5 = 0`,
	`INSERT INTO acceptances SELECT id, 'terms', '1', 1 FROM accounts WHERE id % 5 = 0`,
	`INSERT INTO backup_codes SELECT id, 'hash' || n FROM accounts, generate_series(1, 2) n WHERE id % 10 = 0`,
	`INSERT INTO tallies SELECT company, id, '', 'password', 1, 0, id FROM accounts WHERE id % 10 = 0`,
	`INSERT INTO tallies SELECT 'company1', 0, 'unknown' || n, 'password', 1, 0, n FROM generate_series(1, 100000) n`,
	`INSERT INTO endings SELECT company, id, 2 FROM accounts WHERE id % 10 = 0`,
	`INSERT INTO eras SELECT 'company' || n, 1, 1 FROM generate_series(1, 1000) n`,
	`INSERT INTO seeds SELECT company, mnemocode FROM accounts WHERE id % 10 = 0`,
	`ANALYZE`,
}

func TestPostgresReadsNoTableOfAMillionAccountsWhole(t *testing.T) {
	if testing.Short() {
		t.Skip("makes a million accounts")
	}
	s := storetest.SharedPostgres(t)
	schema := s.NewSchema(t)
	must(t, openPostgres(t, s.DSN(schema), PostgresOptions{}).Start(bg))
	conn, err := pgx.Connect(bg, s.DSN(schema))
	must(t, err)
	defer conn.Close(bg)
	for _, statement := range fillPostgres {
		_, err := conn.Exec(bg, statement)
		must(t, err)
	}
	var log statementLog
	p := openPostgres(t, s.DSN(schema), PostgresOptions{})
	p.config.ConnConfig.Tracer = &log
	must(t, p.Start(bg))
	a := create(t, p.Accounts(), someone("company1", "m1"))
	must(t, p.Accounts().SetBackupCodes(bg, "company1", a.ID, []string{"c"}))
	for method, err := range callAllAccounts(bg, p.Accounts(), a) {
		if err != nil && !record.IsAnswer(err) {
			t.Errorf("%s: %v", method, err)
		}
	}
	subject := record.Subject{Company: "company1", LoginID: "unknown1"}
	must(t, p.Accounts().Tally(bg, t0, subject, record.WrongPasswords, add(1)))
	must(t, p.Accounts().Tally(bg, t0, subject, record.WrongPasswords, add(-2)))
	must(t, p.Accounts().Sweep(bg, t0.Add(24*time.Hour)))

	statements := log.take()
	planner, err := p.open.Load().Acquire(bg) // with the settings that the statements were run with
	must(t, err)
	defer planner.Release()
	for _, statement := range statements {
		wantNoSeqScan(t, planner.Conn(), statement)
	}
	if len(statements) < 25 {
		t.Errorf("only %d statements were seen", len(statements))
	}
}

// Login ids that are looked up in one statement are answered each for itself, also
// where one has no account that is there.
func TestPostgresAnswersEachLookup(t *testing.T) {
	s := storetest.SharedPostgres(t)
	schema := s.NewSchema(t)
	p := startPostgres(t, s.DSN(schema), PostgresOptions{})
	gone, one, two := create(t, p.Accounts(), someone("third", "m0")), create(t, p.Accounts(), someone("acme", "m1")), create(t, p.Accounts(), someone("other", "m1"))
	s.Exec(t, "SET session_replication_role = replica; DELETE FROM "+schema+fmt.Sprintf(".accounts WHERE id = %d", gone.ID))
	must(t, p.Accounts().Tally(bg, t0, record.Subject{Company: "acme", LoginID: "alias"}, record.WrongPasswords, add(1)))
	of := func(a record.Account) *postgresLookup {
		return &postgresLookup{company: a.Company, loginID: record.NormalizeLoginID(a.Email)}
	}
	lookups := []*postgresLookup{
		of(gone), of(one), {company: "acme", loginID: "nobody", alias: "alias"}, of(two), of(one), {company: "other", loginID: "m0@example.com"},
	}
	p.lookUpAll(lookups)
	for i, want := range []record.Account{{}, one, {Tallies: map[record.Kind]record.Tally{record.WrongPasswords: {Count: 1}}}, two, one, {}} {
		got := lookups[i]
		wantEqual(t, fmt.Sprintf("lookup %d", i), got.account, want)
		if want.ID == 0 {
			wantErr(t, fmt.Sprintf("lookup %d", i), got.err, record.ErrNotFound)
		} else {
			must(t, got.err)
		}
	}
}

// What is no text is found nowhere, and is not stored as another.
func TestPostgresStoresNoTextForAnother(t *testing.T) {
	s := storetest.SharedPostgres(t)
	p := startPostgres(t, s.DSN(s.NewSchema(t)), PostgresOptions{})
	if _, err := p.Accounts().Create(bg, t0, plain("acme", "m\xff")); err == nil || record.IsAnswer(err) {
		t.Errorf("an account was stored whose mnemocode is no text: %v", err)
	}
}

func TestPostgresRefusesCallsUnlessOpen(t *testing.T) {
	s := storetest.SharedPostgres(t)
	p := openPostgres(t, s.DSN(s.NewSchema(t)), PostgresOptions{})
	check := func(when string) {
		t.Helper()
		for method, err := range callAllAccounts(bg, p.Accounts(), someone("acme", "m1")) {
			wantErr(t, method+" "+when, err, errPostgresNotOpen)
		}
	}
	check("before Start")
	must(t, p.Start(bg))
	must(t, p.Start(bg))
	must(t, p.Close())
	check("after Close")
	must(t, p.Close())
	wantErr(t, "Start after Close", p.Start(bg), errPostgresNotOpen)
}

func TestPostgresCloseWaitsForCallsInFlight(t *testing.T) {
	s := storetest.SharedPostgres(t)
	dsn := s.DSN(s.NewSchema(t))
	p := startPostgres(t, dsn, PostgresOptions{})
	a := create(t, p.Accounts(), plain("acme", "m1"))
	begun, finish, done := make(chan bool), make(chan bool), make(chan error)
	go func() {
		_, err := p.Accounts().Update(bg, "acme", a.ID, func(a *record.Account) (bool, error) {
			close(begun)
			<-finish
			a.Role = "r"
			return false, nil
		})
		done <- err
	}()
	<-begun
	closed := make(chan error)
	go func() { closed <- p.Close() }()
	select {
	case <-closed:
		t.Error("Close did not wait")
	case <-time.After(50 * time.Millisecond):
	}
	close(finish)
	must(t, <-done)
	must(t, <-closed)
	again := startPostgres(t, dsn, PostgresOptions{})
	wantEqual(t, "role", get[record.Account](t)(again.Accounts().ByID(bg, "acme", a.ID)).Role, "r")
}

func TestPostgresNodesStartAtOnce(t *testing.T) {
	s := storetest.SharedPostgres(t)
	for range 3 {
		dsn := s.DSN(s.NewSchema(t))
		errs := race(10, dsn, dsn, func(_ int, dsn string) error {
			p := openPostgres(t, dsn, PostgresOptions{})
			if err := p.Start(bg); err != nil {
				return err
			}
			_, err := p.Accounts().Secret(bg)
			return err
		})
		wantWinners(t, errs, 10, is(nil))
	}
}

func TestPostgresTakesTablesOfANewerVersion(t *testing.T) {
	s := storetest.SharedPostgres(t)
	schema := s.NewSchema(t)
	startPostgres(t, s.DSN(schema), PostgresOptions{})
	s.Exec(t, "SET search_path = "+schema,
		"ALTER TABLE accounts ADD COLUMN nickname text NOT NULL DEFAULT ''",
		"INSERT INTO mnemogate_migrations VALUES ('999_future.sql')")
	p := startPostgres(t, s.DSN(schema), PostgresOptions{})
	a := create(t, p.Accounts(), someone("acme", "m1"))
	_, err := p.Accounts().Update(bg, "acme", a.ID, ending)
	must(t, err)
}

func TestPostgresStartsLaterWhereTheServerIsNotThereYet(t *testing.T) {
	t.Parallel()
	s := storetest.SharedPostgres(t)
	proxy := storetest.NewProxy(t, "unix", s.Socket())
	p := openPostgres(t, s.DSNThrough(proxy, s.NewSchema(t)), PostgresOptions{})
	for _, begin := range []func(){proxy.Refuse, proxy.Blackhole, func() { proxy.Delay(3 * time.Second) }} {
		proxy.Heal()
		begin()
		began, stalled := time.Now(), storetest.WatchStalls()
		err := p.Start(bg)
		if took, stall := time.Since(began), stalled(); took > pgAnswerWithin+stall {
			t.Errorf("Start took %v", took)
		}
		wantErr(t, "Start", err, ErrUnreachable)
		_, err = p.Accounts().Secret(bg)
		wantErr(t, "Secret", err, errPostgresNotOpen)
	}
	proxy.Heal()
	must(t, p.Start(bg))
	_, err := p.Accounts().Secret(bg)
	must(t, err)
}

func TestPostgresStartTellsRefusalsFromAbsence(t *testing.T) {
	s := storetest.SharedPostgres(t)
	s.Exec(t, "CREATE ROLE nobody LOGIN", "CREATE DATABASE latin ENCODING 'LATIN1' TEMPLATE template0")
	dsn := func(rest string) string { return "host=" + s.Dir() + " sslmode=disable " + rest }
	for rest, want := range map[string]string{
		"user=postgres dbname=none":                     `database "none" does not exist`,
		"user=stranger dbname=postgres":                 `role "stranger" does not exist`,
		"user=nobody dbname=postgres":                   "permission denied",
		"user=postgres dbname=latin":                    "ENCODING 'UTF8'",
		"user=postgres dbname=postgres search_path=gap": "no schema has been selected",
		"user=postgres dbname=postgres sslmod=require":  "sslmod",
	} {
		err := openPostgres(t, dsn(rest), PostgresOptions{}).Start(bg)
		if err == nil || errors.Is(err, ErrUnreachable) || !strings.Contains(err.Error(), want) {
			t.Errorf("Start with %s: got error %v, want one with %q that is not ErrUnreachable", rest, err, want)
		}
	}
}

func TestOpenPostgresNamesWhatIsWrongWithTheDSN(t *testing.T) {
	const secret = "hunter2"
	for dsn, want := range map[string]string{
		"":                                      "empty",
		"  ":                                    "empty",
		"postgres://u:hunter2@h":                "sslmode",
		"postgres://u:hunter2@h?sslmode=prefer": "plaintext",
		"postgres://u:hunter2@h?sslmode=allow":  "plaintext",
		"postgres://u:hunter2@10.0.0.1?sslmode=prefer":                      "10.0.0.1",
		"postgres://u:hunter2@localhost,h/db":                               "connection to h ",
		"postgres://u:hunter2@h?sslmode=sometimes":                          "sslmode is invalid",
		"postgres://u:hunter2@h:none/db":                                    "port",
		"postgres://u:hunter2@h/db?sslmode=verify-full&sslrootcert=/gone":   "/gone",
		"postgres://u:hunter2@h/db?sslmode=disable&connect_timeout=soon":    "connect_timeout",
		"postgres://u:hunter2@h/db?sslmode=disable&pool_max_conns=many":     "pool_max_conns",
		"postgres://u:hunter2@h/db?sslmode=disable&target_session_attrs=no": "target_session_attrs",
		"postgres://u:hunter2%zz@h/db":                                      "failed to parse as URL",
		"postgres://u:1/hunter2@h/db?sslmode=disable":                       "special characters",
		"postgres://u:hunter2/x@h/db?sslmode=disable":                       "port",
		"host=h user=u password=not hunter2 sslmode=disable":                "keyword/value",
		"host=h user=u password='hunter2 sslmode=disable":                   "keyword/value",
		"mysql://u:hunter2@h/db":                                            "keyword/value",
		secret:                                                              "keyword/value",
	} {
		_, err := OpenPostgres(dsn, PostgresOptions{})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got error %v, want one with %q", dsn, err, want)
		} else if strings.Contains(err.Error(), secret) {
			t.Errorf("%s: error tells the secret: %v", dsn, err)
		}
	}
	if _, err := OpenPostgres("postgres://localhost/db", PostgresOptions{MaxConns: -1}); err == nil {
		t.Error("a negative MaxConns was taken")
	}
}

func TestOpenPostgresTakesDSNs(t *testing.T) {
	for _, dsn := range []string{
		"postgres://u:p%2Fw%40@db.example.com:5433/db?sslmode=verify-full",
		"postgresql://u@one,two/db?sslmode=require",
		"postgres://u:p@db.example.com/db?sslmode=disable",
		"postgres://localhost/db",
		"postgres://[::1]/db?sslmode=prefer",
		"host=/run/postgresql dbname=db",
		"host=h user=u password='p w' dbname=db sslmode=require connect_timeout=60",
	} {
		p, err := OpenPostgres(dsn, PostgresOptions{})
		if err != nil {
			t.Errorf("%s: %v", dsn, err)
			continue
		}
		if limit := p.config.ConnConfig.ConnectTimeout; limit <= 0 || limit > postgresTimeout {
			t.Errorf("%s: connects within %v", dsn, limit)
		}
		must(t, p.Close())
	}
}

func TestPostgresHasAsManyConnectionsAsItMay(t *testing.T) {
	s := storetest.SharedPostgres(t)
	dsn := s.DSN(s.NewSchema(t))
	for given, want := range map[int32]int32{0: postgresMaxConns, 3: 3, 50: 50} {
		p := startPostgres(t, dsn, PostgresOptions{MaxConns: given})
		race(200, p.Accounts(), p.Accounts(), func(_ int, s record.Accounts) error {
			_, err := s.Endings(bg, record.Ending{}, 1)
			return err
		})
		if got := p.pool.Stat().TotalConns(); got > want {
			t.Errorf("MaxConns %d: %d connections", given, got)
		}
	}
}

// Two writers that want what the other one has already would wait for each
// other, were it not for the order of the locks.
func TestPostgresWritersNeverDeadlock(t *testing.T) {
	s := storetest.SharedPostgres(t)
	dsn := s.DSN(s.NewSchema(t))
	one, two := startPostgres(t, dsn, PostgresOptions{}).Accounts(), startPostgres(t, dsn, PostgresOptions{}).Accounts()
	var ids []int64
	for i := range 4 {
		ids = append(ids, create(t, one, plain("acme", fmt.Sprint(i))).ID)
	}
	before := strings.Count(s.Log(t), "deadlock detected")
	errs := race(600, one, two, func(i int, s record.Accounts) error {
		id, x, y := ids[i%4], fmt.Sprint("x", i%3), fmt.Sprint("y", i%5)
		if i%2 == 0 {
			x, y = y, x
		}
		switch i % 7 {
		case 0:
			return s.Accept(bg, "acme", id, []record.Acceptance{{Code: x, At: t0}, {Code: y, At: t0}})
		case 1:
			_, err := s.Update(bg, "acme", id, bind(record.Identity{Provider: i%2 + 1, Subject: x}))
			return err
		case 2:
			return s.SetPassword(bg, t0, "acme", id, 1, "h", record.TokenHash{})
		case 3:
			return s.SetBackupCodes(bg, "acme", id, []string{x, y})
		case 4:
			_, err := s.Create(bg, t0, record.Account{Company: "acme", Mnemocode: fmt.Sprint("new", i), Email: x, LoginName: y})
			return err
		case 5:
			if i > 500 {
				return s.Delete(bg, "acme", id)
			}
		}
		_, err := s.Update(bg, "acme", id, func(a *record.Account) (bool, error) {
			a.Email, a.LoginName, a.Identities = x, y, []record.Identity{{Provider: 1, Subject: x}, {Provider: 2, Subject: y}}
			if i%3 == 0 {
				a.Email, a.LoginName, a.Identities = "", "", nil
			}
			return true, nil
		})
		return err
	})
	for i, err := range errs {
		if err != nil && !record.IsAnswer(err) {
			t.Errorf("call %d: %v", i, err)
		}
	}
	if n := strings.Count(s.Log(t), "deadlock detected") - before; n > 0 {
		t.Errorf("%d deadlocks", n)
	}
}

func TestPostgresUpdatesThatRaceForALoginIDOrIdentity(t *testing.T) {
	s := storetest.SharedPostgres(t)
	dsn := s.DSN(s.NewSchema(t))
	one, two := startPostgres(t, dsn, PostgresOptions{}).Accounts(), startPostgres(t, dsn, PostgresOptions{}).Accounts()
	var ids []int64
	for i := range 40 {
		ids = append(ids, create(t, one, plain("acme", fmt.Sprint(i))).ID)
	}
	lost := func(err error) bool { return isA[*record.TakenError](err) || errors.Is(err, record.ErrConflict) }
	for round := range 10 {
		value := fmt.Sprint("wanted ", round)
		errs := race(40, one, two, func(i int, s record.Accounts) error {
			_, err := s.Update(bg, "acme", ids[i], func(a *record.Account) (bool, error) {
				a.Email = value
				return false, nil
			})
			return err
		})
		wantWinners(t, errs, 1, lost)
		identity := record.Identity{Provider: 1, Subject: value}
		errs = race(40, one, two, func(i int, s record.Accounts) error {
			if i%4 < 2 {
				_, err := s.Update(bg, "acme", ids[i], bind(identity))
				return err
			}
			_, err := s.Update(bg, "acme", ids[i], func(a *record.Account) (bool, error) {
				a.Identities = []record.Identity{identity}
				return false, nil
			})
			return err
		})
		wantWinners(t, errs, 1, lost)
	}
}
