package redis

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/store/recordtest"
	"github.com/mnemogate/mnemogate/store/storetest"
)

// faults are faults of a server or its network that can be undone.
var faults = []struct {
	name  string
	fault func(*storetest.Redis, *storetest.Proxy)
	heal  func(*storetest.Redis, *storetest.Proxy)
	// The server executes nothing during the fault.
	down bool
}{
	{"refused", func(_ *storetest.Redis, p *storetest.Proxy) { p.Refuse() }, healProxy, true},
	{"black hole", func(_ *storetest.Redis, p *storetest.Proxy) { p.Blackhole() }, healProxy, true},
	{"forgotten by a firewall", func(_ *storetest.Redis, p *storetest.Proxy) { p.Forget() }, healProxy, false},
	{"slow", func(_ *storetest.Redis, p *storetest.Proxy) { p.Delay(400 * time.Millisecond) }, healProxy, true},
	{"frozen", func(s *storetest.Redis, _ *storetest.Proxy) { s.Freeze() }, func(s *storetest.Redis, _ *storetest.Proxy) { s.Thaw() }, true},
	{"killed", func(s *storetest.Redis, _ *storetest.Proxy) { s.Kill() }, func(s *storetest.Redis, _ *storetest.Proxy) { s.Start() }, true},
}

func healProxy(_ *storetest.Redis, p *storetest.Proxy) { p.Heal() }

// behindProxy starts a server and opens a store that reaches it through a
// proxy.
func behindProxy(t *testing.T) (*storetest.Redis, *storetest.Proxy, *Store) {
	s := storetest.StartRedis(t)
	p := storetest.NewProxy(t, "unix", s.Socket())
	return s, p, openUsers(t, Options{URLs: []string{"redis://" + p.Addr()}})
}

// During any fault, all of many callers get a correct answer or an error within a
// second. Soon after it, everything works again.
func TestRedisFaultsAreAnsweredInTime(t *testing.T) {
	t.Parallel()
	for _, c := range faults {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s, p, r := behindProxy(t)
			sessions := r.Sessions()
			kept := session("kept", 1, 1, record.Authorized)
			must(t, openServer(t, s).Sessions().Create(bg, t0, kept))
			callers(100, 100, sessions, sessions, func(_ int, n record.Sessions) error { // opens many connections
				return second(n.Get(bg, kept.Hash))
			})
			c.fault(s, p)
			for range 2 {
				stalled := storetest.WatchStalls()
				slowest, failed := answers(t, sessions, kept)
				stall := stalled()
				t.Logf("200 callers: %d failed, the slowest after %v", failed, slowest)
				if slowest > time.Second+200*time.Millisecond+stall { // tolerance for two busy CPUs
					t.Errorf("an answer took %v, of which the machine is to blame for %v", slowest, stall)
				}
				if c.down && failed < 200 {
					t.Errorf("%d of 200 callers were answered by a server that does not answer", 200-failed)
				}
			}
			c.heal(s, p)
			healed, watch := time.Now(), storetest.StartWatch()
			recordtest.Soon(t, "an answer", func() bool {
				return sessions.Create(bg, t0, session(fmt.Sprint(time.Now().UnixNano()), 1, 1, record.Authorized)) == nil
			})
			for ok := 0; ok < 50; ok++ {
				if _, err := sessions.Get(bg, hash("nobody")); !errors.Is(err, record.ErrNotFound) {
					ok = 0
				}
				if watch.Took() > 5*time.Second {
					t.Fatal("not as before within 5 s")
				}
			}
			t.Logf("as before after %v", time.Since(healed))
		})
	}
}

// answers makes calls from 200 callers and returns how long the slowest took.
func answers(t *testing.T, sessions record.Sessions, kept record.Session) (slowest time.Duration, failed int) {
	var longest atomic.Int64
	errs := callers(200, 200, sessions, sessions, func(i int, n record.Sessions) error {
		began := time.Now()
		defer func() {
			took := int64(time.Since(began))
			for old := longest.Load(); took > old && !longest.CompareAndSwap(old, took); old = longest.Load() {
			}
		}()
		switch i % 4 {
		case 0:
			return n.Charge(bg, t0, record.Counter{Key: fmt.Sprintf("acme/%d", i), Limit: 1000, Window: time.Minute})
		case 1:
			return n.Touch(bg, t0, kept.Hash, t0.Add(time.Hour))
		case 2:
			return second(n.SpendCode(bg, t0, kept.Company, kept.Hash, kept.State))
		}
		return second(n.Get(bg, kept.Hash))
	})
	for i, err := range errs {
		if err != nil {
			failed++
		}
		if record.IsAnswer(err) {
			t.Errorf("caller %d was told %v", i, err)
		}
	}
	return time.Duration(longest.Load()), failed
}

