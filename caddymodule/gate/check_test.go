package gate

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/mnemogate/mnemogate/caddymodule/gate/paths"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// checker returns a handler with one session, whose login was an hour ago, and all
// kinds of paths.
func checker(t testing.TB) *Handler {
	t.Helper()
	now := time.Now()
	session := record.Session{
		Company: "acme", Mnemocode: "alice", State: record.Authorized, Profile: "clerk",
		Created: now.Add(-time.Hour), Expires: now.Add(time.Hour), Ends: now.Add(time.Hour),
	}
	h, _ := newHandler(t, time.Minute, liveSessions{get: func(context.Context) (record.Session, error) { return session, nil }})
	h.Check, h.Health, h.Cookie = "/check", "/health", defaultCookie
	h.Public = []string{"/open/*", "*.css"}
	h.Fresh = []paths.Fresh{{Within: caddy.Duration(time.Minute), Paths: []string{"/account/*"}}}
	h.CORS = []string{"https://app.example.com"}
	h.WebSocketToken = true
	h.LoginPages = LoginPages{new(LoginPage)}
	h.Forward = []string{"role"}
	provisionHeaders(t, h)
	must(t, h.Validate())
	return h
}

// question returns the request with which another proxy asks.
func question(trusted bool, header http.Header) *http.Request {
	r := httptest.NewRequest("POST", "/check", strings.NewReader("x"))
	r.Header = header
	return r.WithContext(context.WithValue(r.Context(), caddyhttp.VarsCtxKey, map[string]any{caddyhttp.TrustedProxyVarKey: trusted}))
}

func describe(method, host, uri string, more ...string) http.Header {
	header := http.Header{"X-Forwarded-Method": {method}, "X-Forwarded-Host": {host}, "X-Forwarded-Uri": {uri}}
	for i := 0; i < len(more); i += 2 {
		header.Add(more[i], more[i+1])
	}
	return header
}

func (h *Handler) asked(t testing.TB, trusted bool, header http.Header) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	err := h.ServeHTTP(w, question(trusted, header), caddyhttp.HandlerFunc(func(http.ResponseWriter, *http.Request) error {
		t.Error("a question reached the application")
		return nil
	}))
	must(t, err)
	return w
}

const bearer = "Bearer " + someToken

// Contract, section 15: the described request is decided as it would be here.
func TestCheckAnswersWithTheDecision(t *testing.T) {
	h := checker(t)
	const cookie = defaultCookie + "=" + someToken
	for name, test := range map[string]struct {
		header http.Header
		status int
		reason wire.Reason
		user   string
	}{
		"a token":                       {describe("GET", "a.example", "/x?y=z", "Authorization", bearer), 204, "", "alice"},
		"a token, writing":              {describe("DELETE", "a.example", "/x", "Authorization", bearer), 204, "", "alice"},
		"a cookie":                      {describe("GET", "a.example", "/x", "Cookie", cookie), 204, "", "alice"},
		"no token":                      {describe("GET", "a.example", "/x"), 401, "", ""},
		"two tokens":                    {describe("GET", "a.example", "/x", "Authorization", bearer, "Authorization", bearer), 400, "", ""},
		"the company's path":            {describe("GET", "a.example", "/acme/x", "Authorization", bearer), 204, "", "alice"},
		"a public path":                 {describe("GET", "a.example", "/open/x"), 204, "", ""},
		"a public path with a token":    {describe("GET", "a.example", "/open/x", "Authorization", bearer), 204, "", "alice"},
		"bytes beyond ASCII":            {describe("GET", "a.example", "/é", "Authorization", bearer), 204, "", "alice"},
		"public if it is decoded":       {describe("GET", "a.example", "/open%2fx"), 401, "", ""},
		"the same, beyond ASCII":        {describe("GET", "a.example", "/open%2fé"), 401, "", ""},
		"dots beyond ASCII":             {describe("GET", "a.example", "/open/é/%2e%2e/%2e%2e/x"), 401, "", ""},
		"an auth prefix, beyond ASCII":  {describe("GET", "a.example", "/é/..%2facme/v2/auth/é", "Authorization", bearer), 404, "", ""},
		"a fresh path":                  {describe("GET", "a.example", "/account/x", "Authorization", bearer), 403, wire.TooOld, ""},
		"TRACE":                         {describe("TRACE", "a.example", "/open/x", "Authorization", bearer), 405, "", ""},
		"CONNECT":                       {describe("CONNECT", "a.example", "/open/x", "Authorization", bearer), 405, "", ""},
		"writing from another site":     {describe("POST", "a.example", "/x", "Cookie", cookie, "Origin", "https://b.example"), 400, wire.CrossSite, ""},
		"writing from this site":        {describe("POST", "a.example", "/x", "Cookie", cookie, "Origin", "https://a.example"), 204, "", "alice"},
		"writing from a listed site":    {describe("POST", "a.example", "/x", "Cookie", cookie, "Origin", "https://app.example.com"), 204, "", "alice"},
		"writing from nowhere":          {describe("POST", "a.example", "/x", "Cookie", cookie), 400, wire.CrossSite, ""},
		"a WebSocket from another site": {describe("GET", "a.example", "/x", "Cookie", cookie, "Origin", "https://b.example", "Sec-WebSocket-Key", "x"), 400, wire.CrossSite, ""},
		"a WebSocket from this site":    {describe("GET", "a.example", "/x", "Cookie", cookie, "Origin", "https://a.example", "Sec-WebSocket-Version", "13"), 204, "", "alice"},
		"a WebSocket's token":           {describe("GET", "a.example", "/x", "Sec-WebSocket-Protocol", socketToken+someToken+", chat"), 204, "", "alice"},
		"a WebSocket's token alone":     {describe("GET", "a.example", "/x", "Sec-WebSocket-Protocol", socketToken+someToken), 400, "", ""},
		"an auth route":                 {describe("POST", "a.example", "/acme/v2/auth/login"), 404, "", ""},
		"below an auth prefix":          {describe("GET", "a.example", "/x/..%2facme/v2/auth/login", "Authorization", bearer), 404, "", ""},
		"the OpenAPI document":          {describe("GET", "a.example", "/acme/v2/openapi.json"), 404, "", ""},
		"the login page":                {describe("GET", "a.example", "/acme/login", "Authorization", bearer), 404, "", ""},
		"health":                        {describe("GET", "a.example", "/health", "Authorization", bearer), 404, "", ""},
		"a question":                    {describe("GET", "a.example", "/check", "Authorization", bearer), 404, "", ""},
		"a preflight":                   {describe("OPTIONS", "a.example", "/x", "Origin", "https://app.example.com", "Access-Control-Request-Method", "PUT"), 404, "", ""},
	} {
		w := h.asked(t, true, test.header)
		var body struct{ Reason wire.Reason }
		_ = json.Unmarshal(w.Body.Bytes(), &body)
		if w.Code != test.status || body.Reason != test.reason {
			t.Errorf("%s: got %d %s, want %d %s", name, w.Code, w.Body, test.status, test.reason)
		}
		want := map[string]string{}
		if test.user != "" {
			want = map[string]string{"X-Profile-Mnemocode": test.user, "X-Company-Code": "acme", "X-Profile-Role": "clerk"}
		}
		for _, header := range []string{"X-Profile-Mnemocode", "X-Company-Code", "X-Profile-Role"} {
			if got := w.Header().Get(header); got != want[header] {
				t.Errorf("%s: %s is %q, want %q", name, header, got, want[header])
			}
		}
		if got := w.Header().Get("Cache-Control"); got != "no-store" {
			t.Errorf("%s: Cache-Control is %q", name, got)
		}
	}
}

