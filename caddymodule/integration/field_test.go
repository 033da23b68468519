package integration

import (
	"strings"
	"testing"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// These are the requests behind faults of other products that no other test sends. The faults
// that were looked for, with the tests that would find them here:
//
//   - Traefik (CVE-2026-39858, CVE-2026-88004, CVE-2026-88011, GHSA-62c8-mh53-4cqv),
//     oauth2-proxy (CVE-2025-64484), Caddy's forward_auth before php_fastcgi
//     (GHSA-f59h-q822-g45g): A client forged or removed headers of the proxy, by names like
//     X_User and X.User, as trailers, or by Connection. See
//     TestNoSpellingOfAnIdentityHeaderReachesTheApplication, TestNoTrailerPassesForAHeader.
//   - Caddy's forward_auth (GHSA-7r4p-vjf4-gxv4): A client's identity header passed if the
//     login server sent none. See TestPublicPathsNeedNoToken.
//   - Traefik (CVE-2026-35051, CVE-2026-54764), oauth2-proxy (CVE-2026-40575): X-Forwarded-*
//     chose the path or prefix that was checked. See the requests below,
//     TestCheckIsForTrustedProxiesAndWholeDescriptions.
//   - Next.js (CVE-2025-29927), oauth2-proxy (CVE-2026-34457), authentik (CVE-2026-25748):
//     The header of an inner request, a health check's User-Agent or a malformed cookie
//     needed no login. See the requests below.
//   - Zitadel (CVE-2025-64101), Better Auth (CVE-2025-71401), caddy-security (CVE-2024-21498,
//     CVE-2024-21499): A header chose the host of links in mails, or of redirects. See the
//     requests below.
//   - caddy-security (issue 266): X-Forwarded-For chose the address that was limited. See
//     TestHeadersAboutTheClientMoveNoCounter.
//   - oauth2-proxy (CVE-2026-41059): "#" made a protected path look public. See the requests
//     below, TestSpellingsOfPaths.
//   - Better Auth (CVE-2025-53535), Zitadel (GHSA-pr34-2v5x-6qjq), caddy-security
//     (CVE-2024-21497): After the login, the page went to any site, or ran javascript:. See
//     TestWhereALoginMayGoOn, TestBrowserAtTheLoginPage.
//   - Authelia (GO-2026-4818), caddy-security (CVE-2023-52430, issues 267 and 273): A page
//     showed a stranger's text as HTML. See TestBrowserTakesNamesAsText,
//     TestAddressesOfLinks, TestTheLoginPageIsServed.
//   - caddy-security (issue 274): Another site's page could act as the administrator. No
//     administrator uses a browser. Of users, see TestWhoMayUseSelfService.
//   - Keycloak (CVE-2026-18963), authentik (CVE-2026-49448): A step of a recovery or login
//     could be skipped. See TestMachine.
//   - Keycloak (CVE-2026-11800): A token with another signature algorithm passed. See
//     TestOIDCRefusesForgedTokens.
//   - Keycloak (CVE-2026-4630): An id opened what belongs to another client. See
//     TestUsersLookAfterTheirLogin, TestWhatRevokesIssuedTokens, TestKeyOpensWhatItMay.
//   - Better Auth (CVE-2025-61928): Without a session, the body named the user of a new key.
//     See the requests below, TestIssuedTokens.
//   - Better Auth (CVE-2026-121802): It signed a state that the caller had made up. See
//     TestBackendsProveContacts, FuzzContactTokens.
//   - oauth2-proxy (CVE-2026-40574), Zitadel (CVE-2025-64717): mallory@evil@company.com
//     passed for an email of the company. A provider that was turned off linked accounts. See
//     TestLinkVerifiedEmail, TestOAuthRefusals.
//   - Pomerium (CVE-2026-135300): A stolen code was redeemed without the client's secret.
//     OAuth clients get no codes of mnemogate.
//   - Authelia (CVE-2025-24806), Zitadel (CVE-2025-64102), caddy-security (issue 271): Codes
//     and passwords could be guessed without a limit, or with one for each login id. See
//     TestOneOfManyWins, TestWrongCodesLockTheAccountForADay, TestLimitsAreExactUnderRaces.
//   - caddy-security (issue 272): A token worked after the logout. See
//     TestWhatEndsOnOneNodeEndsOnAll.
//   - caddy-security (CVE-2024-21495): Secrets were predictable. Here they come from
//     crypto/rand: see TestImportsRunDownwards.
//   - go-redis (CVE-2025-29923): After a timeout, each command got the answer of the one
//     before. See TestRedisIsNotToldWhoAsks.
//   - Pomerium (CVE-2026-50285): A small text unpacked to gigabytes. Packed bodies are
//     refused (see TestBodiesOfAuthRoutes), and the unpacked answers of servers bounded.
//   - Caddy 2.11: What an application had left of a body over HTTP/1 was taken for further
//     requests. See TestNothingBehindAnEarlyAnswerIsARequest.
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
