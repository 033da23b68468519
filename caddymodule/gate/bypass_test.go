package gate_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	_ "github.com/caddyserver/caddy/v2/modules/standard"

	_ "github.com/mnemogate/mnemogate/caddymodule"
	"github.com/mnemogate/mnemogate/caddymodule/guest/guesttest"
)

// lines makes a Caddyfile of one in one line.
var lines = strings.NewReplacer("; ", "\n", " { ", " {\n", " }", "\n}")

// adapted returns the JSON of a Caddyfile with the company acme, more in the option mnemogate,
// and sites, which may be in one line. More begins on line 7, and the sites two lines after it.
func adapted(t *testing.T, more, sites string) []byte {
	t.Helper()
	config, _, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte("{\nmnemogate {\ncompany acme {\napi_key {env.MNEMOGATE_TEST_KEY}\ncaptcha off\n}\n"+more+"}\n}\n"+lines.Replace(sites)+"\n"), nil)
	must(t, err)
	return config
}

// warnings validates a configuration, as caddy validate does, and returns what
// the log says of its routes.
func warnings(t *testing.T, config []byte) (told []string, err error) {
	t.Helper()
	entries, err := logged(t, config)
	for _, e := range entries {
		told = append(told, e.Msg)
	}
	return told, err
}

// A Caddy may have thousands of sites, each with a company. Memory is counted, since times vary.
func TestManySitesTakeNoMoreEach(t *testing.T) {
	guesttest.Environment(t)
	each := func(sites int) uint64 {
		var companies, routes strings.Builder
		for i := range sites {
			fmt.Fprintf(&companies, "company c%d {\napi_key key-of-c%[1]d-of-24-characters\ncaptcha off\n}\n", i)
			fmt.Fprintf(&routes, "http://c%d.example.com { mnemogate { company c%[1]d; login_page; public /x }; reverse_proxy localhost:%d }\n", i, 10000+i)
		}
		config := adapted(t, companies.String(), routes.String())
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := validated(t, config)
		must(t, err)
		runtime.ReadMemStats(&after)
		return (after.TotalAlloc - before.TotalAlloc) / uint64(sites)
	}
	each(1) // it reads what all share
	few, many := each(50), each(500)
	t.Logf("of 50 sites, each takes %d bytes, and of 500 %d", few, many)
	if many > 2*few {
		t.Errorf("of 50 sites, each takes %d bytes, and of 500 %d", few, many)
	}
}

// An entry is a warning in the log.
type entry struct{ Level, Msg, At, Advice string }

func logged(t *testing.T, config []byte) (told []entry, err error) {
	t.Helper()
	all, err := validated(t, config)
	return slices.DeleteFunc(all, func(e entry) bool {
		return !strings.HasPrefix(e.Msg, "mnemogate") && !strings.HasPrefix(e.Msg, "company: ")
	}), err
}

// validated returns all warnings.
func validated(t *testing.T, config []byte) (told []entry, err error) {
	t.Helper()
	var c caddy.Config
	must(t, caddy.StrictUnmarshalJSON(config, &c))
	file := t.TempDir() + "/log"
	c.Logging = &caddy.Logging{Logs: map[string]*caddy.CustomLog{
		"default": {BaseLog: caddy.BaseLog{WriterRaw: json.RawMessage(`{"output":"file","filename":"` + file + `"}`)}},
	}}
	err = caddy.Validate(&c)
	log, _ := os.ReadFile(file)
	for line := range bytes.Lines(log) {
		var e entry
		must(t, json.Unmarshal(line, &e))
		if e.Level == "warn" {
			told = append(told, e)
		}
	}
	return told, err
}

