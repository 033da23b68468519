package bench

import (
	"net/http"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/redis/go-redis/v9"
)

// The trial handler that asks Redis for each request

func init() {
	caddy.RegisterModule(redisGet{})
	httpcaddyfile.RegisterHandlerDirective("mnemogate_redis_get", func(h httpcaddyfile.Helper) (caddyhttp.MiddlewareHandler, error) {
		g := new(redisGet)
		h.Next()
		if !h.AllArgs(&g.Socket) {
			return nil, h.ArgErr()
		}
		return g, nil
	})
	httpcaddyfile.RegisterDirectiveOrder("mnemogate_redis_get", httpcaddyfile.Before, "basicauth")
}

// A redisGet lets a request pass whose token is a key in Redis, and tells the
// application whose it is. It remembers nothing.
type redisGet struct {
	Socket string `json:"socket"` // as unix:<file>
	client *redis.Client
}

// CaddyModule implements caddy.Module.
func (redisGet) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.mnemogate_redis_get", New: func() caddy.Module { return new(redisGet) }}
}

// Provision implements caddy.Provisioner.
func (g *redisGet) Provision(caddy.Context) error {
	g.client = redis.NewClient(&redis.Options{Network: "unix", Addr: strings.TrimPrefix(g.Socket, "unix:")})
	return nil
}

// Cleanup implements caddy.CleanerUpper.
func (g *redisGet) Cleanup() error { return g.client.Close() }

// ServeHTTP implements caddyhttp.MiddlewareHandler.
func (g *redisGet) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	who, err := g.client.Get(r.Context(), "trial:"+token).Result()
	if err != nil {
		w.WriteHeader(http.StatusUnauthorized)
		return nil
	}
	r.Header.Set("X-Profile-Mnemocode", who)
	r.Header.Del("Authorization")
	return next.ServeHTTP(w, r)
}

// Interface guards
var (
	_ caddy.Provisioner           = (*redisGet)(nil)
	_ caddy.CleanerUpper          = (*redisGet)(nil)
	_ caddyhttp.MiddlewareHandler = (*redisGet)(nil)
)
