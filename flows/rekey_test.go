package flows_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/tokens"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// While the secret is replaced, users begin to log in at one node and go on at the other,
// with pages, tokens and apps of before. Nothing that was spent can be used again, and no
// session ends. Afterwards what a thief can make with the leaked secret is refused.
func TestLoginsGoOnWhileTheSecretIsReplaced(t *testing.T) {
	b := newKeyedHarness(t)
	b.company.Captcha = nil
	b.company.NoAPIKey = true
	b.company.Limits.LoginsPerAddress, b.company.Limits.FailuresPerAddress = tenant.Unlimited, tenant.Unlimited
	shows := b.withApp()
	b.newApp() // not confirmed
	rekeyed, inner := 0, b.Observe
	b.Observe = func(ctx context.Context, e record.Event) {
		if e.Name == record.StoreRekeyed {
			rekeyed++
		}
		inner(ctx, e)
	}
	two := b.node()
	nodes := []*harness{b, two}
	thief := func() *tokens.Keys {
		secrets, err := b.Accounts.Secrets(t.Context())
		must(t, err)
		leaked, err := tokens.NewKeys(secrets[:1], b.clock.Now())
		must(t, err)
		return leaked
	}
	session := b.must("auth/checkotp", b.awaitingApp(), object{"otp": shows(0)}).SessionToken
	app, page := b.load().TOTP, two.pageKey("other")
	var begun []string
	used := map[string]bool{shows(0): true}
	logins := func() {
		t.Helper()
		for i, n := range nodes {
			other := nodes[1-i]
			begun = append(begun, n.must("auth/login", "", object{"login_id": email}).SessionToken)
			if len(begun) < 10 {
				continue // this user takes some time
			}
			token := begun[0]
			begun = begun[1:]
			waiting := other.must("auth/checkpassword", token, object{"password": password}).SessionToken
			n.wrong(wire.ErrTokenInvalid, "auth/checkpassword", token, object{"password": password})
			code := shows(0)
			if _, err := n.serve("auth/checkotp", waiting, object{"otp": code}); (err == nil) == used[code] {
				t.Fatalf("the app's code, used before: %v: %v", used[code], err)
			}
			used[code] = true
			n.wantKey(nil, "other", page)
			n.wantKey(nil, "other", other.pageKey("other"))
			n.wantLive(session, nil)
		}
	}
	b.After = func(d time.Duration) <-chan time.Time {
		for end := b.clock.Now().Add(d); b.clock.Now().Before(end); b.clock.advance(2 * time.Second) {
			logins()
		}
		return b.clock.After(0)
	}
	done, err := b.Rekey(t.Context(), record.Event{Name: record.StoreRekeyed})
	if err != nil || done.Apps != 1 || !done.Continued.IsZero() || b.load().TOTP == app {
		t.Fatalf("%v, %v", done, err)
	}
	logins()
	// Again, as after an interruption.
	again, err := two.Rekey(t.Context(), record.Event{Name: record.StoreRekeyed})
	if err != nil || again.Apps != 0 || !again.Next.Equal(done.Next) || !again.Continued.Equal(done.Next.Add(-tokens.Overlap)) {
		t.Errorf("again: %v, %v", again, err)
	}
	if secrets, err := b.Accounts.Secrets(t.Context()); err != nil || len(secrets) != 2 || rekeyed != 1 {
		t.Errorf("%d secrets, %d events, %v", len(secrets), rekeyed, err)
	}
	_, err = thief().OpenTOTP(code, b.load().TOTPPending)
	if _, opens := thief().OpenTOTP(code, b.load().TOTP); opens == nil || err == nil {
		t.Error("the leaked secret opens the app's")
	}

	b.clock.advance(tokens.Overlap)
	leaked := thief()
	expires := b.clock.Now().Add(time.Minute)
	for _, n := range nodes {
		n.wantKey(wire.ErrAPIKeyInvalid, "other", leaked.NewPageKey("other", expires))
		n.wrong(wire.ErrTokenInvalid, "auth/checkpassword", leaked.NewStateless(record.Session{Company: code, Account: b.account, Expires: expires}, ""), object{"password": password})
	}
	if _, err := b.serve("auth/checkotp", b.awaitingApp(), object{"otp": shows(0)}); err != nil {
		t.Errorf("the app: %v", err)
	}
}

