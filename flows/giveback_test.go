package flows_test

import (
	"context"
	"errors"
	"testing"
	"time"

	pw "github.com/mnemogate/mnemogate/flows/password"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// A strictCaptcha says once that a response is right, as providers do.
type strictCaptcha map[string]bool

func (c strictCaptcha) Verify(_ context.Context, response, _ string) (bool, error) {
	first := !c[response]
	c[response] = true
	return first, nil
}

// A brokenSystem is a provider and a former system that does not answer.
type brokenSystem struct{}

func (brokenSystem) Exchange(context.Context, tenant.OAuthGrant) (tenant.OAuthUser, error) {
	return tenant.OAuthUser{}, errDown
}

func (brokenSystem) VerifyPassword(context.Context, tenant.PasswordQuestion) (bool, error) {
	return false, errDown
}

func (brokenSystem) Verify(context.Context, string, string) (bool, error) { return false, errDown }

// A brokenStore has passkeys that can't be loaded.
type brokenStore struct{ record.Accounts }

func (brokenStore) Passkey(context.Context, string, []byte) (record.Passkey, error) {
	return record.Passkey{}, errDown
}

// Contract, section 9: limits count work. What the node, a provider or a store could not do
// is no try, and spends no captcha response. What was done counts as ever.
func TestWhatCouldNotBeDoneIsNoTry(t *testing.T) {
	credentials := func(*harness) object {
		return object{"login_id": email, "password": password, "captcha_response": "right"}
	}
	busy := func(b *harness) func() {
		derive := b.Hasher.Derive
		b.Hasher.Derive = func(string, string) ([]byte, error) { return nil, pw.ErrBusy }
		return func() { b.Hasher.Derive = derive }
	}
	var phone *device
	for name, c := range map[string]struct {
		path  string
		body  func(*harness) object
		fails func(*harness) (mend func())
	}{
		"a busy node": {"auth/checkcredentials", credentials, busy},
		"a former system": {"auth/checkcredentials", credentials, func(b *harness) func() {
			hash := b.load().PasswordHash
			b.company.Migrate = brokenSystem{}
			b.update(true, func(a *record.Account) { a.PasswordHash = record.ExternalPassword })
			return func() { b.update(true, func(a *record.Account) { a.PasswordHash = hash }) }
		}},
		"a provider": {"auth/oauth", func(*harness) object { return grant(nil) }, func(b *harness) func() {
			b.company.OAuth[2] = tenant.OAuth{Provider: brokenSystem{}, RedirectURIs: []string{callback}}
			return func() { b.company.OAuth[2] = tenant.OAuth{Provider: provider{}, RedirectURIs: []string{callback}} }
		}},
		"a captcha": {"auth/recovery/recover", func(*harness) object { return recovery(object{"method": "QUESTION"}) }, func(b *harness) func() {
			captcha := b.company.Captcha
			b.company.Captcha = brokenSystem{}
			return func() { b.company.Captcha = captcha }
		}},
		"a defect": {"auth/recovery/recover", func(*harness) object { return recovery(object{"method": "QUESTION"}) }, func(b *harness) func() {
			captcha := b.company.Captcha
			b.company.Captcha = plugin(func(context.Context) error { panic("a defect") })
			return func() { b.company.Captcha = captcha }
		}},
		"a store": {"passkey/login", func(b *harness) object {
			if phone == nil {
				phone = b.device("phone", 0)
			}
			return phone.answer(code)
		}, func(b *harness) func() {
			accounts := b.Accounts
			b.Accounts = brokenStore{accounts}
			return func() { b.Accounts = accounts }
		}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newHarness(t)
			b.company.Captcha, b.company.Limits.CaptchaAfter = strictCaptcha{}, new(0)
			b.company.Limits.LoginsPerAddress.N = 5
			body := c.body(b) // the same, with the same captcha response
			mend, want := c.fails(b), wire.ErrUnavailable
			if name == "a defect" {
				want = wire.ErrService
			}
			tries := b.company.Limits.LoginsPerAddress.N // a plugin is asked no more often
			if name == "a busy node" || name == "a store" {
				tries *= 3
			}
			for range tries {
				if c.path != "auth/checkcredentials" {
					body = c.body(b)
				}
				b.wrong(want, c.path, "", body)
			}
			mend()
			if c.path == "auth/checkcredentials" {
				wantStep(t, b.must(c.path, "", body), record.Authorized)
				b.wrong(wire.ErrCaptchaInvalid, c.path, "", body) // now it was used
			}
			b.company.Captcha = nil
			var err error
			for range b.company.Limits.LoginsPerAddress.N + 1 {
				_, err = b.serve("auth/checkcredentials", "", object{"login_id": email, "password": password})
			}
			if refusal(err).Reason != "limit.logins" {
				t.Errorf("got %v, although the logins are used up", err)
			}
		})
	}
}

