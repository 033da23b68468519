package senders

import (
	"bufio"
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/http/httptest"
	netmail "net/mail"
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
	"github.com/mnemogate/mnemogate/flows"
	"github.com/mnemogate/mnemogate/store/storetest"
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
		{Name: "no duration", Text: "webhook https://a {\ntimeout soon\n}", Err: "no duration"},
		{Name: "no time", Text: "webhook https://a {\ntimeout 0s\n}", Err: "no duration"},
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
				Types:   []string{flows.TellCreated, flows.TellPassword}, Retry: caddy.Duration(time.Second),
			}},
		{Name: "no type", Text: "webhook https://a {\ntypes\n}", Err: "wrong argument count"},
		{Name: "an unknown type", Text: "webhook https://a {\ntypes account.renamed\n}", Err: `there is no event "account.renamed"`},
		{Name: "no pause", Text: "webhook https://a {\nretry never\n}", Err: "no duration"},
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
	for _, m := range []flows.Message{guesttest.Mail, {ID: "1", Type: flows.NoticePasswordChanged, Company: "acme", Mnemocode: "u", To: "a@b", Subject: "s", Text: "t"}} {
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

func TestSMTPCaddyfile(t *testing.T) {
	guesttest.Caddyfiles(t, new(SMTP), []guesttest.Case{
		{Name: "all", Text: `smtp mail.example:587 {
			from "Acme <noreply@acme.example>"
			username me
			password {env.SMTP}
			tls implicit
			timeout 3s
		}`, Want: &SMTP{Address: "mail.example:587", From: "Acme <noreply@acme.example>", Username: "me", Password: "{env.SMTP}",
			TLS: "implicit", Timeout: caddy.Duration(3 * time.Second)}},
		{Name: "no address", Text: "smtp {\nfrom a@b\n}", Err: "wrong argument count"},
		{Name: "two addresses", Text: "smtp a:1 b:1", Err: "wrong argument count"},
		{Name: "unknown", Text: "smtp a:1 {\nuser x\n}", Err: "unrecognized subdirective 'user'"},
		{Name: "from twice", Text: "smtp a:1 {\nfrom x\nfrom y\n}", Err: "from already specified"},
		{Name: "username twice", Text: "smtp a:1 {\nusername x\nusername y\n}", Err: "username already specified"},
		{Name: "password twice", Text: "smtp a:1 {\npassword x\npassword y\n}", Err: "password already specified"},
		{Name: "tls twice", Text: "smtp a:1 {\ntls off\ntls off\n}", Err: "tls already specified"},
		{Name: "unquoted from", Text: "smtp a:1 {\nfrom Acme <a@b>\n}", Err: "wrong argument count"},
	})
}

func TestSMTPRefusesABadConfiguration(t *testing.T) {
	for name, c := range map[string]struct {
		s    SMTP
		want string
	}{
		"no port":         {SMTP{Address: "mail.example", From: "a@b.example"}, "host:port"},
		"no host":         {SMTP{Address: ":25", From: "a@b.example"}, "host:port"},
		"port":            {SMTP{Address: "mail.example:70000", From: "a@b.example"}, "host:port"},
		"no from":         {SMTP{Address: "mail.example:25"}, "from"},
		"bad from":        {SMTP{Address: "mail.example:25", From: "nobody"}, "from"},
		"two from":        {SMTP{Address: "mail.example:25", From: "a@b.example, c@d.example"}, "from"},
		"from injection":  {SMTP{Address: "mail.example:25", From: "a@b.example\r\nBcc: x@y.example"}, "from"},
		"tls":             {SMTP{Address: "mail.example:25", From: "a@b.example", TLS: "maybe"}, "tls"},
		"only a username": {SMTP{Address: "mail.example:25", From: "a@b.example", Username: "u"}, "password"},
		"only a password": {SMTP{Address: "mail.example:25", From: "a@b.example", Password: "hidden"}, "username"},
		"clear password":  {SMTP{Address: "mail.example:25", From: "a@b.example", TLS: "off", Username: "u", Password: "hidden"}, "tls off"},
		"timeout":         {SMTP{Address: "mail.example:25", From: "a@b.example", Timeout: caddy.Duration(time.Hour)}, "timeout"},
		"placeholder":     {SMTP{Address: "mail.example:25", From: "a@b.example", Password: "{env.MNEMOGATE_TEST_ABSENT}"}, "mail smtp: password"},
	} {
		t.Run(name, func(t *testing.T) {
			err := guesttest.Start(t, &c.s)
			guesttest.NoSecrets(t, err, "hidden")
			if err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
	guesttest.MustStart(t, &SMTP{Address: "[::1]:25", From: "a@b.example", TLS: "off", Username: "u", Password: "p"})
	guesttest.MustStart(t, &SMTP{Address: "mail.example:25", From: "a@b.example", TLS: "off"})
}

// smtpSink is an SMTP server that keeps what it is sent and can misbehave.
type smtpSink struct {
	addr      string
	config    *tls.Config
	implicit  bool
	noSTART   bool              // does not offer STARTTLS
	noAuth    bool              // does not offer AUTH
	answers   map[string]string // what to say to a command instead; "" to hang up, "wait" to say nothing
	greeting  string
	mu        sync.Mutex
	mails     []string
	logins    []string
	encrypted bool
}

func startSink(t *testing.T, sink *smtpSink) *smtpSink {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	sink.addr = ln.Addr().String()
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { conn.Close() })
			go sink.serve(conn)
		}
	}()
	return sink
}

func (s *smtpSink) serve(conn net.Conn) {
	defer conn.Close()
	if s.implicit {
		conn = tls.Server(conn, s.config)
	}
	in := bufio.NewReader(conn)
	say := func(line string) { io.WriteString(conn, line+"\r\n") }
	say(cmpGreeting(s.greeting))
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return
		}
		line = strings.TrimSpace(line)
		verb := strings.ToUpper(strings.Split(line, " ")[0])
		if answer, ok := s.answers[verb]; ok {
			switch answer {
			case "":
				return
			case "wait":
				in.ReadString('\n')
				return
			}
			say(answer)
			continue
		}
		switch verb {
		case "EHLO":
			_, isTLS := conn.(*tls.Conn)
			say("250-sink\r\n250-8BITMIME\r\n250-ENHANCEDSTATUSCODES")
			if !isTLS && !s.noSTART && s.config != nil {
				say("250-STARTTLS")
			}
			if !s.noAuth {
				say("250-AUTH PLAIN LOGIN")
			}
			say("250 SIZE 1000000")
		case "STARTTLS":
			say("220 go ahead")
			conn = tls.Server(conn, s.config)
			in = bufio.NewReader(conn)
		case "AUTH":
			s.mu.Lock()
			s.logins = append(s.logins, line)
			s.mu.Unlock()
			say("235 2.7.0 welcome")
		case "DATA":
			say("354 go on")
			var mail strings.Builder
			for {
				line, err := in.ReadString('\n')
				if err != nil {
					return
				}
				if line == ".\r\n" {
					break
				}
				mail.WriteString(strings.TrimPrefix(line, "."))
			}
			if answer, ok := s.answers["."]; ok {
				if answer == "wait" {
					in.ReadString('\n')
					return
				}
				say(answer)
				continue
			}
			_, isTLS := conn.(*tls.Conn)
			s.mu.Lock()
			s.mails = append(s.mails, mail.String())
			s.encrypted = isTLS
			s.mu.Unlock()
			say("250 2.0.0 taken")
		case "QUIT":
			say("221 bye")
			return
		default:
			say("250 2.1.0 ok")
		}
	}
}

