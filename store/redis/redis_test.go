package redis

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/store/causes"
	"github.com/mnemogate/mnemogate/store/recordtest"
	"github.com/mnemogate/mnemogate/store/storetest"
)

// openStore opens a store and closes it when the test ends. It waits longer than those of users,
// because a busy machine may stop a server for longer than an attempt may take.
func openStore(t testing.TB, o Options) *Store {
	t.Helper()
	return opened(t)(OpenWithin(Limits{Attempt: 5 * time.Second, Call: 20 * time.Second, Replicas: 4 * time.Second}, o))
}

// openUsers opens a store as users do, for tests of its limits.
func openUsers(t testing.TB, o Options) *Store {
	t.Helper()
	return opened(t)(Open(o))
}

func opened(t testing.TB) func(*Store, error) *Store {
	return func(r *Store, err error) *Store {
		t.Helper()
		must(t, err)
		t.Cleanup(func() { must(t, r.Close()) })
		return r
	}
}

func openServer(t testing.TB, s *storetest.Redis) *Store {
	return openStore(t, Options{URLs: []string{s.URL()}})
}

// Opening

func TestRedisURLs(t *testing.T) {
	ca := filepath.Join(t.TempDir(), "ca.pem")
	must(t, os.WriteFile(ca, []byte("no certificate"), 0o600))
	type urls = []string
	for _, c := range []struct {
		options Options
		want    string // part of the error; empty for no error
	}{
		{Options{URLs: urls{"redis://localhost"}}, ""},
		{Options{URLs: urls{"rediss://user:s3cret%40%2F%3F@[::1]:6380/3?pool_size=5"}}, ""},
		{Options{URLs: urls{"unix:///run/redis.sock?db=2"}}, ""},
		{Options{URLs: urls{"redis://:s3cret@a:1", "redis://:s3cret@b:2"}}, ""},
		{Options{URLs: urls{"redis://a?sentinel_user=u&sentinel_password=s3cret"}, SentinelMaster: "m"}, ""},
		{Options{}, "URL is missing"},
		{Options{URLs: urls{"redis://a"}, WaitReplicas: -1}, "wait_replicas is negative"},
		{Options{URLs: urls{""}}, "Redis URL 1 begins with none"},
		{Options{URLs: urls{"http://user:s3cret@a"}}, "begins with none"},
		{Options{URLs: urls{"localhost:6379"}}, "can't be read"},
		{Options{URLs: urls{"redis://u:s3cret/@a"}}, "percent-encoded"},
		{Options{URLs: urls{"redis://u:12?s3cret@a"}}, "percent-encoded"},
		{Options{URLs: urls{"redis://u:12/s3cret@a"}}, "percent-encoded"},
		{Options{URLs: urls{"redis://u:12#s3cret@a"}}, "percent-encoded"},
		{Options{URLs: urls{"redis://u:s3cret%@a"}}, "percent-encoded"},
		{Options{URLs: urls{"redis://u:s3cret\n@a"}}, "percent-encoded"},
		{Options{URLs: urls{"redis://a", "redis://b?s3cret=1"}}, "Redis URL 2 has an option after ? that is not one of ca, db"},
		{Options{URLs: urls{"redis://a/s3cret"}}, "database that is not a number"},
		{Options{URLs: urls{"redis://a/-1"}}, "database that is not a number"},
		{Options{URLs: urls{"unix://"}}, "no socket"},
		{Options{URLs: urls{"redis://a?db=1&db=2"}}, "db twice"},
		{Options{URLs: urls{"redis://a?pool_size=none"}}, "pool_size"},
		{Options{URLs: urls{"redis://a?ca=x"}}, "rediss://"},
		{Options{URLs: urls{"rediss://a?ca=/nowhere/ca.pem"}}, "/nowhere/ca.pem"},
		{Options{URLs: urls{"rediss://a?ca=" + ca}}, "has no certificates"},
		{Options{URLs: urls{"redis://:s3cret@a", "redis://:s3cret2@b"}}, "differ in their credentials"},
		{Options{URLs: urls{"redis://a", "rediss://b"}}, "differ in their scheme"},
		{Options{URLs: urls{"redis://a/1", "redis://b/1"}}, "no database but 0"},
		{Options{URLs: urls{"unix:///a", "unix:///b"}}, "not reached by unix"},
		{Options{URLs: urls{"unix:///a"}, SentinelMaster: "m"}, "not reached by unix"},
		{Options{URLs: urls{"redis://a?sentinel_password=s3cret"}}, "name of their master is missing"},
	} {
		r, err := Open(c.options)
		if err == nil {
			if r.cluster != nil {
				wantEqual(t, "idle time in a Cluster", r.cluster.Options().ConnMaxIdleTime, maxIdle)
			} else {
				wantEqual(t, "idle time", r.single.Options().ConnMaxIdleTime, maxIdle)
			}
			must(t, r.Close())
		}
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: got error %v, want %q", c.options.URLs, err, c.want)
		}
		if err != nil && strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%q: the error shows a password: %v", c.options.URLs, err)
		}
	}
}

