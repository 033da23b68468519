package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/mnemogate/mnemogate/flows/record"
)

// Redis keeps sessions, codes and counters in Redis 7 or newer, or what
// speaks its protocol: in one server, behind Sentinel, or in a Cluster.
//
// Each change is one script. Its keys have one hash tag, so that a Cluster keeps
// them in one place: {mg:<bucket>} for what belongs to an account (see
// record.AccountBucket), {mg:<company>} for the company's counters; a deployment's
// name stands before either (see SetDeployment).
type Redis struct {
	single  *redis.Client        // nil where cluster is not
	cluster *redis.ClusterClient // nil where single is not
	master  string               // SentinelMaster
	wait    int
	db      int
	log     *slog.Logger
	feed    atomic.Pointer[record.Feed] // of Run; nil before

	deployment string   // stands in front of what a tag is made of; see SetDeployment
	tags       []string // by bucket

	calls  sync.RWMutex // read-locked by each call, so that Close waits for them; guards closed
	closed bool
}

// RedisOptions say where Redis is.
type RedisOptions struct {
	// URLs of one server, or of some nodes of a Cluster, or of the sentinels
	// where SentinelMaster is set:
	//
	//	redis://[<user>:<password>@]<host>[:<port>][/<db>]
	//	rediss://…                                      the same with TLS, never without
	//	unix://[<user>:<password>@]<path>[?db=<db>]
	//
	// What is special in a user name or password is percent-encoded. Options,
	// behind the ?:
	//
	//	ca=<file>             certificates (PEM) of the authorities to trust; default: the system's
	//	db=<n>                the database, instead of the path
	//	pool_size=<n>         connections to each server at most, and one more that listens;
	//	                      default: 10 for each CPU
	//	sentinel_user=<user>, sentinel_password=<password>
	//	                      for the sentinels; those before the @ are the servers'
	//
	// Several URLs differ in host and port alone.
	URLs []string
	// SentinelMaster is the name under which the sentinels know the master.
	SentinelMaster string
	// WaitReplicas is how many replicas must have a change before it is
	// acknowledged, so that what was spent or ended does not come back with a
	// failover. Where so many can't be had, such a call fails.
	WaitReplicas int
	// Log is told what an operator should know. Default: nobody.
	Log *slog.Logger
}

const (
	// redisTimeout is the time of one try: to get a connection, to make one,
	// or to be answered (contract, section 5).
	redisTimeout = 250 * time.Millisecond
	// redisCallTimeout is the time of a call with all its tries.
	redisCallTimeout = 900 * time.Millisecond
	// redisWait is how long a server waits for replicas; less than
	// redisTimeout, since its answer comes after.
	redisWait = 200 * time.Millisecond
	// redisReload is how old what is known of a Cluster's nodes may be.
	redisReload = time.Second
	// redisHops is how often a call follows keys that move within a Cluster.
	redisHops = 3
)

var (
	errRedisClosed    = errors.New("the Redis store is closed")
	errRedisIsCluster = errors.New("the server is one of a Cluster; name several of its nodes")
	errRedisReplicas  = errors.New("too few replicas have the change")
	errRedisSilent    = errors.New("a script answered nothing")
)

// OpenRedis returns the store. It reads the CA file and connects to nothing.
// The errors name what is wrong with which URL, and nothing of it that could be
// a password.
func OpenRedis(o RedisOptions) (*Redis, error) {
	if len(o.URLs) == 0 {
		return nil, errors.New("a Redis URL is missing")
	}
	if o.WaitReplicas < 0 {
		return nil, errors.New("wait_replicas is negative")
	}
	target, addrs, err := parseRedisURLs(o.URLs)
	if err != nil {
		return nil, err
	}
	log := cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	redisLogging.Do(func() { redis.SetLogger(redisLog{log}) })
	r := &Redis{master: o.SentinelMaster, wait: o.WaitReplicas, db: target.options.DB, log: log, tags: bucketTags("")}
	switch {
	case o.SentinelMaster != "":
		r.single, err = target.sentinel(o.SentinelMaster, addrs)
	case len(addrs) > 1:
		r.cluster, err = target.cluster(addrs)
	case target.sentinelUser != "" || target.sentinelPassword != "":
		err = errors.New("the Redis URL has options for sentinels, but the name of their master is missing; set it with sentinel")
	default:
		r.single = redis.NewClient(target.options)
	}
	if err != nil {
		return nil, err
	}
	return r, nil
}

