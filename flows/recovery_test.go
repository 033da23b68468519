package flows_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/flows/manage"
	"github.com/mnemogate/mnemogate/flows/message"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/wire"
)

func recovery(more object) object {
	return with(object{"login_id": email, "captcha_response": "good"}, more)
}

// Strangers' recoveries leave no more counters behind than the address has logins, whether
// they send unknown login ids, or one whose mails are used up.
func TestRecoveriesOfAnAddressAreCounted(t *testing.T) {
	random := func(i int) string { return fmt.Sprint("nobody", i, "@example.com") }
	same := func(int) string { return email }
	for name, c := range map[string]struct {
		hardened bool
		loginID  func(i int) string
	}{
		"hardened": {true, random}, "hardened, a known login id": {true, same}, "a known login id": {false, same}, "unknown login ids": {false, random},
	} {
		t.Run(name, func(t *testing.T) {
			b := newWorkHarness(t)
			b.company.Hardened = c.hardened
			b.company.Limits.FailuresPerAddress.N = 1000
			kept := &countersKept{Sessions: b.Sessions}
			b.Sessions = kept
			challenge := b.challenge(code)
			var err error
			for i := range 300 {
				if b.clock.advance(time.Millisecond); i < 200 { // a solution costs time, and the limit comes first
					challenge = b.challenge(code)
				}
				body := object{"login_id": c.loginID(i), "captcha_response": solution(challenge), "method": "MAIL"}
				_, err = b.serve("auth/recovery/recover", "", body)
			}
			if reason := refusal(err).Reason; reason != "limit.logins" {
				t.Errorf("the last one: %v, %q", err, reason)
			}
			limit := b.company.Limits.LoginsPerAddress.N
			stored := 0
			kept.keys.Range(func(any, any) bool { stored++; return true })
			if want := 2*limit + 2; stored > want { // a captcha and a budget of mails each, and two of the address
				t.Errorf("%d counters are stored, want at most %d", stored, want)
			}
		})
	}
}

// A countersKept is a session store that remembers the keys of the counters it keeps.
type countersKept struct {
	record.Sessions
	keys sync.Map
}

func (k *countersKept) Charge(ctx context.Context, now time.Time, counters ...record.Counter) error {
	err := k.Sessions.Charge(ctx, now, counters...)
	for _, c := range counters {
		if err == nil && !c.CheckOnly {
			k.keys.Store(c.Key, true)
		}
	}
	return err
}

func TestAControlAnswerIsFoldedAndSqueezed(t *testing.T) {
	b := newHarness(t)
	b.company.Limits.WrongAnswers.N = 100
	b.seed(manage.Seed{Account: record.Account{Mnemocode: "bob", LoginName: "bob", Question: "Where?"}, Answer: " Große  Straße\tⅣ "})
	for given, right := range map[string]bool{
		"Große Straße Ⅳ": true, "  GROSSE   STRASSE iv\u00a0": true, "grosse\u3000strasse\nIV": true,
		"grossestrasse iv": false, "grosse strasse": false, "große straße iv.": false,
	} {
		token := b.must("auth/recovery/recover", "", recovery(object{"login_id": "bob", "method": "QUESTION"})).SessionToken
		_, err := b.serve("auth/recovery/checkquestion", token, object{"control_answer": given})
		if right && err != nil || !right && !errors.Is(err, wire.ErrAnswerInvalid) {
			t.Errorf("%+q: got %v, want right %v", given, err, right)
		}
	}
}

// mailed starts a recovery by mail and returns the token of its link.
func (b *harness) mailed() string {
	b.t.Helper()
	return b.goodBody("auth/recovery/checklink")["token"].(string)
}

// Mailboxes that need quotes in SMTP get mail, however their owners write them.
func TestMailGoesToWhateverIsStored(t *testing.T) {
	for stored, to := range map[string]string{
		"taro..yamada@docomo.example": `"taro..yamada"@docomo.example`, `"hanako."@docomo.example`: `"hanako."@docomo.example`, "ü@bücher.example": "ü@bücher.example",
	} {
		b := newHarness(t)
		_, _, err := b.admin().Change(t.Context(), mnemocode, set(func(a *record.Account) { a.Email = stored }))
		must(t, err)
		for _, typed := range []string{stored, to, strings.Replace(stored, "bücher", "XN--bcher-kva", 1), strings.ToUpper(stored)} {
			b.must("auth/recovery/recover", "", recovery(object{"login_id": typed, "method": "MAIL"}))
			if m := b.mail.lastOf(t, message.RecoveryLink); m.To != to {
				t.Errorf("%q: the mail for %q goes to %q, want %q", stored, typed, m.To, to)
			}
			b.company.Limits.MailsPerAccount.N++
		}
	}
}

