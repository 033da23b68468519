package integration

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/mnemogate/mnemogate/caddymodule/accounts"
	"github.com/mnemogate/mnemogate/caddymodule/guest/guesttest"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/store/storetest"
)

// accountsSite starts a site that also has an accounts API at /api, with the given
// lines in its directive.
func accountsSite(t *testing.T, start starter, keys string, c siteConfig) *site {
	t.Helper()
	c.company += "\ncaptcha off"
	c.site += "handle_path /api/* {\nmnemogate_accounts {\n" + keys + "\n}\n}\nhandle {\nmnemogate {\n" + c.handler + "\n}\nreverse_proxy BACKEND\n}"
	return start(t, c)
}

// api sends a request with a JSON body and a key to the accounts API.
func (s *site) api(key, method, path string, body any) answer {
	s.t.Helper()
	r := s.apiRequest(key, method, path, body)
	a := s.do(r)
	checkInDocument(s.t, r, a)
	return a
}

var accountsDocument = sync.OnceValues(func() (*apiDocument, error) {
	return loadDocument("../accounts/openapi.json", func(doc *openapi3.T) {
		closeAnswers(doc)
		for _, item := range doc.Webhooks {
			closeSchema(sentBody(item))
		}
	})
})

func sentBody(item *openapi3.PathItem) *openapi3.SchemaRef {
	return item.Post.RequestBody.Value.Content.Get("application/json").Schema
}

// checkMessage checks that the OpenAPI document of the accounts API describes a message to a
// receiver, gateway or other server, with all its fields.
func checkMessage(t *testing.T, body []byte) {
	t.Helper()
	if err := checkSent(body); err != nil {
		t.Errorf("%s: the OpenAPI document describes no such message: %v", body, err)
	}
}

func checkSent(body []byte) error {
	doc, err := accountsDocument()
	if err != nil {
		return err
	}
	message, err := jsonschema.UnmarshalJSON(bytes.NewReader(body))
	if err != nil {
		return err
	}
	kind, _ := message.(map[string]any)["type"].(string)
	err = fmt.Errorf("there is no type %q", kind)
	for name, item := range doc.Webhooks {
		if !slices.Contains(sentBody(item).Value.Properties["type"].Value.Enum, any(kind)) {
			continue
		}
		schema, broken := doc.schema("#/webhooks/" + name + "/post/requestBody/content/application~1json/schema")
		if broken != nil {
			return broken
		}
		if err = schema.Validate(message); err == nil {
			return nil
		}
	}
	return err
}

// The check of messages finds what the document does not describe.
func TestMessagesThatAreNotDocumentedAreFound(t *testing.T) {
	for body, good := range map[string]bool{
		`{"type":"account.deleted","timestamp":"2026-11-22T15:04:05Z","data":{"company_code":"acme","profile_mnemocode":"alice"}}`:             true,
		`{"type":"account.deleted","timestamp":"2026-11-22T15:04:05Z","data":{"company_code":"acme","profile_mnemocode":"alice","fields":[]}}`: false,
	} {
		if err := checkSent([]byte(body)); (err == nil) != good {
			t.Errorf("%s: %v", body, err)
		}
	}
}

// checkInDocument checks that the OpenAPI document of the accounts API describes the
// answer.
func checkInDocument(t *testing.T, r *http.Request, a answer) {
	t.Helper()
	doc := get(accountsDocument())(t)
	asked := strings.Split(strings.TrimPrefix(r.URL.EscapedPath(), "/api"), "/")
	for path := range doc.Paths.Map() {
		parts := strings.Split(path, "/")
		same := len(parts) == len(asked)
		for i := range parts {
			same = same && (parts[i] == asked[i] || strings.HasPrefix(parts[i], "{"))
		}
		if call := doc.call(path, r); same && call != nil {
			call.checkAnswer(t, a)
		}
	}
}

