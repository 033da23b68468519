// Package redis keeps sessions in Redis, for any number of nodes. Begin with Store, then
// read sessions.go and the scripts in lua.
package redis

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/mnemogate/mnemogate/flows/record"
)

// A Store keeps sessions, codes and counters in Redis 7 or newer, or in a server that
// speaks its protocol. It supports one server, Sentinel and Redis Cluster.
//
// Each change is one script. All keys of a script have the same hash tag, so that
// they are on one server of a Cluster. The tag is {mg:<bucket>} for the data of an
// account (see record.AccountBucket) and {mg:<company>} for the counters of a
// company. The name of the deployment, if it has one, follows mg: (see
// SetDeployment).
type Store struct {
	record.Observed

	single  *goredis.Client        // nil if cluster is set
	cluster *goredis.ClusterClient // nil if single is set
	master  string                 // Options.SentinelMaster
	wait    int
	db      int
	addrs   []string // as configured: of the servers, or of the sentinels
	limits  Limits
	log     *slog.Logger
	feed    atomic.Pointer[record.Feed] // set by Run; nil before
	deaf    atomic.Pointer[error]       // why no revocations are received; nil while they are

	started atomic.Bool // Start has succeeded

	deployment string   // prefix in each hash tag; see SetDeployment
	tags       []string // by bucket

	calls  sync.RWMutex // each call holds a read lock, so that Close waits for it; guards closed
	closed bool
}

// Options describe how to reach Redis.
type Options struct {
	// URLs are the URLs of one server, or of some nodes of a Cluster. If
	// SentinelMaster is set, they are those of the sentinels:
	//
	//	redis://[<user>:<password>@]<host>[:<port>][/<db>]
	//	rediss://…                                      with TLS; never falls back to plain text
	//	unix://[<user>:<password>@]<path>[?db=<db>]
	//
	// Percent-encode special characters in the user name and the password. These
	// options may follow a ?:
	//
	//	ca=<file>             PEM file of the certificate authorities to trust; default: the system's
	//	db=<n>                the database, instead of the path
	//	pool_size=<n>         maximum number of connections to each server, without that of the
	//	                      subscription; default: 10 per CPU
	//	sentinel_user=<user>, sentinel_password=<password>
	//	                      credentials for the sentinels; those before the @ are for the servers
	//
	// Several URLs may differ only in host and port.
	URLs []string
	// SentinelMaster is the name under which the sentinels know the master.
	SentinelMaster string
	// WaitReplicas is the number of replicas that must have a change before the
	// store acknowledges it, so that a failover does not bring back a revoked
	// session or a used code. If too few replicas answer, the call fails.
	// Default: 0.
	WaitReplicas int
	// Log receives what an operator should know. Default: nothing is logged.
	Log *slog.Logger
	// Dial opens the connections to a single server, for tests. Default: as the URL says.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
}

// Limits are the longest times that calls take (contract, section 5).
type Limits struct {
	Attempt  time.Duration // to get a connection from the pool, to open one, or to get an answer
	Call     time.Duration // with all its attempts
	Replicas time.Duration // that a server waits for replicas; less than attempt, because it answers after it
}

const (
	// reload is the maximum age of the list of a Cluster's nodes.
	reload = time.Second
	// hops is how many servers a call asks for keys that move within a Cluster.
	hops = 3
	// pause is how long a call waits before it asks a full server again.
	pause = 20 * time.Millisecond
	// maxIdle is less than the time after which load balancers silently forget a
	// connection: the shortest of the usual ones is 4 minutes.
	maxIdle = time.Minute
	// isFull begins the answer of a server that takes no more connections.
	isFull = "max number of clients reached"
	// isProtected begins the answer of a server that has no password, to another machine.
	isProtected = "DENIED "
)

var (
	errClosed     = errors.New("the Redis store is closed")
	errIsCluster  = errors.New("the server is one of a Cluster; name several of its nodes, or its one address twice")
	errIsSentinel = errors.New("the server is a sentinel; add sentinel <master>")
	errNoMaster   = errors.New("the Cluster has no masters yet; create it with redis-cli --cluster create")
	errReplicas   = errors.New("too few replicas have the change")
	errSilent     = errors.New("a script answered nothing")
)

