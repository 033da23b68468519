package gate

import (
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/mnemogate/mnemogate/caddymodule/page"
	"github.com/mnemogate/mnemogate/flows"
)

// docs/backends.md lists the paths that no application ever sees: there is no kind of
// path, and no path of one, that it does not have.
func TestThePageListsOurOwnPaths(t *testing.T) {
	text, err := os.ReadFile("../../docs/backends.md")
	must(t, err)
	_, list, _ := strings.Cut(string(text), "<!-- own paths -->\n")
	list, _, _ = strings.Cut(list, "<!-- end of own paths -->")
	var shown []string
	kinds := map[targetKind]bool{protectedPath: true}
	for _, found := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(list, -1) {
		name := found[1]
		if slices.Contains([]string{"login_page", "self_service", "assertion", "mfa", "fresh"}, name) {
			continue
		}
		shown = append(shown, name)
		tried := []string{name}
		if strings.HasSuffix(name, "/") {
			tried = append(tried, name+"x", name+"login")
		}
		for _, path := range tried {
			kind := targetOf("/api", &url.URL{Path: "/api/nobody/" + path}).kind
			if kind == protectedPath {
				t.Errorf("/nobody/%s reaches the application", path)
			}
			kinds[kind] = true
		}
	}
	want := []string{"v2/auth/", "v2/passkey/options", "v2/passkey/login", "v2/stepup", "v2/stepup/check", sessionPath, challengePath, clientPath, modulePath, typesPath, documentPath, selfPrefix, keySetPath, loginPath, logoutPath, securityPath, page.Prefix}
	slices.Sort(shown)
	slices.Sort(want)
	if !slices.Equal(shown, want) {
		t.Errorf("the page lists %q, want %q", shown, want)
	}
	for _, route := range flows.Routes {
		if !slices.ContainsFunc(shown, func(name string) bool {
			return "v2/"+route.Path == name || strings.HasSuffix(name, "/") && strings.HasPrefix("v2/"+route.Path, name)
		}) {
			t.Errorf("the page lacks v2/%s", route.Path)
		}
	}
	for kind := range pageFile + 1 {
		if !kinds[kind] {
			t.Errorf("the page has no path of kind %d", kind)
		}
	}
}
