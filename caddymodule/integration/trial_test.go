package integration

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/mnemogate/mnemogate/caddymodule/guest/guesttest"
	"github.com/mnemogate/mnemogate/flows/message"
	"github.com/mnemogate/mnemogate/flows/record"
)

// doctor sends a test message through the configured gateway and reports the result.
// The message says that it is a test and counts towards no limit.
func TestDoctorSendsATest(t *testing.T) {
	t.Parallel()
	r := newReceiver(t)
	var does atomic.Pointer[http.HandlerFunc]
	gateway := guesttest.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		(*does.Load())(w, r)
	}))
	s := startSite(t, siteConfig{
		company: "captcha off\n" + account("alice", "phone +37060000001\nsecond_factor") + r.events("types account.deleted") +
			"limits {\nsms_per_company 1/1h\nsms_per_phone 1/1h\nsms_per_account 1/1h\nmails_per_account 1/1h\nsms_countries +370\n}\n",
		more: "company bare {\napi_key off\ncaptcha off\nsms weak\nevents off\n}\ncompany logs {\napi_key off\ncaptcha off\nsms log\n}\n" +
			fmt.Sprintf("company failing {\napi_key off\ncaptcha off\nsms webhook %s/send?key=hiddenkey {\nsecret whsec_aGlkZGVu\nheader X-Key anotherhidden\ntimeout 500ms\n}\n", gateway.URL) +
			"mail webhook " + nobodyListens(t) + " {\nsecret whsec_aGlkZGVu\n}\n}\n",
	})
	test := func(what, company string) outcome {
		return s.cli("", "doctor", "--send-test", what, "--company", company)
	}
	for range 2 {
		test("sms:+370 600 00001", "acme").want(0, "ok  acme: sms  a test to +37060000001 was accepted: "+s.sms.Listener.Addr().String()+" answered 200: ")
		test("mail:alice@example.com", "acme").want(0, "ok  acme: mail  a test to alice@example.com was accepted: ")
		test("events", "acme").want(0, "ok  acme: events  a test event was accepted: ", " answered 204: ")
	}
	sent := s.sms.of(message.Trial)
	if len(sent) != 4 {
		t.Fatalf("got %v", sent)
	}
	for _, m := range sent {
		text, _ := m["text"].(string)
		if m["company_code"] != "acme" || m["profile_mnemocode"] != nil || m["code"] != nil || m["link"] != nil || !strings.Contains(text, "test") ||
			strings.ContainsAny(text, "0123456789") || m["subject"] == nil && m["to"] != "+37060000001" || m["subject"] != nil && m["to"] != "alice@example.com" {
			t.Errorf("got %v", m)
		}
	}
	tested := 0
	for _, e := range r.all() {
		if e.Type == message.Trial && e.Company == "acme" && e.Account == "" && e.ID != "" {
			tested++
		}
	}
	if tested != 2 {
		t.Errorf("the receiver got %v", r.all())
	}
	s.post("auth/checkcredentials", "", fields{"login_id": "alice", "password": testPassword}).wantState(record.CheckOTP) // the only SMS that its budget allows
	if metrics := s.fromAdmin("/metrics"); strings.Contains(metrics, `type="test"`) || strings.Contains(metrics, "mnemogate_outbox_deliveries_total{company=\"acme\",result=\"delivered\"}") {
		t.Error("a test is counted")
	}
	s.run("what else there is to say", func(t *testing.T) {
		test("sms:+12025550123", "acme").want(0, "warning  acme: sms  a test to +12025550123 was accepted", "sms_countries")
		test("sms:+37060000001", "bare").want(0, "ok  bare: sms", "the gateway gave no details")
		test("sms:+37060000001", "logs").want(0, "it is in Caddy's log, and nowhere else")
		s.tells("This is a test: SMS of logs arrive here.")
		test("events", "bare").want(1, "company bare has no events in its configuration")
		test("mail:a@example.com", "nobody").want(2, "no such company")
		s.cli("", "doctor", "--send-test", "events").want(1, "choose one with --company: acme, bare, failing, logs")
		for _, wrong := range []string{"", "sms", "events:", "fax:+37060000001"} {
			if got := test(wrong, "acme"); got.exit != 1 || got.errs == "" || len(s.sms.of(message.Trial)) != 5 {
				t.Errorf("%s: %d %s%s", wrong, got.exit, got.out, got.errs)
			}
		}
		for _, body := range []string{``, `{}`, `{"channel":"captcha"}`, `{"channel":"oauth 1"}`, `{"channel":"events","to":"x"}`, `{"channel":"sms"}`, `{"channel":"sms","to":"112"}`, `{"channel":"mail"}`, `{"channel":"mail","to":"alice"}`, `{"channel":"sms","to":"+37060000001","x":"y"}`} {
			s.adminRaw("POST", "acme/send-test", body).wantStatus(400)
		}
	})
	// If a gateway refuses the message, doctor shows its answer and advice, but no keys. Words
	// of four letters could by chance be a part of the signature, and then be left out.
	s.run("why it was not taken", func(t *testing.T) {
		hang := http.HandlerFunc(guesttest.Hang)
		for name, c := range map[string]struct {
			does http.HandlerFunc
			want []string
		}{
			"refused":  {guesttest.Answering(422, `{"err":"no way to +37060000001"}`), []string{`answered 422: "{\"err\":\"no way to +37060000001\"}"`, "→ it refused this message"}},
			"keys":     {guesttest.Answering(401, "no key hiddenkey, anotherhidden or whsec_aGlkZGVu"), []string{`answered 401: "no key …, … or …"`, "→ check that it has the same secret"}},
			"path":     {guesttest.Answering(404, strings.Repeat("nothing ", 100)), []string{"answered 404", "→ check the path of the URL"}},
			"redirect": {func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/x", http.StatusFound) }, []string{"answered 302", "→ no redirect is followed"}},
			"many":     {guesttest.Answering(429, ""), []string{"answered 429", "→ it says that there were too many"}},
			"broken":   {guesttest.Answering(503, "off"), []string{`answered 503: "off"`, "→ it is at fault"}},
			"silent":   {hang, []string{"no answer in time", "→ check that the address is right, that it runs"}},
		} {
			s.run(name, func(t *testing.T) {
				does.Store(&c.does)
				got := test("sms:+37060000001", "failing").want(1, append(c.want, "failed  failing: sms  a test to +37060000001 was not accepted: sms webhook: ")...)
				if len(got.out) > 700 || strings.Contains(got.out+got.errs, "hidden") || got.errs != "" {
					t.Errorf("got %s%s", got.out, got.errs)
				}
			})
		}
		got := s.cli("", "doctor", "--send-test", "mail:alice@example.com", "--company", "failing", "--json").want(1)
		var f map[string]string
		if err := json.Unmarshal([]byte(got.out), &f); err != nil || f["check"] != "mail" || f["company"] != "failing" || f["result"] != "failed" || f["took"] == "" ||
			!strings.Contains(f["message"], "connection refused") || !strings.Contains(f["advice"], "nothing listens there") {
			t.Errorf("got %s, %v", got.out, err)
		}
	})
}

// While a store can't be reached, doctor reports that, and everything that it can
// find out without the store.
func TestDoctorWithoutAStore(t *testing.T) {
	t.Parallel()
	nowhere := strings.TrimPrefix(nobodyListens(t), "http://")
	s := startSite(t, siteConfig{
		stores:  "store postgres postgres://u:hidden@" + nowhere + "/x?sslmode=disable\nsessions redis redis://" + nowhere,
		company: "captcha off",
		site:    "respond hello",
	})
	got := s.cli("", "doctor").want(1,
		"failed   stores", "connection refused", "→ nothing listens there",
		"ok       acme: sms", "warning  acme: captcha",
		"warning  mnemogate", "no site has the directive mnemogate", "1 of ")
	if strings.Contains(got.out+got.errs, "hidden") {
		t.Errorf("got %s%s", got.out, got.errs)
	}
	s.cli("", "doctor", "--send-test", "events").want(4, "a store can't be reached")
}