// Open returns the store. It reads the CA file but does not connect. Its errors
// say which URL is wrong and why, without quoting any part that could be a password.
func Open(o Options) (*Store, error) {
	return OpenWithin(Limits{
		Attempt: 250 * time.Millisecond, Call: 900 * time.Millisecond, Replicas: 200 * time.Millisecond,
	}, o)
}

// OpenWithin is Open with other limits, for tests.
func OpenWithin(limits Limits, o Options) (*Store, error) {
	if len(o.URLs) == 0 {
		return nil, errors.New("a Redis URL is missing")
	}
	if o.WaitReplicas < 0 {
		return nil, errors.New("wait_replicas is negative")
	}
	target, addrs, err := parseURLs(o.URLs)
	if err != nil {
		return nil, err
	}
	options := target.options
	options.DialTimeout, options.ReadTimeout, options.WriteTimeout, options.PoolTimeout = limits.Attempt, limits.Attempt, limits.Attempt, limits.Attempt
	if o.Dial != nil {
		options.Dialer = unlessFull(o.Dial, options)
	}
	log := cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	logging.Do(func() { goredis.SetLogger(logger{log}) })
	r := &Store{limits: limits, master: o.SentinelMaster, wait: o.WaitReplicas, db: options.DB, addrs: addrs, log: log, tags: bucketTags("")}
	switch {
	case o.SentinelMaster != "":
		r.single, err = target.sentinel(o.SentinelMaster, addrs)
	case len(addrs) > 1:
		r.cluster, err = target.cluster(addrs)
	case target.sentinelUser != "" || target.sentinelPassword != "":
		err = errors.New("the Redis URL has options for sentinels, but the name of their master is missing; set it with sentinel")
	default:
		r.single = goredis.NewClient(options)
	}
	if err != nil {
		return nil, err
	}
	return r, nil
}

// The client library logs each failed connection to one global logger. We log these
// at debug level, because callers and Run report the consequences.
var logging sync.Once

type logger struct{ *slog.Logger }

// Printf implements the library's logger.
func (l logger) Printf(ctx context.Context, format string, v ...any) {
	l.DebugContext(ctx, fmt.Sprintf(format, v...))
}

// A target holds the options that all URLs share.
type target struct {
	options                        *goredis.Options
	sentinelUser, sentinelPassword string
}

func (t target) sentinel(master string, addrs []string) (*goredis.Client, error) {
	if t.options.Network == "unix" {
		return nil, errors.New("sentinels are not reached by unix:// URLs")
	}
	shared := t.shared(addrs)
	shared.MasterName, shared.SentinelUsername, shared.SentinelPassword = master, t.sentinelUser, t.sentinelPassword
	return goredis.NewFailoverClient(shared.Failover()), nil
}

func (t target) cluster(addrs []string) (*goredis.ClusterClient, error) {
	o := t.options
	if o.Network == "unix" {
		return nil, errors.New("a Redis Cluster is not reached by unix:// URLs")
	}
	if o.DB != 0 {
		return nil, errors.New("a Redis Cluster has no database but 0")
	}
	shared := t.shared(addrs).Cluster()
	shared.ClusterStateReloadInterval = reload
	return goredis.NewClusterClient(shared), nil
}

// shared returns the options for several servers.
func (t target) shared(addrs []string) *goredis.UniversalOptions {
	o := t.options
	return &goredis.UniversalOptions{
		Addrs: addrs, Username: o.Username, Password: o.Password, DB: o.DB, TLSConfig: o.TLSConfig,
		Dialer: o.Dialer, MaxRetries: o.MaxRetries, DialTimeout: o.DialTimeout, DialerRetries: o.DialerRetries,
		ReadTimeout: o.ReadTimeout, WriteTimeout: o.WriteTimeout, ContextTimeoutEnabled: true,
		PoolSize: o.PoolSize, PoolTimeout: o.PoolTimeout, PipelinePoolSize: o.PipelinePoolSize,
		DisableIdentity: true, ConnMaxIdleTime: o.ConnMaxIdleTime, MaintNotificationsConfig: o.MaintNotificationsConfig,
	}
}

// Starting and closing

