package store

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/store/storetest"
)

// A tape records the calls of a feed.
type tape struct {
	mu       sync.Mutex
	ended    map[record.TokenHash]time.Time
	accounts []record.Revocation
	flushes  int
	until    time.Time
	leased   bool // until the lease is ended; it may be over
	flushed  bool // since the lease was last extended
	unsound  atomic.Bool
	panics   atomic.Bool // in Ended
}

func (f *tape) Ended(h record.TokenHash) {
	if f.panics.Load() {
		panic("hunter2")
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ended == nil {
		f.ended = map[record.TokenHash]time.Time{}
	}
	f.ended[h] = time.Now()
}

func (f *tape) EndedAll(e record.Revocation) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.accounts = append(f.accounts, e)
}

func (f *tape) Flush() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.flushes++
	f.flushed = true
}

func (f *tape) SetLease(until time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if until.IsZero() {
		f.leased = false
	} else if time.Now().Before(until) {
		if !f.leased && !f.flushed {
			f.unsound.Store(true)
		}
		f.leased, f.flushed = true, false
	}
	f.until = until
}

func (f *tape) trusted() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return time.Now().Before(f.until)
}

// lookedAt reports whether the lease is that of a look at the store after a time.
func (f *tape) lookedAt(after time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.until.After(after.Add(feedLease))
}

func (f *tape) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.flushes
}

func (f *tape) hears(h record.TokenHash) bool { return !f.heardAt(h).IsZero() }

func (f *tape) heardAt(h record.TokenHash) time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.ended[h]
}

func (f *tape) hearsAccount(e record.Revocation) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, heartbeatReturned := range f.accounts {
		if heartbeatReturned == e {
			return true
		}
	}
	return false
}

// listenTo runs a feed until the test ends. It returns when the feed has a lease.
func listenTo(t *testing.T, r interface {
	Run(context.Context, record.Feed)
}) *tape {
	t.Helper()
	f := &tape{}
	ctx, cancel := context.WithCancel(bg)
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.Run(ctx, f)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
		if f.trusted() {
			t.Error("a feed that has ended is trusted")
		}
		if f.unsound.Load() {
			t.Error("the feed was trusted again without having been flushed")
		}
	})
	eventually(t, "trust", f.trusted)
	return f
}

func TestRedisTellsWhatEnds(t *testing.T) {
	for name, open := range map[string]func(t *testing.T) *Redis{
		"one server": func() func(t *testing.T) *Redis {
			var s *storetest.Redis
			return func(t *testing.T) *Redis {
				if s == nil {
					s = storetest.StartRedis(t)
				}
				return openServer(t, s)
			}
		}(),
		"cluster": func(t *testing.T) *Redis { return openRedis(t, RedisOptions{URLs: storetest.SharedCluster(t).URLs()}) },
		"sentinel": func(t *testing.T) *Redis {
			f := storetest.SharedFailover(t)
			return openRedis(t, RedisOptions{URLs: []string{f.Sentinel.URL()}, SentinelMaster: storetest.MasterName, WaitReplicas: 1})
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := listenTo(t, open(t))
			other := open(t).Sessions()
			for run := range int64(3) { // repeat, as a busy machine may delay heartbeats
				if tellsWhatEnds(t, f, other, 100*run) {
					return
				}
				eventually(t, "trust", f.trusted)
			}
			t.Error("the feed was flushed, or is not trusted, without need")
		})
	}
}

