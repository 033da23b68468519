package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/store/sqlstore"
)

func TestSQLiteWritesThatFailHarmNoOthers(t *testing.T) {
	s := startStore(t, tempFile(t))
	refused := errors.New("refused")
	create := func(ctx context.Context, tx *queries, i int) error {
		return tx.storeSession(ctx, session(fmt.Sprint(i), 1, 1, record.Authorized))
	}
	errs := race(200, s, s, func(i int, s *Store) error {
		return s.write(bg, func(ctx context.Context, tx *queries) error {
			if err := create(ctx, tx, i); err != nil {
				return err
			}
			switch i % 4 {
			case 1:
				return refused
			case 2:
				panic("a secret")
			case 3:
				return second(tx.Exec(ctx, `INSERT INTO revocations (company) VALUES (NULL)`))
			}
			return nil
		})
	})
	for i, err := range errs {
		_, notFound := s.Sessions().Get(bg, hash(fmt.Sprint(i)))
		if (err == nil) != (i%4 == 0) || (notFound == nil) != (i%4 == 0) {
			t.Errorf("write %d: error %v; session: %v", i, err, notFound)
		}
		if err != nil && strings.Contains(err.Error(), "a secret") {
			t.Errorf("error tells the panic's value: %v", err)
		}
	}
}

func TestSQLiteSurvivesALostTransaction(t *testing.T) {
	s := startStore(t, tempFile(t))
	other := startStore(t, s.file)
	// Without the store's knowledge, each of these statements removes its savepoint.
	for _, statement := range []string{`ROLLBACK`, `RELEASE op`} {
		err := s.write(bg, func(ctx context.Context, tx *queries) error {
			if err := tx.storeSession(ctx, session("lost", 1, 1, record.CheckOTP)); err != nil {
				return err
			}
			return second(tx.Exec(ctx, statement))
		})
		if err == nil {
			t.Errorf("after %s, all is said to be committed", statement)
		}
		wantGone(t, other.Sessions(), "lost")
		must(t, other.Sessions().Create(bg, t0, session("other "+statement, 1, 1, record.CheckOTP)))
		must(t, s.Sessions().Create(bg, t0, session(statement, 1, 1, record.CheckOTP)))
	}
	err := s.write(bg, func(ctx context.Context, tx *queries) error {
		_, err := tx.Exec(ctx, `ROLLBACK`)
		return errors.Join(err, record.ErrConflict)
	})
	if err = sqlstore.Call(bg, s, "testing", func() error { return err }); record.IsAnswer(err) {
		t.Errorf("got error %v, an answer that comes from a lost transaction", err)
	}
}

func TestSQLiteGivesUpOnlyWritesThatHaveNotBegun(t *testing.T) {
	s := startStore(t, tempFile(t))
	ctx, cancel := context.WithCancel(bg)
	begun, finish, dropped := make(chan bool), make(chan bool), make(chan error)
	slow := make(chan error)
	go func() {
		slow <- s.write(ctx, func(ctx context.Context, tx *queries) error {
			begun <- true
			<-finish
			return tx.storeSession(ctx, session("slow", 1, 1, record.CheckOTP))
		})
	}()
	<-begun
	go func() {
		dropped <- s.write(ctx, func(ctx context.Context, tx *queries) error {
			t.Error("a write was begun after its caller had gone")
			return nil
		})
	}()
	cancel()
	wantErr(t, "the write that waited", <-dropped, context.Canceled)
	close(finish)
	must(t, <-slow)
	must(t, second(s.Sessions().Get(bg, hash("slow"))))
}

// Callers that only look at counters do not queue with writers.
func TestSQLiteLooksAtCountersWhileSomeoneWrites(t *testing.T) {
	s := startStore(t, tempFile(t))
	a := create(t, s.Accounts(), plain("acme", "m1"))
	counter := record.Counter{Key: "k", Limit: 1, Window: time.Hour}
	_, err := s.Accounts().Update(bg, "acme", a.ID, func(*record.Account) (bool, error) {
		ctx, cancel := context.WithTimeout(bg, 5*time.Second)
		defer cancel()
		return false, s.Sessions().Charge(ctx, t0, record.CheckOnly(counter)...)
	})
	must(t, err)
}

