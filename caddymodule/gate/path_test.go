package gate

import (
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/mnemogate/mnemogate/caddymodule/app"
	"github.com/mnemogate/mnemogate/caddymodule/gate/paths"
)

// Contract, 2: a route has one spelling; any other is a 404 where it would fall
// under an auth prefix once decoded and cleaned, and a protected path otherwise.
func TestRoutesHaveOneSpelling(t *testing.T) {
	const long = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa" // 64
	tests := []struct {
		path string
		want targetKind
	}{
		{"/acme/v2/auth/login", authRoute},
		{"/acme/v2/auth/recovery/checklink", authRoute},
		{"/nobody/v2/auth/login", authRoute}, // whether there is such a company is for the key to say
		{"/A-z_0/v2/auth/logout", authRoute},
		{"/acme/v2/openapi.json", apiDocument},
		{"/nobody/v2/openapi.json", apiDocument},
		{"/acme/v2/captcha", challenge},
		{"/nobody/v2/captcha", challenge},
		{"/acme/v2/client.js", clientModule},
		{"/acme/v2/client.d.ts", clientModule},
		{"/acme/v2/client.js/", protectedPath},
		{"/acme/v2/jwks.json", keySet},
		{"/nobody/v2/jwks.json", keySet},
		{"/acme/v2/jwks.json/", protectedPath},
		{"/acme/v2/JWKS.json", protectedPath},
		{"/acme/v2/jwks%2ejson", protectedPath},
		{"/acme//v2/jwks.json", protectedPath},
		{"/acme/v2/auth/jwks.json", noAuthRoute},
		{"/acme/login", loginPage},
		{"/acme/logout", logoutPage},
		{"/acme/v2/page/1/page.css", pageFile},
		{"/acme/login/", protectedPath},
		{"/acme/Login", protectedPath},
		{"/acme/%6cogin", protectedPath},
		{"/acme/login;x", protectedPath},
		{"//acme/login", protectedPath},
		{"/acme/v2/page", protectedPath},
		{"/acme/v2/page/../../profile", protectedPath},
		{"/acme/v2/page/%2e%2e/auth/login", noAuthRoute},
		{"/acme/v2/page/../auth/login", noAuthRoute},
		{"/acme/v2/client.d.js", protectedPath},
		{"/acme/v2/auth/client.js", noAuthRoute},
		{"/acme/v2/openapi.json/", protectedPath},
		{"/acme/v2/openapi%2ejson", protectedPath},
		{"/acme/v2/OpenAPI.json", protectedPath},
		{"/acme/v2/auth/openapi.json", noAuthRoute},
		{"/acme//v2/openapi.json", protectedPath},
		{"/acme/v2/./openapi.json", protectedPath},
		{"/a.b/v2/openapi.json", protectedPath},
		{"/openapi.json", protectedPath},
		{"/" + long + "/v2/auth/login", authRoute},

		{"/acme/v2/auth/", noAuthRoute},
		{"/acme/v2/auth/.", noAuthRoute},
		{`/acme/v2/auth\/.`, noAuthRoute},
		{"/acme/v2/auth/none", noAuthRoute},
		{"/acme/v2/auth/Login", noAuthRoute},
		{"/acme/v2/auth/login/", noAuthRoute},
		{"/acme/v2/auth/login/more", noAuthRoute},
		{"/acme/v2/auth/login;x", noAuthRoute},
		{"/acme/v2/auth/recovery", noAuthRoute},
		{"/acme/v2/auth/recovery/login", noAuthRoute},
		{"/acme/v2/auth/auth/login", noAuthRoute},
		{"/acme/v2/auth/%6cogin", noAuthRoute},
		{"/acme/v2/auth/login%00", noAuthRoute},
		{"/acme/v2/auth/login%2f", noAuthRoute},
		{"/acme/v2/auth%2flogin", noAuthRoute},
		{"/acme/v2/auth%5clogin", noAuthRoute},
		{`/acme/v2/auth\login`, noAuthRoute},
		{`\acme\v2\auth\login`, noAuthRoute},
		{"/acme%2fv2%2fauth%2flogin", noAuthRoute},
		{"/%61cme/v2/auth/login", noAuthRoute},
		{"//acme/v2/auth/login", noAuthRoute},
		{"/acme/v2/auth//login", noAuthRoute},
		{"/./acme/v2/auth/login", noAuthRoute},
		{"/acme/v2/auth/./login", noAuthRoute},
		{"/acme/v2/x/../auth/login", noAuthRoute},
		{"/acme/v2/x/%2e%2e/auth/login", noAuthRoute},
		{"/x/../acme/v2/auth/login", noAuthRoute},
		{"/acme/v2/auth/recovery/../login", noAuthRoute},
		{"/acme;x/v2/auth/login", noAuthRoute},
		{"/x/..;/acme/v2/auth/login", noAuthRoute},
		{"/acme%00/v2/auth/login", noAuthRoute},
		{`/x\y/../acme/v2/auth/login`, noAuthRoute},
		{`/acme/v2/x\y/../auth/login`, noAuthRoute},
		{"/acme/v2/x%2fy/../auth/login", noAuthRoute},
		{"/acme/v2/auth%2f..", noAuthRoute},
		{"/acme/v2/..;/..%00/auth/login", noAuthRoute},

		{"", protectedPath},
		{"/", protectedPath},
		{"*", protectedPath},
		{"acme/v2/auth/login", protectedPath},
		{"/acme", protectedPath},
		{"/acme/v2/auth", protectedPath},
		{"/acme/v2/authx/login", protectedPath},
		{"/acme/v2/auth%20/login", protectedPath},
		{"/acme/V2/auth/login", protectedPath},
		{"/acme/v2/AUTH/login", protectedPath},
		{"/acme/v1/auth/login", protectedPath},
		{"/v2/auth/login", protectedPath},
		{"/x/acme/v2/auth/login", protectedPath},
		{"/ac.me/v2/auth/login", protectedPath},
		{"/ac%20me/v2/auth/login", protectedPath},
		{"/%C3%A9/v2/auth/login", protectedPath},
		{"/" + long + "a/v2/auth/login", protectedPath},
		{"/acme/v2%252fauth%252flogin", protectedPath}, // decoded once
		{"/acme/v2/auth/../login", protectedPath},
		{"/acme/v2/auth/%2e%2e/%2e%2e/x", protectedPath},
		{`/acme/v2/..\x`, protectedPath},
		{"/auth/..%2fv2/x", protectedPath},
		{"/acme/v2%2f../auth", protectedPath},
	}
	for _, test := range tests {
		for _, base := range []string{"", "/api", "/a/b.c"} {
			if base != "" && !strings.HasPrefix(test.path, "/") && test.path != "" {
				continue
			}
			if got := classify(base, base+test.path); got.kind != test.want {
				t.Errorf("base %q, path %q: got %v, want %v", base, base+test.path, got.kind, test.want)
			}
		}
	}
}