func TestOpenAPIOfTheAccountsAPIIsValid(t *testing.T) {
	t.Parallel()
	doc := get(accountsDocument())(t)
	if err := doc.Validate(t.Context()); err != nil {
		t.Error(err)
	}
}

func (s *site) apiRequest(key, method, path string, body any) *http.Request {
	s.t.Helper()
	r := s.request(method, "/api/"+path, s.encoded(body))
	if key != "" {
		r.Header.Set("Authorization", "Bearer "+key)
	}
	return r
}

const keyOfAll = "key-that-may-do-all"

const allKeys = `
		key all ` + keyOfAll + ` {
			may read write sessions introspect import export messages issue act
		}
		key reader reads-and-nothing-else
		key importer imports-and-nothing-else {
			may import
		}
		key writer sha256:9af8b6d1d7e6d6bc8d1b8a90e4a0ab1ad0f0ba0bd3c0f5b1f6d24fdd7d3b9ae8 writes-and-nothing-else {
			company acme
			may write
		}
		key signup creates-and-nothing-else {
			may create
		}`

// audits waits until the logs have this many lines with the text.
func (s *site) audits(lines int, text string) {
	s.t.Helper()
	count := 0
	storetest.Eventually(s.t, 10*time.Second, fmt.Sprintf("%d lines with %s in the logs", lines, text), func() bool {
		count = strings.Count(s.log(), text)
		return count >= lines
	})
	if count > lines {
		s.t.Errorf("%d lines with %s in the logs, want %d", count, text, lines)
	}
}

