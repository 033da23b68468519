package sqlite

import (
	"bytes"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"flag"
	"fmt"
	mathrand "math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	modernc "modernc.org/sqlite"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/store/causes"
	"github.com/mnemogate/mnemogate/store/recordtest"
	"github.com/mnemogate/mnemogate/store/sqlstore"
	"github.com/mnemogate/mnemogate/store/storetest"
)

// A sweep blocks all writes while it searches. However much has just expired, it
// reads no row that it does not delete.
func TestSQLiteSweepsLookAtNothingTheyLeave(t *testing.T) {
	s := startStore(t, tempFile(t))
	for query, want := range map[string]string{
		sweepSessions: "SEARCH sessions USING COVERING INDEX sessions_expires (expires>? AND expires<?)",
		sweepExpired:  "SEARCH sessions USING COVERING INDEX sessions_expired (ends<?)",
		`SELECT company FROM failures WHERE ` + sqlstore.StaleFailures: "SEARCH failures USING COVERING INDEX failures_unknown (changed<?)",
	} {
		steps := recordtest.SQLitePlan(t, s.file, query)
		wantEqual(t, query, steps[len(steps)-1], want)
	}
}

// A deleted account can't be read from the disk after the accounts were swept.
func TestSQLiteOverwritesWhatIsDeleted(t *testing.T) {
	const n = 400
	random := mathrand.New(mathrand.NewPCG(1, 2)) // the same numbers each time
	file := tempFile(t)
	s := startStore(t, file)
	accounts := map[int]int64{}
	for _, i := range random.Perm(n) {
		a := plain("acme", fmt.Sprintf("%08x", random.Uint32()))
		a.Email = fmt.Sprintf("%s-%d@example.com", []string{"kept", "gone"}[i%2], i)
		accounts[i] = get[int64](t)(s.Accounts().Create(bg, t0, a))
	}
	for _, i := range random.Perm(n) {
		if i%2 == 0 {
			continue
		}
		sess := session(fmt.Sprint("s@", accounts[i]), accounts[i], 1, record.CheckOTP)
		sess.Code = &record.Code{Phone: "gone-phone", Expires: t0.Add(time.Minute)}
		must(t, s.Sessions().Create(bg, t0, sess))
		must(t, s.Accounts().Delete(bg, "acme", accounts[i], nil))
		must(t, s.Sessions().End(bg, t0, record.Revocation{Company: "acme", Account: accounts[i], Generation: record.AllGenerations}))
	}
	must(t, s.Accounts().Sweep(bg, t0))
	kept := 0
	for _, name := range []string{file, file + "-wal", file + "-shm"} {
		content, err := os.ReadFile(name)
		must(t, err)
		kept += bytes.Count(content, []byte("kept-"))
		if n := bytes.Count(content, []byte("gone-")); n > 0 {
			t.Errorf("%s has what was deleted %d times", filepath.Base(name), n)
		}
	}
	if kept < n/2 {
		t.Errorf("only %d of what was kept are found so", kept)
	}
}

// A reader that does not finish blocks neither the sweep nor writers. The sweep
// reports it, and the next sweep catches up.
func TestSQLiteSweepsWhileSomeoneReads(t *testing.T) {
	s := startStore(t, tempFile(t))
	a := create(t, s.Accounts(), plain("acme", "m1"))
	reader, err := s.readers.BeginTx(bg, &sql.TxOptions{ReadOnly: true})
	must(t, err)
	must(t, reader.QueryRow("SELECT count(*) FROM accounts").Scan(new(int)))
	must(t, s.Accounts().Delete(bg, "acme", a.ID, nil))
	watch := storetest.StartWatch()
	wantErr(t, "a sweep while someone reads", s.Accounts().Sweep(bg, t0), errRead)
	if took := watch.Took(); took > 2*time.Second {
		t.Errorf("the sweep took %s", took)
	}
	create(t, s.Accounts(), plain("acme", "m2"))
	must(t, reader.Rollback())
	must(t, s.Accounts().Sweep(bg, t0))
	info, err := os.Stat(s.file + "-wal")
	must(t, err)
	wantEqual(t, "length of the log", info.Size(), 0)
}

// A check may read for as long as a backup. A sweep meanwhile leaves the log to the next one,
// which is no failure.
func TestSQLiteSweepsWhileACheckReads(t *testing.T) {
	s := startStore(t, tempFile(t))
	_, err := s.writers.Exec(`CREATE TABLE slow (a CHECK (held(a))); INSERT INTO slow VALUES (1)`)
	must(t, err)
	sweep := func() { must(t, s.Accounts().Sweep(bg, t0)) }
	whileChecking.Store(&sweep)
	defer whileChecking.Store(nil)
	must(t, s.Check(bg))
	if whileChecking.Load() != nil {
		t.Error("the check did not read the table")
	}
	sweep()
	info, err := os.Stat(s.file + "-wal")
	must(t, err)
	wantEqual(t, "length of the log", info.Size(), 0)
}

// whileChecking is called once when SQLite checks a row whose table calls held(a).
var whileChecking atomic.Pointer[func()]

func init() {
	modernc.MustRegisterScalarFunction("held", 1, func(*modernc.FunctionContext, []driver.Value) (driver.Value, error) {
		if f := whileChecking.Swap(nil); f != nil {
			(*f)()
		}
		return int64(1), nil
	})
}