func TestBasePathBoundsTheRoutes(t *testing.T) {
	tests := []struct {
		path string
		want targetKind
	}{
		{"/api/acme/v2/auth/login", authRoute},
		{"/acme/v2/auth/login", protectedPath},
		{"/apiacme/v2/auth/login", protectedPath},
		{"/API/acme/v2/auth/login", protectedPath},
		{"/api/api/acme/v2/auth/login", protectedPath},
		{"/api", protectedPath},
		{"//api/acme/v2/auth/login", noAuthRoute},
		{"/%61pi/acme/v2/auth/login", noAuthRoute},
		{"/x/../api/acme/v2/auth/login", noAuthRoute},
		{"/api/../acme/v2/auth/login", protectedPath},
		{"/api%2facme/v2/auth/login", noAuthRoute},
	}
	for _, test := range tests {
		if got := classify("/api", test.path); got.kind != test.want {
			t.Errorf("%q: got %v, want %v", test.path, got.kind, test.want)
		}
	}
	if got := classify("", "/../acme/v2/auth/login"); got.kind != noAuthRoute {
		t.Errorf("above the root: got %v", got.kind)
	}
	if got := classify("/api", "/acme/x"); got.company != "" || got.others != nil {
		t.Errorf("outside the base there are no companies: got %q, %q", got.company, got.others)
	}
}