func TestKeyOpensWhatItMay(t *testing.T) {
	t.Parallel()
	s := accountsSite(t, startSite, allKeys, siteConfig{
		more: "company umbrella {\napi_key off\ncaptcha off\n}",
		site: "handle /new {\nrewrite * /acme/accounts\nmnemogate_accounts {\nkey rewritten is-sent-before-a-rewrite {\nmay create\n}\n}\n}\n",
	})
	const reader, writer = "reads-and-nothing-else", "writes-and-nothing-else"
	created := s.api(writer, "POST", "acme/accounts", with(alice, fields{"profile_mnemocode": "a/b"})).wantStatus(http.StatusCreated)
	created.wantHeader("Location", "/api/acme/accounts/a%2Fb")
	rewritten := s.request("POST", "/new", s.encoded(fields{"profile_mnemocode": "rewritten"}))
	rewritten.Header.Set("Authorization", "Bearer is-sent-before-a-rewrite")
	s.do(rewritten).wantStatus(http.StatusCreated).wantHeader("Location", "/acme/accounts/rewritten")
	shown := s.api(reader, "GET", "acme/accounts/a%2Fb", nil).wantStatus(http.StatusOK)
	if string(shown.Body) != string(created.Body) {
		t.Errorf("created %s\nshown   %s", created.Body, shown.Body)
	}
	if a := s.api(writer, "PATCH", "acme/accounts/a%2Fb", fields{"profile_mnemocode": "alice"}).wantStatus(http.StatusOK); string(a.Body) != `{"profile_mnemocode":"alice"}`+"\n" {
		t.Errorf("who may not read is shown %s", a.Body)
	}
	s.login("alice")
	for _, refused := range []struct{ key, method, path, field string }{
		{reader, "POST", "acme/accounts", ""},
		{reader, "PATCH", "acme/accounts/alice", ""},
		{reader, "DELETE", "acme/accounts/alice", ""},
		{reader, "GET", "acme/accounts/alice/sessions", ""},
		{reader, "POST", "acme/import", ""},
		{reader, "GET", "acme/export", ""},
		{"imports-and-nothing-else", "POST", "acme/import?update=true", ""}, // it would replace passwords
		{writer, "GET", "acme/accounts/alice", ""},
		{writer, "GET", "acme/accounts?login_id=alice", ""},
		{writer, "DELETE", "acme/accounts/alice/sessions", ""},
	} {
		s.api(refused.key, refused.method, refused.path, nil).wantRefused(http.StatusForbidden, "").wantHeader("WWW-Authenticate", `Bearer realm="mnemogate", error="insufficient_scope"`)
	}
	s.api("imports-and-nothing-else", "POST", "acme/import", nil).wantStatus(http.StatusOK)
	s.api(keyOfAll, "POST", "acme/import?update=true", nil).wantStatus(http.StatusOK)
	nowhere := s.api(keyOfAll, "GET", "nowhere/accounts", nil).wantRefused(http.StatusNotFound, "company")
	foreign := s.api(writer, "GET", "umbrella/accounts", nil).wantRefused(http.StatusNotFound, "company")
	if string(nowhere.Body) != string(foreign.Body) {
		t.Errorf("a company that the key does not have is told from none: %s %s", nowhere.Body, foreign.Body)
	}
	s.api(keyOfAll, "POST", "umbrella/accounts", alice).wantStatus(http.StatusCreated)
	s.api(keyOfAll, "GET", "doctor", nil).wantRefused(http.StatusNotFound, "")
	s.api(reader, "PUT", "acme/accounts/alice", nil).wantRefused(http.StatusMethodNotAllowed, "")
	if a := s.api(writer, "GET", "", nil).wantStatus(http.StatusOK); string(a.Body) != `{"companies":["acme"]}`+"\n" {
		t.Errorf("the key's companies are %s", a.Body)
	}
	s.run("the OpenAPI document", func(t *testing.T) {
		golden := get(os.ReadFile("../accounts/openapi.json"))(t)
		at := func(server string) string {
			return strings.Replace(string(golden), `"url": "/"`, `"url": "`+server+`"`, 1)
		}
		if got := s.api(reader, "GET", "openapi.json", nil).wantStatus(http.StatusOK); string(got.Body) != at("/api") {
			t.Error("the document that is served is another")
		}
		if got := s.adminRaw("GET", "openapi.json", "").wantStatus(http.StatusOK); string(got.Body) != at("/mnemogate") {
			t.Error("the document of the admin endpoint is another")
		}
		s.api("", "GET", "openapi.json", nil).wantRefused(http.StatusUnauthorized, "")
	})
	s.api(keyOfAll, "DELETE", "acme/accounts/alice/sessions", nil).wantStatus(http.StatusNoContent)
	for _, line := range []string{
		`"msg":"mnemogate.account.changed","company":"acme","mnemocode":"alice","address":"127.0.0.1","actor":"writer"`,
		`"state":"authorized","address":"127.0.0.1","actor":"all","reason":"admin"`,
		`"msg":"mnemogate.key.refused","company":"umbrella","address":"127.0.0.1","actor":"writer","reason":"company"`,
	} {
		s.audits(1, line)
	}
	s.audits(1, `"msg":"mnemogate.key.refused","company":"acme","address":"127.0.0.1","actor":"reader","reason":"create"`)
	s.audits(2, `"msg":"mnemogate.key.refused","company":"acme","address":"127.0.0.1","actor":"reader","reason":"write"`)
	s.wantNoneLogged(keyOfAll)
}

