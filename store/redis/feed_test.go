package redis

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/store/recordtest"
	"github.com/mnemogate/mnemogate/store/storetest"
)

func TestRedisTellsWhatEnds(t *testing.T) {
	for name, open := range map[string]func(t *testing.T) *Store{
		"one server": func() func(t *testing.T) *Store {
			var s *storetest.Redis
			return func(t *testing.T) *Store {
				if s == nil {
					s = storetest.StartRedis(t)
				}
				return openServer(t, s)
			}
		}(),
		"cluster": func(t *testing.T) *Store { return openStore(t, Options{URLs: storetest.SharedCluster(t).URLs()}) },
		"sentinel": func(t *testing.T) *Store {
			f := storetest.SharedFailover(t)
			return openStore(t, Options{URLs: []string{f.Sentinel.URL()}, SentinelMaster: storetest.MasterName, WaitReplicas: 1})
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := recordtest.ListenTo(t, open(t))
			other := open(t).Sessions()
			for run := range int64(3) { // repeat, as a busy machine may delay heartbeats
				if tellsWhatEnds(t, f, other, 100*run) {
					return
				}
				recordtest.Soon(t, "trust", f.Trusted)
			}
			t.Error("the feed was flushed, or is not trusted, without need")
		})
	}
}

// tellsWhatEnds revokes sessions in every way, on accounts of many buckets. It
// reports whether the feed had its lease all the time.
func tellsWhatEnds(t *testing.T, f *recordtest.Tape, other record.Sessions, first int64) bool {
	t.Helper()
	flushes := f.Flushes()
	var slowest time.Duration
	hears := func(what string, hash record.TokenHash, since time.Time) {
		t.Helper()
		recordtest.Soon(t, what, func() bool { return f.Hears(hash) })
		slowest = max(slowest, f.HeardAt(hash).Sub(since))
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
		recordtest.Soon(t, "an account's ending", func() bool { return f.HearsAccount(e) })
	}
	e := record.Revocation{Company: "other", Generation: first + 1}
	must(t, other.End(bg, t0, e))
	recordtest.Soon(t, "a company's ending", func() bool { return f.HearsAccount(e) })
	t.Logf("heard after %v at most", slowest)
	for _, kept := range []string{"c", "d"} {
		if f.Hears(hash(fmt.Sprintf("%s@%d", kept, first+1))) {
			t.Error("a session was told to have ended that was not")
		}
	}
	return f.Flushes() == flushes && f.Trusted()
}

// After a panic the store subscribes anew, and the feed is flushed: it has missed a
// revocation.
func TestRedisFeedPanics(t *testing.T) {
	s := storetest.StartRedis(t)
	var log lockedBuffer
	r := openStore(t, Options{URLs: []string{s.URL()}, Log: slog.New(slog.NewTextHandler(&log, nil))})
	f := recordtest.ListenTo(t, r)
	flushes := f.Flushes()
	f.Panics.Store(true)
	must(t, r.Sessions().Create(bg, t0, session("a", 1, 1, record.Authorized)))
	must(t, r.Sessions().Delete(bg, hash("a")))
	recordtest.Soon(t, "a flush", func() bool { return f.Flushes() > flushes })
	f.Panics.Store(false)
	recordtest.Soon(t, "trust", f.Trusted)
	if text := log.String(); !strings.Contains(text, "panic at") || strings.Contains(text, "hunter2") {
		t.Errorf("the log: %s", text)
	}
	must(t, r.Sessions().Create(bg, t0, session("b", 1, 1, record.Authorized)))
	must(t, r.Sessions().Delete(bg, hash("b")))
	recordtest.Soon(t, "an ending", func() bool { return f.Hears(hash("b")) })
}

func TestRedisMessages(t *testing.T) {
	for _, e := range []record.Revocation{{Company: "acme", Account: 7, Generation: 3}, {Company: odd, Account: -1, Generation: record.AllGenerations}, {Company: odd, Generation: 2}} {
		f := &recordtest.Tape{}
		deliverMessage(f, encodeRevocation(e))
		if !f.HearsAccount(e) || f.Flushes() != 0 {
			t.Errorf("%v was not heard", e)
		}
	}
	for _, message := range []string{"", "x", "d", "dshort", "a", "a1", "a1 2", "ax 2 acme", "c", "c1 0", "z later versions' own"} {
		f := &recordtest.Tape{}
		deliverMessage(f, message)
		if f.Flushes() != 1 || f.Ends() != 0 {
			t.Errorf("%q did not flush", message)
		}
	}
}
