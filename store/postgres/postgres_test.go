package postgres

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/session"
	"github.com/mnemogate/mnemogate/flows/typed"
	"github.com/mnemogate/mnemogate/store/redis"
	"github.com/mnemogate/mnemogate/store/storetest"
)

// openStore opens a store and closes it when the test ends.
func openStore(t testing.TB, dsn string, options Options) *Store {
	t.Helper()
	p, err := Open(dsn, options)
	must(t, err)
	t.Cleanup(func() { must(t, p.Close()) })
	return p
}

func startStore(t testing.TB, dsn string, options Options) *Store {
	t.Helper()
	p := openStore(t, dsn, options)
	storetest.Started(t, p.Start)
	return p
}

// If an account is deleted during the lookup, its login id belongs to nobody.
func TestPostgresFindsNoAccountThatIsGone(t *testing.T) {
	s := storetest.SharedPostgres(t)
	schema := s.NewSchema(t)
	accounts := startStore(t, s.DSN(schema), Options{}).Accounts()
	gone := create(t, accounts, someone("acme", "m1"))
	s.Exec(t, "SET session_replication_role = replica; DELETE FROM "+schema+fmt.Sprintf(".accounts WHERE id = %d", gone.ID))
	wantErr(t, "ByLoginID", second(accounts.ByLoginID(bg, "acme", typed.LoginID(gone.Email, ""), "")), record.ErrNotFound)
}

// Strings that are not valid UTF-8 are never found, and are not stored as other
// strings.
func TestPostgresStoresNoTextForAnother(t *testing.T) {
	s := storetest.SharedPostgres(t)
	p := startStore(t, s.DSN(s.NewSchema(t)), Options{})
	if _, err := p.Accounts().Create(bg, t0, plain("acme", "m\xff")); err == nil || record.IsAnswer(err) {
		t.Errorf("an account was stored whose mnemocode is no text: %v", err)
	}
}

func TestPostgresRefusesCallsUnlessOpen(t *testing.T) {
	s := storetest.SharedPostgres(t)
	p := openStore(t, s.DSN(s.NewSchema(t)), Options{})
	wantRefusedUnlessOpen(t, p, errNotOpen, p.Accounts(), nil)
}

func TestPostgresCloseWaitsForCallsInFlight(t *testing.T) {
	s := storetest.SharedPostgres(t)
	dsn := s.DSN(s.NewSchema(t))
	p := startStore(t, dsn, Options{})
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
	again := startStore(t, dsn, Options{})
	wantEqual(t, "role", get[record.Account](t)(again.Accounts().ByID(bg, "acme", a.ID)).Role, "r")
}

func TestPostgresNodesStartAtOnce(t *testing.T) {
	s := storetest.SharedPostgres(t)
	for range 3 {
		dsn := s.DSN(s.NewSchema(t))
		errs := race(10, dsn, dsn, func(_ int, dsn string) error {
			p := openStore(t, dsn, Options{})
			if err := p.Start(bg); err != nil {
				return err
			}
			return second(p.Accounts().Secrets(bg))
		})
		wantWinners(t, errs, 10, is(nil))
	}
}

// upgraded returns p with one more migration, as the next version has it.
func upgraded(t *testing.T, p *Store) *Store {
	t.Helper()
	next := fstest.MapFS{"migrations/999_next.sql": {Data: []byte(`ALTER TABLE history ADD COLUMN next text NOT NULL DEFAULT ''`)}}
	for _, name := range get[[]string](t)(fs.Glob(migrations, "migrations/*")) {
		next[name] = &fstest.MapFile{Data: get[[]byte](t)(migrations.ReadFile(name))}
	}
	p.migrations = next
	return p
}

