package integration

import (
	"fmt"
	"net/url"
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

// Only a key with the right messages reads them, and only where they are captured.
func TestTheRightToReadMessages(t *testing.T) {
	t.Parallel()
	reader, writer := strings.Repeat("r", 20), strings.Repeat("w", 20)
	s := accountsSite(t, startSite, "key reader "+reader+" {\nmay messages\n}\nkey writer "+writer+" {\nmay read write sessions introspect import export\n}",
		siteConfig{company: "sms capture\n", more: "company other {\napi_key " + testKey + "\ncaptcha off\n}\n"})
	ask := func(key, company string) answer { return s.api(key, "GET", company+"/messages", nil) }
	ask(reader, "acme").wantStatus(200)
	ask(writer, "acme").wantStatus(403)
	ask(reader, "other").wantStatus(404)
	s.admin("GET", "messages", nil).wantStatus(200)
}
