package integration

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/wire"
	"github.com/mnemogate/mnemogate/store/storetest"
)

// wantRoleRefused checks that the answer says that the account has another role than
// the path needs.
func (a answer) wantRoleRefused() {
	a.t.Helper()
	a.wantScope("role", `"insufficient_scope"`)
}

// Contract, section 15: these paths need a session whose account has the role.
func TestPathsNeedARole(t *testing.T) {
	t.Parallel()
	s := startSite(t, siteConfig{global: "session {\nstream_recheck 1s\n}", company: people, servers: "trusted_proxies static 127.0.0.1/32", handler: `
		login_page acme
		check /check
		public /open/*
		fresh 1h /adm
		role Büro /edit/*
		role admin /edit/* /adm /admin/* /acme/* /sse
		role Büro /open/drafts/*`})
	as := func(role any) string {
		s.admin("PATCH", "accounts/alice", fields{"role": role}).wantStatus(200)
		return s.login("alice@example.com")
	}
	s.run("without a session", func(*testing.T) {
		for _, uri := range []string{"/edit/x", "/adm", "/open/drafts/x", "/open/../adm", "/x%00"} {
			s.ask("GET", uri, "").want(wire.ErrHeaderMissing)
			s.ask("GET", uri, bearer("mgs_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA")).want(wire.ErrTokenInvalid)
		}
		s.ask("GET", "/edit/x", navigates).wantRedirect("/acme/login?return_to=%2Fedit%2Fx")
		s.ask("GET", "/open/x", "").wantStatus(200)
		s.ask("GET", "/acme/x", "").want(wire.ErrHeaderMissing)
		s.ask("GET", "/acme/login", "").wantStatus(200)
	})
	s.run("with a role", func(*testing.T) {
		var before string
		for _, role := range []struct {
			name any
			may  string // /edit/x, /adm, /admin/x, /open/drafts/x
		}{
			{nil, "----"}, {"Büro", "y--y"}, {"admin", "yyy-"}, {"Admin", "----"}, {"admin ", "----"}, {"B%C3%BCro", "----"}, {"büro", "----"}, {"/adm", "----"},
		} {
			token := as(role.name)
			if before != "" {
				s.get("/x", before).want(wire.ErrTokenInvalid)
			}
			before = token
			if role.name != "admin" {
				s.get("/acme/x", token).wantRoleRefused()
			}
			for range 2 { // from the store and from memory
				s.get("/x", token).wantStatus(200)
				s.get("/open/x", token).wantStatus(200)
				for i, uri := range []string{"/edit/x", "/adm", "/admin/x", "/open/drafts/x"} {
					if a := s.get(uri, token); role.may[i] == 'y' {
						a.wantStatus(200)
					} else {
						a.wantRoleRefused()
					}
				}
			}
		}
	})
	s.run("in every spelling", func(*testing.T) {
		admins := []string{"/x/..;/admin/x", "/ADMIN/x", "/x/../admin/x"}
		editor := bearer(as("Büro"))
		for _, uri := range append(admins, "/edit/..%2fadm", "/edit/../adm", "/x%00") {
			s.ask("GET", uri, editor).wantRoleRefused()
			s.ask("POST", uri, editor+"Content-Length: 0\r\n").wantRoleRefused()
		}
		s.ask("GET", "/edit/x/../y", editor).wantStatus(200)
		s.ask("GET", "/files/100%25.pdf", editor).wantStatus(200)
		admin := bearer(as("admin"))
		for _, uri := range append(admins, "/edit/..%2fadm", "/edit/../adm") {
			s.ask("GET", uri, admin).wantStatus(200)
		}
		s.ask("GET", "/x%00", admin).wantRoleRefused() // it may be a path of the editors alone
		s.ask("GET", "/edit/..%2fopen/drafts/x", admin).wantRoleRefused()
	})
	s.run("a browser is not sent to the login page", func(*testing.T) {
		as("Büro")
		cookie := s.moved("alice@example.com")
		s.ask("GET", "/adm", navigates+cookie).wantRoleRefused()
		s.ask("GET", "/edit/x", navigates+cookie).wantStatus(200)
		s.ask("GET", "/admin/socket", "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-Fetch-Site: same-origin\r\n"+cookie).wantRoleRefused()
	})
	s.run("an open stream", func(t *testing.T) { // contract, section 3: cut within stream_recheck
		admin := as("admin")
		open := []*flowing{s.stream("SSE", admin), s.stream("WebSocket", admin)}
		for _, f := range open {
			f.lives(t)
		}
		as("Büro")
		for _, f := range open {
			f.isCut(t)
		}
		s.get("/sse", s.login("alice@example.com")).wantRoleRefused()
	})
	s.run("another proxy asks", func(*testing.T) {
		editor := bearer(as("Büro")) + "X-Forwarded-Method: GET\r\nX-Forwarded-Host: example.com\r\nX-Forwarded-Uri: "
		s.ask("GET", "/check", editor+"/edit/x\r\n").wantStatus(204)
		s.ask("GET", "/check", editor+"/x/..;/admin/x\r\n").wantRoleRefused()
	})
	s.run("the role comes before the age of the login", func(*testing.T) {
		old := s.begun("mgs_", record.Authorized, time.Now().Add(-2*time.Hour), time.Now().Add(time.Hour)) // has no role
		s.get("/adm", old).wantRoleRefused()
		s.get("/edit/x", old).wantRoleRefused()
		s.get("/x", old).wantStatus(200)
	})
	if s.scrape()[`mnemogate_protected_requests_total{reason="role",result="auth.session.invalid"}`] == 0 {
		t.Error("the metrics don't say that roles were refused")
	}
}

