package integration

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/mnemogate/mnemogate/flows/wire"
)

// Contract, section 2: the requirements for a body, and the order of the checks.
func TestBodiesOfAuthRoutes(t *testing.T) {
	t.Parallel()
	s := startSite(t, siteConfig{company: people, handler: "max_body 2KiB"})
	credentials := `{"login_id":"alice@example.com","password":"` + testPassword + `"}`
	const (
		login  = "/acme/v2/auth/login"
		check  = "/acme/v2/auth/checkcredentials"
		logout = "/acme/v2/auth/logout"
		jsonly = "Content-Type: application/json\r\n"
		key    = "X-Api-Key: " + testKey + "\r\n"
	)
	padded := func(size int) string {
		return strings.Repeat(" ", size-len(credentials)) + credentials
	}
	send := func(path, headers, body string) answer {
		s.t.Helper()
		if strings.Contains(headers, "chunked") {
			if body != "" {
				body = strconv.FormatInt(int64(len(body)), 16) + "\r\n" + body + "\r\n"
			}
			body += "0\r\n\r\n"
		} else {
			headers += "Content-Length: " + strconv.Itoa(len(body)) + "\r\n"
		}
		return s.exchange("POST " + path + " HTTP/1.1\r\nHost: x\r\n" + headers + "Connection: close\r\n\r\n" + body)
	}
	tests := []struct {
		name, path, headers, body string
		want                      *wire.Error // nil for success
	}{
		{"plain", check, jsonly, credentials, nil},
		{"upper case", check, "content-type: Application/JSON\r\n", credentials, nil},
		{"charset", check, "Content-Type: application/json; charset=utf-8\r\n", credentials, nil},
		{"charset in upper case and quotes", check, "Content-Type: application/json;Charset=\"UTF-8\"\r\n", credentials, nil},
		{"another parameter", check, "Content-Type: application/json; version=1\r\n", credentials, nil},
		{"chunked", check, jsonly + "Transfer-Encoding: chunked\r\n", credentials, nil},
		{"just small enough", check, jsonly, padded(2048), nil},
		{"just small enough, chunked", check, jsonly + "Transfer-Encoding: chunked\r\n", padded(2048), nil},

		{"too large", check, jsonly, padded(2049), wire.ErrTooLarge},
		{"too large, chunked", check, jsonly + "Transfer-Encoding: chunked\r\n", padded(2049), wire.ErrTooLarge},
		{"far too large", check, jsonly, padded(300_000), wire.ErrTooLarge},
		{"far too large, chunked", check, jsonly + "Transfer-Encoding: chunked\r\n", padded(300_000), wire.ErrTooLarge},
		{"too large and no JSON", check, "", padded(2049), wire.ErrTooLarge},

		{"no type", check, "", credentials, wire.ErrMediaType},
		{"no type, chunked", check, "Transfer-Encoding: chunked\r\n", credentials, wire.ErrMediaType},
		{"empty type", check, "Content-Type:\r\n", credentials, wire.ErrMediaType},
		{"form", check, "Content-Type: application/x-www-form-urlencoded\r\n", credentials, wire.ErrMediaType},
		{"text, which a page may send without asking", check, "Content-Type: text/plain; charset=utf-8\r\n", credentials, wire.ErrMediaType},
		{"text that says JSON", check, "Content-Type: text/plain; application/json\r\n", credentials, wire.ErrMediaType},
		{"a kind of JSON", check, "Content-Type: application/problem+json\r\n", credentials, wire.ErrMediaType},
		{"two in one", check, "Content-Type: application/json, text/plain\r\n", credentials, wire.ErrMediaType},
		{"two headers", check, jsonly + jsonly, credentials, wire.ErrMediaType},
		{"another charset", check, "Content-Type: application/json; charset=latin1\r\n", credentials, wire.ErrMediaType},
		{"an empty charset", check, "Content-Type: application/json; charset=\"\"\r\n", credentials, wire.ErrMediaType},
		{"two charsets", check, "Content-Type: application/json; charset=utf-8; charset=utf-16\r\n", credentials, wire.ErrMediaType},
		{"compressed", check, jsonly + "Content-Encoding: gzip\r\n", credentials, wire.ErrMediaType},
		{"identity encoding", check, jsonly + "Content-Encoding: identity\r\n", credentials, wire.ErrMediaType},
		{"no JSON where no field is wanted", logout, "Authorization: Bearer TOKEN\r\n", "x", wire.ErrMediaType},

		{"empty", check, jsonly, "", wire.ErrValidation},
		{"empty, no type", check, "", "", wire.ErrValidation},
		{"empty, chunked", check, "Transfer-Encoding: chunked\r\n", "", wire.ErrValidation},
		{"spaces", check, jsonly, "  ", wire.ErrValidation},
		{"trailing data", check, jsonly, credentials + credentials, wire.ErrValidation}, // TestBodiesThatAreRefused of flows has more

		{"logout, nothing", logout, "Authorization: Bearer TOKEN\r\n", "", nil},
		{"logout, nothing, with a type", logout, "Authorization: Bearer TOKEN\r\nContent-Type: text/plain\r\n", "", nil},
		{"logout, an object", logout, "Authorization: Bearer TOKEN\r\n" + jsonly, `{"more":1}`, nil},
		{"logout, no object", logout, "Authorization: Bearer TOKEN\r\n" + jsonly, `1`, wire.ErrValidation},

		// The order is: route and method, key, token, body.
		{"bad token before bad body", logout, "Authorization: Bearer x\r\n" + jsonly, "{", wire.ErrTokenInvalid},
		{"bad token before no JSON", logout, "Authorization: Bearer x\r\n", "x", wire.ErrTokenInvalid},
		{"no token before a large body", logout, jsonly, padded(10_000), wire.ErrHeaderMissing},
		{"two tokens before bad body", logout, "Authorization: Bearer x\r\nAuthorization: Bearer x\r\n", "x", wire.ErrHeaderInvalid},
		{"large body before an unknown login id", login, jsonly, padded(3000), wire.ErrTooLarge},
	}
	token := ""
	for _, test := range tests {
		s.run(test.name, func(t *testing.T) {
			if strings.Contains(test.headers, "TOKEN") && token == "" {
				token = s.login("alice@example.com")
			}
			a := send(test.path, key+strings.Replace(test.headers, "TOKEN", token, 1), test.body)
			if test.want != nil {
				a.want(test.want)
				return
			}
			if a.wantStatus(200); test.path == logout {
				token = ""
			}
		})
	}
	unreached := s.unreached()
	for name, test := range map[string]struct {
		raw  string
		want *wire.Error
	}{
		"wrong method before wrong key":     {"GET /acme/v2/auth/login HTTP/1.1\r\nHost: x\r\nX-Api-Key: wrong\r\n", wire.ErrMethod},
		"wrong route before wrong key":      {"POST /acme/v2/auth/none HTTP/1.1\r\nHost: x\r\nX-Api-Key: wrong\r\n", wire.ErrNoRoute},
		"wrong route before wrong method":   {"GET /acme/v2/auth/none HTTP/1.1\r\nHost: x\r\n", wire.ErrNoRoute},
		"missing key before bad token":      {"POST /acme/v2/auth/logout HTTP/1.1\r\nHost: x\r\nAuthorization: x\r\n", wire.ErrAPIKeyMissing},
		"wrong key before bad token":        {"POST /acme/v2/auth/logout HTTP/1.1\r\nHost: x\r\nX-Api-Key: x\r\n", wire.ErrAPIKeyInvalid},
		"a large body is not waited for":    {"POST /acme/v2/auth/login HTTP/1.1\r\nHost: x\r\n" + key + jsonly + "Content-Length: 2049\r\n", wire.ErrTooLarge},
		"a large body is not asked for":     {"POST /acme/v2/auth/login HTTP/1.1\r\nHost: x\r\n" + key + jsonly + "Content-Length: 2049\r\nExpect: 100-continue\r\n", wire.ErrTooLarge},
		"no JSON is not waited for":         {"POST /acme/v2/auth/login HTTP/1.1\r\nHost: x\r\n" + key + "Content-Type: text/plain\r\nContent-Length: 20\r\n", wire.ErrMediaType},
		"a bad token's body isn't":          {"POST /acme/v2/auth/logout HTTP/1.1\r\nHost: x\r\n" + key + "Authorization: Bearer x\r\nContent-Length: 20\r\n", wire.ErrTokenInvalid},
		"a bad token's large body isn't":    {"POST /acme/v2/auth/logout HTTP/1.1\r\nHost: x\r\n" + key + "Authorization: Bearer x\r\nContent-Length: 2000000\r\n", wire.ErrTokenInvalid},
		"a broken body":                     {"POST /acme/v2/auth/login HTTP/1.1\r\nHost: x\r\n" + key + jsonly + "Transfer-Encoding: chunked\r\n\r\nzz\r\n", wire.ErrValidation},
		"trailers are no part of the body":  {"POST /acme/v2/auth/login HTTP/1.1\r\nHost: x\r\n" + key + jsonly + "Transfer-Encoding: chunked\r\n\r\n0\r\nAuthorization: Bearer x\r\n", wire.ErrValidation},
		"an error is one whatever the path": {"POST /nobody/v2/auth/logout HTTP/1.1\r\nHost: x\r\n" + key, wire.ErrAPIKeyInvalid},
	} {
		s.run(name, func(*testing.T) { s.exchange(test.raw + "\r\n").want(test.want) })
	}
	unreached()
	s.run("a connection whose bodies were read stays open", func(t *testing.T) {
		r := s.request("POST", check, credentials+" ")
		r.Header.Set("X-Api-Key", testKey)
		r.Header.Set("Content-Type", "application/json")
		if a := s.do(r); a.Status != 200 || a.Closes {
			t.Errorf("got %d, closes %v", a.Status, a.Closes)
		}
	})
}

