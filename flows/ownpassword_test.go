package flows_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/flows/manage"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/wire"
)

const newSecret = "another fine secret"

// idOf returns the session_id of an authorized token.
func (b *harness) idOf(token string) string {
	b.t.Helper()
	s, err := b.authorize(token)
	must(b.t, err)
	sessions, err := b.admin().LiveSessions(b.t.Context(), mnemocode)
	must(b.t, err)
	for _, live := range sessions {
		if live.Hash == s.Hash {
			return live.ID
		}
	}
	b.t.Fatal("the session is not listed")
	return ""
}

func (b *harness) changeOwn(ch manage.PasswordChange) error {
	return b.admin().ChangePassword(b.t.Context(), mnemocode, ch)
}

// Only an authorized session can be kept. An account without a password has no right
// password to enter.
func TestWhatAUsersOwnChangeRefuses(t *testing.T) {
	b := newHarness(t)
	pending := b.sessionIn(record.RecoveryOTP)
	sessions, err := b.admin().LiveSessions(t.Context(), mnemocode)
	if err != nil || len(sessions) != 1 {
		t.Fatalf("%d sessions, %v", len(sessions), err)
	}
	if err := b.changeOwn(manage.PasswordChange{Current: password, New: newSecret, Keep: sessions[0].ID}); !errors.Is(err, manage.ErrNoSessionToKeep) {
		t.Errorf("a pending session: got %v", err)
	}
	b.must("auth/recovery/checkotp", pending, object{"otp": b.sms.last(t).Code})
	b.withoutPassword()
	for _, none := range []string{"", password} {
		if err := b.changeOwn(manage.PasswordChange{Current: none, New: newSecret}); !errors.Is(err, manage.ErrPasswordWrong) {
			t.Errorf("a backend sets a first password: got %v", err)
		}
		if err := b.admin().CheckPassword(t.Context(), mnemocode, none, ""); !errors.Is(err, manage.ErrPasswordWrong) {
			t.Errorf("an account without a password: got %v", err)
		}
	}
}

// The locks are those of a login, and wrong passwords of both kinds count together.
func TestAUsersOwnCheckIsLockedAsALogin(t *testing.T) {
	for _, hardened := range []bool{false, true} {
		b := newHarness(t)
		b.company.Hardened = hardened
		b.company.Captcha = &captcha{}
		ad, check := b.admin(), func(current, address string) error {
			return b.admin().CheckPassword(b.t.Context(), mnemocode, current, address)
		}
		events := b.record()
		for range 10 { // no captcha is required
			if err := check("wrong", "192.0.2.8"); !errors.Is(err, manage.ErrPasswordWrong) {
				t.Fatalf("got %v", err)
			}
		}
		if err := check(password, ""); refusal(err).Reason != "lock.password" || refusal(err).RetryAfter != 15*time.Minute {
			t.Errorf("got %v, %+v", err, refusal(err))
		}
		if n := len(named(events(), record.LockPassword)); n != 1 {
			t.Errorf("the lock was told %d times", n)
		}
		if wrong := named(events(), record.AccountPasswordWrong); len(wrong) != 10 || wrong[0].Address != "192.0.2.8" {
			t.Errorf("the wrong passwords were told as %+v", wrong)
		}
		b.must("auth/oauth", "", b.goodBody("auth/oauth")) // needs no password
		b.clock.advance(15*time.Minute - time.Microsecond)
		b.wrong(wire.ErrRestricted, "auth/checkcredentials", "", object{"login_id": email, "password": password, "captcha_response": "good"})
		b.clock.advance(time.Microsecond)
		if err := check(password, ""); err != nil {
			t.Errorf("after the lock: got %v", err)
		}
		if n := b.failureCount(record.WrongPasswords); n != 0 {
			t.Errorf("a right password leaves %d wrong ones counted", n)
		}
		b.company.Limits.DisableAfter = 10
		for range 10 {
			_ = check("wrong", "")
		}
		b.clock.advance(time.Hour)
		if err := check(password, ""); refusal(err).Reason != "lock.disabled" || !strings.HasSuffix(refusal(err).Message, "Reset it by recovery, or let an operator unlock it.") {
			t.Errorf("got %v", err)
		}
		if _, err := ad.Unlock(t.Context(), mnemocode); err != nil {
			t.Fatal(err)
		}
		b.company.Limits.LoginsPerAddress.N = 3
		for range 3 {
			must(t, check(password, "192.0.2.7"))
		}
		if err := check(password, "192.0.2.7"); refusal(err).Reason != "limit.logins" {
			t.Errorf("of one address: got %v", err)
		}
		limit := named(events(), record.LimitLogins)
		if len(limit) != 1 || limit[0].Address != "192.0.2.7" || limit[0].Reason == "" || limit[0].Traffic == nil || limit[0].Traffic.Accounts != 1 {
			t.Errorf("the limit was told as %+v", limit)
		}
		if err := check(password, ""); err != nil { // without an address from the backend, no limit of addresses applies
			t.Errorf("of no address: got %v", err)
		}
	}
}

// If changes race, one wins, and its session is the one that is kept.
func TestOfOwnChangesThatRaceOneWins(t *testing.T) {
	b := newHarness(t)
	tokens, ids := make([]string, 8), make([]string, 8)
	for i := range tokens {
		tokens[i] = b.sessionIn(record.Authorized)
		ids[i] = b.idOf(tokens[i])
	}
	won := make([]bool, len(tokens))
	race(len(tokens), func(i int) error {
		err := b.changeOwn(manage.PasswordChange{Current: password, New: newSecret + strings.Repeat("!", i), Keep: ids[i]})
		if won[i] = err == nil; !won[i] && !errors.Is(err, manage.ErrChanged) && !errors.Is(err, manage.ErrPasswordWrong) && !errors.Is(err, manage.ErrNoSessionToKeep) {
			t.Errorf("got %v", err)
		}
		return err
	})
	live := 0
	for i, token := range tokens {
		if _, err := b.authorize(token); (err == nil) != won[i] {
			t.Errorf("session %d: got %v; its change won: %v", i, err, won[i])
		}
		if won[i] {
			live++
		}
	}
	if live != 1 {
		t.Errorf("%d changes won", live)
	}
}
