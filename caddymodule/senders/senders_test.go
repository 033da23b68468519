package senders

import (
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
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/caddyserver/caddy/v2"

	"github.com/mnemogate/mnemogate/caddymodule/guest"
	"github.com/mnemogate/mnemogate/caddymodule/guest/guesttest"
	"github.com/mnemogate/mnemogate/flows/message"
	"github.com/mnemogate/mnemogate/store/causes"
	"github.com/mnemogate/mnemogate/store/storetest"
)

var must = storetest.Must

func TestWebhookCaddyfile(t *testing.T) {
	guesttest.Caddyfiles(t, new(SMSWebhook), []guesttest.Case{
		{Name: "all", Text: `webhook https://gw.example/sms {
			secret {env.KEY}
			timeout 2s
			max_conns 10
			header X-One a
			header X-Two "b c"
		}`, Want: &SMSWebhook{webhook{URL: "https://gw.example/sms", Secrets: []string{"{env.KEY}"}, Timeout: caddy.Duration(2 * time.Second), MaxConns: 10,
			Headers: map[string]string{"X-One": "a", "X-Two": "b c"}}}},
		{Name: "two urls", Text: "webhook https://a https://b", Err: "wrong argument count"},
		{Name: "header twice", Text: "webhook https://a {\nheader X-A x\nheader x-a y\n}", Err: "header: x-a already specified"},
		{Name: "three secrets", Text: "webhook https://a {\nsecret a b c\n}",
			Want: &SMSWebhook{webhook{URL: "https://a", Secrets: []string{"a", "b", "c"}}}},
		{Name: "an empty secret", Text: "webhook https://a {\nsecret a \"\"\n}", Err: "the value is empty; write secret <key>..."},
		{Name: "no duration", Text: "webhook https://a {\ntimeout soon\n}", Err: "not a duration"},
		{Name: "no time", Text: "webhook https://a {\ntimeout 0s\n}", Err: "not a duration"},
		{Name: "header without value", Text: "webhook https://a {\nheader X\n}", Err: "<value> is missing; write header <name> <value>"},
	})
}

