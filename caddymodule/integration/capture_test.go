package integration

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// A hundred logins at once each find their own code among the captured messages.
func TestCapturedMessages(t *testing.T) {
	t.Parallel()
	const logins = 100
	company := roomy + "sms capture\nmail capture\n"
	for i := range logins {
		company += account(fmt.Sprint("user-", i), fmt.Sprintf("phone +370600001%02d\nemail user-%d@example.com\nsecond_factor", i, i))
	}
	s := startSite(t, siteConfig{company: company})
	next := func(query string) (messages []any, cursor string) {
		a := s.admin("GET", "messages?"+query, nil).wantStatus(200)
		return a.JSON["messages"].([]any), a.str("next")
	}
	var all sync.WaitGroup
	for i := range logins {
		all.Go(func() {
			name, phone := fmt.Sprint("user-", i), fmt.Sprintf("+370600001%02d", i)
			a := s.credentials(name, testPassword)
			for ; a.fails(wire.ErrUnavailable); a = s.credentials(name, testPassword) { // the machine is busy with the others
				time.Sleep(100 * time.Millisecond)
			}
			token := a.wantState(record.CheckOTP).token()
			query := "wait=30&after=&to=" + phone // many clients forget to escape the +
			if i%2 == 0 {
				query = "wait=30&to=" + url.QueryEscape(phone)
			}
			messages, _ := next(query)
			if len(messages) != 1 {
				t.Errorf("%s has %d messages", name, len(messages))
				return
			}
			m := messages[0].(map[string]any)
			if m["type"] != "otp.login" || m["to"] != phone || !strings.Contains(m["text"].(string), m["code"].(string)) {
				t.Errorf("%v", m)
			}
			s.post("auth/checkotp", token, fields{"otp": m["code"]}).wantState(record.Authorized)
		})
	}
	all.Wait()
	messages, cursor := next("")
	if len(messages) < logins {
		t.Errorf("%d messages", len(messages))
	}
	if late, same := next("after=" + cursor); len(late) != 0 || same != cursor {
		t.Errorf("after the last: %v, %s", late, same)
	}
	arrived := make(chan []any)
	go func() {
		late, _ := next("wait=30s&to=User-7@example.com&after=" + cursor)
		arrived <- late
	}()
	time.Sleep(50 * time.Millisecond)
	s.post("auth/recovery/recover", "", fields{"login_id": "user-7", "captcha_response": "x", "method": "MAIL"}).wantStatus(200)
	link := (<-arrived)[0].(map[string]any)["link"].(string)
	_, token, _ := strings.Cut(link, "#")
	s.post("auth/recovery/checklink", "", fields{"token": token}).wantState(record.RecoveryPassword)
	if out := s.cli("", "messages", "acme", "--to", "user-7@example.com").want(0).out; !strings.Contains(out, link) {
		t.Errorf("the command shows %s", out)
	}
	s.admin("GET", "messages?wait=31s", nil).wantRefused(400, "wait")
	s.admin("GET", "messages?wait=31", nil).wantRefused(400, "wait")
	s.admin("GET", "messages?after=x", nil).wantRefused(400, "after")
	if !strings.Contains(s.log(), "messages are captured, and reach nobody") {
		t.Error("the start does not warn")
	}
}

// What was captured for an account is erased with it, and with its company.
func TestCapturedMessagesAreErased(t *testing.T) {
	t.Parallel()
	const other = "company other {\napi_key " + testKey + "\ncaptcha off\nmail capture\naccount bob {\nemail bob@example.com\n}\n}\n"
	s := startSite(t, siteConfig{company: "captcha off\nsms capture\nmail capture\naccount alice {\nphone +37060000001\nemail alice@example.com\n}\naccount carol {\nphone +37060000002\n}", more: other})
	captured := func(company string) (to []string, cursor string) {
		a := s.adminRaw("GET", company+"/messages", "").wantStatus(200)
		for _, m := range a.JSON["messages"].([]any) {
			to = append(to, m.(map[string]any)["to"].(string))
		}
		return to, a.str("next")
	}
	want := func(company string, want ...string) (cursor string) {
		t.Helper()
		got, cursor := captured(company)
		if !slices.Equal(got, want) {
			t.Errorf("%s has messages to %q, want %q", company, got, want)
		}
		return cursor
	}
	s.admin("POST", "contacts", fields{"email": "alice@example.com"}).wantStatus(202)
	s.post("auth/recovery/recover", "", fields{"login_id": "+37060000001", "captcha_response": "x", "method": "MAIL"}).wantStatus(200)
	s.post("auth/login", "", fields{"login_id": "+37060000001"}).wantStatus(200)
	s.admin("PATCH", "accounts/alice", fields{"profile_mnemocode": "alice-2"}).wantStatus(200)
	s.post("auth/login", "", fields{"login_id": "+37060000001"}).wantStatus(200)
	s.post("auth/recovery/recover", "", fields{"login_id": "+37060000001", "captcha_response": "x", "method": "MAIL"}).wantStatus(200)
	s.post("auth/login", "", fields{"login_id": "+37060000002"}).wantStatus(200)
	alices, phone := "alice@example.com", "+37060000001"
	cursor := want("acme", alices, alices, phone, phone, alices, "+37060000002")
	s.admin("DELETE", "accounts/alice-2", nil).wantStatus(204)
	want("acme", "+37060000002")
	s.admin("DELETE", "accounts/carol", nil).wantStatus(204)
	want("acme")
	s.admin("POST", "contacts", fields{"email": "dave@example.com"}).wantStatus(202)
	if after := s.admin("GET", "messages?after="+cursor, nil); !strings.Contains(after.said(), "dave@example.com") {
		t.Errorf("after an older message come %s", after.Body)
	}

	s.postTo("other", testKey, "auth/recovery/recover", "", fields{"login_id": "bob@example.com", "captcha_response": "x", "method": "MAIL"}).wantStatus(200)
	want("other", "bob@example.com")
	config := s.config
	s.config = changed(t, s.config, other, "")
	must(t, s.load())
	s.cli("", "company", "erase", "other", "--yes").want(0)
	s.config = config
	must(t, s.load())
	want("other")
	want("acme", "dave@example.com")
}

// Only a key with the right messages reads them, and only where they are captured.
func TestTheRightToReadMessages(t *testing.T) {
	t.Parallel()
	reader, writer := strings.Repeat("r", 20), strings.Repeat("w", 20)
	s := accountsSite(t, startSite, "key reader "+reader+" {\nmay messages\n}\nkey writer "+writer+" {\nmay read write sessions introspect import export\n}",
		siteConfig{company: "sms capture\n", more: "company other {\napi_key " + testKey + "\ncaptcha off\n}\n"})
	ask := func(key, company string) answer { return s.api(key, "GET", company+"/messages", "") }
	ask(reader, "acme").wantStatus(200)
	ask(writer, "acme").wantStatus(403)
	ask(reader, "other").wantStatus(404)
	s.admin("GET", "messages", nil).wantStatus(200)
}