// The client library tells of each connection that it could not make, to one
// log for all. Callers and Run tell what comes of it.
var redisLogging sync.Once

type redisLog struct{ *slog.Logger }

// Printf implements the library's logger.
func (l redisLog) Printf(ctx context.Context, format string, v ...any) {
	l.DebugContext(ctx, fmt.Sprintf(format, v...))
}

// A redisTarget is what the URLs have in common.
type redisTarget struct {
	options                        *redis.Options
	sentinelUser, sentinelPassword string
}

func (t redisTarget) sentinel(master string, addrs []string) (*redis.Client, error) {
	o := t.options
	if o.Network == "unix" {
		return nil, errors.New("sentinels are not reached by unix:// URLs")
	}
	return redis.NewFailoverClient(&redis.FailoverOptions{
		MasterName: master, SentinelAddrs: addrs,
		SentinelUsername: t.sentinelUser, SentinelPassword: t.sentinelPassword,
		Username: o.Username, Password: o.Password, DB: o.DB, TLSConfig: o.TLSConfig,
		MaxRetries: o.MaxRetries, DialTimeout: o.DialTimeout, DialerRetries: o.DialerRetries,
		ReadTimeout: o.ReadTimeout, WriteTimeout: o.WriteTimeout, ContextTimeoutEnabled: true,
		PoolSize: o.PoolSize, PoolTimeout: o.PoolTimeout, PipelinePoolSize: o.PipelinePoolSize,
		DisableIdentity: true,
	}), nil
}

func (t redisTarget) cluster(addrs []string) (*redis.ClusterClient, error) {
	o := t.options
	if o.Network == "unix" {
		return nil, errors.New("a Redis Cluster is not reached by unix:// URLs")
	}
	if o.DB != 0 {
		return nil, errors.New("a Redis Cluster has no database but 0")
	}
	return redis.NewClusterClient(&redis.ClusterOptions{
		Addrs:    addrs,
		Username: o.Username, Password: o.Password, TLSConfig: o.TLSConfig,
		MaxRetries: o.MaxRetries, DialTimeout: o.DialTimeout, DialerRetries: o.DialerRetries,
		ReadTimeout: o.ReadTimeout, WriteTimeout: o.WriteTimeout, ContextTimeoutEnabled: true,
		PoolSize: o.PoolSize, PoolTimeout: o.PoolTimeout, PipelinePoolSize: o.PipelinePoolSize,
		DisableIdentity: true, MaintNotificationsConfig: o.MaintNotificationsConfig,
		ClusterStateReloadInterval: redisReload,
	}), nil
}

// Starting and closing

