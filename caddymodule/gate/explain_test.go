package gate

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"flag"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/mnemogate/mnemogate/caddymodule/accounts/api"
	"github.com/mnemogate/mnemogate/caddymodule/app"
	"github.com/mnemogate/mnemogate/caddymodule/gate/identity"
	"github.com/mnemogate/mnemogate/caddymodule/gate/paths"
	"github.com/mnemogate/mnemogate/flows"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/session"
	"github.com/mnemogate/mnemogate/store/fake"
	"github.com/mnemogate/mnemogate/store/storetest"
)

var explained = flag.Int("explained", 3000, "how many requests TestExplainSaysWhatTheGateDoes compares; 100000 for a thorough run")

// A person is an account of the test, with the token of a login.
type person struct {
	company, name string
	account       record.Account
	token         string // empty if the login was refused
	refused       string // the error_code of the login
	reason        string // of the same
}

// A town is a running service with people of all kinds.
type town struct {
	t      *testing.T
	app    *app.App
	keys   map[string]string // of the companies
	people []person
}

// newTown starts a service, and logs everybody in through the auth API.
func newTown(t *testing.T) *town {
	t.Helper()
	const pass = "correct horse battery staple"
	one := &town{t: t, app: new(app.App), keys: map[string]string{"acme": strings.Repeat("a", 40), "neu": strings.Repeat("n", 40), "open": ""}}
	var companies strings.Builder
	for _, code := range slices.Sorted(maps.Keys(one.keys)) {
		key := "api_key " + one.keys[code]
		if one.keys[code] == "" {
			key = "api_key off"
		}
		fmt.Fprintf(&companies, `
		company %s {
			%s
			captcha off
			account plain { login plain
				password %[3]q
			}
			account twice { login twice
				password %[3]q
				phone +37060000001
				second_factor
			}
			account code { phone +37060000002
			}
			account admin { login admin
				email admin@example.com
				password %[3]q
			}
			account editor { login editor
				password %[3]q
				phone +37060000003
				second_factor
			}
			account restricted { login restricted
				password %[3]q
			}
			account closed { login closed
				password %[3]q
			}
			account denied { login denied
				password %[3]q
			}
			account codeless { login codeless
				password %[3]q
				second_factor
			}
			account mute { login mute
			}
		}`, code, key, pass)
	}
	text := regexp.MustCompile(`(account \w+ \{) `).ReplaceAllString(companies.String(), "$1\n")
	must(t, one.app.UnmarshalCaddyfile(caddyfile.NewTestDispenser(`mnemogate {
		password {
			argon2id 64 1 1 insecure
		}
		otp {
			fixed 123456 +37060000001 +37060000002 +37060000003
		}
		limits {
			logins_per_address 1000/1m
		}`+text+"\n}")))
	provision(t, one.app, new(fake.Sessions).Through(fake.Direct))
	h := one.handler(func(h *Handler) { h.Forward = []string{"role", "email", "phone"} }) // so that sessions carry them
	var service *flows.Service
	storetest.Eventually(t, time.Minute, "start", func() (up bool) { // it hashes all passwords
		var err error
		service, err = one.app.Service(t.Context())
		return err == nil
	})
	for company, key := range one.keys {
		for _, name := range []string{"plain", "twice", "code", "admin", "editor", "restricted", "closed", "denied", "codeless", "mute"} {
			a, err := service.Accounts.ByMnemocode(t.Context(), company, name)
			must(t, err)
			a, err = service.Accounts.Update(t.Context(), company, a.ID, func(a *record.Account) (bool, error) {
				switch name {
				case "admin", "editor":
					a.Role = name
				case "restricted", "closed", "denied":
					a.Status = record.Status(name)
				}
				return true, nil
			})
			must(t, err)
			p := person{company: company, name: name, account: a}
			answer := map[string]any{}
			post := func(route, token, body string) {
				r := httptest.NewRequest("POST", "/"+company+"/v2/auth/"+route, strings.NewReader(body))
				r.Header = http.Header{"Content-Type": {"application/json"}, "X-Api-Key": {key}}
				if token != "" {
					r.Header["Authorization"] = []string{"Bearer " + token}
				}
				w := one.serve(h, r, nil)
				clear(answer)
				must(t, json.Unmarshal(w.Body.Bytes(), &answer))
			}
			switch name {
			case "code":
				post("login", "", `{"login_id": "+37060000002"}`)
			case "mute":
				post("login", "", `{"login_id": "mute"}`)
			default:
				post("checkcredentials", "", fmt.Sprintf(`{"login_id": %q, "password": %q}`, name, pass))
			}
			if answer["session_state"] == "checkotp" {
				post("checkotp", answer["session_token"].(string), `{"otp": "123456"}`)
			}
			p.token, _ = answer["session_token"].(string)
			p.refused, _ = answer["error_code"].(string)
			p.reason, _ = answer["reason"].(string)
			if (p.token == "") != (a.Status != record.StatusActive || name == "codeless" || name == "mute") || p.token != "" && answer["session_state"] != "authorized" {
				t.Fatalf("%s of %s: %v", name, company, answer)
			}
			one.people = append(one.people, p)
		}
	}
	return one
}