func TestRedisIsTrustedOnlyWhileItIsHeard(t *testing.T) {
	t.Parallel()
	for _, c := range faults {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s, p, r := behindProxy(t)
			f := recordtest.ListenTo(t, r)
			flushes := f.Flushes()
			c.fault(s, p)
			began := time.Now()
			storetest.Eventually(t, 2*time.Second, "end of the trust", func() bool { return !f.Trusted() })
			t.Logf("not trusted after %v", time.Since(began))
			time.Sleep(time.Second)
			if c.down && f.Trusted() {
				t.Error("trusted in vain")
			}
			c.heal(s, p)
			healed := time.Now()
			recordtest.Soon(t, "trust", f.Trusted)
			t.Logf("trusted again after %v", time.Since(healed))
			if f.Flushes() == flushes && c.name != "slow" { // which may lose no subscription
				t.Error("not flushed")
			}
			must(t, openServer(t, s).Sessions().Create(bg, t0, session("a", 1, 1, record.Authorized)))
			must(t, openServer(t, s).Sessions().Delete(bg, hash("a")))
			recordtest.Soon(t, "an ending", func() bool { return f.Hears(hash("a")) })
		})
	}
}

// The store notices a lost subscription at once, because it misses revocations until
// it has another one.
func TestRedisSubscriptionIsLost(t *testing.T) {
	t.Parallel()
	s := storetest.StartRedis(t)
	f := recordtest.ListenTo(t, openServer(t, s))
	for range 5 {
		flushes := f.Flushes()
		s.Ask(t, "client", "kill", "type", "pubsub")
		recordtest.Soon(t, "a flush", func() bool { return f.Flushes() > flushes })
		recordtest.Soon(t, "trust", f.Trusted)
	}
}

// When the server has lost its data, the memory forgets them too.
func TestRedisIsEmptied(t *testing.T) {
	t.Parallel()
	s := storetest.StartRedis(t)
	f := recordtest.ListenTo(t, openServer(t, s))
	for range 3 {
		flushes, now := f.Flushes(), time.Now()
		recordtest.Soon(t, "another heartbeat", func() bool { return f.LookedAt(now) })
		wantEqual(t, "flushes", f.Flushes(), flushes)
		s.Ask(t, "flushall")
		watch := storetest.StartWatch()
		recordtest.Soon(t, "a flush", func() bool { return f.Flushes() > flushes })
		if took := watch.Took(); took > time.Second {
			t.Errorf("flushed after %v", took)
		}
	}
}

// The store notices the loss of one node of a Cluster, and its return.
func TestRedisClusterNodeIsFrozen(t *testing.T) {
	t.Parallel()
	c := storetest.SharedCluster(t)
	f := recordtest.ListenTo(t, openUsers(t, Options{URLs: c.URLs()}))
	for _, s := range c {
		flushes := f.Flushes()
		s.Freeze()
		watch := storetest.StartWatch()
		for f.Trusted() && watch.Took() < 3*time.Second {
			time.Sleep(time.Millisecond)
		}
		took := watch.Took()
		time.Sleep(300 * time.Millisecond)
		s.Thaw()
		if took > 2*time.Second {
			t.Errorf("trusted for %v", took)
		}
		recordtest.Soon(t, "trust", f.Trusted)
		if f.Flushes() == flushes {
			t.Error("not flushed")
		}
	}
}