// The access log says why each request was refused and, if the session is known, whose it
// was. What the session was not enough for is an event, which a loop can't repeat and which
// has nothing that the client sent.
func TestARefusalOfAUserNamesTheUser(t *testing.T) {
	t.Parallel()
	s := startSite(t, siteConfig{company: people, servers: "trusted_proxies static 127.0.0.1/32", site: `
		log
		mnemogate {
			check /check
			websocket_token
			login_page
			role admin /admin/* /reports/*
			fresh 1s /account
		}
		reverse_proxy BACKEND`})
	logged := func(method, uri, user, code, reason string) {
		t.Helper()
		storetest.Eventually(t, 10*time.Second, uri+" in the access log", func() bool {
			for line := range strings.Lines(s.log()) {
				var entry struct {
					Msg, Reason string
					Request     struct{ Method, URI string }
					Code        string `json:"error_code"`
					User        string `json:"user_id"`
				}
				if json.Unmarshal([]byte(line), &entry) == nil && entry.Msg == "handled request" && entry.Request.Method+entry.Request.URI == method+uri {
					return entry.User == user && entry.Code == code && entry.Reason == reason
				}
			}
			return false
		})
	}
	begun := func() string {
		return s.begun("mgs_", record.Authorized, time.Now().Add(-time.Minute), time.Now().Add(time.Hour))
	}
	token, cookie := begun(), "Cookie: "+cookieName+"="+begun()+"\r\n"
	const asked = "X-Forwarded-Method: GET\r\nX-Forwarded-Host: example.com\r\nX-Forwarded-Uri: "
	for range 5 {
		s.get("/admin/hunter2?password=hunter2", token).wantRoleRefused()
		s.ask("GET", "/check", bearer(token)+asked+"/reports/x\r\n").wantRoleRefused()
	}
	s.ask("POST", "/admin/x", bearer(token)+"Content-Length: 0\r\nSec-WebSocket-Protocol: mnemogate.bearer.x\r\n").wantRoleRefused()
	s.ask("GET", "/admin/socket", "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Protocol: mnemogate.bearer."+token+", chat\r\n").wantRoleRefused()
	s.get("/x", token).wantStatus(200)
	s.get("/account", token).want(wire.ErrSessionInvalid)
	s.ask("GET", "/account", navigates+cookie).wantStatus(303)
	s.get("/y", "").want(wire.ErrHeaderMissing)
	s.get("/z", someToken).want(wire.ErrTokenInvalid)

	invalid := wire.ErrSessionInvalid.Code
	logged("GET", "/admin/hunter2?password=hunter2", "alice", invalid, "role")
	logged("GET", "/check", "alice", invalid, "role")
	logged("POST", "/admin/x", "alice", invalid, "role")
	s.tells(`"path":"/admin/socket","user_agent":"","status":403,"user_id":"alice","error_code":"` + invalid + `","reason":"role"`)
	logged("GET", "/account", "alice", invalid, "too_old")
	logged("GET", "/x", "alice", "", "")
	logged("GET", "/y", "", wire.ErrHeaderMissing.Code, "")
	logged("GET", "/z", "", wire.ErrTokenInvalid.Code, "")
	s.audits(3, `"msg":"mnemogate.request.refused","company":"acme","mnemocode":"alice","session":"`)
	for rule, reason := range map[string]string{"/admin/*": "role", "/reports/*": "role", "/account": "too_old"} {
		s.audits(1, `"route":"`+rule+`","result":"`+invalid+`","reason":"`+reason+`"`)
	}
	if audited := regexp.MustCompile(`.*mnemogate\.request\.refused.*hunter2.*`).FindString(s.log()); audited != "" {
		t.Errorf("the audit log has %s", audited)
	}
	storetest.Eventually(t, 10*time.Second, "the history", func() bool {
		var kept []string
		for _, e := range s.history("alice", 1) {
			if e["event"] == record.RequestRefused {
				kept = append(kept, e["reason"])
			}
		}
		return strings.HasPrefix(strings.Join(kept, ", "), "too_old, role")
	})
}

