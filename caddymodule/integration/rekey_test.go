package integration

import (
	"strings"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
)

// One command gives all nodes a new secret, while users log in. It asks for no restart, and
// sessions in Redis, apps and begun logins stay.
func TestRekey(t *testing.T) {
	t.Parallel()
	need(t, "oathtool")
	s := accountsSite(t, startNodes, allKeys, siteConfig{company: account("alice", "")})
	s.api(keyOfAll, "POST", "acme/accounts", carol).wantStatus(201)
	secret := s.api(keyOfAll, "POST", "acme/accounts/carol/totp", nil).wantStatus(200).str("secret")
	s.api(keyOfAll, "POST", "acme/accounts/carol/totp/confirm", fields{"code": oathtool(t, secret, 0)}).wantStatus(200)
	session := s.login("alice")
	done := make(chan outcome, 1)
	go func() { done <- s.cli("", "rekey") }()
	var o outcome
	for over := false; !over; {
		begun := s.post("auth/login", "", fields{"login_id": "alice"}).wantState(record.CheckPassword).token()
		s.post("auth/checkpassword", begun, fields{"password": testPassword}).wantState(record.Authorized)
		for range s.nodes {
			s.get("/", session).wantStatus(200)
		}
		select {
		case o = <-done:
			over = true
		case <-time.After(1500 * time.Millisecond):
		}
	}
	o.want(0, "all nodes use the new secret; secrets of apps that were sealed again: 1\n")
	s.get("/", session).wantStatus(200)
	s.post("auth/checkotp", s.secondStep("carol").token(), fields{"otp": oathtool(t, secret, 30*time.Second)}).wantState(record.Authorized)
	line := string(s.api(keyOfAll, "GET", "acme/export?secrets=true", nil).wantStatus(200).Body)
	if !strings.Contains(line, `"totp_secret":"`+secret+`"`) {
		t.Errorf("the export has %s", line)
	}
	s.audits(1, `"msg":"mnemogate.store.rekeyed","actor":"admin endpoint"`)
}
