package flows_test

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/flows/manage"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// However often strangers begin a login of an account with a password, nothing is
// written to the store.
func TestALoginThatStrangersBeginIsStoredNowhere(t *testing.T) {
	b := newHarness(t)
	writes := b.countWrites()
	for range 50 {
		token := b.must("auth/login", "", object{"login_id": email}).SessionToken
		if !regexp.MustCompile(`^mgs_[A-Za-z0-9_-]{44,156}$`).MatchString(token) {
			t.Fatalf("the token has %d characters", len(token))
		}
	}
	if n := writes.Load(); n != 0 {
		t.Errorf("50 logins made %d writes", n)
	}
	list, err := b.Sessions.List(t.Context(), b.clock.Now(), code, b.account)
	if err != nil || len(list) != 0 {
		t.Errorf("%d sessions are stored, %v", len(list), err)
	}
}

// A login's token can't be forged, altered or spelled in another way.
func TestALoginsTokenCantBeForged(t *testing.T) {
	b := newHarness(t)
	token := b.sessionIn(record.CheckPassword)
	const digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	for i := len("mgs_"); i < len(token); i++ {
		for _, flip := range []int{1, 32} {
			forged := []byte(token)
			forged[i] = digits[strings.IndexByte(digits, forged[i])^flip]
			b.wrong(wire.ErrTokenInvalid, "auth/checkpassword", string(forged), object{"password": password})
		}
	}
	elsewhere := newHarness(t)
	b.wrong(wire.ErrTokenInvalid, "auth/checkpassword", elsewhere.sessionIn(record.CheckPassword), object{"password": password})
	b.must("auth/checkpassword", token, object{"password": password})
}

// Strangers can begin and log out such sessions, so the logouts are counted.
func TestLogoutsOfLoginsAreCounted(t *testing.T) {
	b := newHarness(t)
	b.company.Limits.LoginsPerAddress.N = 4
	recovery := b.sessionIn(record.RecoveryQuestion) // it counts when it begins, and not at its logout
	for range 3 {
		b.must("auth/logout", b.sessionIn(record.CheckPassword), nil)
	}
	b.wrong(wire.ErrRestricted, "auth/logout", b.sessionIn(record.CheckPassword), nil)
	b.must("auth/logout", recovery, nil)
}

// Of the logins and recoveries of an account, a hundred wait in each state.
func TestOneWaitingSessionTooManyEndsTheOldest(t *testing.T) {
	b := newHarness(t)
	b.company.Captcha = nil
	var tokens []string
	for range 101 {
		b.clock.advance(time.Second)
		tokens = append(tokens, b.sessionIn(record.RecoveryQuestion))
	}
	b.wantLive(tokens[0], wire.ErrTokenInvalid)
	b.must("auth/recovery/checkquestion", tokens[1], b.goodBody("auth/recovery/checkquestion"))
}

// A revocation that fails must not block the others.
func TestAStuckRevocationHoldsUpNoOther(t *testing.T) {
	b := newHarness(t)
	b.seed(manage.Seed{Account: record.Account{Mnemocode: "stuck"}})
	token := b.sessionIn(record.Authorized)
	stuck, err := b.Accounts.ByMnemocode(t.Context(), code, "stuck")
	must(t, err)
	b.watch(func(c seen) error {
		if c.method == "End" && c.ending.Account == stuck.ID {
			return errDown
		}
		return nil
	})
	for _, id := range []int64{stuck.ID, b.account} {
		if _, err := b.Accounts.Update(t.Context(), code, id, func(*record.Account) (bool, error) { return true, nil }); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.RevokePending(t.Context(), late); err == nil {
		t.Error("the ending that can't be done is no error")
	}
	b.wantLive(token, wire.ErrTokenInvalid)
	pending, err := b.Accounts.PendingRevocations(t.Context(), record.Revocation{}, 10)
	if err != nil || len(pending) != 1 || pending[0].Account != stuck.ID {
		t.Errorf("pending are %v, %v", pending, err)
	}
}
