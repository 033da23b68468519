package integration

import (
	"bytes"
	"compress/gzip"
	"crypto/rand"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mnemogate/mnemogate/caddymodule/guest/guesttest"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// client.js is served to everyone, as a module with its types.
func theModuleIsServed(t *testing.T, s *site) {
	unreached := s.unreached()
	for path, kind := range map[string]string{"/acme/v2/client.js": "text/javascript", "/acme/v2/client.d.ts": "text/plain"} {
		file := string(get(os.ReadFile("../page/assets/" + filepath.Base(path)))(t))
		plain := s.ask("GET", path, "Origin: https://app.example.com\r\n").wantStatus(200)
		if string(plain.Body) != file || plain.Header.Get("Content-Encoding") != "" {
			t.Errorf("%s: got %d bytes", path, len(plain.Body))
		}
		for name, want := range map[string]string{
			"Content-Type": kind, "Cache-Control": "no-cache", "X-Content-Type-Options": "nosniff", "Access-Control-Allow-Origin": "https://app.example.com",
		} {
			if got, _, _ := strings.Cut(plain.Header.Get(name), ";"); got != want {
				t.Errorf("%s: %s is %q, want %q", path, name, got, want)
			}
		}
		packed := s.ask("GET", path, "Accept-Encoding: br, gzip\r\n").wantStatus(200)
		content := get(io.ReadAll(get(gzip.NewReader(bytes.NewReader(packed.Body)))(t)))(t)
		if string(content) != file || packed.Header.Get("Content-Encoding") != "gzip" || len(packed.Body) >= 10_000 {
			t.Errorf("%s: got %d bytes gzipped %q", path, len(packed.Body), packed.Header.Get("Content-Encoding"))
		}
		if kept := s.ask("GET", path, "If-None-Match: "+packed.Header.Get("ETag")+"\r\n").wantStatus(304); len(kept.Body) != 0 {
			t.Errorf("%s: got %s for one that is kept", path, kept.Body)
		}
		s.ask("POST", path, "").wantStatus(405).wantHeader("Allow", "GET, HEAD")
	}
	unreached()
}

// steps.mts is an app that logs in with client.js, as docs/clients.md shows. The
// types prevent an app from impossible steps.
func TestAnAppUsesTheModule(t *testing.T) {
	t.Parallel()
	shown := blocks(pages(t)["docs/clients.md"], "ts")
	if len(shown) != 1 {
		t.Fatalf("the page shows %q", shown)
	}
	w := newWorkshop(t, map[string]string{"package.json": `{"type": "module"}`, "shown.mts": shown[0] + "export { logIn };\n"},
		peersDir+"/steps.mts", "../page/assets/client.js", "../page/assets/client.d.ts")
	w.tsc(t, "--noUncheckedIndexedAccess", "--target", "es2022", "--lib", "es2022",
		"--module", "nodenext", "--types", "node", "--skipLibCheck", "steps.mts")
	provider := startOpenID(t)
	s := startNodes(t, siteConfig{
		company: people + disclaimers + "account sam {\nlogin sam\nidentity 1 sam-at-provider\n}\n" + account("kim", "second_factor\nphone +37060000009\n") + "account nora {\nphone +37060000019\n}\n" + provider.provider(1, ""),
		more:    "company workers {\napi_key " + testKey + "\ncaptcha pow 12\naccount wendy {\nlogin wendy\npassword \"" + testPassword + "\"\nquestion Cat? Whiskers\n}\n}\n",
		global:  "devices 90d skip_second_factor\nlimits {\ncaptcha_after 1\n}\n",
		handler: "cookie",
		env:     []string{"MNEMOGATE_PEER_SECRET=" + peerSecret},
	})
	s.setBackupCodes("erin", "AAAAABBBBB")
	outside := guesttest.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		query := r.URL.Query()
		switch r.URL.Path {
		case "/last":
			fmt.Fprint(w, s.sms.last(query.Get("type"), "code"))
		case "/link":
			fmt.Fprint(w, s.sms.linkToken())
		case "/backup":
			fmt.Fprint(w, "AAAAABBBBB")
		case "/end":
			for _, node := range s.nodes { // each knows at once what it has changed itself
				node.admin("PATCH", "accounts/"+query.Get("account"), fields{"role": rand.Text()}).wantStatus(200)
			}
		case "/provider":
			fmt.Fprint(w, provider.visit(t, "sam-at-provider", query.Get("at")))
		}
	}))
	var nodes []string
	for _, n := range s.all() {
		nodes = append(nodes, n.URL)
	}
	w.node(t, "steps.mjs", s.encoded(fields{
		"nodes": nodes, "key": testKey, "password": testPassword, "outside": outside.URL, "issuer": provider.Issuer,
	}))
}

