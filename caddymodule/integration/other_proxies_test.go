package integration

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/wire"
	"github.com/mnemogate/mnemogate/store/storetest"
)

const otherProxies = "docs/other-proxies.md"

// directivesOf returns the directives of the only site of a Caddyfile, without its
// address and bind.
func directivesOf(t *testing.T, caddyfile string) string {
	t.Helper()
	found := regexp.MustCompile(`(?ms)^[^\s{][^{\n]* \{\n(.*)^\}`).FindStringSubmatch(caddyfile)
	if found == nil {
		t.Fatalf("there is no site in\n%s", caddyfile)
	}
	return strings.Replace(found[1], "bind 127.0.0.1\n", "", 1)
}

// shownSite returns the Caddyfile that the page shows for other proxies.
func shownSite(t *testing.T) string {
	t.Helper()
	return blocks(section(t, otherProxies, "mnemogate"), "caddyfile")[0]
}

// askedSite starts a mnemogate for other proxies. It returns it twice: as they ask it, and as
// it is in front of the same backend without them.
func askedSite(t *testing.T, shown string) (asked, direct *site) {
	t.Helper()
	options := regexp.MustCompile(`(?ms)^\tservers \{\n(.*?)^\t\}`).FindStringSubmatch(shown)
	addr, file := listener(t)
	asked = startSite(t, siteConfig{company: people, servers: options[1], files: []*os.File{file}, site: directivesOf(t, shown) + `}
http:// {
	bind fd/4
	mnemogate {
		public /health /assets/*
		login_page
	}
	reverse_proxy BACKEND`})
	return asked, &site{t: t, addr: addr, backend: asked.backend}
}

// front returns another proxy in front of a backend of its own. Its start gets the
// addresses to use, and returns the running process.
func (s *site) front(t *testing.T, start func(dir, addr, backend string) *exec.Cmd) *site {
	t.Helper()
	front := &site{t: t, dir: shortTempDir(t), addr: fmt.Sprint("127.0.0.1:", storetest.FreePorts(t, 1)[0]), backend: newRawBackend(t), sms: s.sms}
	front.URL = "http://" + front.addr
	front.cmd = start(front.dir, front.addr, front.backend.addr)
	front.cmd.Stdout, front.cmd.Stderr = front, front
	var err error
	if front.exited, err = storetest.Start(front.cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = front.cmd.Process.Kill()
		<-front.exited
		if t.Failed() {
			log := front.log()
			t.Log(log[:min(len(log), 4000)])
		}
	})
	storetest.Eventually(t, 20*time.Second, "a proxy that serves", func() bool {
		response, err := client.Get(front.URL + "/health")
		return err == nil && response.Body.Close() == nil && response.StatusCode == http.StatusOK
	})
	return front
}

func writeFile(t *testing.T, name, text string) {
	t.Helper()
	must(t, os.WriteFile(name, []byte(text), 0o644))
}

// addresses replaces the page's addresses.
func addresses(s *site, backend string) *strings.Replacer {
	return strings.NewReplacer("127.0.0.1:8080", s.addr, "127.0.0.1:9000", backend)
}

// nginx returns an nginx with the page's configuration in front of a backend of its own.
func (s *site) nginx(t *testing.T) *site {
	t.Helper()
	return s.front(t, func(dir, addr, backend string) *exec.Cmd {
		shown := addresses(s, backend).Replace(blocks(section(t, otherProxies, "nginx"), "nginx")[0])
		shown = changed(t, shown, "listen 80;", "listen "+addr+";", "http {\n", "http {\naccess_log off;\nclient_body_temp_path "+dir+"/body;\n"+
			"proxy_cache_path "+dir+"/cache keys_zone=shared:1m;\nmap $arg_shared $zone {\nyes shared;\ndefault off;\n}\n",
			"proxy_pass http://backend;\n", "proxy_pass http://backend;\nproxy_cache $zone;\n")
		writeFile(t, dir+"/nginx.conf", shown)
		return exec.Command("nginx", "-p", dir, "-c", dir+"/nginx.conf", "-e", "stderr", "-g", "daemon off; master_process off; pid "+dir+"/pid;")
	})
}