// What a thief did with a stolen cookie or token can be told from what the owner did: the access
// log names the session or the issued token of each request, also of the site's own routes.
func TestTheAccessLogTellsSessionsApart(t *testing.T) {
	t.Parallel()
	s := accountsSite(t, startSite, tokenKeys, siteConfig{company: account("alice", "email alice@example.com") + "\nissued_tokens", site: "log\n", handler: `
		websocket_token
		cookie
		self_service
		role admin /admin/*`})
	logged := func(uri, fields string) {
		t.Helper()
		line := regexp.MustCompile(`"handled request".*"uri":"` + uri + `".*"user_id":"alice",.*` + fields)
		s.eventually(uri+" with "+fields+" in the access log", func() bool { return line.MatchString(s.log()) })
	}
	socket := func(token string) string {
		return "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Protocol: mnemogate.bearer." + token + ", chat\r\n"
	}
	for _, who := range []string{"owner", "thief"} {
		token := s.login("alice@example.com")
		named := `"session":"` + s.ownSessions(token)[0] + `"`
		s.get("/"+who, token).wantStatus(200)
		s.get("/admin/"+who, token).wantRoleRefused()
		s.ask("GET", "/admin/socket/"+who, socket(token)).wantRoleRefused()
		s.ask("POST", "/redacted/"+who, bearer(token)+"Content-Length: 0\r\nSec-WebSocket-Protocol: mnemogate.bearer.x\r\n").wantStatus(200)
		s.me("DELETE", "passkeys/"+who, token, nil).wantStatus(404)
		s.post("stepup", token, fields{"for": "fresh"}).wantStatus(200)
		_, cookie := s.session("POST", "acme", sessionKey+bearer(token))
		s.ask("GET", "/cookie/"+who, "Cookie: "+cookieName+"="+cookie.Value+"\r\n").wantStatus(200)
		s.post("auth/logout", cookie.Value, nil).wantStatus(200)
		for _, uri := range []string{"/" + who, "/redacted/" + who, "/cookie/" + who, "/acme/v2/session", "/acme/v2/stepup", "/acme/v2/auth/logout", "/acme/v2/me/sessions"} {
			logged(uri, named)
		}
		for _, uri := range []string{"/admin/" + who, "/acme/v2/me/passkeys/" + who} {
			logged(uri, named+`,"error_code":"`)
		}
		line := regexp.MustCompile(`"path":"/admin/socket/` + who + `",.*"user_id":"alice",.*` + named)
		s.eventually("the handshake in the log", func() bool { return line.MatchString(s.log()) })
	}
	for _, uri := range []string{"/one", "/other"} {
		token, id := s.issue("alice", fields{"actor": "anna", "reason": "x", "name": ""})
		s.get(uri, token).wantStatus(200)
		s.get("/admin"+uri, token).wantRoleRefused()
		s.ask("GET", "/admin/socket"+uri, socket(token)).wantRoleRefused()
		logged(uri, `"token":"`+id+`","actor":"anna"`)
		logged("/admin"+uri, `"token":"`+id+`","actor":"anna","error_code":"`)
		line := regexp.MustCompile(`"path":"/admin/socket` + uri + `",.*"token":"` + id + `","actor":"anna"`)
		s.eventually("the handshake in the log", func() bool { return line.MatchString(s.log()) })
	}
	for _, uri := range []string{"/acme/accounts", "/acme/accounts/alice/history", "/acme/accounts/alice/check-password"} {
		method, body := "GET", fields(nil)
		if strings.HasSuffix(uri, "password") {
			method, body = "POST", fields{"current_password": "wrong"}
		}
		s.api(keyOfAll, method, strings.TrimPrefix(uri, "/"), body)
		line := regexp.MustCompile(`"handled request".*"uri":"/api` + uri + `".*"actor":"all"`)
		s.eventually("the access log has the key's name", func() bool { return line.MatchString(s.log()) })
	}
	s.tells(`"actor":"all","reason":"password.wrong"`)
}
