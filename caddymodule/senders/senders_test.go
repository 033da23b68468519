package senders

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/mnemogate/mnemogate/caddymodule/guest/guesttest"
	"github.com/mnemogate/mnemogate/flows/message"
	"github.com/mnemogate/mnemogate/flows/record"
)

func TestWebhookCaddyfile(t *testing.T) {
	guesttest.Caddyfiles(t, new(SMSWebhook), []guesttest.Case{
		{Name: "all", Text: `webhook https://gw.example/sms {
			secret {env.KEY}
			timeout 2s
			header X-One a
			header X-Two "b c"
		}`, Want: &SMSWebhook{webhook{URL: "https://gw.example/sms", Secret: "{env.KEY}", Timeout: caddy.Duration(2 * time.Second),
			Headers: map[string]string{"X-One": "a", "X-Two": "b c"}}}},
		{Name: "no secret", Text: "webhook https://gw.example/sms", Err: "secret: the gateway needs a key"},
		{Name: "no url", Text: "webhook", Err: "wrong argument count"},
		{Name: "empty url", Text: `webhook ""`, Err: "wrong argument count"},
		{Name: "two urls", Text: "webhook https://a https://b", Err: "wrong argument count"},
		{Name: "unknown", Text: "webhook https://a {\nkey x\n}", Err: "unrecognized subdirective 'key'"},
		{Name: "nested", Text: "webhook https://a {\nsecret x {\ny\n}\n}", Err: "unrecognized subdirective '{'"},
		{Name: "secret twice", Text: "webhook https://a {\nsecret x\nsecret y\n}", Err: "secret already specified"},
		{Name: "timeout twice", Text: "webhook https://a {\ntimeout 1s\ntimeout 1s\n}", Err: "timeout already specified"},
		{Name: "header twice", Text: "webhook https://a {\nheader X-A x\nheader x-a y\n}", Err: "header: x-a already specified"},
		{Name: "no secret", Text: "webhook https://a {\nsecret\n}", Err: "wrong argument count"},
		{Name: "three secrets", Text: "webhook https://a {\nsecret a b c\n}",
			Want: &SMSWebhook{webhook{URL: "https://a", Secret: "a", Secrets: []string{"b", "c"}}}},
		{Name: "an empty secret", Text: "webhook https://a {\nsecret a \"\"\n}", Err: "wrong argument count"},
		{Name: "no duration", Text: "webhook https://a {\ntimeout soon\n}", Err: "not a duration"},
		{Name: "no time", Text: "webhook https://a {\ntimeout 0s\n}", Err: "not a duration"},
		{Name: "missing duration", Text: "webhook https://a {\ntimeout\n}", Err: "wrong argument count"},
		{Name: "two durations", Text: "webhook https://a {\ntimeout 1s 2s\n}", Err: "wrong argument count"},
		{Name: "header without value", Text: "webhook https://a {\nheader X\n}", Err: "wrong argument count"},
	})
	guesttest.Caddyfiles(t, new(MailWebhook), []guesttest.Case{
		{Name: "mail", Text: "webhook https://gw.example/mail {\nsecret x\n}",
			Want: &MailWebhook{webhook{URL: "https://gw.example/mail", Secret: "x"}}},
	})
	guesttest.Caddyfiles(t, new(EventsWebhook), []guesttest.Case{
		{Name: "events", Text: "webhook https://a {\nsecret x\ntypes account.created password.changed\nretry 1s\ntimeout 2s\n}",
			Want: &EventsWebhook{
				webhook: webhook{URL: "https://a", Secret: "x", Timeout: caddy.Duration(2 * time.Second)},
				Types:   []string{record.TypeAccountCreated, record.TypePasswordChanged}, Retry: caddy.Duration(time.Second),
			}},
		{Name: "no type", Text: "webhook https://a {\ntypes\n}", Err: "wrong argument count"},
		{Name: "an unknown type", Text: "webhook https://a {\ntypes account.renamed\n}", Err: `there is no event "account.renamed"`},
		{Name: "no pause", Text: "webhook https://a {\nretry never\n}", Err: "not a duration"},
		{Name: "types twice", Text: "webhook https://a {\ntypes account.created\ntypes account.deleted\n}", Err: "types already specified"},
	})
	guesttest.Caddyfiles(t, new(EventsOff), []guesttest.Case{
		{Name: "off", Text: "off", Want: new(EventsOff)},
		{Name: "off and more", Text: "off please", Err: "wrong argument count"},
	})
}

