package flows_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/flows"
	"github.com/mnemogate/mnemogate/flows/manage"
	"github.com/mnemogate/mnemogate/flows/message"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/wire"
)

func recovery(more object) object {
	return with(object{"login_id": email, "captcha_response": "good"}, more)
}

func TestRecoveryMethods(t *testing.T) {
	const phone, mail, question = tenant.ByPhone, tenant.ByMail, tenant.ByQuestion
	none := func(a *record.Account) { a.Phone, a.Email, a.Question, a.AnswerHash = "", "", "", "" }
	methods := func(m ...tenant.Method) []tenant.Method { return m }
	for name, c := range map[string]struct {
		allowed []tenant.Method
		wanted  string
		account func(*record.Account)
		want    tenant.Method
		fails   *wire.Error
	}{
		"omitted":                         {methods(phone, mail, question), "", nil, phone, nil},
		"omitted, another order":          {methods(question, mail, phone), "", nil, question, nil},
		"omitted, no phone":               {methods(phone, mail, question), "", func(a *record.Account) { a.Phone = "" }, mail, nil},
		"omitted, no SMS to the phone":    {methods(phone, mail, question), "", func(a *record.Account) { a.Phone = "+37120000045" }, mail, nil},
		"omitted, only a question":        {methods(phone, mail, question), "", func(a *record.Account) { a.Phone, a.Email = "", "" }, question, nil},
		"omitted, nothing set":            {methods(mail, question, phone), "", none, "", wire.ErrEmailNotSet},
		"omitted, nothing set, one":       {methods(question), "", none, "", wire.ErrQuestionNotSet},
		"omitted, nothing allowed":        {nil, "", nil, "", wire.ErrMethodRestricted},
		"omitted, what is set is not":     {methods(phone), "", func(a *record.Account) { a.Phone = "" }, "", wire.ErrPhoneNotSet},
		"named":                           {methods(phone, mail, question), "QUESTION", nil, question, nil},
		"named, not the first":            {methods(phone, mail), "MAIL", nil, mail, nil},
		"named, not allowed":              {methods(phone, mail), "QUESTION", nil, "", wire.ErrMethodRestricted},
		"named, neither allowed nor set":  {methods(phone), "MAIL", none, "", wire.ErrMethodRestricted},
		"named, no phone":                 {methods(phone, mail), "PHONE", func(a *record.Account) { a.Phone = "" }, "", wire.ErrPhoneNotSet},
		"named, no email":                 {methods(phone, mail), "MAIL", func(a *record.Account) { a.Email = "" }, "", wire.ErrEmailNotSet},
		"named, no question":              {methods(question), "QUESTION", none, "", wire.ErrQuestionNotSet},
		"unknown":                         {methods(phone), "PIGEON", nil, "", wire.ErrValidation},
		"in lower case":                   {methods(phone), "phone", nil, "", wire.ErrValidation},
		"a recovery is no login: the lot": {methods(phone), "PHONE", func(a *record.Account) { a.PasswordHash = "" }, phone, nil},
	} {
		t.Run(name, func(t *testing.T) {
			b := newHarness(t)
			b.company.Recovery.Methods = c.allowed
			b.company.Limits.SMSCountries = []string{"+370"}
			b.update(true, func(a *record.Account) {
				a.LoginName = "alice"
				if c.account != nil {
					c.account(a)
				}
			})
			before := fmt.Sprint(b.load())
			reply, err := b.serve("auth/recovery/recover", "", recovery(object{"login_id": "alice", "method": c.wanted}))
			if c.fails != nil {
				wantError(t, err, c.fails)
				if b.sms.count()+b.mail.count() != 0 {
					t.Error("something was sent")
				}
				return
			}
			must(t, err)
			wantRecovery(t, b, reply, c.want)
			if after := fmt.Sprint(b.load()); after != before {
				t.Errorf("starting a recovery changed the account from %s to %s", before, after)
			}
		})
	}
}

// wantRecovery checks the fields that belong to a method, and that the others are
// empty.
func wantRecovery(t *testing.T, b *harness, reply flows.Reply, method tenant.Method) {
	t.Helper()
	want := flows.Reply{Verification: method, SessionToken: reply.SessionToken, ExpiresIn: reply.ExpiresIn} // events_test.go checks ExpiresIn
	switch method {
	case tenant.ByPhone:
		want.SessionState, want.UserPhone = record.RecoveryOTP, "+37*******45"
		if m := b.sms.last(t); m.Type != message.OTPRecovery || m.To != phone || m.Code == "" || m.Link != "" {
			t.Errorf("the SMS is %+v", m)
		}
	case tenant.ByMail:
		want.SessionToken, want.UserEmail = "", email
		m := b.mail.last(t)
		if m.Type != message.RecoveryLink || m.To != email || m.Code != "" || !strings.HasPrefix(m.Link, linkURL+"mgl_") {
			t.Errorf("the mail is %+v", m)
		}
		if !strings.Contains(m.Text, m.Link) || !m.Expires.Equal(b.clock.Now().Add(30*time.Minute)) {
			t.Errorf("the mail is %+v", m)
		}
	case tenant.ByQuestion:
		want.SessionState, want.ControlQuestion = record.RecoveryQuestion, "Name of your first cat?"
	}
	if reply.PasswordQuality != nil || reply.DisclaimersRequired != nil || fmt.Sprint(reply) != fmt.Sprint(want) {
		t.Errorf("got %+v, want %+v", reply, want)
	}
}

