package integration

import (
	"errors"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/wire"
)

const cookieName = "__Host-mnemogate"

// session calls the session route. It also returns the cookie that was set.
func (s *site) session(method, company, headers string) (a answer, set *http.Cookie) {
	s.t.Helper()
	a = s.ask(method, "/"+company+"/v2/session", headers).inTime()
	if line := a.Header.Get("Set-Cookie"); line != "" {
		set = get(http.ParseSetCookie(line))(s.t)
	}
	return a, set
}

const sessionKey = "X-Api-Key: " + testKey + "\r\n"

// moved logs in and moves the session into a cookie. It returns the line for a
// request.
func (s *site) moved(loginID string) string {
	s.t.Helper()
	_, set := s.session("POST", "acme", sessionKey+bearer(s.login(loginID)))
	if set == nil {
		s.t.Fatal("no cookie was set")
	}
	return "Cookie: " + cookieName + "=" + set.Value + "\r\n"
}

func bearer(token string) string { return "Authorization: Bearer " + token + "\r\n" }

// Contract, section 12: the session route returns the state of a session, whichever
// it is. It does not use the session up or extend it.
func TestASessionIsFoundAgain(t *testing.T) {
	t.Parallel()
	s := startSite(t, siteConfig{company: people + disclaimers, more: "company umbra {\napi_key other-key\ncaptcha off\n}\n"})
	accepting := func(f fields) fields { f["accept_disclaimers"] = []string{"terms", "privacy"}; return f }
	login := func(loginID string) answer { return s.post("auth/login", "", fields{"login_id": loginID}) }
	password := func(loginID string) answer {
		return s.post("auth/checkpassword", login(loginID).token(), accepting(fields{"password": testPassword}))
	}
	recovery := func(loginID, method string) answer {
		return s.post("auth/recovery/recover", "", fields{"login_id": loginID, "method": method, "captcha_response": "any"})
	}
	for name, step := range map[string]func() answer{
		"checkpassword":          func() answer { return login("alice@example.com") },
		"checkotp, no password":  func() answer { return login("+37060000002") },
		"checkotp":               func() answer { return password("carol@example.com") },
		"setpassword":            func() answer { return password("dave@example.com") },
		"authorized":             func() answer { return password("frank") },
		"recovery-checkotp":      func() answer { return recovery("alice@example.com", "PHONE") },
		"recovery-checkquestion": func() answer { return recovery("alice@example.com", "QUESTION") },
		"recovery-setpassword": func() answer {
			token := recovery("alice@example.com", "QUESTION").token()
			return s.post("auth/recovery/checkquestion", token, fields{"control_answer": "Whiskers"})
		},
	} {
		s.run(name, func(t *testing.T) {
			issued := step()
			for range 2 {
				a, set := s.session("GET", "acme", sessionKey+bearer(issued.token()))
				if set != nil || a.wantStatus(200).str("session_token") != "" {
					t.Errorf("a token was issued: %s", a.Body)
				}
				if left := a.JSON["expires_in"].(float64); left > issued.JSON["expires_in"].(float64) || left < 1 {
					t.Errorf("expires_in is %v", left)
				}
				for _, field := range []string{"session_state", "captcha_required", "user_phone", "control_question", "profile_mnemocode", "password_regex_description"} {
					if a.JSON[field] != issued.JSON[field] {
						t.Errorf("%s is %v, and was %v", field, a.JSON[field], issued.JSON[field])
					}
				}
				pending, _ := issued.JSON["disclaimers_required"].([]any)
				if now, _ := a.JSON["disclaimers_required"].([]any); len(now) != len(pending) {
					t.Errorf("disclaimers_required is %v, and was %v", now, pending)
				}
			}
			s.session("GET", "acme", bearer(issued.token()))
		})
	}
	s.run("what is spent", func(*testing.T) {
		token := login("+37060000002").token()
		s.session("GET", "acme", sessionKey+bearer(token))
		s.post("auth/checkotp", token, accepting(fields{"otp": s.sms.last("otp.login", "code")})).wantState(record.Authorized)
		a, _ := s.session("GET", "acme", sessionKey+bearer(token))
		a.want(wire.ErrTokenInvalid)
	})
	s.run("errors", func(t *testing.T) {
		token := password("frank").token()
		for _, test := range []struct {
			method, company, headers string
			want                     *wire.Error
		}{
			{"GET", "acme", bearer(token), wire.ErrAPIKeyMissing},
			{"GET", "acme", "X-Api-Key: wrong\r\n" + bearer(token), wire.ErrAPIKeyInvalid},
			{"GET", "nobody", sessionKey + bearer(token), wire.ErrAPIKeyInvalid},
			{"GET", "acme", sessionKey, wire.ErrHeaderMissing},
			{"GET", "acme", sessionKey + "Cookie: " + cookieName + "=" + token + "\r\n", wire.ErrHeaderMissing},
			{"GET", "acme", sessionKey + "Authorization: Basic x\r\n", wire.ErrHeaderInvalid},
			{"GET", "acme", sessionKey + bearer("mgs_x"), wire.ErrTokenInvalid},
			{"GET", "acme", sessionKey + bearer(s.expired("mgs_", record.Authorized)), wire.ErrTokenExpired},
			{"GET", "umbra", "X-Api-Key: other-key\r\n" + bearer(token), wire.ErrTokenInvalid},
			{"POST", "acme", sessionKey + bearer(token), wire.ErrMethod},
			{"DELETE", "acme", sessionKey + bearer(token), wire.ErrMethod},
		} {
			a, _ := s.session(test.method, test.company, test.headers)
			if a.want(test.want); test.want == wire.ErrMethod {
				a.wantHeader("Allow", "GET")
			}
		}
		s.get("/", token).wantStatus(200)
	})
}