// A parameter that a route ignored could widen what the request does: a client that
// names one account or session would revoke all.
func TestParametersAndBodiesThatARouteDoesNotHaveAreRefused(t *testing.T) {
	t.Parallel()
	s := accountsSite(t, startSite, allKeys, siteConfig{})
	s.api(keyOfAll, "POST", "acme/accounts", alice).wantStatus(http.StatusCreated)
	token := s.login("alice")
	refused := func(method, path string, query []string) {
		ask := func(parameters string) answer { return s.adminRaw(method, path+"?"+parameters, "") }
		takes := "this route takes none"
		if query != nil {
			takes = "this route takes " + strings.Join(query, ", ")
		}
		want := "account: there is no such parameter; leave it out: " + takes
		if got := ask("account=u1").wantRefused(http.StatusBadRequest, "account").str("error"); got != want {
			t.Errorf("%s %s: got %q, want %q", method, path, got, want)
		}
		ask("session").wantRefused(http.StatusBadRequest, "session")
		ask("%").wantRefused(http.StatusBadRequest, "")
		ask("a;b").wantRefused(http.StatusBadRequest, "")
		ask("%0a").wantRefused(http.StatusBadRequest, "")
		for _, name := range query {
			a := ask(name+"=x&"+name+"=x").wantRefused(http.StatusBadRequest, name)
			if want := name + ": it is given more than once; send it once"; a.str("error") != want {
				t.Errorf("%s %s: got %q, want %q", method, path, a.str("error"), want)
			}
		}
	}
	at := strings.NewReplacer("{company}", "acme", "{mnemocode}", "alice", "{session}", s.sessionID("alice"), "{passkey}", "x")
	for _, r := range accounts.Routes {
		path := at.Replace(r.Pattern)
		refused(r.Method, path, r.Query)
		s.api(keyOfAll, r.Method, path+"?account=u1", nil).wantRefused(http.StatusBadRequest, "account")
	}
	for _, route := range []string{"GET doctor", "GET backup", "POST acme/send-test"} {
		method, path, _ := strings.Cut(route, " ")
		refused(method, path, nil)
	}
	// Keys and companies are checked first.
	s.api("", "DELETE", "acme/sessions?account=u1", nil).wantRefused(http.StatusUnauthorized, "")
	s.api("reads-and-nothing-else", "DELETE", "acme/sessions?account=u1", nil).wantRefused(http.StatusForbidden, "")
	s.api(keyOfAll, "DELETE", "nowhere/sessions?account=u1", nil).wantRefused(http.StatusNotFound, "company")

	// So is a body, if the route takes none.
	posts := regexp.MustCompile(`/(backup-codes|totp|unlock|welcome)$`)
	for _, r := range accounts.Routes {
		if r.Method != "DELETE" && r.Method != "PUT" && !posts.MatchString(r.Pattern) {
			continue
		}
		path := at.Replace(r.Pattern)
		for _, a := range []answer{s.api(keyOfAll, r.Method, path, fields{"account": "u1"}), s.adminRaw(r.Method, path, `{"account":"u1"}`)} {
			if want := "this route takes no body; leave it out"; a.wantRefused(http.StatusBadRequest, "").str("error") != want {
				t.Errorf("%s: got %q, want %q", path, a.str("error"), want)
			}
		}
		s.api(keyOfAll, r.Method, path, strings.Repeat("x", 64<<10)).wantRefused(http.StatusRequestEntityTooLarge, "")
	}

	// A path that is not UTF-8 or has a NUL names nothing. PostgreSQL would refuse to look for it.
	for _, r := range accounts.Routes {
		before, after, ok := strings.Cut(strings.Replace(at.Replace(r.Pattern), "{provider_id}", "1", 1), "{")
		if ok {
			name, rest, _ := strings.Cut(after, "}")
			s.api(keyOfAll, r.Method, before+"%ff"+rest, nil).wantRefused(http.StatusNotFound, name)
			s.api(keyOfAll, r.Method, before+"alice%00"+rest, nil).wantRefused(http.StatusNotFound, name)
		}
	}

	s.get("/", token).wantStatus(http.StatusOK)
	s.api(keyOfAll, "DELETE", "acme/sessions?", nil).wantStatus(http.StatusNoContent)
	s.api(keyOfAll, "DELETE", "acme/sessions", fields{}).wantStatus(http.StatusNoContent)
	for _, path := range []string{"acme/signing-key", "rekey"} {
		s.adminRaw("POST", path, `{"company":"umbra"}`).wantRefused(http.StatusBadRequest, "")
	}
	for _, body := range []string{"", "{}", " null\n"} {
		s.adminRaw("POST", "acme/accounts/alice/unlock", body).wantStatus(http.StatusOK)
	}
}