func TestWebhookRefusesWhatCanNotBeSentOrVerified(t *testing.T) {
	for name, c := range map[string]struct {
		w    webhook
		want string
	}{
		"empty base64":  {webhook{URL: "https://a", Secrets: []string{"whsec_"}}, "whsec_"},
		"no scheme":     {webhook{URL: "a.example/x?key=hidden", Secrets: []string{"x"}}, "sms webhook: url"},
		"other scheme":  {webhook{URL: "ftp://hidden@a", Secrets: []string{"x"}}, "sms webhook: url"},
		"no host":       {webhook{URL: "https:///hidden", Secrets: []string{"x"}}, "sms webhook: url"},
		"bad url":       {webhook{URL: "https://hidden:x\n@a", Secrets: []string{"x"}}, "sms webhook: url"},
		"header name":   {webhook{URL: "https://a", Secrets: []string{"x"}, Headers: map[string]string{"X Y": "z"}}, "X Y"},
		"header value":  {webhook{URL: "https://a", Secrets: []string{"x"}, Headers: map[string]string{"X": "hidden\r\nY: z"}}, "header X: it has a line break"},
		"header's dash": {webhook{URL: "https://a", Secrets: []string{"x"}, Headers: map[string]string{"X": "a–b"}}, `"X"`},
		"header's end":  {webhook{URL: "https://a", Secrets: []string{"x"}, Headers: map[string]string{"X": "a "}}, `"X"`},
		"own header":    {webhook{URL: "https://a", Secrets: []string{"x"}, Headers: map[string]string{"Webhook-ID": "z"}}, "Webhook-ID"},
		"length header": {webhook{URL: "https://a", Secrets: []string{"x"}, Headers: map[string]string{"content-length": "1"}}, "content-length"},
		"timeout":       {webhook{URL: "https://a", Secrets: []string{"x"}, Timeout: caddy.Duration(time.Hour)}, "timeout"},
		"max_conns":     {webhook{URL: "https://a", Secrets: []string{"x"}, MaxConns: 1001}, "max_conns: choose 1 to 1000"},
		"negative":      {webhook{URL: "https://a", Secrets: []string{"x"}, Timeout: -1}, "timeout"},
		"5 in JSON":     {webhook{URL: "https://a", Secrets: []string{"x"}, Timeout: 5}, "timeout: choose 1ms to 1m"},
		"header's":      {webhook{URL: "https://a", Secrets: []string{"x"}, Headers: map[string]string{"X": "{env.MNEMOGATE_TEST_ABSENT}"}}, "header X"},
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

func TestWebhookNamesTheSameHeaderEachTime(t *testing.T) {
	for value, want := range map[string]string{"a–b": `header "X-A"`, "{env.MNEMOGATE_TEST_ABSENT}": "header X-A"} {
		for range 32 {
			headers := map[string]string{"X-A": value, "X-B": value, "X-C": value}
			err := guesttest.Start(t, &SMSWebhook{webhook{URL: "https://a", Secrets: []string{"x"}, Headers: headers}})
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Fatalf("got %v, want %q", err, want)
			}
		}
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
	w := guesttest.MustStart(t, &SMSWebhook{webhook{URL: gateway.URL + "/x?key=k", Secrets: []string{"{env.MNEMOGATE_TEST_SECRET}"},
		Headers: map[string]string{"X-Key": "{env.MNEMOGATE_TEST_SECRET}"}}})
	must(t, w.Send(t.Context(), guesttest.SMS))
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

	w = guesttest.MustStart(t, &SMSWebhook{webhook{URL: gateway.URL, Secrets: []string{"plain key"}}})
	must(t, w.Send(t.Context(), guesttest.SMS))
	if err := verifyWebhook(got, body, []byte("plain key")); err != nil {
		t.Errorf("without whsec_: %v", err)
	}

	m := guesttest.MustStart(t, &MailWebhook{webhook{URL: gateway.URL, Secrets: []string{"plain key"}}})
	notice := message.Message{ID: "1", Type: message.NoticePasswordChanged, Company: "acme", Name: "Acme Inc", Language: "en", Mnemocode: "u-1", To: "a@example.com", Subject: "Changed", Text: "It was changed", HTML: "<p>It was changed"}
	must(t, m.Send(t.Context(), notice))
	want = map[string]any{"type": notice.Type, "company_code": "acme", "company_name": "Acme Inc", "language": "en", "profile_mnemocode": "u-1", "to": notice.To, "subject": notice.Subject, "text": notice.Text, "html": notice.HTML}
	clear(sent)
	if err := json.Unmarshal(body, &sent); err != nil || !reflect.DeepEqual(sent, want) {
		t.Errorf("a notice: got %v %v, want %v", sent, err, want)
	}
}

func TestWebhookEndsWithItsCaller(t *testing.T) {
	w := guesttest.MustStart(t, &SMSWebhook{webhook{URL: guesttest.Serve(t, http.HandlerFunc(guesttest.Hang)).URL, Secrets: []string{"x"}}})
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
	w := guesttest.MustStart(t, &SMSWebhook{webhook{URL: gateway.URL, Secrets: []string{"x"}}})
	if err := w.Send(t.Context(), guesttest.SMS); err != nil {
		t.Error(err)
	}
}

// A gateway that has taken the message may work on before it ends its answer. The user does not
// wait for it.
func TestWebhookDoesNotWaitForTheEndOfAnAnswer(t *testing.T) {
	gateway := guesttest.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusAccepted)
		http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}))
	w := guesttest.MustStart(t, &SMSWebhook{webhook{URL: gateway.URL, Secrets: []string{"x"}, Timeout: caddy.Duration(20 * time.Second)}})
	watch := storetest.StartWatch()
	if err := w.Send(t.Context(), guesttest.SMS); err != nil || watch.Took() > 10*time.Second {
		t.Errorf("%v after %v", err, watch.Took())
	}
}

