package flows_test

import (
	"testing"

	"github.com/mnemogate/mnemogate/flows"
	"github.com/mnemogate/mnemogate/flows/manage"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/wire"
)

func TestLoginUnknown(t *testing.T) {
	b := newHarness(t)
	for _, id := range []string{"nobody@example.com", "+37060012346", "alice", "alice@example.co", mnemocode, "00", "+"} {
		b.wrong(wire.ErrLoginIDNotFound, "auth/login", "", object{"login_id": id})
	}
	b.wrong(wire.ErrValidation, "auth/login", "", object{"login_id": "   "}) // contract, section 19: empty afterwards
}

var statuses = map[record.Status]*wire.Error{
	record.StatusRestricted: wire.ErrUserRestricted,
	record.StatusClosed:     wire.ErrUserClosed,
	record.StatusDenied:     wire.ErrUserDenied,
	"of a newer version":    wire.ErrUserDenied,
}

// Each route that may answer with the account's status does so while the revocation of its
// sessions is still on its way.
func TestStatusIsAnsweredInEveryFlow(t *testing.T) {
	for i := range flows.Routes {
		if route := &flows.Routes[i]; route.MayFail(wire.ErrUserClosed) {
			b := newHarness(t)
			token := ""
			if route.TakesToken() {
				token = b.sessionIn(route.From[0])
			}
			body := b.goodBody(route.Path)
			b.status(record.StatusClosed)
			b.wrong(wire.ErrUserClosed, route.Path, token, body)
		}
	}
}

// A request of a user stays with the user's account, even if another one has its mnemocode
// before the request ends.
func TestARequestOfAUserReachesNoOtherAccount(t *testing.T) {
	b := newHarness(t)
	s := b.self(b.sessionIn(record.Authorized))
	rename := func(a *record.Account) error { a.Mnemocode = "renamed"; return nil }
	_, _, err := b.admin().Change(t.Context(), mnemocode, manage.Change{Apply: rename})
	must(t, err)
	_, err = b.admin().Create(t.Context(), manage.Change{Password: password, Apply: func(a *record.Account) error {
		a.Mnemocode, a.LoginName = mnemocode, "heir"
		return nil
	}})
	must(t, err)
	b.must("auth/checkcredentials", "", object{"login_id": "heir", "password": password})
	live, err := s.LiveSessions(t.Context(), s.Account.Mnemocode)
	if must(t, err); len(live) != 0 {
		t.Errorf("got %d sessions of another account", len(live))
	}
}

// A new account with an old one's login id inherits no session, code, link, count,
// backup code or acceptance.
func TestANewAccountInheritsNothing(t *testing.T) {
	b := newHarness(t)
	b.company.Disclaimers = []wire.Disclaimer{{Code: "terms", Version: "1"}}
	b.must("auth/checkcredentials", "", object{"login_id": email, "password": password, "accept_disclaimers": []string{"terms"}})
	pending := b.sessionIn(record.CheckPassword)
	recovery := b.sessionIn(record.RecoveryPassword)
	link := b.goodBody("auth/recovery/checklink")
	b.backupCodes("ABCDE23456")
	for range b.company.Limits.LockAfter {
		b.wrong(wire.ErrCredentialsInvalid, "auth/checkcredentials", "", object{"login_id": email, "password": "wrong"})
	}
	old := b.load()
	must(t, b.Accounts.Delete(t.Context(), code, b.account, nil))
	// The revocation is still pending, but the tokens must not work.
	b.wrong(wire.ErrTokenInvalid, "auth/checkpassword", pending, object{"password": password})
	b.wrong(wire.ErrTokenInvalid, "auth/recovery/checklink", "", link)
	_, err := b.admin().Create(t.Context(), manage.Change{Password: password, Apply: func(a *record.Account) error {
		a.Mnemocode, a.Phone, a.Email, a.SecondFactor = mnemocode, phone, email, true
		return nil
	}})
	must(t, err)
	next, err := b.Accounts.ByMnemocode(t.Context(), code, mnemocode)
	must(t, err)
	if next.ID == old.ID || next.BackupCodes != 0 || len(next.Accepted) != 0 || next.Question != "" {
		t.Errorf("the new account has what was the old one's: %+v", next)
	}
	b.wrong(wire.ErrTokenInvalid, "auth/checkpassword", pending, object{"password": password})
	b.wrong(wire.ErrTokenInvalid, "auth/setpassword", recovery, b.goodBody("auth/setpassword"))
	b.wrong(wire.ErrTokenInvalid, "auth/recovery/checklink", "", link)
	b.wrong(wire.ErrOAuthNotFound, "auth/oauth", "", b.goodBody("auth/oauth"))
	must(t, b.RevokePending(t.Context(), late))
	b.wrong(wire.ErrTokenInvalid, "auth/logout", pending, nil)
	reply := b.must("auth/login", "", object{"login_id": email}) // not locked
	if reply.CaptchaRequired || len(reply.DisclaimersRequired) != 1 {
		t.Errorf("got captcha %v and %d disclaimers, want a fresh start", reply.CaptchaRequired, len(reply.DisclaimersRequired))
	}
}