func TestWebhookRefusesWhatCanNotBeSentOrVerified(t *testing.T) {
	for name, c := range map[string]struct {
		w    webhook
		want string
	}{
		"no secret":     {webhook{URL: "https://a"}, "sms webhook: secret"},
		"no base64":     {webhook{URL: "https://a", Secret: "whsec_%%"}, "whsec_"},
		"empty base64":  {webhook{URL: "https://a", Secret: "whsec_"}, "whsec_"},
		"no scheme":     {webhook{URL: "a.example/x?key=hidden", Secret: "x"}, "sms webhook: url"},
		"other scheme":  {webhook{URL: "ftp://hidden@a", Secret: "x"}, "sms webhook: url"},
		"no host":       {webhook{URL: "https:///hidden", Secret: "x"}, "sms webhook: url"},
		"bad url":       {webhook{URL: "https://hidden:x\n@a", Secret: "x"}, "sms webhook: url"},
		"header name":   {webhook{URL: "https://a", Secret: "x", Headers: map[string]string{"X Y": "z"}}, "X Y"},
		"header value":  {webhook{URL: "https://a", Secret: "x", Headers: map[string]string{"X": "hidden\r\nY: z"}}, `"X"`},
		"own header":    {webhook{URL: "https://a", Secret: "x", Headers: map[string]string{"Webhook-ID": "z"}}, "Webhook-ID"},
		"length header": {webhook{URL: "https://a", Secret: "x", Headers: map[string]string{"content-length": "1"}}, "content-length"},
		"timeout":       {webhook{URL: "https://a", Secret: "x", Timeout: caddy.Duration(time.Hour)}, "timeout"},
		"negative":      {webhook{URL: "https://a", Secret: "x", Timeout: -1}, "timeout"},
		"placeholder":   {webhook{URL: "https://a", Secret: "{env.MNEMOGATE_TEST_ABSENT}"}, "sms webhook: secret"},
		"header's":      {webhook{URL: "https://a", Secret: "x", Headers: map[string]string{"X": "{env.MNEMOGATE_TEST_ABSENT}"}}, "header X"},
	} {
		t.Run(name, func(t *testing.T) {
			err := guesttest.Start(t, &SMSWebhook{c.w})
			guesttest.NoSecrets(t, err, "hidden")
			if err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
	if err := guesttest.Start(t, new(MailWebhook)); err == nil || !strings.HasPrefix(err.Error(), "mail webhook") {
		t.Errorf("got %v", err)
	}
}

// verifyWebhook does what a receiver does, see standardwebhooks.com.
func verifyWebhook(r *http.Request, body, key []byte) error {
	if _, err := strconv.ParseInt(r.Header.Get("webhook-timestamp"), 10, 64); err != nil {
		return err
	}
	mac := hmac.New(sha256.New, key)
	fmt.Fprintf(mac, "%s.%s.%s", r.Header.Get("webhook-id"), r.Header.Get("webhook-timestamp"), body)
	if want := "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil)); r.Header.Get("webhook-signature") != want {
		return fmt.Errorf("signature is %s, want %s", r.Header.Get("webhook-signature"), want)
	}
	return nil
}

func TestWebhookIsAStandardWebhook(t *testing.T) {
	key := []byte("some 24 bytes of entropy")
	t.Setenv("MNEMOGATE_TEST_SECRET", "whsec_"+base64.StdEncoding.EncodeToString(key))
	var got *http.Request
	var body []byte
	gateway := guesttest.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ = io.ReadAll(r.Body)
		got = r
		w.WriteHeader(http.StatusAccepted)
	}))
	w := guesttest.MustStart(t, &SMSWebhook{webhook{URL: gateway.URL + "/x?key=k", Secret: "{env.MNEMOGATE_TEST_SECRET}",
		Headers: map[string]string{"X-Key": "{env.MNEMOGATE_TEST_SECRET}"}}})
	if err := w.Send(t.Context(), guesttest.SMS); err != nil {
		t.Fatal(err)
	}
	if err := verifyWebhook(got, body, key); err != nil {
		t.Error(err)
	}
	if got.Method != "POST" || got.URL.RawQuery != "key=k" || got.Header.Get("Content-Type") != "application/json" ||
		got.Header.Get("Webhook-Id") != guesttest.SMS.ID || !strings.HasPrefix(got.Header.Get("X-Key"), "whsec_") || got.Header.Values("Idempotency-Key") != nil {
		t.Errorf("got %v %v %v", got.Method, got.URL, got.Header)
	}
	want := map[string]any{"type": "otp.login", "company_code": "acme", "profile_mnemocode": "u-1", "to": "+37060000034",
		"code": "918273", "text": "918273 is your code <&>", "expires_at": "2026-01-02T01:04:05Z"}
	var sent map[string]any
	if err := json.Unmarshal(body, &sent); err != nil || !reflect.DeepEqual(sent, want) {
		t.Errorf("got %v %v, want %v", sent, err, want)
	}
}