// The complete configurations of docs/other-proxies.md do what it promises.
func TestOtherProxiesOfThePage(t *testing.T) {
	t.Parallel()
	for _, proxy := range []struct {
		name     string
		programs []string
		start    func(t *testing.T, s *site) *site
	}{
		{"nginx", []string{"nginx"}, func(t *testing.T, s *site) *site { return s.nginx(t) }},
		{"HAProxy", []string{"haproxy"}, func(t *testing.T, s *site) *site {
			return s.front(t, func(dir, addr, backend string) *exec.Cmd {
				shown := section(t, otherProxies, "HAProxy")
				writeFile(t, dir+"/mnemogate.lua", addresses(s, backend).Replace(blocks(shown, "lua")[0]))
				writeFile(t, dir+"/haproxy.cfg", changed(t, addresses(s, backend).Replace(blocks(shown, "haproxy")[0]),
					"bind :80\n", "bind "+addr+"\n", "/etc/haproxy/mnemogate.lua", dir+"/mnemogate.lua"))
				return exec.Command("haproxy", "-db", "-f", dir+"/haproxy.cfg")
			})
		}},
		{"Caddy", nil, func(t *testing.T, s *site) *site {
			return s.front(t, func(dir, addr, backend string) *exec.Cmd {
				shown := addresses(s, backend).Replace(directivesOf(t, blocks(section(t, otherProxies, "Caddy"), "caddyfile")[0]))
				writeFile(t, dir+"/Caddyfile", "{\nadmin off\npersist_config off\nauto_https off\n}\nhttp://"+strings.Replace(addr, "127.0.0.1", "", 1)+" {\nbind 127.0.0.1\n"+shown+"}\n")
				front := &site{dir: dir}
				return front.caddy("run", "--config", dir+"/Caddyfile")
			})
		}},
	} {
		t.Run(proxy.name, func(t *testing.T) {
			t.Parallel()
			need(t, proxy.programs...)
			s, direct := askedSite(t, shownSite(t))
			front := proxy.start(t, s)
			front.run("a login", func(t *testing.T) { front.checkLogin(t) })
			front.run("identity headers", func(t *testing.T) { front.checkForged(t) })
			front.run("browsers", func(t *testing.T) { front.checkBrowsers(t) })
			front.run("caches", func(t *testing.T) { front.checkCaches(t, proxy.name != "Caddy") })
			front.run("large bodies", func(t *testing.T) {
				r := front.request("POST", "/x", strings.Repeat("x", 3<<20))
				r.Header.Set("Authorization", "Bearer "+front.login("frank"))
				a := front.do(r)
				if a.Status != 200 || len(a.Body) < 3<<20 {
					t.Errorf("got %d, and %d bytes", a.Status, len(a.Body))
				}
			})
			front.run("spellings", func(t *testing.T) { front.checkSpellings(t, direct) })
			front.run("without mnemogate", func(t *testing.T) { // last: it ends it
				token := bearer(front.login("alice@example.com"))
				front.ask("GET", "/x", token).wantStatus(200)
				s.stop(os.Kill)
				_ = s.ln.Close() // nobody listens there any more
				var a answer
				if got := front.seen(func() { a = front.ask("GET", "/x", token) }); len(got) > 0 || a.Status < 500 {
					t.Errorf("got %d, the application got %q", a.Status, got)
				}
			})
		})
	}
}

