package integration

import (
	"context"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/mnemogate/mnemogate/caddymodule/guest"
	"github.com/mnemogate/mnemogate/flows/message"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/store/sqlite"
)

// The modules below panic at the points that a file lists. A test writes that file.

const (
	bombsVar = "MNEMOGATE_TEST_BOMBS"
	spilled  = "hunter2-in-a-panic" // the value that they panic with
)

func explode(point string) {
	if armed, _ := os.ReadFile(os.Getenv(bombsVar)); slices.Contains(strings.Fields(string(armed)), point) {
		panic(spilled)
	}
}

func init() {
	if os.Getenv("MNEMOGATE_TEST_CADDY") == "" {
		return // only in the Caddy under test
	}
	for _, m := range []caddy.Module{
		new(bombStore), new(bombSender), new(bombMailer), new(bombCaptcha), new(bombProvider), new(bombEvents), new(bombHandler),
	} {
		caddy.RegisterModule(m)
	}
	httpcaddyfile.RegisterHandlerDirective("bomb", func(h httpcaddyfile.Helper) (caddyhttp.MiddlewareHandler, error) {
		return new(bombHandler), nil
	})
}

type noOptions struct{}

func (noOptions) UnmarshalCaddyfile(d *caddyfile.Dispenser) error { d.NextArg(); return nil }

type bombStore struct {
	File string `json:"file"`
}

func (*bombStore) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "mnemogate.accounts.bomb", New: func() caddy.Module { return new(bombStore) }}
}

func (b *bombStore) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next()
	return guest.Text(d, &b.File)()
}

func (b *bombStore) Key() string { return "bomb " + b.File }

func (b *bombStore) Store() (guest.Store, error) {
	return explodingStore{sqlite.Open(b.File)}, nil
}

type explodingStore struct{ *sqlite.Store }

func (s explodingStore) Start(ctx context.Context) error {
	explode("store.Start")
	return s.Store.Start(ctx)
}

func (s explodingStore) Accounts() record.Accounts { return explodingAccounts{s.Store.Accounts()} }

func (s explodingStore) Sessions() record.Sessions { return explodingSessions{s.Store.Sessions()} }

func (s explodingStore) Run(ctx context.Context, feed record.Feed) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	defer func() { <-ended }()
	defer cancel()
	go func() {
		defer close(ended)
		s.Store.Run(ctx, feed)
	}()
	for ctx.Err() == nil {
		explode("store.Run")
		select {
		case <-ctx.Done():
		case <-time.After(20 * time.Millisecond):
		}
	}
}

type explodingAccounts struct{ record.Accounts }

func (a explodingAccounts) Create(ctx context.Context, now time.Time, account record.Account) (int64, error) {
	explode("accounts.Create")
	return a.Accounts.Create(ctx, now, account)
}

func (a explodingAccounts) ByLoginID(ctx context.Context, company, loginID, loginIDHash string) (record.Account, error) {
	explode("accounts.ByLoginID")
	return a.Accounts.ByLoginID(ctx, company, loginID, loginIDHash)
}

func (a explodingAccounts) ByID(ctx context.Context, company string, id int64) (record.Account, error) {
	explode("accounts.ByID")
	return a.Accounts.ByID(ctx, company, id)
}

func (a explodingAccounts) Update(ctx context.Context, company string, id int64, change func(*record.Account) (bool, error)) (record.Account, error) {
	explode("accounts.Update")
	return a.Accounts.Update(ctx, company, id, func(a *record.Account) (bool, error) {
		explode("accounts.Update.change")
		return change(a)
	})
}

func (a explodingAccounts) SetPassword(ctx context.Context, now time.Time, company string, id, generation int64, hash string, keep record.TokenHash, events ...record.OutboxEvent) error {
	explode("accounts.SetPassword")
	return a.Accounts.SetPassword(ctx, now, company, id, generation, hash, keep, events...)
}