// Behind a waiting change of a table, PostgreSQL makes all reads of the table wait, too.
func TestPostgresUpgradesOnlyOnceALongTransactionHasEnded(t *testing.T) {
	t.Parallel()
	server := storetest.SharedPostgres(t)
	dsn := server.DSN(server.NewSchema(t))
	startStore(t, dsn, Options{})
	const read = `SELECT FROM history`
	dump, old := get[*pgx.Conn](t)(pgx.Connect(bg, dsn)), get[*pgx.Conn](t)(pgx.Connect(bg, dsn))
	defer dump.Close(bg)
	defer old.Close(bg)
	tx := get[pgx.Tx](t)(dump.Begin(bg))
	get[pgconn.CommandTag](t)(tx.Exec(bg, read))

	p := upgraded(t, openStore(t, dsn, Options{}))
	for range 3 {
		started := make(chan error, 1)
		go func() { started <- p.Start(bg) }()
		for ended := false; !ended; {
			watch := storetest.StartWatch()
			if _, err := old.Exec(bg, read); err != nil || watch.Took() > 2*time.Second {
				t.Errorf("%v after %v", err, watch.Took())
			}
			select {
			case err := <-started:
				if !errors.Is(err, record.ErrUnreachable) {
					t.Errorf("Start: %v", err)
				}
				ended = true
			case <-time.After(20 * time.Millisecond):
			}
		}
	}
	must(t, tx.Commit(bg))
	storetest.Started(t, p.Start)
}

func TestPostgresTakesTablesOfANewerVersion(t *testing.T) {
	s := storetest.SharedPostgres(t)
	schema := s.NewSchema(t)
	startStore(t, s.DSN(schema), Options{})
	s.Exec(t, "SET search_path = "+schema,
		"ALTER TABLE accounts ADD COLUMN nickname text NOT NULL DEFAULT ''",
		"INSERT INTO mnemogate_migrations VALUES ('999_future.sql')")
	p := startStore(t, s.DSN(schema), Options{})
	a := create(t, p.Accounts(), someone("acme", "m1"))
	must(t, second(p.Accounts().Update(bg, "acme", a.ID, revoking)))
}

func TestPostgresStartsLaterWhereTheServerIsNotThereYet(t *testing.T) {
	t.Parallel()
	s := storetest.SharedPostgres(t)
	proxy := storetest.NewProxy(t, "unix", s.Socket())
	p := openStore(t, s.DSNThrough(proxy, s.NewSchema(t)), Options{})
	for _, begin := range []func(){proxy.Refuse, proxy.Blackhole, func() { proxy.Delay(3 * time.Second) }} {
		proxy.Heal()
		begin()
		began, stalled := time.Now(), storetest.WatchStalls()
		err := p.Start(bg)
		if took, stall := time.Since(began), stalled(); took > answerWithin+stall {
			t.Errorf("Start took %v", took)
		}
		wantErr(t, "Start", err, record.ErrUnreachable)
		wantErr(t, "Secret", second(p.Accounts().Secrets(bg)), errNotOpen)
	}
	proxy.Heal()
	storetest.Started(t, p.Start)
	must(t, second(p.Accounts().Secrets(bg)))
}

