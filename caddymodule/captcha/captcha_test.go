package captcha

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/mnemogate/mnemogate/caddymodule/guest/guesttest"
	"github.com/mnemogate/mnemogate/flows/tenant"
)

// patient is for answers that come however busy this machine is.
const patient = caddy.Duration(20 * time.Second)

func TestCaptchaCaddyfile(t *testing.T) {
	guesttest.Caddyfiles(t, new(Turnstile), []guesttest.Case{
		{Name: "no secret", Text: "turnstile", Err: "<secret> is missing; write turnstile <secret>"},
		{Name: "surplus", Text: "turnstile a b", Err: "wrong argument count"},
	})
	guesttest.Caddyfiles(t, new(HCaptcha), []guesttest.Case{{Name: "hcaptcha", Text: "hcaptcha x", Want: &HCaptcha{siteverify{Secret: "x"}}}})
	guesttest.Caddyfiles(t, new(ReCaptcha), []guesttest.Case{{Name: "recaptcha", Text: "recaptcha x", Want: &ReCaptcha{siteverify{Secret: "x"}}}})
	guesttest.Caddyfiles(t, new(Siteverify), []guesttest.Case{
		{Name: "siteverify", Text: "siteverify https://c.example/verify x {\nhostname a\n}",
			Want: &Siteverify{siteverify{URL: "https://c.example/verify", Secret: "x", Hostname: []string{"a"}}}},
		{Name: "siteverify without secret", Text: "siteverify https://c.example/verify", Err: "<secret> is missing; write siteverify <url> [insecure] <secret>"},
	})
	guesttest.Caddyfiles(t, new(Pow), []guesttest.Case{
		{Name: "pow too easy", Text: "pow 7", Err: "choose 8 to 24 bits"},
		{Name: "pow too hard", Text: "pow 25", Err: "choose 8 to 24 bits"},
		{Name: "pow without number", Text: "pow x", Err: "'x' is not a number above 0"},
	})
	guesttest.Caddyfiles(t, new(Static), []guesttest.Case{
		{Name: "static without token", Text: "static", Err: "<response> is missing; write static <response>"},
		{Name: "static with an empty token", Text: `static ""`, Err: "the value is empty; write static <response>"},
	})
}

