// Package postgres keeps accounts in a PostgreSQL database, for any number of nodes. Begin
// with Store, then read accounts.go and the package sqlstore.
package postgres

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/store/sqlstore"
)

// A Store keeps accounts in a PostgreSQL database. A
// change that a method has acknowledged was committed. After an error that package
// record does not document, it may have been committed too.
//
// Each call returns within 2 s, or within the time that its request has left, including
// the wait for a connection. Most calls are one statement or one batch of statements,
// which PostgreSQL runs as one transaction.
type Store struct {
	record.Observed
	config *pgxpool.Config
	half   sqlstore.Half

	migrations fs.FS

	starting sync.Mutex // held by Start and Close; guards pool and closed
	pool     *pgxpool.Pool
	closed   bool

	open     atomic.Pointer[pgxpool.Pool] // pool while the store is open, or nil
	refused  atomic.Pointer[refusedConn]  // the last one; nil before
	turn     chan struct{}                // holds the call that may ask again for a connection
	created  atomic.Bool                  // Start found no tables
	answered atomic.Int64                 // when the server last answered, since started
}

// started is the origin of times on the monotonic clock, which nobody sets.
var started = time.Now()

// Options are the settings that are not in the DSN.
type Options struct {
	// MaxConns is the maximum number of connections of a node. Default: 8, so that
	// twelve nodes fit into the hundred connections that PostgreSQL allows by
	// default.
	MaxConns int32
	// Tracer is told of each statement, in tests.
	Tracer pgx.QueryTracer
}

const (
	timeout        = 2 * time.Second
	connectTimeout = 1500 * time.Millisecond // less than timeout, to leave time for the call itself
	migrateTimeout = time.Minute
	closeTimeout   = 5 * time.Second
	maxConns       = 8
	maxTries       = 20                     // per call
	pause          = 2 * time.Millisecond   // before a call asks again for a connection
	refusedFor     = 100 * time.Millisecond // in which a server that refused a connection is not asked for another
	sweepChunk     = 500
	// The key of the lock taken with pg_advisory_xact_lock: "mnemogat".
	migrationLock = int64(0x6d6e656d6f676174)
)

var errNotOpen = errors.New("the PostgreSQL store is not open")

// Open returns the store in the database that dsn names. It does not connect
// before Start.
//
// The DSN is a postgres:// URL or keyword=value pairs, as for psql. The PG…
// environment variables supply what it leaves out. Unless the server is on this
// machine, you must set sslmode, and not to prefer or allow, which fall back to
// plaintext. The DSN may name several hosts; the store uses the one that accepts
// writes. The tables are in the schema that search_path selects.
//
// An error says what is wrong with the DSN, without any of its secrets.
func Open(dsn string, options Options) (*Store, error) {
	config, err := config(dsn)
	if err != nil {
		return nil, err
	}
	switch {
	case options.MaxConns < 0:
		return nil, fmt.Errorf("%d connections are too few", options.MaxConns)
	case options.MaxConns == 0:
		config.MaxConns = maxConns
	default:
		config.MaxConns = options.MaxConns
	}
	config.ConnConfig.Tracer = options.Tracer
	p := &Store{config: config, migrations: migrations, half: sqlstore.HalfOf(int(config.MaxConns)), turn: make(chan struct{}, 1)}
	config.BeforeConnect = func(context.Context, *pgx.ConnConfig) error { return p.refusedBefore() }
	return p, nil
}

// Accounts returns the accounts in the database. Its methods fail until Start has
// succeeded.
func (p *Store) Accounts() record.Accounts {
	return sqlstore.Accounts{Database: p, Dialect: dialect}
}

// Start connects and updates the tables. Many nodes may call it at once. Its error
// wraps record.ErrUnreachable if the server did not answer. After an error you may call it
// again. On a started store it does nothing.
//
// Start accepts tables that a newer version has changed: migrations only ever add,
// so that you can upgrade nodes one by one.
func (p *Store) Start(ctx context.Context) error {
	p.starting.Lock()
	defer p.starting.Unlock()
	switch {
	case p.closed:
		return errNotOpen
	case p.open.Load() != nil:
		return nil
	}
	if p.pool == nil {
		pool, err := pgxpool.NewWithConfig(context.WithoutCancel(ctx), p.config)
		if err != nil {
			return err
		}
		p.pool = pool
	}
	if err := p.prepare(ctx); err != nil {
		return fmt.Errorf("starting on PostgreSQL: %w", p.explain(err))
	}
	p.open.Store(p.pool)
	return nil
}

