package integration

import (
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

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
