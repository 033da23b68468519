package integration

import (
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/wire"
)

const smsPumping = "Someone pumps SMS" // a section of the runbook

// The runbook's steps against SMS pumping show where the SMS go, and stop logins
// without a password from many addresses. Other users can still log in.
func TestTheRunbookStopsSMSPumping(t *testing.T) {
	t.Parallel()
	need(t, "jq")
	const flood = 120
	config := "captcha static tea\naccount carol {\nphone +37060000003\n}\n" + account("dave", "phone +881666000999\nsecond_factor")
	phone := func(country string, i int) string {
		if country == "+881" { // whose numbers have one more digit
			country += "6"
		}
		return fmt.Sprintf("%s6660%04d", country, i)
	}
	for _, country := range []string{"+881", "+370", "+371"} {
		for i := range flood {
			config += fmt.Sprintf("account pump%s-%d {\nphone %s\n}\n", country, i, phone(country, i))
		}
	}
	s := startSite(t, siteConfig{servers: "trusted_proxies static 127.0.0.1/32", company: config, audit: true})
	s.setBackupCodes("dave", "AAAAABBBBB")
	login := func(address, phone string) answer {
		r := s.postRequest("acme", testKey, "auth/login", "", fields{"login_id": phone})
		r.Header.Set("X-Forwarded-For", address)
		return s.do(r)
	}
	// pump begins logins to the accounts of a country, each from another address. It
	// returns the total number of SMS that were sent there.
	network := 0
	pump := func(country string, want *wire.Error, reason string) int {
		t.Helper()
		network++
		for i := range flood {
			a := login(fmt.Sprintf("198.51.%d.%d", network, i), phone(country, i))
			if a.Status != http.StatusOK && (want == nil || !a.fails(want) || a.str("reason") != reason) {
				t.Fatalf("login %d of %s: %d %s", i, country, a.Status, a.Body)
			}
		}
		sent := 0
		for _, m := range s.sms.of("otp.login") {
			if strings.HasPrefix(m["to"].(string), country) {
				sent++
			}
		}
		return sent
	}
	if n := pump("+881", nil, ""); n != flood {
		t.Fatalf("the flood has %d SMS sent, want %d", n, flood)
	}
	for i := range 40 { // and by a form to sign up, whose backend tells the addresses of users
		s.admin("POST", "contacts", fields{"phone": phone("+881", i), "address": fmt.Sprint("203.0.113.", 100+i)}).wantStatus(http.StatusAccepted)
	}
	carol := login("203.0.113.1", "+37060000003").wantState(record.CheckOTP)
	s.post("auth/checkotp", carol.token(), fields{"otp": s.sms.last("otp.login", "code")}).wantState(record.Authorized)

	page := section(t, "docs/runbook.md", smsPumping)
	s.runConsoles(page, regexp.MustCompile(`^$`))
	shown := blocks(page, "caddyfile")[0]
	limits := regexp.MustCompile(`(?s)limits \{.*?\n\t+\}`).FindString(shown)
	budget := func(option string) int {
		return get(strconv.Atoi(regexp.MustCompile(option + ` (\d+)/1h`).FindStringSubmatch(limits)[1]))(t)
	}
	s.config = strings.Replace(s.config, "captcha static tea", "captcha static tea\n"+limits, 1)
	must(t, s.load())

	if n := pump("+881", wire.ErrRestricted, "limit.sms_country"); n != flood {
		t.Errorf("after the reload %d more SMS are sent to +881", n-flood)
	}
	asked := s.post("auth/checkcredentials", "", fields{"login_id": "dave", "password": testPassword}).wantState(record.CheckOTP)
	s.post("auth/checkotp", asked.token(), fields{"backup_code": "AAAAABBBBB"}).wantState(record.Authorized)
	carol = login("203.0.113.1", "+37060000003").wantState(record.CheckOTP)
	s.post("auth/checkotp", carol.token(), fields{"otp": s.sms.last("otp.login", "code")}).wantState(record.Authorized)
	for i := range budget("sms_per_address") {
		login("203.0.113.2", fmt.Sprintf("+3706660%04d", i)).wantState(record.CheckOTP)
	}
	login("203.0.113.2", "+37066600099").want(wire.ErrRestricted).wantReason("limit.sms_address")
	before := 1 // carol's, from before the reload
	if n := pump("+370", wire.ErrRestricted, "limit.sms_country"); n != before+budget("sms_per_country") {
		t.Errorf("%d SMS were sent to +370, want %d and %d", n, before, budget("sms_per_country"))
	}
	if n, want := pump("+371", wire.ErrRestricted, "limit.sms_company"), budget("sms_per_company")-budget("sms_per_country"); n != want {
		t.Errorf("%d SMS were sent to +371, want %d", n, want)
	}
	metrics := s.scrape()
	for name, want := range map[string]int{
		`mnemogate_messages_total{channel="sms",company="acme",country="+881",gateway="127.0.0.1",result="accepted",type="otp.login"}`: flood,
		`mnemogate_codes_used_total{company="acme",country="+370"}`:                                                                    2,
		`mnemogate_codes_used_total{company="acme",country="+881"}`:                                                                    0,
	} {
		if metrics[name] != float64(want) {
			t.Errorf("%s is %v, want %d", name, metrics[name], want)
		}
	}
	if metrics[`mnemogate_locks_total{company="acme",reason="limit.sms_country_unlisted"}`] == 0 {
		t.Error("no lock says that a country is refused")
	}
}