// Place returns the database with its hosts, and whether Start created the tables.
func (p *Store) Place() (string, bool) {
	var addresses []string
	for _, h := range hosts(&p.config.ConnConfig.Config) {
		_, address := pgconn.NetworkAddress(h.Host, h.Port)
		addresses = append(addresses, address)
	}
	return "database " + p.config.ConnConfig.Database + " at " + strings.Join(slices.Compact(addresses), ", "), p.created.Load()
}

// hosts returns the ways to connect, the first one first.
func hosts(c *pgconn.Config) []*pgconn.FallbackConfig {
	return append([]*pgconn.FallbackConfig{{Host: c.Host, Port: c.Port, TLSConfig: c.TLSConfig}}, c.Fallbacks...)
}

// Unverified says what strangers can do because no certificate of a server on another machine
// is checked, or "".
func (p *Store) Unverified() string {
	for _, h := range hosts(&p.config.ConnConfig.Config) {
		switch t := h.TLSConfig; {
		case onThisMachine(h.Host):
		case t == nil:
			return "anyone on the network path to " + h.Host + " can read and change accounts, since sslmode is disable"
		case t.InsecureSkipVerify && t.VerifyPeerCertificate == nil:
			return "anyone on the network path can pose as " + h.Host + " and learn the password, since no certificate is checked with this sslmode"
		}
	}
	return ""
}

// Faults asks for settings with which the server loses data if its machine crashes, for
// those that a pooler has left out, and for other roles that may use the tables.
func (p *Store) Faults(ctx context.Context) (faults []record.Fault, err error) {
	scan := func(row sqlstore.Scanner) (s [3]string, err error) { return s, row.Scan(&s[0], &s[1], &s[2]) }
	all, err := sqlstore.QueryAll(ctx, p, "asking for settings", scan, selectSettings)
	for _, s := range all {
		switch name, value, role, wanted := s[0], s[1], s[2], settings[s[0]]; {
		case slices.Contains(unsafe, name) && value == "off":
			faults = append(faults, record.Fault{
				What:   "PostgreSQL can lose what it has acknowledged, such as used codes and revoked sessions, if its machine crashes: its " + name + " is off",
				Advice: "set " + name + " = on",
			})
		case wanted != "" && value != wanted:
			faults = append(faults, record.Fault{
				What:   "a pooler such as PgBouncer does not pass the settings on with which PostgreSQL answers in time: its " + name + " is " + value,
				Advice: fmt.Sprintf("let the owner of the role run: ALTER ROLE %s SET %s = '%s'", role, name, wanted),
			})
		}
	}
	if err != nil {
		return faults, err
	}
	open, err := sqlstore.QueryAll(ctx, p, "asking who may read the tables", sqlstore.ScanValue[string], selectOthers, tables())
	for _, revoke := range open {
		faults = append(faults, record.Fault{
			What:   "other roles of the database may use the tables, which have the secret, password hashes and phones",
			Advice: "unless you want that, run: " + revoke,
		})
	}
	if several := p.writable(ctx); len(several) > 1 {
		faults = append(faults, record.Fault{
			What:   "several servers accept writes, at " + strings.Join(several, " and ") + ": each connection goes to the first that it reaches, so that changes are lost, and accounts differ",
			Advice: "stop the old primary, and make it a standby of the present one with pg_rewind or pg_basebackup",
		})
	}
	return faults, err
}

// writable returns the addresses of the different servers that accept writes.
func (p *Store) writable(ctx context.Context) []string {
	found := map[time.Time]string{} // by when the server was started, since it may have several addresses
	for _, h := range hosts(&p.config.ConnConfig.Config) {
		config := p.config.ConnConfig.Copy()
		config.Host, config.Port, config.TLSConfig, config.Fallbacks = h.Host, h.Port, h.TLSConfig, nil
		conn, err := pgx.ConnectConfig(ctx, config)
		if err != nil { // one that takes no writes refuses us
			continue
		}
		var started time.Time
		if err := conn.QueryRow(ctx, `SELECT pg_postmaster_start_time()`).Scan(&started); err == nil {
			_, found[started] = pgconn.NetworkAddress(h.Host, h.Port)
		}
		_ = conn.Close(ctx)
	}
	return slices.Sorted(maps.Values(found))
}

