package paths

import (
	"context"
	"math/rand/v2"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"golang.org/x/text/unicode/norm"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/store/storetest"
)

var must = storetest.Must

// reader has public paths, and fresh ones and some for roles that lie within them and
// beside.
func reader() *Rules {
	return &Rules{
		Public: []string{"/health", "/open/*", "*.css", "/docs/*/index.html", "*/logo*", "/über"},
		Fresh: []Fresh{
			{caddy.Duration(time.Hour), []string{"/account/*", "/bill/*"}},
			{caddy.Duration(time.Minute), []string{"/account/delete", "/open/vault/*"}},
		},
		Role: []Role{
			{"editor", []string{"/edit/*", "/docs/drafts/*"}},
			{"admin", []string{"/edit/*", "/adm", "/open/admins/*"}},
			{"Büro", []string{"/Team/*/settings"}},
		},
		MFA: []string{"/pay/*", "/open/till"},
	}
}

func parsed(t *testing.T, uri string) *url.URL {
	t.Helper()
	u, err := url.ParseRequestURI(uri)
	must(t, err)
	return u
}

// A path that can be read in two ways is public only by both. There is a row for each rule,
// and TestOddPathsAreReadCarefully combines them.
func TestPublicPathsHaveOneReading(t *testing.T) {
	rules := reader()
	for uri, want := range map[string]bool{
		"/health":                        true,
		"/health?x=/account/":            true,
		"/open/":                         true,
		"/open/x/y.html":                 true,
		"/open/README":                   true,
		"/open/.well-known/x":            true,
		"/open/a..b":                     true,
		"/open/My%20File.pdf":            true,
		"/open/%C3%A9":                   true,
		"/open/%41":                      true, // by both readings
		"/open/a%2Fb":                    true,
		"/open/a;v=1/b":                  true,
		"/%C3%BCber":                     true,
		"/x.css":                         true,
		"/admin/x.css":                   true, // as the pattern has it
		"/docs/a/index.html":             true,
		"/img/logo-2.png":                true,
		"http://other/open/x":            true,
		"/":                              false,
		"/open":                          false,
		"/opener":                        false,
		"/health/":                       false,
		"/health/x":                      false,
		"/docs/a/b/index.html":           false,
		"/Open/x":                        false, // another path where case counts
		"/X.CSS":                         false,
		"/%6Fpen/x":                      false,
		"//open/x":                       false,
		"/open/..":                       false,
		"/open/../admin":                 false,
		"/open/%2e%2e/admin":             false,
		"/open/..%2fadmin":               false,
		`/open/..\admin`:                 false,
		"/open/..;/admin":                false,
		"/open/%252e%252e/admin":         false,
		"/open/..%00/admin":              false,
		"/open/..%20/admin":              false,
		"/(S(x))/open/y":                 false,
		"/open/(x)/f(y).html":            true,
		"/open/%c0%ae%c0%ae/x":           false,
		"/open/%EF%BC%8E%EF%BC%8E/admin": false, // fullwidth dots
		"/open;x/y":                      false,
		"/x/../open/y":                   false,
		"/health.":                       false,
		"/admin/%3f.css":                 false,
		"/admin%2Ecss":                   false, // for servers that do not decode it
		"/open/vault/x":                  false, // fresh
		"/open/Vault/x":                  false,
		"*":                              false,
		"http://other":                   false,
	} {
		if got := rules.IsPublic(parsed(t, uri)); got != want {
			t.Errorf("%s is public: %v, want %v", uri, got, want)
		}
	}
	for _, pattern := range []string{"*", "/*"} {
		rules := &Rules{Public: []string{pattern}}
		if !rules.IsPublic(parsed(t, "/any/thing")) {
			t.Errorf("%s does not match all", pattern)
		}
	}
}

// File systems that ignore case take ß for ss.
func TestRulesIgnoreCaseAsFileSystemsDo(t *testing.T) {
	rules := &Rules{Fresh: []Fresh{{Within: caddy.Duration(time.Hour), Paths: []string{"/business/*", "/straße"}}}}
	for _, uri := range []string{"/BUSINESS/x", "/busine%C3%9F/x", "/BUSINE%E1%BA%9E/x", "/STRASSE", "/stra%C3%9Fe/"} {
		if fresh, _, _ := rules.Needs(parsed(t, uri)); fresh != time.Hour {
			t.Errorf("%s needs no recent login", uri)
		}
	}
}