func cmpGreeting(greeting string) string {
	if greeting == "" {
		return "220 sink ESMTP"
	}
	return greeting
}

func TestSMTPDeliversInEachMode(t *testing.T) {
	config, roots := guesttest.Certificate(t)
	for _, c := range []struct {
		mode, username string
		sink           *smtpSink
	}{
		{"starttls", "u", &smtpSink{config: config}},
		{"starttls", "", &smtpSink{config: config, noAuth: true}},
		{"implicit", "u", &smtpSink{config: config, implicit: true}},
		{"off", "u", &smtpSink{}},
		{"off", "", &smtpSink{noAuth: true}},
	} {
		t.Run(c.mode+c.username, func(t *testing.T) {
			sink := startSink(t, c.sink)
			s := &SMTP{Address: sink.addr, From: "Acme Ünited <noreply@acme.example>", TLS: c.mode, Username: c.username, roots: roots}
			if c.username != "" {
				s.Password = "p"
			}
			guesttest.MustStart(t, s)
			if err := s.Send(t.Context(), guesttest.Mail); err != nil {
				t.Fatal(err)
			}
			sink.mu.Lock()
			defer sink.mu.Unlock()
			if len(sink.mails) != 1 || sink.encrypted != (c.mode != "off") {
				t.Fatalf("%d mails, encrypted: %v", len(sink.mails), sink.encrypted)
			}
			if login := "AUTH PLAIN " + base64.StdEncoding.EncodeToString([]byte("\x00u\x00p")); c.username != "" && (len(sink.logins) != 1 || sink.logins[0] != login) {
				t.Errorf("logins: %q", sink.logins)
			}
			checkMail(t, sink.mails[0])
		})
	}
}