// Start checks that each server answers. Its error wraps record.ErrUnreachable if a server
// did not answer. It may be called again. On a started store it does nothing, so that a reload
// does not depend on the servers. The other methods work as soon as the server answers,
// even if Start failed.
func (r *Store) Start(ctx context.Context) error {
	if r.started.Load() {
		return r.limited(ctx, func(context.Context) error { return nil }) // fails if the store is closed
	}
	_, err := r.Faults(ctx)
	if err != nil && !errors.Is(err, errIsCluster) && !errors.Is(err, errIsSentinel) {
		return fmt.Errorf("%w: %w", record.ErrUnreachable, err)
	}
	r.started.Store(err == nil)
	return err
}

// Faults asks each server for its settings.
func (r *Store) Faults(ctx context.Context) (faults []record.Fault, err error) {
	err = r.call(ctx, "connecting to Redis", func(ctx context.Context) error {
		servers, err := r.servers(ctx)
		if err != nil {
			return err
		}
		for _, server := range servers {
			info, err := server.Info(ctx).Result()
			if err != nil {
				return err
			}
			if r.cluster == nil && infoField(info, "cluster_enabled") == "1" {
				return errIsCluster
			}
			if infoField(info, "sentinel_masters") != "" { // Valkey has no redis_mode
				return errIsSentinel
			}
			// The client library does not give the address of a sentinel's master.
			name := cmp.Or(r.master, server.Options().Addr)
			faults = append(faults, faultsOf(name, info)...)
			if infoField(info, "aof_enabled") == "1" {
				faults = append(faults, faultsOfDefaultUser(name, server.Do(ctx, "acl", "getuser", "default"))...)
				faults = append(faults, faultsOfSync(name, server.ConfigGet(ctx, "appendfsync"))...)
			}
			if openToAll(ctx, server.Options()) {
				faults = append(faults, record.Fault{
					What:   fmt.Sprintf("anybody who reaches Redis at %s can read and change sessions: its default user needs no password", name),
					Advice: "give mnemogate a user of its own, and let nobody log in as the default user: user default off ~* &* +@all; replicas and sentinels then need a user, too: see docs/examples/two-nodes/redis.conf",
				})
			}
		}
		return nil
	})
	return faults, err
}

func faultsOf(server, info string) (faults []record.Fault) {
	if infoField(info, "slave_read_only") == "0" { // a replica that takes writes
		faults = append(faults, record.Fault{
			What:   fmt.Sprintf("Redis at %s loses all sessions when it next synchronizes with its master: it is a replica", server),
			Advice: "name its master, or use sentinel",
		})
	}
	if policy := infoField(info, "maxmemory_policy"); policy != "" && policy != "noeviction" {
		faults = append(faults, record.Fault{
			What:   fmt.Sprintf("Redis at %s may drop sessions and counters to free memory: its maxmemory-policy is %s", server, policy),
			Advice: "set maxmemory-policy noeviction",
		})
	}
	if infoField(info, "aof_enabled") == "0" {
		faults = append(faults, record.Fault{
			What:   fmt.Sprintf("Redis at %s loses at a restart what changed after its last snapshot: revoked sessions and spent codes are then valid again; its appendonly is off", server),
			Advice: "set appendonly yes with CONFIG SET on the running server, and only then in its configuration: if it restarts with the second alone, it starts empty",
		})
	}
	return faults
}

// faultsOfDefaultUser reads the answer to ACL GETUSER default. After a restart Redis
// replays the append-only file with the rights of the default user, even if that
// user is off. Redis silently drops transactions that this user may not make.
func faultsOfDefaultUser(server string, answer *goredis.Cmd) []record.Fault {
	user, err := answer.Result()
	if goredis.HasErrorPrefix(err, "NOPERM") {
		return []record.Fault{{What: fmt.Sprintf("Redis at %s does not let this user ask for the rights of the default user (ACL GETUSER): "+
			"if it is off, make sure that it has all rights, as in 'user default off ~* &* +@all'", server)}}
	}
	rights, ok := user.(map[any]any)
	if err != nil || !ok || rights["keys"] == "~*" && rights["channels"] == "&*" && rights["commands"] == "+@all" {
		return nil
	}
	return []record.Fault{{
		What:   fmt.Sprintf("Redis at %s loses at a restart which sessions were revoked and codes spent: its default user lacks rights that Redis needs to replay its append-only file", server),
		Advice: "write 'user default off ~* &* +@all' into Redis' configuration or its ACL file; nobody can log in as a user that is off",
	}}
}