func TestCaptchaRefusesABadConfiguration(t *testing.T) {
	for want, m := range map[string]any{
		"captcha turnstile: the secret":            new(Turnstile),
		"captcha hcaptcha: secret: {env.":          &HCaptcha{siteverify{Secret: "{env.MNEMOGATE_TEST_ABSENT}"}},
		"captcha recaptcha: timeout":               &ReCaptcha{siteverify{Secret: "x", Timeout: -1}},
		"captcha siteverify: url":                  &Siteverify{siteverify{Secret: "x"}},
		"captcha siteverify: url: write":           &Siteverify{siteverify{Secret: "x", URL: "c.example/verify"}},
		`captcha turnstile: hostname: "https://a"`: &Turnstile{siteverify{Secret: "x", Hostname: []string{"a", "https://a"}}},
		`captcha hcaptcha: hostname: "a:443"`:      &HCaptcha{siteverify{Secret: "x", Hostname: []string{"a:443"}}},
		`captcha recaptcha: hostname: "*.a"`:       &ReCaptcha{siteverify{Secret: "x", Hostname: []string{"*.a"}}},
		`captcha turnstile: hostname: "müller.de" is not how providers write it; write xn--mller-kva.de`: &Turnstile{siteverify{Secret: "x", Hostname: []string{"App.example", "a_b.example", "müller.de"}}},
		"captcha pow: choose 8":                    &Pow{ZeroBits: 7},
		"captcha static: the response":             new(Static),
		"captcha static: {env.MNEMOGATE_TEST_ABSE": &Static{Token: "{env.MNEMOGATE_TEST_ABSENT}"},
	} {
		if err := guesttest.Start(t, m); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

func TestASecretForTestsIsAWeakness(t *testing.T) {
	for secret, want := range map[string]int{
		"1x0000000000000000000000000000000AA": 1, "0x0000000000000000000000000000000000000000": 1,
		"6LeIxAcTAAAAAGG-vFI1TnRWxMZNFuojJ4WifJWe": 1, "x": 0,
	} {
		t.Setenv("MNEMOGATE_TEST_SECRET", secret)
		if got := guesttest.MustStart(t, &Turnstile{siteverify{Secret: "{env.MNEMOGATE_TEST_SECRET}"}}).Weaknesses(); len(got) != want {
			t.Errorf("%s: got %v", secret, got)
		}
	}
}

func TestCaptchaProvidersHaveTheirAddresses(t *testing.T) {
	turnstile := guesttest.MustStart(t, &Turnstile{siteverify{Secret: "x"}})
	hcaptcha := guesttest.MustStart(t, &HCaptcha{siteverify{Secret: "x"}})
	recaptcha := guesttest.MustStart(t, &ReCaptcha{siteverify{Secret: "x"}})
	for _, s := range []siteverify{turnstile.siteverify, hcaptcha.siteverify, recaptcha.siteverify} {
		if !strings.HasPrefix(s.URL, "https://") || s.Timeout != caddy.Duration(3*time.Second) {
			t.Errorf("%s: %s %v", s.what, s.URL, time.Duration(s.Timeout))
		}
	}
}

func TestCaptchaSendsWhatTheProviderNeeds(t *testing.T) {
	t.Setenv("MNEMOGATE_TEST_SECRET", "s3cr3t")
	var got []url.Values
	provider := guesttest.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := r.ParseForm(); err != nil || r.Method != "POST" || r.URL.RawQuery != "" {
			t.Errorf("%s %v %v", r.Method, r.URL, err)
		}
		got = append(got, r.PostForm)
		w.Write([]byte(`{"success":true}`))
	}))
	c := guesttest.MustStart(t, &Turnstile{siteverify{Secret: "{env.MNEMOGATE_TEST_SECRET}", URL: provider.URL, Timeout: patient}})
	for _, address := range []string{"2001:db8::1", ""} {
		if ok, err := c.Verify(t.Context(), "a b&c", address); !ok || err != nil {
			t.Errorf("got %v, %v", ok, err)
		}
	}
	want := []url.Values{
		{"secret": {"s3cr3t"}, "response": {"a b&c"}, "remoteip": {"2001:db8::1"}},
		{"secret": {"s3cr3t"}, "response": {"a b&c"}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if ok, err := c.Verify(t.Context(), "", ""); ok || err != nil || len(got) != 2 {
		t.Errorf("an empty response: %v, %v, %d requests", ok, err, len(got))
	}
}

func TestCaptchaVerdicts(t *testing.T) {
	for name, c := range map[string]struct {
		body     string
		hostname []string
		want     bool
	}{
		"right":             {`{"success":true}`, nil, true},
		"right, with more":  {`{"success":true,"challenge_ts":"x","error-codes":[],"cdata":{}}`, nil, true},
		"wrong":             {`{"success":false}`, nil, false},
		"used":              {`{"success":false,"error-codes":["timeout-or-duplicate"]}`, nil, false},
		"invalid":           {`{"success":false,"error-codes":["invalid-input-response"]}`, nil, false},
		"unknown code":      {`{"success":false,"error-codes":["who-knows"]}`, nil, false},
		"host":              {`{"success":true,"hostname":"App.example"}`, []string{"x", "app.example"}, true},
		"another host":      {`{"success":true,"hostname":"evil.example"}`, []string{"app.example"}, false},
		"host of a suffix":  {`{"success":true,"hostname":"x.app.example"}`, []string{"app.example"}, false},
		"no host":           {`{"success":true}`, []string{"app.example"}, false},
		"score":             {`{"success":true,"score":0.5}`, nil, true},
		"low score":         {`{"success":true,"score":0.4}`, nil, false},
		"score as a text":   {`{"success":true,"score":"0.9"}`, nil, false},
		"other types":       {`{"success":true,"error-codes":"none","hostname":7,"action":[]}`, nil, true},
		"host of a type":    {`{"success":true,"hostname":["app.example"]}`, []string{"app.example"}, false},
		"wrong, right host": {`{"success":false,"hostname":"app.example"}`, []string{"app.example"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := siteverify{Secret: "x", URL: guesttest.Serve(t, guesttest.Answering(200, c.body)).URL, Hostname: c.hostname, Timeout: patient}
			for _, m := range []tenant.Captcha{&Turnstile{s}, &HCaptcha{s}, &ReCaptcha{s}, &Siteverify{s}} {
				_, v3 := m.(*ReCaptcha)
				want := c.want || !v3 && strings.Contains(c.body, "score") // hCaptcha's scores grow with the risk
				got, err := guesttest.MustStart(t, m).Verify(t.Context(), "response", "")
				if got != want || err != nil {
					t.Errorf("%T: got %v, %v, want %v", m, got, err, want)
				}
			}
		})
	}
}

func TestCaptchaThatIsNotAnsweredIsAnError(t *testing.T) {
	for name, c := range map[string]struct {
		handler http.HandlerFunc
		want    string
	}{
		"wrong secret":   {guesttest.Answering(200, `{"success":false,"error-codes":["x","invalid-input-secret"]}`), "invalid-input-secret"},
		"internal error": {guesttest.Answering(200, `{"success":false,"error-codes":["internal-error"]}`), "internal-error"},
		"500":            {guesttest.Answering(500, `{"success":true}`), "answered 500"},
		"403":            {guesttest.Answering(403, ``), "answered 403; check that it has the same secret"},
		"429":            {guesttest.Answering(429, `{"success":true}`), "answered 429"},
		"redirect":       {func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/ok", http.StatusTemporaryRedirect) }, "answered 307"},
		"html":           {guesttest.Answering(200, `<html>`), "JSON"},
		"empty":          {guesttest.Answering(200, ``), "JSON"},
		"no success":     {guesttest.Answering(200, `{"hostname":"x"}`), "JSON"},
		"null":           {guesttest.Answering(200, `null`), "JSON"},
		"list":           {guesttest.Answering(200, `[true]`), "JSON"},
		"string":         {guesttest.Answering(200, `{"success":"true"}`), "JSON"},
		"trailing":       {guesttest.Answering(200, `{"success":true}{"success":false}`), "JSON"},
		"huge":           {guesttest.Answering(200, `{"success":true,"x":"`+strings.Repeat("x", maxSiteverifyAnswer)+`"}`), "too large"},
		"slow":           {guesttest.Hang, "no answer in time"},
		"slow body": {func(w http.ResponseWriter, r *http.Request) {
			w.Write([]byte(`{"success":true`))
			http.NewResponseController(w).Flush()
			guesttest.Hang(w, r)
		}, "no answer in time"},
		"cut off": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			w.Write([]byte(`{"success":true}`))
		}, "closed the connection"},
	} {
		t.Run(name, func(t *testing.T) {
			mux := http.NewServeMux()
			mux.HandleFunc("/", c.handler)
			mux.HandleFunc("/ok", guesttest.Answering(200, `{"success":true}`))
			m := guesttest.MustStart(t, &HCaptcha{siteverify{Secret: "hidden-secret", URL: guesttest.Serve(t, mux).URL, Timeout: patient}})
			if c.want == "no answer in time" { // the others answer, however busy this machine is
				m.client.Timeout = 200 * time.Millisecond
			}
			ok, err := m.Verify(t.Context(), "hidden-response", "")
			guesttest.NoSecrets(t, err, "hidden")
			if ok || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, %v, want %q", ok, err, c.want)
			}
		})
	}
}