// A default user that is off, as in "user default off", has no rights. Redis replays
// its append-only file with the rights of this user.
func TestRedisTellsOfAServerThatLosesThings(t *testing.T) {
	const ours = "--user mg on >pw ~{mg:* &mnemogate:* +@all -@admin -@dangerous +info"
	const noRights, unread, unreadSync = "its default user lacks rights", "does not let this user ask for the rights", "does not let this user ask for its appendfsync"
	for _, test := range []struct {
		settings []string
		want     []string // expected messages, in this order
	}{
		{[]string{"--maxmemory-policy", "noeviction", "--appendonly", "yes", "--appendfsync", "always"}, nil},
		{[]string{"--replicaof", "127.0.0.1", "1", "--replica-read-only", "no", "--appendonly", "yes", "--appendfsync", "always"}, []string{"it is a replica"}},
		{[]string{"--maxmemory-policy", "allkeys-lru", "--appendonly", "yes"}, []string{"maxmemory-policy is allkeys-lru", "appendfsync is everysec"}},
		{[]string{"--maxmemory-policy", "volatile-ttl", "--appendonly", "no"}, []string{"maxmemory-policy is volatile-ttl", "appendonly is off"}},
		{[]string{"--appendonly", "yes", "--appendfsync", "always", "--user default on nopass ~* +@all -flushall"}, []string{noRights}},
		{[]string{"--appendonly", "no", "--user default on nopass ~* +@all -flushall"}, []string{"appendonly is off"}},
		{[]string{"--appendonly", "yes", "--user default off", ours + " +acl|getuser +config|get"}, []string{noRights, "appendfsync is everysec"}},
		{[]string{"--appendonly", "yes", "--appendfsync", "always", "--user default off ~* &* +@all", ours + " +acl|getuser +config|get"}, nil},
		{[]string{"--appendonly", "yes", "--appendfsync", "always", ours + " +acl|getuser +config|get"}, []string{"its default user needs no password"}},
		{[]string{"--appendonly", "yes", "--user default off", ours}, []string{unread, unreadSync}},
	} {
		s := storetest.StartRedis(t, test.settings...)
		url := s.URL()
		if strings.Contains(fmt.Sprint(test.settings), ours) {
			url = "unix://mg:pw@" + s.Socket()
		}
		r := openStore(t, Options{URLs: []string{url}})
		storetest.Started(t, r.Start)
		faults := get[[]record.Fault](t)(r.Faults(bg))
		if len(faults) != len(test.want) {
			t.Fatalf("%q: got %q", test.settings, faults)
		}
		for i, f := range faults {
			if strings.Contains(f.What, "appendonly is off") && !strings.Contains(f.Advice, "CONFIG SET") {
				t.Errorf("%q: got %q", test.settings, f)
			}
			if !strings.Contains(f.What, test.want[i]) || (f.Advice != "") != (test.want[i] != unread) {
				t.Errorf("%q: got %q", test.settings, f)
			}
		}
	}
}

func TestRedisNamesTheMasterThatLosesThings(t *testing.T) {
	t.Parallel()
	f := storetest.NewFailover(t)
	r := openStore(t, Options{URLs: []string{f.Sentinel.URL()}, SentinelMaster: storetest.MasterName})
	faults := get[[]record.Fault](t)(r.Faults(bg))
	if len(faults) != 1 || !strings.HasPrefix(faults[0].What, "Redis at "+storetest.MasterName+" loses ") {
		t.Errorf("got %q", faults)
	}
}

func TestRedisNeedNotBeThereAtStart(t *testing.T) {
	s := storetest.NewRedis(t, 0)
	r := openServer(t, s)
	if err := r.Start(bg); err == nil {
		t.Error("Start found a server")
	}
	must(t, s.Start())
	recordtest.Soon(t, "an answer", func() bool {
		return r.Sessions().Create(bg, t0, session("a", 1, 1, record.Authorized)) == nil
	})
	storetest.Started(t, r.Start)
	s.Kill()
	must(t, r.Start(bg))
}