func (one *town) handler(configure func(*Handler)) *Handler {
	h := &Handler{app: one.app, log: slog.New(slog.DiscardHandler)}
	configure(h)
	h.setDefaults()
	provisionHeaders(one.t, h)
	return h
}

// serve sends a request through a handler.
func (one *town) serve(h *Handler, r *http.Request, next caddyhttp.HandlerFunc) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	r.RemoteAddr = "192.0.2.1:1"
	must(one.t, h.ServeHTTP(w, caddyhttp.PrepareRequest(r, caddy.NewReplacer(), w, new(caddyhttp.Server)), next))
	return w
}

// An outcome is what becomes of a request.
type outcome struct {
	passes       bool
	status       int
	code, reason string
	headers      string
	own          bool // it is not for the application
}

var ofTheSession = map[string]string{
	"X-Profile-Session": session.ImaginedID, "Authorization": "Bearer (the token)", "X-Profile-Auth-Time": "(a time)",
}

// sent is the outcome of a real request.
func (one *town) sent(h *Handler, r *http.Request) (o outcome) {
	w := one.serve(h, r, func(_ http.ResponseWriter, r *http.Request) error {
		o.passes = true
		headers := map[string]string{}
		for name, values := range r.Header {
			value := strings.Join(values, ", ")
			if instead, ok := ofTheSession[name]; ok {
				value = instead
			}
			if name == "X-Mnemogate-Assertion" {
				var claims struct{ Iss string }
				payload, err := base64.RawURLEncoding.DecodeString(strings.Split(value, ".")[1])
				must(one.t, err)
				must(one.t, json.Unmarshal(payload, &claims))
				value = "(an assertion by " + claims.Iss + ")"
			}
			headers[name] = value
		}
		o.headers = fmt.Sprint(headers)
		return nil
	})
	if !o.passes {
		var said struct {
			Code   string `json:"error_code"`
			Reason string `json:"reason"`
		}
		_ = json.Unmarshal(w.Body.Bytes(), &said) // some answers of our own are no JSON
		o.status, o.code, o.reason = w.Code, said.Code, said.Reason
	}
	return o
}

// told is the outcome that an explanation tells of.
func told(found api.Explanation, err error) outcome {
	if err != nil {
		return outcome{own: true}
	}
	o := outcome{passes: found.Passes, status: found.Status, code: found.Code, reason: found.Reason}
	if found.Passes {
		if found.Headers["X-Profile-Auth-Time"] != "" {
			found.Headers["X-Profile-Auth-Time"] = ofTheSession["X-Profile-Auth-Time"]
		}
		o.headers = fmt.Sprint(found.Headers)
	}
	return o
}

// What explain says of a request, the gate does with it: for random sites, paths and
// accounts. The options that explain does not name make no difference.
func TestExplainSaysWhatTheGateDoes(t *testing.T) {
	one := newTown(t)
	service, err := one.app.Service(t.Context())
	must(t, err)
	draw := rand.New(rand.NewPCG(3, 4))
	began, outcomes := time.Now(), map[string]int{}
	for i := range *explained {
		h := one.handler(func(h *Handler) { configureAnyhow(h, draw) })
		if h.check() != nil {
			continue
		}
		raw := pick(draw, "GET", "GET", "GET", "GET", "GET", "GET", "POST", "PUT", "HEAD", "OPTIONS", "DELETE", pick(draw, "GET", "TRACE", "CONNECT")) + " " + anyPath(draw) + " HTTP/1.1\r\nHost: api.example.com\r\n\r\n"
		request := func() *http.Request {
			r, _ := http.ReadRequest(bufio.NewReader(strings.NewReader(raw)))
			return r
		}
		if request() == nil {
			continue
		}
		var p person
		r, company := request(), service.Companies["acme"]
		if draw.IntN(4) > 0 {
			p = one.people[draw.IntN(len(one.people))]
			company = service.Companies[p.company]
			if p.token != "" {
				r.Header["Authorization"] = []string{"Bearer " + p.token}
			}
		} else if draw.IntN(2) > 0 {
			company = nil
		}
		if company != nil && h.RequireAPIKey && one.keys[company.Code] != "" {
			r.Header["X-Api-Key"] = []string{one.keys[company.Code]}
		}
		credentials := r.Header.Clone()
		asked := request()
		found, err := h.Explain(caddyhttp.PrepareRequest(asked, caddy.NewReplacer(), nil, new(caddyhttp.Server)), service, company, p.account)
		said, did := told(found, err), one.sent(h, r)
		if p.refused != "" && did.code == "auth.header.missing" {
			did.code, did.reason, did.status = p.refused, p.reason, http.StatusForbidden // of the login
		}
		switch {
		case said.own:
			did = outcome{own: !did.passes}
		case !did.passes && did.code == "":
			t.Fatalf("%d: %q is explained, and mnemogate answers it", i, raw)
		}
		if said != did {
			t.Fatalf("%d: %q as %s of %s, with\n%s:\nexplained %+v\n     done %+v", i, raw, p.name, p.company, asJSON(h), said, did)
		}
		outcomes[strings.TrimSpace(did.code+" "+did.reason)]++
		if said.own || found.Rules == nil {
			continue
		}
		without := one.handler(func(w *Handler) { *w = *h; leaveOut(w, found.Rules) })
		r = request()
		r.Header = credentials
		other := one.sent(without, r)
		if p.refused != "" && other.code == "auth.header.missing" {
			other.code, other.reason, other.status = p.refused, p.reason, http.StatusForbidden
		}
		if other != did {
			t.Fatalf("%d: %q as %s of %s, with\n%s:\nonly %+v matter, but without the others it is\n%+v\nin place of\n%+v", i, raw, p.name, p.company, asJSON(h), found.Rules, other, did)
		}
	}
	t.Logf("%d in %v: %v", *explained, time.Since(began), outcomes)
	for _, want := range []string{"", "auth.header.missing", "auth.token.invalid", "auth.apikey.missing", "auth.apikey.invalid", "auth.session.invalid role", "auth.session.invalid mfa", "auth.user.restricted", "auth.user.restricted user.no_second_factor", "auth.user.closed", "auth.user.denied"} {
		if outcomes[want] == 0 {
			t.Errorf("%q never happened", want)
		}
	}
}

