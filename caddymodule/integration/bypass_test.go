package integration

import (
	"fmt"
	"strings"
	"testing"
)

// Weaknesses of routes are reported at each start and by doctor.
func TestRoutesAreToldOfAtStartAndByDoctor(t *testing.T) {
	t.Parallel()
	s := startSite(t, siteConfig{company: people, site: `
		handle /public/* {
			reverse_proxy BACKEND
		}
		handle {
			mnemogate
			reverse_proxy BACKEND
		}`})
	warning := "requests may also reach " + s.backend.addr + " without it, with whatever identity headers the client sent"
	if !strings.Contains(s.log(), warning) {
		t.Error("the log does not tell")
	}
	if got := s.cli("", "doctor").out; !strings.Contains(got, warning) || !strings.Contains(got, "put it before every reverse_proxy to that address") {
		t.Errorf("doctor tells %s", got)
	}
}

// Settings that are valid but hardly intended are reported by caddy validate, at
// each start, after a reload, and by doctor, with their line.
func TestTrapsAreToldByValidateAtStartAndByDoctor(t *testing.T) {
	t.Parallel()
	lineOf := func(s *site, text string) string {
		before, _, _ := strings.Cut(s.config, text)
		return fmt.Sprintf("%s/Caddyfile:%d", s.dir, 1+strings.Count(before, "\n"))
	}
	for _, c := range []struct{ name, site, at, message, advice string }{
		{"no directive", "reverse_proxy BACKEND", "mnemogate {", "mnemogate: no site has the directive mnemogate", "write it into the site"},
		{"a check without trusted_proxies", "mnemogate {\ncheck /check\n}\nreverse_proxy BACKEND", "check /check", "check: the server trusts no proxy", "trusted_proxies"},
		{"everything public", "mnemogate {\npublic /health /*\n}\nreverse_proxy BACKEND", "public /health", "public: /* is every path", "name the public paths"},
		{"a backend that others may reach", "mnemogate\nreverse_proxy 192.0.2.1:9000", "mnemogate\n", "mnemogate: 192.0.2.1:9000 is on another machine", "add assertion <audience>"},
		{"a shield behind", "@bad remote_ip 192.0.2.1\nabort @bad\nmnemogate\nreverse_proxy BACKEND", "mnemogate\n", "mnemogate: abort with a matcher comes after it", "route { abort"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := startSite(t, siteConfig{company: people})
			if strings.Contains(s.log(), c.message) {
				t.Fatal("it is told before")
			}
			if err := s.reload(siteConfig{company: people, site: c.site}); err != nil {
				t.Fatal(err)
			}
			at := lineOf(s, c.at)
			valid, err := s.caddy("validate", "--config", s.dir+"/Caddyfile").CombinedOutput()
			if err != nil {
				t.Errorf("%v: %s", err, valid)
			}
			for by, said := range map[string]string{"caddy validate": string(valid), "the log": s.log()} {
				if !strings.Contains(said, c.message) || !strings.Contains(said, `"at":"`+at+`"`) || !strings.Contains(said, c.advice) {
					t.Errorf("%s does not tell of %s:\n%s", by, at, said)
				}
			}
			_, message, _ := strings.Cut(c.message, ": ")
			if got := s.cli("", "doctor").out; !strings.Contains(got, message) || !strings.Contains(got, ", at "+at+"\n") || !strings.Contains(got, c.advice) {
				t.Errorf("doctor tells %s", got)
			}
		})
	}
}
