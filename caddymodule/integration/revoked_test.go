package integration

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// A token that was revoked by a status gets that status from the routes that list
// it, on every node, and auth.token.invalid from the others.
func TestTokensTellOfTheStatusThatRevokedThem(t *testing.T) {
	t.Parallel()
	onEachDeployment(t, func(t *testing.T, start starter) {
		s := start(t, siteConfig{company: roomy + account("alice", "phone +37060000001\nsecond_factor\nquestion \"Your cat?\" whiskers") +
			account("bob", "") + account("carol", "must_set_password")})
		admin := s
		if len(s.nodes) > 0 {
			admin = s.nodes[0]
		}
		status := func(account string, status record.Status) {
			admin.admin("PATCH", "accounts/"+account, fields{"status": status}).wantStatus(http.StatusOK)
		}
		recovery := func(method string) string {
			return s.post("auth/recovery/recover", "", fields{"login_id": "alice", "captcha_response": "x", "method": method}).token()
		}
		tokens := map[string]struct {
			account, token string
			body           fields
		}{
			"auth/checkpassword":          {"alice", s.post("auth/login", "", fields{"login_id": "alice"}).token(), fields{"password": testPassword}},
			"auth/checkotp":               {"alice", s.credentials("alice", testPassword).wantState(record.CheckOTP).token(), fields{"otp": "000000"}},
			"auth/renewotp":               {"alice", s.credentials("alice", testPassword).wantState(record.CheckOTP).token(), nil},
			"auth/recovery/checkotp":      {"alice", recovery("PHONE"), fields{"otp": "000000"}},
			"auth/recovery/renewotp":      {"alice", recovery("PHONE"), nil},
			"auth/recovery/checkquestion": {"alice", recovery("QUESTION"), fields{"control_answer": "whiskers"}},
			"auth/setpassword":            {"carol", s.credentials("carol", testPassword).wantState(record.SetPassword).token(), fields{"new_password": "another fine secret"}},
		}
		authorized := s.credentials("bob", testPassword).wantState(record.Authorized).token()
		out := s.post("auth/login", "", fields{"login_id": "bob"}).token()
		s.post("auth/logout", out, nil).wantStatus(http.StatusOK)
		both := func(ask func()) { // the nodes take turns
			ask()
			ask()
		}
		for _, round := range []struct {
			status record.Status
			want   *wire.Error
		}{
			{record.StatusRestricted, wire.ErrUserRestricted}, {record.StatusClosed, wire.ErrUserClosed}, {record.StatusDenied, wire.ErrUserDenied},
			{record.StatusActive, wire.ErrTokenInvalid}, {record.StatusClosed, wire.ErrTokenInvalid},
		} {
			for _, account := range []string{"alice", "bob", "carol"} {
				status(account, round.status)
			}
			s.run(fmt.Sprint(round.status, " ", round.want.Code), func(t *testing.T) {
				for route, of := range tokens {
					both(func() { s.post(route, of.token, of.body).want(round.want) })
					both(func() { s.post("auth/logout", of.token, nil).want(wire.ErrTokenInvalid) })
				}
				both(func() { s.post("auth/logout", authorized, nil).want(wire.ErrTokenInvalid) })
				both(func() { s.get("/", authorized).want(wire.ErrTokenInvalid) })
				both(func() { s.post("auth/checkpassword", out, fields{"password": testPassword}).want(wire.ErrTokenInvalid) })
			})
		}
	})
}

// In a hardened company, the first token of a login gets the same answers as that
// for an unknown login id, even after the account's sessions were revoked.
func TestRevokedLoginsOfAHardenedCompanyTellNothing(t *testing.T) {
	t.Parallel()
	onEachDeployment(t, func(t *testing.T, start starter) {
		s := start(t, siteConfig{company: roomy + "hardened\n" + account("alice", "phone +37060000001")})
		admin := s
		if len(s.nodes) > 0 {
			admin = s.nodes[0]
		}
		login := func(id string) string { return s.post("auth/login", "", fields{"login_id": id}).token() }
		known, unknown := login("alice"), login("nobody")
		for i, end := range []func(){
			func() { admin.admin("DELETE", "accounts/alice/sessions", nil).wantStatus(http.StatusNoContent) },
			func() { admin.admin("PATCH", "accounts/alice", fields{"status": "closed"}).wantStatus(http.StatusOK) },
			func() { admin.admin("DELETE", "accounts/alice", nil).wantStatus(http.StatusNoContent) },
		} {
			if i == 1 {
				known = login("alice")
			}
			end()
			for _, token := range []string{known, unknown} {
				for range 2 {
					r := s.getRequest("/acme/v2/session", token)
					r.Header.Set("X-Api-Key", testKey)
					s.do(r).wantState(record.CheckPassword)
					s.post("auth/checkpassword", token, fields{"password": "wrong"}).want(wire.ErrPasswordInvalid)
				}
			}
		}
	})
}