func TestRedisRefusesCallsOnceClosed(t *testing.T) {
	s := storetest.StartRedis(t)
	r := openServer(t, s)
	storetest.Started(t, r.Start)
	must(t, r.Close())
	must(t, r.Close())
	for method, err := range callAllSessions(bg, r.Sessions(), session("a", 1, 1, record.CheckOTP)) {
		if method != "Sweep" {
			wantErr(t, method, err, errClosed)
		}
	}
	wantErr(t, "Start", r.Start(bg), errClosed)
}

func TestRedisOfAClusterIsNotTakenForOne(t *testing.T) {
	c := storetest.SharedCluster(t)
	one := openServer(t, c[0])
	err := notTooLate(func() error { return one.Start(bg) })
	if err == nil || !strings.Contains(err.Error(), "one of a Cluster") {
		t.Errorf("got error %v", err)
	}
	must(t, notTooLate(func() error { return openStore(t, Options{URLs: slices.Repeat([]string{c[0].URL()}, 2)}).Start(bg) }))
	_, err = one.Sessions().SpendCode(bg, t0, "acme", hash("a"), record.CheckOTP, record.Counter{Key: "acme/k", Limit: 1, Window: time.Minute})
	if err == nil || !strings.Contains(err.Error(), "CROSSSLOT") || !strings.Contains(err.Error(), "turn on its OSS Cluster API") {
		t.Errorf("got error %v of a server with several shards", err)
	}
}

// notTooLate repeats f if it fails only because the machine is busy.
func notTooLate(f func() error) error {
	for began := time.Now(); ; {
		if err := f(); causes.Of(err) != causes.Silent || time.Since(began) > 20*time.Second {
			return err
		}
	}
}

// An operator learns from the error what to change.
func TestRedisThatIsNotAsItShouldBeSaysWhatToDo(t *testing.T) {
	use := func(r *Store) error {
		if err := r.Start(bg); err != nil {
			return err
		}
		if err := r.Sessions().Create(bg, t0, session("a", 1, 1, record.Authorized)); err != nil {
			return err
		}
		return r.Sessions().Delete(bg, hash("a"))
	}
	for _, test := range []struct {
		settings []string
		more     string // of the URL
		urls     int
		want     string
	}{
		{[]string{"--rename-command", "INFO", "x"}, "", 1, "out of rename-command"},
		{[]string{"--rename-command", "EVALSHA", "x"}, "", 1, "out of rename-command"},
		{[]string{"--user default on nopass ~* &* +@all -publish"}, "", 1, "give this user the rights"},
		{[]string{"--user default on nopass ~* resetchannels +@all"}, "", 1, "give this user the rights"},
		{nil, "?db=99", 1, "raise its databases"},
		{nil, "", 2, "name it alone"},
	} {
		s := storetest.NewRedis(t, storetest.FreePorts(t, 1)[0], test.settings...)
		must(t, s.Start())
		r := openStore(t, Options{URLs: slices.Repeat([]string{s.URL() + test.more}, test.urls)})
		if err := notTooLate(func() error { return use(r) }); err == nil || record.IsAnswer(err) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%q: got %v, want %q", test.settings, err, test.want)
		}
	}
}

// A Redis without a password ends connections of other machines with an answer, as here.
func TestRedisThatTakesNoStrangersSaysWhatToDo(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer l.Close()
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(conn, "-DENIED Redis is running in protected mode because protected mode is enabled and no password is set for the default user. In this mode connections are only accepted from the loopback interface.\r\n")
			conn.Close()
		}
	}()
	r := openStore(t, Options{URLs: []string{"redis://" + l.Addr().String()}})
	if err := r.Start(bg); err == nil || !strings.Contains(err.Error(), " for the default user; it takes connections from its own machine only") {
		t.Errorf("got %v", err)
	}
}

type answer string

func (a answer) Error() string { return string(a) }
func (answer) RedisError()     {}

// Valkey 9 has words of its own for a script that may not publish.
func TestValkeyThatIsNotAsItShouldBeSaysWhatToDo(t *testing.T) {
	const said = "ERR ACL failure in script: User default has no permissions to run the 'publish' command"
	if got := explain(answer(said)).Error(); !strings.Contains(got, noRight) {
		t.Errorf("got %s", got)
	}
}

