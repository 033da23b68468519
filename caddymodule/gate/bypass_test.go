package gate_test

import (
	"bytes"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	_ "github.com/caddyserver/caddy/v2/modules/standard"

	_ "github.com/mnemogate/mnemogate/caddymodule"
	"github.com/mnemogate/mnemogate/caddymodule/guest/guesttest"
)

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

// An entry is a warning in the log.
type entry struct{ Level, Msg, At, Advice string }

func logged(t *testing.T, config []byte) (told []entry, err error) {
	t.Helper()
	var c caddy.Config
	if err := caddy.StrictUnmarshalJSON(config, &c); err != nil {
		t.Fatal(err)
	}
	file := t.TempDir() + "/log"
	c.Logging = &caddy.Logging{Logs: map[string]*caddy.CustomLog{
		"default": {BaseLog: caddy.BaseLog{WriterRaw: json.RawMessage(`{"output":"file","filename":"` + file + `"}`)}},
	}}
	err = caddy.Validate(&c)
	log, _ := os.ReadFile(file)
	for line := range bytes.Lines(log) {
		var e entry
		if err := json.Unmarshal(line, &e); err != nil {
			t.Fatal(err)
		}
		if e.Level == "warn" && (strings.HasPrefix(e.Msg, "mnemogate") || strings.HasPrefix(e.Msg, "company: ")) {
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
	const maybeTwice = "mnemogate: some requests may pass it twice, and the second one finds no token"
	for _, test := range []struct {
		name, sites string
		want        []string
	}{
		{"all of a site", `example.com {
			mnemogate
			encode gzip
			reverse_proxy localhost:9000
		}`, nil},
		{"errors of a site", `example.com {
			mnemogate
			reverse_proxy localhost:9000
			handle_errors {
				rewrite * /errors/{err.status_code}
				reverse_proxy localhost:9000
			}
		}`, []string{failed("mnemogate in example.com", "example.com")}},
		{"errors of a site, guarded again", `example.com {
			mnemogate
			reverse_proxy localhost:9000
			handle_errors {
				rewrite * /errors/{err.status_code}
				mnemogate {
					public /errors/*
				}
				reverse_proxy localhost:9000
			}
		}`, nil},
		{"errors of a site, guarded in part", `example.com {
			mnemogate
			reverse_proxy localhost:9000
			handle_errors {
				mnemogate /a/*
				reverse_proxy localhost:9000
			}
		}`, []string{past("mnemogate in example.com", "localhost:9000")}},
		{"errors that another address answers", `example.com {
			mnemogate
			reverse_proxy localhost:9000
			handle_errors {
				reverse_proxy localhost:9001
			}
		}`, nil},
		{"errors of a script", `example.com {
			mnemogate
			php_fastcgi localhost:9000
			handle_errors {
				rewrite * /error.php
				reverse_proxy localhost:9000 {
					transport fastcgi
				}
			}
		}`, []string{failed("mnemogate in example.com", "example.com")}},
		{"errors of another site", `a.example.com {
			mnemogate
			reverse_proxy localhost:9000
		}
		b.example.com {
			handle_errors {
				reverse_proxy localhost:9000
			}
		}
		:8080 {
			respond ok
			handle_errors {
				reverse_proxy localhost:9000
			}
		}`, []string{failed("mnemogate in a.example.com", "b.example.com"), failed("mnemogate in a.example.com", ":8080")}},
		{"asked on a site with a name", `*.example.com {
			mnemogate {
				check /check
			}
		}`, []string{"mnemogate in *.example.com: other proxies ask it by check, but Caddy answers 200 for other hosts than *.example.com, which most proxies take for a yes"}},
		{"asked on a site with a name, and others refused", `http://example.com {
			mnemogate {
				check /check
			}
		}
		http:// {
			handle {
				respond 404
			}
		}`, nil},
		{"asked on a site with a name, and others answered", `http://example.com {
			mnemogate {
				check /check
			}
		}
		http:// {
			respond /x 404
			respond ok
		}`, []string{"mnemogate in example.com: other proxies ask it by check, but Caddy answers 200 for other hosts than example.com, which most proxies take for a yes"}},
		{"asked on a site for any host", `http:// {
			mnemogate {
				check /check
			}
		}`, nil},
		{"intercepted before it", `example.com {
			route {
				intercept {
					@e status 401
					handle_response @e {
						reverse_proxy localhost:9000
					}
				}
				mnemogate
				reverse_proxy localhost:9000
			}
		}`, []string{past("mnemogate in example.com", "localhost:9000")}},
		{"intercepted on another site", `a.example.com {
			mnemogate
			reverse_proxy localhost:9000
		}
		b.example.com {
			route {
				intercept {
					@e status 401
					handle_response @e {
						reverse_proxy localhost:9000
					}
				}
				respond 401
			}
		}`, []string{elsewhere("mnemogate in a.example.com", "b.example.com")}},
		{"dynamic addresses, and in capitals", `example.com {
			handle /a/* {
				reverse_proxy {
					dynamic a LOCALHOST
				}
			}
			handle /b/* {
				reverse_proxy {
					dynamic srv _app._tcp.internal
				}
			}
			handle {
				mnemogate
				reverse_proxy localhost:80
				reverse_proxy /x/* {
					dynamic srv _app._tcp.internal
				}
			}
		}`, []string{past("mnemogate in example.com", "LOCALHOST:80"), past("mnemogate in example.com", "_app._tcp.internal")}},
		{"what nothing comes to", `a.example.com {
			mnemogate
			reverse_proxy localhost:9000
		}
		b.example.com {
			mnemogate
			handle {
				respond ok
			}
			reverse_proxy localhost:9000
		}`, nil},
		{"auth routes alone", `example.com {
			mnemogate
		}`, nil},
		{"a health check and files beside it", `example.com {
			handle /health {
				respond ok
			}
			handle /api/* {
				mnemogate
				reverse_proxy localhost:9000
			}
			handle {
				root * /srv
				file_server
			}
			handle_errors {
				respond "no such page"
			}
		}`, nil},
		{"files that are guarded in part", `example.com {
			mnemogate /private/*
			file_server
		}`, nil},
		{"another application in the open", `example.com {
			handle /api/* {
				mnemogate
				reverse_proxy localhost:9000
			}
			reverse_proxy localhost:3000
		}`, nil},
		{"two parts with companies of their own", `example.com {
			handle_path /a/* {
				mnemogate {
					header X-A
				}
				reverse_proxy localhost:9000
			}
			handle_path /b/* {
				mnemogate
				reverse_proxy localhost:9000
			}
		}`, nil},
		{"the same matcher on both", `http:// {
			@api path /api/* /v1/*
			mnemogate @api
			encode gzip
			reverse_proxy @api localhost:9000
			reverse_proxy localhost:3000
		}`, nil},
		{"the same matchers on both", `http:// {
			@api {
				path /api/*
				method GET
				header Accept *
				not remote_ip 192.0.2.1
			}
			mnemogate @api
			encode gzip
			reverse_proxy @api localhost:9000
		}`, nil},
		{"the same matcher on both, in a site with a name", `example.com {
			mnemogate /api/*
			encode gzip
			handle /api/* {
				reverse_proxy localhost:9000
			}
			file_server
		}`, nil},
		{"two sites, one in the open", `a.example.com {
			mnemogate
			reverse_proxy localhost:9000
		}
		b.example.com {
			reverse_proxy localhost:9000
		}
		:8080 {
			mnemogate
			reverse_proxy localhost:9000
		}`, []string{elsewhere("mnemogate in a.example.com", "b.example.com")}},
		{"two servers, one in the open", `example.com {
			handle /api/* {
				mnemogate
				reverse_proxy 127.0.0.1:9000
			}
		}
		:8080 {
			handle /x/* {
				reverse_proxy localhost:9000
			}
		}`, []string{elsewhere("mnemogate in example.com", ":8080")}},
		{"two sites with PHP of their own", `example.com {
			mnemogate
			php_fastcgi unix//run/php.sock
		}
		b.example.com {
			php_fastcgi unix//run/php.sock
		}`, nil},
		{"one that nothing comes to, and need not", `example.com {
			handle {
				mnemogate
				reverse_proxy localhost:9000
			}
			route /x/* {
				mnemogate
				reverse_proxy localhost:9000
			}
		}`, nil},
		{"another who decides, too", `example.com {
			mnemogate
			forward_auth localhost:9091 {
				uri /check
			}
			reverse_proxy localhost:9000
		}`, nil},
		{"a route invoked behind it", `&(app) {
			reverse_proxy localhost:9000
		}
		example.com {
			mnemogate
			invoke app
		}`, nil},
		{"in an invoked route", `&(guarded) {
			mnemogate
			reverse_proxy localhost:9000
		}
		example.com {
			handle /api/* {
				invoke guarded
			}
			handle {
				invoke guarded
			}
		}`, nil},
		{"a second route in the open", `example.com {
			handle /public/* {
				reverse_proxy localhost:9000
			}
			handle {
				mnemogate
				reverse_proxy 127.0.0.1:9000 localhost:9001
			}
		}`, []string{past("mnemogate in example.com", "localhost:9000")}},
		{"a part of it before, in a route", `http:// {
			route {
				reverse_proxy /public/* localhost:9000
				mnemogate
				reverse_proxy localhost:9000
			}
		}`, []string{past("mnemogate", "localhost:9000")}},
		{"another application before, in a route", `http:// {
			route {
				reverse_proxy /api/* localhost:9001
				mnemogate
				reverse_proxy localhost:9000
			}
		}`, []string{past("mnemogate", "localhost:9001")}},
		{"another application before, in a block", `http:// {
			route {
				handle /api/* {
					reverse_proxy localhost:9001
				}
				handle {
					mnemogate
					reverse_proxy localhost:9000
				}
			}
		}`, nil},
		{"one who decides before", `http:// {
			route {
				forward_auth localhost:9001 {
					uri /check
				}
				mnemogate
				reverse_proxy localhost:9000
			}
		}`, nil},
		{"an invoked route in the open", `&(app) {
			reverse_proxy localhost:9000
		}
		http:// {
			handle /public/* {
				invoke app
			}
			handle {
				mnemogate
				invoke app
			}
		}`, []string{past("mnemogate", "localhost:9000")}},
		{"matchers that differ", `http:// {
			mnemogate /api/*
			reverse_proxy /api/v1/* localhost:9000
		}`, []string{past("mnemogate", "localhost:9000")}},
		{"the same matcher, but the path is another", `http:// {
			route {
				mnemogate /api/*
				uri replace /v1/ /api/
				reverse_proxy /api/* localhost:9000
			}
		}`, []string{past("mnemogate", "localhost:9000")}},
		{"the same matcher, but a header is another", `http:// {
			route {
				@int header X-Internal 1
				mnemogate @int
				request_header X-Internal 1
				reverse_proxy @int localhost:9000
			}
		}`, []string{past("mnemogate", "localhost:9000")}},
		{"the same matcher, but a header is another for some", `http:// {
			route {
				@int expression {http.request.header.X-Internal} == "1"
				mnemogate @int
				request_header /x X-Internal 1
				reverse_proxy @int localhost:9000
			}
		}`, []string{past("mnemogate", "localhost:9000")}},
		{"the same matcher, but a variable is another", `http:// {
			route {
				@int vars internal 1
				mnemogate @int
				vars internal 1
				reverse_proxy @int localhost:9000
			}
		}`, []string{past("mnemogate", "localhost:9000")}},
		{"the same matcher, whatever headers and variables are", `http:// {
			route {
				@api {
					path /api/*
					not method TRACE
				}
				mnemogate @api
				request_header X-Internal 1
				vars internal 1
				tracing
				reverse_proxy @api localhost:9000
			}
		}`, nil},
		{"a part of what matches", `http:// {
			route {
				handle /x/* {
					mnemogate /x/api/*
				}
				encode gzip
				reverse_proxy /x/* localhost:9000
			}
		}`, []string{past("mnemogate", "localhost:9000")}},
		{"what matches in a part", `http:// {
			@html path *.html
			route {
				handle /x/* {
					mnemogate @html
				}
				reverse_proxy @html localhost:9000
			}
		}`, []string{past("mnemogate", "localhost:9000")}},
		{"twice, perhaps", `http:// {
			mnemogate /api/*
			mnemogate
			reverse_proxy localhost:9000
		}`, []string{maybeTwice}},
		{"applications on other machines that can't tell", `example.com {
			mnemogate
			handle /a/* {
				reverse_proxy app:9000 10.0.0.5:9000 localhost:9000
			}
			handle /b/* {
				reverse_proxy https://app.internal {
					header_up Host {upstream_hostport}
					header_up X-Env production
					header_up X-Forwarded-Proto "https and more"
				}
			}
			php_fastcgi php:9000
		}`, []string{unproven("mnemogate in example.com", "app:9000"), unproven("mnemogate in example.com", "10.0.0.5:9000"),
			unproven("mnemogate in example.com", "app.internal:443"), unproven("mnemogate in example.com", "php:9000")}},
		{"applications on other machines that can tell", `example.com {
			mnemogate
			handle /a/* {
				reverse_proxy app:9000 {
					header_up X-Gateway-Key {env.MNEMOGATE_TEST_KEY}
				}
			}
			handle /b/* {
				reverse_proxy app:9001 {
					header_up X-Gateway-Key 0123456789abcdef
				}
			}
			handle {
				reverse_proxy https://app.internal {
					transport http {
						tls_client_auth client.example.com
					}
				}
			}
		}
		b.example.com {
			mnemogate {
				assertion app
			}
			reverse_proxy app:9002
		}
		http:// {
			reverse_proxy app:9003
		}`, nil},
		{"an issuer that clients choose", `http://, *.example.com {
			mnemogate {
				assertion app
			}
			reverse_proxy app:9000
		}
		http://:8081 {
			mnemogate {
				assertion app {
					issuer https://id.example.com
				}
			}
			reverse_proxy app:9000
		}`, []string{anyIssuer("mnemogate in *.example.com"), anyIssuer("mnemogate")}},
		{"once for each of two servers", `http://example.com, https://example.com {
			handle /public/* {
				reverse_proxy localhost:9000
			}
			handle {
				mnemogate
				reverse_proxy localhost:9000
			}
		}`, []string{past("mnemogate in example.com", "localhost:9000")}},
	} {
		t.Run(test.name, func(t *testing.T) {
			config, _, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(`{
				mnemogate {
					company acme {
						api_key {env.MNEMOGATE_TEST_KEY}
						captcha off
					}
				}
			}
			http://login.example:9999 {
				mnemogate
			}
			`+test.sites+"\n"), nil)
			if err != nil {
				t.Fatal(err)
			}
			for range 4 { // Caddy loads its apps in any order
				got, err := warnings(t, config)
				if err != nil {
					t.Fatal(err)
				}
				if !slices.Equal(got, test.want) {
					t.Fatalf("got %q, want %q", got, test.want)
				}
			}
		})
	}
}

// Routes in JSON may be written as no Caddyfile adapts to.
func TestRoutesInJSONAreFollowed(t *testing.T) {
	guesttest.Environment(t)
	const (
		guard       = `{"handler": "mnemogate"}`
		app         = `{"handler": "reverse_proxy", "upstreams": [{"dial": "localhost:9000"}]}`
		isAPI       = `"match": [{"path": ["/api/*"]}]`
		isHost      = `"match": [{"host": ["a.example.com"]}]`
		unreachable = "mnemogate: nobody can log in: requests for /{company}/v2/auth/ do not reach it, only those for /api/* do"
		forged      = ", with whatever identity headers the client sent"
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
		{"a host's, and all others'", `{` + isHost + `, "handle": [` + guard + `]}, {"handle": [` + app + `]}`, "", "", nil},
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
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

// Caddy takes each of these, and many don't do what they seem to. A Caddyfile's line and
// what to write instead are told with each.
func TestTrapsAreToldWithTheirLineAndTheFix(t *testing.T) {
	guesttest.Environment(t)
	const (
		upstream  = "reverse_proxy localhost:9000\n"
		basicAuth = "basic_auth {\nbob $2a$14$Zkx19XLiW6VYouLHR5NmfOFU0z2GTNmpkT/5qqR7hx4IjWJPDhjvG\n}\n"
		umbra     = "company umbra {\napi_key {env.MNEMOGATE_TEST_SECRET}\ncaptcha off\n}\n"
	)
	type told struct{ message, at, advice string }
	for name, test := range map[string]struct {
		company string // beside acme
		sites   string // from line 9 on, or 13 with another company
		want    []told
		refused string
	}{
		"abort behind it": {
			sites: "example.com {\n@bad remote_ip 192.0.2.0/24\nabort @bad\nmnemogate\n" + upstream + "}",
			want:  []told{{"mnemogate in example.com: abort with a matcher comes after it, so it does not protect the auth routes", "Caddyfile:12", "route { abort ...; mnemogate; ... }"}},
		},
		"respond behind it": {
			sites: "http:// {\n@down vars {env.DOWN} yes\nmnemogate\nrespond @down 503\n" + upstream + "}",
			want:  []told{{"mnemogate: respond with a matcher comes after it, so it does not protect the auth routes", "Caddyfile:11", "route { respond ...; mnemogate; ... }"}},
		},
		"error behind it, in a block": {
			sites: "http:// {\nhandle {\nmnemogate\nerror /acme/* 404\n" + upstream + "}\n}",
			want:  []told{{"mnemogate: error with a matcher comes after it, so it does not protect the auth routes", "Caddyfile:11", "route { error ...; mnemogate; ... }"}},
		},
		"abort behind it, in a block of its own": {
			sites: "http:// {\n@bad remote_ip 192.0.2.0/24\nmnemogate\nhandle @bad {\nabort\n}\n" + upstream + "}",
			want:  []told{{"mnemogate: abort with a matcher comes after it, so it does not protect the auth routes", "Caddyfile:11", "route { abort ...; mnemogate; ... }"}},
		},
		"abort before it":              {sites: "http:// {\nroute {\n@bad remote_ip 192.0.2.0/24\nabort @bad\nmnemogate\n" + upstream + "}\n}"},
		"an answer without a matcher":  {sites: "http:// {\nmnemogate\nrespond ok\n}"},
		"an answer in another block":   {sites: "http:// {\nhandle /health {\nrespond /health ok\n}\nhandle {\nmnemogate\n" + upstream + "}\n}"},
		"a redirect":                   {sites: "http:// {\nroute {\nmnemogate\nredir /old /new\n" + upstream + "}\n}"},
		"an answer to what has failed": {sites: "http:// {\nmnemogate\n" + upstream + "handle_errors {\n@missing expression {err.status_code} == 404\nrespond @missing none\n}\n}"},
		"a prefix that is taken away and wanted": {
			sites:   "http:// {\nhandle_path /api/* {\nmnemogate {\nbase_path /api\n}\n" + upstream + "}\n}",
			refused: "mnemogate: base_path /api is never found: handle_path or uri strip_prefix removes /api first; leave base_path out or, if the application needs the prefix, write handle instead, at Caddyfile:11",
		},
		"a prefix that is there and not wanted": {
			sites: "http:// {\nhandle /api/* {\nmnemogate\n" + upstream + "}\n}",
			want:  []told{{"mnemogate: nobody can log in: requests for /{company}/v2/auth/ do not reach it, only those for /api/* do", "Caddyfile:11", "write base_path"}},
		},
		"a prefix that is there and wanted":         {sites: "http:// {\nhandle /api/* {\nmnemogate {\nbase_path /api\n}\n" + upstream + "}\n}"},
		"a prefix that is taken away and not":       {sites: "http:// {\nhandle_path /api/* {\nmnemogate\n" + upstream + "}\n}"},
		"a company of the path's name":              {sites: "http:// {\nhandle /acme/* {\nmnemogate\n" + upstream + "}\n}"},
		"a login that is elsewhere":                 {sites: "http:// {\nhandle /api/* {\nmnemogate\n" + upstream + "}\nhandle /acme/v2/* {\nmnemogate\n}\n}"},
		"a path that is rewritten by who knows how": {sites: "http:// {\nroute /api/* {\nuri replace /api/ /\nmnemogate\n" + upstream + "}\n}"},
		"a company that cannot be reached on its site": {
			company: umbra,
			sites:   "a.example.com {\nmnemogate {\ncompany acme\n}\n" + upstream + "}\nb.example.com {\nhandle /api/* {\nmnemogate {\ncompany umbra\n}\nreverse_proxy localhost:9001\n}\n}",
			want:    []told{{"mnemogate in b.example.com: nobody can log in: requests for /{company}/v2/auth/ do not reach it, only those for /api/* do", "Caddyfile:21", "write base_path"}},
		},
		"a company without a site": {
			company: umbra,
			sites:   "http:// {\nmnemogate {\ncompany acme\n}\n" + upstream + "}",
			want:    []told{{"company: no request for its auth routes reaches mnemogate: nobody can log in", "Caddyfile:7", "let /{company}/* reach a mnemogate"}},
		},
		"a company without a block": {
			company: umbra,
			sites:   "http:// {\nhandle /acme/* {\nmnemogate\n" + upstream + "}\n}",
			want:    []told{{"company: no request for its auth routes reaches mnemogate: nobody can log in", "Caddyfile:7", "let /{company}/* reach a mnemogate"}},
		},
		"companies with a block each": {
			company: umbra,
			sites:   "http:// {\nhandle /acme/* {\nmnemogate\n" + upstream + "}\nhandle /umbra/* {\nmnemogate\n" + upstream + "}\n}",
		},
		"basic_auth behind it": {
			sites: "http:// {\nmnemogate\n" + basicAuth + upstream + "}",
			want:  []told{{"mnemogate: basic_auth comes after it, and no request passes both: each needs the Authorization header", "Caddyfile:10", "remove basic_auth"}},
		},
		"basic_auth beside it": {sites: "http:// {\nhandle /admin/* {\n" + basicAuth + "reverse_proxy localhost:9001\n}\nhandle {\nmnemogate\n" + upstream + "}\n}"},
		"files before it": {
			sites: "http:// {\nroot * /srv\ntry_files {path} /index.html\nmnemogate {\nrole admin /admin/*\n}\nfile_server\n}",
			want:  []told{{"mnemogate: nobody can log in: try_files comes before it, and only paths of files reach it", "Caddyfile:12", "handle { try_files ...; file_server }"}},
		},
		"files and a script before it": {
			sites: "http:// {\ntry_files {path} {path}/ /index.php?{query}\nhandle {\nmnemogate\n" + upstream + "}\n}",
			want:  []told{{"mnemogate: nobody can log in: try_files comes before it, and only paths of files reach it", "Caddyfile:12", "handle { try_files ...; file_server }"}},
		},
		"files or an error before it": {
			sites: "http:// {\ntry_files {path} =404\nmnemogate\nfile_server\n}",
			want:  []told{{"mnemogate: nobody can log in: try_files comes before it, and only paths of files reach it", "Caddyfile:11", "handle { try_files ...; file_server }"}},
		},
		"files in a block after it":          {sites: "http:// {\nmnemogate\nhandle {\ntry_files {path} /index.html\nfile_server\n}\n}"},
		"files before it, if they are there": {sites: "http:// {\ntry_files {path} {path}.html\nmnemogate\nfile_server\n}"},
		"files before it, for other paths":   {sites: "http:// {\n@page {\nnot path /acme/*\nfile {path} /index.html\n}\nrewrite @page {file_match.relative}\nmnemogate\nfile_server\n}"},
		"paths that the block leaves out": {
			sites: "http:// {\nhandle /api/* {\nmnemogate {\nbase_path /api\npublic /health /api/health\nrole admin /admin/* /API/x/* /a* *.pdf\nfresh 5m /[ab]\n}\n" + upstream + "}\n}",
			want: []told{
				{"mnemogate: public /health never matches: only requests for /api/* reach it", "Caddyfile:11", "handle and route leave the prefix"},
				{"mnemogate: role /admin/* never matches: only requests for /api/* reach it", "Caddyfile:11", "handle and route leave the prefix"},
			},
		},
		"paths with a prefix that is taken away": {
			sites: "http:// {\nhandle_path /api/* {\nmnemogate {\nrole admin /api/admin/* /admin/* /apis\n}\n" + upstream + "}\n}",
			want:  []told{{"mnemogate: role /api/admin/* never matches: handle_path or uri strip_prefix removes /api first", "Caddyfile:11", "without that prefix"}},
		},
		"paths that one of two blocks has":  {sites: "(gate) {\nmnemogate {\npublic /health\nrole admin /api/admin/*\n}\n" + upstream + "}\nhttp:// {\nhandle /api/* {\nimport gate\n}\nhandle {\nimport gate\n}\n}"},
		"paths of who knows what":           {sites: "http:// {\nroute /api/* {\nuri replace /api/ /\nmnemogate {\nrole admin /admin/*\n}\n" + upstream + "}\n}"},
		"paths where a matcher has several": {sites: "http:// {\n@api path /api/* /admin/*\nhandle @api {\nmnemogate {\nrole admin /admin/*\n}\n" + upstream + "}\nhandle {\nmnemogate\n}\n}"},
		"a header that is taken out again": {
			sites:   "http:// {\nrequest_header -X-Profile-Mnemocode\nmnemogate\n" + upstream + "}",
			refused: "mnemogate: request_header X-Profile-Mnemocode comes after it and changes X-Profile-Mnemocode, which names the user to the application; remove it: mnemogate removes what clients send and sets the header itself, at Caddyfile:11",
		},
		"a header of another spelling": {
			sites:   "http:// {\nmnemogate {\nheader X-User\n}\nrequest_header x_user bob\n" + upstream + "}",
			refused: "mnemogate: request_header X_user comes after it and changes X-User",
		},
		"headers that begin alike": {
			sites:   "http:// {\nmnemogate\nrequest_header -X-Comp*\n" + upstream + "}",
			refused: "changes X-Company-Code",
		},
		"a header that the proxy sets": {
			sites:   "http:// {\nmnemogate\nreverse_proxy localhost:9000 {\nheader_up X-Company-Code acme\n}\n}",
			refused: "mnemogate: header_up X-Company-Code comes after it",
		},
		"a header that another decides on": {
			sites:   "http:// {\nmnemogate\nforward_auth localhost:9091 {\nuri /check\ncopy_headers X-Profile-Mnemocode\n}\n" + upstream + "}",
			refused: "changes X-Profile-Mnemocode",
		},
		"other headers":       {sites: "http:// {\nrequest_header X-Request-Start now\nmnemogate\nreverse_proxy localhost:9000 {\nheader_up X-User {http.auth.user.id}\n}\n}"},
		"a header before it":  {sites: "http:// {\nroute {\nrequest_header -X-Profile-Mnemocode\nmnemogate\n" + upstream + "}\n}"},
		"a header without it": {sites: "http:// {\nmnemogate\n" + upstream + "}\nhttp://mock.example {\nreverse_proxy localhost:9001 {\nheader_up X-Profile-Mnemocode alice\n}\n}"},
		"a matcher on one of two": {
			sites:   "example.com {\nmnemogate /api/*\n" + upstream + "}",
			refused: "mnemogate in example.com: requests that its matcher leaves out reach reverse_proxy with whatever identity headers the client sent; write mnemogate without a matcher or, for a part of the site, into one block with reverse_proxy: handle /api/* { ... }",
		},
		"a matcher on one of two, in a block of two sites": {
			sites:   "a.example.com, b.example.com {\nhandle /x/* {\nmnemogate /x/api/*\n" + upstream + "}\n}",
			refused: "mnemogate in a.example.com, b.example.com: requests that its matcher leaves out reach reverse_proxy with whatever identity headers the client sent",
		},
		"a block on one of two": {
			sites:   "http:// {\nhandle /api/* {\nmnemogate\n}\n" + upstream + "}",
			refused: "mnemogate: requests that its matcher leaves out reach reverse_proxy with whatever identity headers the client sent",
		},
		"a matcher before an invoked route": {
			sites:   "&(app) {\n" + upstream + "}\nhttp:// {\nmnemogate /api/*\ninvoke app\n}",
			refused: "mnemogate: requests that its matcher leaves out reach reverse_proxy with whatever identity headers the client sent",
		},
		"twice, the second in a block": {
			sites:   "example.com {\nmnemogate\nhandle /api/* {\nmnemogate\n" + upstream + "}\nhandle {\nrespond 404\n}\n}",
			refused: "mnemogate in example.com: the same requests pass it twice, and the second one finds no token; remove one of the two",
		},
		"twice, with a prefix": {
			sites:   "http:// {\nmnemogate\nmnemogate {\nbase_path /api\n}\n" + upstream + "}",
			refused: "mnemogate: the same requests pass it twice, and the second one finds no token",
		},
		"twice, with a matcher": {
			sites:   "http:// {\n@api path /api/*\nmnemogate @api\nmnemogate @api\nhandle @api {\n" + upstream + "}\n}",
			refused: "mnemogate: the same requests pass it twice, and the second one finds no token",
		},
		"twice, the second for errors": {sites: "http:// {\nmnemogate\n" + upstream + "handle_errors {\nmnemogate\n" + upstream + "}\n}"},
		"no login but for errors": {
			sites: "http:// {\nhandle /api/* {\nmnemogate\n" + upstream + "}\nhandle_errors {\nmnemogate\n" + upstream + "}\n}",
			want:  []told{{"mnemogate: nobody can log in: requests for /{company}/v2/auth/ do not reach it, only those for /api/* do", "Caddyfile:11", "write base_path"}},
		},
		"behind the proxy": {
			sites:   "http:// {\nroute {\n" + upstream + "mnemogate\n}\n}",
			refused: "mnemogate: it comes after reverse_proxy, which passes no request on to it; write it before that",
		},
		"behind it and the proxy": {
			sites:   "http:// {\nroute {\nmnemogate\nhandle {\n" + upstream + "}\nmnemogate\n}\n}",
			refused: "mnemogate: it comes after reverse_proxy, which passes no request on to it; write it before that",
		},
		"behind blocks": {
			sites:   "http:// {\nroute {\nhandle /x/* {\n" + upstream + "}\nhandle {\nrespond 404\n}\nmnemogate\n}\n}",
			refused: "mnemogate: it comes after reverse_proxy, which passes no request on to it",
		},
		"behind an answer": {
			sites:   "http:// {\nroute {\nrespond 404\nhandle /api/* {\nmnemogate\n" + upstream + "}\n}\n}",
			refused: "mnemogate: it comes after respond or redir, which passes no request on to it; write it before that",
		},
		"PHP past it":              {sites: "http:// {\nmnemogate /acme/*\nphp_fastcgi localhost:9000\n}", refused: "mnemogate: requests that its matcher leaves out reach reverse_proxy"},
		"PHP behind it":            {sites: "http:// {\nmnemogate\nphp_fastcgi localhost:9000\n}"},
		"PHP with its own matcher": {sites: "http:// {\n@a path /acme/*\nmnemogate @a\nphp_fastcgi @a localhost:9000\n}"},
		"the accounts API for everyone": {
			sites: "accounts.example.com {\nmnemogate_accounts {\nkey shop {env.MNEMOGATE_TEST_KEY}\n}\n}\nhttp:// {\nmnemogate\n" + upstream + "}",
			want:  []told{{"mnemogate_accounts in accounts.example.com: everyone who can reach its site can try keys", "Caddyfile:10", "abort @others"}},
		},
		"the accounts API for some":          {sites: "accounts.example.com {\n@others not remote_ip 10.0.0.0/24\nabort @others\nmnemogate_accounts {\nkey shop {env.MNEMOGATE_TEST_SECRET}\n}\n}"},
		"the accounts API at home":           {sites: "accounts.example.com {\nbind 10.0.0.5\nmnemogate_accounts {\nkey shop {env.MNEMOGATE_TEST_SECRET}\n}\n}"},
		"the accounts API with certificates": {sites: "accounts.example.com {\ntls {\nclient_auth {\nmode require\n}\n}\nmnemogate_accounts {\nkey shop {env.MNEMOGATE_TEST_SECRET}\n}\n}"},
	} {
		t.Run(name, func(t *testing.T) {
			config, _, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte("{\nmnemogate {\ncompany acme {\napi_key {env.MNEMOGATE_TEST_KEY}\ncaptcha off\n}\n"+test.company+"}\n}\n"+test.sites+"\n"), nil)
			if err != nil {
				t.Fatal(err)
			}
			got, err := logged(t, config)
			if (test.refused != "") != (err != nil) || err != nil && !strings.Contains(err.Error(), test.refused) {
				t.Fatalf("got %v, want %q", err, test.refused)
			}
			got = slices.DeleteFunc(got, func(e entry) bool { return strings.HasPrefix(e.Msg, "mnemogate_accounts key") })
			if len(got) != len(test.want) {
				t.Fatalf("got %q, want %q", got, test.want)
			}
			for i, want := range test.want {
				if got[i].Msg != want.message || got[i].At != want.at || !strings.Contains(got[i].Advice, want.advice) {
					t.Errorf("got %q, want %q", got[i], want)
				}
			}
		})
	}
}

// A page on which the passkeys of its company can't work is told of, with its line.
func TestSitesOutsideThePasskeysAreToldOf(t *testing.T) {
	guesttest.Environment(t)
	for _, c := range []struct{ hosts, options, passkeys, want string }{
		{"login.example.org", "login_page", "", "login_page"},
		{"login.example.com", "login_page", "", "login_page"}, // not among the origins
		{"login.example.com", "login_page", "origins https://login.example.com:8443", ""},
		{"example.org, example.com", "login_page\nself_service", "", ""},
		{"*.com", "login_page", "", ""},
		{"*.example.org", "login_page", "", "login_page"},
		{"http://", "login_page", "", ""},
		{"example.org", "", "", ""},
		{"example.org", "self_service", "", "self_service"},
		{"api.example.com", "self_service", "", ""},
		{"example.org", "self_service\ncors https://example.com", "", ""},
	} {
		config, _, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte("{\nmnemogate {\npasskeys {\nrp_id example.com\n"+c.passkeys+"\n}\ncompany acme {\napi_key {env.MNEMOGATE_TEST_KEY}\ncaptcha off\n}\n}\n}\n"+
			c.hosts+" {\nmnemogate {\n"+c.options+"\n}\nreverse_proxy localhost:9000\n}\n"), nil)
		if err != nil {
			t.Fatal(err)
		}
		got, err := logged(t, config)
		if err != nil {
			t.Fatal(err)
		}
		want := c.want + ": passkeys of company acme do not work on this site: its rp_id is example.com"
		if (len(got) > 0) != (c.want != "") || len(got) > 0 && (!strings.Contains(got[0].Msg, want) || got[0].At != "Caddyfile:14" || !strings.Contains(got[0].Advice, "correct rp_id or origins")) {
			t.Errorf("%+v: got %q", c, got)
		}
	}
}