// The directives after mnemogate can use the placeholders, but only if a user was
// let through.
func TestPlaceholdersTellTheUser(t *testing.T) {
	t.Parallel()
	s := startSite(t, siteConfig{company: people, site: `
		log
		route {
			mnemogate
			header X-Who "{http.auth.user.id} of {http.auth.user.company}"
			respond "hello {http.auth.user.id}"
		}`})
	token := s.login("alice@example.com")
	if a := s.get("/", token); string(a.Body) != "hello alice" || a.Header.Get("X-Who") != "alice of acme" {
		t.Errorf("got %q, X-Who %q", a.Body, a.Header.Get("X-Who"))
	}
	// Caddy writes the access log after the response.
	s.tells(`"user_id":"alice"`)
	a := s.get("/", "").want(wire.ErrHeaderMissing)
	if a.Header.Get("X-Who") != "" {
		t.Errorf("X-Who is %q", a.Header.Get("X-Who"))
	}
}

const someToken = "mgs_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"

// told returns the header lines with the user's profile that the backend received.
func (a answer) told() []string { return linesNamed(string(a.Body), profileHeaders...) }

func TestTheApplicationIsToldOfTheAccount(t *testing.T) {
	t.Parallel()
	without := siteConfig{company: people, more: umbra}
	s := startSite(t, without)
	early := s.login("alice@example.com")
	tells := func(token string, want ...string) {
		t.Helper()
		r := s.getRequest("/", token)
		for _, name := range profileHeaders {
			r.Header.Set(name, "mallory")
		}
		if got := s.do(r).wantStatus(200).told(); !slices.Equal(got, want) {
			t.Errorf("the application got %q, want %q", got, want)
		}
	}
	tells(early)
	forward := without
	forward.handler = "forward role email phone"
	must(t, s.reload(forward))
	tells(early) // its login stored no profile
	token := s.login("alice@example.com")
	for _, change := range []struct {
		fields fields
		want   []string
	}{
		{fields{"role": "Büro 100%", "login_name": "alice"}, []string{"X-Profile-Email: alice@example.com", "X-Profile-Phone: +37060000001", "X-Profile-Role: B%C3%BCro%20100%25"}},
		{fields{"role": "admin", "primary_phone": nil}, []string{"X-Profile-Email: alice@example.com", "X-Profile-Role: admin"}},
		{fields{"role": nil, "primary_email": "al@example.com"}, []string{"X-Profile-Email: al@example.com"}},
	} {
		s.admin("PATCH", "accounts/alice", change.fields).wantStatus(200)
		s.get("/", token).want(wire.ErrTokenInvalid)
		token = s.login("alice")
		for range 3 { // from the store and from memory
			tells(token, change.want...)
		}
	}
	tells(s.loginAt("umbra", "other-key", "zoe")) // she has none
	must(t, s.reload(without))
	tells(token)
}