// An operator who mixes up servers, sentinels and a Cluster learns that.
func TestRedisIsNotWhatTheConfigurationSays(t *testing.T) {
	ports := storetest.FreePorts(t, 3)
	master, node := storetest.NewRedis(t, ports[0]), storetest.NewClusterNode(t)
	open := storetest.NewSentinel(t, ports[1], ports[0])
	locked := storetest.NewSentinel(t, ports[2], ports[0], "requirepass secret")
	for _, s := range []*storetest.Redis{master, node, open, locked} {
		must(t, s.Start())
	}
	for _, test := range []struct {
		o    Options
		want string
	}{
		{Options{URLs: []string{open.URL()}}, "add sentinel <master>"},
		{Options{URLs: []string{open.URL(), open.URL()}}, "add sentinel if these are sentinels"},
		{Options{URLs: []string{master.URL()}, SentinelMaster: "m"}, "leave out sentinel"},
		{Options{URLs: []string{locked.URL()}, SentinelMaster: "m"}, "sentinel_password"},
		{Options{URLs: []string{locked.URL() + "?sentinel_password=wrong"}, SentinelMaster: "m"}, "sentinel_password"},
		{Options{URLs: []string{node.URL(), node.URL()}}, "redis-cli --cluster create"},
	} {
		r := openStore(t, test.o)
		if err := notTooLate(func() error { return r.Start(bg) }); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%+v: got %v, want %q", test.o, err, test.want)
		}
	}
}

// docs/examples/two-nodes/redis.conf shows the rights that a user needs.
func TestRedisUserNeedsFewRights(t *testing.T) {
	one := storetest.NewRedis(t, storetest.FreePorts(t, 1)[0])
	must(t, one.Start())
	for name, servers := range map[string][]*storetest.Redis{
		"one server": {one},
		"cluster":    storetest.SharedCluster(t),
	} {
		t.Run(name, func(t *testing.T) {
			var urls []string
			for _, s := range servers {
				s.Ask(t, "acl", "setuser", "mg", "on", ">pw", "~{mg:*", "&mnemogate:*", "+@all", "-@admin", "-@dangerous", "+info")
				t.Cleanup(func() { s.Ask(t, "acl", "deluser", "mg") })
				urls = append(urls, "redis://mg:pw@"+s.Addr())
			}
			r := openStore(t, Options{URLs: urls})
			storetest.Started(t, r.Start)
			f := recordtest.ListenTo(t, r)
			for method, err := range callAllSessions(bg, r.Sessions(), session("a", 1, 1, record.CheckOTP)) {
				if err != nil && !record.IsAnswer(err) {
					t.Errorf("%s: %v", method, err)
				}
			}
			must(t, r.Sessions().Create(bg, t0, session("b@2", 2, 1, record.Authorized)))
			must(t, r.Sessions().Delete(bg, hash("b@2")))
			recordtest.Soon(t, "an ending", func() bool { return f.Hears(hash("b@2")) })
			must(t, second(r.Clock(bg)))
		})
	}
}

// If CLIENT SETINFO is given up, go-redis up to 9.7.2 gives each call the answer to the one
// before (CVE-2025-29923).
func TestRedisIsNotToldWhoAsks(t *testing.T) {
	_, p, r := behindProxy(t)
	p.CutAnswerTo("setinfo")
	storetest.Started(t, r.Start)
	tries := 0
	must(t, notTooLate(func() error {
		tries++
		return r.Sessions().Create(bg, t0, session(fmt.Sprint(tries), 1, 1, record.Authorized))
	}))
}

// Scripts

func TestRedisScriptsAreSentAgain(t *testing.T) {
	s := storetest.StartRedis(t)
	sessions := openServer(t, s).Sessions()
	must(t, sessions.Create(bg, t0, session("a", 1, 1, record.Authorized)))
	s.Ask(t, "script", "flush")
	must(t, sessions.Create(bg, t0, session("b", 1, 1, record.Authorized)))
	must(t, sessions.Delete(bg, hash("a")))
}

