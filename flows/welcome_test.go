package flows_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/flows/manage"
	"github.com/mnemogate/mnemogate/flows/message"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/tokens"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// welcome mails a welcome link and returns its token.
func (b *harness) welcome() string {
	b.t.Helper()
	must(b.t, b.admin().Welcome(b.t.Context(), mnemocode, false))
	m := b.mail.last(b.t)
	if m.Type != message.WelcomeLink {
		b.t.Fatalf("the mail is %s", m.Type)
	}
	return strings.TrimPrefix(m.Link, linkURL)
}

// A welcome link is valid for welcome_ttl, works once, and ends with a newer link. Its
// mail greets the user in the language of the account and says until when it is valid.
func TestAWelcomeLinkIsValidForWelcomeTTL(t *testing.T) {
	b := newHarness(t)
	b.update(true, func(a *record.Account) { a.Locale, a.PasswordHash, a.Identities = "lt-LT", "", nil })
	token := b.welcome()
	until := b.clock.Now().Add(7 * 24 * time.Hour)
	if m := b.mail.last(t); !m.Expires.Equal(until) || m.Subject != "Jūsų "+code+" paskyra paruošta" || !strings.Contains(m.Text, until.Format("iki 2006-01-02 15:04 UTC")) {
		t.Errorf("valid until %v: %s\n%s", m.Expires, m.Subject, m.Text)
	}
	if !tokens.IsWellFormed(tokens.WelcomePrefix, token) {
		t.Errorf("a client can't tell that %q welcomes a user", token)
	}
	b.wrong(wire.ErrTokenInvalid, "auth/recovery/checklink", "", object{"token": strings.Replace(token, "mgw_", "mgl_", 1)})
	b.wrong(wire.ErrTokenInvalid, "auth/setpassword", token, object{"new_password": "another password"})
	b.clock.advance(7*24*time.Hour - time.Second)
	b.sweep()
	step := b.must("auth/recovery/checklink", "", object{"token": token})
	if step.SessionState != record.RecoveryPassword {
		t.Errorf("it leads to %s", step.SessionState)
	}
	b.wrong(wire.ErrTokenInvalid, "auth/recovery/checklink", "", object{"token": token})

	b.company.Recovery.WelcomeTTL = tenant.Duration(time.Hour)
	token = b.welcome()
	b.clock.advance(time.Hour)
	b.wrong(wire.ErrTokenExpired, "auth/recovery/checklink", "", object{"token": token})
	token = b.welcome()
	b.must("auth/recovery/recover", "", recovery(object{"method": "MAIL"}))
	b.wrong(wire.ErrTokenInvalid, "auth/recovery/checklink", "", object{"token": token})
	b.clock.advance(time.Hour) // the budget of mails
	token = b.welcome()
	b.status(record.StatusClosed)
	b.wrong(wire.ErrUserClosed, "auth/recovery/checklink", "", object{"token": token})
}

// A welcome that was not mailed, or whose link was not stored, can be tried again, and is told
// only then. So can one whose node dies.
func TestAWelcomeIsOneMail(t *testing.T) {
	b := newHarness(t)
	b.update(true, func(a *record.Account) { a.PasswordHash, a.Identities = "", nil })
	b.company.Mail = dyingNode{}
	func() {
		defer func() { _ = recover() }()
		_ = b.admin().Welcome(t.Context(), mnemocode, true)
	}()
	b.company.Mail = b.mail
	b.clock.advance(time.Hour) // the budget of mails
	down := b.fails("Create")
	events := b.record()
	for i, c := range []struct {
		mail  error
		store bool // fails
		once  bool
	}{{errDown, false, false}, {nil, true, false}, {nil, false, true}, {nil, false, false}} {
		b.mail.broken = c.mail
		down.Store(c.store)
		err := b.admin().Welcome(t.Context(), mnemocode, true)
		if (err == nil) != c.once || (len(named(events(), record.AccountWelcomed)) > 0) != (i >= 2) {
			t.Errorf("welcome %d: %v, and the events are %v", i, err, events())
		}
	}
}