// checkLogin logs in and out through the proxy.
func (s *site) checkLogin(t *testing.T) {
	s.ask("GET", "/x", "").want(wire.ErrHeaderMissing).wantChallenge()
	token := s.login("alice@example.com")
	passes := func(how string, a answer) {
		t.Helper()
		if got := toldOf(string(a.Body)); a.Status != 200 || !slices.Equal(got, []string{"x-company-code: acme", "x-profile-mnemocode: alice"}) {
			t.Errorf("%s: got %d %s", how, a.Status, a.Body)
		}
	}
	for _, method := range []string{"GET", "POST", "DELETE", "OPTIONS"} {
		passes(method, s.ask(method, "/x?y=z", bearer(token)))
	}
	a := s.ask("POST", "/x", bearer(token)+"X-Api-Key: "+testKey+"\r\nX-Original-URL: /y\r\nX-Original-URI: /y\r\nX-Rewrite-URL: /y\r\nX-Script-Name: /y\r\nScript-Name: /y\r\nPath-Info: /y\r\nContent-Length: 5\r\n\r\nhello")
	passes("a body", a)
	if !strings.HasSuffix(string(a.Body), "hello") {
		t.Errorf("the application got %q", a.Body)
	}
	if lines := linesNamed(string(a.Body), append([]string{"Authorization", "X-Api-Key"}, rewriteHeaders...)...); lines != nil {
		t.Errorf("the application got %q", lines)
	}
	for _, path := range []string{"/x", "/health"} {
		if body := strings.ToLower(string(s.ask("GET", path, bearer(token)+forwarded).wantStatus(200).Body)); strings.Contains(body, "mallory") || strings.Contains(body, "192.0.2.66") {
			t.Errorf("%s: the application got %q", path, body)
		}
	}
	hops := s.ask("GET", "/x", bearer(token)+"Connection: X-Profile-Mnemocode, x-company-code\r\n")
	passes("names in Connection", hops)
	if lines := linesNamed(string(hops.Body), "Connection"); strings.Contains(strings.ToLower(strings.Join(lines, " ")), "x-") {
		t.Errorf("names in Connection: the application got %q", lines)
	}
	if got := s.seen(func() { s.ask("TRACE", "/health", bearer(token)) }); len(got) > 0 {
		t.Errorf("TRACE: the application got %q", got)
	}
	s.post("auth/logout", token, nil).wantState(record.None)
	s.hears(s, token)
}

// toldOf returns the identity headers of a request, in lower case.
func toldOf(raw string) []string {
	lines := linesNamed(strings.ToLower(raw), guardedHeaders...)
	slices.Sort(lines)
	return lines
}

// checkForged sends the identity headers as a client.
func (s *site) checkForged(t *testing.T) {
	c := &h1conn{s: s}
	defer c.close()
	tokens := []string{"", bearer(s.login("frank"))}
	for _, header := range guardedHeaders {
		for _, name := range append(spellings(header), header) {
			for _, token := range tokens {
				for _, raw := range s.seen(func() { c.ask("GET /health HTTP/1.1\r\nHost: example.com\r\n" + token + name + ": mallory\r\n\r\n") }) {
					if strings.Contains(raw, "mallory") {
						t.Errorf("%s: the application got %q", name, raw)
					}
				}
			}
		}
	}
	// Several aliases at once, as CGI, WSGI and PHP read them.
	c.ask("GET /x HTTP/1.1\r\nHost: example.com\r\n" + tokens[1] + "X_Profile_Mnemocode: mallory\r\nx.profile.mnemocode: mallory\r\nX-Profile_Mnemocode: mallory\r\n" +
		"X_Profile.Role: admin\r\nX-Profile.Role: admin\r\nX_COMPANY-CODE: umbra\r\n\r\n").wantStatus(200)
	if got := toldOf(s.backend.last()); !slices.Equal(got, []string{"x-company-code: acme", "x-profile-mnemocode: frank"}) {
		t.Errorf("aliases: the application got %q", got)
	}
	a := s.ask("GET", "/health", "X-Profile-Mnemocode: mallory\r\nX-Forwarded-Method: GET\r\nX-Forwarded-Uri: /health\r\nX-Forwarded-Host: y\r\n").wantStatus(200)
	if lines := toldOf(string(a.Body)); lines != nil {
		t.Errorf("a public path: the application got %q", lines)
	}
	s.ask("GET", "/x", "X-Forwarded-Method: GET\r\nX-Forwarded-Uri: /health\r\nX-Forwarded-Host: y\r\n").want(wire.ErrHeaderMissing)
}