// Two deployments may have the same companies and accounts and share one Redis.
func TestRedisKeepsDeploymentsApart(t *testing.T) {
	s := storetest.StartRedis(t)
	a, b := openServer(t, s), openServer(t, s)
	a.SetDeployment("a")
	b.SetDeployment("b")
	heartbeatReturned := recordtest.ListenTo(t, b)
	sess := session("a", 1, 1, record.Authorized)
	counter := record.Counter{Key: "acme/k", Limit: 1, Window: time.Minute}
	must(t, a.Sessions().Create(bg, t0, sess, counter))
	wantGone(t, b.Sessions(), "a")
	must(t, b.Sessions().Create(bg, t0, sess, counter))
	must(t, a.Sessions().End(bg, t0, record.Revocation{Company: "acme", Account: 1, Generation: 2}))
	wantGone(t, a.Sessions(), "a")
	wantSession(t, b.Sessions(), sess)
	must(t, b.Sessions().Create(bg, t0, session("b", 1, 1, record.Authorized)))
	must(t, b.Sessions().Delete(bg, hash("b")))
	recordtest.Soon(t, "the deployment's own ending", func() bool { return heartbeatReturned.Hears(hash("b")) })
	if heartbeatReturned.HearsAccount(record.Revocation{Company: "acme", Account: 1, Generation: 2}) {
		t.Error("another deployment's ending was heard")
	}
}

// Nodes of all versions listen on these channels.
func TestRedisChannelsOfAllVersions(t *testing.T) {
	r := openStore(t, Options{URLs: []string{"redis://127.0.0.1/3"}})
	if got := r.channel(); got != "mnemogate:3" {
		t.Errorf("without a deployment: %s", got)
	}
	r.SetDeployment("a")
	if got := r.channel(); got != "mnemogate:3:a" {
		t.Errorf("of a deployment: %s", got)
	}
}

// An index contains only sessions that exist.
func TestRedisIndexHasOnlyWhatIsThere(t *testing.T) {
	s := storetest.StartRedis(t)
	r := openServer(t, s)
	sessions := r.Sessions()
	must(t, sessions.Create(bg, t0, session("a", 1, 1, record.CheckOTP)))
	must(t, sessions.Create(bg, t0, session("b", 1, 1, record.CheckOTP)))
	must(t, sessions.Replace(bg, t0, hash("a"), record.CheckOTP, session("c", 1, 1, record.Authorized)))
	must(t, sessions.Delete(bg, hash("b")))
	index := r.accountKey(indexKind(record.Authorized), "acme", 1)
	wantEqual(t, "index of the state before", s.Ask(t, "exists", r.accountKey(indexKind(record.CheckOTP), "acme", 1)), "0")
	want := hash("c")
	wantEqual(t, "index", s.Ask(t, "zrange", index, 0, -1), fmt.Sprint([]string{string(want[:])}))

	// c expired long ago; it is removed from the index when another session is
	// created.
	late := t0.Add(24 * time.Hour)
	next := session("d", 1, 1, record.Authorized)
	next.Expires, next.Ends = late.Add(time.Hour), late.Add(time.Hour)
	must(t, sessions.Create(bg, late, next))
	wantEqual(t, "index", s.Ask(t, "zcard", index), "1")
	if left := s.Client(t).PTTL(bg, index).Val(); left > time.Hour+record.KeepExpired+time.Second {
		t.Errorf("the index is kept for %v", left)
	}
}

// A session of usual size takes less than half a kilobyte, including its index
// entry.
func TestRedisBytesPerSession(t *testing.T) {
	s := storetest.StartRedis(t)
	r := openServer(t, s)
	sessions := r.Sessions()
	used := func() int {
		var n int
		fmt.Sscan(infoField(s.Ask(t, "info", "memory"), "used_memory_dataset"), &n)
		return n
	}
	const n = 4096
	must(t, sessions.Create(bg, t0, session("warm", 1, 1, record.Authorized)))
	before := used()
	for i := range n {
		sess := session(fmt.Sprintf("s@%d", i+2), int64(i+2), 1, record.Authorized)
		sess.ID, sess.Mnemocode, sess.Accepted = fmt.Sprintf("%032x", i), fmt.Sprintf("profile-%08d", i), nil
		sess.UserAgent = "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/142.0.0.0 Safari/537.36"
		sess.Profile, sess.Device = "    pwd", "" // a known device takes 34 bytes more
		must(t, sessions.Create(bg, t0, sess))
	}
	each := (used() - before) / n
	key := hash("s@7")
	t.Logf("%d bytes a session; MEMORY USAGE: session %s, index %s", each,
		s.Ask(t, "memory", "usage", r.sessionKey(key)), s.Ask(t, "memory", "usage", r.accountKey(indexKind(record.Authorized), "acme", 7)))
	wantEqual(t, "encoding", s.Ask(t, "object", "encoding", r.sessionKey(key)), "listpack")
	if each > 512 {
		t.Errorf("%d bytes a session", each)
	}
}