// A browser or a proxy adds Basic for the password of a whole site, such as one for tests.
func TestTheCookieCountsBesideAnotherScheme(t *testing.T) {
	t.Parallel()
	s := startSite(t, siteConfig{company: people, handler: "login_page\nforward_authorization\nself_service"})
	cookie, token := s.moved("frank"), s.login("alice@example.com")
	const navigation, own, basic = "Accept: text/html\r\n", "Origin: http://example.com\r\n", "Authorization: Basic eDp5\r\n"
	for _, other := range []string{basic, "Authorization: Digest username=x\r\n", "Authorization: x\r\n"} {
		for _, a := range []answer{s.ask("GET", "/x", other+cookie), s.ask("POST", "/x", other+own+cookie)} {
			if got := linesNamed(string(a.wantStatus(200).Body), "X-Profile-Mnemocode", "Authorization"); !slices.Equal(got, []string{"X-Profile-Mnemocode: frank"}) {
				t.Errorf("%q: the application got %q", other, got)
			}
		}
		s.ask("POST", "/x", other+cookie).wantReason(string(wire.CrossSite))
		if a, _ := s.session("GET", "acme", sessionKey+other+cookie); a.wantState(record.Authorized).str("profile_mnemocode") != "frank" {
			t.Errorf("%q: got %s", other, a.Body)
		}
		s.ask("GET", "/acme/v2/me/sessions", sessionKey+other+cookie).wantStatus(200)
		s.ask("GET", "/x", other).want(wire.ErrHeaderInvalid)
		if a := s.ask("GET", "/x", other+navigation); a.Status != 303 {
			t.Errorf("%q: a browser without a session got %d %s", other, a.Status, a.Body)
		}
		s.open("/socket", "Origin: http://x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+other+cookie, 101)
	}
	for _, headers := range []string{"", cookie} { // password managers lead users to their change of password
		s.ask("GET", "/.well-known/change-password", headers).wantStatus(303).wantHeader("Location", "/acme/security#password")
	}
	s.ask("POST", "/.well-known/change-password", cookie+own).want(wire.ErrMethod)
	for sent, want := range map[string]*wire.Error{
		bearer("mgs_x"):                        wire.ErrTokenInvalid,
		"Authorization: Bearer\r\n":            wire.ErrHeaderInvalid,
		"Authorization: bEARER,x\r\n":          wire.ErrHeaderInvalid,
		basic + basic:                          wire.ErrHeaderInvalid,
		basic + bearer(token):                  wire.ErrHeaderInvalid,
		bearer(token) + "Authorization: x\r\n": wire.ErrHeaderInvalid,
	} {
		for _, more := range []string{"", navigation} {
			s.ask("GET", "/x", sent+more+cookie).want(want)
		}
	}
}

// Contract, section 12, cookie.
func TestASessionGoesOnInACookie(t *testing.T) {
	t.Parallel()
	const listed = "https://app.example.com"
	s := startNodes(t, siteConfig{global: "session {\nstream_recheck 1s\n}\n", company: people, more: umbra, handler: `
		cookie
		cors ` + listed + `
		public /open/*
		fresh 1h /fresh`})
	const own, foreign, site = "Origin: http://example.com\r\n", "Origin: https://evil.example.com\r\n", "Sec-Fetch-Site: "
	identity := func(a answer) []string { return linesNamed(string(a.Body), "X-Profile-Mnemocode") }
	s.run("the exchange", func(t *testing.T) {
		token := s.login("alice@example.com")
		a, set := s.session("POST", "acme", sessionKey+bearer(token))
		a.wantState(record.Authorized)
		if a.str("session_token") != "" || a.str("profile_mnemocode") != "alice" || set == nil {
			t.Fatalf("got %s %v", a.Body, a.Header)
		}
		if got, want := a.Header["Set-Cookie"], []string{cookieName + "=" + set.Value + "; Path=/; HttpOnly; Secure; SameSite=Lax"}; !slices.Equal(got, want) || !strings.HasPrefix(set.Value, "mgs_") {
			t.Errorf("Set-Cookie is %q", got)
		}
		s.get("/", token).want(wire.ErrTokenInvalid)
		s.post("auth/logout", token, nil).want(wire.ErrTokenInvalid)
		cookie := "Cookie: " + cookieName + "=" + set.Value + "\r\n"
		if got := identity(s.ask("GET", "/x", cookie).wantStatus(200)); !slices.Equal(got, []string{"X-Profile-Mnemocode: alice"}) {
			t.Errorf("the application got %q", got)
		}
		a, _ = s.session("GET", "acme", sessionKey+cookie)
		if a.wantState(record.Authorized); a.str("profile_mnemocode") != "alice" {
			t.Errorf("got %s", a.Body)
		}
		s.ask("GET", "/fresh", cookie).wantStatus(200)
		s.ask("GET", "/umbra/x", cookie).want(wire.ErrTokenInvalid)
	})
	s.run("who may not", func(*testing.T) {
		cookie, token := s.moved("frank"), s.login("frank")
		step := s.post("auth/login", "", fields{"login_id": "alice@example.com"}).token()
		for headers, want := range map[string]*wire.Error{
			bearer(token):                            wire.ErrAPIKeyMissing,
			sessionKey:                               wire.ErrHeaderMissing,
			sessionKey + cookie:                      wire.ErrHeaderMissing,
			sessionKey + bearer(step):                wire.ErrSessionInvalid,
			sessionKey + bearer(token) + bearer("x"): wire.ErrHeaderInvalid,
		} {
			a, set := s.session("POST", "acme", headers)
			if a.want(want); set != nil {
				t.Errorf("%s: a cookie is set", want.Code)
			}
		}
		a, _ := s.session("PUT", "acme", sessionKey+cookie)
		a.want(wire.ErrMethod).wantHeader("Allow", "GET, POST, DELETE")
	})
	s.run("where it came from", func(t *testing.T) {
		cookie := s.moved("alice@example.com")
		crossed := func(a answer) {
			a.t.Helper()
			a.want(wire.ErrHeaderInvalid).wantReason("cross_site")
		}
		unreached := s.unreached()
		for _, from := range []string{
			"", foreign, "Origin: null\r\n", "Origin: http://example.com.evil.example\r\n", "Origin: http://example.com:81\r\n", own + own,
			site + "cross-site\r\n", site + "same-site\r\n", site + "same-site\r\n" + own, site + "\r\n", site + "same-origin\r\n" + site + "cross-site\r\n",
			site + "cross-site\r\n" + foreign, site + "cross-site\r\n" + own, site + "Same-Origin\r\n",
		} {
			for _, method := range []string{"POST", "PUT", "DELETE", "PATCH", "X"} {
				crossed(s.ask(method, "/x", cookie+from))
			}
			crossed(s.ask("GET", "/x", cookie+from+"Connection: Upgrade\r\nUpgrade: WebSocket\r\n"))
		}
		unreached()
		for _, from := range []string{own, "Origin: https://example.com\r\n", "Origin: " + listed + "\r\n", site + "same-origin\r\n", site + "none\r\n",
			site + "same-site\r\nOrigin: " + listed + "\r\n", site + "cross-site\r\nOrigin: " + listed + "\r\n", site + "same-origin\r\n" + own, site + "same-origin\r\nOrigin: http://localhost:5173\r\n"} {
			for _, method := range []string{"POST", "PUT", "DELETE", "PATCH"} {
				s.ask(method, "/x", cookie+from).wantStatus(200)
			}
		}
		for _, method := range []string{"GET", "OPTIONS"} {
			s.ask(method, "/x", cookie+site+"cross-site\r\n"+foreign).wantStatus(200)
		}
		s.ask("POST", "/x", bearer(s.login("frank"))+cookie+foreign).wantStatus(200)
		if got := identity(s.ask("POST", "/open/x", cookie+foreign).wantStatus(200)); got != nil {
			t.Errorf("on a public path another site's page is taken for the user: %q", got)
		}
		if got := identity(s.ask("POST", "/open/x", cookie+own).wantStatus(200)); got == nil {
			t.Error("on a public path the user is not told")
		}
		conn, _ := s.nodes[0].open("/", "Connection: Upgrade\r\nUpgrade: websocket\r\nOrigin: http://x\r\n"+cookie, 101)
		_ = conn.Close()
	})
	s.run("two of them", func(t *testing.T) {
		cookie := s.moved("alice@example.com")
		pair := strings.TrimSuffix(strings.TrimPrefix(cookie, "Cookie: "), "\r\n")
		for _, headers := range []string{cookie + cookie, "Cookie: " + pair + "; " + pair + "\r\n", "Cookie: " + cookieName + "=; a=b;" + pair + "\r\n", cookie + "Cookie: " + cookieName + "\r\n"} {
			s.ask("GET", "/open/x", headers).wantStatus(200)
			read, _ := s.session("GET", "acme", sessionKey+headers)
			ended, _ := s.session("DELETE", "acme", headers+own)
			for _, a := range []answer{s.ask("GET", "/x", headers), read, ended} {
				if a.want(wire.ErrHeaderInvalid); !strings.Contains(a.str("message"), "two cookies "+cookieName) {
					t.Errorf("got %s", a.Body)
				}
			}
		}
		s.ask("GET", "/x", cookie).wantStatus(200)
	})
	s.run("what the application gets", func(t *testing.T) {
		cookie := s.moved("alice@example.com")
		ours := strings.TrimSuffix(strings.TrimPrefix(cookie, "Cookie: "), "\r\n")
		token := s.login("frank")
		for sent, want := range map[string]string{
			ours:                           "",
			"a=1; " + ours + "; b=\"2;3\"": "a=1; b=\"2;3\"",
		} {
			for _, path := range []string{"/x", "/open/x"} {
				for how, headers := range map[string]string{"by cookie": "", "by Bearer": bearer(token)} {
					got := linesNamed(string(s.ask("GET", path, "Cookie: "+sent+"\r\n"+headers).wantStatus(200).Body), "Cookie")
					if want == "" && got != nil || want != "" && !slices.Equal(got, []string{"Cookie: " + want}) {
						t.Errorf("%s of %s: %q became %q, want %q", how, path, sent, got, want)
					}
				}
			}
		}
		quoted := strings.Replace(ours, "=", " = \"", 1) + "\""
		got := linesNamed(string(s.ask("GET", "/x", "Cookie: c=3\r\nCookie: "+ours+"\r\nCookie: "+quoted+"; d=4\r\n"+bearer(token)).wantStatus(200).Body), "Cookie")
		if !slices.Equal(got, []string{"Cookie: c=3", "Cookie: d=4"}) {
			t.Errorf("the application got %q", got)
		}
		r := s.request("GET", "/x", "")
		r.Header["Cookie"] = []string{"a=1; " + ours, "b=2"}
		if got := linesNamed(string(s.doH2(r).wantStatus(200).Body), "Cookie"); !slices.Equal(got, []string{"Cookie: a=1; b=2"}) {
			t.Errorf("HTTP/2: the application got %q", got)
		}
	})
	s.run("browsers and caches", func(t *testing.T) {
		cookie := s.moved("alice@example.com")
		for _, headers := range []string{cookie, "", bearer(s.login("frank"))} {
			if got := s.ask("GET", "/x", headers).Header["Vary"]; !slices.Equal(got, []string{"Origin", "Authorization, Cookie"}) {
				t.Errorf("Vary is %q", got)
			}
		}
		for _, a := range []answer{
			s.ask("GET", "/cors", cookie+"Origin: "+listed+"\r\n").wantStatus(200),
			s.ask("OPTIONS", "/x", "Access-Control-Request-Method: POST\r\nOrigin: "+listed+"\r\n").wantStatus(204),
			s.ask("GET", "/x", "Origin: "+listed+"\r\n").want(wire.ErrHeaderMissing),
		} {
			if got := a.Header["Access-Control-Allow-Credentials"]; !slices.Equal(got, []string{"true"}) {
				t.Errorf("Access-Control-Allow-Credentials is %q", got)
			}
		}
		if got := s.ask("GET", "/x", cookie+foreign).wantStatus(200).Header["Access-Control-Allow-Credentials"]; got != nil {
			t.Errorf("credentials are allowed to whoever asks: %q", got)
		}
	})
	s.run("its end", func(t *testing.T) {
		cookie := s.moved("alice@example.com")
		for _, node := range s.nodes {
			node.ask("GET", "/x", cookie).wantStatus(200)
		}
		for _, from := range []string{"", foreign, "Origin: " + listed + "\r\n", site + "same-site\r\n"} {
			a, set := s.session("DELETE", "acme", cookie+from)
			if a.want(wire.ErrHeaderInvalid); a.str("reason") != "cross_site" || set != nil {
				t.Errorf("%q: got %s", from, a.Body)
			}
		}
		a, set := s.session("DELETE", "nobody", cookie+own)
		if a.want(wire.ErrTokenInvalid); set != nil {
			t.Errorf("the cookie of a valid session is deleted: %v", a.Header)
		}
		another := s.moved("alice@example.com")
		a, _ = s.session("DELETE", "umbra", another+own) // the site's cookie, whichever company the request names
		a.wantStatus(200)
		s.ask("GET", "/x", another).want(wire.ErrTokenInvalid)
		a, _ = s.session("DELETE", "acme", bearer(s.login("frank"))+own)
		a.want(wire.ErrHeaderMissing)
		_, stream := s.nodes[0].open("/sse", cookie, 200)
		if line, err := stream.ReadString('\n'); err != nil || line != "data: tick\n" {
			t.Fatalf("got %q, %v", line, err)
		}
		for _, want := range []int{200, 401} {
			a, set := s.session("DELETE", "acme", cookie+own)
			if a.wantStatus(want); set == nil || set.Value != "" || set.MaxAge >= 0 || !set.Secure || set.Path != "/" {
				t.Errorf("got %v", a.Header)
			}
		}
		s.ask("GET", "/x", cookie).want(wire.ErrTokenInvalid)
		if _, err := io.Copy(io.Discard, stream); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error("the stream goes on")
		}
		token := strings.TrimSuffix(strings.TrimPrefix(cookie, "Cookie: "+cookieName+"="), "\r\n")
		for _, node := range s.nodes { // the other nodes receive the revocation
			s.hears(node, token)
		}
		s.wantNoneLogged(token)
	})
	s.run("the former session ends", func(t *testing.T) { aCookiesFormerSessionEnds(t, s.nodes[0]) })
}

