package integration

import (
	"bytes"
	"compress/gzip"
	"crypto/rand"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
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
		s.ask("POST", path, "").wantStatus(405).wantHeader("Allow", "GET")
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
		company: people + disclaimers + "account sam {\nlogin sam\nidentity 1 sam-at-provider\n}\n" + account("kim", "second_factor\nphone +37060000009\n") + provider.provider(1, ""),
		more:    "company workers {\napi_key " + testKey + "\ncaptcha pow 12\naccount wendy {\nlogin wendy\npassword \"" + testPassword + "\"\nquestion Cat? Whiskers\n}\n}\n",
		global:  "devices 90d skip_second_factor\nlimits {\ncaptcha_after 1\n}\n",
		handler: "cookie",
		env:     []string{"MNEMOGATE_PEER_SECRET=" + peerSecret},
	})
	s.setBackupCodes("erin", "AAAAABBBBB")
	outside := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
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
	t.Cleanup(outside.Close)
	var nodes []string
	for _, n := range s.all() {
		nodes = append(nodes, n.URL)
	}
	w.node(t, "steps.mjs", s.encoded(fields{
		"nodes": nodes, "key": testKey, "password": testPassword, "outside": outside.URL, "issuer": provider.Issuer,
	}))
}