func TestWebhookSendsAMailAndANotice(t *testing.T) {
	var sent []map[string]any
	gateway := guesttest.Serve(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if err := verifyWebhook(r, body, []byte("plain key")); err != nil {
			t.Error(err)
		}
		var m map[string]any
		json.Unmarshal(body, &m)
		sent = append(sent, m)
	}))
	w := guesttest.MustStart(t, &MailWebhook{webhook{URL: gateway.URL, Secret: "plain key"}})
	for _, m := range []message.Message{guesttest.Mail, {ID: "1", Type: message.NoticePasswordChanged, Company: "acme", Mnemocode: "u", To: "a@b", Subject: "s", Text: "t"}} {
		if err := w.Send(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	want := []map[string]any{
		{"type": "recovery.link", "company_code": "acme", "profile_mnemocode": "u-1", "to": guesttest.Mail.To,
			"link": guesttest.Mail.Link, "subject": "Recover", "text": guesttest.Mail.Text, "expires_at": "2026-01-02T03:04:05Z"},
		{"type": "notice.password_changed", "company_code": "acme", "profile_mnemocode": "u", "to": "a@b", "subject": "s", "text": "t"},
	}
	if !reflect.DeepEqual(sent, want) {
		t.Errorf("got %v\nwant %v", sent, want)
	}
}

func TestWebhookFailsUnlessAnswered2xx(t *testing.T) {
	for name, c := range map[string]struct {
		handler http.HandlerFunc
		want    string
	}{
		"400":        {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(400) }, "answered 400"},
		"500":        {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) }, "answered 500"},
		"redirect":   {func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/ok", http.StatusTemporaryRedirect) }, "answered 307"},
		"slow":       {guesttest.Hang, "no answer in time"},
		"closed":     {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, "closed the connection"},
		"echo":       {guesttest.Raw("POST /x?key=hidden HTTP/1.1\r\n\r\n"), "not valid HTTP"},
		"big header": {guesttest.Raw("HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 1<<20) + "\r\n\r\n"), "not valid HTTP"},
	} {
		t.Run(name, func(t *testing.T) {
			mux := http.NewServeMux()
			mux.HandleFunc("/x", c.handler)
			mux.HandleFunc("/ok", func(http.ResponseWriter, *http.Request) { t.Error("the redirect was followed") })
			target := strings.Replace(guesttest.Serve(t, mux).URL, "//", "//hidden-user:hidden-password@", 1) + "/x?key=hidden"
			w := guesttest.MustStart(t, &SMSWebhook{webhook{URL: target, Secret: "hidden", Timeout: caddy.Duration(300 * time.Millisecond)}})
			err := w.Send(t.Context(), guesttest.SMS)
			guesttest.NoSecrets(t, err, "hidden", guesttest.SMS.Code)
			if err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

func TestWebhookFailsWhereNobodyListensOrTheCallerLeaves(t *testing.T) {
	gateway := httptest.NewServer(http.NotFoundHandler())
	gateway.Close()
	w := guesttest.MustStart(t, &SMSWebhook{webhook{URL: gateway.URL + "/?hidden", Secret: "x"}})
	guesttest.NoSecrets(t, w.Send(t.Context(), guesttest.SMS), "hidden", guesttest.SMS.Code)

	w = guesttest.MustStart(t, &SMSWebhook{webhook{URL: guesttest.Serve(t, http.HandlerFunc(guesttest.Hang)).URL, Secret: "x"}})
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(20*time.Millisecond, cancel)
	if err := w.Send(ctx, guesttest.SMS); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context.Canceled", err)
	}
}

func TestWebhookTakesAnAnswerOfAnySize(t *testing.T) {
	gateway := guesttest.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Write(make([]byte, 4<<20))
	}))
	w := guesttest.MustStart(t, &SMSWebhook{webhook{URL: gateway.URL, Secret: "x"}})
	if err := w.Send(t.Context(), guesttest.SMS); err != nil {
		t.Error(err)
	}
}

func TestWebhookReusesItsConnectionAndSurvivesItsEnd(t *testing.T) {
	var mu sync.Mutex
	opened := 0
	gateway := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Write(make([]byte, 32<<10))
	}))
	gateway.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		mu.Lock()
		defer mu.Unlock()
		if state == http.StateNew {
			opened++
		}
	}
	gateway.Start()
	t.Cleanup(gateway.Close)
	w := guesttest.MustStart(t, &SMSWebhook{webhook{URL: gateway.URL, Secret: "x"}})
	for range 5 {
		if err := w.Send(t.Context(), guesttest.SMS); err != nil {
			t.Fatal(err)
		}
	}
	if mu.Lock(); opened != 1 {
		t.Errorf("%d connections were opened", opened)
	}
	mu.Unlock()
	for range 20 {
		gateway.CloseClientConnections()
		if err := w.Send(t.Context(), guesttest.SMS); err != nil {
			t.Fatalf("after the gateway closed the idle connection: %v", err)
		}
	}
}

