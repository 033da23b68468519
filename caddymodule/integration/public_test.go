package integration

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/wire"
	"github.com/mnemogate/mnemogate/store/storetest"
)

// ask sends a raw request with these headers.
func (s *site) ask(method, uri, headers string) answer {
	s.t.Helper()
	if s.nodes != nil {
		s = s.nodes[0]
	}
	return s.exchange(method + " " + uri + " HTTP/1.1\r\nHost: example.com\r\nConnection: close\r\n" + headers + "\r\n")
}

// Contract, section 11: these paths require no token. Identity headers are removed
// anyway. A valid token sets them; an invalid one is ignored.
func TestPublicPathsNeedNoToken(t *testing.T) {
	t.Parallel()
	s := startSite(t, siteConfig{company: people, more: umbra, handler: `
		public /open/* /health /umbra/x /sse /socket /acme/v2/auth/*
		require_api_key
		forward_authorization
		forward role email
		cors https://app.example.com`})
	token, zoes := s.login("alice@example.com"), s.loginAt("umbra", "other-key", "zoe")
	key := "X-Api-Key: " + testKey + "\r\n"
	var forged strings.Builder
	told := guardedHeaders
	for _, name := range slices.Concat(spellings("X-Profile-Mnemocode"), spellings("X-Company-Code"), told) {
		forged.WriteString(name + ": mallory\r\n")
	}
	identity := func(a answer) []string { return linesNamed(string(a.Body), told...) }
	wantAnonymous := func(t *testing.T, how, headers string) {
		t.Helper()
		for _, uri := range []string{"/open/x", "/health", "/open/a%20b?c"} {
			a := s.ask("GET", uri, headers+forged.String()).wantStatus(200)
			if lines := linesNamed(string(a.Body), slices.Concat(told, []string{"Authorization", "X-Api-Key"})...); lines != nil {
				t.Errorf("%s: the application got %q", how, lines)
			}
			if !slices.Equal(a.Header["Vary"], []string{"Origin", "Authorization"}) {
				t.Errorf("%s: Vary is %q", how, a.Header["Vary"])
			}
		}
	}
	s.run("without a token", func(t *testing.T) {
		wantAnonymous(t, "no token", "")
		wantAnonymous(t, "a key", key)
		body := "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n" + forged.String()
		if lines := identity(s.ask("POST", "/open/x", body).wantStatus(200)); lines != nil {
			t.Errorf("trailers: the application got %q", lines)
		}
		r := s.request("GET", "/open/x", "")
		r.Header.Set("X-Profile-Mnemocode", "mallory")
		if lines := identity(s.doH2(r).wantStatus(200)); lines != nil {
			t.Errorf("HTTP/2: the application got %q", lines)
		}
		for _, method := range []string{"HEAD", "OPTIONS", "DELETE"} {
			s.ask(method, "/open/x", "").wantStatus(200)
		}
		s.ask("TRACE", "/open/x", "").wantStatus(405)
	})
	s.run("with a token that is not good", func(t *testing.T) {
		ended := s.login("frank")
		s.post("auth/logout", ended, nil).wantState(record.None)
		for how, authorization := range map[string]string{
			"unknown": bearer("mgs_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"), "no token": "Authorization: Basic YTpi\r\n",
			"ended": bearer(ended), "two": bearer(token) + bearer(token), "a step's": bearer(s.post("auth/login", "", fields{"login_id": "alice@example.com"}).token()),
			"another company's": bearer(zoes),
		} {
			wantAnonymous(t, how, authorization+key)
		}
		wantAnonymous(t, "without the key that it needs", bearer(token))
		if lines := identity(s.ask("GET", "/umbra/x", bearer(token)+key).wantStatus(200)); lines != nil {
			t.Errorf("on another company's path the application got %q", lines)
		}
	})
	s.run("with a good token", func(t *testing.T) {
		want := []string{"X-Company-Code: acme", "X-Profile-Email: alice@example.com", "X-Profile-Mnemocode: alice"}
		if got := identity(s.ask("GET", "/open/x", bearer(token)+key+forged.String()).wantStatus(200)); !slices.Equal(got, want) {
			t.Errorf("the application got %q, want %q", got, want)
		}
	})
	s.run("other paths", func(*testing.T) {
		for _, uri := range []string{"/", "/open", "/OPEN/x", "//open/x", "/open/../x", "/open/%2e%2e/x", "/open/..;/x", "/open/%252e%252e/x", "/health/", "/x?/open/x"} {
			s.ask("GET", uri, key).want(wire.ErrHeaderMissing)
			s.ask("GET", uri, "").want(wire.ErrAPIKeyMissing)
		}
		s.ask("GET", "/acme/v2/auth/x", "").want(wire.ErrNoRoute)
		s.ask("GET", "/acme/v2/auth/login", "").want(wire.ErrMethod)
	})
	s.run("streams and browsers", func(t *testing.T) {
		_, sse := s.open("/sse", "", 200)
		if line, err := sse.ReadString('\n'); err != nil || line != "data: tick\n" {
			t.Errorf("got %q, %v", line, err)
		}
		conn, _ := s.open("/socket", "Connection: Upgrade\r\nUpgrade: websocket\r\n", 101)
		if _, err := io.WriteString(conn, "hello"); err != nil {
			t.Error(err)
		}
		if echo, err := bufio.NewReader(conn).Peek(5); err != nil || string(echo) != "hello" {
			t.Errorf("got %q, %v", echo, err)
		}
		origin := "Origin: https://app.example.com\r\n"
		s.ask("OPTIONS", "/open/x", origin+"Access-Control-Request-Method: PUT\r\n").wantStatus(204)
		s.ask("GET", "/open/x", origin).wantStatus(200).wantHeader("Access-Control-Allow-Origin", "https://app.example.com")
	})
}