// A browser that navigates is sent to the login page, and back to where it was.
func TestCheckSendsBrowsersToTheLoginPage(t *testing.T) {
	h := checker(t)
	for proto, site := range map[string]string{"": "", "https": "https://a.example", "http": "http://a.example", "javascript": "", "https, http": ""} {
		header := describe("GET", "a.example", "/x?y=z", "Accept", "text/html", "Sec-Fetch-Mode", "navigate")
		if proto != "" {
			header.Set("X-Forwarded-Proto", proto)
		}
		w := h.asked(t, true, header)
		if got := w.Header().Get("Location"); w.Code != 303 || got != site+"/acme/login?return_to=%2Fx%3Fy%3Dz" {
			t.Errorf("%q: got %d, to %q", proto, w.Code, got)
		}
	}
}

func TestCheckIsForTrustedProxiesAndWholeDescriptions(t *testing.T) {
	h := checker(t)
	valid := func(more ...string) http.Header {
		return describe("GET", "a.example", "/open/x", append([]string{"Authorization", bearer}, more...)...)
	}
	without := func(name string) http.Header {
		header := valid()
		header.Del(name)
		return header
	}
	for name, test := range map[string]struct {
		trusted bool
		header  http.Header
		status  int
	}{
		"a stranger":                 {false, valid(), 403},
		"a trusted proxy":            {true, valid(), 204},
		"no method":                  {true, without("X-Forwarded-Method"), 400},
		"no host":                    {true, without("X-Forwarded-Host"), 400},
		"no URI":                     {true, without("X-Forwarded-Uri"), 400},
		"two methods":                {true, valid("X-Forwarded-Method", "GET"), 400},
		"two hosts":                  {true, valid("X-Forwarded-Host", "a.example"), 400},
		"two URIs":                   {true, valid("X-Forwarded-Uri", "/open/x"), 400},
		"an identity header":         {true, valid("X-Profile-Mnemocode", "mallory", "X-Profile-Role", "admin"), 204},
		"one spelled differently":    {true, valid("X_Profile_Role", "admin"), 400},
		"and yet another":            {true, valid("X~Company.Code", "x"), 400},
		"the empty method":           {true, describe("", "a.example", "/open/x"), 400},
		"two methods in one":         {true, describe("GET, POST", "a.example", "/open/x"), 400},
		"the empty host":             {true, describe("GET", "", "/open/x"), 400},
		"two hosts in one":           {true, describe("GET", "a.example, b.example", "/open/x"), 400},
		"a host and a path":          {true, describe("GET", "a.example/x", "/open/x"), 400},
		"the empty URI":              {true, describe("GET", "a.example", ""), 400},
		"no slash":                   {true, describe("GET", "a.example", "open/x"), 400},
		"a star":                     {true, describe("OPTIONS", "a.example", "*"), 400},
		"only a query":               {true, describe("GET", "a.example", "?x"), 400},
		"an absolute URI":            {true, describe("GET", "a.example", "http://a.example/open/x"), 400},
		"a fragment":                 {true, describe("GET", "a.example", "/open/x#y"), 400},
		"a fragment after the query": {true, describe("GET", "a.example", "/open/x?y#z"), 400},
		"a space":                    {true, describe("GET", "a.example", "/open/x y"), 400},
		"two URIs in one":            {true, describe("GET", "a.example", "/open/x, /y"), 400},
		"a control byte":             {true, describe("GET", "a.example", "/open/x\x01"), 400},
		"a control byte in a query":  {true, describe("GET", "a.example", "/open/x?\x7f"), 400},
		"a backslash":                {true, describe("GET", "a.example", `/open/x\y`), 400},
		"bytes beyond ASCII":         {true, describe("GET", "a.example", "/open/é?ü=\xff"), 204},
		"bytes that need an escape":  {true, describe("GET", "a.example", "/open/\"<>^`{|}"), 204},
		"a backslash in a query":     {true, describe("GET", "a.example", `/open/x?y\z`), 204},
		"one before a query":         {true, describe("GET", "a.example", `/open\x?y\z`), 400},
		"a wrong escape":             {true, describe("GET", "a.example", "/open/%zz"), 400},
		"half an escape":             {true, describe("GET", "a.example", "/open/%2"), 400},
		"what browsers leave as is":  {true, describe("GET", "a.example", "/open/a|b[c]?d={e}"), 204},
	} {
		w := h.asked(t, test.trusted, test.header)
		if w.Code != test.status || w.Code != 204 && !strings.Contains(w.Body.String(), `"request.validation.failed"`) {
			t.Errorf("%s: got %d %s, want %d", name, w.Code, w.Body, test.status)
		}
	}
	for _, odd := range "\"<>^`{|}é" { // the application gets the escape beside it as it is
		if w := h.asked(t, true, describe("GET", "a.example", "/open%2fx"+string(odd))); w.Code != 401 {
			t.Errorf("/open%%2fx%c: got %d", odd, w.Code)
		}
	}
	for _, uri := range []string{"/check/", "//check", "/chec%6b", "/Check", "/check;x"} {
		w := httptest.NewRecorder()
		r := question(true, valid())
		r.URL, _ = r.URL.Parse("http://x" + uri)
		if err := h.ServeHTTP(w, r, caddyhttp.HandlerFunc(func(http.ResponseWriter, *http.Request) error { return nil })); err != nil || w.Code == 204 {
			t.Errorf("%s: got %d, %v", uri, w.Code, err)
		}
	}
}