// tellsWhatEnds revokes sessions in every way, on accounts of many buckets. It
// reports whether the feed had its lease all the time.
func tellsWhatEnds(t *testing.T, f *tape, other record.Sessions, first int64) bool {
	t.Helper()
	flushes := f.count()
	var slowest time.Duration
	hears := func(what string, hash record.TokenHash, since time.Time) {
		t.Helper()
		eventually(t, what, func() bool { return f.hears(hash) })
		slowest = max(slowest, f.heardAt(hash).Sub(since))
	}
	for account := first; account < first+30; account++ {
		name := func(s string) string { return fmt.Sprintf("%s@%d", s, account+1) }
		for _, s := range []string{"a", "b", "c"} {
			must(t, other.Create(bg, t0, session(name(s), account+1, 1, record.Authorized)))
		}
		now := time.Now()
		must(t, other.Delete(bg, hash(name("a"))))
		hears("a deleted session", hash(name("a")), now)
		now = time.Now()
		must(t, other.Replace(bg, t0, hash(name("b")), record.Authorized, session(name("d"), account+1, 1, record.Authorized)))
		hears("a replaced session", hash(name("b")), now)
		expired := session(name("e"), account+1, 1, record.Authorized)
		must(t, other.Create(bg, t0, expired))
		now = time.Now()
		must(t, other.Expire(bg, expired.Expires, expired.Hash))
		hears("a session that was seen expired", expired.Hash, now)
		must(t, other.Create(bg, t0, session(name("l"), account+1, 1, record.MailedLink)))
		now = time.Now()
		must(t, other.Create(bg, t0, session(name("m"), account+1, 1, record.MailedLink)))
		hears("a link that another follows", hash(name("l")), now)
		e := record.Revocation{Company: "acme", Account: account + 1, Generation: 2}
		must(t, other.End(bg, t0, e))
		eventually(t, "an account's ending", func() bool { return f.hearsAccount(e) })
	}
	e := record.Revocation{Company: "other", Generation: first + 1}
	must(t, other.End(bg, t0, e))
	eventually(t, "a company's ending", func() bool { return f.hearsAccount(e) })
	t.Logf("heard after %v at most", slowest)
	for _, kept := range []string{"c", "d"} {
		if f.hears(hash(fmt.Sprintf("%s@%d", kept, first+1))) {
			t.Error("a session was told to have ended that was not")
		}
	}
	return f.count() == flushes && f.trusted()
}

// After a panic the store subscribes anew, and the feed is flushed: it has missed a
// revocation.
func TestRedisFeedPanics(t *testing.T) {
	s := storetest.StartRedis(t)
	var log lockedBuffer
	r := openRedis(t, RedisOptions{URLs: []string{s.URL()}, Log: slog.New(slog.NewTextHandler(&log, nil))})
	f := listenTo(t, r)
	flushes := f.count()
	f.panics.Store(true)
	must(t, r.Sessions().Create(bg, t0, session("a", 1, 1, record.Authorized)))
	must(t, r.Sessions().Delete(bg, hash("a")))
	eventually(t, "a flush", func() bool { return f.count() > flushes })
	f.panics.Store(false)
	eventually(t, "trust", f.trusted)
	if text := log.String(); !strings.Contains(text, "panic at") || strings.Contains(text, "hunter2") {
		t.Errorf("the log: %s", text)
	}
	must(t, r.Sessions().Create(bg, t0, session("b", 1, 1, record.Authorized)))
	must(t, r.Sessions().Delete(bg, hash("b")))
	eventually(t, "an ending", func() bool { return f.hears(hash("b")) })
}

func TestRedisMessages(t *testing.T) {
	for _, e := range []record.Revocation{{Company: "acme", Account: 7, Generation: 3}, {Company: odd, Account: -1, Generation: record.AllGenerations}, {Company: odd, Generation: 2}} {
		f := &tape{}
		deliverMessage(f, encodeRevocation(e))
		if !f.hearsAccount(e) || f.flushes != 0 {
			t.Errorf("%v was not heard", e)
		}
	}
	for _, message := range []string{"", "x", "d", "dshort", "a", "a1", "a1 2", "ax 2 acme", "c", "c1 0", "z later versions' own"} {
		f := &tape{}
		deliverMessage(f, message)
		if f.flushes != 1 || len(f.ended)+len(f.accounts) != 0 {
			t.Errorf("%q did not flush", message)
		}
	}
}