// An interrupted rekey is continued: nothing is lost before, and the next one seals what is
// left.
func TestAnInterruptedRekeyGoesOn(t *testing.T) {
	b := newHarness(t)
	shows := b.withApp()
	ctx, interrupt := context.WithCancel(t.Context())
	b.After = func(time.Duration) <-chan time.Time { interrupt(); return nil }
	if _, err := b.Rekey(ctx, record.Event{}); !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v", err)
	}
	b.clock.advance(30 * time.Minute) // no node has sealed anything again
	b.must("auth/checkotp", b.awaitingApp(), object{"otp": shows(0)})
	b.After = b.clock.After
	two := b.node()
	two.Companies = nil // a node may lack a company
	if done, err := two.Rekey(t.Context(), record.Event{}); err != nil || done.Apps != 1 {
		t.Errorf("%v, %v", done, err)
	}
	if secrets, err := b.Accounts.Secrets(t.Context()); err != nil || len(secrets) != 2 {
		t.Errorf("%d secrets, %v", len(secrets), err)
	}
	b.clock.advance(2 * time.Hour) // the next leak
	b.After = func(d time.Duration) <-chan time.Time { b.clock.advance(d); return b.clock.After(0) }
	if done, err := b.Rekey(t.Context(), record.Event{}); err != nil || done.Apps != 1 {
		t.Errorf("%v, %v", done, err)
	}
	b.must("auth/checkotp", b.awaitingApp(), object{"otp": shows(0)})
}

// After a rekey with a clock that was ahead, the next one does not wait until that time. It
// ends the leaked secret.
func TestARekeyAfterAClockWasAhead(t *testing.T) {
	b := newHarness(t)
	var waited time.Duration
	b.After = func(d time.Duration) <-chan time.Time {
		waited += d
		b.clock.advance(d)
		return b.clock.After(0)
	}
	for _, ahead := range []time.Duration{2 * time.Hour, 0} {
		b.clock.advance(ahead)
		if _, err := b.Rekey(t.Context(), record.Event{}); err != nil {
			t.Fatal(err)
		}
		b.clock.advance(-ahead)
	}
	if waited > time.Minute {
		t.Errorf("they waited for %s", waited)
	}
	b.clock.advance(tokens.Overlap)
	secrets, err := b.Accounts.Secrets(t.Context())
	must(t, err)
	leaked, err := tokens.NewKeys(secrets[:1], b.clock.Now())
	must(t, err)
	begun := record.Session{Company: code, Account: b.account, Expires: b.clock.Now().Add(time.Minute)}
	b.wrong(wire.ErrTokenInvalid, "auth/checkpassword", leaked.NewStateless(begun, ""), object{"password": password})
}

// A node whose store does not answer after the wait knows only the leaked secret. It must not
// say that all is done.
func TestARekeyFailsWithItsStore(t *testing.T) {
	b := newHarness(t)
	b.withApp()
	store := &forgetful{Accounts: b.Accounts}
	b.Accounts = store
	b.After = func(d time.Duration) <-chan time.Time {
		b.clock.advance(d)
		store.fails = true
		return b.clock.After(0)
	}
	if done, err := b.Rekey(t.Context(), record.Event{}); !errors.Is(err, wire.ErrUnavailable) {
		t.Errorf("%v, %v", done, err)
	}
	store.fails = false
	b.After = b.clock.After
	if done, err := b.Rekey(t.Context(), record.Event{}); err != nil || done.Apps != 1 {
		t.Errorf("again: %v, %v", done, err)
	}
}

// A forgetful store does not answer what its secrets are.
type forgetful struct {
	record.Accounts
	fails bool
}

func (f *forgetful) Secrets(ctx context.Context) ([]record.Secret, error) {
	if f.fails {
		return nil, errDown
	}
	return f.Accounts.Secrets(ctx)
}
