package flows_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/flows"
	"github.com/mnemogate/mnemogate/flows/message"
	pw "github.com/mnemogate/mnemogate/flows/password"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/session"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// hangingUp is a captcha, provider, gateway and old system. While it is asked, its client
// hangs up.
type hangingUp struct {
	client context.CancelFunc
	failed int // calls that ended with their client
}

func (h *hangingUp) end(ctx context.Context) error {
	h.client()
	if ctx.Err() != nil {
		h.failed++
	}
	return ctx.Err()
}

func (h *hangingUp) Verify(ctx context.Context, _, _ string) (bool, error) { return false, h.end(ctx) }

func (h *hangingUp) Exchange(ctx context.Context, _ tenant.OAuthGrant) (tenant.OAuthUser, error) {
	if err := h.end(ctx); err != nil {
		return tenant.OAuthUser{}, err
	}
	return tenant.OAuthUser{}, wire.ErrOAuthFailed
}

func (h *hangingUp) Send(ctx context.Context, _ message.Message) error { return h.end(ctx) }

func (h *hangingUp) VerifyPassword(ctx context.Context, _ tenant.PasswordQuestion) (bool, error) {
	return false, h.end(ctx)
}

// ask sends a request whose client hangs up.
func (h *hangingUp) ask(b *harness, path, body string) {
	ctx, cancel := context.WithCancel(b.t.Context())
	defer cancel()
	h.client = cancel
	b.Serve(ctx, &flows.Request{Company: code, Client: session.Client{Address: home}, Route: flows.RouteByPath(path),
		Body: func() ([]byte, error) { return []byte(body), nil }})
}

// A client that hangs up gets around no count, and is no failure of what was asked.
func TestClientsThatHangUpAreCounted(t *testing.T) {
	for name, c := range map[string]struct {
		path   string
		body   func() object
		set    func(*harness, *hangingUp)
		counts bool
	}{
		"captcha": {"auth/recovery/recover", func() object {
			return object{"login_id": email, "method": "QUESTION", "captcha_response": "bad"}
		}, func(b *harness, h *hangingUp) { b.company.Captcha = h }, true},
		"provider": {"auth/oauth", func() object { return grant(nil) }, func(b *harness, h *hangingUp) {
			b.company.OAuth[2] = tenant.OAuth{Provider: h, RedirectURIs: []string{callback}}
		}, true},
		"gateway": {"auth/login", func() object { return object{"login_id": email} }, func(b *harness, h *hangingUp) {
			b.update(true, func(a *record.Account) { a.PasswordHash = "" })
			b.company.SMS = h
		}, false},
		"old system": {"auth/checkcredentials", func() object { return object{"login_id": email, "password": password} }, func(b *harness, h *hangingUp) {
			b.update(true, func(a *record.Account) { a.PasswordHash = record.ExternalPassword })
			b.company.Migrate = h
		}, true},
		"the last form of a password": {"auth/checkcredentials", func() object { return object{"login_id": email, "password": "wrong²"} }, func(b *harness, h *hangingUp) {
			b.Hasher.Derive = func(hash, secret string) ([]byte, error) {
				if secret == "wrong²" {
					h.client()
				}
				return pw.DeriveKey(hash, secret)
			}
		}, true},
		"a busy node": {"auth/checkcredentials", func() object { return object{"login_id": email, "password": password} }, func(b *harness, h *hangingUp) {
			b.company.Limits.LoginsPerAddress.N = b.company.Limits.FailuresPerAddress.N
			b.Hasher.Derive = func(string, string) ([]byte, error) { h.client(); return nil, pw.ErrBusy }
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			b, h := newHarness(t), new(hangingUp)
			c.set(b, h)
			for range b.company.Limits.FailuresPerAddress.N {
				body, err := json.Marshal(c.body())
				must(t, err)
				h.ask(b, c.path, string(body))
			}
			if h.client == nil || h.failed > 0 {
				t.Errorf("%d calls ended with their client", h.failed)
			}
			if _, err := b.serve(c.path, "", c.body()); c.counts && codeOf(err) != wire.ErrRestricted.Code {
				t.Errorf("the next one got %v", err)
			}
		})
	}
}

// A fleeing client hangs up when the token of its step-up is used.
type fleeing struct {
	record.Sessions
	client context.CancelFunc
}

func (f fleeing) Charge(ctx context.Context, now time.Time, counters ...record.Counter) error {
	err := f.Sessions.Charge(ctx, now, counters...)
	if mark := counters[len(counters)-1]; strings.Contains(mark.Key, "/stepup/") && !mark.CheckOnly {
		f.client()
	}
	return err
}

// A factor that was spent raises the session even if the client hangs up.
func TestAStepUpEndsWithoutItsClient(t *testing.T) {
	s := newStepper(t)
	token := s.logIn()
	body, err := json.Marshal(s.right(token, "sms", nil))
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	s.Sessions = fleeing{s.Sessions, cancel}
	_, _ = s.Serve(ctx, &flows.Request{
		Company: code, Client: session.Client{Address: home}, Route: flows.RouteByPath("stepup/check"), Authorization: []string{"Bearer " + token},
		Body: func() ([]byte, error) { return body, nil },
	})
	if got := s.methods(token, 0); ctx.Err() == nil || got != "pwd sms mfa" {
		t.Errorf("the session is %q", got)
	}
}

// A node learns of a new secret even from a request whose client hangs up. An operator's
// call, which yields to users, does not make them wait for it.
func TestANodeReadsTheSecretsWithoutItsClient(t *testing.T) {
	b := newHarness(t)
	store := &reading{Accounts: b.Accounts}
	b.Accounts = store
	for range 2 { // the first time, and again
		ctx, hangUp := context.WithCancel(record.Yielding(t.Context()))
		store.meanwhile = hangUp
		_, err := b.Keys(ctx)
		if store.meanwhile = nil; err != nil || ctx.Err() == nil {
			t.Fatalf("got %v, client: %v", err, ctx.Err())
		}
		b.clock.advance(time.Minute)
	}
	if store.ended != 0 || store.yielding != 0 {
		t.Errorf("%d reads ended with their client, %d yielded", store.ended, store.yielding)
	}
}

// A reading store does something while the secrets are read.
type reading struct {
	record.Accounts
	meanwhile       func()
	ended, yielding int
}

func (r *reading) Secrets(ctx context.Context) ([]record.Secret, error) {
	r.meanwhile()
	if ctx.Err() != nil {
		r.ended++
	}
	if record.IsYielding(ctx) {
		r.yielding++
	}
	return r.Accounts.Secrets(ctx)
}