// unsafe are settings that must not be off.
var unsafe = []string{"fsync", "full_page_writes", "synchronous_commit"}

// Poolers may have another name for the role than the DSN.
var selectSettings = `SELECT name, setting, quote_ident(session_user) FROM pg_settings WHERE name IN ('` +
	strings.Join(slices.AppendSeq(slices.Clone(unsafe), maps.Keys(settings)), "', '") + `') ORDER BY name`

// selectOthers returns the statement that locks other roles out of the tables, if there are
// any. A role that does not own the tables sees only PUBLIC and the roles that it
// is a member of, which it needs.
const selectOthers = `SELECT format('REVOKE ALL ON %s FROM %s',
		(SELECT string_agg(format('%I.%I', schemaname, tablename), ', ' ORDER BY tablename)
			FROM pg_tables WHERE schemaname = current_schema() AND tablename = ANY ($1)),
		string_agg(DISTINCT CASE grantee WHEN 'PUBLIC' THEN grantee ELSE quote_ident(grantee) END, ', '))
	FROM information_schema.table_privileges
	WHERE table_schema = current_schema() AND table_name = 'secrets' AND grantee NOT IN (grantor, current_user)
		AND (grantee = 'PUBLIC' OR pg_has_role(current_user, grantor::name, 'USAGE'))
	HAVING count(*) > 0`

const clock = `SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint`

// Clock returns the server's time.
func (p *Store) Clock(ctx context.Context) (time.Time, error) {
	now, err := sqlstore.QueryOne(ctx, p, "asking for the time", sqlstore.ScanValue[int64], clock)
	return record.FromMicros(now), err
}

// Close waits for the calls in flight, for a few seconds at most, and closes the
// connections. Later calls of any method fail.
func (p *Store) Close() error {
	p.starting.Lock()
	defer p.starting.Unlock()
	p.closed = true
	p.open.Store(nil)
	if p.pool == nil {
		return nil
	}
	closed := make(chan struct{})
	go func() {
		p.pool.Close()
		close(closed)
	}()
	select {
	case <-closed:
		return nil
	case <-time.After(closeTimeout):
		return errors.New("closing the PostgreSQL store: connections are still in use")
	}
}

// Opening

// config parses a DSN and adds the settings that each connection needs.
func config(dsn string) (*pgxpool.Config, error) {
	if strings.TrimSpace(dsn) == "" {
		return nil, errors.New("the DSN is empty")
	}
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, dsnError(err)
	}
	conn := config.ConnConfig
	if err := checkHosts(&conn.Config); err != nil {
		return nil, err
	}
	if err := checkOptions(dsn, conn); err != nil {
		return nil, err
	}
	// pgx passes what it does not know on to the server, which would refuse these.
	for _, name := range slices.Sorted(maps.Keys(conn.RuntimeParams)) {
		if slices.Contains(foreignParameters, name) {
			return nil, fmt.Errorf("the DSN's parameter %s is for other clients of PostgreSQL: leave it out", name)
		}
	}
	// The hosts share the time, because the first may be dead.
	limit := connectTimeout / time.Duration(1+len(conn.Fallbacks))
	if conn.ConnectTimeout <= 0 || conn.ConnectTimeout > limit {
		conn.ConnectTimeout = limit
	}
	maps.Copy(conn.RuntimeParams, settings)
	conn.RuntimeParams["client_encoding"] = "UTF8" // whatever the role's default is
	conn.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsReadWrite
	closeWhenReadOnly(&conn.Config)
	limitHandshakes(config)
	config.PingTimeout = timeout / 2
	config.MaxConnIdleTime = 5 * time.Minute
	config.MaxConnLifetimeJitter = 10 * time.Minute
	return config, nil
}

// settings are those that each connection needs. A pooler may leave them out: see Faults.
var settings = map[string]string{
	"statement_timeout": fmt.Sprint(timeout.Milliseconds()),
	// Frees the locks of a node that vanished.
	"idle_in_transaction_session_timeout": fmt.Sprint(timeout.Milliseconds()),
	// The statements must see what was committed while they waited for a lock,
	// whatever the database's default is.
	"default_transaction_isolation": "read committed",
	// Each statement has an index that is right for any number of rows. Planning it
	// each time would take as long as running it. Sequential scans are off, because
	// a plan that was made while the tables were empty would stay in use while an
	// import fills them.
	"plan_cache_mode": "force_generic_plan",
	"enable_seqscan":  "off",
	// Compiling a statement takes longer than running any of them.
	"jit": "off",
}

