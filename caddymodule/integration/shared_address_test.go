package integration

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// The audit log and the metrics let operators distinguish an address that many users
// share from one of an attacker.
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
	s := startSite(t, siteConfig{
		company: company("logins_per_address 8/1h"),
		more:    "company other {\napi_key " + testKey + "\n" + company("logins_per_address unlimited\nfailures_per_address 8/1h") + "}",
	})
	for i := range users {
		s.credentials(fmt.Sprint("user", i), testPassword).wantState(record.Authorized)
	}
	for range 2 {
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
