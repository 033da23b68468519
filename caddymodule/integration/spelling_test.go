package integration

import (
	"encoding/json"
	"fmt"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/mnemogate/mnemogate/flows/wire"
)

// A mount is a way to use mnemogate in a Caddyfile.
type mount struct {
	name      string
	prefix    string // of paths in the browser
	forwarded string // of the same paths at the backend
	site      string
	alias     string // used for the route checkcredentials in place of its path
}

// mounts are the ways to test. The first has a site to itself, so it receives all
// paths.
var mounts = []mount{
	{name: "alone", site: "mnemogate\nreverse_proxy BACKEND"},
	{name: "handle", prefix: "/handle", forwarded: "/handle", site: `
		handle /handle/* {
			reverse_proxy BACKEND
			mnemogate {
				base_path /handle
			}
		}`}, // Caddy sorts the directives
	{name: "route", prefix: "/route", forwarded: "/route", site: `
		route /route/* {
			mnemogate {
				base_path /route
			}
			reverse_proxy BACKEND
		}`},
	{name: "handle_path", prefix: "/stripped", site: `
		handle_path /stripped/* {
			mnemogate
			reverse_proxy BACKEND
		}`},
	{name: "named matcher", prefix: "/named", forwarded: "/named", site: `
		@named {
			path /named/*
			method GET POST
		}
		handle @named {
			mnemogate {
				base_path /named
			}
			reverse_proxy BACKEND
		}`},
	{name: "strip_prefix", prefix: "/v1", site: `
		handle /v1* {
			uri strip_prefix /v1
			mnemogate
			reverse_proxy BACKEND
		}`},
	{name: "replace", prefix: "/replaced", site: `
		handle /replaced* {
			uri replace /replaced/ / 1
			mnemogate
			reverse_proxy BACKEND
		}`},
	{name: "rewrite with an expression", prefix: "/re", site: `
		@re path_regexp re ^/re/(.*)$
		handle @re {
			rewrite * /{re.re.1}
			mnemogate
			reverse_proxy BACKEND
		}`},
	{name: "rewrite", prefix: "/alias", site: `
		handle /alias {
			rewrite * /acme/v2/auth/checkcredentials
			mnemogate
			reverse_proxy BACKEND
		}
		handle /alias/acme/x {
			rewrite * /acme/x
			mnemogate
			reverse_proxy BACKEND
		}`, alias: "/alias"},
}

// sites returns the directives of two sites: one with the first mount, and one with
// the others.
func sites() map[string][]mount {
	mounted := ""
	for _, m := range mounts[1:] {
		mounted += m.site
	}
	return map[string][]mount{mounts[0].site: mounts[:1], mounted + `
		@login path /acme/v2/auth/* /umbra/v2/auth/*
		handle @login {
			mnemogate
			reverse_proxy BACKEND
		}
		respond 404`: mounts[1:]}
}

