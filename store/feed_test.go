package store

import (
	"context"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/store/recordtest"
	"github.com/mnemogate/mnemogate/store/redis"
	"github.com/mnemogate/mnemogate/store/storetest"
)

// A raise reaches the other nodes as a revocation does, so that they load the session again.
func TestARaiseIsPublished(t *testing.T) {
	rd := storetest.StartRedis(t)
	one, two := patientRedis(t, redis.Options{URLs: []string{rd.URL()}}), patientRedis(t, redis.Options{URLs: []string{rd.URL()}})
	feed := recordtest.ListenTo(t, two)
	s := session("a", 1, 1, record.Authorized)
	must(t, one.Sessions().Create(bg, t0, s))
	must(t, one.Sessions().Raise(bg, t0, s.Hash, s.Profile, "   1 pwd sms mfa"))
	recordtest.Soon(t, "the raise", func() bool { return feed.Hears(s.Hash) })
}

// The feed flushes after commits of another process, but not after commits of this
// one.
func TestSQLiteHearsOfOtherProcesses(t *testing.T) {
	file := tempFile(t)
	one, two := startSQLite(t, file), startSQLite(t, file)
	feed := recordtest.ListenTo(t, one)
	flushes := feed.Flushes()

	must(t, one.Sessions().Create(bg, t0, session("own", 1, 1, record.Authorized)))
	must(t, one.Accounts().Sweep(bg, t0))
	now := time.Now()
	recordtest.Soon(t, "a look at the file", func() bool { return feed.LookedAt(now) })
	wantEqual(t, "flushes after the process's own commit and sweep", feed.Flushes(), flushes)
	must(t, two.Sessions().Create(bg, t0, session("other", 1, 1, record.Authorized)))
	recordtest.Soon(t, "a flush after another process's commit", func() bool { return feed.Flushes() > flushes })
}

// The memory learns which session was revoked to make room before Create returns,
// because the next request may use that session.
func TestRoomIsToldBeforeCreateReturns(t *testing.T) {
	for name, s := range map[string]interface {
		Run(context.Context, record.Feed)
		Sessions() record.Sessions
	}{"redis": patientRedis(t, redis.Options{URLs: []string{storetest.StartRedis(t).URL()}}), "sqlite": startSQLite(t, tempFile(t))} {
		feed := recordtest.ListenTo(t, s)
		first, second := session("first", 1, 1, record.Authorized), session("second", 1, 1, record.Authorized)
		second.Created, second.AtMost = t0.Add(time.Second), 1
		must(t, s.Sessions().Create(bg, t0, first))
		must(t, s.Sessions().Create(bg, t0, second))
		if !feed.Hears(first.Hash) {
			t.Errorf("%s: Create has returned and the session that it ended is still remembered", name)
		}
	}
}