// The order of checks in recover: limits and locks, captcha, login id, status,
// method.
func TestRecoverChecksInOrder(t *testing.T) {
	b := newHarness(t)
	asked := &captcha{}
	b.company.Captcha = asked
	b.wrong(wire.ErrValidation, "auth/recovery/recover", "", object{"login_id": email})
	b.wrong(wire.ErrValidation, "auth/recovery/recover", "", object{"login_id": email, "captcha_response": ""})
	b.wrong(wire.ErrValidation, "auth/recovery/recover", "", recovery(object{"method": "PIGEON"}))
	if asked.asked.Load() != 0 {
		t.Error("a captcha was verified before the body")
	}
	b.company.Recovery.Methods = nil
	b.status(record.StatusDenied)
	b.wrong(wire.ErrCaptchaInvalid, "auth/recovery/recover", "", recovery(object{"login_id": "nobody", "captcha_response": "bad"}))
	b.wrong(wire.ErrUnavailable, "auth/recovery/recover", "", recovery(object{"captcha_response": "down"}))
	b.wrong(wire.ErrLoginIDNotFound, "auth/recovery/recover", "", recovery(object{"login_id": "nobody"}))
	b.wrong(wire.ErrCaptchaInvalid, "auth/recovery/recover", "", recovery(nil)) // used
	b.wrong(wire.ErrUserDenied, "auth/recovery/recover", "", recovery(object{"captcha_response": "good 2"}))
	b.status(record.StatusActive)
	b.wrong(wire.ErrMethodRestricted, "auth/recovery/recover", "", recovery(object{"captcha_response": "good 3"}))
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
		_, _, err := b.admin().Change(t.Context(), mnemocode, manage.Change{Apply: func(a *record.Account) error {
			a.Email = stored
			return nil
		}})
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
	a, _, err := b.admin().Change(t.Context(), "..", manage.Change{Apply: func(a *record.Account) error {
		a.Status = record.StatusRestricted
		return nil
	}})
	if err != nil || a.Status != record.StatusRestricted || a.Phone != "+4402079460958" {
		t.Errorf("got %+v, %v", a, err)
	}
	if found, err := b.admin().ByLoginID(t.Context(), "+4402079460958"); err != nil || found.ID != a.ID {
		t.Errorf("its phone finds %q, %v", found.Mnemocode, err)
	}
	_, _, err = b.admin().Change(t.Context(), "..", manage.Change{Apply: func(a *record.Account) error {
		a.Mnemocode = "."
		return nil
	}})
	if _, refused := errors.AsType[*manage.FieldError](err); !refused {
		t.Errorf("the mnemocode . is taken: %v", err)
	}
}

func TestNothingElseUsesALinkUp(t *testing.T) {
	b := newHarness(t)
	link := b.mailed()
	for i := range flows.Routes {
		if route := &flows.Routes[i]; route.TakesToken() {
			b.wrong(wire.ErrTokenInvalid, route.Path, link, b.goodBody(route.Path))
		}
	}
	b.wantLive(link, wire.ErrTokenInvalid)
	for _, body := range []object{{}, {"token": ""}, {"token": strings.Repeat("x", 129)}, {"token": 1}} {
		b.wrong(wire.ErrValidation, "auth/recovery/checklink", "", body)
	}
	for _, token := range []string{"x", link[:len(link)-1], strings.ToUpper(link), "mgs_" + link[4:], link + "="} {
		b.wrong(wire.ErrTokenInvalid, "auth/recovery/checklink", "", object{"token": token})
	}
	b.wrong(wire.ErrTokenInvalid, "auth/recovery/checklink", "", object{"token": b.sessionIn(record.RecoveryPassword)})
	b.must("auth/recovery/recover", "", recovery(object{"method": "PHONE"}))
	b.must("auth/checkcredentials", "", object{"login_id": email, "password": password})
	// Mail programs break lines in a link.
	broken := " " + link[:20] + "\r\n " + link[20:] + "\u00a0"
	if reply := b.must("auth/recovery/checklink", "", object{"token": broken}); reply.LoginID != email {
		t.Errorf("the link was sent to %q, want %q", reply.LoginID, email)
	}
}

func TestALinkEnds(t *testing.T) {
	t.Run("with its time", func(t *testing.T) {
		b := newHarness(t)
		link := b.mailed()
		b.clock.advance(30*time.Minute - time.Microsecond)
		other := b.mailed()
		b.clock.advance(30 * time.Minute)
		b.wrong(wire.ErrTokenInvalid, "auth/recovery/checklink", "", object{"token": link})
		b.wrong(wire.ErrTokenExpired, "auth/recovery/checklink", "", object{"token": other})
		link = b.mailed()
		b.clock.advance(30*time.Minute - time.Microsecond)
		b.must("auth/recovery/checklink", "", object{"token": link})
	})
	t.Run("with a newer one", func(t *testing.T) {
		b := newHarness(t)
		link := b.mailed()
		newer := b.mailed()
		b.wrong(wire.ErrTokenInvalid, "auth/recovery/checklink", "", object{"token": link})
		b.must("auth/recovery/checklink", "", object{"token": newer})
	})
	t.Run("not with another account's", func(t *testing.T) {
		b := newHarness(t)
		b.seed(manage.Seed{Account: record.Account{Mnemocode: "bob", Email: "bob@example.com"}})
		link := b.mailed()
		b.must("auth/recovery/recover", "", recovery(object{"login_id": "bob@example.com", "method": "MAIL"}))
		b.must("auth/recovery/checklink", "", object{"token": link})
	})
}