// A server that is out of memory makes no partial changes. It can still revoke
// sessions in every way, and spend codes.
func TestRedisOutOfMemory(t *testing.T) {
	s := storetest.StartRedis(t)
	sessions := openServer(t, s).Sessions()
	a, link := session("a", 1, 1, record.CheckOTP), session("link", 1, 1, record.MailedLink)
	code := newCode("c")
	a.Code = &code
	must(t, sessions.Create(bg, t0, a))
	must(t, sessions.Create(bg, t0, link))
	for name, account := range map[string]int64{"kept": 1, "named": 1, "other": 1, "theirs@2": 2, "expired@2": 2, "this@3": 3, "old@3": 3} {
		must(t, sessions.Create(bg, t0, session(name, account, 1, record.Authorized)))
	}
	s.Ask(t, "config", "set", "maxmemory", "1")
	for method, err := range map[string]error{
		"SetCode":          sessions.SetCode(bg, t0, a.Hash, a.State, newCode("d"), false),
		"Create":           sessions.Create(bg, t0, session("b", 1, 1, record.CheckOTP)),
		"Create of a link": sessions.Create(bg, t0, session("c", 1, 1, record.MailedLink)),
		"Replace":          sessions.Replace(bg, t0, a.Hash, a.State, session("d", 1, 1, record.Authorized)),
		"Charge":           sessions.Charge(bg, t0, record.Counter{Key: "k", Limit: 1, Window: time.Minute}),
	} {
		if err == nil || record.IsAnswer(err) {
			t.Errorf("%s: got %v, want an error that says nothing", method, err)
		}
	}
	wantSession(t, sessions, a)
	wantSession(t, sessions, link)
	wantGone(t, sessions, "b", "c", "d")
	spent := get[record.Session](t)(sessions.SpendCode(bg, t0, a.Company, a.Hash, a.State))
	wantEqual(t, "the code", *spent.Code, code)
	get[[]byte](t)(sessions.Claim(bg, t0, "n", "h", t0.Add(time.Second))) // a logout may need it
	must(t, sessions.Delete(bg, a.Hash))
	wantGone(t, sessions, "a")
	get[record.Session](t)(sessions.DeleteID(bg, t0, "acme", 1, "id of named"))
	get[[]record.Session](t)(sessions.DeleteOthers(bg, t0, "acme", 3, hash("this@3")))
	wantGone(t, sessions, "named", "old@3")
	must(t, sessions.Expire(bg, t0.Add(30*time.Minute), hash("expired@2")))

	password := record.Revocation{Company: "acme", Account: 1, Generation: 2, Keep: hash("kept")}
	must(t, sessions.End(bg, t0, password))
	wantGone(t, sessions, "other", "link")
	kept := session("kept", 1, 2, record.Authorized)
	wantSession(t, sessions, kept)
	must(t, sessions.Raise(bg, t0, kept.Hash, kept.Profile, "   2 pwd")) // as when a role was taken away
	must(t, sessions.End(bg, t0, record.Revocation{Company: "acme", Account: 1, Generation: record.AllGenerations}))
	must(t, sessions.End(bg, t0, record.Revocation{Company: "acme", Generation: 1}))
	wantGone(t, sessions, "kept", "theirs@2", "expired@2", "this@3")
	wantErr(t, "Create after all that", sessions.Create(bg, t0, session("late", 1, 1, record.Authorized)), record.ErrConflict)
}

// Clusters

