package caddymodule

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

	"github.com/mnemogate/mnemogate/flows"
)

func TestCaptchaCaddyfile(t *testing.T) {
	testGuests(t, new(Turnstile), []guestCase{
		{name: "turnstile", text: "turnstile {env.KEY} {\nhostname a.example b.example\ntimeout 1s\n}",
			want: &Turnstile{siteverify{Secret: "{env.KEY}", Hostname: []string{"a.example", "b.example"}, Timeout: caddy.Duration(time.Second)}}},
		{name: "no secret", text: "turnstile", err: "wrong argument count"},
		{name: "surplus", text: "turnstile a b", err: "wrong argument count"},
		{name: "unknown", text: "turnstile a {\nscore 1\n}", err: "unrecognized subdirective 'score'"},
		{name: "hostname twice", text: "turnstile a {\nhostname a\nhostname b\n}", err: "hostname already specified"},
		{name: "no hostname", text: "turnstile a {\nhostname\n}", err: "wrong argument count"},
		{name: "timeout twice", text: "turnstile a {\ntimeout 1s\ntimeout 1s\n}", err: "timeout already specified"},
	})
	testGuests(t, new(HCaptcha), []guestCase{{name: "hcaptcha", text: "hcaptcha x", want: &HCaptcha{siteverify{Secret: "x"}}}})
	testGuests(t, new(ReCaptcha), []guestCase{{name: "recaptcha", text: "recaptcha x", want: &ReCaptcha{siteverify{Secret: "x"}}}})
	testGuests(t, new(Siteverify), []guestCase{
		{name: "siteverify", text: "siteverify https://c.example/verify x {\nhostname a\n}",
			want: &Siteverify{siteverify{URL: "https://c.example/verify", Secret: "x", Hostname: []string{"a"}}}},
		{name: "siteverify without secret", text: "siteverify https://c.example/verify", err: "wrong argument count"},
	})
	testGuests(t, new(StaticCaptcha), []guestCase{
		{name: "static", text: "static right", want: &StaticCaptcha{Token: "right"}},
		{name: "static without token", text: "static", err: "wrong argument count"},
		{name: "static with two", text: "static a b", err: "wrong argument count"},
		{name: "static with block", text: "static a {\nx\n}", err: "unrecognized subdirective 'x'"},
	})
	testGuests(t, new(CaptchaOff), []guestCase{
		{name: "off", text: "off", want: new(CaptchaOff)},
		{name: "off with argument", text: "off x", err: "wrong argument count"},
		{name: "off with block", text: "off {\nx\n}", err: "unrecognized subdirective 'x'"},
	})
}