// A disk that is about to be full is found even if the file is too large to be read in time.
func TestSQLiteCheckWritesFirst(t *testing.T) {
	s := startStore(t, tempFile(t))
	_, err := s.writers.Exec(`PRAGMA max_page_count = 1`) // it takes the present number at least
	must(t, err)
	s.checks <- struct{}{} // one that reads all the time
	ctx, cancel := context.WithTimeout(bg, 2*time.Second)
	defer cancel()
	if err := s.Check(ctx); err == nil || !strings.Contains(err.Error(), causes.NoSpace) {
		t.Errorf("got %v", err)
	}
}

var leftover = flag.Int("leftover", 20_000, "how many sessions TestSQLiteEndsAnyNumberOfSessionsAtOnce ends")

// However many sessions an account has, a revocation is effective when End returns. End deletes only as many rows as one write should; the sweep deletes the
// rest. With a million:
//
//	go test ./store -run AnyNumberOfSessions -v -leftover 1000000
func TestSQLiteEndsAnyNumberOfSessionsAtOnce(t *testing.T) {
	s := startStore(t, tempFile(t))
	sessions := s.Sessions()
	must(t, sessions.Create(bg, t0, session("alive", 1, 1, record.Authorized)))
	const many = `
		WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < ?1)
		INSERT INTO sessions (hash, id, company, account, mnemocode, login_id, generation, state, accepted, created, expires, ends, code_phone, code_expires)
		SELECT randomblob(32), n, 'acme', 1, 'm1', '', 1, 'checkpassword', '[]', ?2 + n, ?3, ?3, '', 0 FROM numbers`
	db := get[*sql.DB](t)(sql.Open("sqlite", dsn(s.file)))
	_, err := db.Exec(many, *leftover, record.Micros(t0), record.Micros(t0.Add(10*time.Minute)))
	must(t, errors.Join(err, db.Close()))
	if n := len(get[[]record.Session](t)(sessions.List(bg, t0, "acme", 1))); n != record.MaxSessions+1 {
		t.Errorf("%d sessions are listed", n)
	}
	left := func() (n int) {
		must(t, s.Reading(bg, func(ctx context.Context, q sqlstore.Queries) error {
			return q.Row(ctx, `SELECT count(*) FROM sessions INDEXED BY sessions_account WHERE company = 'acme'`).Scan(&n)
		}))
		return n
	}
	began := time.Now()
	must(t, sessions.End(bg, t0, record.Revocation{Company: "acme", Account: 1, Generation: 2}))
	t.Logf("End of %d sessions took %v", *leftover, time.Since(began))
	wantGone(t, sessions, "alive")
	wantEqual(t, "list", len(get[[]record.Session](t)(sessions.List(bg, t0, "acme", 1))), 0)
	wantEqual(t, "rows that End has left", left(), *leftover+1-clearChunk)
	must(t, sessions.Create(bg, t0, session("next", 1, 2, record.Authorized)))
	began = time.Now()
	must(t, sessions.Sweep(bg, t0))
	t.Logf("the sweep of the rest took %v", time.Since(began))
	wantEqual(t, "rows that the sweep has left", left(), 1)
	wantSession(t, sessions, session("next", 1, 2, record.Authorized))
}

// However late a sweep comes, it removes a revocation marker only after the sessions
// that it revokes.
func TestSQLiteForgetsNoEndingBeforeItsSessions(t *testing.T) {
	s := startStore(t, tempFile(t)).Sessions()
	long := func(i int) record.Session {
		sess := session(fmt.Sprint("long", i), 1, 1, record.Authorized)
		sess.Ends = t0.Add(record.LongestSession)
		sess.Expires = sess.Ends
		return sess
	}
	const many = 2*clearChunk + 1 // more than End deletes itself
	for i := range many {
		must(t, s.Create(bg, t0, long(i)))
	}
	must(t, s.End(bg, t0, record.Revocation{Company: "acme", Account: 1, Generation: 2}))
	must(t, s.Sweep(bg, t0.Add(40*24*time.Hour)))
	for i := range many {
		wantGone(t, s, fmt.Sprint("long", i))
	}
}

func TestSQLiteClearsACompanysSessionsInPieces(t *testing.T) {
	t.Parallel()
	s := startStore(t, t.TempDir()+"/m.db")
	sessions := s.Sessions()
	const many = 3*clearChunk + 7
	for i := range many {
		must(t, sessions.Create(bg, t0, session(fmt.Sprintf("old%d@%d", i, i%3+1), int64(i%3+1), 1, record.Authorized)))
		if i%10 == 0 {
			newer := session(fmt.Sprintf("new%d", i), 1, 1, record.Authorized)
			newer.CompanyGeneration = 1
			must(t, sessions.Create(bg, t0, newer))
			must(t, sessions.Create(bg, t0, session(fmt.Sprintf("elsewhere%d@other/1", i), 1, 1, record.Authorized)))
		}
	}
	rows := func() (n int) {
		must(t, s.readers.QueryRow(`SELECT count(*) FROM sessions`).Scan(&n))
		return n
	}
	const others = 2 * ((many + 9) / 10)
	must(t, sessions.End(bg, t0, record.Revocation{Company: "acme", Generation: 1}))
	wantEqual(t, "rows after End, which leaves them all", rows(), many+others)
	must(t, sessions.Sweep(bg, t0))
	wantEqual(t, "rows after the sweep", rows(), others)
	wantEqual(t, "the company's", len(get[[]record.Session](t)(sessions.List(bg, t0, "acme", 1))), others/2)
}