// While the slot of a bucket moves from one node to another, its sessions can be
// found, and those that their company has revoked can't.
func TestRedisFollowsAMovingSlot(t *testing.T) {
	t.Parallel()
	c := storetest.NewCluster(t, 2)
	r, users := openStore(t, Options{URLs: c.URLs()}), openUsers(t, Options{URLs: c.URLs()})
	sessions := r.Sessions()
	account := int64(1)
	for record.AccountBucket("other", account) != record.AccountBucket("acme", 1) {
		account++
	}
	a, revoked := session("a", 1, 1, record.CheckOTP), session(fmt.Sprint("a@other/", account), account, 1, record.Authorized)
	must(t, sessions.Create(bg, t0, a))
	must(t, sessions.Create(bg, t0, revoked))
	must(t, sessions.End(bg, t0, record.Revocation{Company: revoked.Company, Generation: 1}))
	key := r.sessionKey(a.Hash)
	var slot int
	fmt.Sscan(c[0].Ask(t, "cluster", "keyslot", key), &slot)
	from, to := c[0], c[1]
	if slot >= 16384/2 {
		from, to = to, from
	}
	fromID, toID := from.Ask(t, "cluster", "myid"), to.Ask(t, "cluster", "myid")
	to.Ask(t, "cluster", "setslot", slot, "importing", fromID)
	from.Ask(t, "cluster", "setslot", slot, "migrating", toID)
	wantFound := func() {
		t.Helper()
		wantSession(t, sessions, a)
		wantErr(t, "Get of a revoked session", second(sessions.Get(bg, revoked.Hash)), record.ErrNotFound)
	}
	wantFound()
	watch := time.Now()
	err := notTooLate(func() error { return users.Sessions().Create(bg, t0, session("b", 1, 1, record.Authorized)) })
	if err == nil || !strings.Contains(err.Error(), isMoving) || time.Since(watch) < users.limits.Call/2 {
		t.Errorf("Create: got %v after %v, want a call that waits for the end of the move", err, time.Since(watch))
	}
	keys := from.Client(t).ClusterGetKeysInSlot(bg, slot, 100).Val()
	slices.SortFunc(keys, func(a, b string) int { return strings.Compare(b, a) }) // the marker last
	for _, k := range keys {
		from.Ask(t, "migrate", "127.0.0.1", to.Port, k, 0, 1000)
		wantFound()
	}
	for _, s := range []*storetest.Redis{to, from} {
		s.Ask(t, "cluster", "setslot", slot, "node", toID)
	}
	must(t, sessions.SetCode(bg, t0, a.Hash, record.CheckOTP, newCode("c"), false))
	must(t, sessions.Replace(bg, t0, a.Hash, a.State, session("b", 1, 1, record.Authorized)))
}

// When a replica has replaced a failed master of a Cluster, everything works as
// before.
func TestRedisClusterFailsOver(t *testing.T) {
	t.Parallel()
	c := storetest.NewCluster(t, 3)
	replica := storetest.NewClusterNode(t)
	must(t, replica.Start())
	replica.Ask(t, "cluster", "meet", "127.0.0.1", c[0].Port)
	lost := c[1]
	lostID := lost.Ask(t, "cluster", "myid")
	recordtest.Soon(t, "a node that is known", func() bool { return strings.Contains(replica.Ask(t, "cluster", "nodes"), lostID) })
	replica.Ask(t, "cluster", "replicate", lostID)
	recordtest.Soon(t, "a replica that follows", func() bool {
		return infoField(replica.Ask(t, "info", "replication"), "master_link_status") == "up"
	})
	r := openUsers(t, Options{URLs: c.URLs()})
	heartbeatReturned := recordtest.ListenTo(t, r)
	lost.Kill()
	storetest.Eventually(t, 15*time.Second, "new master", func() bool {
		return infoField(c[0].Ask(t, "cluster", "info"), "cluster_state") == "ok" &&
			infoField(replica.Ask(t, "info", "replication"), "role") == "master"
	})
	began := time.Now()
	for account := int64(1); account <= 30; account++ { // accounts on all nodes
		s := session(fmt.Sprintf("a@%d", account), account, 1, record.Authorized)
		recordtest.Soon(t, "an answer", func() bool { return r.Sessions().Create(bg, t0, s) == nil })
	}
	recordtest.Soon(t, "trust", heartbeatReturned.Trusted)
	t.Logf("as before %v after the replica was made master", time.Since(began))
	patient := openStore(t, Options{URLs: c.URLs()}).Sessions()
	for account := int64(1); account <= 30; account++ {
		h := hash(fmt.Sprintf("a@%d", account))
		must(t, patient.Delete(bg, h))
		recordtest.Soon(t, "an ending", func() bool { return heartbeatReturned.Hears(h) })
	}
}

// TLS

