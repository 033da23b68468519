package flows_test

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/flows/manage"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// newSpared returns a harness that forwards emails, and the token and id of a session that
// changes are to spare.
func newSpared(t *testing.T) (b *harness, token, id string) {
	b = newHarness(t)
	b.Forwarded = []record.ProfileField{record.ProfileEmail}
	token = b.sessionIn(record.Authorized)
	return b, token, b.idOf(token)
}

// changeEmail changes the email and spares the session with an id.
func (b *harness) changeEmail(email, id string) error {
	_, _, err := b.admin().Change(b.t.Context(), mnemocode, manage.Change{Keep: id, Apply: func(a *record.Account) error {
		a.Email = email
		return nil
	}})
	return err
}

// wantForwarded checks which email backends get for a session.
func (b *harness) wantForwarded(token, email string) {
	b.t.Helper()
	s, err := b.authorize(token)
	must(b.t, err)
	if got := s.Profile.Value(record.ProfileEmail); got != email {
		b.t.Errorf("backends get %q, want %q", got, email)
	}
}

// A change succeeds only once backends get its values for the session that it spares.
func TestASparedSessionHasTheNewValuesWhenAChangeSucceeds(t *testing.T) {
	b, token, id := newSpared(t)
	down := b.fails("Raise")
	down.Store(true)
	for range 2 {
		if err := b.changeEmail("new@example.com", id); !errors.Is(err, manage.ErrRevocationPending) {
			t.Fatalf("got %v, want ErrRevocationPending", err)
		}
	}
	down.Store(false)
	must(t, b.changeEmail("new@example.com", id))
	b.wantForwarded(token, "new@example.com")
}

// Nobody repeats the change of a process that crashes.
func TestASparedSessionGetsTheNewValuesAfterACrash(t *testing.T) {
	b, token, _ := newSpared(t)
	b.update(true, func(a *record.Account) { a.Email, a.Keep = "new@example.com", record.HashToken(token) })
	b.wantForwarded(token, "new@example.com")
}

// Of changes that overlap, the last one counts, even if it restores what was there before.
func TestASparedSessionHasTheValuesOfTheLastChange(t *testing.T) {
	for _, last := range []string{"last@example.com", email} {
		for _, during := range []string{"List", "Raise"} {
			t.Run(during+" "+last, func(t *testing.T) {
				b, token, id := newSpared(t)
				var ended, overlapped atomic.Bool // notices are sent meanwhile
				b.watch(func(c seen) error {
					if c.method == "End" {
						ended.Store(true)
					}
					if ended.Load() && c.method == during && overlapped.CompareAndSwap(false, true) {
						must(t, b.changeEmail(last, id))
					}
					return nil
				})
				must(t, b.changeEmail("first@example.com", id))
				if !overlapped.Load() {
					t.Fatal("the changes did not overlap")
				}
				b.wantForwarded(token, last)
			})
		}
	}
}

// An exchange of its token at the same moment does not take the new values from a session.
func TestASparedSessionHasTheNewValuesAfterAnExchange(t *testing.T) {
	b, token, id := newSpared(t)
	var exchanged atomic.Bool
	next := ""
	b.watch(func(c seen) error {
		if c.method == "Raise" && exchanged.CompareAndSwap(false, true) {
			reply, err := b.ExchangeToken(t.Context(), asking(token), nil)
			must(t, err)
			next = reply.SessionToken
		}
		return nil
	})
	must(t, b.changeEmail("new@example.com", id))
	b.wantForwarded(next, "new@example.com")
}

// Nor does it take a factor from a session that is raised meanwhile.
func TestAnExchangeKeepsWhatASessionIsRaisedTo(t *testing.T) {
	b, token, _ := newSpared(t)
	var raised atomic.Bool
	b.watch(func(c seen) error {
		if c.method == "Replace" && raised.CompareAndSwap(false, true) {
			begun := b.must("stepup", token, object{"factor": "sms"})
			b.must("stepup/check", token, object{"stepup_token": begun.StepUpToken, "otp": b.sms.lastOf(t, "otp.stepup").Code})
		}
		return nil
	})
	reply, err := b.ExchangeToken(t.Context(), asking(token), nil)
	must(t, err)
	if after, err := b.authorize(reply.SessionToken); err != nil || !after.Profile.Methods().Multi() {
		t.Errorf("got %q, %v", after.Profile.Methods(), err)
	}
}

// The removal of an issued token ends no session, and does what an earlier change has left.
func TestARemovedTokenEndsNoSparedSession(t *testing.T) {
	b, token, id := newSpared(t)
	other := b.sessionIn(record.Authorized)
	b.company.IssuedTokens = tenant.IssuedTokens{Lifetime: tenant.Duration(time.Hour), PerAccount: 1}
	_, issued, err := b.admin().IssueToken(t.Context(), mnemocode, manage.TokenWish{Name: "nightly", Paths: []string{"/*"}, Methods: []string{"GET"}})
	must(t, err)
	down := b.fails("End")
	down.Store(true)
	if err := b.changeOwn(manage.PasswordChange{Current: password, New: newSecret, Keep: id}); !errors.Is(err, manage.ErrRevocationPending) {
		t.Fatalf("got %v, want ErrRevocationPending", err)
	}
	down.Store(false)
	must(t, b.admin().RemoveToken(t.Context(), mnemocode, issued.ID, false))
	b.wantLive(token, nil)
	b.wantLive(other, wire.ErrTokenInvalid)
}