// A stored value that would be refused today stays, and other changes of its account work.
func TestAnAccountKeepsWhatANewOneMayNotHave(t *testing.T) {
	b := newHarness(t)
	b.update(true, func(a *record.Account) {
		a.Mnemocode, a.Phone, a.Email, a.LoginName = "..", "+4402079460958", "alice@exam_ple.com", "\u200b"
	})
	a, _, err := b.admin().Change(t.Context(), "..", set(func(a *record.Account) { a.Status = record.StatusRestricted }))
	if err != nil || a.Status != record.StatusRestricted || a.Phone != "+4402079460958" {
		t.Errorf("got %+v, %v", a, err)
	}
	if found, err := b.admin().ByLoginID(t.Context(), "+4402079460958"); err != nil || found.ID != a.ID {
		t.Errorf("its phone finds %q, %v", found.Mnemocode, err)
	}
	_, _, err = b.admin().Change(t.Context(), "..", set(func(a *record.Account) { a.Mnemocode = "." }))
	if _, refused := errors.AsType[*manage.FieldError](err); !refused {
		t.Errorf("the mnemocode . is taken: %v", err)
	}
}

func TestNothingElseUsesALinkUp(t *testing.T) {
	b := newHarness(t)
	link := b.mailed()
	if m := b.mail.last(t); !m.Expires.Equal(b.clock.Now().Add(30 * time.Minute)) {
		t.Errorf("the mail says %v", m.Expires)
	}
	b.wrong(wire.ErrTokenInvalid, "auth/logout", link, nil)
	b.wrong(wire.ErrValidation, "auth/recovery/checklink", "", object{"token": strings.Repeat("x", 129)})
	for _, token := range []string{"x", link[:len(link)-1], strings.ToUpper(link), "mgs_" + link[4:], link + "="} {
		b.wrong(wire.ErrTokenInvalid, "auth/recovery/checklink", "", object{"token": token})
	}
	// Mail programs break lines in a link.
	broken := " " + link[:20] + "\r\n " + link[20:] + "\u00a0"
	if reply := b.must("auth/recovery/checklink", "", object{"token": broken}); reply.LoginID != email {
		t.Errorf("the link was sent to %q, want %q", reply.LoginID, email)
	}
}

// Wrong answers are limited to three a day over all sessions. A right one does not
// reset the count.
func TestWrongAnswersAreCounted(t *testing.T) {
	b := newHarness(t)
	token := b.sessionIn(record.RecoveryQuestion)
	other := b.sessionIn(record.RecoveryQuestion)
	b.wrong(wire.ErrAnswerInvalid, "auth/recovery/checkquestion", token, object{"control_answer": "Rex"})
	b.wrong(wire.ErrAnswerInvalid, "auth/recovery/checkquestion", token, object{"control_answer": "Rex"})
	b.must("auth/recovery/checkquestion", token, object{"control_answer": answer})
	b.wrong(wire.ErrAnswerInvalid, "auth/recovery/checkquestion", other, object{"control_answer": "Rex"})
	_, err := b.serve("auth/recovery/checkquestion", other, object{"control_answer": answer})
	wantError(t, err, wire.ErrRestricted)
	if got := refusal(err).RetryAfter; got != 24*time.Hour {
		t.Errorf("got Retry-After %v", got)
	}
	b.wrong(wire.ErrRestricted, "auth/recovery/recover", "", recovery(object{"login_id": phone, "method": "QUESTION"}))
	b.must("auth/recovery/recover", "", recovery(object{"method": "PHONE"})) // a code counts separately
	b.clock.advance(24 * time.Hour)
	b.must("auth/recovery/checkquestion", b.sessionIn(record.RecoveryQuestion), object{"control_answer": answer})
}