// Start asks each server whether it is there, and warns of one that is set up
// to lose sessions. Its error wraps ErrUnreachable if a server did not answer. It
// may be called again; what else is called works as soon as
// the server is there, whether or not Start did.
func (r *Redis) Start(ctx context.Context) error {
	faults, err := r.Faults(ctx)
	for _, f := range faults {
		if f.Advice != "" {
			r.log.Warn(f.What, "advice", f.Advice)
		}
	}
	if err != nil && !errors.Is(err, errRedisIsCluster) {
		return fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	return err
}

// A Fault is a setting of a server by which it can lose what it was given.
type Fault struct {
	What   string // is wrong, with the server's address, or the sentinels' name of it
	Advice string // empty if the setting could not be asked for, and may be right
}

// Faults asks each server for its settings.
func (r *Redis) Faults(ctx context.Context) (faults []Fault, err error) {
	var mu sync.Mutex
	inspect := func(ctx context.Context, server *redis.Client) error {
		info, err := server.Info(ctx).Result()
		if err != nil {
			return err
		}
		if r.cluster == nil && infoField(info, "cluster_enabled") == "1" {
			return errRedisIsCluster
		}
		// Of a sentinels' master the client library tells no address.
		name := cmp.Or(r.master, server.Options().Addr)
		found := faultsOf(name, info)
		if infoField(info, "aof_enabled") == "1" {
			found = append(found, faultsOfDefaultUser(name, server.Do(ctx, "acl", "getuser", "default"))...)
		}
		mu.Lock()
		defer mu.Unlock()
		faults = append(faults, found...)
		return nil
	}
	err = r.call(ctx, "connecting to Redis", func(ctx context.Context) error {
		faults = nil // it may be called again
		if r.single != nil {
			return inspect(ctx, r.single)
		}
		return r.cluster.ForEachMaster(ctx, inspect)
	})
	return faults, err
}

func faultsOf(server, info string) (faults []Fault) {
	if policy := infoField(info, "maxmemory_policy"); policy != "" && policy != "noeviction" {
		faults = append(faults, Fault{
			What:   fmt.Sprintf("Redis at %s may end sessions and forget counters to free memory: its maxmemory-policy is %s", server, policy),
			Advice: "set maxmemory-policy noeviction",
		})
	}
	if infoField(info, "aof_enabled") == "0" {
		faults = append(faults, Fault{
			What:   fmt.Sprintf("Redis at %s forgets at its restart what came after its last snapshot: sessions, and that some were ended and codes spent; its appendonly is off", server),
			Advice: "set appendonly yes",
		})
	}
	return faults
}

// faultsOfDefaultUser takes the answer to ACL GETUSER default. After its restart Redis
// replays the append-only file with the rights of this user, also if it is off. It drops
// transactions that the user may not make, and says nothing.
func faultsOfDefaultUser(server string, answer *redis.Cmd) []Fault {
	user, err := answer.Result()
	if redis.HasErrorPrefix(err, "NOPERM") {
		return []Fault{{What: fmt.Sprintf("Redis at %s does not let this user ask for the rights of the default user (ACL GETUSER): "+
			"if it is off, see that it has all rights, as 'user default off ~* &* +@all' gives them", server)}}
	}
	rights, ok := user.(map[any]any)
	if err != nil || !ok || rights["keys"] == "~*" && rights["channels"] == "&*" && rights["commands"] == "+@all" {
		return nil
	}
	return []Fault{{
		What:   fmt.Sprintf("Redis at %s forgets at its restart that sessions were ended and codes spent: its default user has not all rights, and Redis needs them to replay its append-only file", server),
		Advice: "write 'user default off ~* &* +@all' into Redis' configuration or its ACL file; nobody can log in as a user that is off",
	}}
}

// infoField returns a field of what INFO answers.
func infoField(info, name string) string {
	for line := range strings.Lines(info) {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// Close lets the calls in flight finish, which takes a second at most, and
// closes the connections. Later calls fail.
func (r *Redis) Close() error {
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

// SetDeployment names whose sessions these are. Several deployments that use one
// Redis see nothing of each other if each has a name of its own. It must be
// called before Start, if it is, with any text but braces.
func (r *Redis) SetDeployment(name string) {
	r.deployment = name + ":"
	r.tags = bucketTags(r.deployment)
}

// KeyPrefix is what all keys of the deployment begin with.
func (r *Redis) KeyPrefix() string { return "{mg:" + r.deployment }

// Sessions returns the sessions in Redis.
func (r *Redis) Sessions() record.Sessions { return redisSessions{r} }

// Calls

// call gives f the time of a call. An error that is no answer of the interface
// tells what was being done.
func (r *Redis) call(ctx context.Context, doing string, f func(context.Context) error) error {
	err := r.limited(ctx, f)
	if err == nil || record.IsAnswer(err) {
		return err
	}
	return fmt.Errorf("%s: %w", doing, err)
}

func (r *Redis) limited(ctx context.Context, f func(context.Context) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	r.calls.RLock()
	defer r.calls.RUnlock()
	if r.closed {
		return errRedisClosed
	}
	// A change is seen through, also where nobody waits for its answer any more.
	call, done := record.StoreContext(context.WithoutCancel(ctx), redisCallTimeout)
	defer done()
	if deadline, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		call, cancel = context.WithDeadline(call, deadline)
		defer cancel()
	}
	return f(call)
}

// A redisPlace is a server, and how it is asked.
type redisPlace struct {
	*redis.Client
	asking bool // for keys which are on their way to it, which it must be told
	alone  bool // what is sent shares no round trip
}

// place returns the server that has a key.
func (r *Redis) place(ctx context.Context, key string) (redisPlace, error) {
	if r.single != nil {
		return redisPlace{Client: r.single}, nil
	}
	server, err := r.cluster.MasterForKey(ctx, key)
	return redisPlace{Client: server}, err
}

// at calls f with the server that has the key. A server which has not got it
// has done nothing, so f is called again with the one it names.
func (r *Redis) at(ctx context.Context, key string, f func(redisPlace) error) error {
	place, err := r.place(ctx, key)
	if err != nil {
		return err
	}
	for hop := 1; ; hop++ {
		err = f(place)
		asked, asking := redis.IsAskError(err)
		_, moved := redis.IsMovedError(err)
		if r.cluster == nil || !asking && !moved || hop == redisHops {
			return err
		}
		servers, reloadErr := r.servers(ctx)
		if reloadErr != nil {
			return err
		}
		if asking {
			place = redisPlace{Client: servers[asked], asking: true}
		} else {
			place, _ = r.place(ctx, key)
		}
		if place.Client == nil {
			return err
		}
	}
}

// servers learns anew which servers the Cluster has, and returns them by address.
func (r *Redis) servers(ctx context.Context) (map[string]*redis.Client, error) {
	var mu sync.Mutex
	servers := map[string]*redis.Client{}
	err := r.cluster.ForEachMaster(ctx, func(_ context.Context, c *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		servers[c.Options().Addr] = c
		return nil
	})
	return servers, err
}

// do sends a command, together with others that are for its server. Without that, a node
// answers some 15 % fewer requests whose sessions it does not remember.
func (p redisPlace) do(ctx context.Context, command redis.Cmder) error {
	if p.asking || p.alone {
		return p.doOn(ctx, p.Client, command)
	}
	pipeline, err := p.AsyncAutoPipeline()
	if err != nil {
		return err
	}
	return pipeline.Submit(ctx, command).WaitContext(ctx) // what is sent is not taken back
}

// execRedis sends a pipeline's commands, and returns an error that none of them has. The
// client library tells none why it got no connection, if a server said so.
func execRedis(ctx context.Context, pipe redis.Pipeliner) error {
	commands, err := pipe.Exec(ctx)
	if slices.ContainsFunc(commands, func(c redis.Cmder) bool { return c.Err() != nil }) {
		return nil
	}
	return err
}

// A redisSender is a *redis.Client or *redis.Conn.
type redisSender interface {
	Pipeline() redis.Pipeliner
	Process(ctx context.Context, command redis.Cmder) error
}

// doOn sends a command alone.
func (p redisPlace) doOn(ctx context.Context, on redisSender, command redis.Cmder) error {
	if !p.asking {
		return on.Process(ctx, command)
	}
	pipe := on.Pipeline()
	pipe.Do(ctx, "asking")
	_ = pipe.Process(ctx, command) // never fails
	return cmp.Or(execRedis(ctx, pipe), command.Err())
}