// checkCaches shows Bob what a browser's cache has of Alice's, and looks at what shared caches
// get.
func (s *site) checkCaches(t *testing.T, adds bool) {
	alice, frank := s.login("alice@example.com"), s.login("frank")
	raw := func(head string) string {
		return "/raw?shared=yes&answer=" + url.QueryEscape("HTTP/1.1 "+head+"\r\nContent-Length: 0\r\n\r\n")
	}
	young := raw("200 OK\r\nCache-Control: max-age=60")
	wanted := map[string]string{"/cached": "private, max-age=60", "/x": "private", raw("404 Not Found"): "private", raw("200 OK\r\nCache-Control: Public, max-age=60"): "Public, max-age=60", young: "max-age=60"}
	if adds {
		wanted[young] += ", private"
	}
	for path, want := range wanted {
		a := s.ask("GET", path, bearer(alice))
		vary := strings.Join(a.Header["Vary"], ", ")
		if got := strings.Join(a.Header["Cache-Control"], ", "); got != want || !strings.Contains(vary, "Authorization, Cookie") || strings.Contains(vary, "Accept") != (path == "/cached") {
			t.Errorf("%s: Cache-Control is %q, Vary is %q", path, got, vary)
		}
	}
	if got := s.seen(func() { s.ask("GET", young, bearer(alice)); s.ask("GET", young, bearer(frank)) }); len(got) != 2 {
		t.Errorf("a shared cache asked for %q", got)
	}
	s.ask("GET", young, "").want(wire.ErrHeaderMissing)
	b := newBrowser(t)
	b.open(s.URL + "/health")
	users := regexp.MustCompile(`(?i)x-profile-mnemocode: (\w+)`)
	for how, ask := range map[string]string{
		"tokens":  `fetch('/cached?tokens', { headers: { Authorization: 'Bearer ' + token } })`,
		"cookies": `(document.cookie = '__Host-mnemogate=' + token + '; Secure; Path=/', fetch('/cached?cookies'))`,
	} {
		got := b.eval(`(async () => {
			const got = [];
			for (const token of ` + quote([]string{alice, alice, frank}) + `) got.push(await (await ` + ask + `).text());
			return got.join('\n\n');
		})()`)
		var seen []string
		for _, found := range users.FindAllStringSubmatch(got.(string), -1) {
			seen = append(seen, found[1])
		}
		if !slices.Equal(seen, []string{"alice", "alice", "frank"}) {
			t.Errorf("%s: the browser showed those of %q", how, seen)
		}
	}
}

// longLink is almost as long as nginx takes.
var longLink = "/x?y=" + strings.Repeat("%C3%A9", 1200)

