package integration

import (
	"fmt"
	"strings"
	"testing"
)

// Protected paths answer as docs/api.md says.
func TestThePageTellsWhatProtectedPathsAnswer(t *testing.T) {
	t.Parallel()
	shown := section(t, "docs/api.md", "Protected paths")
	s := startSite(t, siteConfig{company: people, handler: "cookie\nfresh 1s /account"})
	old := s.login("frank")
	s.eventually("login that is too old", func() bool { return s.ask("GET", "/account", bearer(old)).Status != 200 })
	step := s.post("auth/login", "", fields{"login_id": "alice@example.com"}).token()
	asked := func(headers string) answer { return s.ask("GET", "/account", headers) }
	for _, got := range []answer{
		asked(""),
		asked(bearer("mgs_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA")),
		asked("Authorization: Basic YTpi\r\n"),
		asked(bearer(old) + bearer(old)),
		s.ask("POST", "/", "Cookie: __Host-mnemogate="+old+"\r\n"),
		asked(bearer(step)),
		asked(bearer(old)),
		s.ask("TRACE", "/", bearer(old)),
	} {
		var row string
		for line := range strings.Lines(shown) {
			if strings.Contains(line, "`"+got.str("error_code")+"`") && strings.Contains(line, fmt.Sprintf("| %d |", got.Status)) {
				row = line
			}
		}
		if reason := got.str("reason"); row == "" || reason != "" && !strings.Contains(row, "`"+reason+"`") {
			t.Errorf("the page does not tell of %d %s", got.Status, got.Body)
		}
		if got.str("reason") == "too_old" && !strings.Contains(got.Header.Get("WWW-Authenticate"), `max_age="1"`) {
			t.Errorf("got %v", got.Header)
		}
	}
}
