package flows_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/flows"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// changeStatus revokes the account's sessions, as an operator's change does.
func (b *harness) changeStatus(status record.Status) {
	b.t.Helper()
	b.update(true, func(a *record.Account) { a.Status = status })
}

// wantRevoked checks the answers to a revoked token: status, unless it is nil, on
// the routes that list it, and auth.token.invalid everywhere else.
func (b *harness) wantRevoked(token string, status *wire.Error) {
	b.t.Helper()
	for i := range flows.Routes {
		r := &flows.Routes[i]
		want := wire.ErrTokenInvalid
		if status != nil && r.MayFail(status) {
			want = status
		}
		if r.TakesToken() {
			b.wrong(want, r.Path, token, b.goodBody(r.Path))
		}
	}
	b.wantLive(token, wire.ErrTokenInvalid)
	if _, err := b.Current(b.t.Context(), asking(token)); !errors.Is(err, wire.ErrTokenInvalid) {
		b.t.Errorf("GET session: got %v", err)
	}
}

func TestATokenTellsOfTheStatusThatRevokedIt(t *testing.T) {
	for _, state := range record.States[1:] {
		t.Run(string(state), func(t *testing.T) {
			t.Parallel()
			b := newHarness(t)
			ended := b.sessionIn(state)
			b.must("auth/logout", ended, nil)
			token := b.sessionIn(state)
			for status, want := range statuses {
				b.changeStatus(status)
				b.wantRevoked(token, want)
			}
			b.wantRevoked(ended, nil)
			b.changeStatus(record.StatusActive)
			b.wantRevoked(token, nil)
			b.changeStatus(record.StatusClosed)
			b.wantRevoked(token, nil)

			b = newHarness(t)
			token = b.sessionIn(state)
			b.changeStatus(record.StatusClosed)
			must(t, b.admin().Delete(t.Context(), mnemocode, nil))
			b.wantRevoked(token, nil)
		})
	}
	t.Run("a link", func(t *testing.T) {
		b := newHarness(t)
		b.company.Limits.FailuresPerAddress.N = 1
		link := object{"token": b.mailed()}
		b.changeStatus(record.StatusClosed)
		for range 3 { // does not count as a guess
			b.wrong(wire.ErrUserClosed, "auth/recovery/checklink", "", link)
		}
		b.changeStatus(record.StatusActive)
		b.wrong(wire.ErrTokenInvalid, "auth/recovery/checklink", "", link)
	})
}

// However an account's tokens are revoked, tokens that a stranger could get are
// still answered like those of an unknown login id.
func TestRevokedTokensOfAHardenedCompanyAnswerAlike(t *testing.T) {
	for name, end := range map[string]func(*harness){
		"nothing":        func(*harness) {},
		"closed":         func(b *harness) { b.changeStatus(record.StatusClosed) },
		"closed, active": func(b *harness) { b.changeStatus(record.StatusClosed); b.changeStatus(record.StatusActive) },
		"another phone":  func(b *harness) { b.update(true, func(a *record.Account) { a.Phone = "+37060000099" }) },
		"deleted": func(b *harness) {
			must(b.t, b.admin().Delete(b.t.Context(), mnemocode, nil))
		},
		"all of the company's": (*harness).endAllSessions,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			transcript := func(id string) (said []string) {
				b := hardenedHarness(t)
				b.company.Captcha = nil
				say := func(reply flows.Reply, err error) { said = append(said, shape(reply, err)) }
				login := b.must("auth/login", "", object{"login_id": id}).SessionToken
				recover := b.must("auth/recovery/recover", "", recovery(object{"login_id": id, "method": "PHONE"})).SessionToken
				settle(b.Service)
				end(b)
				for range 12 {
					say(b.Current(t.Context(), asking(login)))
					say(b.serve("auth/checkpassword", login, object{"password": "wrong"}))
					say(b.Current(t.Context(), asking(recover)))
					say(b.serve("auth/recovery/checkotp", recover, object{"otp": "000000"}))
					say(b.serve("auth/recovery/renewotp", recover, nil))
					settle(b.Service)
				}
				for _, token := range []string{login, recover} {
					_, err := b.authorize(token)
					say(flows.Reply{}, err)
				}
				b.clock.advance(time.Duration(b.company.Session.Temporary))
				say(b.serve("auth/checkpassword", login, object{"password": "wrong"}))
				say(b.serve("auth/recovery/checkotp", recover, object{"otp": "000000"}))
				return said
			}
			known, unknown := transcript(email), transcript("nobody@example.com")
			if ended := strings.HasPrefix(known[1], wire.ErrTokenInvalid.Code); ended != (name == "all of the company's") {
				t.Errorf("the login has ended: %v", ended)
			}
			for i := range known {
				if known[i] != unknown[i] {
					t.Fatalf("answer %d: of a known login id %q, of an unknown one %q", i, known[i], unknown[i])
				}
			}
		})
	}
}

// A client with the password may learn the status, but a revoked token never gets it
// further.
func TestRevokedTokensOfAHardenedCompanyPassNowhere(t *testing.T) {
	b := hardenedHarness(t)
	b.company.Captcha = nil
	login := b.sessionIn(record.CheckPassword)
	recover := b.must("auth/recovery/recover", "", recovery(object{"method": "PHONE"})).SessionToken
	b.sms.await(1)
	settle(b.Service)
	authorized := b.sessionIn(record.Authorized)
	b.changeStatus(record.StatusClosed)
	b.wrong(wire.ErrUserClosed, "auth/checkpassword", login, b.goodBody("auth/checkpassword"))
	b.wrong(wire.ErrUserClosed, "auth/checkpassword", authorized, b.goodBody("auth/checkpassword"))
	b.changeStatus(record.StatusActive)
	b.wrong(wire.ErrPasswordInvalid, "auth/checkpassword", login, b.goodBody("auth/checkpassword"))
	b.wrong(wire.ErrTokenInvalid, "auth/checkpassword", authorized, b.goodBody("auth/checkpassword"))
	b.wrong(wire.ErrOTPInvalid, "auth/recovery/checkotp", recover, b.goodBody("auth/recovery/checkotp"))

	b.withoutPassword() // so that a code is the first secret
	token := b.sessionIn(record.CheckPassword)
	b.changeStatus(record.StatusClosed)
	b.wrong(wire.ErrTokenInvalid, "auth/checkotp", token, b.goodBody("auth/checkotp"))
}
