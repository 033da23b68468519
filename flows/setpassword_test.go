package flows_test

import (
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// The requirements for a new password. quality_test.go tests each rule.
func TestARefusedPasswordLeavesTheSession(t *testing.T) {
	for _, state := range []record.State{record.SetPassword, record.RecoveryPassword} {
		t.Run(string(state), func(t *testing.T) {
			b := newHarness(t)
			b.company.Password.Regex = `[0-9]|correct`
			b.company.Regex = regexp.MustCompile(b.company.Password.Regex)
			b.company.Password.RegexDescription = "Use a digit."
			token := b.sessionIn(state)
			other := b.must("auth/login", "", object{"login_id": email}).SessionToken
			for _, c := range []struct {
				password string
				want     *wire.Error
				reason   wire.Reason
				says     string
			}{
				{"short 1", wire.ErrQuality, wire.PasswordTooShort, "8 to 128"},
				{"ﬁﬁﬁ1", wire.ErrQuality, wire.PasswordTooShort, "8 to 128"}, // seven characters after NFKC
				{"password1", wire.ErrQuality, wire.PasswordCommon, "commonly used"},
				{"Alice@Example.com1", wire.ErrQuality, wire.PasswordPersonal, "login ids"},
				{"+370 600 12345", wire.ErrQuality, wire.PasswordPersonal, "login ids"},
				{"no digit at all", wire.ErrQuality, wire.PasswordPattern, "Use a digit."},
				{password, wire.ErrPasswordSame, "", ""},
				{strings.Repeat("ab1", 43), wire.ErrValidation, wire.PasswordTooLong, "128"},
			} {
				_, err := b.serve("auth/setpassword", token, object{"new_password": c.password})
				wantError(t, err, c.want)
				if r := refusal(err); r.Reason != c.reason || !strings.Contains(r.Message, c.says) || strings.Contains(r.Message, c.password) {
					t.Errorf("%q: the reason is %q, the message %q", c.password, r.Reason, r.Message)
				}
			}
			b.must("auth/checkpassword", other, object{"password": password}) // no session was revoked
			if b.load().PasswordHash == "" || b.mail.count() != 0 {
				t.Error("something changed")
			}
			b.must("auth/setpassword", token, object{"new_password": strings.Repeat("ﬁ", 64) + strings.Repeat("1", 64)})
		})
	}
}

// Users who may set a password can neither guess at the current one without end, nor make the
// node hash without end, whichever sessions and addresses they use.
func TestNewPasswordsOfAnAccountAreCounted(t *testing.T) {
	for _, state := range []record.State{record.SetPassword, record.RecoveryPassword} {
		b := newHarness(t)
		token, other := b.sessionIn(state), ""
		if state == record.SetPassword {
			other = b.must("auth/checkcredentials", "", credentials(nil)).SessionToken
		} else {
			other = b.sessionIn(state)
		}
		hashes := b.countHashes()
		for i := range 30 {
			_, err := b.serveAs(code, addressOf(i), "auth/setpassword", token, object{"new_password": password})
			wantError(t, err, wire.ErrPasswordSame)
		}
		for _, token := range []string{token, token, other} {
			b.wrong(wire.ErrTokenInvalid, "auth/setpassword", token, object{"new_password": "another fine secret"})
		}
		if n := hashes.Load(); n != 30 {
			t.Errorf("%s: %d hashes were computed", state, n)
		}
		b.clock.advance(time.Duration(b.company.Session.Temporary))
		token = b.sessionIn(state)
		derive, refused := b.Hasher.Derive, atomic.Int64{}
		b.Hasher.Derive = func(hash, secret string) ([]byte, error) {
			for refused.Load() < 70 {
				time.Sleep(time.Millisecond)
			}
			return derive(hash, secret)
		}
		got := race(100, func(int) error {
			_, err := b.serve("auth/setpassword", token, object{"new_password": "another fine secret"})
			if err != nil {
				refused.Add(1)
			}
			return err
		})
		if got[""] != 1 {
			t.Errorf("%s: of new passwords at once: got %v", state, got)
		}
	}
}
