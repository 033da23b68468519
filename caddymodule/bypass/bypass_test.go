package bypass_test

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
		var entry struct{ Level, Msg string }
		if err := json.Unmarshal(line, &entry); err != nil {
			t.Fatal(err)
		}
		if entry.Level == "warn" && strings.HasPrefix(entry.Msg, "mnemogate") {
			told = append(told, entry.Msg)
		}
	}
	return told, err
}

// What may be meant is told of; what is as it should be is not.
func TestRoutesPastMnemogateAreToldOf(t *testing.T) {
	guesttest.Environment(t)
	past := func(site, address string) string {
		return site + ": requests may also come to " + address + " without it, and with identity headers of their own making"
	}
	const maybeTwice = "mnemogate: some requests may meet it twice, and the second finds no token any more"
	for _, test := range []struct {
		name, sites string
		want        []string
	}{
		{"all of a site", `example.com {
			mnemogate
			encode gzip
			reverse_proxy localhost:9000
			handle_errors {
				rewrite * /errors/{err.status_code}
				reverse_proxy localhost:9000
			}
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
		{"errors in the open", `example.com {
			handle /static/* {
				file_server
			}
			handle {
				mnemogate
				reverse_proxy localhost:9000
			}
			handle_errors {
				reverse_proxy localhost:9000
			}
		}`, []string{past("mnemogate in example.com", "localhost:9000")}},
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
		{"PHP, which matches by itself", `http:// {
			mnemogate /admin/*
			php_fastcgi localhost:9000
		}`, []string{past("mnemogate", "localhost:9000")}},
		{"twice, perhaps", `http:// {
			mnemogate /api/*
			mnemogate
			reverse_proxy localhost:9000
		}`, []string{maybeTwice}},
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
		guard  = `{"handler": "mnemogate"}`
		app    = `{"handler": "reverse_proxy", "upstreams": [{"dial": "localhost:9000"}]}`
		isAPI  = `"match": [{"path": ["/api/*"]}]`
		isHost = `"match": [{"host": ["a.example.com"]}]`
		past   = "requests may also come to localhost:9000 without it, and with identity headers of their own making"
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
		{"a group", `{"group": "g", ` + isAPI + `, "handle": [` + guard + `]}, {"group": "g", "handle": [{"handler": "error"}]}, {"handle": [` + app + `]}`, "", "", nil},
		{"a group with others between", `{"group": "g", ` + isAPI + `, "handle": [{"handler": "vars"}]}, {"handle": [` + guard + `]}, {"group": "g", "handle": [` + app + `]}`, "", "", nil},
		{"errors of a host", `{` + isHost + `, "handle": [{"handler": "error"}, ` + guard + `]}`, "", "it stands behind error", nil},
		{"errors behind it", `{` + isHost + `, "handle": [` + guard + `, ` + app + `]}, {` + isHost + `, ` + isAPI + `, "handle": [` + app + `]}`,
			`, "errors": {"routes": [{` + isHost + `, "handle": [` + app + `]}]}`, "", nil},
		{"a route that invokes itself", `{"handle": [{"handler": "invoke", "name": "x"}]}`,
			`, "named_routes": {"x": {"handle": [` + guard + `, {"handler": "invoke", "name": "x"}, ` + app + `]}}`, "", nil},
		{"nested", `{"handle": [{"handler": "subroute", "routes": [{` + isAPI + `, "handle": [{"handler": "subroute", "routes": [{"handle": [` + guard + `]}]}]}]}, ` + app + `]}`,
			"", "mnemogate: requests that its matcher leaves out come to reverse_proxy", nil},
		{"of a host", `{` + isHost + `, "handle": [{"handler": "subroute", "routes": [{` + isAPI + `, "handle": [` + guard + `]}, {"handle": [` + app + `]}]}]}`,
			"", "mnemogate in a.example.com: requests that its matcher leaves out come to reverse_proxy", nil},
		{"in one route", `{"handle": [` + guard + `, ` + guard + `, ` + app + `]}`, "", "mnemogate: the same requests meet it twice", nil},
		{"behind", `{"handle": [` + app + `, ` + guard + `]}`, "", "mnemogate: it stands behind reverse_proxy", nil},
		{"behind two", `{"handle": [{"handler": "error"}, ` + app + `]}, {"handle": [` + guard + `]}`, "", "mnemogate: it stands behind error", nil},
		{"dynamic", `{` + isAPI + `, "handle": [` + guard + `]}, {"handle": [{"handler": "reverse_proxy", "dynamic_upstreams": {"source": "a", "name": "x", "port": "80"}}]}`,
			"", "mnemogate: requests that its matcher leaves out come to reverse_proxy", nil},
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
