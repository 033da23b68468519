package integration

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// If all users come from a proxy that Caddy does not trust, or that does not name them, they
// reach the limits of one address. The log and doctor then name the proxy, once.
func TestAProxyThatIsNotTrustedIsNamed(t *testing.T) {
	t.Parallel()
	need(t, "promtool", "jq")
	const warning = "127.0.0.1 reached a limit, and its requests have "
	const trusted = "trusted_proxies static 127.0.0.1/32"
	for name, test := range map[string]struct{ header, client, servers, warning, advice string }{
		"X-Forwarded-For":               {"X-Forwarded-For", "%s", "", "X-Forwarded-For, as those of a proxy do", "list it in trusted_proxies and name"},
		"Forwarded":                     {"Forwarded", "for=%s", "", "Forwarded, as those of a proxy do", "let it send X-Forwarded-For, since Caddy can't read Forwarded, and list it in trusted_proxies"},
		"trusted and silent":            {"Forwarded", "for=%s", trusted, "no X-Forwarded-For, though Caddy trusts it", "let it send X-Forwarded-For, or name the header"},
		"another header":                {"X-Forwarded-For", "%s", trusted + "\nclient_ip_headers CF-Connecting-IP X-Real-IP", "no CF-Connecting-IP and X-Real-IP, though Caddy trusts it", "let it send CF-Connecting-IP, or name the header"},
		"users in the proxies' network": {"X-Forwarded-For", "%s", trusted + " 198.51.100.0/24\ntrusted_proxies_strict", "X-Forwarded-For that names nobody else, or only addresses that trusted_proxies lists, too", "list only proxies there"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := siteConfig{audit: true, company: "captcha off\n" + account("alice", ""), global: "limits {\nlogins_per_address 4/1h\n}", servers: test.servers}
			s := startSite(t, c)
			client := func(i int) string { return fmt.Sprintf(test.client, fmt.Sprint("198.51.100.", i)) }
			login := func(header, client string) answer {
				r := s.postRequest("acme", testKey, "auth/checkcredentials", "", fields{"login_id": "alice", "password": testPassword})
				if header != "" {
					r.Header.Set(header, client)
				}
				return s.do(r)
			}
			before := s.scrape()
			for i := range 4 {
				login(test.header, client(i)).wantState(record.Authorized)
			}
			if test.servers == "" {
				login("", "").want(wire.ErrRestricted) // a client without a proxy
				s.doctor(0)
				s.wantNoneLogged(warning)
			}
			for i := range 50 {
				login(test.header, client(i)).want(wire.ErrRestricted)
			}
			s.tells(warning + test.warning)
			s.doctor(0, "warning  trusted_proxies ", warning+test.warning, test.advice)
			if n := strings.Count(s.log(), warning); n != 1 {
				t.Errorf("the log has %d warnings", n)
			}
			if name == "X-Forwarded-For" {
				wantAlerts(t, before, s.scrape(), "MnemogateLoginsRefused", "MnemogateUsersLimited")
				s.runConsoles(strings.ReplaceAll(section(t, "docs/runbook.md", refusedTogether), "10.0.0.5", "127.0.0.1"), regexp.MustCompile(`^$`))
			}
			c.servers = trusted + "\nclient_ip_headers X-Forwarded-For"
			must(t, s.reload(c))
			login("X-Forwarded-For", "198.51.100.1").wantState(record.Authorized)
			if out := s.doctor(0).out; strings.Contains(out, warning) {
				t.Errorf("after the reload, doctor says\n%s", out)
			}
		})
	}
}

// The audit log and the metrics let operators distinguish an address that many users
// share from one of an attacker. A reload forgets nothing that they tell.
func TestOperatorsCanTellASharedAddressFromAnAttacker(t *testing.T) {
	t.Parallel()
	const users = 8
	var accounts strings.Builder
	for i := range users {
		accounts.WriteString(account(fmt.Sprint("user", i), ""))
	}
	company := func(limits string) string {
		return "captcha off\nlimits {\nlock_after 100\n" + limits + "\n}\n" + accounts.String()
	}
	c := siteConfig{
		company: company("logins_per_address 8/1h"),
		more:    "company other {\napi_key " + testKey + "\n" + company("logins_per_address unlimited\nfailures_per_address 8/1h") + "}",
	}
	s := startSite(t, c)
	for i := range users {
		s.credentials(fmt.Sprint("user", i), testPassword).wantState(record.Authorized)
	}
	for range 2 {
		must(t, s.reload(c))
		s.credentials("user1", testPassword).want(wire.ErrRestricted)
	}
	for i := range users {
		s.postTo("other", testKey, "auth/checkcredentials", "", fields{"login_id": fmt.Sprint("user", i), "password": "wrong"}).want(wire.ErrCredentialsInvalid)
	}
	s.postTo("other", testKey, "auth/checkcredentials", "", fields{"login_id": "user1", "password": testPassword}).want(wire.ErrRestricted)

	metrics := s.scrape()
	for labels, want := range map[string]float64{
		`company="acme",kind="users",reason="limit.logins"`:       1,
		`company="acme",kind="strangers",reason="limit.logins"`:   0,
		`company="other",kind="strangers",reason="limit.address"`: 1,
		`company="other",kind="users",reason="limit.address"`:     0,
	} {
		if n, ok := metrics["mnemogate_address_limits_total{"+labels+"}"]; !ok || n != want {
			t.Errorf("%s: %v (there: %v), want %v", labels, n, ok, want)
		}
	}
	for name, want := range map[string]string{
		record.LimitLogins:  "acme users of 127.0.0.1: 8 attempts, 8 accounts, 0 failures, 8 logins",
		record.LimitAddress: "other strangers of 127.0.0.1: 8 attempts, 8 accounts, 8 failures, 0 logins",
	} {
		s.tells(`"msg":"` + name + `"`)
		var told []string
		for line := range strings.Lines(s.log()) {
			if !strings.Contains(line, `"msg":"`+name+`"`) {
				continue
			}
			var l struct {
				Company, Address, Reason             string
				Attempts, Accounts, Failures, Logins int
			}
			if err := json.Unmarshal([]byte(line), &l); err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			told = append(told, fmt.Sprintf("%s %s of %s: %d attempts, %d accounts, %d failures, %d logins", l.Company, l.Reason, l.Address, l.Attempts, l.Accounts, l.Failures, l.Logins))
		}
		if len(told) != 1 || told[0] != want {
			t.Errorf("the log has %q, want %q alone", told, want)
		}
	}
}