// A path that can be read in two ways needs what either needs.
func TestFreshPathsAreSoInAnyReading(t *testing.T) {
	rules := reader()
	for uri, want := range map[string]time.Duration{
		"/account/x":             time.Hour,
		"/account/":              time.Hour,
		"/account/delete":        time.Minute, // the shortest
		"/account/Delete":        time.Minute,
		"/ACCOUNT/x":             time.Hour,
		"//account/x":            time.Hour,
		"/account//delete":       time.Minute,
		"/x/../account/y":        time.Minute,
		"/%61ccount/x":           time.Hour,
		"/account%3bv/delete;x":  time.Minute,
		`/account\x`:             time.Hour,
		"/%EF%BD%81ccount/x":     time.Minute, // a fullwidth a
		"/b%C4%B1ll/x":           time.Hour,   // a dotless i
		"/acco%C5%ADnt/x":        0,
		"/":                      0,
		"/account":               time.Hour,
		"/account/delete/":       time.Minute,
		"/accounts/x":            0,
		"/x/account/y":           0,
		"/projects/a%2Fb":        0,
		"/projects/a%2Faccount/": 0,
		"/x;y/z":                 0,
		"/x//y":                  0,
	} {
		if got, _, _ := rules.Needs(parsed(t, uri)); got != want {
			t.Errorf("%s: got %v, want %v", uri, got, want)
		}
	}
	if fresh, admits, twice := new(Rules).Needs(parsed(t, "/x/../y")); fresh != 0 || admits != nil || twice != nil {
		t.Errorf("without the option: got %v", fresh)
	}
}

// mayOpen returns the roles that may open a path, or "all".
func (rules *Rules) mayOpen(u *url.URL) string {
	needed, roles := rules.rolesOf(u)
	if !needed {
		return "all"
	}
	return strings.Join(roles, " ")
}