// foreignParameters are parameters of libpq and of other clients that neither pgx nor the
// server knows. The server's own parameters are not listed anywhere: it has hundreds.
var foreignParameters = strings.Fields(`
	fallback_application_name gssdelegation gssencmode gsslib hostaddr keepalives keepalives_count keepalives_idle
	keepalives_interval load_balance_hosts oauth_client_id oauth_client_secret oauth_issuer oauth_scope requirepeer
	requiressl scram_client_key scram_server_key ssl ssl_max_protocol_version ssl_min_protocol_version sslcompression
	sslcrl sslcrldir sslkeylogfile tcp_user_timeout
	connection_limit pgbouncer pool_mode pool_size pool_timeout prepareThreshold prepare_threshold schema
	socket_timeout sslaccept sslidentity statement_cache_size`)

// dsnError returns what pgx found wrong, without the DSN. pgx masks what looks like
// a password, but in a DSN that can't be parsed the password can be anywhere.
func dsnError(err error) error {
	parse, ok := errors.AsType[*pgconn.ParseConfigError](err)
	if !ok {
		return errors.New("the DSN can't be parsed")
	}
	reason := strings.TrimPrefix(parse.Error(), pgconn.NewParseConfigError(parse.ConnString, "", nil).Error())
	if inner := parse.Unwrap(); inner != nil && strings.HasPrefix(reason, "failed to parse") {
		reason = strings.TrimSuffix(reason, " ("+inner.Error()+")") // it quotes the DSN
	}
	return fmt.Errorf("the DSN can't be used: %s; write postgres://user:password@host/database?sslmode=verify-full, "+
		"with %%xx for special characters in the password", reason)
}

// checkHosts refuses connections that can fall back to plaintext. It also detects
// passwords whose / or @ was not written as %2F or %40.
func checkHosts(config *pgconn.Config) error {
	if strings.ContainsAny(config.Database, "@/") {
		return errors.New("the DSN's database has an @ or /: write special characters in the password as %xx")
	}
	type place struct {
		host string
		port uint16
	}
	encrypted, plain := map[place]bool{}, map[place]bool{}
	for _, h := range hosts(config) {
		at := place{h.Host, h.Port}
		if h.TLSConfig == nil {
			plain[at] = true
		} else {
			encrypted[at] = true
		}
		if plain[at] && encrypted[at] && !onThisMachine(h.Host) {
			return fmt.Errorf("the connection to %s could fall back to plaintext, since the DSN's sslmode is not set, "+
				"prefer or allow: set it to verify-full (with sslrootcert=<file> for a CA of your own), require or disable", h.Host)
		}
	}
	return nil
}

// checkOptions refuses options of pgx with which nothing would work, or which would have no
// effect.
func checkOptions(dsn string, conn *pgx.ConnConfig) error {
	mode := conn.DefaultQueryExecMode
	if conn.StatementCacheCapacity < 1 && mode == pgx.QueryExecModeCacheStatement ||
		conn.DescriptionCacheCapacity < 1 && mode == pgx.QueryExecModeCacheDescribe {
		return errors.New("the DSN turns off the cache that its default_query_exec_mode needs: " +
			"leave out statement_cache_capacity and description_cache_capacity")
	}
	given, err := pgconn.ParseConfig(dsn) // which leaves the pool's options in it
	if err != nil {
		return dsnError(err)
	}
	const size = "pool_max_conns"
	if n, ok := given.RuntimeParams[size]; ok {
		return fmt.Errorf("the DSN's %s has no effect: write max_conns %s in the block of the store instead", size, n)
	}
	for _, fixed := range []string{"pool_max_conn_idle_time", "pool_max_conn_lifetime_jitter", "pool_ping_timeout"} {
		if _, ok := given.RuntimeParams[fixed]; ok {
			return fmt.Errorf("the DSN's %s has no effect: leave it out", fixed)
		}
	}
	return nil
}

// onThisMachine reports whether a connection to the host stays on this machine.
func onThisMachine(host string) bool {
	network, _ := pgconn.NetworkAddress(host, 0)
	return network == "unix" || host == "localhost" || net.ParseIP(host).IsLoopback()
}