// loginAt is login for an account of another company.
func (s *site) loginAt(company, key, loginID string) string {
	s.t.Helper()
	a := s.postTo(company, key, "auth/checkcredentials", "", fields{"login_id": loginID, "password": testPassword})
	return a.wantState(record.Authorized).token()
}

// A health check must not wait for a store. A public page is served even if the
// user's token can't be checked.
func TestPublicPathsNeedNoStore(t *testing.T) {
	t.Parallel()
	servers := sharedServers(t)
	servers.redis.Freeze()
	defer servers.redis.Thaw()
	s := servers.startAnyway(siteConfig{company: people, handler: "public /health"}, servers.direct())
	watch := storetest.StartWatch()
	for range 20 {
		s.get("/health", "").wantStatus(200)
	}
	if took := watch.Took(); took > 10*time.Second {
		t.Errorf("20 health checks took %v", took)
	}
	s.get("/health", "mgs_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA").wantStatus(200)
	s.get("/x", "").want(wire.ErrUnavailable)
}

// Contract, section 11: these paths require a login within the duration.
func TestFreshPathsNeedAFreshLogin(t *testing.T) {
	t.Parallel()
	s := startSite(t, siteConfig{company: people, handler: `
		cookie
		public /account/help
		fresh 1h /account/*
		fresh 10m /account/delete /payments
		fresh 1s /old`})
	login := func(ago time.Duration) string {
		return s.begun("mgs_", record.Authorized, time.Now().Add(-ago), time.Now().Add(time.Hour))
	}
	fresh, old := login(9*time.Minute), login(11*time.Minute)
	for range 4 { // from the store and from memory
		for uri, wait := range map[string]string{"/account/delete": "600", "/account//Delete/": "600", "/payments": "600", "/account/x": "", "/x": ""} {
			s.get(uri, fresh).wantStatus(200)
			a := s.get(uri, old)
			if wait == "" {
				a.wantStatus(200)
				continue
			}
			a.wantScope("too_old", `"insufficient_user_authentication", max_age="`+wait+`"`)
		}
	}
	s.ask("GET", "/account/../x", "Authorization: Bearer "+old+"\r\n").want(wire.ErrSessionInvalid)
	s.get("/account/help", "").want(wire.ErrHeaderMissing) // fresh has precedence
	s.get("/payments", "").want(wire.ErrHeaderMissing)
	s.get("/account/x", login(61*time.Minute)).want(wire.ErrSessionInvalid)
	s.get("/account/delete", s.login("frank")).wantStatus(200)
	s.run("the page", func(t *testing.T) { thePageTellsWhatProtectedPathsAnswer(t, s) })
}