func TestCaptchaEndsWithItsCaller(t *testing.T) {
	m := guesttest.MustStart(t, &HCaptcha{siteverify{Secret: "x", URL: guesttest.Serve(t, http.HandlerFunc(guesttest.Hang)).URL}})
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(20*time.Millisecond, cancel)
	if ok, err := m.Verify(ctx, "x", ""); ok || !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, %v", ok, err)
	}
}

func TestStaticCaptchaTakesOneResponse(t *testing.T) {
	t.Setenv("MNEMOGATE_TEST_SECRET", "right")
	m := guesttest.MustStart(t, &Static{Token: "{env.MNEMOGATE_TEST_SECRET}"})
	for response, want := range map[string]bool{"right": true, "wrong": false, "": false, "right ": false, "{env.MNEMOGATE_TEST_SECRET}": false} {
		if got, err := m.Verify(t.Context(), response, ""); got != want || err != nil {
			t.Errorf("%q: got %v, %v, want %v", response, got, err, want)
		}
	}
}

func TestPowHas18Bits(t *testing.T) {
	if bits := guesttest.MustStart(t, new(Pow)).Bits(); bits != 18 {
		t.Errorf("got %d bits", bits)
	}
}

func FuzzSiteverify(f *testing.F) {
	for _, seed := range []string{
		`{"success":true,"hostname":"app.example","score":0.9}`,
		`{"success":false,"error-codes":["invalid-input-secret"]}`,
		`{"success":null,"error-codes":null}`,
		`{"Success":true}`,
		`[]`,
	} {
		f.Add([]byte(seed))
	}
	s := ReCaptcha{siteverify{Hostname: []string{"app.example"}}}
	if err := s.Provision(caddy.ActiveContext()); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		v, err := parseVerdict(body)
		if err != nil {
			return
		}
		if s.accepts(v) && (v.Success != true || !strings.EqualFold(v.Hostname, "app.example")) {
			t.Errorf("accepted %s", body)
		}
	})
}
