package caddymodule

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/mnemogate/mnemogate/store"
)

func init() {
	caddy.RegisterModule(Postgres{})
	caddy.RegisterModule(Redis{})
}

// Postgres keeps accounts in a PostgreSQL database, which any number of nodes
// share. Sessions are kept elsewhere: `sessions` must say where.
type Postgres struct {
	// The database, as a URL or in the keyword=value form of libpq. Write it as
	// `{env.NAME}` or `{file.PATH}`, since it holds the password. Unless the
	// server is on this machine it must say sslmode, as verify-full with
	// sslrootcert for a CA of your own; prefer and allow, which fall back to
	// plaintext, are refused.
	DSN string `json:"dsn"`

	// How many connections this node opens at most. Default: 8.
	MaxConns int `json:"max_conns,omitempty"`
}

// CaddyModule returns the Caddy module information.
func (Postgres) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "mnemogate.accounts.postgres", New: func() caddy.Module { return new(Postgres) }}
}

// UnmarshalCaddyfile takes the database. Syntax:
//
//	postgres <dsn> {
//		max_conns <n>
//	}
func (p *Postgres) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next()
	if !d.AllArgs(&p.DSN) {
		return d.ArgErr()
	}
	return guestOptions(d, naming(map[string]func() error{
		"max_conns": oneValue(d, intValue(&p.MaxConns)),
	}))
}

// Provision parses the DSN and connects to nothing.
func (p *Postgres) Provision(caddy.Context) error {
	if p.MaxConns < 0 || p.MaxConns > 10_000 {
		return errors.New("store postgres: max_conns: choose 1 to 10000")
	}
	if err := resolveInto("store postgres", &p.DSN); err != nil {
		return err
	}
	made, err := p.open()
	if err != nil {
		return fmt.Errorf("store postgres: %w", err)
	}
	return made.Close()
}

func (p *Postgres) open() (*store.Postgres, error) {
	return store.OpenPostgres(p.DSN, store.PostgresOptions{MaxConns: int32(p.MaxConns)})
}

// Key implements StoreGuest.
func (p *Postgres) Key() string { return storeKey("postgres", p.DSN, p.MaxConns) }

// Store implements StoreGuest.
func (p *Postgres) Store() (Store, error) { return p.open() }

// Redis keeps sessions, one-time codes and counters in Redis, which any number
// of nodes share: one server, a Cluster, or a master behind Sentinel. A node
// remembers the sessions it is asked for and hears from Redis, at once, of each
// that ends; while it can't hear it asks for every request.
type Redis struct {
	// The URLs: `redis://` or, with TLS, `rediss://`, with `?ca=<file>` for a CA
	// of your own. One is a server, several are nodes of a Cluster or, with
	// `sentinel`, the sentinels. Write one with a password as `{env.NAME}` or
	// `{file.PATH}`.
	URLs []string `json:"urls"`

	// The name under which the sentinels know the master. Default: no sentinels.
	Sentinel string `json:"sentinel,omitempty"`

	// How many replicas must have a change before it is acknowledged. With at
	// least 1 what was spent or ended does not come back when the master is lost.
	// Where so few answer, so do we: `service.unavailable`. Default: 0.
	WaitReplicas int `json:"wait_replicas,omitempty"`

	log *slog.Logger
}

// CaddyModule returns the Caddy module information.
func (Redis) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "mnemogate.sessions.redis", New: func() caddy.Module { return new(Redis) }}
}

// UnmarshalCaddyfile takes the servers. Syntax:
//
//	redis <url>... {
//		sentinel <master name>
//		wait_replicas <n>
//	}
func (r *Redis) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next()
	if r.URLs = d.RemainingArgs(); len(r.URLs) == 0 {
		return d.ArgErr()
	}
	return guestOptions(d, naming(map[string]func() error{
		"sentinel":      oneArg(d, &r.Sentinel),
		"wait_replicas": oneValue(d, intValue(&r.WaitReplicas)),
	}))
}

// Provision resolves the URLs and parses them. It connects to nothing.
func (r *Redis) Provision(ctx caddy.Context) error {
	r.log = ctx.Slogger()
	for i := range r.URLs {
		if err := resolveInto("sessions redis", &r.URLs[i]); err != nil {
			return err
		}
	}
	made, err := store.OpenRedis(r.options())
	if err != nil {
		return fmt.Errorf("sessions redis: %w", err)
	}
	return made.Close()
}

func (r *Redis) options() store.RedisOptions {
	return store.RedisOptions{URLs: r.URLs, SentinelMaster: r.Sentinel, WaitReplicas: r.WaitReplicas, Log: r.log}
}

// Key implements StoreGuest.
func (r *Redis) Key() string {
	return storeKey("redis", strings.Join(r.URLs, " "), r.Sentinel, r.WaitReplicas)
}

// Store implements StoreGuest.
func (r *Redis) Store() (Store, error) { return store.OpenRedis(r.options()) }

// storeKey names a store without telling its secrets.
func storeKey(module string, config ...any) string {
	hash := sha256.Sum256(fmt.Appendf(nil, "%q", config))
	return module + ":" + hex.EncodeToString(hash[:])
}

// Interface guards
var (
	_ StoreGuest            = (*Postgres)(nil)
	_ StoreGuest            = (*Redis)(nil)
	_ caddy.Provisioner     = (*Postgres)(nil)
	_ caddy.Provisioner     = (*Redis)(nil)
	_ caddyfile.Unmarshaler = (*Postgres)(nil)
	_ caddyfile.Unmarshaler = (*Redis)(nil)
	_ AccountsStore         = (*store.Postgres)(nil)
	_ FeedingStore          = (*store.Redis)(nil)
)