// checkBrowsers asks as browsers do, with the cookie.
func (s *site) checkBrowsers(t *testing.T) {
	const navigation = "Accept: text/html\r\nSec-Fetch-Mode: navigate\r\n"
	a := s.ask("GET", "/x?y=z", navigation)
	if got := a.Header.Get("Location"); a.Status != 303 || got != "http://example.com/acme/login?return_to=%2Fx%3Fy%3Dz" {
		t.Errorf("got %d, to %q", a.Status, got)
	}
	s.ask("GET", longLink, navigation).wantStatus(303)
	s.ask("GET", "/acme/login", navigation).wantStatus(200).wantBody("mnemogate-key")
	session := "__Host-mnemogate=" + s.login("frank")
	const device = "__Host-mnemogate-device=mgd_x"
	for _, own := range []string{session, session + "; " + device, device + "; " + session, device + "; e=f; " + session} {
		lines := linesNamed(string(s.ask("GET", "/x", navigation+"Cookie: a=b; "+own+"; c=d\r\n").wantStatus(200).Body), "Cookie")
		want := "Cookie: a=b; " + strings.Repeat("e=f; ", strings.Count(own, "e=f")) + "c=d"
		if len(lines) != 1 || !strings.EqualFold(lines[0], want) {
			t.Errorf("%q: the application got %q, want %q", own, lines, want)
		}
	}
	for _, twice := range []string{session + "; a=b; " + session, device + "; " + device, "__Host-mnemogate =x; " + session} {
		if body := string(s.ask("GET", "/health", "Cookie: "+twice+"\r\n").wantStatus(200).Body); strings.Contains(body, "__Host-") {
			t.Errorf("%q: the application got %q", twice, linesNamed(body, "Cookie"))
		}
	}
	for _, own := range []string{session + "; " + device, device + "; " + session} {
		if body := string(s.ask("GET", "/x", "Cookie: "+own+"\r\n").wantStatus(200).Body); strings.Contains(body, "__Host-") {
			t.Errorf("%q alone: the application got %q", own, linesNamed(body, "Cookie"))
		}
	}
	cookie := "Cookie: a=b; " + session + "; c=d\r\n"
	for how, headers := range map[string]string{
		"a form":      "Origin: https://evil.example\r\n",
		"a WebSocket": "Origin: https://evil.example\r\n" + opensSocket,
	} {
		method := map[string]string{"a form": "POST", "a WebSocket": "GET"}[how]
		raw := method + " /x HTTP/1.1\r\nHost: example.com\r\n" + cookie + headers + "\r\n"
		c := &h1conn{s: s}
		got := s.seen(func() { a = c.ask(raw) })
		c.close()
		if len(got) > 0 || a.str("reason") != string(wire.CrossSite) {
			t.Errorf("%s of another site: got %d %s, the application got %q", how, a.Status, a.Body, got)
		}
	}
	s.ask("POST", "/x", cookie+"Origin: http://example.com\r\n").wantStatus(200)
	if got := s.seen(func() { s.open("/x", cookie+"Origin: http://x\r\n"+opensSocket, 101) }); len(got) != 1 || linesNamed(got[0], "Upgrade") == nil {
		t.Errorf("a WebSocket of this site: the application got %q", got)
	}
	for _, upgrade := range []string{"Upgrade: h2c\r\n", "Upgrade: h2c\r\nUpgrade: websocket\r\n", "Upgrade: h2c, websocket\r\n"} {
		for _, got := range s.seen(func() { s.ask("GET", "/x", cookie+"Connection: Upgrade\r\n"+upgrade) }) {
			if lines := linesNamed(got, "Upgrade"); strings.Contains(strings.Join(lines, ""), "h2c") {
				t.Errorf("%q: the application got %q", upgrade, lines)
			}
		}
	}
}

// checkSpellings sends all spellings of a public, a protected and an auth path. What
// the application receives must be what mnemogate in front of it would let through.
func (s *site) checkSpellings(t *testing.T, direct *site) {
	direct.report(t)
	theirs, ours := &h1conn{s: s}, &h1conn{s: direct}
	defer theirs.close()
	defer ours.close()
	tokens := map[string]string{"nobody": "", "alice": bearer(s.login("alice@example.com"))}
	reached := 0
	for _, p := range []string{"/assets/x", "/acme/x", "/acme/v2/auth/login", "/assets/../x"} {
		for _, target := range respellings(p) {
			for user, token := range tokens {
				got := s.seen(func() { theirs.ask("GET " + target + " HTTP/1.1\r\nHost: x\r\n" + token + "\r\n") })
				if len(got) == 0 {
					continue
				}
				reached++
				line, _, _ := strings.Cut(got[0], "\r\n")
				passed := direct.seen(func() { ours.ask(line + "\r\nHost: x\r\n" + token + "\r\n") })
				if len(got) != 1 || len(passed) != 1 {
					t.Errorf("%q of %s: the application got %q, and through mnemogate %q", target, user, got, passed)
					continue
				}
				if theirs, ours := toldOf(got[0]), toldOf(passed[0]); !slices.Equal(theirs, ours) {
					t.Errorf("%q of %s: the application got %q, and through mnemogate %q", target, user, theirs, ours)
				}
			}
		}
	}
	if reached == 0 {
		t.Error("none reached the application")
	}
}