func (a explodingAccounts) UpdateFailures(ctx context.Context, now time.Time, subject record.FailureKey, kind record.FailureKind, change func(*record.FailureCount) error) error {
	explode("accounts.UpdateFailures")
	return a.Accounts.UpdateFailures(ctx, now, subject, kind, func(t *record.FailureCount) error {
		explode("accounts.UpdateFailures.change")
		return change(t)
	})
}

func (a explodingAccounts) List(ctx context.Context, company, after string, limit int) ([]record.Account, error) {
	explode("accounts.List")
	return a.Accounts.List(ctx, company, after, limit)
}

func (a explodingAccounts) PendingRevocations(ctx context.Context, after record.Revocation, limit int) ([]record.Revocation, error) {
	explode("accounts.PendingRevocations")
	return a.Accounts.PendingRevocations(ctx, after, limit)
}

type explodingSessions struct{ record.Sessions }

func (s explodingSessions) Create(ctx context.Context, now time.Time, session record.Session, counters ...record.Counter) error {
	explode("sessions.Create")
	return s.Sessions.Create(ctx, now, session, counters...)
}

func (s explodingSessions) Get(ctx context.Context, hash record.TokenHash) (record.Session, error) {
	explode("sessions.Get")
	return s.Sessions.Get(ctx, hash)
}

func (s explodingSessions) Replace(ctx context.Context, now time.Time, old record.TokenHash, from record.State, next record.Session, counters ...record.Counter) error {
	explode("sessions.Replace")
	return s.Sessions.Replace(ctx, now, old, from, next, counters...)
}

func (s explodingSessions) Delete(ctx context.Context, hash record.TokenHash) error {
	explode("sessions.Delete")
	return s.Sessions.Delete(ctx, hash)
}

func (s explodingSessions) Charge(ctx context.Context, now time.Time, counters ...record.Counter) error {
	explode("sessions.Charge")
	return s.Sessions.Charge(ctx, now, counters...)
}

type bombSender struct{ noOptions }

func (*bombSender) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "mnemogate.sms.bomb", New: func() caddy.Module { return new(bombSender) }}
}

func (*bombSender) Send(context.Context, message.Message) error { explode("sms.Send"); return nil }

type bombMailer struct{ noOptions }

func (*bombMailer) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "mnemogate.mail.bomb", New: func() caddy.Module { return new(bombMailer) }}
}

func (*bombMailer) Send(context.Context, message.Message) error { explode("mail.Send"); return nil }

type bombCaptcha struct{ noOptions }

func (*bombCaptcha) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "mnemogate.captcha.bomb", New: func() caddy.Module { return new(bombCaptcha) }}
}

func (*bombCaptcha) Verify(context.Context, string, string) (bool, error) {
	explode("captcha.Verify")
	return true, nil
}

func (*bombCaptcha) Reusable() {}

type bombProvider struct{ noOptions }

func (*bombProvider) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "mnemogate.oauth.bomb", New: func() caddy.Module { return new(bombProvider) }}
}

func (*bombProvider) Settings() tenant.OAuth {
	return tenant.OAuth{RedirectURIs: []string{"https://app.example.com/cb"}}
}

func (*bombProvider) Exchange(context.Context, tenant.OAuthGrant) (tenant.OAuthUser, error) {
	explode("oauth.Exchange")
	return tenant.OAuthUser{Subject: "alice"}, nil
}

type bombEvents struct{ noOptions }

func (*bombEvents) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "events.handlers.bomb", New: func() caddy.Module { return new(bombEvents) }}
}

func (*bombEvents) Handle(context.Context, caddy.Event) error { explode("events.Handle"); return nil }

// A bombHandler runs before mnemogate, where it passes a body that may panic, and
// after it.
type bombHandler struct{}

func (*bombHandler) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.bomb", New: func() caddy.Module { return new(bombHandler) }}
}

func (*bombHandler) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	if r.Header.Get("X-Profile-Mnemocode") != "" {
		explode("application")
	}
	r.Body = bombBody{r.Body}
	return next.ServeHTTP(w, r)
}

type bombBody struct{ io.ReadCloser }

func (b bombBody) Read(p []byte) (int, error) {
	explode("body.Read")
	return b.ReadCloser.Read(p)
}