func TestPostgresStartTellsRefusalsFromAbsence(t *testing.T) {
	s := storetest.SharedPostgres(t)
	schema := s.NewSchema(t) // its name makes others unique: with -count 2, the server lives on
	s.Exec(t, "CREATE ROLE nobody_"+schema+" LOGIN", "CREATE DATABASE latin_"+schema+" ENCODING 'LATIN1' TEMPLATE template0",
		"REVOKE CREATE ON SCHEMA public FROM PUBLIC") // as from PostgreSQL 15 on
	dsn := func(rest string) string { return "host=" + s.Dir() + " sslmode=disable " + rest }
	for rest, want := range map[string]string{
		"user=postgres dbname=none":                     `database "none" does not exist`,
		"user=stranger dbname=postgres":                 `role "stranger" does not exist`,
		"user=nobody_" + schema + " dbname=postgres":    "permission denied",
		"user=postgres dbname=latin_" + schema:          "ENCODING 'UTF8'",
		"user=postgres dbname=postgres search_path=gap": "no schema has been selected",
		"user=postgres dbname=postgres sslmod=require":  "sslmod",
	} {
		err := openStore(t, dsn(rest), Options{}).Start(bg)
		if err == nil || errors.Is(err, record.ErrUnreachable) || !strings.Contains(err.Error(), want) {
			t.Errorf("Start with %s: got error %v, want one with %q that is not record.ErrUnreachable", rest, err, want)
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
		"postgres://u:hunter2@10.0.0.1?sslmode=prefer":                                                      "10.0.0.1",
		"postgres://u:hunter2@localhost,h/db":                                                               "connection to h ",
		"postgres://u:hunter2@h?sslmode=sometimes":                                                          "sslmode is invalid",
		"postgres://u:hunter2@h:none/db":                                                                    "port",
		"postgres://u:hunter2@h/db?sslmode=verify-full&sslrootcert=/gone":                                   "/gone",
		"postgres://u:hunter2@h/db?sslmode=disable&connect_timeout=soon":                                    "connect_timeout",
		"postgres://u:hunter2@h/db?sslmode=disable&pool_max_conns=many":                                     "pool_max_conns",
		"postgres://u:hunter2@h/db?sslmode=disable&target_session_attrs=no":                                 "target_session_attrs",
		"postgres://u:hunter2%zz@h/db":                                                                      "failed to parse as URL",
		"postgres://u:1/hunter2@h/db?sslmode=disable":                                                       "special characters",
		"postgres://u:hunter2/x@h/db?sslmode=disable":                                                       "port",
		"host=h user=u password=not hunter2 sslmode=disable":                                                "keyword/value",
		"host=h user=u password='hunter2 sslmode=disable":                                                   "keyword/value",
		"postgres://u:hunter2@h/db?sslmode=disable&keepalives=1":                                            "parameter keepalives is for other clients of PostgreSQL: leave it out",
		"postgres://u:hunter2@h/db?sslmode=disable&gssencmode=disable":                                      "parameter gssencmode",
		"postgres://u:hunter2@h/db?sslmode=disable&load_balance_hosts=on":                                   "parameter load_balance_hosts",
		"host=h user=u password=hunter2 sslmode=disable sslcompression=0":                                   "parameter sslcompression",
		"postgres://u:hunter2@h/db?sslmode=disable&pgbouncer=true":                                          "parameter pgbouncer",
		"postgres://u:hunter2@h/db?sslmode=disable&connection_limit=5":                                      "parameter connection_limit",
		"postgres://u:hunter2@h/db?sslmode=disable&pool_max_conns=5":                                        "write max_conns 5 ",
		"postgres://u:hunter2@h/db?sslmode=disable&pool_max_conn_idle_time=1m":                              "pool_max_conn_idle_time has no effect",
		"host=h user=u sslmode=disable statement_cache_capacity=0":                                          "statement_cache_capacity",
		"host=h user=u sslmode=disable default_query_exec_mode=cache_describe description_cache_capacity=0": "description_cache_capacity",
		"mysql://u:hunter2@h/db":                                                                            "keyword/value",
		secret:                                                                                              "keyword/value",
	} {
		_, err := Open(dsn, Options{})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got error %v, want one with %q", dsn, err, want)
		} else if strings.Contains(err.Error(), secret) {
			t.Errorf("%s: error tells the secret: %v", dsn, err)
		}
	}
	if _, err := Open("postgres://localhost/db", Options{MaxConns: -1}); err == nil {
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
		"postgres://localhost/db?default_query_exec_mode=exec&statement_cache_capacity=0",
		"postgres://localhost/db?application_name=a&options=-csearch_path%3Dx&synchronous_commit=on&channel_binding=prefer",
	} {
		p, err := Open(dsn, Options{})
		if err != nil {
			t.Errorf("%s: %v", dsn, err)
			continue
		}
		if limit := p.config.ConnConfig.ConnectTimeout; limit <= 0 || limit > timeout {
			t.Errorf("%s: connects within %v", dsn, limit)
		}
		must(t, p.Close())
	}
}