// What may be meant is told of; what is as it should be is not.
func TestRoutesPastMnemogateAreToldOf(t *testing.T) {
	guesttest.Environment(t)
	past := func(site, address string) string {
		return site + ": requests may also reach " + address + " without it, with whatever identity headers the client sent"
	}
	elsewhere := func(site, from string) string {
		return site + ": requests also reach localhost:9000 from " + from + ", where it is missing, with whatever identity headers the client sent"
	}
	failed := func(site, from string) string {
		return site + ": requests that fail before they reach it, such as those with an invalid Host, reach localhost:9000 from handle_errors of " + from + ", with whatever identity headers the client sent"
	}
	unproven := func(site, address string) string {
		return site + ": " + address + " is on another machine, and can't tell requests that passed mnemogate from others: they bring no assertion, secret header or client certificate"
	}
	anyIssuer := func(site string) string {
		return site + ": assertion has no issuer, and the site takes requests for any host, so clients choose the issuer of their own assertions"
	}
	for _, test := range []struct {
		name, sites string
		want        []string
	}{
		{"all of a site", "example.com { mnemogate; encode gzip; reverse_proxy localhost:9000 }", nil},
		{"errors of a site", "example.com { mnemogate; reverse_proxy localhost:9000; handle_errors { rewrite * /errors/{err.status_code}; reverse_proxy localhost:9000 } }",
			[]string{failed("mnemogate in example.com", "example.com")}},
		{"errors of a site, guarded again", "example.com { mnemogate; reverse_proxy localhost:9000; handle_errors { rewrite * /errors/{err.status_code}; mnemogate { public /errors/* }; reverse_proxy localhost:9000 } }", nil},
		{"errors of a site, guarded in part", "example.com { mnemogate; reverse_proxy localhost:9000; handle_errors { mnemogate /a/*; reverse_proxy localhost:9000 } }",
			[]string{past("mnemogate in example.com", "localhost:9000")}},
		{"errors that another address answers", "example.com { mnemogate; reverse_proxy localhost:9000; handle_errors { reverse_proxy localhost:9001 } }", nil},
		{"errors of a script", "example.com { mnemogate; php_fastcgi localhost:9000; handle_errors { rewrite * /error.php; reverse_proxy localhost:9000 { transport fastcgi } } }",
			[]string{failed("mnemogate in example.com", "example.com")}},
		{"errors of another site", "a.example.com { mnemogate; reverse_proxy localhost:9000 }; b.example.com { handle_errors { reverse_proxy localhost:9000 } }; :8080 { respond ok; handle_errors { reverse_proxy localhost:9000 } }",
			[]string{failed("mnemogate in a.example.com", "b.example.com"), failed("mnemogate in a.example.com", ":8080")}},
		{"asked on a site with a name", "*.example.com { mnemogate { check /check } }",
			[]string{"mnemogate in *.example.com: other proxies ask it by check, but Caddy answers 200 for other hosts than *.example.com, which most proxies take as a yes"}},
		{"asked on a site with a name, and others refused", "http://example.com { mnemogate { check /check } }; http:// { handle { header -Server; respond 404 } }", nil},
		{"asked on a site with a name, and others answered", "http://example.com { mnemogate { check /check } }; http:// { respond /x 404; respond ok }",
			[]string{"mnemogate in example.com: other proxies ask it by check, but Caddy answers 200 for other hosts than example.com, which most proxies take as a yes"}},
		{"asked on a site for any host", "http:// { mnemogate { check /check } }", nil},
		{"intercepted before it", "example.com { route { intercept { @e status 401; handle_response @e { reverse_proxy localhost:9000 } }; mnemogate; reverse_proxy localhost:9000 } }",
			[]string{past("mnemogate in example.com", "localhost:9000")}},
		{"intercepted on another site", "a.example.com { mnemogate; reverse_proxy localhost:9000 }; b.example.com { route { intercept { @e status 401; handle_response @e { reverse_proxy localhost:9000 } }; respond 401 } }",
			[]string{elsewhere("mnemogate in a.example.com", "b.example.com")}},
		{"dynamic addresses, and in capitals", "example.com { handle /a/* { reverse_proxy { dynamic a LOCALHOST } }; handle /b/* { reverse_proxy { dynamic srv _app._tcp.internal } }; handle { mnemogate; reverse_proxy localhost:80; " +
			"reverse_proxy /x/* { dynamic srv _app._tcp.internal } } }", []string{past("mnemogate in example.com", "LOCALHOST:80"), past("mnemogate in example.com", "_app._tcp.internal")}},
		{"what nothing comes to", "a.example.com { mnemogate; reverse_proxy localhost:9000 }; b.example.com { mnemogate; handle { respond ok }; reverse_proxy localhost:9000 }", nil},
		{"auth routes alone", "example.com { mnemogate }", nil},
		{"a health check and files beside it", `example.com { handle /health { respond ok }; handle /api/* { mnemogate; reverse_proxy localhost:9000 }; handle { root * /srv; file_server }; handle_errors { respond "no such page" } }`, nil},
		{"files that are guarded in part", "example.com { mnemogate /private/*; file_server }", nil},
		{"another application in the open", "example.com { handle /api/* { mnemogate; reverse_proxy localhost:9000 }; reverse_proxy localhost:3000 }", nil},
		{"two parts with companies of their own", "example.com { handle_path /a/* { mnemogate { header X-A }; reverse_proxy localhost:9000 }; handle_path /b/* { mnemogate; reverse_proxy localhost:9000 } }", nil},
		{"the same matcher on both", "http:// { @api path /api/* /v1/*; mnemogate @api; encode gzip; reverse_proxy @api localhost:9000; reverse_proxy localhost:3000 }", nil},
		{"the same matchers on both", "http:// { @api { path /api/*; method GET; header Accept *; not remote_ip 192.0.2.1 }; mnemogate @api; encode gzip; reverse_proxy @api localhost:9000 }", nil},
		{"the same expression on both", `http:// { @api expression {path}.startsWith("/api/") && method("GET"); mnemogate @api; encode gzip; reverse_proxy @api localhost:9000; reverse_proxy localhost:3000 }`, nil},
		{"the same regular expressions on both", "http:// { @api { path_regexp ^/api/; header_regexp v Accept json; vars_regexp x y }; mnemogate @api; route { reverse_proxy @api localhost:9000 } }", nil},
		{"the same matcher on both, in capitals", "http:// { @api { path /API/*; method get }; mnemogate @api; route { reverse_proxy @api localhost:9000 } }", nil},
		{"all but what is answered after it", "http:// { @app not path /health; mnemogate @app; respond /health 200; reverse_proxy localhost:9000 }", nil},
		{"all but what is answered after it, path by path", "http:// { @app not path /healthz /readyz /docs/a; mnemogate @app; respond /healthz 200; @ready path /readyz /metrics; respond @ready 200; respond /docs/* 200; reverse_proxy localhost:9000 }", nil},
		{"all but what is answered after it, but for what a rewrite makes of it", "http:// { @app not path /a /b; route { mnemogate @app; respond /a 200; rewrite /b /c; respond /b 200; reverse_proxy localhost:9000 } }",
			[]string{past("mnemogate", "localhost:9000")}},
		{"all but what is answered after it, by path and method", "http:// { @app { not path /healthz; not { method OPTIONS; path /api/* } }; @preflight method OPTIONS; mnemogate @app; respond /healthz 200; respond @preflight 204; reverse_proxy localhost:9000 }", nil},
		{"other paths of the same application, without what clients claim", "http:// { mnemogate /api/*; reverse_proxy /api/* localhost:9000; reverse_proxy /public/* localhost:9000 { header_up -X-Profile-Mnemocode; header_up -X-Company-Code } }",
			[]string{past("mnemogate", "localhost:9000")}},
		{"all but files that are there", ":8080 { root * /srv; @static file; @app not file; mnemogate @app; route { file_server @static; reverse_proxy localhost:9000 } }", nil},
		{"all but files", "example.com { @app not path /assets/*; mnemogate @app; handle /assets/* { file_server }; reverse_proxy localhost:9000 }", nil},
		{"all but another application's", "http:// { @private not path /docs/* /DOCS; @public path /docs/* /DOCS; mnemogate @private; reverse_proxy @public localhost:9001; reverse_proxy localhost:9000 }", nil},
		{"all but what reaches the same application elsewhere", "http:// { @private not path /docs/*; route { @public path /docs/*; mnemogate @private; reverse_proxy @public localhost:9000; reverse_proxy localhost:9000 } }",
			[]string{past("mnemogate", "localhost:9000")}},
		{"the opposite matcher, but the path is another for some", "http:// { route { @app not path /x; mnemogate /x; rewrite /x /health; reverse_proxy @app localhost:9000 } }",
			[]string{past("mnemogate", "localhost:9000")}},
		{"another path", "http:// { route /a/* { mnemogate; reverse_proxy /b/* localhost:9000; reverse_proxy localhost:9001 } }; http://b.example { reverse_proxy localhost:9000 }", nil},
		{"another path, that some get by a rewrite", "http:// { route /a/* { rewrite /a/x /b/x; mnemogate; reverse_proxy /b/* localhost:9000; reverse_proxy localhost:9001 } }; http://b.example { reverse_proxy localhost:9000 }",
			[]string{`mnemogate: requests also reach localhost:9000 from b.example, where it is missing, with whatever identity headers the client sent`}},
		{"what matched before it, but for some", "http:// { @a path /a/*; route @a { rewrite /a/b/* /b; mnemogate; reverse_proxy @a localhost:9000; reverse_proxy localhost:9001 } }; http://b.example { reverse_proxy localhost:9001 }",
			[]string{`mnemogate: requests also reach localhost:9001 from b.example, where it is missing, with whatever identity headers the client sent`}},
		{"what matched before it", "http:// { @a path /a/*; route @a { mnemogate; reverse_proxy @a localhost:9000; reverse_proxy localhost:9001 } }; http://b.example { reverse_proxy localhost:9001 }", nil},
		{"the same matcher on both, in a site with a name", "example.com { mnemogate /api/*; encode gzip; handle /api/* { reverse_proxy localhost:9000 }; file_server }", nil},
		{"two sites, one in the open", "a.example.com { mnemogate; reverse_proxy localhost:9000 }; b.example.com { reverse_proxy localhost:9000 }; :8080 { mnemogate; reverse_proxy localhost:9000 }",
			[]string{elsewhere("mnemogate in a.example.com", "b.example.com")}},
		{"two servers, one in the open", "example.com { handle /api/* { mnemogate; reverse_proxy 127.0.0.1:9000 } }; :8080 { handle /x/* { reverse_proxy localhost:9000 } }",
			[]string{elsewhere("mnemogate in example.com", ":8080")}},
		{"two sites with PHP of their own", "example.com { mnemogate; php_fastcgi unix//run/php.sock }; b.example.com { php_fastcgi unix//run/php.sock }", nil},
		{"one that nothing comes to, and need not", "example.com { handle { mnemogate; reverse_proxy localhost:9000 }; route /x/* { mnemogate; reverse_proxy localhost:9000 } }", nil},
		{"another who decides, too", "example.com { mnemogate; forward_auth localhost:9091 { uri /check }; reverse_proxy localhost:9000 }", nil},
		{"a route invoked behind it", "&(app) { reverse_proxy localhost:9000 }; example.com { mnemogate; invoke app }", nil},
		{"in an invoked route", "&(guarded) { route { mnemogate; reverse_proxy localhost:9000 } }; example.com { handle /api/* { invoke guarded }; handle { invoke guarded } }", nil},
		{"in an invoked route, beside the same application", "&(guarded) { route { mnemogate; reverse_proxy localhost:9000 } }; example.com { handle /api/* { invoke guarded }; reverse_proxy localhost:9000 }",
			[]string{past("mnemogate in example.com", "localhost:9000")}},
		{"a second route in the open", "example.com { handle /public/* { reverse_proxy localhost:9000 }; handle { mnemogate; reverse_proxy 127.0.0.1:9000 localhost:9001 } }",
			[]string{past("mnemogate in example.com", "localhost:9000")}},
		{"a part of it before, in a route", "http:// { route { reverse_proxy /public/* localhost:9000; mnemogate; reverse_proxy localhost:9000 } }", []string{past("mnemogate", "localhost:9000")}},
		{"another application before, in a route", "http:// { route { reverse_proxy /api/* localhost:9001; mnemogate; reverse_proxy localhost:9000 } }", []string{past("mnemogate", "localhost:9001")}},
		{"another application before, in a block", "http:// { route { handle /api/* { reverse_proxy localhost:9001 }; handle { mnemogate; reverse_proxy localhost:9000 } } }", nil},
		{"one who decides before", "http:// { route { forward_auth localhost:9001 { uri /check }; mnemogate; reverse_proxy localhost:9000 } }", nil},
		{"the same application decides before", "http:// { route { forward_auth localhost:9000 { uri /check }; mnemogate; reverse_proxy localhost:9000 } }", []string{past("mnemogate", "localhost:9000")}},
		{"the same application decides on another site", "a.example.com { mnemogate; reverse_proxy localhost:9000 }; b.example.com { forward_auth localhost:9000 { uri /check }; file_server }",
			[]string{elsewhere("mnemogate in a.example.com", "b.example.com")}},
		{"one who decides behind it, and is open elsewhere", "a.example.com { mnemogate; forward_auth localhost:9091 { uri /check }; reverse_proxy localhost:9000 }; b.example.com { reverse_proxy localhost:9091 }", nil},
		{"an invoked route in the open", "&(app) { reverse_proxy localhost:9000 }; http:// { handle /public/* { invoke app }; handle { mnemogate; invoke app } }",
			[]string{past("mnemogate", "localhost:9000")}},
		{"matchers that differ", "http:// { mnemogate /api/*; reverse_proxy /api/v1/* localhost:9000 }", []string{past("mnemogate", "localhost:9000")}},
		{"the same matcher, but the path is another", "http:// { route { mnemogate /api/*; uri replace /v1/ /api/; reverse_proxy /api/* localhost:9000 } }", []string{past("mnemogate", "localhost:9000")}},
		{"the same matcher, but a header is another", "http:// { route { @int header X-Internal 1; mnemogate @int; request_header X-Internal 1; reverse_proxy @int localhost:9000 } }",
			[]string{past("mnemogate", "localhost:9000")}},
		{"the same matcher, but a header is another for some", `http:// { route { @int expression {http.request.header.X-Internal} == "1"; mnemogate @int; request_header /x X-Internal 1; reverse_proxy @int localhost:9000 } }`,
			[]string{past("mnemogate", "localhost:9000")}},
		{"the same matcher, but the host is another", "http:// { route { @int host int.example; mnemogate @int; request_header Host int.example; reverse_proxy @int localhost:9000 } }",
			[]string{past("mnemogate", "localhost:9000")}},
		{"the same matcher, but a type is another", "http:// { route { @grpc protocol grpc; mnemogate @grpc; request_header Content-Type application/grpc; reverse_proxy @grpc localhost:9000 } }",
			[]string{past("mnemogate", "localhost:9000")}},
		{"the same matcher, but a variable is another", "http:// { route { @int vars internal 1; mnemogate @int; vars internal 1; reverse_proxy @int localhost:9000 } }",
			[]string{past("mnemogate", "localhost:9000")}},
		{"the same matcher, whatever headers and variables are", "http:// { route { @api { path /api/*; not method TRACE }; mnemogate @api; request_header X-Internal 1; vars internal 1; tracing; reverse_proxy @api localhost:9000 } }", nil},
		{"a part of what matches", "http:// { route { handle /x/* { mnemogate /x/api/* }; encode gzip; reverse_proxy /x/* localhost:9000 } }", []string{past("mnemogate", "localhost:9000")}},
		{"what matches in a part", "http:// { @html path *.html; route { handle /x/* { mnemogate @html }; reverse_proxy @html localhost:9000 } }", []string{past("mnemogate", "localhost:9000")}},
		{"applications on other machines that can't tell", `example.com { mnemogate; handle /a/* { reverse_proxy app:9000 10.0.0.5:9000 localhost:9000 }; handle /b/* { reverse_proxy https://app.internal { header_up Host {upstream_hostport}; ` +
			`header_up X-Env production; header_up X-Forwarded-Proto "https and more" } }; php_fastcgi php:9000 }`,
			[]string{unproven("mnemogate in example.com", "app:9000"), unproven("mnemogate in example.com", "10.0.0.5:9000"), unproven("mnemogate in example.com", "app.internal:443"), unproven("mnemogate in example.com", "php:9000")}},
		{"applications on other machines that can tell", "example.com { mnemogate; handle /a/* { reverse_proxy app:9000 { header_up X-Gateway-Key {env.MNEMOGATE_TEST_KEY} } }; " +
			"handle /b/* { reverse_proxy app:9001 { header_up X-Gateway-Key 0123456789abcdef } }; handle /c/* { reverse_proxy app:9004 { header_up +X-Gateway-Key {env.MNEMOGATE_TEST_KEY} } }; " +
			"handle { reverse_proxy https://app.internal { transport http { tls_client_auth client.example.com } } } }; b.example.com { mnemogate { assertion app }; reverse_proxy app:9002 }; " +
			"http:// { reverse_proxy app:9003 }", nil},
		{"an issuer that clients choose", "http://, *.example.com { mnemogate { assertion app }; reverse_proxy app:9000 }; http://:8081 { mnemogate { assertion app { issuer https://id.example.com } }; reverse_proxy app:9000 }",
			[]string{anyIssuer("mnemogate in *.example.com"), anyIssuer("mnemogate")}},
		{"an issuer of one of a block's hosts", "*.example.com { @a host a.example.com b.example.com; handle @a { mnemogate { assertion app }; reverse_proxy app:9000 } }", nil},
		{"an issuer of any of a block's hosts", "*.example.com { @a host a.example.com *.b.example.com; handle @a { mnemogate { assertion app }; reverse_proxy app:9000 } }",
			[]string{anyIssuer("mnemogate in *.example.com")}},
		{"an issuer of any but a block's hosts", "*.example.com { @a host a.example.com; handle @a { respond ok }; handle { mnemogate { assertion app }; reverse_proxy app:9000 } }",
			[]string{anyIssuer("mnemogate in *.example.com")}},
		{"once for each of two servers", "http://example.com, https://example.com { handle /public/* { reverse_proxy localhost:9000 }; handle { mnemogate; reverse_proxy localhost:9000 } }",
			[]string{past("mnemogate in example.com", "localhost:9000")}},
	} {
		t.Run(test.name, func(t *testing.T) {
			config := adapted(t, "", "http://login.example:9999 { mnemogate }; "+test.sites)
			// Caddy loads its apps in any order, so what is told may come in another one.
			for range 1 + min(1, len(test.want)) {
				got, err := warnings(t, config)
				must(t, err)
				if !slices.Equal(got, test.want) {
					t.Fatalf("got %q, want %q", got, test.want)
				}
			}
		})
	}
}