// Traefik and Envoy are not at hand. A stub reads the configuration to which the page links,
// and sends what their documentation and source say.
func TestTraefikAndEnvoyOfThePage(t *testing.T) {
	t.Parallel()
	t.Run("Traefik", func(t *testing.T) {
		t.Parallel()
		middlewares := dig[any](readYAML(t, "behind-traefik/dynamic.yaml"), "http", "middlewares")
		if dig[string](readYAML(t, "behind-traefik/traefik.yaml"), "entryPoints", "web", "http", "aliasHeadersStrategy") != "delete" { // of its own, Traefik passes aliases on
			t.Error("aliases of the identity headers stay")
		}
		if vary := dig[string](middlewares, "clean", "headers", "customResponseHeaders", "Vary"); !strings.HasPrefix(vary, "Authorization, Cookie") {
			t.Errorf("Vary is %q", vary)
		}
		removed := slices.Collect(maps.Keys(dig[map[string]any](middlewares, "clean", "headers", "customRequestHeaders")))
		for _, header := range rewriteHeaders {
			if !slices.ContainsFunc(removed, func(name string) bool { return strings.EqualFold(name, header) }) {
				t.Errorf("a client's %s stays", header)
			}
		}
		auth := dig[any](middlewares, "check", "forwardAuth")
		told := regexp.MustCompile(dig[string](auth, "authResponseHeadersRegex"))
		s, _ := askedSite(t, shownSite(t))
		s.checkStub(t, 204, func(method, uri string, header http.Header) (*http.Request, func(string) bool) {
			r := s.request("GET", strings.TrimPrefix(dig[string](auth, "address"), "http://127.0.0.1:8080"), "")
			r.Header = header.Clone()
			for _, hop := range []string{"Connection", "Upgrade", "Te", "Trailer", "Transfer-Encoding", "Keep-Alive"} {
				r.Header.Del(hop)
			}
			for name, value := range map[string]string{"For": "192.0.2.1", "Method": method, "Proto": "https", "Host": "example.com", "Uri": uri} {
				r.Header.Set("X-Forwarded-"+name, value)
			}
			return r, told.MatchString
		})
	})
	t.Run("Envoy", func(t *testing.T) {
		t.Parallel()
		filters := dig[[]any](readYAML(t, "behind-envoy/envoy.yaml"), "static_resources", "listeners", 0, "filter_chains", 0, "filters", 0, "typed_config", "http_filters")
		mutations := dig[[]any](filters, 0, "typed_config", "mutations", "request_mutations")
		authz := dig[any](filters, 1, "typed_config")
		allowed := patterns(dig[[]any](authz, "allowed_headers", "patterns"))
		removed := regexp.MustCompile("^(" + dig[string](mutations, 0, "remove_on_match", "key_matcher", "safe_regex", "regex") + ")$")
		for _, header := range guardedHeaders {
			for _, name := range spellings(header) {
				if !removed.MatchString(strings.ToLower(name)) {
					t.Errorf("a client's %s stays", name)
				}
			}
		}
		for _, header := range []string{"X-HTTP-Method-Override", "X-HTTP-Method", "X-Method-Override"} { // mnemogate must see them
			for _, name := range spellings(header) {
				if same := strings.EqualFold(name, header); removed.MatchString(strings.ToLower(name)) == same || same && !allowed.has(name) {
					t.Errorf("a client's %s reaches the backend without a question", name)
				}
			}
		}
		s, _ := askedSite(t, string(get(os.ReadFile("../../docs/examples/behind-envoy/Caddyfile"))(t)))
		s.checkStub(t, 200, func(method, uri string, header http.Header) (*http.Request, func(string) bool) { // it takes 204 for a no
			header = header.Clone()
			for _, mutation := range mutations {
				if added, ok := mutation.(map[string]any)["append"]; ok {
					header.Set(dig[string](added, "header", "key"), strings.NewReplacer("%REQ(:METHOD)%", method, "%REQ(:AUTHORITY)%", "example.com", "%REQ(:PATH)%", uri).Replace(dig[string](added, "header", "value")))
				}
			}
			header.Set("X-Forwarded-Proto", "https")
			r := s.request(method, dig[string](authz, "http_service", "path_prefix")+uri, "")
			for name, values := range header {
				if allowed.has(name) {
					r.Header[name] = values
				}
			}
			return r, patterns(dig[[]any](authz, "http_service", "authorization_response", "allowed_upstream_headers", "patterns")).has
		})
	})
}