// If a connection is cut between a change and its answer, the caller gets an error
// that is neither a success nor a refusal. No change is made twice.
func TestRedisLostAnswersAreErrors(t *testing.T) {
	s, p, r := behindProxy(t)
	direct := openServer(t, s).Sessions()
	a := session("a", 1, 1, record.CheckOTP)
	code := newCode("c")
	a.Code = &code
	must(t, direct.Create(bg, t0, a))
	for range 2 { // the first run loads the scripts
		callAllSessions(bg, direct, session("other@9", 9, 1, record.CheckOTP))
	}
	s.Ask(t, "flushall")
	must(t, direct.Create(bg, t0, a))
	counter := record.Counter{Key: "acme/k", Limit: 2, Window: time.Minute}

	p.CutAnswerTo("evalsha")
	sessions := r.Sessions()
	for method, err := range map[string]error{
		"SetCode": sessions.SetCode(bg, t0, hash("a"), record.CheckOTP, newCode("c"), false),
		"Charge":  sessions.Charge(bg, t0, counter),
		"Create":  sessions.Create(bg, t0, session("b", 1, 1, record.Authorized)),
		"Touch":   sessions.Touch(bg, t0, hash("a"), t0.Add(20*time.Minute)),
		"End":     sessions.End(bg, t0, record.Revocation{Company: "acme", Account: 3, Generation: 1}),
	} {
		if err == nil || record.IsAnswer(err) {
			t.Errorf("%s: got %v, want an error that says nothing", method, err)
		}
	}
	p.Heal()
	must(t, direct.Charge(bg, t0, counter)) // one of two was charged
	wantFull(t, "Charge", direct.Charge(bg, t0, counter), counter.Key, t0.Add(time.Minute))
	wantErr(t, "Create", direct.Create(bg, t0, session("b", 1, 1, record.Authorized)), record.ErrConflict)
}

// Concurrent calls share round trips, and each gets its own answer.
func TestRedisCallsTravelTogether(t *testing.T) {
	s := storetest.StartRedis(t)
	sessions := openServer(t, s).Sessions()
	const calls = 4000
	before := reads(t, s)
	errs := callers(calls, 100, sessions, sessions, func(i int, n record.Sessions) error {
		if i%2 == 0 {
			return n.Charge(bg, t0, record.Counter{Key: fmt.Sprintf("acme/%d", i/4), Limit: 1, Window: time.Minute})
		}
		return second(n.Get(bg, hash("nobody")))
	})
	full := 0
	for i, err := range errs {
		if f, ok := errors.AsType[*record.FullError](err); ok && i%2 == 0 {
			wantEqual(t, "the full counter", f.Key, fmt.Sprintf("acme/%d", i/4))
			full++
		} else if i%2 == 0 {
			must(t, err)
		} else {
			wantErr(t, "Get", err, record.ErrNotFound)
		}
	}
	wantEqual(t, "full counters", full, calls/4) // each call charges two
	if reads := reads(t, s) - before; reads > calls/2 {
		t.Errorf("%d calls came in %d pieces", calls, reads)
	}
}

// reads returns how often a server has read from its clients.
func reads(t *testing.T, s *storetest.Redis) int {
	n, err := strconv.Atoi(infoField(s.Ask(t, "info", "stats"), "total_reads_processed"))
	must(t, err)
	return n
}

// A call returns when the deadline of its context has passed.
func TestRedisCallsThatWereGivenUp(t *testing.T) {
	_, p, r := behindProxy(t)
	sessions := r.Sessions()
	must(t, notTooLate(func() error { // loads the script
		return sessions.Charge(bg, t0, record.Counter{Key: "acme/other", Limit: 100, Window: time.Minute})
	}))
	p.Blackhole()
	ctx, cancel := context.WithTimeout(bg, 20*time.Millisecond)
	defer cancel()
	wantErr(t, "Charge", sessions.Charge(ctx, t0, record.Counter{Key: "acme/k", Limit: 1, Window: time.Minute}), context.DeadlineExceeded)
}

// A call in flight is completed even if its client has gone.
func TestRedisCallsOfAClientThatWent(t *testing.T) {
	_, p, r := behindProxy(t)
	sessions := r.Sessions()
	wantErr(t, "Delete", notTooLate(func() error { return sessions.Delete(bg, hash("nobody")) }), record.ErrNotFound) // loads the script
	tries := 0
	storetest.Eventually(t, 10*time.Second, "deletion for a client that has gone", func() bool { // on a busy machine a call may time out
		tries++
		name := fmt.Sprint(tries)
		p.Heal()
		err := sessions.Create(bg, t0, session(name, 1, 1, record.Authorized))
		p.Delay(100 * time.Millisecond)
		ctx, cancel := context.WithCancel(bg)
		time.AfterFunc(50*time.Millisecond, cancel)
		return errors.Join(err, sessions.Delete(ctx, hash(name))) == nil && errors.Is(sessions.Delete(ctx, hash(name)), context.Canceled)
	})
}