// A plugin that does not answer, perhaps because it throttles, is asked at most twice as often
// as the limit of the address allows.
func TestAPluginThatFailsIsNotFlooded(t *testing.T) {
	for name, c := range map[string]struct {
		path string
		body func() object
		set  func(*harness, plugin)
	}{
		"captcha of a recovery": {"auth/recovery/recover", func() object { return recovery(nil) }, func(b *harness, p plugin) { b.company.Captcha = p }},
		"captcha of a password": {"auth/checkcredentials", func() object { return credentials(object{"captcha_response": "any"}) }, func(b *harness, p plugin) {
			b.company.Captcha, b.company.Limits.CaptchaAfter = p, new(0)
		}},
		"provider": {"auth/oauth", func() object { return grant(nil) }, func(b *harness, p plugin) {
			b.company.OAuth[2] = tenant.OAuth{Provider: p, RedirectURIs: []string{callback}}
		}},
		"former system": {"auth/checkcredentials", func() object { return credentials(nil) }, func(b *harness, p plugin) {
			b.update(true, func(a *record.Account) { a.PasswordHash = record.ExternalPassword })
			b.company.Migrate = p
		}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newHarness(t)
			b.company.Limits.LoginsPerAddress.N = 5
			asked := 0
			c.set(b, func(context.Context) error { asked++; return errDown })
			for range 50 {
				_, _ = b.serve(c.path, "", c.body())
			}
			if asked != 10 {
				t.Errorf("it was asked %d times, want 10", asked)
			}
		})
	}
}

// A user's own changes are given back, too.
func TestAChangeThatFailsIsGivenBack(t *testing.T) {
	b := newHarness(t)
	b.company.Limits.LoginsPerAddress.N = 5
	token := b.sessionIn(record.Authorized)
	derive := b.Hasher.Derive
	b.Hasher.Derive = func(string, string) ([]byte, error) { return nil, pw.ErrBusy }
	change := func() error {
		self := b.self(token)
		err := self.BeginChange(t.Context(), "backup codes")
		if err == nil {
			_, err = self.NewOwnBackupCodes(t.Context())
		}
		return self.EndChange(t.Context(), err)
	}
	for range 40 {
		if err := change(); !errors.Is(err, wire.ErrUnavailable) {
			t.Fatal(err)
		}
		if err := b.admin().CheckPassword(t.Context(), mnemocode, password, "192.0.2.9"); !errors.Is(err, wire.ErrUnavailable) {
			t.Fatal(err)
		}
	}
	b.Hasher.Derive = derive
	must(t, change())
}