func TestWebhookReusesItsConnectionAndSurvivesItsEnd(t *testing.T) {
	var gateway *httptest.Server
	var w *SMSWebhook
	storetest.InQuiet(t, 100*time.Millisecond, func() error { // an answer whose end is late costs the connection
		var opened atomic.Int64
		gateway = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Write(make([]byte, 32<<10))
		}))
		gateway.Config.ConnState = func(_ net.Conn, state http.ConnState) {
			if state == http.StateNew {
				opened.Add(1)
			}
		}
		gateway.Start()
		t.Cleanup(gateway.Close)
		w = guesttest.MustStart(t, &SMSWebhook{webhook{URL: gateway.URL, Secrets: []string{"x"}}})
		for range 5 {
			must(t, w.Send(t.Context(), guesttest.SMS))
		}
		if n := opened.Load(); n != 1 {
			return fmt.Errorf("%d connections were opened", n)
		}
		return nil
	})
	for range 20 {
		gateway.CloseClientConnections()
		if err := w.Send(t.Context(), guesttest.SMS); err != nil {
			t.Fatalf("after the gateway closed the idle connection: %v", err)
		}
	}
}

// A gateway gets no more requests at once than max_conns; the others wait, within the
// timeout. Notices leave a connection to messages for which users wait, and no company waits
// for another's gateway.
func TestWebhookBoundsWhatIsOpen(t *testing.T) {
	var open, most atomic.Int64
	release := make(chan struct{})
	gateway := guesttest.Serve(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		n := open.Add(1)
		defer open.Add(-1)
		for seen := most.Load(); n > seen && !most.CompareAndSwap(seen, n); seen = most.Load() {
		}
		body, _ := io.ReadAll(r.Body)
		if bytes.Contains(body, []byte("notice.")) {
			<-release
		}
	}))
	start := func(timeout time.Duration) *MailWebhook {
		return guesttest.MustStart(t, &MailWebhook{webhook{URL: gateway.URL, Secrets: []string{"x"}, MaxConns: 3, Timeout: caddy.Duration(timeout)}})
	}
	w := start(20 * time.Second)
	notice := guesttest.Mail
	notice.Type = message.NoticePasswordChanged
	var all sync.WaitGroup
	for range 10 {
		all.Go(func() {
			if err := w.Send(t.Context(), notice); err != nil {
				t.Error(err)
			}
		})
	}
	for open.Load() < 2 { // both that notices may use
		time.Sleep(time.Millisecond)
	}
	for range 5 {
		all.Go(func() {
			if err := w.Send(t.Context(), guesttest.Mail); err != nil {
				t.Error(err)
			}
		})
	}
	must(t, w.Send(t.Context(), guesttest.Mail))
	must(t, start(20*time.Second).Send(t.Context(), guesttest.Mail))
	close(release)
	all.Wait()
	if n := most.Load(); n > 4 { // 3, and the other company's
		t.Errorf("%d requests were open at once", n)
	}

	w = start(200 * time.Millisecond)
	must(t, w.open.Do(t.Context(), "", true, func() error {
		return w.open.Do(t.Context(), "", true, func() error { // all that notices may use
			watch := storetest.StartWatch()
			err := w.Send(t.Context(), notice)
			if later, ok := errors.AsType[*message.LaterError](err); !ok || !strings.Contains(later.Error(), "max_conns") || watch.Took() > 3*time.Second {
				t.Errorf("after %v: %v", watch.Took(), err)
			}
			return nil
		})
	}))
}

// What a gateway certainly did not take may be sent again, when it says.
func TestWebhookSaysWhatMayBeSentAgain(t *testing.T) {
	for name, c := range map[string]struct {
		status     int
		retryAfter string
		again      bool
		least      time.Duration
	}{
		"too many":       {429, "7", true, 7 * time.Second},
		"down":           {503, time.Now().Add(time.Hour).UTC().Format(http.TimeFormat), true, 59 * time.Minute},
		"down, no time":  {503, "", true, 0},
		"down, nonsense": {503, "soon", true, 0},
		"refused":        {400, "7", false, 0},
		"perhaps taken":  {502, "7", false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			gateway := guesttest.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Retry-After", c.retryAfter)
				w.WriteHeader(c.status)
			}))
			w := guesttest.MustStart(t, &SMSWebhook{webhook{URL: gateway.URL, Secrets: []string{"x"}}})
			err := w.Send(t.Context(), guesttest.SMS)
			later, again := errors.AsType[*message.LaterError](err)
			if again != c.again || again && (later.Wait < c.least || later.Wait > c.least+time.Minute) {
				t.Errorf("got %v, %#v", err, later)
			}
		})
	}
	gone := guesttest.Serve(t, http.NotFoundHandler())
	gone.Close()
	err := guesttest.MustStart(t, &SMSWebhook{webhook{URL: gone.URL, Secrets: []string{"x"}}}).Send(t.Context(), guesttest.SMS)
	if _, again := errors.AsType[*message.LaterError](err); !again {
		t.Errorf("nobody listens: %v", err)
	}
}

