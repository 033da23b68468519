package guesttest_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/mnemogate/mnemogate/caddymodule/guest"
	"github.com/mnemogate/mnemogate/caddymodule/guest/guesttest"
	"github.com/mnemogate/mnemogate/flows/message"
)

// This file is an example of a plugin and of its test. In a package of its own, it would call
// caddy.RegisterModule(Example{}) in an init function.

// Example sends SMS through the gateway of sms.example.
type Example struct {
	// The URL that each SMS is posted to.
	URL string `json:"url,omitempty"`
	// Whether the URL may be http on another machine.
	Insecure bool `json:"insecure,omitempty"`
	// The key that the gateway has issued. Use a placeholder like {env.NAME}.
	Key string `json:"key,omitempty"`
	// The time limit for the gateway's answer, at most 1m. Default: 5s.
	Timeout caddy.Duration `json:"timeout,omitempty"`

	target *url.URL
	client *http.Client
}

// CaddyModule returns the Caddy module information.
func (Example) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "mnemogate.sms.example", New: func() caddy.Module { return new(Example) }}
}

// UnmarshalCaddyfile sets up the gateway from Caddyfile tokens.
func (e *Example) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	return guest.Parse(d, "<url> [insecure]", guest.Address(&e.URL, &e.Insecure), guest.Parsers{
		"key <key>":          guest.Text(&e.Key),
		"timeout <duration>": guest.OneValue(guest.Timeout(&e.Timeout)),
	})
}

// Provision sets defaults and resolves the placeholders.
func (e *Example) Provision(caddy.Context) error {
	e.Timeout = cmp.Or(e.Timeout, caddy.Duration(5*time.Second))
	e.client = guest.Client(guest.Outbound, e.Timeout)
	return guest.ResolveInto("sms example: key", &e.Key)
}

// Validate refuses a gateway that nothing can be sent to.
func (e *Example) Validate() (err error) {
	if e.target, err = guest.RemoteURL(e.URL, e.Insecure); err != nil {
		return fmt.Errorf("sms example: url: %w", err)
	}
	if e.Key == "" {
		return errors.New("sms example: key: the gateway needs one; add it")
	}
	return guest.CheckTimeout("sms example", e.Timeout)
}

// Send implements message.Sender. Its errors contain neither the key nor the code.
func (e *Example) Send(ctx context.Context, m message.Message) error {
	form := url.Values{"key": {e.Key}, "to": {m.To}, "text": {m.Text}}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, e.target.String(), strings.NewReader(form.Encode()))
	if err != nil {
		return errors.New("sms example: making the request failed")
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	resp, err := e.client.Do(req)
	if err != nil {
		err = fmt.Errorf("sms example: asking %s: %w", e.target.Host, guest.Cause(err))
		if guest.MaySendAgain(err) {
			return &message.LaterError{Err: err}
		}
		return err
	}
	resp.Body.Close()
	err = fmt.Errorf("sms example: %s answered %d: %s", e.target.Host, resp.StatusCode, guest.StatusStep(resp.StatusCode))
	switch {
	case resp.StatusCode < 300:
		return nil
	case resp.StatusCode == http.StatusTooManyRequests:
		return &message.LaterError{Err: err, Wait: guest.RetryAfter(resp.Header)}
	case resp.StatusCode < 500: // another gateway would refuse this message, too
		return &message.FinalError{Err: err}
	}
	return err
}

// Endpoint implements guest.Remote.
func (e *Example) Endpoint() string { return guest.HostPort(e.target) }

func TestExampleIsConfigured(t *testing.T) {
	guesttest.Caddyfiles(t, new(Example), []guesttest.Case{
		{Name: "all options", Text: "example https://sms.example {\nkey k\ntimeout 2s\n}",
			Want: &Example{URL: "https://sms.example", Key: "k", Timeout: caddy.Duration(2 * time.Second)}},
		{Name: "no URL", Text: "example", Err: "<url> is missing"},
		{Name: "http", Text: "example http://sms.example", Err: "write https"},
		{Name: "a typo", Text: "example https://sms.example {\ntimout 2s\n}", Err: "did you mean timeout?"},
	})
	if err := guesttest.Start(t, &Example{URL: "https://sms.example"}); err == nil {
		t.Error("it starts without a key")
	}
}

func TestExampleSends(t *testing.T) {
	type later = *message.LaterError
	type final = *message.FinalError
	failed := func(err error) bool { return err != nil && !is[later](err) && !is[final](err) }
	for name, test := range map[string]struct {
		gateway http.HandlerFunc
		timeout time.Duration
		is      func(error) bool
	}{
		"it takes the SMS":   {guesttest.Answering(http.StatusOK, "{}"), 0, func(err error) bool { return err == nil }},
		"it is busy":         {guesttest.Answering(http.StatusTooManyRequests, ""), 0, is[later]},
		"it refuses":         {guesttest.Answering(http.StatusBadRequest, ""), 0, is[final]},
		"it fails":           {guesttest.Answering(http.StatusBadGateway, ""), 0, failed},
		"it does not answer": {guesttest.Hang, 50 * time.Millisecond, failed},
	} {
		e := guesttest.MustStart(t, &Example{
			URL: guesttest.Serve(t, test.gateway).URL + "/?account=" + guesttest.Secret, Key: guesttest.Secret, Timeout: caddy.Duration(test.timeout),
		})
		err := e.Send(t.Context(), guesttest.SMS)
		if !test.is(err) {
			t.Errorf("%s: %v", name, err)
		}
		if err != nil {
			guesttest.NoSecrets(t, err, guesttest.Secret, guesttest.SMS.Code, guesttest.SMS.To)
		}
	}
}

func is[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}