func TestRedisTLS(t *testing.T) {
	port := storetest.FreePorts(t, 1)[0]
	s := storetest.NewRedis(t, 0, "--requirepass", "s3cret/?@", "--tls-port", strconv.Itoa(port), "--tls-auth-clients", "no",
		"--tls-cert-file", "server.crt", "--tls-key-file", "server.key", "--tls-ca-cert-file", "server.crt")
	ca, _ := s.Certificate(t, "server")
	must(t, s.Start())
	plain := storetest.StartRedis(t, "--port", strconv.Itoa(storetest.FreePorts(t, 1)[0]))
	plainPort := plain.Ask(t, "config", "get", "port")
	plainPort = strings.Trim(plainPort[strings.Index(plainPort, ":")+1:], "]")
	const silent = "deadline exceeded; check that it runs and how busy it is, that no firewall is between, and that it has TLS on this port"
	for url, want := range map[string]string{
		fmt.Sprintf("rediss://:s3cret%%2F%%3F%%40@127.0.0.1:%d?ca=%s", port, ca): "",
		fmt.Sprintf("rediss://:s3cret%%2F%%3F%%40@127.0.0.1:%d", port):           "; this machine does not trust the authority of its certificate: name that authority's certificate in the URL",
		fmt.Sprintf("rediss://:s3cret%%2F%%3F%%40@localhost:%d?ca=%s", port, ca): "; its certificate is for another name",
		fmt.Sprintf("rediss://:s3cret@127.0.0.1:%d?ca=%s", port, ca):             "; correct the user and the password before the @",
		fmt.Sprintf("rediss://127.0.0.1:%d?ca=%s", port, ca):                     "; it wants a password",
		fmt.Sprintf("redis://:s3cret%%2F%%3F%%40@127.0.0.1:%d", port):            "; it closed the connection: if it expects TLS on this port, write rediss://",
		"rediss://:s3cret%2F%3F%40@127.0.0.1:" + plainPort:                       silent, // the server waits for the end of a line
		"rediss://" + answering(t, "HTTP/1.1 400 Bad Request\r\n\r\n"):           "; it answers without TLS",
	} {
		r := openUsers(t, Options{URLs: []string{url}})
		start := func() error { return r.Start(bg) }
		var err error
		if want == silent {
			err = start()
		} else {
			err = notTooLate(start)
		}
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got error %v, want %q", url, err, want)
		}
		if err != nil && strings.Contains(err.Error(), "s3cret") {
			t.Errorf("the error shows a password: %v", err)
		}
	}
}

// A server may close connections while they are idle, and does so when it restarts. No call
// fails because of that.
func TestRedisTLSConnectionsThatTheServerHasClosed(t *testing.T) {
	port := storetest.FreePorts(t, 1)[0]
	s := storetest.NewRedis(t, 0, "--tls-port", strconv.Itoa(port), "--tls-auth-clients", "no",
		"--tls-cert-file", "server.crt", "--tls-key-file", "server.key", "--tls-ca-cert-file", "server.crt")
	ca, _ := s.Certificate(t, "server")
	must(t, s.Start())
	r := openStore(t, Options{URLs: []string{fmt.Sprintf("rediss://127.0.0.1:%d?ca=%s", port, ca)}})
	sessions := r.Sessions()
	must(t, sessions.Create(bg, t0, session("a", 1, 1, record.Authorized)))
	var conns [5]*goredis.Conn
	for i := range conns {
		conns[i] = r.single.Conn()
		must(t, conns[i].Ping(bg).Err())
	}
	for _, c := range conns {
		must(t, c.Close())
	}
	s.Ask(t, "client", "kill", "type", "normal")
	storetest.Eventually(t, 10*time.Second, "end of the connections", func() bool {
		return !strings.Contains(s.Ask(t, "client", "list", "type", "normal"), "127.0.0.1:")
	})
	for i := range 10 {
		must(t, notTooLate(func() error { return sessions.Create(bg, t0, session(fmt.Sprint(i), 1, 1, record.Authorized)) }))
	}
}

// The sentinel's certificate need not have the address by which the sentinel names the
// master.
func TestRedisTLSWithOneSentinel(t *testing.T) {
	ports := storetest.FreePorts(t, 2)
	master := storetest.NewRedis(t, 0, "--tls-port", strconv.Itoa(ports[0]), "--tls-auth-clients", "no",
		"--tls-cert-file", "server.crt", "--tls-key-file", "server.key", "--tls-ca-cert-file", "server.crt")
	ofMaster, _ := master.Certificate(t, "server")
	must(t, master.Start())
	sentinel := storetest.NewSentinel(t, 0, ports[0], fmt.Sprintf("tls-port %d", ports[1]), "tls-auth-clients no", "tls-replication yes",
		"tls-cert-file server.crt", "tls-key-file server.key", "tls-ca-cert-file "+ofMaster)
	ofSentinel, _ := sentinel.Certificate(t, "server", "localhost")
	must(t, sentinel.Start())
	ca := filepath.Join(t.TempDir(), "ca.pem")
	must(t, os.WriteFile(ca, slices.Concat(get[[]byte](t)(os.ReadFile(ofMaster)), get[[]byte](t)(os.ReadFile(ofSentinel))), 0o600))
	url := fmt.Sprintf("rediss://localhost:%d?ca=%s", ports[1], ca)
	storetest.Started(t, openStore(t, Options{URLs: []string{url}, SentinelMaster: storetest.MasterName}).Start)
}