// Contract, section 12: a client learns what it needs before a login, and no secret.
func TestAClientIsToldWhatTheCompanyAsksFor(t *testing.T) {
	t.Parallel()
	const listed = "https://app.example.com"
	s := startSite(t, siteConfig{more: umbra, handler: "cors " + listed, company: disclaimers + `
		password {
			regex [0-9] "A digit."
		}
		captcha hcaptcha hidden-captcha-secret {
			site_key widget-key
		}
		oauth 2 oauth2 {
			name "Git & co"
			authorize_url https://git.example.com/authorize?x=y
			token_url https://git.example.com/token
			userinfo_url https://git.example.com/user
			subject id
			scope read:user user:email
			client_id ours
			client_secret hidden-client-secret
			redirect_uri https://app.example.com/callback
		}
		oauth 4 oidc http://127.0.0.1:1 {
			client_id theirs
			client_secret hidden-client-secret
			redirect_uri https://app.example.com/callback
		}`})
	const path = "/acme/v2/client.json"
	a := s.ask("GET", path, sessionKey+"Origin: "+listed+"\r\n").wantStatus(200)
	if a.Header.Get("Cache-Control") != "no-store" || a.Header.Get("Access-Control-Allow-Origin") != listed || strings.Contains(string(a.Body), "hidden") {
		t.Errorf("got %v %s", a.Header, a.Body)
	}
	for _, want := range []string{
		`{"status":"success","password":{"min_length":8,"regex":"[0-9]","description":"8 to 128`, `company's name. A digit.","regex_description":"A digit."}`, `"captcha":{"type":"hcaptcha","site_key":"widget-key"}`, `"recovery":["PHONE","MAIL","QUESTION"]`,
		`{"provider_id":2,"name":"Git & co","authorize_url":"https://git.example.com/authorize?x=y","client_id":"ours","scope":"read:user user:email","pkce":false}`,
		`{"provider_id":4,"name":"127.0.0.1","authorize_url":null,"client_id":"theirs","scope":"openid","pkce":false}`,
		`"disclaimers":[{"code":"terms",`, `"name":"acme","otp":{"length":6,"ttl":300},"passkeys":false,"devices":false,"skip_second_factor":false,"issued_tokens":null,"hardened":false,"session":{"idle":3600,"lifetime":86400},"links":[],"signup":null,"remember":false,"self_service":false,"step_up":false}`,
	} {
		if !strings.Contains(string(a.Body), want) {
			t.Errorf("got %s, want %s", a.Body, want)
		}
	}
	s.tells("a provider does not say where logins begin")
	s.ask("GET", path, "").want(wire.ErrAPIKeyMissing)
	s.ask("GET", path, "X-Api-Key: other-key\r\n").want(wire.ErrAPIKeyInvalid)
	s.ask("GET", "/nobody/v2/client.json", sessionKey).want(wire.ErrAPIKeyInvalid)
	for _, method := range []string{"POST", "HEAD", "DELETE"} {
		s.ask(method, path, sessionKey).wantStatus(405).wantHeader("Allow", "GET")
	}
	s.ask("GET", path+"/", sessionKey).want(wire.ErrHeaderMissing)
	if a := s.ask("GET", "/umbra/v2/client.json", "X-Api-Key: other-key\r\n").wantStatus(200); !strings.Contains(string(a.Body), `"password":{"min_length":8,"regex":null,`) || !strings.Contains(string(a.Body), `"captcha":{"type":"off"},"recovery":["PHONE","MAIL","QUESTION"],"oauth":[],"disclaimers":[],`) {
		t.Errorf("got %s", a.Body)
	}
	s.run("client.js", func(t *testing.T) { theModuleIsServed(t, s) })
}
