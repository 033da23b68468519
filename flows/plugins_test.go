package flows_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"testing"

	"github.com/mnemogate/mnemogate/flows/message"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// A plugin is a captcha, provider, gateway and old system. It does the same whatever it is
// asked.
type plugin func(context.Context) error

func (p plugin) Verify(ctx context.Context, _, _ string) (bool, error) { return false, p(ctx) }

func (p plugin) Exchange(ctx context.Context, _ tenant.OAuthGrant) (tenant.OAuthUser, error) {
	return tenant.OAuthUser{}, p(ctx)
}

func (p plugin) Send(ctx context.Context, _ message.Message) error { return p(ctx) }

func (p plugin) VerifyPassword(ctx context.Context, _ tenant.PasswordQuestion) (bool, error) {
	return false, p(ctx)
}

// Whatever a plugin does, its request is answered, and the log says why it failed.
func TestPluginsFailAsServices(t *testing.T) {
	plugins := map[string]struct {
		path string
		body func() object
		set  func(*harness, plugin)
	}{
		"captcha": {"auth/recovery/recover", func() object {
			return object{"login_id": email, "method": "QUESTION", "captcha_response": "any"}
		}, func(b *harness, p plugin) { b.company.Captcha = p }},
		"provider": {"auth/oauth", func() object { return grant(nil) }, func(b *harness, p plugin) {
			b.company.OAuth[2] = tenant.OAuth{Provider: p, RedirectURIs: []string{callback}}
		}},
		"gateway": {"auth/login", func() object { return object{"login_id": email} }, func(b *harness, p plugin) {
			b.update(true, func(a *record.Account) { a.PasswordHash = "" })
			b.company.SMS = message.Gateways{{Sender: p}}
		}},
		"old system": {"auth/checkcredentials", func() object { return object{"login_id": email, "password": password} }, func(b *harness, p plugin) {
			b.update(true, func(a *record.Account) { a.PasswordHash = record.ExternalPassword })
			b.company.Migrate = p
		}},
	}
	failures := map[string]struct {
		do   plugin
		want *wire.Error
		told string
	}{
		"panics":                {func(context.Context) error { panic("hunter2") }, wire.ErrService, "internal error"},
		"uses an ended context": {func(context.Context) error { return context.Canceled }, wire.ErrUnavailable, "context canceled"},
		"has no deadline of its own": {func(ctx context.Context) error {
			if _, ok := ctx.Deadline(); !ok {
				return errors.New("it would hang")
			}
			return errors.New("it gave up")
		}, wire.ErrUnavailable, "it gave up"},
	}
	for name, p := range plugins {
		for does, f := range failures {
			t.Run(name+" "+does, func(t *testing.T) {
				b := newHarness(t)
				var log bytes.Buffer
				b.Log = slog.New(slog.NewTextHandler(&log, nil))
				p.set(b, f.do)
				b.wrong(f.want, p.path, "", p.body())
				if told := log.String(); strings.Count(told, f.told) != 1 || strings.Contains(told, "hunter2") {
					t.Errorf("the log has %q", told)
				}
			})
		}
	}
}

// A telling gateway fails with an error that contains the message.
type telling struct{ *outbox }

func (o telling) Send(ctx context.Context, m message.Message) error {
	_ = o.outbox.Send(ctx, m)
	return fmt.Errorf("POST /?text=%s: no answer", url.QueryEscape(m.Text))
}

// A gateway should not put a code into its errors. One that does leaks none.
func TestNoCodeIsLogged(t *testing.T) {
	b := newHarness(t)
	var log bytes.Buffer
	b.Log = slog.New(slog.NewTextHandler(&log, nil))
	b.update(true, func(a *record.Account) { a.PasswordHash = "" })
	b.company.SMS = telling{b.sms}
	b.wrong(wire.ErrUnavailable, "auth/login", "", object{"login_id": email})
	if told := log.String(); strings.Contains(told, b.sms.last(t).Code) || !strings.Contains(told, "is not shown") {
		t.Errorf("the log has %q", told)
	}
	log.Reset()
	b.company.Mail = telling{b.mail}
	b.wrong(wire.ErrUnavailable, "auth/recovery/recover", "", recovery(object{"method": "MAIL"}))
	_, token, _ := strings.Cut(b.mail.last(t).Link, "mgl_")
	if told := log.String(); token == "" || strings.Contains(told, token) || !strings.Contains(told, "is not shown") {
		t.Errorf("the log has %q", told)
	}
}

// The log tells of a gateway that panics even if the next one takes the message.
func TestAPanicIsLoggedThoughTheMessageWasSent(t *testing.T) {
	b := newHarness(t)
	var log bytes.Buffer
	b.Log = slog.New(slog.NewTextHandler(&log, nil))
	b.update(true, func(a *record.Account) { a.PasswordHash = "" })
	b.company.SMS = message.Gateways{{Sender: plugin(func(context.Context) error { panic("hunter2") })}, {Sender: b.sms}}
	b.must("auth/login", "", object{"login_id": email})
	if told := log.String(); b.sms.count() != 1 || strings.Count(told, "internal error") != 1 || strings.Contains(told, "hunter2") {
		t.Errorf("%d sent, and the log has %q", b.sms.count(), told)
	}
}

// The log says why a gateway failed though the next one took the message, without its code.
func TestAFailureIsLoggedThoughTheMessageWasSent(t *testing.T) {
	b := newHarness(t)
	var log bytes.Buffer
	b.Log = slog.New(slog.NewTextHandler(&log, nil))
	b.update(true, func(a *record.Account) { a.PasswordHash = "" })
	expired := plugin(func(context.Context) error { return errors.New("its certificate has expired") })
	b.company.SMS = message.Gateways{{Name: "first", Sender: expired}, {Name: "second", Sender: telling{b.mail}}, {Name: "third", Sender: b.sms}}
	b.must("auth/login", "", object{"login_id": email})
	const line = `msg="a gateway failed before a message was sent" company=acme type=otp.login gateway=`
	told := log.String()
	for _, want := range []string{line + `first error="its certificate has expired"`, line + `second error="the gateway's error is not shown`} {
		if strings.Count(told, want) != 1 {
			t.Errorf("the log has not %q once:\n%s", want, told)
		}
	}
	if strings.Contains(told, b.sms.last(t).Code) || strings.Contains(told, "gateway=third") {
		t.Errorf("the log has %q", told)
	}
}

// A provider that is down, which anyone can ask for, does not hide that a gateway is.
func TestAProviderThatFailsHidesNoGateway(t *testing.T) {
	b := newHarness(t)
	var log bytes.Buffer
	b.Log = slog.New(slog.NewTextHandler(&log, nil))
	b.update(true, func(a *record.Account) { a.PasswordHash = "" })
	down := plugin(func(context.Context) error { return errors.New("it is down") })
	b.company.OAuth[2] = tenant.OAuth{Provider: down, RedirectURIs: []string{callback}}
	b.company.SMS = message.Gateways{{Sender: down}}
	for range 20 {
		b.wrong(wire.ErrUnavailable, "auth/oauth", "", grant(nil))
	}
	b.wrong(wire.ErrUnavailable, "auth/login", "", object{"login_id": email})
	if told := log.String(); strings.Count(told, "asking the provider") < 10 || strings.Count(told, "sending the code") != 1 {
		t.Errorf("the log has %q", told)
	}
}