// FuzzCheck: whatever another proxy describes, a request that may pass there would
// pass here, with the same path and for the same user.
func FuzzCheck(f *testing.F) {
	for _, seed := range []string{
		"/x", "/open/x", "/open/../x", "/open/%2e%2e/x", "/account/x", "//open/x", "/acme/v2/auth/login", "/acme%2fv2/auth%5clogin", "/open/..;/x", `/open/..\x`,
		"/open/x#/../y", "http://h/open/x", "*", "?/open/", "/open/%", "/a.css?x=/../y", "/open/\x00", "/open/x HTTP/1.1", "/check", "/acme/login",
		"/open/é", "/open%2fé", "/open/\xff", `/open/x?\é`, "/é/..%2facme/v2/auth/é",
	} {
		f.Add("GET", "a.example", seed, true)
		f.Add("POST", "a.example:8443", seed, false)
	}
	f.Add("TRACE", "[::1]", "/open/x", true)
	f.Add("GET / HTTP/1.1\r\nX:", "a,b", "/open/x", true)
	h := checker(f)
	f.Fuzz(func(t *testing.T, method, host, uri string, login bool) {
		header := describe(method, host, uri)
		if login {
			header.Set("Authorization", bearer)
		}
		checked := h.asked(t, true, header)
		if checked.Code != http.StatusNoContent {
			return
		}
		r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(method + " " + uri + " HTTP/1.1\r\nHost: " + host + "\r\n\r\n")))
		if err != nil || r.Host != host || r.Method != method || r.RequestURI != uri {
			t.Fatalf("%q %q at %q passes, and is no request: %v", method, uri, host, err)
		}
		if login {
			r.Header.Set("Authorization", bearer)
		}
		passed := false
		w := httptest.NewRecorder()
		err = h.ServeHTTP(w, r, caddyhttp.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) error {
			passed = slices.Equal(r.Header["X-Profile-Mnemocode"], checked.Header()["X-Profile-Mnemocode"])
			return nil
		}))
		if err != nil || !passed {
			t.Errorf("%q %q at %q passes only by check: %d %s, %v", method, uri, host, w.Code, w.Body, err)
		}
	})
}