// faultsOfSync reads the answer to CONFIG GET appendfsync.
func faultsOfSync(server string, answer *goredis.MapStringStringCmd) []record.Fault {
	fault := record.Fault{
		What:   fmt.Sprintf("Redis at %s may lose the last seconds in a crash: sessions revoked and codes spent in them are then valid again; its appendfsync is %s", server, answer.Val()["appendfsync"]),
		Advice: "set appendfsync always",
	}
	switch {
	case answer.Err() != nil:
		fault.What = fmt.Sprintf("Redis at %s does not let this user ask for its appendfsync; with its default, everysec, a crash loses revocations and spent codes of the last seconds", server)
		fault.Advice = "let its administrator see that CONFIG GET appendfsync is always"
	case answer.Val()["appendfsync"] == "always":
		return nil
	}
	return []record.Fault{fault}
}

// openToAll reports whether the default user of a server needs no password, although other
// machines may reach the server, or this one has a user of its own.
func openToAll(ctx context.Context, o *goredis.Options) bool {
	conn, err := o.Dialer(ctx, o.Network, o.Addr)
	if err != nil {
		return false
	}
	defer conn.Close()
	host, _, err := net.SplitHostPort(conn.RemoteAddr().String())
	if o.Username+o.Password == "" && (err != nil || net.ParseIP(host).IsLoopback()) { // a socket has no port
		return false
	}
	_ = conn.SetDeadline(time.Now().Add(o.DialTimeout))
	_, _ = io.WriteString(conn, "PING\r\n")
	answer, _ := bufio.NewReader(conn).ReadString('\n')
	return strings.HasPrefix(answer, "+PONG")
}

// Place returns the servers and the deployment's keys there, and false: it can't tell whether
// there were any.
func (r *Store) Place() (string, bool) {
	return fmt.Sprintf("database %d of Redis at %s, with keys {mg:%s*", r.db, strings.Join(r.addrs, ", "), r.deployment), false
}

// Deaf returns why this node receives no revocations, or nil.
func (r *Store) Deaf() error {
	if err := r.deaf.Load(); err != nil {
		return *err
	}
	return nil
}

// Clock returns the server's time. If there are several servers, it returns the time
// that differs most from this machine's.
func (r *Store) Clock(ctx context.Context) (time.Time, error) {
	var worst time.Time
	err := r.call(ctx, "asking for the time", func(ctx context.Context) error {
		servers, err := r.servers(ctx)
		if err != nil {
			return err
		}
		var most time.Duration
		for _, server := range servers {
			now, err := server.Time(ctx).Result()
			if err != nil {
				return err
			}
			if off := time.Until(now).Abs(); worst.IsZero() || off > most {
				worst, most = now, off
			}
		}
		return nil
	})
	return worst, err
}

