package gate

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"
)

// A logChooser notes the access loggers that mnemogate would use for a request.
type logChooser struct{}

var chosenLoggers []string

func init() { caddy.RegisterModule(logChooser{}) }

func (logChooser) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.test_log_chooser", New: func() caddy.Module { return new(logChooser) }}
}

func (logChooser) ServeHTTP(_ http.ResponseWriter, r *http.Request, _ caddyhttp.Handler) error {
	h := &Handler{accessLog: zap.NewNop().Named("http.log.access")}
	chosenLoggers = nil
	for _, logger := range h.accessLoggers(r) {
		chosenLoggers = append(chosenLoggers, logger.Name())
	}
	return nil
}

// Where mnemogate writes an entry in place of Caddy's, it chooses the loggers that Caddy would.
func TestCaddyStillChoosesTheAccessLogsAsMnemogateDoes(t *testing.T) {
	file := t.TempDir() + "/log"
	for _, logs := range []string{
		`{}`, `{"default_logger_name": "d"}`, `{"skip_hosts": ["example.com", "*.example.com"]}`,
		`{"default_logger_name": "d", "logger_names": {"Example.com": ["a", "b"], "*.example.com": ["w"], "off.example.com": [], "plain.example": [""]}}`,
		`{"logger_names": {"example.com": "a", "*.*.com": ["ww"]}, "skip_unmapped_hosts": true, "skip_hosts": ["example.com"]}`,
	} {
		var config caddy.Config
		must(t, json.Unmarshal(fmt.Appendf(nil, `{
			"admin": {"disabled": true},
			"logging": {"logs": {"default": {"writer": {"output": "file", "filename": %q}}}},
			"apps": {"http": {"servers": {"one": {"listen": [":8080"], "automatic_https": {"disable": true}, "logs": %s, "routes": [
				{"match": [{"path": ["/named"]}], "handle": [{"handler": "vars", "access_logger_names": ["x", "", "y"]}]},
				{"handle": [{"handler": "test_log_chooser"}]}]}}}}}`, file, logs), &config))
		ctx, err := caddy.ProvisionContext(&config)
		must(t, err)
		http, err := ctx.App("http")
		must(t, err)
		for _, host := range []string{"example.com", "EXAMPLE.com:8080", "a.example.com", "off.example.com", "a.b.example.com", "plain.example", "other.example", "[::1]:8080"} {
			for _, path := range []string{"/", "/named"} {
				must(t, os.Truncate(file, 0))
				r := httptest.NewRequest("GET", path, nil)
				r.Host = host
				http.(*caddyhttp.App).Servers["one"].ServeHTTP(httptest.NewRecorder(), r)
				raw, err := os.ReadFile(file)
				must(t, err)
				var caddys []string
				for line := range strings.Lines(strings.Trim(string(raw), "\x00")) {
					var entry struct{ Logger string }
					must(t, json.Unmarshal([]byte(line), &entry))
					if strings.HasPrefix(entry.Logger, "http.log.access") {
						caddys = append(caddys, entry.Logger)
					}
				}
				if !slices.Equal(caddys, chosenLoggers) {
					t.Errorf("%s, %s%s: Caddy logs to %q, mnemogate to %q", logs, host, path, caddys, chosenLoggers)
				}
			}
		}
	}
}

// A cache stands for the module of github.com/caddyserver/cache-handler.
type cache struct {
	Key struct {
		Headers  []string `json:"headers"`
		Template string   `json:"template"`
	} `json:"key"`
}

func init() {
	caddy.RegisterModule(new(cache))
	httpcaddyfile.RegisterHandlerDirective("cache", func(h httpcaddyfile.Helper) (caddyhttp.MiddlewareHandler, error) {
		c := new(cache)
		for h.Next() {
			for h.NextBlock(0) { // key
				for h.NextBlock(1) {
					if h.Val() == "template" && h.NextArg() {
						c.Key.Template = h.Val()
						continue
					}
					c.Key.Headers = h.RemainingArgs()
				}
			}
		}
		return c, nil
	})
	httpcaddyfile.RegisterDirectiveOrder("cache", httpcaddyfile.Before, "rewrite")
}

func (*cache) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.cache", New: func() caddy.Module { return new(cache) }}
}

func (*cache) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	return next.ServeHTTP(w, r)
}
