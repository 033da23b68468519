package flows_test

import (
	"errors"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/session"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// Only sessions of the companies that a requirement names pass.
func TestARequirementMayNameCompanies(t *testing.T) {
	b := newHarness(t)
	token := b.sessionIn(record.Authorized)
	for _, test := range []struct {
		company   string
		companies []string
		want      bool
	}{
		{"", nil, true}, {code, nil, true}, {"globex", nil, false},
		{"", []string{code}, true}, {"", []string{"globex", code}, true}, {"", []string{"globex"}, false},
		{code, []string{"globex", code}, true}, {code, []string{"globex"}, false}, {"globex", []string{code}, false},
	} {
		_, err := b.Authorize(t.Context(), session.Requirement{Company: test.company, Companies: test.companies}, []string{"Bearer " + token})
		if (err == nil) != test.want || err != nil && !errors.Is(err, wire.ErrTokenInvalid) {
			t.Errorf("%+v: got %v", test, err)
		}
	}
}

// A requirement for a fresh login depends on when the login began, not on the current session
// settings. The memory, which knows the session but not when it began, asks the store once.
func TestARequirementMayBeForAFreshLogin(t *testing.T) {
	b := newHarness(t)
	_, gets := b.remembering(1000)
	token := b.sessionIn(record.Authorized)
	ask := func(fresh time.Duration) error {
		_, err := b.Authorize(t.Context(), session.Requirement{Fresh: fresh}, []string{"Bearer " + token})
		return err
	}
	must(t, ask(0))
	b.company.Session.Lifetime *= 7
	b.clock.advance(10 * time.Minute)
	for range 3 {
		must(t, ask(10*time.Minute))
		err := ask(10*time.Minute - time.Second)
		wantError(t, err, wire.ErrSessionInvalid)
		if r := refusal(err); r.Reason != wire.TooOld || r.MaxAge != 10*time.Minute-time.Second {
			t.Errorf("got %+v", r)
		}
	}
	if gets.Load() != 2 {
		t.Errorf("the store was asked %d times, want twice", gets.Load())
	}
	b.must("auth/logout", token, nil)
	wantError(t, ask(time.Hour), wire.ErrTokenInvalid)
}

// What a session is not enough for is an event of its user. A loop of requests is one a
// minute for each rule.
func TestRefusedRequestsOfAUserAreOneEventAMinute(t *testing.T) {
	b := newHarness(t)
	b.remembering(100)
	token := b.sessionIn(record.Authorized)
	b.wantLive(token, nil) // what is remembered lacks the ID of the session
	all := b.record()
	nobody := func(string) bool { return false }
	for range 3 {
		for range 100 {
			found, err := b.Authorize(t.Context(), session.Requirement{RoleAllowed: nobody}, []string{"Bearer " + token})
			wantError(t, err, wire.ErrSessionInvalid)
			for _, rule := range []string{"/admin/*", "/reports"} {
				b.RequestRefused(t.Context(), found, session.Client{Address: "192.0.2.1"}, rule, err)
			}
		}
		b.clock.advance(time.Minute)
	}
	refused := named(all(), record.RequestRefused)
	for _, e := range refused {
		if checkEvent(t, e); e.Company != code || e.Mnemocode != mnemocode || e.Session == "" || e.Address != "192.0.2.1" || e.Reason != "role" {
			t.Errorf("got %+v", e)
		}
	}
	if len(refused) != 6 {
		t.Errorf("got %d events in three minutes, want 6", len(refused))
	}
}