// A dyingNode ends when it is about to send a message.
type dyingNode struct{}

func (dyingNode) Send(context.Context, message.Message) error { panic("killed") }

// An account that can log in gets no welcome, and its old link is worth nothing: it would
// reset the password for days.
func TestOnlyNewUsersAreWelcomed(t *testing.T) {
	for name, give := range map[string]func(*harness, record.Account){
		"password": func(b *harness, full record.Account) {
			b.update(false, func(a *record.Account) { a.PasswordHash = full.PasswordHash })
		},
		"identity": func(b *harness, full record.Account) {
			b.update(false, func(a *record.Account) { a.Identities = full.Identities })
		},
		"passkey": func(b *harness, _ record.Account) {
			must(b.t, b.Accounts.AddPasskey(b.t.Context(), b.Now(), b.load(), record.Passkey{Credential: []byte("key of alice"), UserHandle: []byte("handle"), PublicKey: []byte("key")}))
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newHarness(t)
			full := b.load()
			b.update(true, func(a *record.Account) { a.PasswordHash, a.Identities = "", nil })
			token := b.welcome()
			give(b, full)
			b.wrong(wire.ErrTokenInvalid, "auth/recovery/checklink", "", object{"token": token})
			err := b.admin().Welcome(t.Context(), mnemocode, false)
			if refused, ok := errors.AsType[*manage.Error](err); !ok || refused.Field != "password_set" || b.mail.count() != 1 || manage.ForUser(err) == nil {
				t.Errorf("got %v and %d mails", err, b.mail.count())
			}
			b.must("auth/recovery/recover", "", recovery(object{"method": "MAIL"}))
			b.must("auth/recovery/checklink", "", object{"token": strings.TrimPrefix(b.mail.last(t).Link, linkURL)})
		})
	}
}

// A busyStore does not answer the next changes of an account. If it is late, it makes them.
type busyStore struct {
	record.Accounts
	changes int
	late    bool
}

func (s *busyStore) Update(ctx context.Context, company string, id int64, change func(*record.Account) (bool, error)) (record.Account, error) {
	if s.changes == 0 {
		return s.Accounts.Update(ctx, company, id, change)
	}
	s.changes--
	if s.late {
		_, _ = s.Accounts.Update(ctx, company, id, change)
	}
	return record.Account{}, errDown
}

// What a mailed link proves is stored before the link is used up, and once. A link whose use
// could not be stored still works.
func TestTheUseOfALinkIsNotLost(t *testing.T) {
	busy := func(late bool) func(*harness) func() {
		return func(b *harness) func() {
			accounts := b.Accounts
			b.Accounts = &busyStore{accounts, 1, late}
			return func() { b.Accounts = accounts }
		}
	}
	for name, fails := range map[string]func(*harness) (mend func()){
		"a store that does not answer": busy(false),
		"a store whose answer is lost": busy(true),
		"a node that dies": func(b *harness) func() {
			down := b.fails("Replace")
			down.Store(true)
			return func() { down.Store(false) }
		},
	} {
		for mail, want := range map[string]string{"welcome": "welcome.used contact.verified", "recovery": "contact.verified"} {
			t.Run(name+", "+mail, func(t *testing.T) {
				b := newHarness(t)
				b.company.Events.Receiver = struct{ tenant.EventReceiver }{}
				b.update(true, func(a *record.Account) { a.PasswordHash, a.Identities = "", nil })
				var body object
				if mail == "welcome" {
					body = object{"token": b.welcome()}
				} else {
					body = b.goodBody("auth/recovery/checklink")
				}
				mend := fails(b)
				b.wrong(wire.ErrUnavailable, "auth/recovery/checklink", "", body)
				mend()
				b.must("auth/recovery/checklink", "", body)
				if got := b.told(); got != want || b.load().EmailVerified.IsZero() {
					t.Errorf("the backend hears of %q, want %q; the email was proven at %v", got, want, b.load().EmailVerified)
				}
			})
		}
	}
}