// A path that can be read in several ways needs a role that may open it in each.
func TestRolesAreNeededInAnyReading(t *testing.T) {
	rules := reader()
	for uri, want := range map[string]string{
		"/edit/x":                                "editor admin",
		"/edit/":                                 "editor admin",
		"/edit":                                  "editor admin",
		"/EDIT/x":                                "editor admin",
		"/adm":                                   "admin",
		"/adm/":                                  "admin",
		"/Adm":                                   "admin",
		"/adm?x=/edit/":                          "admin",
		"/team/1/settings":                       "B%C3%BCro",
		"/team/1/Settings/":                      "B%C3%BCro",
		"/open/admins/x":                         "admin",
		"/docs/drafts/index.html":                "editor",
		"/adm;a":                                 "admin",
		"/%61dm":                                 "admin",
		"/%2561dm":                               "admin",
		"//adm":                                  "admin",
		"/x/../adm":                              "admin",
		"/x/..;/adm":                             "admin",
		"/x/%2e%2e/adm":                          "admin",
		"/x/..%2fadm":                            "admin",
		`/x/..\adm`:                              "admin",
		"/x/%252e%252e%252fadm":                  "admin",
		"/adm%3fx":                               "admin",
		"/%EF%BD%81dm":                           "admin",        // a fullwidth a
		"/ed%C4%B1t/x":                           "editor admin", // a dotless i
		"/team/1/sett%C4%B0ngs":                  "B%C3%BCro",    // a capital one with a dot
		"/x/%EF%BC%8E./../adm":                   "",
		"/open/../adm":                           "admin",
		"/edit/x/../y":                           "editor admin",
		"/edit/..%2fadm":                         "admin",
		"/edit/../adm":                           "admin",
		"/edit/../docs/drafts/x":                 "editor",
		"/adm/../docs/drafts/x":                  "editor", // nobody takes /adm/../x for /adm
		"/edit/%2e%2e/team/1/settings":           "",       // editors and admins for one, Büro for the other
		"/adm%2f../edit/x":                       "",
		"/open/admins/../../edit/":               "admin",
		"/docs/drafts/..%2f../adm":               "",
		"/x%00/adm":                              "", // nobody knows how these are read
		"/adm.":                                  "",
		"/x./y":                                  "",
		"/%ff":                                   "",
		"/%25u0061dm":                            "",
		"/x" + strings.Repeat("%25", 400):        "",
		"/" + strings.Repeat("%25", 80) + "61dm": "",
		"/(S(x))/adm":                            "", // ASP.NET removes what looks like the id of a session
		"/a/(A(x)F(y))dm":                        "",
		"/%28S%28x%29%29/adm":                    "",
		"/files/f(x)/(y)":                        "all",
		"/files/(s(x))":                          "all",
		"*":                                      "",
		"http:x":                                 "",
		"/":                                      "all",
		"/x":                                     "all",
		"/admin":                                 "all",
		"/adm/x":                                 "all",
		"/editor":                                "all",
		"/x/edit/y":                              "all",
		"/team/settings":                         "all",
		"/team/1/2/settings":                     "all",
		"/x//y":                                  "all",
		"/x/../y":                                "all",
		"/x;y/z":                                 "all",
		"/files/100%25.pdf":                      "all",
		"/files/What%3F.pdf":                     "all",
		"/files/My%20File%231":                   "all",
		"/files/e%CC%81t%C3%A9":                  "all", // the first é in two characters
		"/files/m%C2%B2":                         "all",
		"/projects/a%2Fadm":                      "all",
		"/" + strings.Repeat("x/", 2000):         "all",
	} {
		u, err := url.ParseRequestURI(uri)
		must(t, err)
		if got := rules.mayOpen(u); got != want {
			t.Errorf("%.60s: got %q, want %q", uri, got, want)
		}
		if want != "all" && rules.IsPublic(u) {
			t.Errorf("%.60s is public", uri)
		}
	}
	const odd = "/x%00"
	for _, test := range []struct {
		uri   string
		rules []Role
		want  string
	}{
		{"/admin/x", []Role{{"user", []string{"/*"}}, {"admin", []string{"/admin/*"}}}, "user admin"},
		{"/articles/..%2fadmin/x", []Role{{"editor", []string{"/articles/*"}}, {"admin", []string{"/articles/*", "/admin/*"}}}, "admin"},
		{"/users/7/Settings/a/b", []Role{{"admin", []string{"/users/*/settings/*"}}}, "admin"},
		{"/users/7/settings", []Role{{"admin", []string{"/users/*/settings/*"}}}, "admin"},
		{"/users/7/8/settings/a", []Role{{"admin", []string{"/users/*/settings/*"}}}, "all"},
		{"/users/7/settings/a/b", []Role{{"admin", []string{"/users/*/settings*"}}}, "admin"},
		{"/users/7/settings/a/b", []Role{{"admin", []string{"/users/*/settings"}}}, "all"},
		{"/team/a/x/y", []Role{{"admin", []string{"/team/[ab]/*"}}}, "admin"},
		{"/team/c/x/y", []Role{{"admin", []string{"/team/[ab]/*"}}}, "all"},
		{odd, []Role{{"admin", []string{"/admin/*", "/x"}}}, "admin"},
		{odd, []Role{{"admin", []string{"/admin/*"}}, {"admin", []string{"/x"}}}, "admin"},
		{odd, []Role{{"admin", []string{"/admin/*"}}, {"editor", []string{"/edit/*"}}}, ""},
		{odd, []Role{{"admin", []string{"/*"}}, {"editor", []string{"/edit/*", "/x/[ab]"}}}, "admin"},
		{odd, []Role{{"admin", []string{"*"}}, {"editor", []string{"*.pdf", "/x?"}}}, "admin"},
		{odd, []Role{{"admin", []string{"/EDIT*"}}, {"editor", []string{"/edit/*"}}}, "admin"},
		{odd, []Role{{"admin", []string{"/x/?"}}, {"editor", []string{"/x/*"}}}, "editor"},
		{odd, []Role{{"admin", []string{"/x/*/y"}}, {"editor", []string{"/x/*/z"}}}, ""},
		{odd, []Role{{"admin", []string{"*x*"}}, {"editor", []string{"/[xy]"}}}, ""},
	} {
		if got := (&Rules{Role: test.rules}).mayOpen(parsed(t, test.uri)); got != test.want {
			t.Errorf("%s with %v: got %q, want %q", test.uri, test.rules, got, test.want)
		}
	}
}

