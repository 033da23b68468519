package integration

import (
	"strings"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/wire"
	"github.com/mnemogate/mnemogate/store/storetest"
)

// Logins with an OAuth 2.0 provider, in the usual and in other ways.
func TestOAuthOverHTTP(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	s := startSite(t, siteConfig{company: roomy + disclaimers + `
		account alice {
			email alice@example.com
			identity 3 alice
		}
		account bob {
			email bob@example.com
		}
		account carol {
			email carol@example.com
			phone +37060000003
			second_factor
			must_set_password
			identity 3 carol
		}` + g.provider(3, "link_verified_email")})
	login := func(code, redirectURI string) answer {
		return s.post("auth/oauth", "", fields{"provider_id": 3, "code": code, "redirect_uri": redirectURI})
	}
	accept := func(token string, codes ...string) answer {
		return s.post("auth/acceptdisclaimers", token, fields{"accept_disclaimers": codes})
	}
	s.run("disclaimers, then authorized", func(t *testing.T) {
		a := login(codeOf("alice"), callback).wantState(record.AcceptDisclaimers)
		if list, _ := a.JSON["disclaimers_required"].([]any); len(list) != 2 {
			t.Errorf("disclaimers_required is %v", list)
		}
		if a.str("profile_mnemocode") != "" {
			t.Error("the profile is told before the disclaimers are accepted")
		}
		s.get("/", a.token()).want(wire.ErrSessionInvalid)
		refused := accept(a.token(), "terms").want(wire.ErrDisclaimerInvalid)
		if list, _ := refused.JSON["disclaimers_required"].([]any); len(list) != 2 {
			t.Errorf("disclaimers_required is %v", list)
		}
		b := accept(a.token(), "privacy", "terms", "another").wantState(record.Authorized)
		if b.str("profile_mnemocode") != "alice" {
			t.Errorf("got %s", b.Body)
		}
		s.get("/", a.token()).want(wire.ErrTokenInvalid)
		if got := s.get("/", b.token()); got.Status != 200 || !strings.Contains(string(got.Body), "X-Profile-Mnemocode: alice\r\n") {
			t.Errorf("got %d %s", got.Status, got.Body)
		}
		c := login(codeOf("alice"), callback).wantState(record.Authorized)
		if c.str("profile_mnemocode") != "alice" {
			t.Errorf("got %s", c.Body)
		}
	})
	s.run("an account is bound by its verified email", func(*testing.T) {
		accept(login(codeOf("bob"), callback).wantState(record.AcceptDisclaimers).token(), "privacy", "terms").wantState(record.Authorized)
		a, err := s.accounts().ByIdentity(s.t.Context(), "acme", record.Identity{Provider: 3, Subject: "bob"})
		if err != nil || a.Mnemocode != "bob" {
			s.t.Errorf("bound is %q, %v", a.Mnemocode, err)
		}
		storetest.Eventually(s.t, 10*time.Second, "notice to the owner", func() bool {
			return len(s.sms.of("notice.identity_bound")) == 1
		})
		if to := s.sms.last("notice.identity_bound", "to"); to != "bob@example.com" {
			s.t.Errorf("the notice went to %q", to)
		}
	})
	s.run("no second factor and no new password", func(*testing.T) {
		accept(login(codeOf("carol"), callback).wantState(record.AcceptDisclaimers).token(), "privacy", "terms").wantState(record.Authorized)
	})
	s.run("unknown user", func(*testing.T) { login(codeOf("eve"), callback).want(wire.ErrOAuthNotFound) })
	s.run("refused code", func(*testing.T) { login("made-up", callback).want(wire.ErrOAuthFailed) })
	s.run("another redirect_uri", func(*testing.T) {
		before := g.count("/token")
		login(codeOf("alice"), callback+"/").want(wire.ErrOAuthFailed)
		if g.count("/token") != before {
			s.t.Error("the provider was asked")
		}
	})
	s.run("account restricted, closed, denied", func(*testing.T) {
		for status, want := range map[record.Status]*wire.Error{
			record.StatusRestricted: wire.ErrUserRestricted,
			record.StatusClosed:     wire.ErrUserClosed,
			record.StatusDenied:     wire.ErrUserDenied,
		} {
			s.update("carol", true, func(a *record.Account) { a.Status = status })
			login(codeOf("carol"), callback).want(want)
		}
	})
}