// Protected paths answer as docs/api.md says.
func thePageTellsWhatProtectedPathsAnswer(t *testing.T, s *site) {
	shown := section(t, "docs/api.md", "Protected paths")
	old := s.login("frank")
	s.eventually("login that is too old", func() bool { return s.ask("GET", "/old", bearer(old)).Status != 200 })
	step := s.post("auth/login", "", fields{"login_id": "alice@example.com"}).token()
	asked := func(headers string) answer { return s.ask("GET", "/old", headers) }
	for _, got := range []answer{
		asked(""),
		asked(bearer("mgs_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA")),
		asked("Authorization: Basic YTpi\r\n"),
		asked(bearer(old) + bearer(old)),
		s.ask("POST", "/", "Cookie: __Host-mnemogate="+old+"\r\n"),
		asked(bearer(step)),
		asked(bearer(old)),
		s.ask("TRACE", "/", bearer(old)),
	} {
		var row string
		for line := range strings.Lines(shown) {
			if strings.Contains(line, "`"+got.str("error_code")+"`") && strings.Contains(line, fmt.Sprintf("| %d |", got.Status)) {
				row = line
			}
		}
		if reason := got.str("reason"); row == "" || reason != "" && !strings.Contains(row, "`"+reason+"`") {
			t.Errorf("the page does not tell of %d %s", got.Status, got.Body)
		}
		if got.str("reason") == "too_old" && !strings.Contains(got.Header.Get("WWW-Authenticate"), `max_age="1"`) {
			t.Errorf("got %v", got.Header)
		}
	}
}