// caddyMatches is Caddy's own path matcher.
func caddyMatches(t testing.TB, u *url.URL, patterns ...string) bool {
	t.Helper()
	m := caddyhttp.MatchPath(slices.Clone(patterns))
	must(t, m.Provision(caddy.Context{}))
	ctx := context.WithValue(context.Background(), caddy.ReplacerCtxKey, caddy.NewReplacer())
	matched, err := m.MatchWithError((&http.Request{URL: u}).WithContext(ctx))
	must(t, err)
	return matched
}

func TestPatternsAreThoseOfCaddysPathMatcher(t *testing.T) {
	patterns := []string{"*", "/*", "/a", "/a*", "/a/*", "*a", "*/a", "*a*", "/a/*/b", "/a*b*", "*a*b*", "/?", "/[ab]", "/[^a]/b", "/a/*.b"}
	sent := []string{"/", "/a", "/b", "/a/", "/ab", "/a/b", "/b/a", "/c/b", "/a/x/b", "/a/x/y/b", "/a/x.b", "/a/x/y.b", "/xax", "/a/c/b/d"}
	for _, pattern := range patterns {
		if err := CheckPatterns([]string{pattern}); err != nil {
			t.Error(err)
		}
		for _, p := range sent {
			if got, want := Matches(pattern, p), caddyMatches(t, &url.URL{Path: p}, pattern); got != want {
				t.Errorf("%s matches %s: %v, want %v", pattern, p, got, want)
			}
		}
	}
}

// The store keeps the paths of a token as lines, and PostgreSQL keeps no NUL.
func TestTokenPathsHaveNoControlCharacters(t *testing.T) {
	for c := range rune(0xa0) {
		for _, pattern := range []string{"/a" + string(c), "*" + string(c), "/[" + string(c) + "]", "/a" + string(c) + "/*"} {
			if unicode.IsControl(c) && CheckToken([]string{pattern}) == nil {
				t.Errorf("%q is accepted", pattern)
			}
		}
	}
}

