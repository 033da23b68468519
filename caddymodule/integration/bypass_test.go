package integration

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// Weaknesses of routes are reported at each start and by doctor. Settings that are valid
// but hardly intended are also reported by caddy validate and after a reload, with their
// line.
func TestTrapsAreToldByValidateAtStartAndByDoctor(t *testing.T) {
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
	s.doctor(0, warning, "put it before every reverse_proxy to that address")

	type trap struct{ at, message, advice string }
	for site, traps := range map[string][]trap{
		"reverse_proxy BACKEND": {{"mnemogate {", "mnemogate: no site has the directive mnemogate", "write it into the site"}},
		"mnemogate {\npublic /health /* */* /a,/b\nrole admin,editor /c\n}\nreverse_proxy BACKEND": {
			{"public /health", "public: /* is every path", "name the public paths"},
			{"public /health", "public: */* is every path", "name the public paths"},
			{"public /health", "public: /a,/b is one word with a comma in it", "separate paths by spaces"},
			{"role admin", "role: admin,editor is one word with a comma in it", "each role a line of its own"},
		},
		"@bad remote_ip 192.0.2.1\nabort @bad\nmnemogate {\ncheck /check\n}\nreverse_proxy 192.0.2.1:9000": {
			{"mnemogate {\ncheck", "mnemogate: 192.0.2.1:9000 is on another machine", "add assertion <audience>"},
			{"mnemogate {\ncheck", "mnemogate: abort with a matcher comes after it", "route { abort"},
		},
	} {
		before := s.log()
		must(t, s.reload(siteConfig{company: people, site: site}))
		valid, err := s.caddy("validate", "--config", s.dir+"/Caddyfile").CombinedOutput()
		if err != nil {
			t.Errorf("%v: %s", err, valid)
		}
		doctor := s.cli("", "doctor").out
		for _, trap := range traps {
			if strings.Contains(before, trap.message) {
				t.Errorf("%s: it is told before", trap.message)
			}
			begun, _, _ := strings.Cut(s.config, trap.at)
			at := fmt.Sprintf("%s/Caddyfile:%d", s.dir, 1+strings.Count(begun, "\n"))
			for by, said := range map[string]string{"caddy validate": string(valid), "the log": s.log()} {
				if !strings.Contains(said, trap.message) || !strings.Contains(said, `"at":"`+at+`"`) || !strings.Contains(said, trap.advice) {
					t.Errorf("%s does not tell of %s:\n%s", by, at, said)
				}
			}
			_, message, _ := strings.Cut(trap.message, ": ")
			if !strings.Contains(doctor, message) || !strings.Contains(doctor, ", at "+at+"\n") || !strings.Contains(doctor, trap.advice) {
				t.Errorf("doctor tells %s", doctor)
			}
		}
	}
}

// Caddy itself refuses some requests before any route, and runs handle_errors for them
// with the headers that the client sent. The warning tells of that, and its advice closes
// it.
func TestRequestsThatCaddyRefusesReachErrorPagesWithoutTheirIdentity(t *testing.T) {
	t.Parallel()
	const forged, warning = "X-Profile-Mnemocode: victim\r\nX-Company-Code: acme\r\nConnection: close\r\n\r\n", "reach BACKEND from handle_errors"
	errors := func(more string) string {
		return `
			mnemogate
			reverse_proxy BACKEND
			handle_errors {
				rewrite * /errors/{err.status_code}
				` + more + `
				reverse_proxy BACKEND
			}`
	}
	s := startSite(t, siteConfig{company: people, site: errors("")})
	warned := func() bool { return strings.Contains(s.log(), strings.Replace(warning, "BACKEND", s.backend.addr, 1)) }
	if !warned() {
		t.Error("the log does not tell")
	}
	refused := []string{
		"GET /admin HTTP/1.1\r\nHost: ...\r\n" + forged,
		strings.Repeat("LONG", 9) + " /admin HTTP/1.1\r\nHost: example.com\r\n" + forged,
	}
	check := func(t *testing.T, path string, identity []string) {
		for _, raw := range refused {
			got := s.seen(func() { s.spill(raw) })
			if len(got) != 1 || !strings.Contains(got[0], path) || !slices.Equal(toldOf(got[0]), identity) {
				t.Errorf("%.40q: the application got %q", raw, got)
			}
		}
	}
	s.run("in the open", func(t *testing.T) {
		check(t, " /errors/40", []string{"x-company-code: acme", "x-profile-mnemocode: victim"})
	})
	s.clearLog()
	must(t, s.reload(siteConfig{company: people, site: errors("mnemogate {\npublic /errors/*\n}")}))
	s.run("guarded again", func(t *testing.T) {
		check(t, " /errors/40", nil)
		if warned() {
			t.Error("it is still told")
		}
	})
}