// If nothing but an operator can help, the message does not say that another method may.
func TestARecoveryThatIsNotPossibleSaysSo(t *testing.T) {
	for _, hardened := range []bool{false, true} {
		b := newHarness(t)
		b.company.Hardened, b.company.Recovery.Methods = hardened, nil
		_, err := b.serve("auth/recovery/recover", "", recovery(object{"login_id": email}))
		if wantError(t, err, wire.ErrMethodRestricted); refusal(err).Message != "This company has no recovery. Do not offer it." {
			t.Errorf("got %q", refusal(err).Message)
		}
	}
	b := newHarness(t)
	b.company.Recovery.Methods = []tenant.Method{tenant.ByPhone, tenant.ByQuestion}
	b.update(true, func(a *record.Account) { a.Phone, a.Question, a.AnswerHash = "", "", "" })
	_, err := b.serve("auth/recovery/recover", "", recovery(object{"login_id": email}))
	if wantError(t, err, wire.ErrPhoneNotSet); !strings.Contains(refusal(err).Message, "Only an operator can help.") {
		t.Errorf("got %q", refusal(err).Message)
	}
}

// Users keep the phone that is their only second factor: after a recovery by mail, a login
// with the new password would end there.
func TestAnAccountKeepsItsOnlySecondFactor(t *testing.T) {
	for policy, want := range map[tenant.SecondFactor]bool{tenant.SecondFactorRequired: false, tenant.SecondFactorOff: true} {
		b := newHarness(t)
		user := b.self(b.walk("auth/oauth").SessionToken)
		b.company.Recovery.Methods, b.company.SecondFactor = []tenant.Method{tenant.ByMail}, policy
		if got := user.CanRemoveContact(record.Phone); got != want {
			t.Errorf("%s: removable: %v, want %v", policy, got, want)
		}
	}
}

// Users keep the contact that they need to recover. A phone that gets no codes is no way to
// recover, and hardened companies allow fewer ways.
func TestAnAccountKeepsAWayToRecover(t *testing.T) {
	const phoneAlone, phoneOrQuestion = "PHONE MAIL", "PHONE MAIL QUESTION"
	for name, c := range map[string]struct {
		methods  string
		prepare  func(c *tenant.Company)
		hardened bool // whether that company lets its users remove their email
		open     bool
	}{
		"a phone that gets codes":              {phoneAlone, func(*tenant.Company) {}, true, true},
		"a phone in a country without SMS":     {phoneAlone, func(c *tenant.Company) { c.Limits.SMSCountries = []string{"+371"} }, false, false},
		"no gateway":                           {phoneAlone, func(c *tenant.Company) { c.SMS = nil }, false, false},
		"no gateway, and a question":           {phoneOrQuestion, func(c *tenant.Company) { c.SMS = nil }, false, true},
		"a phone that is the second factor":    {phoneAlone, func(c *tenant.Company) { c.SecondFactor = tenant.SecondFactorRequired }, false, true},
		"a phone that is the one of no method": {"MAIL", func(*tenant.Company) {}, false, false},
	} {
		for hardened, want := range map[bool]bool{true: c.hardened, false: c.open} {
			t.Run(fmt.Sprint(name, ", hardened ", hardened), func(t *testing.T) {
				b := newHarness(t)
				user := b.self(b.must("auth/checkcredentials", "", credentials(nil)).SessionToken)
				b.company.Hardened = hardened
				b.company.Recovery.Methods = nil
				for _, m := range strings.Fields(c.methods) {
					b.company.Recovery.Methods = append(b.company.Recovery.Methods, tenant.Method(m))
				}
				c.prepare(b.company)
				if got := user.CanRemoveContact(record.Email); got != want {
					t.Errorf("removable: %v, want %v", got, want)
				}
				if err := manage.ForUser(user.RemoveOwnContact(t.Context(), record.Email)); (err == nil) != want || !want && !errors.Is(err, wire.ErrConflict) {
					t.Errorf("got %v, want success: %v", err, want)
				}
				a := b.load()
				a.Email, a.PasswordHash, a.Identities = "", "", nil // a password must be set by a recovery, or codes must come
				if got, want := user.IsUsable(a), want || b.company.SendsCodesTo(a.Phone); got != want {
					t.Errorf("usable: %v, want %v", got, want)
				}
			})
		}
	}
}