// respellings returns targets that a server on the way might take for the path p, and
// p itself.
func respellings(p string) []string {
	all := []string{p, strings.ToUpper(p), p[1:], "/" + p, "\\" + p[1:], "%2f" + p[1:], "/%2f" + p[1:]}
	for _, c := range []string{"//", "/./", "/x/../", "/../", "/%2e/", "/%2e%2e/", "/x/%2e%2e/", "/x/.%2E/", "/..;/", "/x/..;/", "/x/..%3b/", "/.;/", "/;/", "/;x/", ";/", ";x=y/", "%3bx/", "%2f", "%2F", "%5c", `\`, `/\`, `/..\`, `/x/..\`, "/x/..%5c",
		"%00/", "/%00", "%00", "/%00/", "%20/", "/%20", "%09/", "./", "%2e/", "%0d%0a/", "%252f", "%255c", "/%252e/", "/x/%252e%252e/", "%25%32%66", "%c0%af", "%e0%80%af", "%f0%80%80%af", "%c1%9c", "/%c0%ae/", "/x/%c0%ae%c0%ae/", "%u002f", "%ef%bc%8f", "%e2%88%95", "／", "/?/", "/#/", "/%23/", "%3f/", "/*/", "/:/", "/~/"} {
		for i := range p {
			if p[i] == '/' {
				all = append(all, p[:i]+c+p[i+1:])
			}
		}
		all = append(all, strings.ReplaceAll(p, "/", c))
	}
	for i := range p {
		if p[i] == '/' || '0' <= p[i] && p[i] <= '9' {
			continue
		}
		for _, format := range []string{"%%%02x", "%%%02X", "%%25%02x", "%%u00%02x"} {
			all = append(all, p[:i]+fmt.Sprintf(format, p[i])+p[i+1:])
		}
		// An overlong encoding of the letter, and the letter in the other case.
		all = append(all, p[:i]+fmt.Sprintf("%%%02x%%%02x", 0xc0|p[i]>>6, 0x80|p[i]&0x3f)+p[i+1:], p[:i]+string(p[i]^0x20)+p[i+1:])
	}
	for _, c := range []string{"/", "//", "/.", "/..", "/x/..", "/../" + path.Base(p), "/%2e", "/%2e%2e", "/;", ";", ";x", ";x=/../..", "%3b", "%00", "%00.json", "%20", "%20/", "%0a", ".", "..", "%2e", "#x", "%23x", "?", "?x", "?/../..", "%3f", "%3fx", ".json", "*", "%2f", "%5c", `\`, "%2f..", "%2f..%2f" + path.Base(p), "%252f", "~", "::$DATA", ":80", "%"} {
		all = append(all, p+c)
	}
	for _, c := range []string{"http://x", "HTTP://x", "https://x:443", "http://acme", "http://umbra", "http://x/.", "http://x/x/..", "http://a:b@x", "http://x/", "ftp://x", "//x", "/.", "/..", "/x/..", "/x/y/../..", "/;x", "/%00", "/%2e%2e", "/..%2f..", "/%2f", "/index.php", "/http://x", "http:", "x:", "urn:x", "http:/", "http:///", "*", "."} {
		all = append(all, c+p)
	}
	slices.Sort(all)
	all = some(slices.Compact(all))
	if !slices.Contains(all, p) {
		all = append(all, p)
	}
	return all
}

// some returns some elements with the race detector, otherwise all (see fewer).
func some[E any](all []E) []E {
	var found []E
	for i, step := 0, len(all)/fewer(len(all)); i < len(all); i += step {
		found = append(found, all[i])
	}
	return found
}

// lenient returns the ways in which a backend may interpret a target.
func lenient(target string) []string {
	target, _, _ = strings.Cut(target, "?")
	decoded, err := url.PathUnescape(target)
	if err != nil {
		decoded = target
	}
	decoded = strings.ReplaceAll(decoded, `\`, "/")
	segments := strings.Split(decoded, "/")
	for i, s := range segments {
		if cut := strings.IndexAny(s, ";\x00"); cut >= 0 {
			segments[i] = s[:cut]
		}
	}
	stripped := strings.Join(segments, "/")
	return []string{target, path.Clean("/" + target), path.Clean("/" + decoded), path.Clean("/" + stripped)}
}

// below reports whether one of the interpretations of a target is p or a path below
// it.
func below(target, p string) bool {
	return slices.ContainsFunc(lenient(target), func(reading string) bool { return reading == p || strings.HasPrefix(reading, p+"/") })
}

// Contract, sections 2 and 4, in all spellings of a path.
func TestSpellingsOfPaths(t *testing.T) {
	t.Parallel()
	for site, mounts := range sites() {
		s := startHTTP3(t, siteConfig{global: "limits {\nlock_after 3\n}\n", company: people, more: umbra, site: site})
		s.run("protected paths", func(*testing.T) { protectedSpellings(s.site, mounts) })
		s.run("routes", func(t *testing.T) { routeSpellings(t, s, mounts) })
	}
}

// protectedSpellings checks that no spelling of a protected path passes without a token,
// and no spelling of a company's path with a token of another company.
func protectedSpellings(s *site, mounts []mount) {
	alice := bearer(s.login("alice@example.com"))
	zoe := bearer(s.loginAt("umbra", "other-key", "zoe"))
	for _, m := range mounts {
		s.run(m.name, func(t *testing.T) {
			c := &h1conn{s: s}
			defer c.close()
			reached := map[string]int{} // number of spellings, by user
			for _, target := range respellings(m.prefix + "/acme/x") {
				ask := func(headers string) (answer, []string) {
					var a answer
					got := s.seen(func() { a = c.ask("GET " + target + " HTTP/1.1\r\nHost: x\r\n" + headers + "\r\n") })
					return a, got
				}
				if a, got := ask(""); len(got) != 0 || a.Status < 400 {
					t.Errorf("%q without a token: got %d %s; the application got %q", target, a.Status, a.Body, got)
				}
				for user, token := range map[string]string{"alice": alice, "zoe": zoe} {
					a, got := ask(token)
					if len(got) == 0 && a.Status >= 400 {
						continue
					}
					if len(got) != 1 || a.Status != 200 {
						t.Errorf("%q: got %d %s; the application got %q", target, a.Status, a.Body, got)
						continue
					}
					reached[user]++
					id := identity{userHeader: "X-Profile-Mnemocode", user: user, companyHeader: "X-Company-Code", company: "acme"}
					if user == "zoe" {
						id.company = "umbra"
					}
					r, _, err := id.check(got[0])
					if err != nil {
						t.Errorf("%q: %v; the application got %q", target, err, got)
					} else if user == "zoe" && below(r.RequestURI, m.forwarded+"/acme") {
						t.Errorf("%q: another company's user got to %q", target, r.RequestURI)
					} else if below(r.RequestURI, m.forwarded+"/acme/v2/auth") {
						t.Errorf("%q: the application got %q", target, r.RequestURI)
					}
				}
			}
			t.Log("spellings that reached the application:", reached)
			if reached["alice"] < fewer(40) || m.alias == "" && reached["zoe"] == 0 {
				t.Errorf("hardly any spelling reaches the application: %v", reached)
			}
		})
	}
}

// routeSpellings checks that every spelling of a route that is answered shares the route's
// counters and locks. Other spellings are not answered as a route.
func routeSpellings(t *testing.T, s *h3site, mounts []mount) {
	headers := "Host: x\r\nX-Api-Key: " + testKey + "\r\nContent-Type: application/json\r\n"
	body := func(loginID, password string) string {
		return `{"login_id":"` + loginID + `","password":"` + password + `"}`
	}
	for range 3 {
		s.post("auth/checkcredentials", "", fields{"login_id": "frank", "password": "a wrong password"}).want(wire.ErrCredentialsInvalid)
	}
	s.post("auth/checkcredentials", "", fields{"login_id": "frank", "password": testPassword}).want(wire.ErrRestricted)
	// reaches reports whether the answer is the route's. In that case it must say
	// that the account is locked.
	reaches := func(t *testing.T, how string, a answer) bool {
		t.Helper()
		switch code := a.str("error_code"); {
		case code == wire.ErrRestricted.Code && a.Status == 429:
			return true
		case code == wire.ErrNoRoute.Code && a.Status == 404, code == wire.ErrHeaderMissing.Code && a.Status == 401, code == "" && (a.Status == 400 || a.Status == 404):
		case code == wire.ErrAPIKeyInvalid.Code && a.Status == 401: // another company's, such as that of Acme
		default:
			t.Errorf("%s: got %d %s", how, a.Status, a.Body)
		}
		return false
	}
	before := len(s.backend.requests())
	for _, m := range mounts {
		s.run(m.name, func(t *testing.T) {
			c := &h1conn{s: s.site}
			defer c.close()
			post := func(target, content string) answer {
				t.Helper()
				return c.ask("POST " + target + " HTTP/1.1\r\n" + headers + "Content-Length: " + strconv.Itoa(len(content)) + "\r\n\r\n" + content)
			}
			route := m.prefix + "/acme/v2/auth/checkcredentials"
			if m.alias != "" {
				route = m.alias
			}
			var same []string
			for _, target := range respellings(route) {
				if reaches(t, target, post(target, body("frank", testPassword))) {
					same = append(same, target)
				}
			}
			if !slices.Contains(same, route) {
				t.Fatalf("%s is not reached", route)
			}
			t.Logf("%d spellings reach the route", len(same))
			// Failures count together for all spellings.
			unknown := "nobody-" + strings.ReplaceAll(m.name, " ", "-")
			for i := range max(5, len(same)) {
				a := post(same[i%len(same)], body(unknown, "a wrong password"))
				if i < 3 {
					a.want(wire.ErrCredentialsInvalid)
				} else {
					a.want(wire.ErrRestricted)
				}
			}
		})
	}
	s.run(mounts[0].name+", HTTP/2 and HTTP/3", func(t *testing.T) {
		if mounts[0].prefix != "" {
			return
		}
		content := body("frank", testPassword)
		for _, target := range respellings("/acme/v2/auth/checkcredentials") {
			fields := []string{":method", "POST", ":scheme", "https", ":authority", "localhost", ":path", target, "x-api-key", testKey, "content-type", "application/json"}
			for version := 2; version <= 3; version++ {
				c := s.framed(version)
				c.headers(false, fields...)
				c.data(content, true)
				status, got, err := c.read("")
				if status == "" && err != nil {
					continue // the server did not accept it as a request
				}
				a := rawAnswer(t, status, got)
				if reaches(t, fmt.Sprint("HTTP/", version, " ", target), a) != (target == "/acme/v2/auth/checkcredentials" || strings.HasPrefix(target, "/acme/v2/auth/checkcredentials?")) {
					t.Errorf("HTTP/%d %q: got %d %s", version, target, a.Status, a.Body)
				}
			}
		}
	})
	if got := s.backend.requests()[before:]; len(got) != 0 {
		t.Errorf("the application got %q", got)
	}
	s.login("alice@example.com") // the address was not locked either
}

// The remains of a rewrite could be interpreted as another target.
func TestTargetsWithoutASlashAreNotSentOn(t *testing.T) {
	t.Parallel()
	s := startSite(t, siteConfig{company: people, more: umbra, site: `
		@re path_regexp re ^/re/(.*)$
		handle @re {
			rewrite * {re.re.1}
			mnemogate
			reverse_proxy BACKEND
		}
		handle /replaced/* {
			uri replace /replaced/ ""
			mnemogate
			reverse_proxy BACKEND
		}
		handle {
			mnemogate
			reverse_proxy BACKEND
		}`})
	token := s.login("alice@example.com")
	for _, path := range []string{"/re/x", "/re/umbra/x", "/re/acme/v2/auth/login", "/re/http:umbra/x", "/re/http://umbra/x", "/re/x:y", "/replaced/umbra/x", "/replaced/http:umbra/x", "/replaced/acme/v2/auth/login"} {
		s.get(path, token).want(wire.ErrNoRoute)
	}
	s.get("/x", token).wantStatus(200)
	if n := len(s.backend.requests()); n != 1 {
		t.Errorf("the application got %d requests", n)
	}
}

func rawAnswer(t *testing.T, status, body string) answer {
	t.Helper()
	code, err := strconv.Atoi(status)
	if err != nil {
		t.Fatalf("the status is %q", status)
	}
	a := answer{t: t, Status: code, Body: []byte(body)}
	_ = json.Unmarshal(a.Body, &a.JSON)
	return a
}

// Contract, section 7: other headers in which a client describes itself affect
// neither decisions nor the address that failures are counted for.
func TestHeadersAboutTheClientMoveNoCounter(t *testing.T) {
	t.Parallel()
	s := startSite(t, siteConfig{company: strings.Replace(people, "failures_per_address 1000/5m", "failures_per_address 5/5m", 1)})
	about := []string{"X-Forwarded-For", "Forwarded", "X-Real-Ip", "X-Client-Ip", "True-Client-Ip", "Cf-Connecting-Ip", "X-Cluster-Client-Ip", "Client-Ip", "X-Forwarded-Host", "X-Original-Url", "X-Rewrite-Url", "Via", "Origin", "User-Agent"}
	for i := range 10 {
		r := s.postRequest("acme", testKey, "auth/checkcredentials", "", fields{"login_id": fmt.Sprint("nobody-", i), "password": "a wrong password"})
		r.Host = fmt.Sprint("host-", i, ".example.com")
		for _, name := range about {
			r.Header.Set(name, fmt.Sprint("192.0.2.", i))
		}
		r.Header.Set("Forwarded", fmt.Sprintf("for=192.0.2.%d;host=acme", i))
		a := s.do(r)
		if i < 5 {
			a.want(wire.ErrCredentialsInvalid)
		} else {
			a.want(wire.ErrRestricted)
		}
	}
}
