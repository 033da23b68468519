package integration

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// If all users come from a proxy that Caddy does not trust, they reach the limits of one
// address. The log and doctor then name the proxy, once.
func TestAProxyThatIsNotTrustedIsNamed(t *testing.T) {
	t.Parallel()
	need(t, "promtool", "jq")
	const warning = "127.0.0.1 reached a limit, and its requests have "
	for name, servers := range map[string]string{
		"X-Forwarded-For": "",
		"Forwarded":       "trusted_proxies static 127.0.0.1/32", // a header that Caddy does not read
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := siteConfig{audit: true, company: "captcha off\n" + account("alice", ""), global: "limits {\nlogins_per_address 4/1h\n}", servers: servers}
			s := startSite(t, c)
			login := func(header, client string) answer {
				r := s.postRequest("acme", testKey, "auth/checkcredentials", "", fields{"login_id": "alice", "password": testPassword})
				if header != "" {
					r.Header.Set(header, client)
				}
				return s.do(r)
			}
			before := s.scrape()
			for i := range 4 {
				login(name, fmt.Sprint("198.51.100.", i)).wantState(record.Authorized)
			}
			login("", "").want(wire.ErrRestricted) // a client without a proxy
			s.cli("", "doctor").want(0)
			s.wantNoneLogged(warning)
			for i := range 50 {
				login(name, fmt.Sprint("198.51.100.", i)).want(wire.ErrRestricted)
			}
			s.tells(warning + name)
			s.cli("", "doctor").want(0, "warning  trusted_proxies ", warning+name, "list it in trusted_proxies and name")
			if n := strings.Count(s.log(), warning); n != 1 {
				t.Errorf("the log has %d warnings", n)
			}
			if name == "X-Forwarded-For" {
				wantAlerts(t, before, s.scrape(), "MnemogateLoginsRefused", "MnemogateUsersLimited")
				s.runConsoles(strings.ReplaceAll(section(t, "docs/runbook.md", refusedTogether), "10.0.0.5", "127.0.0.1"), regexp.MustCompile(`^$`))
			}
			c.servers = "trusted_proxies static 127.0.0.1/32\nclient_ip_headers " + name
			must(t, s.reload(c))
			if name == "X-Forwarded-For" {
				login(name, "198.51.100.1").wantState(record.Authorized)
			}
			if out := s.cli("", "doctor").want(0).out; strings.Contains(out, warning) {
				t.Errorf("after the reload, doctor says\n%s", out)
			}
		})
	}
}