// closeWhenReadOnly closes a connection to a server that has become a replica, so
// that the next connection finds the new primary.
func closeWhenReadOnly(config *pgconn.Config) {
	keep := config.OnPgError
	config.OnPgError = func(conn *pgconn.PgConn, err *pgconn.PgError) bool {
		return err.Code != "25006" && keep(conn, err)
	}
}

// limitHandshakes gives each connection a deadline until it is in the pool. The
// deadline is needed for the short connections on which pgx asks the server to
// cancel an abandoned statement. pgx waits up to 15 s for their answer, and
// meanwhile the abandoned connection takes a place in the pool.
func limitHandshakes(config *pgxpool.Config) {
	dial, limit := config.ConnConfig.DialFunc, config.ConnConfig.ConnectTimeout
	config.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		deadline := time.Now().Add(limit)
		ctx, cancel := context.WithDeadline(ctx, deadline)
		defer cancel()
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return conn, conn.SetDeadline(deadline)
	}
	config.AfterConnect = func(_ context.Context, conn *pgx.Conn) error {
		return conn.PgConn().Conn().SetDeadline(time.Time{})
	}
	config.BeforeClose = func(conn *pgx.Conn) {
		if conn.IsClosed() { // pgx would wait for the server to close it too
			conn.PgConn().Conn().Close()
		}
	}
}

// unreachable adds doing to an error. It also adds record.ErrUnreachable, unless the server
// has refused for good: wrong password, no such database, or no right to create
// tables.
func unreachable(doing string, err error) error {
	switch code := code(err); {
	case code == "":
	case slices.Contains([]string{"08", "25", "40", "53", "55", "57", "58"}, code[:2]):
		// Connections, replicas, rollbacks, resources, locks, shutdowns, system
		// errors.
	default:
		return fmt.Errorf("%s: %w", doing, err)
	}
	return fmt.Errorf("%w: %s: %w", record.ErrUnreachable, doing, err)
}

// Calls

// Reading implements sqlstore.Database. If the connection breaks, it runs f once more.
func (p *Store) Reading(ctx context.Context, f func(context.Context, sqlstore.Queries) error) error {
	err := p.call(ctx, true, func(ctx context.Context, on *pgxpool.Conn) error { return f(ctx, queries{on: on}) })
	if code(err) == "22021" { // a NUL, or invalid UTF-8
		return pgx.ErrNoRows
	}
	return err
}

func (p *Store) Writing(ctx context.Context, f func(context.Context, sqlstore.Queries) error) error {
	return p.call(ctx, false, func(ctx context.Context, on *pgxpool.Conn) error { return f(ctx, queries{on: on}) })
}

// Transaction sends BEGIN with the first statement whose result f needs, and COMMIT with
// those after the last one, because each round trip takes as long as several statements.
func (p *Store) Transaction(ctx context.Context, f func(context.Context, sqlstore.Queries) error) error {
	return p.call(ctx, false, func(ctx context.Context, on *pgxpool.Conn) error {
		defer func() {
			if on.Conn().PgConn().TxStatus() != 'I' {
				_, _ = on.Exec(ctx, "ROLLBACK") // if it fails, Release closes the connection
			}
		}()
		q := queries{on, new(pgx.Batch)}
		q.waiting.Queue("BEGIN")
		if err := f(ctx, q); err != nil {
			return err
		}
		var commit pgx.Batch
		commit.Queue("COMMIT").Exec(func(tag pgconn.CommandTag) error {
			if tag.String() == "ROLLBACK" { // a statement had failed
				return pgx.ErrTxCommitRollback
			}
			return nil
		})
		return q.run(ctx, &commit)
	})
}

// call runs f on a connection. It may call f again if nothing of it was stored. The
// caller's context counts only until there is a connection: interrupting a statement
// takes longer than running it, and costs the connection.
func (p *Store) call(ctx context.Context, readOnly bool, f func(context.Context, *pgxpool.Conn) error) error {
	began := time.Now()
	ctx, done := record.StoreContext(ctx, timeout)
	defer done()
	if err := ctx.Err(); err != nil { // the request has no time left, which says nothing of the server
		return err
	}
	leave, err := p.half.Enter(ctx)
	if err != nil {
		return fmt.Errorf("waiting for a connection: %w", err)
	}
	defer leave()
	for tries := 1; ; tries++ {
		pool := p.open.Load()
		if pool == nil {
			return errNotOpen
		}
		broken, err := p.attempt(ctx, pool, began, f)
		repeat := rolledBack(err) || readOnly && broken && tries == 1
		if err == nil || !repeat || tries == maxTries || ctx.Err() != nil {
			return err
		}
	}
}