// readingsOf returns what any application may take a path for: each of these
// steps may come at any time.
func readingsOf(sent string) []string {
	const enough = 3000
	all := map[string]bool{sent: true}
	for todo := []string{sent}; len(todo) > 0 && len(all) < enough; todo = todo[1:] {
		p := todo[0]
		next := []string{
			strings.ReplaceAll(p, `\`, "/"),
			strings.ReplaceAll(p, "//", "/"),
			path.Clean("/" + p),
			path.Clean("/"+p) + "/",
			norm.NFKC.String(p),
			norm.NFC.String(p),
			new(url.URL).ResolveReference(&url.URL{Path: p}).Path,
			strings.ToLower(p),
		}
		if decoded, err := url.PathUnescape(p); err == nil {
			next = append(next, decoded)
		}
		if cut := strings.IndexAny(p, "?#\x00\n"); cut >= 0 {
			next = append(next, p[:cut])
		}
		segments := strings.Split(p, "/")
		for i, s := range segments {
			s, _, _ = strings.Cut(s, ";")
			segments[i] = s
		}
		next = append(next, strings.Join(segments, "/"))
		for i, s := range segments {
			if s != "." && s != ".." {
				segments[i] = strings.TrimRight(s, ". ")
			}
		}
		next = append(next, strings.Join(segments, "/"))
		for _, p := range next {
			if !all[p] {
				all[p] = true
				todo = append(todo, p)
			}
		}
	}
	var list []string
	for p := range all {
		list = append(list, p)
	}
	return list
}

// judge compares what is decided of a path with all that it can be read as.
func (rules *Rules) judge(t *testing.T, uri string) {
	t.Helper()
	u, err := url.ParseRequestURI(uri)
	if err != nil || u.Opaque != "" || u.Path == "" {
		return
	}
	public := rules.IsPublic(u)
	fresh, _, _ := rules.Needs(u)
	needsRole, roles := rules.rolesOf(u)
	if public && !caddyMatches(t, u, rules.Public...) {
		t.Errorf("%q is public, but not by Caddy's matcher", uri)
	}
	for _, reading := range readingsOf(u.EscapedPath()) {
		bare := strings.TrimSuffix(reading, "/")
		isPublic := func(pattern string) bool { return Matches(pattern, bare) || Matches(pattern, bare+"/") }
		if public && !slices.ContainsFunc(rules.Public, isPublic) {
			t.Errorf("%q is public, and can be read as %q", uri, reading)
		}
		lower := strings.ToLower(reading)
		needs := slices.ContainsFunc(rules.Fresh, func(f Fresh) bool {
			return slices.ContainsFunc(f.Paths, func(pattern string) bool { return Matches(pattern, lower) })
		})
		if needs && (public || fresh == 0) {
			t.Errorf("%q needs no fresh login, and can be read as %q", uri, reading)
		}
		if slices.ContainsFunc(rules.MFA, func(pattern string) bool { return Matches(pattern, lower) }) && (public || !rules.needsMFA(u)) {
			t.Errorf("%q needs one factor, and can be read as %q", uri, reading)
		}
		rules.judgeRoles(t, uri, lower, public, needsRole, roles)
	}
}

// judgeRoles checks that nobody may open a path with a role that is not enough for one
// of its readings.
func (rules *Rules) judgeRoles(t *testing.T, uri, reading string, public, needed bool, roles []string) {
	t.Helper()
	enough := func(r Role) bool {
		return slices.ContainsFunc(r.Paths, func(pattern string) bool { return covers(pattern, reading) })
	}
	if !slices.ContainsFunc(rules.Role, func(r Role) bool {
		return slices.ContainsFunc(r.Paths, func(pattern string) bool { return Matches(strings.ToLower(pattern), reading) })
	}) {
		return
	}
	if public || !needed {
		t.Errorf("%q needs no role, and can be read as %q", uri, reading)
	}
	for _, role := range roles {
		if !slices.ContainsFunc(rules.Role, func(r Role) bool { return record.EscapeProfile(r.Role) == role && enough(r) }) {
			t.Errorf("%q may open %q, and it can be read as %q", role, uri, reading)
		}
	}
}

func FuzzReadings(f *testing.F) {
	for _, seed := range []string{
		"/PAY/x", "/open/..;/pay/x", "/open/%2e%2e/open/till",
		"/open/x", "/open/../account/x", "/open/%2e%2e/account/x", "/open/..;/account/x", "/open/%252e%252e%252faccount/x", `/open\..\account\x`,
		"/open//vault/x", "/health%00/../account/", "/account/%3f.css", "/account/x;.css", "/OPEN/VAULT/%EF%BC%8E.", "/open/vault./x", "/%C5%BFx/logo",
		"/admin;a/x", "/x/..;/adm", `/edit\x`, "/edit/..%2fadm", "/edit//../adm", "/docs/drafts%2f..%2fteam/x/settings", "/team///settings", "/%2561dm;%3f",
		"/docs/%2f/index.html", "/;%2f.css", "/%3b%5c.css", "/;%5cindex.html/account", "/account;",
	} {
		f.Add(seed)
	}
	rules := reader()
	f.Fuzz(func(t *testing.T, uri string) {
		if len(uri) <= 60 {
			rules.judge(t, uri)
		}
	})
}

// What an attacker would try, put together in any order.
func TestOddPathsAreReadCarefully(t *testing.T) {
	parts := []string{
		"/edit", "/adm", "/pay/", "/till", "/team", "/settings", "/drafts/", "/admins", "/open", "/OPEN", "/account", "/vault", "/delete", "/health", "/docs/", "index.html", "logo", ".css", "open", "account", "/x",
		"/", "//", "\\", ".", "..", "/..", "/.", ";", "%2e", "%2f", "%5c", "%3b", "%00", "%0a", "%20", "%25", "%252e", "%252f", "%3f", "%23",
		"A", "%6f", "%C3%A9", "%EF%BC%8E", "%EF%BC%8F", "%c0%ae", "%C5%BF",
	}
	rules, draw := reader(), rand.New(rand.NewPCG(1, 2))
	for range 5_000 {
		uri := "/"
		for range 1 + draw.IntN(6) {
			uri += parts[draw.IntN(len(parts))]
		}
		rules.judge(t, strings.Replace(uri, "//", "/", draw.IntN(2)))
	}
}