// However an application's address is written, it is the same application.
func TestAnUpstreamIsKnownInAllSpellings(t *testing.T) {
	guesttest.Environment(t)
	t.Setenv("MNEMOGATE_TEST_UPSTREAM", "127.0.0.1:9000")
	warned := func(guarded, open string) []string {
		t.Helper()
		config := adapted(t, "", "a.example.com {\nmnemogate {\nassertion x {\nissuer https://a.example.com\n}\n}\nreverse_proxy "+guarded+"\n}\nb.example.com {\nreverse_proxy "+open+"\n}")
		got, err := warnings(t, config)
		must(t, err)
		return got
	}
	for guarded, spellings := range map[string][]string{
		"localhost:9000": {
			"localhost:9000", "LOCALHOST:9000", "localhost.:9000", "127.0.0.1:9000", "127.1.2.3:9000", "[::1]:9000", "[::ffff:127.0.0.1]:9000",
			":9000", "0.0.0.0:9000", "[::]:9000", "tcp/127.0.0.1:9000", "TCP4/localhost:9000", "tcp6/[::1]:9000", "127.0.0.1:09000", "127.0.0.1:8999-9001",
			"http://127.0.0.1:9000", "h2c://localhost:9000", "https://localhost:9000", "{env.MNEMOGATE_TEST_UPSTREAM}",
			"{\ndynamic a localhost 9000\n}", "{\ndynamic multi {\nsrv _app._tcp.internal\na 127.0.0.1 9000\n}\n}",
		},
		"unix//run/app.sock":                   {"unix//run/app.sock", "unix+h2c//run/app.sock", "unix//run//./app.sock", "UNIX//run/app.sock"},
		"App.Internal":                         {"app.internal:80", "http://app.internal", "app.internal.:80", "tcp/app.internal:80", "h2c://app.internal:80"},
		"{\ndynamic srv _app._tcp.internal\n}": {"{\ndynamic srv _app._tcp.internal\n}", "{\ndynamic multi {\nsrv _app._tcp.Internal.\n}\n}"},
	} {
		for _, open := range spellings {
			if got := warned(guarded, open); len(got) != 1 || !strings.Contains(got[0], "from b.example.com, where it is missing") {
				t.Errorf("%s beside %s: got %q", open, guarded, got)
			}
		}
	}
	for _, other := range []string{"localhost:9001", "10.0.0.5:9000", "unix//run/app2.sock", "unix/run/app.sock", "{env.MNEMOGATE_TEST_NONE}:9000"} {
		for _, guarded := range []string{"10.0.0.1:9000", "unix//run/app.sock"} {
			if got := warned(guarded, other); got != nil {
				t.Errorf("%s beside %s: got %q", other, guarded, got)
			}
		}
	}
}