// If a server refuses the login, that does not mean that a session does not exist.
func TestRedisLetsNobodyIn(t *testing.T) {
	s := storetest.StartRedis(t)
	sessions := openServer(t, s).Sessions()
	must(t, sessions.Create(bg, t0, session("a", 1, 1, record.Authorized)))
	s.Ask(t, "acl", "setuser", "default", "resetpass", ">secret")
	wrong := strings.Replace(s.URL(), "unix://", "unix://:wrong@", 1)
	for name, r := range map[string]*Store{
		"no password": openServer(t, s), "a wrong one": openStore(t, Options{URLs: []string{wrong}}),
	} {
		_, err := r.Sessions().Get(bg, hash("a"))
		if err == nil || record.IsAnswer(err) || !strings.Contains(err.Error(), "NOAUTH") && !strings.Contains(err.Error(), "WRONGPASS") {
			t.Errorf("%s: got %v, want what the server says", name, err)
		}
	}
}

// A server that takes no more connections serves those that the node has.
func TestRedisIsFull(t *testing.T) {
	t.Parallel()
	s := storetest.StartRedis(t)
	one, two := openServer(t, s), openUsers(t, Options{URLs: []string{s.URL()}})
	must(t, one.Sessions().Create(bg, t0, session("a", 1, 1, record.Authorized)))
	operator := s.Client(t)
	limit := func(n int) { must(t, operator.ConfigSet(bg, "maxclients", fmt.Sprint(n)).Err()) }
	limit(strings.Count(get[string](t)(operator.ClientList(bg).Result()), "\n"))
	for _, err := range race(200, one.Sessions(), one.Sessions(), func(i int, s record.Sessions) error {
		return s.Create(bg, t0, session(fmt.Sprint(i), 1, 1, record.Authorized))
	}) {
		must(t, err)
	}
	limit(1)
	_, err := two.Sessions().Get(bg, hash("a"))
	if !goredis.HasErrorPrefix(err, isFull) || !strings.Contains(err.Error(), "; it takes no more connections: raise its maxclients") {
		t.Errorf("got %v, want that the server is full", err)
	}
	limit(1000) // a connection that the server has just refused may still be on its way
	storetest.Eventually(t, 10*time.Second, "session", func() bool { _, err := two.Sessions().Get(bg, hash("a")); return err == nil })
}

// Replicas

func TestRedisWaitsForReplicas(t *testing.T) {
	t.Parallel()
	s := storetest.StartRedis(t)
	without := openServer(t, s).Sessions()
	with := openUsers(t, Options{URLs: []string{s.URL()}, WaitReplicas: 1}).Sessions()
	code := newCode("c")
	for _, name := range []string{"spent", "set", "replaced", "deleted", "touched", "deleted by ID"} {
		a := session(name, 1, 1, record.CheckOTP)
		a.Code = &code
		must(t, without.Create(bg, t0, a))
	}
	counter := record.Counter{Key: "acme/k", Limit: 1, Window: time.Minute}
	spent, spendErr := with.SpendCode(bg, t0, "acme", hash("spent"), record.CheckOTP)
	if spent.Code != nil {
		t.Error("a code was given out that may come back")
	}
	for method, err := range map[string]error{
		"SpendCode": spendErr,
		"SetCode":   with.SetCode(bg, t0, hash("set"), record.CheckOTP, newCode("d"), false),
		"Create":    with.Create(bg, t0, session("created", 1, 1, record.Authorized)),
		"Replace":   with.Replace(bg, t0, hash("replaced"), record.CheckOTP, session("next", 1, 1, record.Authorized)),
		"Delete":    with.Delete(bg, hash("deleted")),
		"Charge":    with.Charge(bg, t0, counter),
		"End":       with.End(bg, t0, record.Revocation{Company: "acme", Account: 2, Generation: 1}),
		"End all":   with.End(bg, t0, record.Revocation{Company: "other", Generation: 1}),
		"DeleteID":  second(with.DeleteID(bg, t0, "acme", 1, "id of deleted by ID")),
		// Repeated, it finds nothing to end.
		"DeleteOthers":       second(with.DeleteOthers(bg, t0, "acme", 1, hash("kept"))),
		"DeleteOthers again": second(with.DeleteOthers(bg, t0, "acme", 1, hash("kept"))),
	} {
		if err == nil || record.IsAnswer(err) {
			t.Errorf("%s: got %v, want an error that says nothing", method, err)
		}
	}
	// Any other call that changes nothing does not wait for replicas.
	wantErr(t, "Delete", with.Delete(bg, hash("nobody")), record.ErrNotFound)
	wantFull(t, "Charge", with.Charge(bg, t0, counter), counter.Key, t0.Add(time.Minute))
	must(t, with.Touch(bg, t0, hash("touched"), t0.Add(time.Hour)))
	wantGone(t, with, "deleted")
}