func TestCaptchaRefusesABadConfiguration(t *testing.T) {
	for want, m := range map[string]any{
		"captcha turnstile: the secret":            new(Turnstile),
		"captcha hcaptcha: secret: {env.":          &HCaptcha{siteverify{Secret: "{env.MNEMOGATE_TEST_ABSENT}"}},
		"captcha recaptcha: timeout":               &ReCaptcha{siteverify{Secret: "x", Timeout: -1}},
		"captcha siteverify: url":                  &Siteverify{siteverify{Secret: "x"}},
		"captcha siteverify: url: write":           &Siteverify{siteverify{Secret: "x", URL: "c.example/verify"}},
		"captcha static: the token":                new(StaticCaptcha),
		"captcha static: {env.MNEMOGATE_TEST_ABSE": &StaticCaptcha{Token: "{env.MNEMOGATE_TEST_ABSENT}"},
	} {
		if err := startGuest(t, m); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

func TestCaptchaProvidersHaveTheirAddresses(t *testing.T) {
	turnstile := mustStart(t, &Turnstile{siteverify{Secret: "x"}})
	hcaptcha := mustStart(t, &HCaptcha{siteverify{Secret: "x"}})
	recaptcha := mustStart(t, &ReCaptcha{siteverify{Secret: "x"}})
	for _, s := range []siteverify{turnstile.siteverify, hcaptcha.siteverify, recaptcha.siteverify} {
		if !strings.HasPrefix(s.URL, "https://") || s.Timeout != caddy.Duration(3*time.Second) {
			t.Errorf("%s: %s %v", s.what, s.URL, time.Duration(s.Timeout))
		}
	}
}

// answering is a provider that always answers the same.
func answering(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		w.Write([]byte(body))
	}
}

func TestCaptchaSendsWhatTheProviderNeeds(t *testing.T) {
	t.Setenv("MNEMOGATE_TEST_SECRET", "s3cr3t")
	var got []url.Values
	provider := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := r.ParseForm(); err != nil || r.Method != "POST" || r.URL.RawQuery != "" {
			t.Errorf("%s %v %v", r.Method, r.URL, err)
		}
		got = append(got, r.PostForm)
		w.Write([]byte(`{"success":true}`))
	}))
	c := mustStart(t, &Turnstile{siteverify{Secret: "{env.MNEMOGATE_TEST_SECRET}", URL: provider.URL}})
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
		"wrong, right host": {`{"success":false,"hostname":"app.example"}`, []string{"app.example"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := siteverify{Secret: "x", URL: serve(t, answering(200, c.body)).URL, Hostname: c.hostname}
			for _, m := range []flows.Captcha{&Turnstile{s}, &HCaptcha{s}, &ReCaptcha{s}, &Siteverify{s}} {
				_, v3 := m.(*ReCaptcha)
				want := c.want || !v3 && name == "low score" // hCaptcha's scores grow with the risk
				got, err := mustStart(t, m).Verify(t.Context(), "response", "")
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
		"wrong secret":   {answering(200, `{"success":false,"error-codes":["x","invalid-input-secret"]}`), "invalid-input-secret"},
		"no secret":      {answering(200, `{"success":false,"error-codes":["missing-input-secret"]}`), "missing-input-secret"},
		"site key":       {answering(200, `{"success":false,"error-codes":["sitekey-secret-mismatch"]}`), "sitekey-secret-mismatch"},
		"dummy":          {answering(200, `{"success":false,"error-codes":["not-using-dummy-passcode"]}`), "not-using-dummy-passcode"},
		"bad request":    {answering(200, `{"success":false,"error-codes":["bad-request"]}`), "bad-request"},
		"internal error": {answering(200, `{"success":false,"error-codes":["internal-error"]}`), "internal-error"},
		"500":            {answering(500, `{"success":true}`), "answered 500"},
		"429":            {answering(429, `{"success":true}`), "answered 429"},
		"403":            {answering(403, `{"success":true}`), "answered 403"},
		"201":            {answering(201, `{"success":true}`), "answered 201"},
		"redirect":       {func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/ok", http.StatusTemporaryRedirect) }, "answered 307"},
		"html":           {answering(200, `<html>`), "JSON"},
		"empty":          {answering(200, ``), "JSON"},
		"no success":     {answering(200, `{"hostname":"x"}`), "JSON"},
		"null":           {answering(200, `null`), "JSON"},
		"list":           {answering(200, `[true]`), "JSON"},
		"string":         {answering(200, `{"success":"true"}`), "JSON"},
		"trailing":       {answering(200, `{"success":true}{"success":false}`), "JSON"},
		"huge":           {answering(200, `{"success":true,"x":"`+strings.Repeat("x", maxSiteverifyAnswer)+`"}`), "too large"},
		"slow":           {hang, "no answer in time"},
		"slow body": {func(w http.ResponseWriter, r *http.Request) {
			w.Write([]byte(`{"success":true`))
			http.NewResponseController(w).Flush()
			hang(w, r)
		}, "no answer in time"},
		"cut off": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			w.Write([]byte(`{"success":true}`))
		}, "closed the connection"},
	} {
		t.Run(name, func(t *testing.T) {
			mux := http.NewServeMux()
			mux.HandleFunc("/", c.handler)
			mux.HandleFunc("/ok", answering(200, `{"success":true}`))
			m := mustStart(t, &HCaptcha{siteverify{Secret: "hidden-secret", URL: serve(t, mux).URL, Timeout: caddy.Duration(200 * time.Millisecond)}})
			ok, err := m.Verify(t.Context(), "hidden-response", "")
			wantNoSecrets(t, err, "hidden")
			if ok || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, %v, want %q", ok, err, c.want)
			}
		})
	}
}

func TestCaptchaEndsWithItsCaller(t *testing.T) {
	m := mustStart(t, &HCaptcha{siteverify{Secret: "x", URL: serve(t, http.HandlerFunc(hang)).URL}})
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(20*time.Millisecond, cancel)
	if ok, err := m.Verify(ctx, "x", ""); ok || !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, %v", ok, err)
	}
}

func TestStaticCaptchaTakesOneResponse(t *testing.T) {
	t.Setenv("MNEMOGATE_TEST_SECRET", "right")
	m := mustStart(t, &StaticCaptcha{Token: "{env.MNEMOGATE_TEST_SECRET}"})
	for response, want := range map[string]bool{"right": true, "wrong": false, "": false, "right ": false, "{env.MNEMOGATE_TEST_SECRET}": false} {
		if got, err := m.Verify(t.Context(), response, ""); got != want || err != nil {
			t.Errorf("%q: got %v, %v, want %v", response, got, err, want)
		}
	}
}

func TestCaptchaOffTakesAnything(t *testing.T) {
	if ok, err := mustStart(t, new(CaptchaOff)).Verify(t.Context(), "", ""); !ok || err != nil {
		t.Errorf("got %v, %v", ok, err)
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
		if s.accepts(v) && (!*v.Success || !strings.EqualFold(v.Hostname, "app.example")) {
			t.Errorf("accepted %s", body)
		}
	})
}