// A new login ends the session that the browser had before.
func aCookiesFormerSessionEnds(t *testing.T, s *site) {
	get := func(cookie string) answer { return s.ask("GET", "/acme/v2/session", sessionKey+cookie) }
	former, other := s.moved("alice@example.com"), s.moved("frank")
	token := s.login("alice@example.com") // which would be lost, since browsers keep no cookie here
	refused, set := s.session("POST", "acme", sessionKey+bearer(token)+former+"Sec-Fetch-Site: cross-site\r\n")
	if refused.want(wire.ErrHeaderInvalid).wantReason(string(wire.CrossSite)); set != nil {
		t.Errorf("got the cookie %v", set)
	}
	s.get("/x", token).wantStatus(200)
	get(former).wantState(record.Authorized)
	s.session("POST", "acme", sessionKey+bearer("mgs_wrong")+former+"Sec-Fetch-Site: same-origin\r\n")
	get(former).wantState(record.Authorized)
	_, set = s.session("POST", "acme", sessionKey+bearer(s.login("alice@example.com"))+former+"Sec-Fetch-Site: same-origin\r\n")
	if set == nil {
		t.Fatal("no cookie was set")
	}
	get(former).want(wire.ErrTokenInvalid)
	get("Cookie: " + cookieName + "=" + set.Value + "\r\n").wantState(record.Authorized)
	get(other).wantState(record.Authorized)
	s.session("POST", "acme", sessionKey+bearer(s.login("frank"))+other+"Origin: https://app.example.com\r\nSec-Fetch-Site: same-site\r\n")
	get(other).want(wire.ErrTokenInvalid)
}