// A refusedConn is a connection that the server refused for now.
type refusedConn struct {
	at  time.Time
	err error
}

// refusedBefore returns the error of the last refused connection if that was just now.
func (p *Store) refusedBefore() error {
	if last := p.refused.Load(); last != nil && time.Since(last.at) < refusedFor {
		return last.err
	}
	return nil
}

// acquire takes a connection from the pool. If the server refuses a new one for now,
// acquire waits for one that is free. Of the calls that wait, one at a time asks the pool.
func (p *Store) acquire(ctx context.Context, pool *pgxpool.Pool) (*pgxpool.Conn, error) {
	refused := p.refusedBefore()
	if refused == nil {
		var conn *pgxpool.Conn
		if conn, refused = p.ask(ctx, pool); !refusedForNow(refused) {
			return conn, refused
		}
	}
	select {
	case p.turn <- struct{}{}:
		defer func() { <-p.turn }()
	case <-ctx.Done():
		return nil, refused
	}
	for {
		select {
		case <-ctx.Done():
			return nil, refused
		case <-time.After(pause):
		}
		conn, err := p.ask(ctx, pool)
		if err == nil || !refusedForNow(err) && ctx.Err() == nil {
			return conn, err
		}
	}
}

// ask takes a connection from the pool, and remembers if the server refuses one.
func (p *Store) ask(ctx context.Context, pool *pgxpool.Pool) (*pgxpool.Conn, error) {
	conn, err := pool.Acquire(ctx)
	if refusedForNow(err) && p.refusedBefore() == nil {
		p.refused.Store(&refusedConn{time.Now(), err})
	}
	return conn, err
}

// refusedForNow reports whether the server is full, or is starting or stopping. PgBouncer
// has one code for all of these.
func refusedForNow(err error) bool {
	return slices.Contains([]string{"53300", "57P03", "08P01"}, code(err))
}

// attempt runs f and reports whether the connection broke.
func (p *Store) attempt(
	ctx context.Context, pool *pgxpool.Pool, began time.Time, f func(context.Context, *pgxpool.Conn) error,
) (broken bool, err error) {
	conn, err := p.acquire(ctx, pool)
	if err != nil {
		if errors.Is(err, context.DeadlineExceeded) {
			p.resetIfDead(pool, began, err)
		}
		return false, fmt.Errorf("connecting: %w", p.explain(err))
	}
	defer conn.Release() // if f has panicked, this closes the connection
	deadline, _ := ctx.Deadline()
	ctx, cancel := context.WithDeadline(context.WithoutCancel(ctx), deadline)
	defer cancel()
	err = p.explain(f(ctx, conn))
	if broken = conn.Conn().IsClosed(); broken {
		p.resetIfDead(pool, began, err)
	} else {
		p.answered.Store(int64(time.Since(started)))
	}
	return broken, err
}

func (p *Store) explain(err error) error { return explain(err, p.config.ConnConfig.User) }

// resetIfDead empties the pool after a connection broke: the others are probably dead too,
// and each would cost a call. A timeout alone does not empty the pool if the server
// answers other calls, or if the call had little time.
func (p *Store) resetIfDead(pool *pgxpool.Pool, began time.Time, err error) {
	silent := min(began.Sub(started), time.Since(started)-timeout/2)
	if !errors.Is(err, context.DeadlineExceeded) || p.answered.Load() < int64(silent) {
		pool.Reset()
	}
}

// rolledBack reports whether err means that nothing was stored and that the call may
// succeed if it is made again. A broken connection means neither. pgconn.SafeToRetry
// can't be used: it says (pgx 5.12.0) that nothing was sent, even after a commit
// that was sent and not answered.
func rolledBack(err error) bool {
	switch code(err) {
	case "40001", "40P01", "25006", "23505": // serialization failure, deadlock, read-only, taken by another call just now
		return true
	}
	return errors.Is(err, sqlstore.ErrAgain)
}
