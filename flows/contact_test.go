package flows_test

import (
	"errors"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/flows/manage"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/session"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// self returns the user of a token.
func (b *harness) self(token string) *manage.Self {
	b.t.Helper()
	authorized, err := b.Authorize(b.t.Context(), session.Requirement{Whole: true}, []string{"Bearer " + token})
	must(b.t, err)
	self, err := manage.NewSelf(b.t.Context(), b.Manager, b.company, authorized, session.Client{Address: home})
	must(b.t, err)
	return self
}

// asUser makes a change as the user of a token.
func (b *harness) asUser(token string, change func(*manage.Self) error) error {
	b.t.Helper()
	self := b.self(token)
	err := self.BeginChange(b.t.Context(), "change")
	if err == nil {
		err = change(self)
	}
	return self.EndChange(b.t.Context(), err)
}

// Strangers who begin recoveries keep nobody from a new email, nor a new user from a welcome.
func TestRecoveriesUseUpNoOtherMails(t *testing.T) {
	for _, hardened := range []bool{false, true} {
		b := newHarness(t)
		b.company.Hardened = hardened
		token := b.sessionIn(record.Authorized)
		recoveries := func() {
			for range b.company.Limits.MailsPerAccount.N {
				b.must("auth/recovery/recover", "", recovery(object{"method": "MAIL"}))
			}
			b.wrong(wire.ErrRestricted, "auth/recovery/recover", "", recovery(object{"method": "MAIL"}))
			settle(b.Service)
		}
		recoveries()
		send := func(s *manage.Self) error {
			_, _, err := s.SendOwnContact(t.Context(), record.Email, "new@example.com")
			return err
		}
		for range b.company.Limits.MailsPerAccount.N {
			must(t, b.asUser(token, send))
		}
		if err := b.asUser(token, send); refusal(err).Reason != "limit.mails" {
			t.Errorf("after as many codes as the limit: got %v", err)
		}
		if _, err := b.admin().SendContact(t.Context(), record.Email, "New@example.com", "", "192.0.2.99"); refusal(err).Reason != "limit.mails" {
			t.Errorf("one more to the same email, for somebody else: got %v", err)
		}
		b.update(true, func(a *record.Account) { a.PasswordHash, a.Identities = "", nil })
		b.welcome()
	}
}

// A right code makes its change even if a store does not answer at first, or the change was
// stored and its revocation failed.
func TestARightCodeForAContactCanBeSentAgain(t *testing.T) {
	for name, fails := range map[string]func(*harness) (mend func()){
		"change": func(b *harness) func() {
			accounts := b.Accounts
			b.Accounts = &busyStore{accounts, 1, false}
			return func() { b.Accounts = accounts }
		},
		"revocation": func(b *harness) func() {
			down := b.fails("End")
			down.Store(true)
			return func() {
				down.Store(false)
				must(b.t, b.RevokePending(b.t.Context(), late))
			}
		},
	} {
		for _, contact := range record.Contacts {
			value := map[string]string{record.Phone.Name: "+37060099999", record.Email.Name: "new@example.com"}[contact.Name]
			t.Run(name+", "+contact.Name, func(t *testing.T) {
				b := newHarness(t)
				token := b.sessionIn(record.Authorized)
				var sent manage.SentContact
				must(t, b.asUser(token, func(s *manage.Self) (err error) {
					sent, _, err = s.SendOwnContact(t.Context(), contact, value)
					return err
				}))
				code := map[string]*outbox{record.Phone.Name: b.sms, record.Email.Name: b.mail}[contact.Name].last(t).Code
				confirm := func(s *manage.Self) error { return s.ConfirmOwnContact(t.Context(), contact, sent.Token, code) }
				mend := fails(b)
				if err := b.asUser(token, confirm); !errors.Is(err, wire.ErrUnavailable) {
					t.Fatalf("got %v", err)
				}
				mend()
				b.clock.advance(time.Second)
				must(t, b.asUser(token, confirm))
				if a := b.load(); *contact.Value(&a) != value || contact.Verified(&a).IsZero() {
					t.Errorf("the account is %+v", a)
				}
			})
		}
	}
}