// Routes in JSON may be written as no Caddyfile adapts to.
func TestRoutesInJSONAreFollowed(t *testing.T) {
	guesttest.Environment(t)
	const (
		guard       = `{"handler": "mnemogate"}`
		app         = `{"handler": "reverse_proxy", "upstreams": [{"dial": "localhost:9000"}]}`
		other       = `{"handler": "reverse_proxy", "upstreams": [{"dial": "localhost:9001"}]}`
		isAPI       = `"match": [{"path": ["/api/*"]}]`
		isHost      = `"match": [{"host": ["a.example.com"]}]`
		unreachable = "mnemogate: nobody can log in: requests for /{company}/v2/auth/ do not reach it, only those for /api/* do"
		forged      = ", with whatever identity headers the client sent"
		elsewhere   = "requests also reach localhost:9000 from "
		past        = "requests may also reach localhost:9000 without it" + forged
		failed      = "requests that fail before they reach it, such as those with an invalid Host, reach localhost:9000 from handle_errors of "
	)
	for _, test := range []struct {
		name, routes string
		more         string // of the server
		refused      string
		want         []string
	}{
		{"one route", `{"handle": [` + guard + `, ` + app + `]}`, "", "", nil},
		{"two routes", `{"handle": [` + guard + `]}, {"handle": [` + app + `]}`, "", "", nil},
		{"two routes of a host", `{` + isHost + `, "handle": [` + guard + `]}, {` + isHost + `, "handle": [` + app + `]}`, "", "", nil},
		{"a host's, and all others'", `{` + isHost + `, "handle": [` + guard + `]}, {"handle": [` + app + `]}`, "", "", []string{"mnemogate in a.example.com: " + elsewhere + ":8080, where it is missing" + forged}},
		{"a host's, behind all others'", `{"handle": [` + other + `]}, {` + isHost + `, "handle": [` + guard + `, ` + app + `]}`, "", "mnemogate in a.example.com: it comes after reverse_proxy", nil},
		{"a host's, behind all others' that end", `{"handle": [` + other + `], "terminal": true}, {` + isHost + `, "handle": [` + guard + `, ` + app + `], "terminal": true}`, "", "mnemogate in a.example.com: it comes after reverse_proxy", nil},
		{"a host's, behind an answer to it and others", `{"match": [{"host": ["b.example.com", "A.example.com"]}], "handle": [{"handler": "static_response"}]}, {` + isHost + `, "handle": [` + guard + `, ` + app + `]}`,
			"", "mnemogate in a.example.com: it comes after respond", nil},
		{"a host's, behind files of all like it", `{"match": [{"host": ["*.Example.com"]}], "handle": [{"handler": "file_server"}]}, {` + isHost + `, "handle": [` + guard + `, ` + app + `]}`,
			"", "mnemogate in a.example.com: it comes after file_server", nil},
		{"a host's, behind others'", `{"match": [{"host": ["b.example.com", "*.com", "*", "*.a.example.com"]}], "handle": [` + other + `]}, {` + isHost + `, "handle": [` + guard + `, ` + app + `]}`, "", "", nil},
		{"a host's, behind another path of all", `{"match": [{"path": ["/x"]}, {"path": ["/y"], "host": ["a.example.com"]}], "handle": [` + other + `]}, {` + isHost + `, "handle": [` + guard + `, ` + app + `]}`, "", "", nil},
		{"a host's, behind a path of all", `{` + isAPI + `, "handle": [` + app + `]}, {` + isHost + `, "handle": [` + guard + `, ` + app + `]}`,
			"", "", []string{"mnemogate in a.example.com: " + elsewhere + ":8080, where it is missing" + forged, "mnemogate in a.example.com: " + past}},
		{"all hosts', behind one's", `{` + isHost + `, "handle": [` + other + `]}, {"handle": [` + guard + `, ` + app + `]}`, "", "", nil},
		{"all hosts', and one's application", `{"handle": [` + guard + `]}, {` + isHost + `, "handle": [` + app + `]}, {"match": [{"host": ["b.example.com"]}], "handle": [` + other + `]}`, "", "", nil},
		{"a part of all hosts', and one's application", `{` + isAPI + `, "handle": [` + guard + `]}, {` + isHost + `, "handle": [` + app + `]}`,
			"", "mnemogate in a.example.com: requests that its matcher leaves out reach reverse_proxy", nil},
		{"all but another's, and one's application", `{"match": [{"not": [{"host": ["b.example.com", "*.b.example.com"]}]}], "handle": [` + guard + `]}, {` + isHost + `, "handle": [` + app + `]}, {"match": [{"host": ["b.example.com"]}], "handle": [` + other + `]}`,
			"", "", nil},
		{"all but these, and one's application", `{"match": [{"not": [{"host": ["*.example.com"]}]}], "handle": [` + guard + `]}, {` + isHost + `, "handle": [` + app + `]}, {"match": [{"host": ["other.example"]}], "handle": [` + app + `]}`,
			"", "", []string{"mnemogate in other.example: " + elsewhere + "a.example.com, where it is missing" + forged}},
		{"a host or a path, and its application", `{"match": [{"host": ["A.example.com"]}, {"path": ["/x"]}], "handle": [` + guard + `]}, {` + isHost + `, "handle": [` + app + `]}`, "", "", nil},
		{"a path of a host's, and of all", `{"match": [{"host": ["a.example.com"], "path": ["/api/*"]}], "handle": [` + guard + `]}, {` + isAPI + `, "handle": [` + app + `]}`,
			"", "", []string{"mnemogate in a.example.com: " + elsewhere + ":8080, where it is missing" + forged, strings.Replace(unreachable, ":", " in a.example.com:", 1)}},
		{"no host's", `{"match": [{"host": []}], "handle": [` + guard + `]}, {"match": [{"host": []}, {"host": []}], "handle": [` + guard + `]}, {"handle": [` + app + `]}, {` + isAPI + `, "handle": [` + guard + `]}`,
			"", "mnemogate: it comes after reverse_proxy", nil},
		{"one that ends before", `{` + isAPI + `, "handle": [` + app + `], "terminal": true}, {"handle": [` + guard + `, ` + app + `]}`, "", "", []string{"mnemogate: " + past}},
		{"one that ends all", `{"handle": [{"handler": "vars"}], "terminal": true}, {"handle": [` + app + `, ` + guard + `]}`, "", "", nil},
		{"a group", `{"group": "g", ` + isAPI + `, "handle": [` + guard + `]}, {"group": "g", "handle": [{"handler": "error"}]}, {"handle": [` + app + `]}`, "", "", []string{unreachable}},
		{"a group with others between", `{"group": "g", ` + isAPI + `, "handle": [{"handler": "vars"}]}, {"handle": [` + guard + `]}, {"group": "g", "handle": [` + app + `]}`, "", "", nil},
		{"errors of a host", `{` + isHost + `, "handle": [{"handler": "error"}, ` + guard + `]}`, "", "it comes after error", nil},
		{"errors behind it", `{` + isHost + `, "handle": [` + guard + `, ` + app + `]}, {` + isHost + `, ` + isAPI + `, "handle": [` + app + `]}`,
			`, "errors": {"routes": [{` + isHost + `, "handle": [` + app + `]}]}`, "", []string{"mnemogate in a.example.com: " + failed + "a.example.com" + forged}},
		{"errors of a block behind it", `{"handle": [` + guard + `, {"handler": "subroute", "routes": [{"handle": [` + app + `]}], "errors": {"routes": [{"handle": [` + app + `]}]}}]}`, "", "", nil},
		{"errors of a block before it", `{"handle": [{"handler": "subroute", "routes": [{"handle": [{"handler": "request_body"}]}], "errors": {"routes": [{"handle": [` + app + `]}]}}, ` + guard + `, ` + app + `]}`,
			"", "", []string{"mnemogate: " + failed + ":8080" + forged}},
		{"errors of a block with it, passed on", `{"handle": [{"handler": "subroute", "routes": [{"handle": [{"handler": "request_body"}, ` + guard + `]}], "errors": {"routes": [{"handle": [{"handler": "vars"}]}]}}, ` + app + `]}`,
			"", "", []string{"mnemogate: " + past}},
		{"errors of a block with it, answered", `{"handle": [{"handler": "subroute", "routes": [{"handle": [{"handler": "request_body"}, ` + guard + `]}], "errors": {"routes": [{"handle": [{"handler": "static_response"}]}]}}, ` + app + `]}`,
			"", "", nil},
		{"behind metrics", `{"handle": [{"handler": "metrics"}, ` + guard + `]}`, "", "mnemogate: it comes after metrics", nil},
		{"what changes nothing", `{` + isAPI + `, "handle": [` + guard + `]}, {"handle": [{"handler": "timeouts"}, {"handler": "copy_response_headers"}]}, {` + isAPI + `, "handle": [` + app + `]}`, "", "", []string{unreachable}},
		{"a route that invokes itself", `{"handle": [{"handler": "invoke", "name": "x"}]}`,
			`, "named_routes": {"x": {"handle": [` + guard + `, {"handler": "invoke", "name": "x"}, ` + app + `]}}`, "", nil},
		{"nested", `{"handle": [{"handler": "subroute", "routes": [{` + isAPI + `, "handle": [{"handler": "subroute", "routes": [{"handle": [` + guard + `]}]}]}]}, ` + app + `]}`,
			"", "mnemogate: requests that its matcher leaves out reach reverse_proxy", nil},
		{"of a host", `{` + isHost + `, "handle": [{"handler": "subroute", "routes": [{` + isAPI + `, "handle": [` + guard + `]}, {"handle": [` + app + `]}]}]}`,
			"", "mnemogate in a.example.com: requests that its matcher leaves out reach reverse_proxy", nil},
		{"in one route", `{"handle": [` + guard + `, ` + guard + `, ` + app + `]}`, "", "mnemogate: the same requests pass it twice", nil},
		{"behind", `{"handle": [` + app + `, ` + guard + `]}`, "", "mnemogate: it comes after reverse_proxy", nil},
		{"behind two", `{"handle": [{"handler": "error"}, ` + app + `]}, {"handle": [` + guard + `]}`, "", "mnemogate: it comes after error", nil},
		{"dynamic", `{` + isAPI + `, "handle": [` + guard + `]}, {"handle": [{"handler": "reverse_proxy", "dynamic_upstreams": {"source": "a", "name": "x", "port": "80"}}]}`,
			"", "mnemogate: requests that its matcher leaves out reach reverse_proxy", nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			config := `{"apps": {
				"http": {"servers": {"one": {"listen": [":8080"], "routes": [` + test.routes + `]` + test.more + `}}},
				"mnemogate": {"companies": {"acme": {"api_keys": ["{env.MNEMOGATE_TEST_KEY}"], "captcha": {"module": "off"}}}}}}`
			got, err := warnings(t, []byte(config))
			if test.refused != "" {
				if err == nil || !strings.Contains(err.Error(), test.refused) {
					t.Errorf("got %v, want %q", err, test.refused)
				}
				return
			}
			must(t, err)
			if !slices.Equal(got, test.want) {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}