func TestPostgresHasAsManyConnectionsAsItMay(t *testing.T) {
	s := storetest.SharedPostgres(t)
	dsn := s.DSN(s.NewSchema(t))
	for given, want := range map[int32]int32{0: maxConns, 3: 3, 50: 50} {
		p := startStore(t, dsn, Options{MaxConns: given})
		storetest.InQuiet(t, 200*time.Millisecond, func() error {
			return errors.Join(callers(200, 100, p.Accounts(), p.Accounts(), func(_ int, s record.Accounts) error { return second(s.PendingRevocations(bg, record.Revocation{}, 1)) })...)
		})
		if got := p.pool.Stat().TotalConns(); got > want || got < want/2 {
			t.Errorf("MaxConns %d: %d connections", given, got)
		}
	}
}

// The keys of an account that moves are not all known before it is loaded. An account that is
// created meanwhile with one of its login ids still waits, and then finds it taken.
func TestAnAccountThatMovesKeepsItsLoginIDs(t *testing.T) {
	s := storetest.SharedPostgres(t)
	dsn := s.DSN(s.NewSchema(t))
	p, other := startStore(t, dsn, Options{}), startStore(t, dsn, Options{})
	a := create(t, p.Accounts(), record.Account{
		Company: "old", Mnemocode: "m1", Status: record.StatusActive, LoginName: "60012345", Storing: record.Storing{PhoneRegion: "LT"},
	})
	must(t, p.Accounts().AddDevice(bg, "old", a.ID, device("d"), ""))
	locker, err := other.pool.Acquire(bg)
	must(t, err)
	defer locker.Release()
	tx := get[pgx.Tx](t)(locker.Begin(bg))
	must(t, second(tx.Exec(bg, "SELECT FROM devices FOR UPDATE")))
	results := make(chan error, 2)
	begin := func(waiting int, call func() error) {
		go func() { results <- call() }()
		storetest.Eventually(t, 10*time.Second, "a call that waits", func() (is bool) {
			must(t, other.pool.QueryRow(bg, "SELECT count(*) = $1 FROM pg_stat_activity WHERE cardinality(pg_blocking_pids(pid)) > 0", waiting).Scan(&is))
			return is
		})
	}
	begin(1, func() error { return p.Accounts().MoveAccount(bg, "old", a.ID, "new", func(*record.Account) {}) })
	begin(2, func() error {
		return second(p.Accounts().Create(bg, t0, record.Account{Company: "new", Mnemocode: "m2", Status: record.StatusActive, Phone: "+37060012345"}))
	})
	must(t, tx.Rollback(bg))
	wantWinners(t, []error{<-results, <-results}, 1, func(err error) bool {
		_, taken := errors.AsType[*record.TakenError](err)
		return taken
	})
	wantEqual(t, "the owner", get[record.Account](t)(p.Accounts().ByLoginID(bg, "new", "+37060012345", "")).ID, a.ID)
}

