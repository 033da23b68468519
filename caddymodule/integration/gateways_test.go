package integration

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// With a dead, a slow and a healthy gateway, every login gets its code, once, and is charged
// for one SMS. 95 of 100 logins wait for it less than 3 s.
func TestACodeGoesThroughTheNextGateway(t *testing.T) {
	t.Parallel()
	const logins = 40
	dead := httptest.NewServer(http.NotFoundHandler())
	dead.Close()
	slow := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // only then the server notices that the client has gone
		<-r.Context().Done()
	}))
	t.Cleanup(slow.Close)
	healthy := newWebhookSink(t)
	company := strings.Replace(roomy, "sms_per_account 1000/10m", "sms_per_account 2/10m", 1)
	for _, g := range [][2]string{{"dead", dead.URL}, {"slow", slow.URL}, {"healthy", healthy.URL}} {
		company += fmt.Sprintf("sms webhook %s {\nname %s\nsecret %s\ntimeout 1s\n}\n", g[1], g[0], smsSecret)
	}
	for i := range logins {
		company += account(fmt.Sprint("user-", i), fmt.Sprintf("phone +370600000%02d\nsecond_factor", i))
	}
	s := startSite(t, siteConfig{company: company})
	var mu sync.Mutex
	var waited []time.Duration
	var all sync.WaitGroup
	turns := make(chan struct{}, 8)
	for i := range logins {
		all.Go(func() {
			turns <- struct{}{}
			defer func() { <-turns }()
			token := s.post("auth/login", "", fields{"login_id": fmt.Sprint("user-", i)}).wantState(record.CheckPassword).token()
			began := time.Now()
			coded := s.post("auth/checkpassword", token, fields{"password": testPassword}).wantState(record.CheckOTP)
			took := time.Since(began)
			s.post("auth/checkotp", coded.token(), fields{"otp": healthy.codeTo(fmt.Sprintf("+370600000%02d", i))}).wantState(record.Authorized)
			mu.Lock()
			defer mu.Unlock()
			waited = append(waited, took)
		})
	}
	all.Wait()
	slices.Sort(waited)
	if len(waited) != logins || len(healthy.of("otp.login")) != logins {
		t.Fatalf("%d logins and %d codes", len(waited), len(healthy.of("otp.login")))
	}
	t.Logf("half of the logins had the code within %v, 95 %% within %v", waited[logins/2], waited[logins*95/100])
	if waited[logins*95/100] > 3*time.Second {
		t.Errorf("95 %% of the logins had the code only within %v", waited[logins*95/100])
	}
	metrics := s.scrape()
	count := func(gateway, result string) (n float64) {
		for series, value := range metrics {
			if strings.HasPrefix(series, "mnemogate_messages_total{") && strings.Contains(series, `gateway="`+gateway+`"`) && strings.Contains(series, `result="`+result+`"`) {
				n += value
			}
		}
		return n
	}
	if n := count("healthy", "accepted"); n != logins {
		t.Errorf("the healthy gateway took %v", n)
	}
	if count("dead", "failed") == 0 || count("slow", "failed") == 0 || count("healthy", "failed") != 0 {
		t.Errorf("failures: %v", metrics)
	}
	s.eventually("the gateway in the audit log", func() bool { return strings.Contains(s.log(), `"gateway":"healthy"`) })
	again := s.credentials("user-0", testPassword).wantState(record.CheckOTP)
	s.post("auth/checkotp", again.token(), fields{"otp": healthy.codeTo("+37060000000")}).wantState(record.Authorized)
	s.credentials("user-0", testPassword).want(wire.ErrRestricted) // a third SMS
}

// What a gateway answers for good is not asked of another one. A phone that none serves gets
// no code.
func TestGatewaysOfCountries(t *testing.T) {
	t.Parallel()
	dutch, others := newWebhookSink(t), newWebhookSink(t)
	gateway := func(sink *webhookSink, block string) string {
		return fmt.Sprintf("sms webhook %s {\nsecret %s\n%s\n}\n", sink.URL, smsSecret, block)
	}
	s := startSite(t, siteConfig{company: roomy + gateway(dutch, "name dutch\ncountries +31") + gateway(others, "countries +370\nheader X-Name dutch") +
		account("anna", "phone +31612345678\nsecond_factor") + account("jonas", "phone +37060000001\nsecond_factor") + account("max", "phone +4915112345678\nsecond_factor")})
	s.credentials("anna", testPassword).wantState(record.CheckOTP)
	s.credentials("jonas", testPassword).wantState(record.CheckOTP)
	if len(dutch.of("otp.login")) != 1 || len(others.of("otp.login")) != 1 {
		t.Errorf("%d and %d messages", len(dutch.of("otp.login")), len(others.of("otp.login")))
	}
	s.credentials("max", testPassword).want(wire.ErrRestricted).wantReason("limit.sms_country")
	dutch.answer(http.StatusBadRequest)
	s.credentials("anna", testPassword).want(wire.ErrUnavailable)
	if len(others.of("otp.login")) != 1 {
		t.Error("a message that was refused went to another gateway")
	}
}