// infoField returns a field of the answer to INFO.
func infoField(info, name string) string {
	for line := range strings.Lines(info) {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// Close waits for the calls in flight, for a second at most, and closes the
// connections. Later calls fail.
func (r *Store) Close() error {
	r.calls.Lock()
	defer r.calls.Unlock()
	if r.closed {
		return nil
	}
	r.closed = true
	if r.cluster != nil {
		return r.cluster.Close()
	}
	return r.single.Close()
}

// SetDeployment sets the name of the deployment. Deployments with different names
// can share one Redis and see nothing of each other. The name must not contain
// braces. If you call SetDeployment, call it before Start.
func (r *Store) SetDeployment(name string) {
	r.deployment = name + ":"
	r.tags = bucketTags(r.deployment)
}

// Sessions returns the sessions in Redis. Its methods may be called before Start.
func (r *Store) Sessions() record.Sessions { return sessions{r} }

// Calls

// call runs f with the timeout of a call: see record.Observed.Called.
func (r *Store) call(ctx context.Context, what string, f func(context.Context) error) error {
	began := time.Now()
	err := explain(r.limited(ctx, f))
	return r.Called(ctx, what, began, err)
}

func (r *Store) limited(ctx context.Context, f func(context.Context) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	r.calls.RLock()
	defer r.calls.RUnlock()
	if r.closed {
		return errClosed
	}
	// Complete a change even if its caller no longer waits for it.
	call, done := record.StoreContext(context.WithoutCancel(ctx), r.limits.Call)
	defer done()
	if deadline, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		call, cancel = context.WithDeadline(call, deadline)
		defer cancel()
	}
	if err := call.Err(); err != nil {
		return err // a command that is sent can't be canceled any more
	}
	return f(call)
}

// A location is a server and how to send to it.
type location struct {
	*goredis.Client
	asking bool // send ASKING first, because the key is being moved to the server
	alone  bool // send without the shared pipeline
}

// place returns the server that has the key.
func (r *Store) place(ctx context.Context, key string) (location, error) {
	if r.single != nil {
		return location{Client: r.single}, nil
	}
	server, err := r.cluster.MasterForKey(ctx, key)
	return location{Client: server}, err
}

// at calls f with the server that has the key. A server that does not have the key
// changes nothing and names another one, and at calls f again with that one.
func (r *Store) at(ctx context.Context, key string, f func(location) error) error {
	place, err := r.place(ctx, key)
	if err != nil {
		return err
	}
	for hop := 1; ; hop++ {
		err = whileFull(ctx, func() error { return f(place) })
		asked, asking := goredis.IsAskError(err)
		_, moved := goredis.IsMovedError(err)
		if r.cluster == nil || !asking && !moved || hop == hops {
			return err
		}
		servers, reloadErr := r.servers(ctx)
		if reloadErr != nil {
			return err
		}
		if asking {
			place = location{Client: servers[asked], asking: true}
		} else {
			place, _ = r.place(ctx, key)
		}
		if place.Client == nil {
			return err
		}
	}
}

// whileFull calls f again while the server refuses another connection, until one
// is free, while it loads its data, or while some of the keys have moved to another server.
// The server has then done nothing.
func whileFull(ctx context.Context, f func() error) error {
	deadline, _ := ctx.Deadline()
	for refused := error(nil); ; {
		err := f()
		if !goredis.HasErrorPrefix(err, isFull) && !goredis.IsLoadingError(err) && !goredis.IsTryAgainError(err) {
			if refused != nil && err != nil && !time.Now().Before(deadline) {
				return refused // it says more than a timeout
			}
			return err
		}
		refused = err
		select {
		case <-ctx.Done():
			return err
		case <-time.After(pause):
		}
	}
}

// servers returns the masters by address. It reloads the list of a Cluster's nodes.
func (r *Store) servers(ctx context.Context) (map[string]*goredis.Client, error) {
	if r.single != nil {
		return map[string]*goredis.Client{r.single.Options().Addr: r.single}, nil
	}
	var mu sync.Mutex
	servers := map[string]*goredis.Client{}
	err := r.cluster.ForEachMaster(ctx, func(_ context.Context, c *goredis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		servers[c.Options().Addr] = c
		return nil
	})
	if err == nil && len(servers) == 0 {
		err = errNoMaster
	}
	return servers, err
}

// do sends a command in a pipeline with others for the same server. Without the
// pipeline, a node answers about 15 % fewer requests whose sessions it does not
// remember.
func (p location) do(ctx context.Context, command goredis.Cmder) error {
	if p.asking || p.alone {
		return p.doOn(ctx, p.Client, command)
	}
	pipeline, err := p.AsyncAutoPipeline()
	if err != nil {
		return err
	}
	return pipeline.Submit(ctx, command).WaitContext(ctx) // a command that was sent can't be canceled
}

// A sender is a *redis.Client or *redis.Conn.
type sender interface {
	Pipeline() goredis.Pipeliner
	Process(ctx context.Context, command goredis.Cmder) error
}

// doOn sends a command without a shared pipeline.
func (p location) doOn(ctx context.Context, on sender, command goredis.Cmder) error {
	if !p.asking {
		return on.Process(ctx, command)
	}
	pipe := on.Pipeline()
	pipe.Do(ctx, "asking")
	_ = pipe.Process(ctx, command) // never fails: it only queues the command
	_, err := pipe.Exec(ctx)
	return cmp.Or(command.Err(), err) // if the server refuses the connection, the command has no error
}