func TestAccountsAPIOfTwoNodes(t *testing.T) {
	t.Parallel()
	s := accountsSite(t, startNodes, allKeys, siteConfig{})
	s.run("an authenticator app", func(t *testing.T) { authenticatorApp(t, s) })
	s.run("users change their passwords", func(t *testing.T) { userChangesTheirPassword(t, s) })
	s.run("identities are added and removed one by one", func(t *testing.T) { identitiesOneByOne(t, s) })
	s.run("welcome mails a link that sets the password", func(t *testing.T) { welcomeMailsALink(t, s) })
	s.run("wrong keys are counted on all nodes", func(t *testing.T) { wrongKeysAreCounted(t, s) })
}

func wrongKeysAreCounted(t *testing.T, s *site) {
	ask := func(change func(http.Header)) answer {
		r := s.apiRequest("", "GET", "", nil)
		change(r.Header)
		return s.do(r)
	}
	for _, lines := range [][]string{nil, {"Basic eDp5"}, {"Bearer"}, {"Bearer "}, {"Bearer " + keyOfAll, "Bearer " + keyOfAll}} {
		ask(func(h http.Header) { h["Authorization"] = lines }).wantRefused(http.StatusUnauthorized, "").wantHeader("WWW-Authenticate", `Bearer realm="mnemogate"`)
	}
	for _, origin := range []string{"https://app.example.com", "null", ""} {
		ask(func(h http.Header) {
			h["Authorization"], h["Origin"] = []string{"Bearer " + keyOfAll}, []string{origin}
		}).wantRefused(http.StatusForbidden, "")
	}
	wrong := func() int {
		a := s.api("another-key", "GET", "acme/accounts", nil)
		if limited := a.Status == http.StatusTooManyRequests; limited != (a.Header.Get("Retry-After") != "") || limited != (a.str("reason") == "limit.address") || a.str("error") == "" {
			t.Errorf("got %d %v %s", a.Status, a.Header, a.Body)
		}
		return a.Status
	}
	for range 30 {
		if status := wrong(); status != http.StatusUnauthorized {
			t.Fatalf("a wrong key is %d", status)
		}
	}
	for range 2 {
		if status := wrong(); status != http.StatusTooManyRequests {
			t.Errorf("a wrong key after 30 is %d", status)
		}
	}
	ask(func(h http.Header) { h.Set("Authorization", "bearer "+keyOfAll) }).wantStatus(http.StatusOK)
	s.audits(30, `"msg":"mnemogate.key.wrong","address":"127.0.0.1"}`)
}

// rules=user refuses passwords that users could not have set themselves.
func TestRulesForUsersHoldWhereTheyAreAskedFor(t *testing.T) {
	t.Parallel()
	s := accountsSite(t, startSite, allKeys, siteConfig{company: "password {\nmin_length 10\nregex [0-9]\n}"})
	create := func(query string, more fields) answer {
		return s.api(keyOfAll, "POST", "acme/accounts"+query, with(fields{"profile_mnemocode": "x", "login_name": "margarethe"}, more))
	}
	for password, reason := range map[string]string{
		"short1":                 "password.too_short",
		"iloveyou12":             "password.common",
		"margarethe1":            "password.personal",
		"no digit in it":         "password.pattern",
		strings.Repeat("a1", 65): "password.too_long",
	} {
		create("?rules=user", fields{"password": password}).wantRefused(http.StatusUnprocessableEntity, "password").wantReason(reason)
	}
	create("?rules=user", fields{"password_hash": "$2y$10$srNl09aPtc2qr.0Vl.NtjekJRt/NxRxYQm3qd3OvfcKsJgVnr6.Ve"}).wantRefused(http.StatusBadRequest, "password_hash")
	for _, query := range []string{"?rules=", "?rules=users"} {
		create(query, fields{"password": "a fine secret 1"}).wantRefused(http.StatusBadRequest, "rules")
	}
	s.api(keyOfAll, "GET", "acme/accounts/x", nil).wantRefused(http.StatusNotFound, "") // nothing was stored
	create("?rules=user", fields{"password": "a fine secret 1"}).wantStatus(http.StatusCreated)
	patch := func(query string, change fields) answer {
		return s.api(keyOfAll, "PATCH", "acme/accounts/x"+query, change)
	}
	patch("?rules=user", fields{"password": "adalovelace1", "login_name": "adalovelace"}).wantRefused(http.StatusUnprocessableEntity, "password")
	patch("?rules=all", fields{"role": "x"}).wantRefused(http.StatusBadRequest, "rules")
	patch("?rules=user", fields{"role": "x", "password": nil}).wantStatus(http.StatusOK)
	patch("", fields{"password": "short"}).wantStatus(http.StatusOK)
}