// Contract, section 11: this site serves only these companies.
func TestASiteServesItsCompanies(t *testing.T) {
	t.Parallel()
	s := startSite(t, siteConfig{company: people, more: umbra + `
		company open {
			api_key off
			captcha off
			account yves {
				login yves
				password "` + testPassword + `"
			}
		}`, site: `
		handle /umbras/* {
			mnemogate {
				base_path /umbras
				company umbra open
			}
			reverse_proxy BACKEND
		}
		handle /keyed/* {
			mnemogate {
				base_path /keyed
				company umbra
				require_api_key
			}
			reverse_proxy BACKEND
		}
		handle /acmes/* {
			mnemogate {
				company acme
			}
			reverse_proxy BACKEND
		}
		handle {
			mnemogate
			reverse_proxy BACKEND
		}`})
	alices, zoes := s.login("alice@example.com"), s.loginAt("umbra", "other-key", "zoe")
	expired := s.expired("mgs_", record.Authorized)
	login := `{"login_id": "alice@example.com", "password": "` + testPassword + `"}`
	post := func(uri, key string) answer {
		s.t.Helper()
		r := s.request("POST", uri, login)
		r.Header.Set("Content-Type", "application/json")
		if key != "" {
			r.Header.Set("X-Api-Key", key)
		}
		return s.do(r)
	}
	s.run("auth routes", func(t *testing.T) {
		post("/umbras/umbra/v2/auth/checkcredentials", "other-key").want(wire.ErrCredentialsInvalid)
		post("/umbras/open/v2/auth/checkcredentials", "").want(wire.ErrCredentialsInvalid)
		a := post("/umbras/acme/v2/auth/checkcredentials", testKey)
		a.want(wire.ErrAPIKeyInvalid)
		unknown := post("/umbras/nobody/v2/auth/checkcredentials", testKey)
		if a.said() != unknown.said() {
			t.Errorf("an unknown company is answered %s, one of another site %s", unknown.Body, a.Body)
		}
		post("/umbras/acme/v2/auth/checkcredentials", "").want(wire.ErrAPIKeyMissing)
		post("/keyed/open/v2/auth/checkcredentials", "").want(wire.ErrAPIKeyMissing)
		r := s.request("GET", "/umbras/acme/v2/openapi.json", "")
		r.Header.Set("X-Api-Key", testKey)
		s.do(r).want(wire.ErrAPIKeyInvalid)
		post("/acme/v2/auth/checkcredentials", testKey).wantStatus(200)
	})
	s.run("tokens", func(*testing.T) {
		step := s.post("auth/login", "", fields{"login_id": "alice@example.com"}).token()
		for _, token := range []string{alices, step, expired} {
			s.get("/umbras/x", token).want(wire.ErrTokenInvalid)
			s.get("/umbras/acme/x", token).want(wire.ErrTokenInvalid)
		}
		s.get("/umbras/x", zoes).wantStatus(200)
		s.get("/umbras/umbra/x", zoes).wantStatus(200)
		s.get("/umbras/acme/x", zoes).want(wire.ErrTokenInvalid)
		s.get("/acmes/x", zoes).want(wire.ErrTokenInvalid)
		s.get("/acmes/x", alices).wantStatus(200)
		s.get("/x", alices).wantStatus(200)
		s.get("/x", zoes).wantStatus(200)
	})
	s.run("keys", func(*testing.T) {
		get := func(uri, key, token string) answer {
			r := s.getRequest(uri, token)
			r.Header.Set("X-Api-Key", key)
			return s.do(r)
		}
		get("/keyed/x", "other-key", zoes).wantStatus(200)
		get("/keyed/x", testKey, alices).want(wire.ErrAPIKeyInvalid)
		get("/keyed/acme/x", testKey, alices).want(wire.ErrAPIKeyInvalid)
		get("/keyed/open/x", "", zoes).want(wire.ErrAPIKeyInvalid)
	})
}

// An application that takes its user from a header of another name must not take the name of a
// placeholder for one.
func TestPlaceholdersOfTheUserAreEmptyWithoutOne(t *testing.T) {
	t.Parallel()
	s := startSite(t, siteConfig{company: people, site: `
		route {
			basic_auth /open/basic {
				bob $2a$04$0nrUJPnNzCGyItFRb2T/g.niO9NGJ2DD8xjdvXE01woCF1WwWcuLG
			}
			mnemogate {
				public /open/*
			}
			reverse_proxy BACKEND {
				header_up X-User {http.auth.user.id}
				header_up X-Tenant {http.auth.user.company}
			}
		}`})
	token := bearer(s.login("alice@example.com"))
	for _, c := range []struct{ path, headers, user, tenant string }{
		{"/open/x", "", "", ""},
		{"/open/x", "X-User: mallory\r\nX-Tenant: acme\r\n", "", ""},
		{"/open/x", bearer("mgs_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"), "", ""},
		{"/open/x", token, "alice", "acme"},
		{"/x", token, "alice", "acme"},
		{"/open/basic", "Authorization: Basic Ym9iOnNlY3JldA==\r\n", "bob", ""},
	} {
		a := s.ask("GET", c.path, c.headers).wantStatus(200)
		want := []string{"X-Tenant: " + c.tenant, "X-User: " + c.user}
		if got := linesNamed(string(a.Body), "X-User", "X-Tenant"); !slices.Equal(got, want) {
			t.Errorf("%s with %q: the application got %q, want %q", c.path, c.headers, got, want)
		}
	}
}
