package redis

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/url"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

var urlOptions = []string{"ca", "db", "pool_size", "sentinel_password", "sentinel_user"}

// parseURLs returns the options that the URLs share, and their addresses.
func parseURLs(urls []string) (target, []string, error) {
	var first target
	var addrs []string
	for i, s := range urls {
		t, err := parseURL(s)
		if err != nil {
			//lint:ignore ST1005 Redis is a name
			return target{}, nil, fmt.Errorf("Redis URL %d %w", i+1, err)
		}
		addrs = append(addrs, t.options.Addr)
		if i == 0 {
			first = t
			continue
		}
		if what := first.differsFrom(t); what != "" {
			//lint:ignore ST1005 Redis is a name
			return target{}, nil, fmt.Errorf("Redis URLs 1 and %d differ in %s; only host and port may differ", i+1, what)
		}
	}
	return first, addrs, nil
}

func (t target) differsFrom(u target) string {
	a, b := t.options, u.options
	switch {
	case a.Network != b.Network || (a.TLSConfig == nil) != (b.TLSConfig == nil):
		return "their scheme"
	case a.Username != b.Username || a.Password != b.Password,
		t.sentinelUser != u.sentinelUser || t.sentinelPassword != u.sentinelPassword:
		return "their credentials"
	case a.DB != b.DB:
		return "their database"
	case a.PoolSize != b.PoolSize:
		return "pool_size"
	case a.TLSConfig != nil && !a.TLSConfig.RootCAs.Equal(b.TLSConfig.RootCAs):
		return "ca"
	}
	return ""
}

// parseURL returns errors that continue the text "Redis URL n". The errors
// quote nothing of the URL: if its password was not percent-encoded, any part may be
// a piece of it.
func parseURL(s string) (target, error) {
	u, err := url.Parse(s)
	if err != nil || u.Opaque != "" || u.Fragment != "" || strings.Contains(u.EscapedPath()+u.RawQuery, "@") {
		return target{}, errors.New("can't be read; is it like redis://user:password@host:6379/0, " +
			"and what is special in its password percent-encoded?")
	}
	if !slices.Contains([]string{"redis", "rediss", "unix"}, u.Scheme) {
		return target{}, errors.New("begins with none of redis://, rediss://, unix://")
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return target{}, errors.New("has options behind its ? that can't be read")
	}
	for _, name := range slices.Sorted(maps.Keys(query)) {
		if !slices.Contains(urlOptions, name) {
			return target{}, fmt.Errorf("has an option after ? that is not one of %s", strings.Join(urlOptions, ", "))
		}
		if values := query[name]; len(values) > 1 || values[0] == "" {
			return target{}, fmt.Errorf("has the option %s twice or without a value", name)
		}
	}
	return newTarget(u, query)
}

func newTarget(u *url.URL, query url.Values) (target, error) {
	t := target{sentinelUser: query.Get("sentinel_user"), sentinelPassword: query.Get("sentinel_password")}
	rest := *u
	rest.RawQuery = ""
	if db := query.Get("db"); db != "" {
		rest.RawQuery = url.Values{"db": {db}}.Encode()
	}
	o, err := goredis.ParseURL(rest.String())
	if err != nil || o.DB < 0 {
		return target{}, errors.New("names a database that is not a number, or no socket")
	}
	if size := query.Get("pool_size"); size != "" {
		if o.PoolSize, err = strconv.Atoi(size); err != nil || o.PoolSize < 1 {
			return target{}, errors.New("has a pool_size that is not a number of connections")
		}
	}
	if o.TLSConfig != nil {
		o.TLSConfig.ServerName = "" // each connection uses its own server's name: sentinels and nodes of a Cluster name further servers
	}
	if file := query.Get("ca"); file != "" {
		if o.TLSConfig == nil {
			return target{}, errors.New("has the option ca but no TLS; make it begin with rediss://")
		}
		if o.TLSConfig.RootCAs, err = readCAs(file); err != nil {
			return target{}, fmt.Errorf("has a ca that can't be used: %w", err)
		}
	}
	t.options = withoutRetries(o)
	return t, nil
}

// withoutRetries turns the client's own retries off, because a command that may have
// had an effect must not be repeated. The timeouts are set by OpenWithin.
func withoutRetries(o *goredis.Options) *goredis.Options {
	o.MaxRetries = -1
	o.DialerRetries = 1
	o.ContextTimeoutEnabled = true
	o.PipelinePoolSize = -1 // use one pool for everything
	o.PoolSize = cmp.Or(o.PoolSize, 10*runtime.GOMAXPROCS(0))
	o.DisableIdentity = true
	o.ConnMaxIdleTime = maxIdle
	o.Dialer = unlessFull(goredis.NewDialer(o), o)
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	return o
}

// unlessFull asks a server on each new connection whether it is full, or takes no strangers.
// Otherwise a command could end with a broken connection, and nobody would know whether it was
// carried out.
func unlessFull(dial dialer, o *goredis.Options) dialer {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		_ = conn.SetDeadline(time.Now().Add(o.DialTimeout))
		_, _ = io.WriteString(conn, "PING\r\n") // if it fails, there may be an answer all the same
		answer, err := bufio.NewReader(conn).ReadString('\n')
		answer, _, _ = strings.Cut(strings.Trim(answer, "-\r\n"), ". ") // what follows is its own advice, at length
		if said := serverError(answer); goredis.HasErrorPrefix(said, isFull) || goredis.HasErrorPrefix(said, isProtected) {
			err = said
		}
		if err != nil {
			conn.Close()
			return nil, err
		}
		if t, ok := conn.(*tls.Conn); ok {
			conn = tlsConn{t, o.DialTimeout}
		}
		return conn, conn.SetDeadline(time.Time{})
	}
}

// A tlsConn lets the client library see, before it sends a command, that the server has
// closed the connection. The library looks at the socket, which a *tls.Conn hides.
type tlsConn struct {
	*tls.Conn
	limit time.Duration
}

// SyscallConn implements syscall.Conn.
func (c tlsConn) SyscallConn() (syscall.RawConn, error) {
	_ = c.SetReadDeadline(time.Now().Add(c.limit)) // the library reads if something came, which may be of TLS alone
	return c.NetConn().(syscall.Conn).SyscallConn()
}

// A serverError is an error with which a server answers. It implements redis.Error.
type serverError string

func (a serverError) Error() string { return string(a) }

// RedisError implements redis.Error.
func (serverError) RedisError() {}

type dialer func(ctx context.Context, network, addr string) (net.Conn, error)

func readCAs(file string) (*x509.CertPool, error) {
	pem, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s has no certificates", file)
	}
	return pool, nil
}