func identitiesOneByOne(t *testing.T, s *site) {
	for _, mnemocode := range []string{"ida", "idb"} {
		s.api(keyOfAll, "POST", "acme/accounts", fields{"profile_mnemocode": mnemocode}).wantStatus(http.StatusCreated)
	}
	at := func(method, path string) answer { return s.api(keyOfAll, method, "acme/accounts/"+path, nil) }
	of := func(a answer) string { return s.encoded(a.JSON["oauth_identities"]) }
	found := func(query string) int {
		return len(s.api(keyOfAll, "GET", "acme/accounts?"+query, nil).wantStatus(http.StatusOK).JSON["accounts"].([]any))
	}
	at("PUT", "ida/identities/1/a%2Fb").wantStatus(http.StatusOK)
	if got := of(at("PUT", "ida/identities/2/x").wantStatus(http.StatusOK)); got != `[{"provider_id":1,"subject":"a/b"},{"provider_id":2,"subject":"x"}]` {
		t.Errorf("it has %s", got)
	}
	at("PUT", "ida/identities/2/x").wantStatus(http.StatusOK)
	at("PUT", "ida/identities/2/y").wantRefused(http.StatusConflict, "provider_id")
	for _, provider := range []string{"0", "6", "01", "+1", "1.0", "x"} {
		at("PUT", "ida/identities/"+provider+"/y").wantRefused(http.StatusBadRequest, "provider_id")
	}
	at("PUT", "idb/identities/2/x").wantRefused(http.StatusConflict, "oauth_identities")
	for _, bad := range []string{"6/x", "0/x", "one/x", "1/%0A", "1/" + strings.Repeat("x", 256)} {
		if a := at("PUT", "ida/identities/"+bad); a.Status != http.StatusBadRequest {
			t.Errorf("%s: %d %s", bad, a.Status, a.Body)
		}
	}
	if found("provider_id=1&subject=a/b") != 1 || found("provider_id=1&subject=x") != 0 {
		t.Error("an identity does not find its account alone")
	}
	s.api(keyOfAll, "GET", "acme/accounts?provider_id=1", nil).wantRefused(http.StatusBadRequest, "subject")
	s.api(keyOfAll, "GET", "acme/accounts?provider_id=1&subject=x&role=y", nil).wantRefused(http.StatusBadRequest, "subject")
	at("DELETE", "ida/identities/1/a%2Fb").wantStatus(http.StatusNoContent)
	at("DELETE", "ida/identities/1/a%2Fb").wantRefused(http.StatusNotFound, "subject")
	if got := of(at("GET", "ida")); got != `[{"provider_id":2,"subject":"x"}]` {
		t.Errorf("it has %s", got)
	}
}

