package integration

import (
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The configuration that docs/backends.md shows for development makes every request
// one of the same user.
func TestThePageShowsHowToDevelopWithoutIt(t *testing.T) {
	t.Parallel()
	need(t, "curl")
	shown := section(t, "docs/backends.md", "Developing without it")
	_, site, _ := strings.Cut(blocks(shown, "caddyfile")[0], "{\n")
	site = strings.TrimSuffix(strings.TrimSpace(site), "}")
	s := startSite(t, siteConfig{company: "captcha off", site: strings.ReplaceAll(site, "localhost:9000", "BACKEND")})
	check := func(how string) {
		t.Helper()
		requests := s.backend.requests()
		got := linesNamed(requests[len(requests)-1], "X-Profile-Mnemocode", "X-Company-Code", "Authorization")
		if want := []string{"X-Company-Code: acme", "X-Profile-Mnemocode: alice-0001"}; !slices.Equal(got, want) {
			t.Errorf("%s: the application got %q, want %q", how, got, want)
		}
	}
	s.ask("GET", "/profile", "X-Profile-Mnemocode: bob\r\nAuthorization: Bearer x\r\n").wantStatus(200)
	check("a browser")
	steps := consoleSteps(shown)
	if len(steps) != 1 {
		t.Fatalf("the page shows %d commands", len(steps))
	}
	if out, err := exec.Command("sh", "-c", strings.ReplaceAll(steps[0].command, "localhost:9000", s.backend.addr)).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	check("curl")
}

func TestThePageShowsIntrospection(t *testing.T) {
	t.Parallel()
	need(t, "curl")
	s := accountsSite(t, startSite, "key stats key-of-statistics {\nmay introspect\n}", siteConfig{company: strings.ReplaceAll(zed, "zed", "alice")})
	token := s.login("alice")
	anew := regexp.MustCompile(`\b[0-9a-f]{32}\b|\b\d{10}\b`)
	for _, step := range consoleSteps(section(t, "docs/backends.md", "Introspection")) {
		out, err := exec.Command("sh", "-c", "api="+s.URL+"/api\nSTATS_KEY=key-of-statistics\ntoken="+token+"\n"+step.command).CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", step.command, err, out)
		}
		step.compare(t, string(out), anew)
	}
}