func checkMail(t *testing.T, text string) {
	t.Helper()
	m, err := netmail.ReadMessage(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"Auto-Submitted": "auto-generated",
		"Message-Id":     "<fedcba9876543210@acme.example>",
		"Subject":        "Recover",
		"To":             "<ana@example.com>",
	} {
		if got := m.Header.Get(name); got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
	if date, err := m.Header.Date(); err != nil || time.Since(date) > time.Minute {
		t.Errorf("date: %v %v", date, err)
	}
	if from, err := m.Header.AddressList("From"); err != nil || from[0].Name != "Acme Ünited" || from[0].Address != "noreply@acme.example" {
		t.Errorf("from: %v %v", from, err)
	}
	body, _ := io.ReadAll(m.Body)
	if !bytes.Contains(body, []byte("\r\n.\r\nEnd")) || !strings.HasPrefix(m.Header.Get("Content-Type"), "text/plain; charset=UTF-8") {
		t.Errorf("%s\n%q", m.Header.Get("Content-Type"), body)
	}
}

func TestSMTPHeadersCanNotBeInjected(t *testing.T) {
	sink := startSink(t, &smtpSink{})
	s := guesttest.MustStart(t, &SMTP{Address: sink.addr, From: "a@acme.example", TLS: "off"})
	m := guesttest.Mail
	m.Subject = "x\r\nBcc: evil@example.com\r\n\r\nbody ü"
	if err := s.Send(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	got, err := netmail.ReadMessage(strings.NewReader(sink.mails[0]))
	if err != nil {
		t.Fatal(err)
	}
	subject, err := new(mime.WordDecoder).DecodeHeader(got.Header.Get("Subject"))
	if err != nil || got.Header.Get("Bcc") != "" || !strings.HasPrefix(subject, "x\r\nBcc") {
		t.Errorf("%q %v %v", subject, err, got.Header)
	}
	for _, to := range []string{"", "x", "a@b.example\r\nBcc: c@d.example", "a@b.example, c@d.example", "Ana <a@b.example>",
		"a@b.example>\r\nRCPT TO:<c@d.example", `"a> RCPT TO:<c@d.example"@e.example`} {
		m.To = to
		if err := s.Send(t.Context(), m); err == nil {
			t.Errorf("a mail to %q was sent", to)
		}
	}
	if len(sink.mails) != 1 {
		t.Errorf("%d mails", len(sink.mails))
	}
}

func TestSMTPFailsInTimeAndTellsNothing(t *testing.T) {
	config, roots := guesttest.Certificate(t)
	echo := "550 5.7.1 no: " + guesttest.Mail.Link + " hidden"
	for name, c := range map[string]struct {
		sink *smtpSink
		want string
	}{
		"silent":             {&smtpSink{config: config, answers: map[string]string{"EHLO": "wait"}}, "no answer in time"},
		"slow after data":    {&smtpSink{config: config, answers: map[string]string{".": "wait"}}, "no answer in time"},
		"slow login":         {&smtpSink{config: config, answers: map[string]string{"AUTH": "wait"}}, "no answer in time"},
		"hangs up":           {&smtpSink{config: config, answers: map[string]string{"MAIL": ""}}, "MAIL FROM"},
		"not welcome":        {&smtpSink{config: config, greeting: "554 " + guesttest.Mail.Link}, "answered 554"},
		"no smtp":            {&smtpSink{config: config, greeting: "HTTP/1.1 hidden"}, "not SMTP"},
		"no starttls":        {&smtpSink{noSTART: true}, "STARTTLS"},
		"refuses starttls":   {&smtpSink{config: config, answers: map[string]string{"STARTTLS": "454 " + guesttest.Mail.Link}}, "answered 454"},
		"no auth":            {&smtpSink{config: config, noAuth: true}, "AUTH"},
		"wrong password":     {&smtpSink{config: config, answers: map[string]string{"AUTH": "535 5.7.8 hidden"}}, "answered 535"},
		"refuses sender":     {&smtpSink{config: config, answers: map[string]string{"MAIL": echo}}, "550 5.7.1"},
		"refuses recipient":  {&smtpSink{config: config, answers: map[string]string{"RCPT": echo}}, "550 5.7.1"},
		"refuses data":       {&smtpSink{config: config, answers: map[string]string{"DATA": echo}}, "550"},
		"refuses mail":       {&smtpSink{config: config, answers: map[string]string{".": echo}}, "550 5.7.1"},
		"endless line":       {&smtpSink{config: config, greeting: "220 " + strings.Repeat("x", 2*maxSMTPAnswers)}, "too large"},
		"foreign handshake":  {&smtpSink{config: config, answers: map[string]string{"STARTTLS": "220 go\r\n250 injected"}}, "mail smtp"},
		"endless multi-line": {&smtpSink{config: config, answers: map[string]string{"EHLO": strings.Repeat("250-x\r\n", maxSMTPAnswers/4)}}, "too large"},
	} {
		t.Run(name, func(t *testing.T) {
			sink := startSink(t, c.sink)
			s := guesttest.MustStart(t, &SMTP{Address: sink.addr, From: "a@acme.example", Username: "u", Password: "hidden",
				Timeout: caddy.Duration(500 * time.Millisecond), roots: roots})
			watch := storetest.StartWatch()
			err := s.Send(t.Context(), guesttest.Mail)
			if took := watch.Took(); took > 3*time.Second {
				t.Errorf("it took %v", took)
			}
			guesttest.NoSecrets(t, err, "hidden", "mgl_", base64.StdEncoding.EncodeToString([]byte("\x00u\x00hidden")))
			if err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

func TestSMTPAcceptedMailIsDeliveredWhateverFollows(t *testing.T) {
	for name, answers := range map[string]map[string]string{
		"silent":   {"QUIT": "wait", "RSET": "wait"},
		"hangs up": {"QUIT": "", "RSET": ""},
	} {
		t.Run(name, func(t *testing.T) {
			sink := startSink(t, &smtpSink{answers: answers})
			s := guesttest.MustStart(t, &SMTP{Address: sink.addr, From: "a@acme.example", TLS: "off"})
			watch := storetest.StartWatch()
			if err := s.Send(t.Context(), guesttest.Mail); err != nil {
				t.Error(err)
			}
			if took := watch.Took(); took > 3*time.Second {
				t.Errorf("it took %v", took)
			}
		})
	}
}

func TestSMTPTimeoutIsTheWholeMails(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	go func() { // one byte at a time, each well within the timeout
		conn, err := ln.Accept()
		if err != nil {
			return
		}
		for _, b := range []byte("220 " + strings.Repeat("x", 10000)) {
			if _, err := conn.Write([]byte{b}); err != nil {
				return
			}
			time.Sleep(20 * time.Millisecond)
		}
	}()
	s := guesttest.MustStart(t, &SMTP{Address: ln.Addr().String(), From: "a@acme.example", TLS: "off", Timeout: caddy.Duration(200 * time.Millisecond)})
	watch := storetest.StartWatch()
	err = s.Send(t.Context(), guesttest.Mail)
	if took := watch.Took(); err == nil || took > 3*time.Second {
		t.Errorf("%v after %v", err, took)
	}
}

func TestSMTPRefusesAForeignCertificate(t *testing.T) {
	config, _ := guesttest.Certificate(t)
	_, others := guesttest.Certificate(t)
	for _, implicit := range []bool{false, true} {
		sink := startSink(t, &smtpSink{config: config, implicit: implicit})
		s := &SMTP{Address: sink.addr, From: "a@acme.example", Username: "u", Password: "p", roots: others}
		if implicit {
			s.TLS = "implicit"
		}
		guesttest.MustStart(t, s)
		if err := s.Send(t.Context(), guesttest.Mail); err == nil || !strings.Contains(err.Error(), "certificate") {
			t.Errorf("got %v", err)
		}
		if len(sink.logins)+len(sink.mails) != 0 {
			t.Error("it spoke on")
		}
	}
}

func TestSMTPMayBeUsedConcurrently(t *testing.T) {
	sink := startSink(t, &smtpSink{})
	s := guesttest.MustStart(t, &SMTP{Address: sink.addr, From: "a@acme.example", TLS: "off", Username: "u", Password: "p"})
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if err := s.Send(t.Context(), guesttest.Mail); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if len(sink.mails) != 8 {
		t.Errorf("%d mails", len(sink.mails))
	}
}