// A number in an answer is shown also if it is part of the request's time, as of a phone it can
// be. By chance it is also part of the URL or the signature, but not at each second.
func TestWebhookShowsNumbersOfTheTime(t *testing.T) {
	gateway := guesttest.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusUnprocessableEntity)
		fmt.Fprintf(w, "no way to +37%s", r.Header.Get("webhook-timestamp"))
	}))
	w := guesttest.MustStart(t, &SMSWebhook{webhook{URL: gateway.URL, Secrets: []string{"x"}}})
	storetest.Eventually(t, 30*time.Second, "number in the error", func() bool {
		return strings.Contains(w.Send(t.Context(), guesttest.SMS).Error(), "no way to +37")
	})
}

// The error of a gateway names its cause and the next step, in one readable line.
func TestWebhookErrorsNameTheirCause(t *testing.T) {
	listen := func(config *tls.Config, answer string) string {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		must(t, err)
		t.Cleanup(func() { ln.Close() })
		if config != nil {
			ln = tls.NewListener(ln, config)
		}
		go func() {
			for {
				conn, err := ln.Accept()
				if err != nil {
					return
				}
				_, _ = conn.Read(make([]byte, 4<<10))
				_, _ = io.WriteString(conn, answer)
				conn.Close()
			}
		}()
		return ln.Addr().String()
	}
	config, _ := guesttest.Certificate(t)
	old := config.Clone()
	old.MinVersion, old.MaxVersion = tls.VersionTLS10, tls.VersionTLS11
	const http = "HTTP/1.1 422 No\r\nContent-Length: 0\r\n\r\n"
	noName := strings.Repeat("a", 64) // too long a label, so no resolver is asked
	for url, want := range map[string]string{
		"https://" + listen(config, http):                   "this machine does not trust the authority of its certificate: install that authority's certificate here (update-ca-certificates, or name its file in SSL_CERT_FILE)",
		"https://" + listen(old, http):                      "it has only TLS 1.1 or older",
		"https://" + listen(nil, http):                      "it answers without TLS: check the port",
		"https://" + listen(nil, "220 sink ESMTP\r\n"):      "it answers without TLS: check the port",
		"http://" + listen(config, http):                    "check the port, and whether it expects TLS",
		"http://" + listen(nil, "\x15\x03\x01\xff\xfe\r\n"): "check that it speaks HTTP on this port, and that the URL begins with https if",
		"http://" + listen(nil, http):                       "it refused this message: look at its log",
		"http://127.0.0.1:1":                                "nothing listens there",
		"https://" + noName:                                 "check that the name is right",
	} {
		w := guesttest.MustStart(t, &SMSWebhook{webhook{URL: url, Secrets: []string{"whsec_aGlkZGVu"}}})
		err := w.Send(t.Context(), guesttest.SMS)
		what, step := causes.Split(err)
		cause, _, _ := strings.Cut(step, ":")
		if !strings.HasPrefix(step, want) || !utf8.ValidString(err.Error()) || strings.ContainsFunc(err.Error(), unicode.IsControl) || strings.Contains(what, cause) {
			t.Errorf("%s: got %v", url, err)
		}
	}
}

func TestAShortWebhookSecretIsWeak(t *testing.T) {
	of := func(bytes int) string { return "whsec_" + base64.StdEncoding.EncodeToString(make([]byte, bytes)) }
	for secret, weak := range map[string]bool{"x": true, "whsec_eA==": true, of(23): true, of(24): false} {
		w := guesttest.MustStart(t, &SMSWebhook{webhook{URL: "https://a.example", Secrets: []string{secret}}})
		if got := slices.ContainsFunc(w.Weaknesses(), func(w guest.Weakness) bool {
			return strings.Contains(w.Message, "fewer than") && strings.Contains(w.Advice, `"whsec_$(openssl`)
		}); got != weak {
			t.Errorf("a secret of %d characters: %v", len(secret), w.Weaknesses())
		}
	}
}
