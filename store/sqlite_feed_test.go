package store

import (
	"context"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/store/storetest"
)

// The feed flushes after commits of another process, but not after commits of this
// one. A closed store has no lease.
func TestSQLiteHearsOfOtherProcesses(t *testing.T) {
	file := filepath.Join(t.TempDir(), "feed.db")
	one, two := OpenSQLite(file), OpenSQLite(file)
	for _, s := range []*SQLite{one, two} {
		must(t, s.Start(bg))
		t.Cleanup(func() { _ = s.Close() })
	}
	feed := &recordedFeed{}
	ctx, cancel := context.WithCancel(bg)
	done := make(chan struct{})
	go func() {
		one.Run(ctx, feed)
		close(done)
	}()
	eventually(t, "trust", func() bool { return feed.trusted.Load() })
	flushes := feed.flushes.Load()

	must(t, one.Sessions().Create(bg, t0, session("own", 1, 1, record.Authorized)))
	must(t, one.Accounts().Sweep(bg, t0))
	time.Sleep(3 * feedEvery) // long enough for a flush, if there were one
	if n := feed.flushes.Load(); n != flushes {
		t.Errorf("the process's own commit or sweep flushed its memory (%d times)", n-flushes)
	}
	must(t, two.Sessions().Create(bg, t0, session("other", 1, 1, record.Authorized)))
	eventually(t, "a flush after another process's commit", func() bool { return feed.flushes.Load() > flushes })

	cancel()
	<-done
	if feed.trusted.Load() {
		t.Error("the feed ended and is still trusted")
	}
}

// The memory learns which session was revoked to make room before Create returns,
// because the next request may use that session.
func TestRoomIsToldBeforeCreateReturns(t *testing.T) {
	one, two := openServer(t, storetest.StartRedis(t)), startSQLite(t, tempFile(t))
	for name, s := range map[string]interface {
		Run(context.Context, record.Feed)
		Sessions() record.Sessions
	}{"redis": one, "sqlite": two} {
		feed := &recordedFeed{}
		ctx, cancel := context.WithCancel(bg)
		var running sync.WaitGroup
		running.Go(func() { s.Run(ctx, feed) })
		eventually(t, "trust", func() bool { return feed.trusted.Load() })
		first, second := session("first", 1, 1, record.Authorized), session("second", 1, 1, record.Authorized)
		second.Created, second.AtMost = t0.Add(time.Second), 1
		must(t, s.Sessions().Create(bg, t0, first))
		must(t, s.Sessions().Create(bg, t0, second))
		if _, told := feed.ended.Load(first.Hash); !told {
			t.Errorf("%s: Create has returned and the session that it ended is still remembered", name)
		}
		cancel()
		running.Wait()
	}
}

type recordedFeed struct {
	flushes atomic.Int64
	trusted atomic.Bool
	ended   sync.Map

	accounts atomic.Int64 // accounts whose sessions were revoked
}

func (f *recordedFeed) Ended(hash record.TokenHash) { f.ended.Store(hash, true) }
func (f *recordedFeed) EndedAll(record.Revocation)  { f.accounts.Add(1) }
func (f *recordedFeed) Flush()                      { f.flushes.Add(1) }
func (f *recordedFeed) SetLease(until time.Time)    { f.trusted.Store(!until.IsZero()) }

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	storetest.Eventually(t, 5*time.Second, what, is)
}