func welcomeMailsALink(t *testing.T, s *site) {
	welcome := func(mnemocode string) answer {
		return s.api(keyOfAll, "POST", "acme/accounts/"+mnemocode+"/welcome", nil)
	}
	create := func(account fields) {
		s.api(keyOfAll, "POST", "acme/accounts", account).wantStatus(http.StatusCreated)
	}
	create(fields{"profile_mnemocode": "new", "primary_email": "new@example.com"})
	create(fields{"profile_mnemocode": "bare", "login_name": "bare"})
	create(fields{"profile_mnemocode": "gone", "primary_email": "gone@example.com", "status": "closed"})
	welcome("bare").wantRefused(http.StatusConflict, "primary_email")
	welcome("gone").wantRefused(http.StatusConflict, "status")
	welcome("nobody").wantRefused(http.StatusNotFound, "")
	s.sms.answer(http.StatusServiceUnavailable)
	if a := welcome("new").wantRefused(http.StatusServiceUnavailable, ""); !strings.HasPrefix(a.Header.Get("Retry-After"), "7") && !strings.HasPrefix(a.Header.Get("Retry-After"), "8") || !strings.Contains(a.str("error"), "gateway") {
		t.Errorf("got %v %s", a.Header, a.Body)
	}
	s.sms.answer(0)
	s.api("reads-and-nothing-else", "POST", "acme/accounts/new/welcome", nil).wantRefused(http.StatusForbidden, "")
	signUp := func(method, path string, body any) answer {
		return s.api("creates-and-nothing-else", method, "acme/accounts"+path, body)
	}
	signUp("POST", "", fields{"profile_mnemocode": "joins"}).wantStatus(http.StatusCreated)
	for _, method := range []string{"GET", "PATCH", "DELETE"} {
		signUp(method, "/joins", nil).wantRefused(http.StatusForbidden, "")
	}
	signUp("POST", "/new/welcome", nil).wantStatus(http.StatusAccepted)
	signUp("POST", "/new/welcome", nil).wantRefused(http.StatusForbidden, "")
	if to, subject := s.sms.last("welcome.link", "to"), s.sms.last("welcome.link", "subject"); to != "new@example.com" || subject != "Welcome to acme" {
		t.Errorf("%q went to %s", subject, to)
	}
	_, token, _ := strings.Cut(s.sms.last("welcome.link", "link"), "#")
	step := s.post("auth/recovery/checklink", "", fields{"token": token}).wantState(record.RecoveryPassword)
	s.post("auth/setpassword", step.token(), fields{"new_password": testPassword}).wantState(record.None)
	s.login("new@example.com")
	welcome("new").wantRefused(http.StatusConflict, "password_set")
	s.api(keyOfAll, "PATCH", "acme/accounts/new", fields{"password": nil}).wantStatus(http.StatusOK)
	welcome("new").wantStatus(http.StatusAccepted)
	welcome("new").wantRefused(http.StatusTooManyRequests, "").wantReason("limit.mails").wantRetryAfter()
	for _, actor := range []string{"all", "signup"} {
		s.audits(1, `"msg":"mnemogate.account.welcomed","company":"acme","mnemocode":"new","address":"127.0.0.1","actor":"`+actor+`"`)
	}
	s.audits(1, `"msg":"mnemogate.limit.mails","company":"acme","mnemocode":"new"`)
}

