package flows_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/flows"
	"github.com/mnemogate/mnemogate/flows/manage"
	pw "github.com/mnemogate/mnemogate/flows/password"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/wire"
	"github.com/mnemogate/mnemogate/store/storetest"
)

// wantStep checks the state of a reply and the fields that come with it.
func wantStep(t *testing.T, reply flows.Reply, state record.State) {
	t.Helper()
	if reply.SessionState != state || reply.SessionToken == "" {
		t.Fatalf("got state %q, token %v; want %q and a token", reply.SessionState, reply.SessionToken != "", state)
	}
	if got, want := reply.UserPhone != "", state == record.CheckOTP || state == record.RecoveryOTP; got != want {
		t.Errorf("%s: user_phone present: %v, want %v", state, got, want)
	}
	if got, want := reply.PasswordQuality != nil, state == record.SetPassword || state == record.RecoveryPassword; got != want {
		t.Errorf("%s: password_regex present: %v, want %v", state, got, want)
	}
	if got, want := reply.ProfileMnemocode != "", state == record.Authorized; got != want {
		t.Errorf("%s: profile_mnemocode present: %v, want %v", state, got, want)
	}
}

func TestPasswordsAreNeverCut(t *testing.T) {
	b := newHarness(t)
	long := strings.Repeat("ą", 127)
	b.seed(manage.Seed{Account: record.Account{Mnemocode: "bob", LoginName: "bob"}, Password: long + "1"})
	b.wrong(wire.ErrCredentialsInvalid, "auth/checkcredentials", "", object{"login_id": "bob", "password": long + "2"})
	b.wrong(wire.ErrCredentialsInvalid, "auth/checkcredentials", "", object{"login_id": "bob", "password": long})
	b.must("auth/checkcredentials", "", object{"login_id": "bob", "password": long + "1"})
}

func TestAWeakHashIsReplacedAtTheNextGoodLogin(t *testing.T) {
	b := newHarness(t)
	b.withHash(bcryptHash(t, password))
	updated := b.load().Updated
	b.clock.advance(time.Hour)
	token := b.sessionIn(record.Authorized)
	stored := b.load().PasswordHash
	if !strings.HasPrefix(stored, "$argon2id$") {
		t.Fatalf("the hash is still a %.4s", stored)
	}
	if got := b.load().Updated; !got.Equal(updated) {
		t.Errorf("the account says that it was changed at %v, by nobody", got)
	}
	b.must("auth/logout", token, nil) // the session was not revoked
	b.wrong(wire.ErrPasswordInvalid, "auth/checkpassword", b.sessionIn(record.CheckPassword), object{"password": "wrong"})
	b.must("auth/checkcredentials", "", object{"login_id": email, "password": password})
	if b.load().PasswordHash != stored {
		t.Error("a good hash was replaced")
	}
}

func TestAWeakHashDoesNotBringBackAnOldPassword(t *testing.T) {
	b := newHarness(t)
	b.withHash(bcryptHash(t, password))
	accounts := b.Accounts
	b.Accounts = overtaken{accounts, func() {
		if err := accounts.SetPassword(t.Context(), b.clock.Now(), b.load(), "new", record.TokenHash{}); err != nil {
			t.Error(err)
		}
	}}
	b.must("auth/checkcredentials", "", object{"login_id": email, "password": password})
	if got := b.load().PasswordHash; got != "new" {
		t.Errorf("the hash is %q", got)
	}
}

// overtaken is an account store that calls before just before a change by a user.
type overtaken struct {
	record.Accounts
	before func()
}

func (o overtaken) Update(ctx context.Context, company string, id int64, change func(*record.Account) (bool, error)) (record.Account, error) {
	o.before()
	return o.Accounts.Update(ctx, company, id, change)
}

func (o overtaken) DeletePasskey(
	ctx context.Context, now time.Time, a record.Account, credential []byte, keep record.TokenHash, events ...record.OutboxEvent,
) (int64, error) {
	o.before()
	return o.Accounts.DeletePasskey(ctx, now, a, credential, keep, events...)
}

func (o overtaken) AddPasskey(ctx context.Context, now time.Time, a record.Account, p record.Passkey, events ...record.OutboxEvent) error {
	o.before()
	return o.Accounts.AddPasskey(ctx, now, a, p, events...)
}

func (o overtaken) SetBackupCodes(ctx context.Context, a record.Account, hashes []string, events ...record.OutboxEvent) error {
	o.before()
	return o.Accounts.SetBackupCodes(ctx, a, hashes, events...)
}

func (o overtaken) SetPassword(
	ctx context.Context, now time.Time, a record.Account, hash string, keep record.TokenHash, events ...record.OutboxEvent,
) error {
	o.before()
	return o.Accounts.SetPassword(ctx, now, a, hash, keep, events...)
}

// passwordRoutes lists the two routes that take a password, with the error for a
// wrong one.
var passwordRoutes = []struct {
	path string
	code *wire.Error
}{
	{"auth/checkpassword", wire.ErrPasswordInvalid},
	{"auth/checkcredentials", wire.ErrCredentialsInvalid},
}

func wantRefusal(t *testing.T, err error, want *wire.Error, captcha bool) {
	t.Helper()
	wantError(t, err, want)
	if refusal(err).Captcha != captcha {
		t.Fatalf("%s: got captcha_required %v, want %v", want, !captcha, captcha)
	}
}

// The hashes of one request wait no longer together than one hash may: less than 2 s.
func TestARequestWaitsTwoSecondsForAllItsHashes(t *testing.T) {
	setPassword := object{"new_password": "another fine secret"}
	for name, c := range map[string]struct {
		prepare func(b *harness) (token string)
		request func(b *harness, token string) error
		want    error
	}{
		"setpassword": {
			func(b *harness) string { return b.sessionIn(record.SetPassword) },
			func(b *harness, token string) error {
				_, err := b.serve("auth/setpassword", token, setPassword)
				return err
			},
			wire.ErrUnavailable,
		},
		"change by the user": {
			func(*harness) string { return "" },
			func(b *harness, _ string) error {
				return b.changeOwn(manage.PasswordChange{Current: password, New: "another fine secret"})
			},
			wire.ErrUnavailable,
		},
		"login with a hash to replace": {
			func(b *harness) string { b.withHash(bcryptHash(b.t, password)); return "" },
			func(b *harness, _ string) error { return b.login(password) },
			nil, // the hash is replaced another time
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newHarness(t)
			token := c.prepare(b)
			h := pw.NewHasher(1)
			b.Hasher = h
			var others sync.WaitGroup
			ends := make(chan bool)
			other := func(secret string, waiting int) {
				others.Go(func() { _, _ = h.Hash(context.Background(), pw.Turn{}, cheap, secret) })
				for length, _ := h.Queue(); length < waiting; length, _ = h.Queue() {
					runtime.Gosched()
				}
			}
			h.Derive = func(hash, secret string) ([]byte, error) {
				switch secret {
				case "before the request":
					time.Sleep(1200 * time.Millisecond)
				case "during the request":
					<-ends
				default: // the first hash of the request; another one follows it
					other("during the request", 2)
				}
				return pw.DeriveKey(hash, secret)
			}
			other("before the request", 1)
			began, stalled := time.Now(), storetest.WatchStalls()
			err := c.request(b, token)
			if took := time.Since(began); !errors.Is(err, c.want) || took > 2800*time.Millisecond+stalled() {
				t.Errorf("%v after %v", err, took)
			}
			close(ends)
			others.Wait()
		})
	}
}