// Without the order of the locks, two writers that want each other's values would
// deadlock.
func TestPostgresWritersNeverDeadlock(t *testing.T) {
	s := storetest.SharedPostgres(t)
	dsn := s.DSN(s.NewSchema(t))
	one, two := startStore(t, dsn, Options{}).Accounts(), startStore(t, dsn, Options{}).Accounts()
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
			return second(s.Update(bg, "acme", id, bind(record.Identity{Provider: i%2 + 1, Subject: x})))
		case 2:
			return s.SetPassword(bg, t0, record.Account{Company: "acme", ID: id, Generation: t0.Unix()}, "h", record.TokenHash{})
		case 3:
			a, err := s.ByID(bg, "acme", id)
			if err != nil {
				return err
			}
			return s.SetBackupCodes(bg, a, []string{x, y})
		case 4:
			return second(s.Create(bg, t0, record.Account{Company: "acme", Mnemocode: fmt.Sprint("new", i), Email: x, LoginName: y}))
		case 5:
			if i > 500 {
				return s.Delete(bg, "acme", id, nil)
			}
			return second(s.NewCompanyGeneration(bg, "acme"))
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

// A call that the server rolled back, as after a deadlock, is made again.
func TestPostgresRepeatsWhatWasRolledBack(t *testing.T) {
	s := storetest.SharedPostgres(t)
	schema := s.NewSchema(t)
	accounts := startStore(t, s.DSN(schema), Options{MaxConns: 1}).Accounts()
	subject, device := record.FailureKey{Company: "acme"}, record.Device{}
	for table, call := range map[string]func(a record.Account) error{
		"accounts": func(a record.Account) error { return second(accounts.Update(bg, "acme", a.ID, revoking)) },
		"pending_revocations": func(a record.Account) error { // the last statement before the commit
			return accounts.SetPassword(bg, t0, a, "hash", record.TokenHash{})
		},
		"failures": func(record.Account) error { return accounts.UpdateFailures(bg, t0, subject, record.WrongCodes, add(1)) },
		"devices": func(a record.Account) error {
			device.Hash[0]++
			return accounts.AddDevice(bg, "acme", a.ID, device, "")
		},
		"history": func(a record.Account) error {
			return accounts.Record(bg, []record.Event{{Name: "e", Time: t0, Company: "acme", Account: a.ID}})
		},
	} {
		t.Run(table, func(t *testing.T) {
			a := create(t, accounts, plain("acme", table))
			must(t, call(a)) // prepares the statements
			a = get[record.Account](t)(accounts.ByID(bg, "acme", a.ID))
			s.Exec(t, "SET search_path = "+schema,
				"CREATE SEQUENCE tries_"+table, // not rolled back
				"CREATE FUNCTION fail_"+table+"() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF nextval('"+schema+".tries_"+table+
					"') = 1 THEN RAISE serialization_failure; END IF; RETURN NEW; END $$",
				"CREATE TRIGGER fail BEFORE INSERT OR UPDATE ON "+table+" FOR EACH ROW EXECUTE FUNCTION fail_"+table+"()")
			must(t, call(a))
		})
	}
}

// A node whose clock is a month ahead does not delete what the other nodes still need.
func TestPostgresIsSweptByItsOwnClock(t *testing.T) {
	s := storetest.SharedPostgres(t)
	p := startStore(t, s.DSN(s.NewSchema(t)), Options{})
	accounts := p.Accounts()
	a := create(t, accounts, plain("acme", "a"))
	fresh, old := happened(a, 1, quiet), happened(a, 2, quiet)
	fresh.Time, old.Time = time.Now().Add(-24*time.Hour).Truncate(time.Microsecond).UTC(), time.Now().Add(-31*24*time.Hour)
	must(t, accounts.Record(bg, []record.Event{fresh, old}))
	known, expired := device("known"), device("expired")
	known.Expires, expired.Expires = time.Now().Add(time.Hour), time.Now().Add(-time.Hour)
	must(t, accounts.AddDevice(bg, "acme", a.ID, known, ""))
	must(t, accounts.AddDevice(bg, "acme", a.ID, expired, ""))
	manager := session.New(&session.Config{
		Accounts: accounts, History: accounts, AuditKeep: 30 * 24 * time.Hour,
		Sessions: get[*redis.Store](t)(redis.Open(redis.Options{URLs: []string{"redis://localhost"}})).Sessions(), // Redis needs no sweep
		Now:      func() time.Time { return time.Now().Add(31 * 24 * time.Hour) },
		Clock:    p.Clock, Log: slog.New(slog.DiscardHandler),
	})
	manager.Sweep(bg)
	wantEqual(t, "history", recorded(t, accounts, a, 10), []record.Event{fresh})
	wantEqual(t, "devices", namesOf(get[[]record.Device](t)(accounts.Devices(bg, "acme", a.ID))), []string{known.ID})
}

// The database of a running node was replaced.
func TestPostgresTellsThatTheTablesAreGone(t *testing.T) {
	s := storetest.SharedPostgres(t)
	schema := s.NewSchema(t)
	p := startStore(t, s.DSN(schema), Options{})
	for _, change := range []string{`ALTER TABLE %s.accounts RENAME COLUMN email TO mail`, `DROP SCHEMA %s CASCADE`} {
		s.Exec(t, fmt.Sprintf(change, schema))
		_, err := p.Accounts().ByID(bg, "acme", 1)
		if err == nil || record.IsAnswer(err) || !strings.Contains(err.Error(), "; these are not the tables that this node started with") {
			t.Errorf("after %s: got %v", change, err)
		}
	}
}

func TestPostgresTellsThatConnectionsAreEnded(t *testing.T) {
	err := explain(&pgconn.PgError{Code: "57P05", Message: "terminating connection due to idle-session timeout"}, "mnemogate")
	if !strings.Contains(err.Error(), "; its idle_session_timeout is too short") {
		t.Errorf("got %v", err)
	}
}

// A role that may not create tables is told which statement it lacks.
func TestPostgresTellsWhichGrantIsMissing(t *testing.T) {
	s := storetest.SharedPostgres(t)
	schema := s.NewSchema(t)
	role := fmt.Sprintf("%q", "Gran"+schema)
	s.Exec(t, `CREATE ROLE `+role+` LOGIN`)
	open := func() *Store {
		return openStore(t, "host="+s.Dir()+" sslmode=disable user=Gran"+schema+" dbname=postgres search_path="+schema, Options{})
	}
	start := func() error { return open().Start(bg) }
	grant := `GRANT USAGE, CREATE ON SCHEMA %s TO ` + role
	if err := start(); err == nil || !strings.Contains(err.Error(), fmt.Sprintf(grant, "<schema>")) {
		t.Errorf("without any right: got %v", err)
	}
	s.Exec(t, `GRANT USAGE ON SCHEMA `+schema+` TO `+role)
	err := start()
	if err == nil || !strings.HasSuffix(err.Error(), fmt.Sprintf(grant, `"`+schema+`"`)) {
		t.Fatalf("without CREATE: got %v", err)
	}
	_, statement, _ := strings.Cut(err.Error(), "run: ")
	s.Exec(t, statement)
	p := open()
	storetest.Started(t, p.Start)
	for _, change := range []struct{ take, give, want string }{ // of a node that runs
		{`REVOKE SELECT ON ALL TABLES IN SCHEMA ` + schema + ` FROM ` + role, `GRANT ALL ON ALL TABLES IN SCHEMA ` + schema + ` TO ` + role, `GRANT ALL ON <table> TO ` + role},
		{`REVOKE ALL ON SCHEMA ` + schema + ` FROM ` + role, statement, `if they are there, give its role USAGE and CREATE on their schema again`},
	} {
		s.Exec(t, change.take)
		if _, err := p.Accounts().ByID(bg, "acme", 1); err == nil || record.IsAnswer(err) || !strings.Contains(err.Error(), change.want) {
			t.Errorf("after %s: got %v", change.take, err)
		}
		s.Exec(t, change.give)
		if _, err := p.Accounts().ByID(bg, "acme", 1); !errors.Is(err, record.ErrNotFound) {
			t.Errorf("after %s: got %v", change.give, err)
		}
	}
	s.Exec(t, `ALTER TABLE `+schema+`.history OWNER TO postgres`)
	if err := upgraded(t, open()).Start(bg); err == nil || !strings.Contains(err.Error(), `OWNER TO `+role) {
		t.Errorf("with the tables of another: got %v", err)
	}
}

// An old primary that comes back without pg_rewind takes writes again.
func TestPostgresTellsOfTwoServersThatTakeWrites(t *testing.T) {
	t.Parallel()
	s := storetest.OwnPostgres(t, "wal_level=replica", "max_wal_senders=3")
	standby := s.Replica(t)
	at := func(all ...*storetest.Postgres) string {
		var hosts, ports []string
		for _, one := range all {
			hosts, ports = append(hosts, filepath.Dir(one.Socket())), append(ports, fmt.Sprint(one.Port))
		}
		return s.DSN("public") + " host=" + strings.Join(hosts, ",") + " port=" + strings.Join(ports, ",")
	}
	two := func(dsn string) (told bool) {
		t.Helper()
		for _, f := range get[[]record.Fault](t)(startStore(t, dsn, Options{}).Faults(bg)) {
			told = told || strings.HasPrefix(f.What, "several servers accept writes, at ")
		}
		return told
	}
	wantEqual(t, "with a standby", two(at(s, standby)), false)
	standby.Exec(t, "SELECT pg_promote()")
	wantEqual(t, "with two primaries", two(at(s, standby)), true)
	wantEqual(t, "with two addresses of one", two(at(s, s)), false)
}