// The commands work with this API as well as with the admin endpoint.
func TestCommandsTakeTheAccountsAPI(t *testing.T) {
	t.Parallel()
	s := accountsSite(t, startSite, allKeys, siteConfig{})
	keyFile := func(key string) string {
		file := s.dir + "/" + key[:5] + ".key"
		must(t, os.WriteFile(file, []byte("\ufeff"+key+"\r\n"), 0o600)) // as some editors save it
		return file
	}
	at := func(key, stdin string, args ...string) outcome {
		return s.cliAt("", stdin, append([]string{"--api", s.URL + "/api/", "--key-file", keyFile(key)}, args...)...)
	}
	at(keyOfAll, testPassword+"\n", "account", "add", "a/b", "--login", "alice", "--password").want(0, "password_set", "yes")
	s.login("alice")
	at(keyOfAll, "", "sessions", "list", "alice").want(0, "authorized")
	at(keyOfAll, `{"profile_mnemocode":"bob"}`+"\n", "account", "import").want(0, "1 created")
	at(keyOfAll, "", "export").want(0, `"password_hash":"$argon2id$`)
	at(keyOfAll, "", "account", "show", "nobody").want(2)
	at(keyOfAll, "", "account", "add", "bob").want(3)
	at("reads-and-nothing-else", "", "account", "list").want(0, "bob")
	at("reads-and-nothing-else", "", "account", "delete", "bob", "--yes").want(1, "the key does not have the right write")
	at("another-key", "", "account", "list").want(1, "the key is wrong")
	for _, args := range []string{"doctor", "account explain bob", "company erase old --yes", "company rename old new --yes", "company rotate-key"} {
		at(keyOfAll, "", strings.Fields(args)...).want(1, "leave --api out")
	}
	// The wrong server does not seem to lack the account.
	for _, path := range []string{"/api/acme", "/elsewhere"} {
		s.cliAt("", "", "--api", s.URL+path, "--key-file", keyFile(keyOfAll), "--company", "acme", "account", "show", "bob", "--by", "mnemocode").want(1, "is --api the URL")
	}
	for _, body := range []string{"404 page not found", `{"error":"not found"}`} {
		server := guesttest.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { http.Error(w, body, http.StatusNotFound) }))
		s.cliAt(strings.TrimPrefix(server.URL, "http://"), "", "--company", "acme", "account", "show", "bob", "--by", "mnemocode").want(1, "404", "does this Caddy have mnemogate?")
	}
	busy := guesttest.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "300")
		http.Error(w, `{"error":"too many attempts"}`, http.StatusTooManyRequests)
	}))
	s.cliAt(strings.TrimPrefix(busy.URL, "http://"), "", "account", "list").want(1, "too many attempts; Retry-After is 300")
	for problem, args := range map[string][]string{
		"go together":       {"--api", s.URL},
		"leave --address":   {"--api", s.URL, "--key-file", keyFile(keyOfAll), "--address", "localhost:2019"},
		"no such file":      {"--api", s.URL, "--key-file", s.dir + "/none"},
		"must hold one key": {"--api", s.URL, "--key-file", s.dir + "/Caddyfile"},
		"write https":       {"--api", "http://accounts.test", "--key-file", keyFile(keyOfAll)},
		"write a URL":       {"--api", "accounts.test", "--key-file", keyFile(keyOfAll)},
	} {
		s.cliAt("", "", append(args, "account", "list")...).want(1, problem)
	}
	s.cliAt("", "", "--api", nobodyListens(t), "--key-file", keyFile(keyOfAll), "account", "list").want(4, "does not answer: ", "; nothing listens there")
}

// Without its store the API says so. Only requests with a key learn where the store is.
func TestUnreachableStoreIsToldToBackends(t *testing.T) {
	t.Parallel()
	nowhere := strings.TrimPrefix(nobodyListens(t), "http://")
	s := accountsSite(t, startSite, allKeys, siteConfig{stores: "store postgres postgres://someone:hidden@" + nowhere + "/x?sslmode=disable\nsessions redis redis://" + nowhere})
	for key, told := range map[string]bool{keyOfAll: true, "another-key": false} {
		a := s.api(key, "GET", "acme/accounts", nil).wantRefused(http.StatusServiceUnavailable, "")
		a.wantRetryAfter()
		if got := string(a.Body); strings.Contains(got, "someone") != told || !strings.Contains(got, "a store can't be reached") {
			t.Errorf("with %s: %s", key, got)
		}
	}
	s.api(keyOfAll, "POST", "acme/introspect", fields{"token": someToken}).wantRefused(http.StatusServiceUnavailable, "")
	s.api("", "GET", "acme/accounts", nil).wantRefused(http.StatusUnauthorized, "")
}
