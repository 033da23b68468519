package stores

import (
	"fmt"
	"net/url"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/mnemogate/mnemogate/caddymodule/guest"
	"github.com/mnemogate/mnemogate/store/redis"
)

func init() {
	caddy.RegisterModule(Redis{})
	guest.Belong("sessions redis <url>... { ... }", new(Redis).syntax())
}

// Redis keeps sessions, one-time codes and counters in Redis: one server, a Cluster,
// or a master with Sentinel. Any number of nodes can share it. Deployments with
// another accounts store cannot find these sessions. A node keeps recently used
// sessions in memory, and Redis notifies it at once of each one that is revoked.
// While the node is not subscribed, it asks Redis for every request.
type Redis struct {
	// The URLs: `redis://` or, with TLS, `rediss://`, with `?ca=<file>` for your own
	// CA. One URL is a server. Several are nodes of a Cluster or, with `sentinel`,
	// the sentinels. Write a URL with a password as `{env.NAME}` or `{file.PATH}`.
	// `redis://` to another machine requires `insecure`.
	URLs []string `json:"urls"`

	// Whether to allow `redis://` to other machines. Anyone on the network path can
	// then read and change sessions. Each start logs a warning. Default: false.
	Insecure bool `json:"insecure,omitempty"`

	// The master's name in Sentinel. Default: no Sentinel.
	Sentinel string `json:"sentinel,omitempty"`

	// How many replicas must confirm a change before it is acknowledged. With at
	// least 1, used codes and revoked sessions do not come back after a failover, if
	// the promoted replica had confirmed the change. If too few replicas confirm,
	// the request gets `service.unavailable`. Default: 0.
	WaitReplicas int `json:"wait_replicas,omitempty"`
}

// CaddyModule returns the Caddy module information.
func (Redis) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "mnemogate.sessions.redis", New: func() caddy.Module { return new(Redis) }}
}

// UnmarshalCaddyfile takes the servers.
func (r *Redis) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next()
	if err := guest.Syntax(d, "redis <url>... [insecure]", guest.List(&r.URLs)); err != nil {
		return err
	}
	r.URLs, r.Insecure = guest.CutInsecure(r.URLs)
	return guest.Options(d, r.syntax())
}

func (r *Redis) syntax() guest.Parsers {
	return guest.Parsers{
		"sentinel <master>": guest.Text(&r.Sentinel),
		"wait_replicas <n>": guest.OneValue(func(arg string) string {
			if arg == "0" { // the default
				return ""
			}
			return guest.Int(&r.WaitReplicas)(arg)
		}),
	}
}

// Provision resolves and parses the URLs. It does not connect.
func (r *Redis) Provision(caddy.Context) error {
	for i := range r.URLs {
		if err := guest.ResolveInto("sessions redis", &r.URLs[i]); err != nil {
			return err
		}
	}
	if err := guest.CheckNoSecret(r.Sentinel, "write the name that the sentinels know"); err != nil {
		return guest.Inside("sessions redis: sentinel", err)
	}
	made, err := redis.Open(r.options())
	if err != nil {
		return fmt.Errorf("sessions redis: %w", err)
	}
	if host := r.withoutTLS(); host != "" && !r.Insecure {
		return fmt.Errorf("sessions redis: anyone on the network path to %s could read and change sessions; write rediss:// or, if you must, add the word insecure after the URLs", host)
	}
	return made.Close()
}

// withoutTLS returns the first server on another machine that is used without TLS, or ""
// if there is none. redis.Open has validated the URLs.
func (r *Redis) withoutTLS() string {
	for _, s := range r.URLs {
		if u, err := url.Parse(s); err == nil && u.Scheme == "redis" && u.Hostname() != "" && !guest.Loopback(u.Hostname()) {
			return u.Host
		}
	}
	return ""
}

// Weaknesses implements guest.Weak.
func (r *Redis) Weaknesses() []guest.Weakness {
	host := r.withoutTLS()
	if host == "" {
		return nil
	}
	return []guest.Weakness{{
		Message: "anyone on the network path to " + host + " can read and change sessions, since redis:// is without TLS",
		Advice:  "write rediss://, and remove the word insecure",
	}}
}

func (r *Redis) options() redis.Options {
	return redis.Options{URLs: r.URLs, SentinelMaster: r.Sentinel, WaitReplicas: r.WaitReplicas, Log: guest.StoreLog("mnemogate.sessions.redis")}
}

// Key implements guest.StoreModule.
func (r *Redis) Key() string {
	return storeKey("redis", strings.Join(r.URLs, " "), r.Sentinel, r.WaitReplicas)
}

// Store implements guest.StoreModule.
func (r *Redis) Store() (guest.Store, error) { return redis.Open(r.options()) }

// Interface guards
var (
	_ guest.StoreModule     = (*Redis)(nil)
	_ guest.Weak            = (*Redis)(nil)
	_ caddy.Provisioner     = (*Redis)(nil)
	_ caddyfile.Unmarshaler = (*Redis)(nil)

	_ guest.FeedingStore = (*redis.Store)(nil)
	_ guest.SharedStore  = (*redis.Store)(nil)
	_ guest.PlacedStore  = (*redis.Store)(nil)
)