func TestSQLiteCloseWaitsForCallsInFlight(t *testing.T) {
	s := startStore(t, tempFile(t))
	errs := make(chan error, 100)
	for i := range 100 {
		go func() { errs <- s.Sessions().Create(bg, t0, session(fmt.Sprint(i), 1, 1, record.CheckOTP)) }()
	}
	must(t, <-errs)
	must(t, s.Close())
	stored := 1
	for range 99 {
		err := <-errs
		switch {
		case err == nil:
			stored++
		case !errors.Is(err, errNotOpen):
			t.Errorf("a call during Close: %v", err)
		}
	}
	again := startStore(t, s.file)
	left := get[[]record.Session](t)(again.Sessions().List(bg, t0, "acme", 1))
	wantEqual(t, "sessions", len(left), stored)
}

func TestSQLiteWaitsForAnotherProcess(t *testing.T) {
	file := tempFile(t)
	s := startStore(t, file)
	db, err := sql.Open("sqlite", dsn(file))
	must(t, err)
	defer db.Close()
	tx, err := db.Begin()
	must(t, err)
	done := make(chan error, 1)
	go func() { done <- s.Sessions().Create(bg, t0, session("a", 1, 1, record.CheckOTP)) }()
	wantGone(t, s.Sessions(), "a") // reads still work
	must(t, tx.Rollback())
	must(t, <-done)
}

// SQLite opens a file that Caddy may only read, and refuses its first write.
func TestSQLiteSaysWhoseAFileIsThatItMayOnlyRead(t *testing.T) {
	db, err := sql.Open("sqlite", strings.Replace(dsn(startStore(t, tempFile(t)).file), "mode=rw", "mode=ro", 1))
	must(t, err)
	defer db.Close()
	_, err = db.Exec(`DELETE FROM accounts`)
	if err := explain(err); !strings.Contains(err.Error(), "if Caddy may not write the file, "+stepOwner) {
		t.Errorf("got %v", err)
	}
}

// A disk that is stuck keeps the writing goroutine. The writes wait for it only for a while,
// and none whose function may still run returns.
func TestSQLiteWritesDoNotWaitForAStuckDisk(t *testing.T) {
	s := startStore(t, tempFile(t))
	before := stall
	stall = 200 * time.Millisecond
	t.Cleanup(func() { stall = before })
	free := make(chan struct{})
	t.Cleanup(func() { close(free) })
	stuck := &op{run: func(context.Context, *queries) error { <-free; return nil }, ran: make(chan struct{}), done: make(chan error, 1)}
	s.ops <- stuck
	nothing := func(context.Context, *queries) error { t.Error("it ran"); return nil }
	if err := s.write(bg, nothing); err != errStalled {
		t.Errorf("behind it: %v", err)
	}
	if err := s.call(bg, "", nothing); !strings.Contains(err.Error(), "look at its disk") {
		t.Errorf("it does not say what to do: %v", err)
	}

	committing := &Store{file: s.file, opened: s.opened, phase: phaseOpen, ops: make(chan *op)}
	go func() {
		o := <-committing.ops
		o.claimed.Store(true)
		time.Sleep(2 * stall)
		o.err = o.run(bg, nil)
		close(o.ran)
	}()
	ran := false
	err := committing.write(bg, func(context.Context, *queries) error { ran = true; return nil })
	if err != errStalled || !ran {
		t.Errorf("in the commit: %v, ran: %v", err, ran)
	}
}

// If another program holds the lock, whoever waits behind the writes that failed is told so, too.
func TestSQLiteTellsWhoHoldsTheLock(t *testing.T) {
	t.Parallel()
	s := startStore(t, tempFile(t))
	other := get[*sql.DB](t)(sql.Open("sqlite", dsn(s.file)))
	defer other.Close()
	holds := get[*sql.Tx](t)(other.Begin()) // immediate: see dsn
	defer holds.Rollback()
	for _, wait := range []time.Duration{time.Minute, 10 * time.Millisecond} {
		ctx, cancel := context.WithTimeout(bg, wait)
		defer cancel()
		if _, err := s.Accounts().Create(ctx, t0, plain("acme", "a")); err == nil || !strings.Contains(err.Error(), stepLocked) {
			t.Errorf("it waits %s: %v", wait, err)
		}
	}
	must(t, holds.Rollback())
	create(t, s.Accounts(), plain("acme", "a"))
}