func TestWebhookMayBeUsedConcurrently(t *testing.T) {
	gateway := guesttest.Serve(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	w := guesttest.MustStart(t, &SMSWebhook{webhook{URL: gateway.URL, Secret: "x", Headers: map[string]string{"X": "y"}}})
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if err := w.Send(t.Context(), guesttest.SMS); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

func TestLogSendersLog(t *testing.T) {
	guesttest.Caddyfiles(t, new(SMSLog), []guesttest.Case{
		{Name: "sms", Text: "log", Want: new(SMSLog)},
		{Name: "argument", Text: "log x", Err: "wrong argument count"},
		{Name: "block", Text: "log {\nx\n}", Err: "unrecognized subdirective 'x'"},
	})
	guesttest.Caddyfiles(t, new(MailLog), []guesttest.Case{{Name: "mail", Text: "log", Want: new(MailLog)}})

	core, logs := observer.New(zapcore.DebugLevel)
	sms := guesttest.MustStart(t, new(SMSLog))
	sms.logger = zap.New(core)
	mail := guesttest.MustStart(t, new(MailLog))
	mail.logger = sms.logger
	if err := errors.Join(sms.Send(t.Context(), guesttest.SMS), mail.Send(t.Context(), guesttest.Mail)); err != nil {
		t.Fatal(err)
	}
	got := logs.FilterLevelExact(zapcore.InfoLevel).All()
	if len(got) != 2 || got[0].ContextMap()["text"] != guesttest.SMS.Text || got[1].ContextMap()["text"] != guesttest.Mail.Text {
		t.Errorf("got %v", got)
	}
}
