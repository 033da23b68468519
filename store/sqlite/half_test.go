package sqlite

import (
	"context"
	"database/sql"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/store/sqlstore"
	"github.com/mnemogate/mnemogate/store/storetest"
)

func TestYieldingCallsLeaveHalfOfTheSQLiteReaders(t *testing.T) {
	s := startStore(t, tempFile(t))
	var running atomic.Int32
	release := make(chan struct{})
	var calls sync.WaitGroup
	for range 20 {
		calls.Go(func() {
			_ = s.Reading(record.Yielding(bg), func(context.Context, sqlstore.Queries) error {
				running.Add(1)
				<-release
				return nil
			})
		})
	}
	storetest.Eventually(t, 10*time.Second, "calls that read", func() bool { return running.Load() == readConns/2 })
	time.Sleep(100 * time.Millisecond)
	wantEqual(t, "calls that read", running.Load(), int32(readConns/2))
	must(t, s.Reading(bg, func(context.Context, sqlstore.Queries) error { return nil }))
	close(release)
	calls.Wait()
	wantEqual(t, "calls that read", running.Load(), int32(20))
}

// A disk that is stuck keeps the calls that read. Others give up.
func TestSQLiteReadsDoNotWaitForAStuckDisk(t *testing.T) {
	s := startStore(t, tempFile(t))
	before := stall
	t.Cleanup(func() { stall = before })
	running, free := make(chan bool), make(chan bool)
	var calls sync.WaitGroup
	for range readConns {
		calls.Go(func() {
			_ = s.Reading(bg, func(context.Context, sqlstore.Queries) error {
				running <- true
				<-free
				return nil
			})
		})
		<-running
	}
	nothing := func(context.Context, sqlstore.Queries) error { t.Error("it ran"); return nil }
	ctx, cancel := context.WithTimeout(bg, 50*time.Millisecond)
	defer cancel()
	wantErr(t, "a call with less time", s.Reading(ctx, nothing), context.DeadlineExceeded)
	stall = 200 * time.Millisecond
	wantErr(t, "a call behind them", s.Reading(bg, nothing), errStalled)
	wantErr(t, "Close", s.Close(), errStalled)
	close(free)
	calls.Wait()
	must(t, s.Close())
}

// Checks of a large file take minutes. They take no reader, however many are asked for.
func TestSQLiteChecksTakeNoReader(t *testing.T) {
	s := startStore(t, tempFile(t))
	s.checks <- struct{}{} // one that is under way
	ctx, cancel := context.WithCancel(bg)
	waiting := make(chan error)
	for range readConns + 1 {
		go func() { waiting <- s.Check(ctx) }()
	}
	select {
	case err := <-waiting:
		t.Errorf("a second check: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	must(t, s.Reading(bg, func(context.Context, sqlstore.Queries) error { return nil }))
	cancel()
	for range readConns + 1 {
		wantErr(t, "a check whose client is gone", <-waiting, context.Canceled)
	}
	<-s.checks
	for range readConns {
		conn := get[*sql.Conn](t)(s.readers.Conn(bg))
		defer conn.Close()
	}
	wantErr(t, "a check beside readers", s.Check(bg), nil)
}