// A lockedBuffer is a log that can be read while it is written.
type lockedBuffer struct {
	mu   sync.Mutex
	text strings.Builder
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// A master whose replicas no longer follow it loses the lease, and the log says so.
func TestRedisWithoutItsReplicasIsTold(t *testing.T) {
	t.Parallel()
	f := storetest.NewFailover(t)
	var log lockedBuffer
	r := openUsers(t, Options{URLs: []string{f.Master.URL()}, WaitReplicas: 1, Log: slog.New(slog.NewTextHandler(&log, nil))})
	feed := recordtest.ListenTo(t, r)
	f.Replica.Freeze()
	recordtest.Soon(t, "distrust", func() bool { return !feed.Trusted() })
	recordtest.Soon(t, "a warning", func() bool { return strings.Contains(log.String(), "no revocations are received") })
}

// A node that can't send its heartbeats says what the server answers, not that none came back.
func TestRedisThatRefusesHeartbeatsIsTold(t *testing.T) {
	t.Parallel()
	s := storetest.StartRedis(t)
	r := openServer(t, s)
	recordtest.ListenTo(t, r)
	for _, refuse := range []struct {
		config, on, off, want string
	}{
		{"maxmemory", "1", "0", "; its memory is full"},
		{"min-replicas-to-write", "1", "0", "; it has too few replicas"},
	} {
		s.Ask(t, "config", "set", refuse.config, refuse.on)
		storetest.Eventually(t, 20*time.Second, refuse.want, func() bool { return r.Deaf() != nil && strings.Contains(r.Deaf().Error(), refuse.want) })
		s.Ask(t, "config", "set", refuse.config, refuse.off)
		recordtest.Soon(t, "an end of it", func() bool { return r.Deaf() == nil })
	}
}

// A used code or revoked session does not come back if the master dies immediately
// afterwards. The feed subscribes to the new master.
func TestRedisFailoverKeepsWhatWasAcknowledged(t *testing.T) {
	t.Parallel()
	f := storetest.NewFailover(t)
	o := Options{URLs: []string{f.Sentinel.URL()}, SentinelMaster: storetest.MasterName, WaitReplicas: 1}
	r, sessions := openUsers(t, o), openStore(t, o).Sessions()
	heartbeatReturned := recordtest.ListenTo(t, r)
	counter := record.Counter{Key: "acme/k", Limit: 1, Window: time.Hour}
	spent := session("spent", 1, 2, record.CheckOTP)
	code := newCode("c")
	spent.Code = &code
	must(t, sessions.Create(bg, t0, spent))
	must(t, sessions.Create(bg, t0, session("deleted", 1, 2, record.Authorized)))
	must(t, sessions.Create(bg, t0, session("replaced", 1, 2, record.CheckOTP)))
	must(t, sessions.Create(bg, t0, session("ended", 1, 1, record.Authorized)))

	get[record.Session](t)(sessions.SpendCode(bg, t0, spent.Company, spent.Hash, spent.State))
	must(t, sessions.Delete(bg, hash("deleted")))
	must(t, sessions.Replace(bg, t0, hash("replaced"), record.CheckOTP, session("next", 1, 2, record.Authorized)))
	must(t, sessions.Charge(bg, t0, counter))
	must(t, sessions.End(bg, t0, record.Revocation{Company: "acme", Account: 1, Generation: 2}))
	f.Master.Kill()
	killed, watch := time.Now(), storetest.StartWatch()

	spent.Code = nil
	for {
		_, err := r.Sessions().Get(bg, hash("deleted"))
		if errors.Is(err, record.ErrNotFound) {
			break
		}
		if err == nil {
			t.Fatal("a deleted session is back")
		}
		if watch.Took() > 15*time.Second {
			t.Fatal("no failover within 15 s")
		}
	}
	t.Logf("answered again after %v", time.Since(killed))
	wantSession(t, sessions, spent)
	wantGone(t, sessions, "deleted", "replaced", "ended")
	wantFull(t, "a look", sessions.Charge(bg, t0, record.CheckOnly(counter)...), counter.Key, t0.Add(time.Hour))
	if heartbeatReturned.Trusted() {
		t.Error("a master without replicas is trusted where one is waited for")
	}

	// The old master returns as a replica, and everything works as before.
	must(t, f.Master.Start())
	back := time.Now()
	storetest.Eventually(t, 20*time.Second, "trust", heartbeatReturned.Trusted)
	t.Logf("trusted again %v after the replica's return", time.Since(back))
	recordtest.Soon(t, "an ending", func() bool {
		// Repeat, because the replica has only begun to follow.
		_ = sessions.Create(bg, t0, session("again", 1, 2, record.Authorized))
		_ = sessions.Delete(bg, hash("again"))
		return heartbeatReturned.Hears(hash("again"))
	})
}

// A planned failover leaves a stale subscription at the old master.
func TestRedisPlannedFailover(t *testing.T) {
	t.Parallel()
	f := storetest.NewFailover(t)
	o := Options{URLs: []string{f.Sentinel.URL()}, SentinelMaster: storetest.MasterName}
	r := openUsers(t, o)
	heartbeatReturned := recordtest.ListenTo(t, r)
	flushes := heartbeatReturned.Flushes()
	f.Sentinel.Ask(t, "sentinel", "failover", storetest.MasterName)
	began := time.Now()
	storetest.Eventually(t, 20*time.Second, "flush", func() bool { return heartbeatReturned.Flushes() > flushes })
	storetest.Eventually(t, 20*time.Second, "trust", heartbeatReturned.Trusted)
	t.Logf("heard again after %v", time.Since(began))
	s := session("a", 1, 1, record.Authorized)
	recordtest.Soon(t, "an answer", func() bool { return r.Sessions().Create(bg, t0, s) == nil })
	must(t, openStore(t, o).Sessions().Delete(bg, s.Hash))
	recordtest.Soon(t, "an ending", func() bool { return heartbeatReturned.Hears(s.Hash) })
}

// A managed Redis has one address for whichever server is the master. When the old
// master is made a replica, connections to it stay open, and it may not follow the
// new master yet. Calls must soon stop reading from it, because it misses later
// revocations.
func TestRedisLeavesAMasterThatWasMadeAReplica(t *testing.T) {
	t.Parallel()
	ports := storetest.FreePorts(t, 3)
	before := storetest.NewRedis(t, ports[0])
	now := storetest.NewRedis(t, ports[1], "--replicaof", "127.0.0.1 "+strconv.Itoa(ports[0]))
	must(t, before.Start())
	must(t, now.Start())
	master := storetest.NewProxy(t, "tcp", before.Addr())
	one := openUsers(t, Options{URLs: []string{"redis://" + master.Addr()}})
	heartbeatReturned := recordtest.ListenTo(t, one)
	s := session("a", 1, 1, record.Authorized)
	must(t, openServer(t, before).Sessions().Create(bg, t0, s))
	before.Ask(t, "client", "pause", 150) // a short pause makes the store open many connections
	var calls sync.WaitGroup
	for i := range 300 {
		calls.Go(func() {
			time.Sleep(time.Duration(i%120) * time.Millisecond)
			_, _ = one.Sessions().Get(bg, s.Hash)
		})
	}
	calls.Wait()
	storetest.Eventually(t, 10*time.Second, "replica that follows", func() bool { return now.Ask(t, "dbsize") == before.Ask(t, "dbsize") })
	t.Logf("%d connections", one.single.PoolStats().TotalConns)

	now.Ask(t, "replicaof", "no", "one")
	master.LeadTo(now.Addr())
	before.Ask(t, "replicaof", "127.0.0.1", ports[2]) // no server is there
	must(t, openStore(t, Options{URLs: []string{now.URL()}}).Sessions().Delete(bg, s.Hash))
	ended, lived := storetest.StartWatch(), time.Duration(0)
	for ended.Took() < 3*time.Second {
		for range 4 {
			calls.Go(func() { _, _ = one.Sessions().Get(bg, s.Hash) })
		}
		if _, err := one.Sessions().Get(bg, s.Hash); err == nil {
			lived = ended.Took()
		}
		calls.Wait()
		time.Sleep(20 * time.Millisecond)
	}
	t.Logf("found for %v", lived)
	if lived > 2*time.Second {
		t.Errorf("a session is found %v after it was ended", lived)
	}
	storetest.Eventually(t, 5*time.Second, "trust", heartbeatReturned.Trusted)
}
