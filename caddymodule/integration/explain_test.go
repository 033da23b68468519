package integration

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"
)

const explainedSites = `{
	admin unix/DIR/admin.sock
	persist_config off
	auto_https off
	mnemogate {
		store sqlite DIR/mnemogate.db
		company acme {
			api_key ` + testKey + `
			captcha off
			account alice {
				login alice
				email alice@example.com
				password "` + testPassword + `"
			}
		}
		company neu {
			api_key off
			captcha off
			account zoe {
				login alice
				password "` + testPassword + `"
			}
		}
	}
}
http://api.example.com {
	bind fd/3
	handle /plain/* {
		reverse_proxy BACKEND
	}
	handle_path /v1/* {
		mnemogate {
			public /open/*
			fresh 5m /pay/*
			fresh 1m /pay/new
			mfa /two/*
			role admin /admin/*
			role editor /admin/texts/*
			forward role auth_methods session
			assertion profile-api
		}
		reverse_proxy BACKEND
	}
}
http://keys.example.com, http://clés.example.com {
	bind fd/3
	mnemogate {
		company acme
		require_api_key
	}
	reverse_proxy BACKEND
}
`

// Contract, section 25: an operator asks what would become of a request.
func TestARequestIsExplained(t *testing.T) {
	t.Parallel()
	s := startWith(t, &site{backend: newRawBackend(t)}, func(s *site) string {
		return strings.NewReplacer("DIR", s.dir, "BACKEND", s.backend.addr).Replace(explainedSites)
	})
	s.cli("", "account", "set", "alice", "--company", "acme", "--role", "editor").want(0)
	s.history("alice", 2) // all that will be in the store is there
	unreached, counted, stored, logged := s.unreached(), s.scrape(), s.contents(), len(s.log())
	lineOf := func(text string) string {
		before, _, found := strings.Cut(s.config, text)
		if !found {
			t.Fatal(text)
		}
		return "Caddyfile:" + s.encoded(1+strings.Count(before, "\n"))
	}
	explain := func(args ...string) outcome { return s.cli("", append([]string{"explain"}, args...)...) }
	asAlice := []string{"--as", "alice@example.com", "--company", "acme"}

	for _, c := range []struct {
		exit int
		args string // without a method, a GET as alice
		want []string
	}{
		{0, "https://api.example.com/v1/acme/x", []string{"site    api.example.com", "passes", "X-Profile-Mnemocode: alice", "X-Company-Code: acme", "X-Profile-Role: editor", "X-Profile-Auth-Methods: pwd", "X-Profile-Session: (", "X-Mnemogate-Assertion: (an assertion by https://api.example.com/acme)"}},
		{0, "https://api.example.com:8443/v1/acme/x", []string{"(an assertion by https://api.example.com:8443/acme)"}},
		{0, "https://clés.example.com/x", []string{"site    keys.example.com, xn--cls-cma.example.com", "passes"}},
		{0, "https://api.example.com/v1/pay/new", []string{"rule    fresh 5m0s /pay/*, at ", lineOf("fresh 5m"), "rule    fresh 1m0s /pay/new, at ", lineOf("fresh 1m"), "passes"}},
		{0, "https://api.example.com/v1/admin/texts/x?a=b", []string{lineOf("role admin"), lineOf("role editor"), "passes"}},
		{1, "https://api.example.com/v1/x/..;/admin/x", []string{"role admin /admin/*", "refused  403 auth.session.invalid role"}},
		{1, "https://api.example.com/v1//two/%78", []string{lineOf("mfa /two"), "refused  403 auth.session.invalid mfa"}},
		{1, "https://api.example.com/v1/neu/x", []string{"refused  401 auth.token.invalid"}},
		{1, "https://api.example.com/v1/acme/v2/auth/nope", []string{"refused  404 request.validation.failed"}},
		{0, "https://keys.example.com:8443/x", []string{"company acme, at " + s.dir, lineOf("company acme\n		require"), "require_api_key, at ", lineOf("require_api_key"), "passes"}},
		{0, "GET https://api.example.com/v1/open/x", []string{"public /open/*", lineOf("public"), "passes  without a user"}},
		{0, "GET https://api.example.com/v1/x --as alice --company neu", []string{"X-Profile-Mnemocode: zoe"}},

		{1, "POST https://api.example.com/v1/acme/v2/auth/login", []string{"/acme/v2/auth/login is a route of the auth API", "account explain"}},
		{1, "https://api.example.com/v1/acme/v2/session", []string{"mnemogate answers /acme/v2/session itself"}},
		{2, "https://api.example.com/plain/x", []string{"reverse_proxy answers it before mnemogate is asked"}},
		{2, "https://www.example.com/x", []string{"it is for none of the sites with mnemogate", "api.example.com"}},
		{2, "GET https://api.example.com/v1/x --as nobody --company acme", []string{`no account "nobody"`}},
		{2, "GET https://api.example.com/v1/x --as alice --company nobody", []string{"no such company"}},
		{1, "GET https://api.example.com/v1/x --as alice", []string{"there are several companies; choose one with --company: acme, neu"}},
		{1, "GET /v1/x", []string{"a whole URL"}},
		{1, "G@T https://api.example.com/v1/x", []string{"a method such as GET"}},
		{1, "GET", []string{"explain <METHOD> <url>"}},
		{1, "GET https://api.example.com/v1/x --api https://a.example --key-file x", []string{"leave --api out, with its --key-file"}},
	} {
		args := strings.Fields(c.args)
		if strings.HasPrefix(c.args, "https:") {
			args = append([]string{"GET", c.args}, asAlice...)
		}
		explain(args...).want(c.exit, c.want...)
	}

	var answer map[string]any
	must(t, json.Unmarshal([]byte(explain(append(asAlice, "--json", "GET", "http://api.example.com/v1/two/x")...).want(1).out), &answer))
	rule := answer["rules"].([]any)[0].(map[string]any)
	if got := s.encoded(answer["rules"]); rule["rule"] != "mfa" || lineOf("mfa /two") != "Caddyfile:"+s.encoded(rule["line"]) || answer["passes"] != false ||
		answer["status"] != 403.0 || answer["error_code"] != "auth.session.invalid" || answer["reason"] != "mfa" || answer["site"] != "api.example.com" {
		t.Errorf("got %s in %v", got, answer)
	}

	unreached()
	now := s.scrape()
	for _, samples := range []map[string]float64{counted, now} { // what other things move
		maps.DeleteFunc(samples, func(name string, _ float64) bool {
			return strings.HasPrefix(name, "mnemogate_store") || strings.Contains(name, "seconds")
		})
	}
	if !maps.Equal(now, counted) {
		t.Errorf("it counted:\n%v\n%v", counted, now)
	}
	if got := s.contents(); got != stored {
		t.Errorf("it changed the store: %s\n%s", stored, got)
	}
	if got := s.log()[logged:]; strings.Contains(got, "mnemogate.audit") || strings.Contains(got, `"level":"warn"`) || strings.Contains(got, `"level":"error"`) {
		t.Errorf("it logged %s", got)
	}
}

// contents returns all rows of the store.
func (s *site) contents() string {
	s.t.Helper()
	db := get(sql.Open("sqlite", "file:"+s.dir+"/mnemogate.db?_pragma=busy_timeout(5000)"))(s.t)
	defer db.Close()
	var all strings.Builder
	for _, table := range columnOf(s.t, db, "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name") {
		columns := columnOf(s.t, db, "SELECT 'hex(' || name || ')' FROM pragma_table_info('"+table+"')")
		rows := columnOf(s.t, db, "SELECT concat_ws(' ', "+strings.Join(columns, ", ")+") FROM "+table)
		fmt.Fprintln(&all, table, strings.Join(rows, "\n"))
	}
	return all.String()
}

func columnOf(t *testing.T, db *sql.DB, query string) (values []string) {
	t.Helper()
	rows := get(db.Query(query))(t)
	defer rows.Close()
	for rows.Next() {
		var value string
		must(t, rows.Scan(&value))
		values = append(values, value)
	}
	must(t, rows.Err())
	return values
}