// A message that a gateway refuses counts. The answer says when the next one may be sent.
func TestARefusedMessageSaysWhenTheNextMayBeSent(t *testing.T) {
	b := newHarness(t)
	b.withoutPassword()
	b.sms.broken, b.mail.broken = errDown, errDown
	for path, c := range map[string]struct {
		body  object
		limit *tenant.Rate
	}{
		"auth/login":            {object{"login_id": email}, &b.company.Limits.SMSPerAccount},
		"auth/recovery/recover": {recovery(object{"method": "MAIL"}), &b.company.Limits.MailsPerAccount},
	} {
		for i := range c.limit.N {
			want := wire.RetrySoon
			if i == c.limit.N-1 {
				want = c.limit.Per
			}
			_, err := b.serve(path, "", c.body)
			if wantError(t, err, wire.ErrUnavailable); refusal(err).RetryAfter != want {
				t.Errorf("%s: got Retry-After %v, want %v", path, refusal(err).RetryAfter, want)
			}
		}
		b.wrong(wire.ErrRestricted, path, "", c.body)
	}
	b.clock.advance(time.Hour)
}

// A password that was compared is a login, even if the store then does not answer.
func TestAComparedPasswordIsNotGivenBack(t *testing.T) {
	b := newHarness(t)
	b.Accounts = failing{b.Accounts}
	b.company.Limits.LoginsPerAddress.N = 3
	events := b.record()
	for range 3 {
		b.wrong(wire.ErrUnavailable, "auth/checkcredentials", "", credentials(nil))
	}
	if e := events()[0]; e.Reason != "counting wrong attempts: "+errDown.Error() {
		t.Errorf("the reason is %q", e.Reason)
	}
	b.wrong(wire.ErrRestricted, "auth/checkcredentials", "", credentials(nil))
}

// A tardy makes stores like those with servers: a call without time left is not sent. The
// method slow takes all the time that a request has for stores.
type tardy struct{ slow string }

func (t *tardy) call(ctx context.Context, method string, send func() error) error {
	ctx, done := record.StoreContext(ctx, time.Minute)
	defer done()
	if method == t.slow {
		<-ctx.Done()
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return send()
}

type tardyAccounts struct {
	record.Accounts
	*tardy
}

func (s tardyAccounts) Passkey(ctx context.Context, _ string, _ []byte) (record.Passkey, error) {
	return record.Passkey{}, s.call(ctx, "Passkey", func() error { return errDown })
}

type tardySessions struct {
	record.Sessions
	*tardy
}

func (s tardySessions) Charge(ctx context.Context, now time.Time, counters ...record.Counter) error {
	return s.call(ctx, "Charge", func() error { return s.Sessions.Charge(ctx, now, counters...) })
}

func (s tardySessions) Refund(ctx context.Context, now time.Time, counters ...record.Counter) error {
	return s.call(ctx, "Refund", func() error { return s.Sessions.Refund(ctx, now, counters...) })
}

func (s tardySessions) Create(ctx context.Context, now time.Time, next record.Session, counters ...record.Counter) error {
	return s.call(ctx, "Create", func() error { return s.Sessions.Create(ctx, now, next, counters...) })
}

// A store that is slow, so that the request has no time left for it, costs no login.
func TestWhatASlowStoreCouldNotDoIsNoTry(t *testing.T) {
	b := newHarness(t)
	b.company.Limits.LoginsPerAddress.N = 1
	accounts, store := b.Accounts, &tardy{slow: "Passkey"}
	b.Accounts, b.Sessions = tardyAccounts{accounts, store}, tardySessions{b.Sessions, store}
	b.wrong(wire.ErrUnavailable, "passkey/login", "", b.device("phone", 0).answer(code))
	b.Accounts = accounts
	wantStep(t, b.must("auth/checkcredentials", "", object{"login_id": email, "password": password}), record.Authorized)
}

// A step whose session could not be stored can be taken with the same token again.
func TestAStepWithACodeCanBeRepeated(t *testing.T) {
	b := newHarness(t)
	b.update(true, func(a *record.Account) { a.SecondFactor = true })
	sessions := b.Sessions
	b.Sessions = tardySessions{sessions, &tardy{slow: "Create"}}
	token := b.must("auth/login", "", object{"login_id": email}).SessionToken
	b.wrong(wire.ErrUnavailable, "auth/checkpassword", token, object{"password": password})
	b.Sessions = sessions
	wantStep(t, b.must("auth/checkpassword", token, object{"password": password}), record.CheckOTP)
}