// Where an upstream could read another company's path than it is written, the
// token must be that company's, too.
func TestPathsNameTheCompaniesThatAnUpstreamMayRead(t *testing.T) {
	h := &Handler{app: &app.App{Companies: map[string]*app.Company{"acme": {}, "umbra": {}}}}
	tests := []struct {
		path      string
		company   string
		ambiguous bool
	}{
		{"/acme/x", "acme", false},
		{"/acme", "acme", false},
		{"/ACME/x", "", false},
		{"/x/acme", "", false},
		{"/x%20y/acme/umbra", "", false},
		{"/acme/a%20b/umbra", "acme", false},
		{"/acme//umbra", "acme", false},
		{"/acme/.well-known/umbra", "acme", false},
		{"//acme/x", "acme", false},
		{"/./acme/x", "acme", false},
		{"/%61cme/x", "acme", false},
		{"/acme;v=1/x", "acme", false},
		{"/acme%3bv/x", "acme", false},
		{"/acme%00/x", "acme", false},
		{`/\acme\x`, "acme", false},
		{"/%2facme", "acme", false},
		{"//x//y", "", false},
		{"/x/../acme/y", "acme", false},
		{"/x/%2e%2e/acme", "acme", false},
		{"/acme/x/../y", "acme", false},
		{"/acme/../umbra/x", "acme", true},
		{"/acme/%2e%2e/umbra/x", "acme", true},
		{"/acme/..%2fumbra/x", "acme", true},
		{"/acme/..;/umbra/x", "acme", true},
		{`/acme\..\umbra`, "acme", true},
		{"/umbra%2fx/../acme/y", "umbra", true}, // to whom does not decode %2f, acme's
		{"/x/..//umbra/../acme", "umbra", true},
	}
	for _, test := range tests {
		company, ambiguous := h.named(classify("", test.path))
		if ambiguous != test.ambiguous || company != test.company && !ambiguous {
			t.Errorf("%q: got %q, ambiguous %v; want %q, %v", test.path, company, ambiguous, test.company, test.ambiguous)
		}
	}
}

func slashed(p string) string { return strings.ReplaceAll(p, `\`, "/") }

func FuzzClassify(f *testing.F) {
	for _, seed := range []string{
		"/acme/v2/auth/login", "/api/acme/v2/auth/login", "//acme/v2/auth/login", "/acme/v2/auth/recovery/checkotp",
		"/x/../acme/v2/auth/login", "/acme%2fv2/auth%5clogin", "/acme;x/v2/auth/;/..;/login", "/acme/v2/auth/..%2f",
		"/%61cme/%76%32/auth/%00", "/acme/v2/auth/.", `/\acme\v2\..\umbra`, `/0\0/../0/v2/auth/`, "http:acme/v2/auth/login", "http://h/acme/v2/auth/x", "*",
	} {
		f.Add(seed, false)
		f.Add(seed, true)
	}
	prefix := regexp.MustCompile(`^/([A-Za-z0-9_-]{1,64})/v2/auth/`)
	f.Fuzz(func(t *testing.T, uri string, based bool) {
		u, err := url.ParseRequestURI(uri)
		if err != nil {
			return
		}
		base := ""
		if based {
			base = "/api"
		}
		got := targetOf(base, u)
		sent := u.EscapedPath()
		if got.kind == authRoute && (u.Opaque != "" || sent != base+"/"+got.company+"/v2/"+got.route.Path || !prefix.MatchString(sent[len(base):])) {
			t.Errorf("%q is taken for the route %s of %q", uri, got.route.Path, got.company)
		}
		unescaped := func(p string) string {
			decoded, err := url.PathUnescape(p)
			must(t, err)
			return decoded
		}
		readings := []string{sent, unescaped(sent), unescaped(paths.Clean(sent))} // some resolve dots before they decode
		for _, r := range readings[1:] {
			readings = append(readings, slashed(r), slashed(paths.Clean(r)))
		}
		for _, reading := range readings {
			cleaned := paths.Clean(reading)
			below, ok := strings.CutPrefix(cleaned, base)
			if ok && prefix.MatchString(below) && got.kind == protectedPath && u.Opaque == "" && reading != sent {
				t.Errorf("%q can be read as %q and is let through", uri, cleaned)
			}
			if first, _, _ := strings.Cut(strings.TrimPrefix(below, "/"), "/"); ok && strings.HasPrefix(below, "/") && app.IsCompanyCode(first) &&
				got.kind == protectedPath && first != got.company && !slices.Contains(got.others, first) {
				t.Errorf("%q can be read as a path of %q and is taken for %q's, %q", uri, first, got.company, got.others)
			}
		}
	})
}