func asJSON(v any) []byte {
	text, _ := json.Marshal(v)
	return bytes.TrimSpace(text)
}

func pick(draw *rand.Rand, of ...string) string { return of[draw.IntN(len(of))] }

func some(draw *rand.Rand, of ...string) (chosen []string) {
	for range 1 + draw.IntN(2) {
		chosen = append(chosen, pick(draw, of...))
	}
	slices.Sort(chosen)
	return slices.Compact(chosen)
}

var patterns = []string{"/open/*", "/open/x", "*.css", "/admin/*", "/ADM", "/pay/*", "/*/pay/*", "/e/*", "/acme/*", "/x?", "/[ab]*", "*"}

// configureAnyhow sets some options.
func configureAnyhow(h *Handler, draw *rand.Rand) {
	often := func(set func()) {
		if draw.IntN(3) == 0 {
			set()
		}
	}
	often(func() { h.Public = some(draw, patterns...) })
	for range draw.IntN(3) {
		h.Fresh = append(h.Fresh, paths.Fresh{Within: caddy.Duration(time.Hour), Paths: some(draw, patterns...)})
	}
	often(func() { h.MFA = some(draw, patterns...) })
	for range draw.IntN(3) {
		h.Role = append(h.Role, paths.Role{Role: pick(draw, "admin", "editor"), Paths: some(draw, patterns...)})
	}
	often(func() { h.Companies = some(draw, "acme", "neu", "open") })
	often(func() { h.RequireAPIKey = true })
	often(func() { h.BasePath = "/open" })
	often(func() {
		h.Forward = some(draw, "role", "email", "phone", "session", "auth_time", "auth_methods", "token")
	})
	often(func() { h.Cookie = defaultCookie })
	often(func() { h.ForwardAuthorization = true })
	often(func() { h.Health = "/health" })
	often(func() { h.SelfService = caddy.Duration(time.Hour) })
	if draw.IntN(20) == 0 {
		h.Assertion = &identity.Assertion{Audience: "profile-api"}
	}
}

// leaveOut removes the options that match no path of the rules.
func leaveOut(h *Handler, rules []api.Rule) {
	listed := func(rule, value string) bool {
		return slices.ContainsFunc(rules, func(r api.Rule) bool { return r.Rule == rule && (value == "" || r.Value == value) })
	}
	if !listed("public", "") {
		h.Public = nil
	}
	if !listed("mfa", "") {
		h.MFA = nil
	}
	if !listed("company", "") {
		h.Companies = nil
	}
	if !listed("require_api_key", "") {
		h.RequireAPIKey = false
	}
	h.Fresh = slices.DeleteFunc(slices.Clone(h.Fresh), func(f paths.Fresh) bool { return !listed("fresh", textOf("1h0m0s", f.Paths)) })
	h.Role = slices.DeleteFunc(slices.Clone(h.Role), func(r paths.Role) bool { return !listed("role", textOf(r.Role, r.Paths)) })
}

func textOf(first string, others []string) string { return first + " " + strings.Join(others, " ") }

// anyPath returns a path as clients may write it.
func anyPath(draw *rand.Rand) string {
	parts := []string{
		"/open", "/OPEN/", "/x", "/admin", "/Admin/", "/adm", "/pay/", "/e", "/a", ".css", "/acme", "/neu", "/open", "/nobody", "/v2/auth/login", "/v2/session", "/v2/me/sessions", "/health", "/v2/auth/",
		"/", "//", "/..", "/.", ";", ";x", "%2e", "%2f", "%5c", "%3b", "%00", "%20", "%25", "%252e", "%41", "%61", "%C3%A9", "%EF%BC%8E", "?a=b",
	}
	path := ""
	for range 1 + draw.IntN(4) {
		path += parts[draw.IntN(len(parts))]
	}
	if !strings.HasPrefix(path, "/") {
		path = "/" + path
	}
	return path
}
