package integration

import (
	"strings"
	"testing"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// docs/faults.md lists faults of other products. These are the requests behind those
// that no other test sends.
func TestFaultsOfOtherProductsAreRefused(t *testing.T) {
	t.Parallel()
	s := startSite(t, siteConfig{company: people, handler: `
		login_page acme
		health /health
		self_service
		public /open/* /foo/*/bar`})
	s.run("no header speaks for a request without a token", func(*testing.T) {
		for _, header := range []string{
			"X-Middleware-Subrequest: middleware:middleware:middleware:middleware:middleware",
			"X-Forwarded-Uri: /open/x",
			"X-Forwarded-Uri: /health",
			"X-Original-Url: /open/x",
			"X-Forwarded-Prefix: /open",
			"X-Forwarded-Proto: https",
			"User-Agent: kube-probe/1.30",
			"User-Agent: GoogleHC/1.0",
		} {
			s.ask("GET", "/orders", header+"\r\n").want(wire.ErrHeaderMissing)
		}
		for _, cookie := range []string{cookieName + "=\"", cookieName + "={}", cookieName + "=;;=", "\x01=" + cookieName} {
			if a := s.ask("GET", "/orders", "Cookie: "+cookie+"\r\n"); a.Status != 400 && a.Status != 401 {
				t.Errorf("%q: got %d %s", cookie, a.Status, a.Body)
			}
		}
	})
	s.run("what is behind # makes no path public", func(t *testing.T) {
		for _, uri := range []string{"/orders#/open/x", "/orders%23/open/x", "/foo/secret#/bar", "/foo/secret#/x/bar", "/foo/../orders#/bar"} {
			if a := s.ask("GET", uri, ""); a.Status < 400 {
				t.Errorf("%s: got %d %s", uri, a.Status, a.Body)
			}
		}
	})
	s.run("no header of a request gets into a link or a redirect", func(t *testing.T) {
		about := "X-Forwarded-Host: evil.example\r\nForwarded: host=evil.example\r\nX-Forwarded-Proto: evil\r\nReferer: https://evil.example/\r\n"
		s.ask("GET", "/orders", about+navigates).wantRedirect("/acme/login?return_to=%2Forders")
		r := s.postRequest("acme", testKey, "auth/recovery/recover", "", fields{"login_id": "alice@example.com", "captcha_response": "x", "method": "MAIL"})
		r.Host = "evil.example"
		for _, name := range []string{"X-Forwarded-Host", "X-Original-Host", "Origin", "Referer"} {
			r.Header.Set(name, "https://evil.example")
		}
		s.do(r).wantState(record.None)
		if link := s.sms.last("recovery.link", "link"); !strings.HasPrefix(link, "https://app.example.com/recover#") {
			t.Errorf("the link is %q", link)
		}
	})
	s.run("a body makes nobody a user", func(*testing.T) {
		forged := fields{"profile_mnemocode": "alice", "user_id": "alice", "name": "mine", "paths": []string{"/*"}}
		for _, path := range []string{"tokens", "password", "totp", "phone", "passkeys"} {
			r := s.request("POST", "/acme/v2/me/"+path, s.encoded(forged))
			r.Header.Set("Content-Type", "application/json")
			r.Header.Set("X-Api-Key", testKey)
			s.do(r).want(wire.ErrHeaderMissing)
		}
	})
}