// If many requests move one session into a cookie, one succeeds, and the account
// keeps its number of sessions. Whatever ends the account's sessions ends this one,
// too.
func TestACookieTakesThePlaceOfItsToken(t *testing.T) {
	t.Parallel()
	s := startNodes(t, siteConfig{company: strings.Replace(people, "limits {", "limits {\nsessions_per_account 2", 1), handler: "cookie"})
	var other, token string
	begin := func() { other, token = s.login("frank"), s.login("frank") }
	_, won := s.wantOne(20, begin, func(int) answer {
		r := s.request("POST", "/acme/v2/session", "")
		r.Header = http.Header{"X-Api-Key": {testKey}, "Authorization": {"Bearer " + token}}
		return s.do(r)
	}, wire.ErrTokenInvalid)
	cookie := "Cookie: " + strings.Split(won.Header.Get("Set-Cookie"), ";")[0] + "\r\n"
	s.ask("GET", "/x", cookie).wantStatus(200)
	s.get("/x", other).wantStatus(200)
	s.nodes[0].admin("PATCH", "accounts/frank", fields{"role": "admin"}).wantStatus(200)
	s.ask("GET", "/x", cookie).want(wire.ErrTokenInvalid)
}

// Browsers go on sending the cookies after the option was removed, or got another name. The
// application does not get them.
func TestNoCookieOfAFormerConfigurationReachesTheApplication(t *testing.T) {
	t.Parallel()
	config := siteConfig{company: people, handler: "cookie"}
	s := startSite(t, config)
	_, set := s.session("POST", "acme", sessionKey+bearer(s.login("frank")))
	token, device := set.Value, "mgd_"+strings.Repeat("A", 43)
	sent := bearer(s.login("frank")) + "Cookie: a=1; " + cookieName + "=" + token + "; " + deviceCookieName + "=" + device + "; b=2\r\n"
	for _, handler := range []string{"cookie second", "", "login_page"} {
		config.handler = handler
		must(t, s.reload(config))
		got := string(s.ask("GET", "/app", sent).wantStatus(200).Body)
		if !strings.Contains(got, "Cookie: a=1; b=2") || strings.Contains(got, token) || strings.Contains(got, device) {
			t.Errorf("%q: the application got %s", handler, got)
		}
	}
}