// patterns are those of Envoy's ListStringMatcher.
type patterns []any

func (all patterns) has(name string) bool {
	for _, pattern := range all {
		for how, text := range pattern.(map[string]any) {
			if strings.EqualFold(name, text.(string)) || how == "prefix" && strings.HasPrefix(strings.ToLower(name), text.(string)) {
				return true
			}
		}
	}
	return false
}

// readYAML reads a file of docs/examples.
func readYAML(t *testing.T, file string) (read any) {
	t.Helper()
	must(t, yaml.Unmarshal(get(os.ReadFile("../../docs/examples/"+file))(t), &read))
	return read
}

// dig returns what a document has at a path of keys and indices.
func dig[T any](document any, path ...any) T {
	for _, at := range path {
		if i, ok := at.(int); ok {
			document = document.([]any)[i]
		} else {
			document = document.(map[string]any)[at.(string)]
		}
	}
	return document.(T)
}

// checkStub asks as a stub does, which also says what it copies from the answer. The
// proxy takes yes for a yes.
func (s *site) checkStub(t *testing.T, yes int, stub func(method, uri string, header http.Header) (*http.Request, func(string) bool)) {
	token := "Bearer " + s.login("alice@example.com")
	cookie := "__Host-mnemogate=" + s.login("frank") + "; __Host-mnemogate-device=mgd_x"
	for _, c := range []struct {
		method, uri string
		header      []string
		status      int
		user        string
	}{
		{"GET", "/x?y=z", []string{"Authorization", token}, 204, "alice"},
		{"DELETE", "/x", []string{"Authorization", token}, 204, "alice"},
		{"GET", "/x", []string{"Cookie", cookie}, 204, "frank"},
		{"GET", "/health", nil, 204, ""},
		{"GET", "/health", []string{"X-Profile-Mnemocode", "mallory"}, 204, ""},
		{"GET", "/x", nil, 401, ""},
		{"GET", "/x", []string{"X-Forwarded-Uri", "/health", "X-Forwarded-Method", "GET"}, 401, ""},
		{"GET", "/x", []string{"Accept", "text/html", "Sec-Fetch-Mode", "navigate"}, 303, ""},
		{"POST", "/x", []string{"Cookie", cookie, "Origin", "https://evil.example"}, 400, ""},
		{"GET", "/x", []string{"Cookie", cookie, "Origin", "https://evil.example", "Sec-Websocket-Key", "x"}, 400, ""},
		{"GET", "/x", []string{"Cookie", cookie, "Origin", "https://example.com", "Sec-Websocket-Key", "x"}, 204, "frank"},
		{"POST", "/acme/v2/auth/login", nil, 404, ""},
	} {
		header := http.Header{}
		for i := 0; i < len(c.header); i += 2 {
			header.Set(c.header[i], c.header[i+1])
		}
		r, copied := stub(c.method, c.uri, header)
		a := s.do(r)
		for _, name := range guardedHeaders {
			if !copied(name) && !slices.Contains(rewriteHeaders, name) {
				t.Fatalf("%s is not copied", name)
			}
		}
		if c.status == 204 {
			c.status = yes
		}
		user := a.Header.Get("X-Profile-Mnemocode")
		if a.Status != c.status || user != c.user {
			t.Errorf("%s %s %q: got %d for %q, want %d for %q: %s", c.method, c.uri, c.header, a.Status, user, c.status, c.user, a.Body)
		}
		if got := a.Header.Get("Location"); c.status == 303 && got != "https://example.com/acme/login?return_to=%2Fx" {
			t.Errorf("it leads to %q", got)
		}
	}
}
