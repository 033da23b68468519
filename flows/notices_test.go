package flows_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mnemogate/mnemogate/flows"
	"github.com/mnemogate/mnemogate/flows/manage"
	"github.com/mnemogate/mnemogate/flows/message"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/session"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// noticesAfter returns the notices that do causes, as "type recipient", sorted.
func (b *harness) noticesAfter(do func()) []string {
	b.t.Helper()
	settle(b.Service)
	mails, sms := b.mail.count(), b.sms.count()
	do()
	settle(b.Service)
	var all []string
	for _, m := range append(slices.Clone(b.mail.sent[mails:]), b.sms.sent[sms:]...) {
		if message.IsNotice(m.Type) {
			all = append(all, message.NoticeName(m.Type)+" "+m.To)
		}
	}
	slices.Sort(all)
	return all
}

func (b *harness) wantNotices(want []string, do func()) {
	b.t.Helper()
	if got := b.noticesAfter(do); !slices.Equal(got, want) {
		b.t.Errorf("got the notices %q, want %q", got, want)
	}
}

// change changes the account as an operator.
func (b *harness) change(apply func(*record.Account)) {
	b.t.Helper()
	_, _, err := b.admin().Change(b.t.Context(), mnemocode, set(apply))
	must(b.t, err)
}

// set is a change that is never refused.
func set(apply func(*record.Account)) manage.Change {
	return manage.Change{Apply: func(a *record.Account) error { apply(a); return nil }}
}

// The owner gets a notice of each change to how one logs in: by mail or else by SMS, and
// at the old address or phone, too. A gateway that fails lets no change fail.
func TestOwnersAreToldOfChangesToTheirLogin(t *testing.T) {
	const newEmail, newPhone = "new@example.com", "+37061111111"
	type told struct{ byMail, bySMS []string }
	one := func(notice string) told { return told{[]string{notice + " " + email}, []string{notice + " " + phone}} }
	changes := func(apply func(*record.Account)) func(*harness) { return func(b *harness) { b.change(apply) } }
	for name, c := range map[string]struct {
		do func(*harness)
		told
	}{
		"email": {changes(func(a *record.Account) { a.Email = newEmail }), told{[]string{"email_changed " + email, "email_changed " + newEmail}, []string{"email_changed " + phone}}},
		"email removed": {changes(func(a *record.Account) { a.Email = "" }),
			told{[]string{"email_changed " + phone, "email_changed " + email}, []string{"email_changed " + phone}}},
		"phone": {changes(func(a *record.Account) { a.Phone = newPhone }),
			told{[]string{"phone_changed " + phone, "phone_changed " + email}, []string{"phone_changed " + phone, "phone_changed " + newPhone}}},
		"app": {(*harness).newAppNow, one("totp_changed")},
		"backup codes": {func(b *harness) {
			_, err := b.admin().NewBackupCodes(b.t.Context(), mnemocode)
			must(b.t, err)
		}, one("backup_codes_made")},
		"identity": {changes(func(a *record.Account) {
			a.Identities = append(a.Identities, record.Identity{Provider: 2, Subject: "x"})
		}), one("identity_bound")},
		"identity removed": {changes(func(a *record.Account) { a.Identities = nil }), one("identity_removed")},
		"identity replaced": {changes(func(a *record.Account) { a.Identities = []record.Identity{{Provider: 1, Subject: "other"}} }),
			told{[]string{"identity_bound " + email, "identity_removed " + email}, []string{"identity_bound " + phone, "identity_removed " + phone}}},
		"password": {func(b *harness) {
			b.must("auth/setpassword", b.sessionIn(record.SetPassword), object{"new_password": newSecret})
		}, one("password_changed")},
		"password removed": {changes(func(a *record.Account) { a.PasswordHash = "" }), one("password_changed")},
		"login name":       {changes(func(a *record.Account) { a.LoginName = "wonder" }), one("login_name_changed")},
		"question":         {changes(func(a *record.Account) { a.Question = "Your first street?" }), one("question_changed")},
		"question removed": {changes(func(a *record.Account) { a.Question, a.AnswerHash = "", "" }), one("question_changed")},
		"second factor on": {changes(func(a *record.Account) { a.SecondFactor = true }), told{}},
		"second factor off": {func(b *harness) {
			b.update(true, func(a *record.Account) { a.SecondFactor = true })
			b.change(func(a *record.Account) { a.SecondFactor = false })
		}, one("second_factor_off")},
		"passkey": {func(b *harness) { b.device("k", 0) }, one("passkey_added")},
		"passkey removed": {func(b *harness) {
			must(b.t, b.Accounts.AddPasskey(b.t.Context(), b.Now(), b.load(), record.Passkey{Credential: []byte("key of alice"), UserHandle: []byte("handle"), PublicKey: []byte("key")}))
			must(b.t, b.admin().RemovePasskey(b.t.Context(), mnemocode, record.Passkey{Credential: []byte("key of alice")}.ID(), ""))
		}, one("passkey_removed")},
		"nothing of the login": {changes(func(a *record.Account) { a.Role, a.Locale = "boss", "de" }), told{}},
	} {
		t.Run(name, func(t *testing.T) {
			for i, want := range [][]string{c.byMail, c.bySMS, nil} {
				b := newHarness(t)
				b.mail.broken, b.sms.broken = errDown, errDown
				switch i {
				case 1:
					b.company.Mail = nil
				case 2:
					b.company.Notices = []string{}
				}
				b.wantNotices(want, func() { c.do(b) })
			}
		})
	}
}

// newAppNow gives the account an authenticator app.
func (b *harness) newAppNow() {
	b.t.Helper()
	if _, err := b.admin().ConfirmTOTP(b.t.Context(), mnemocode, b.newApp()(0), ""); err != nil {
		b.t.Fatal(err)
	}
}

// A list of notices sends these only.
func TestNoticesThatAreWanted(t *testing.T) {
	b := newHarness(t)
	b.company.Notices = []string{"phone_changed"}
	b.wantNotices([]string{"phone_changed " + phone, "phone_changed new@example.com"}, func() {
		b.change(func(a *record.Account) { a.Email, a.Phone = "new@example.com", "+37061111111" })
	})
}

// A notice says when, from which device and from where. A change by an operator only
// says when.
func TestANoticeNamesTimeDeviceAndAddress(t *testing.T) {
	b := newHarness(t)
	firefox := flows.Request{Client: session.Client{Address: "203.0.113.9", UserAgent: "Mozilla/5.0 (X11; Linux) <b>evil</b> Firefox/1"}}
	if _, err := b.ask(firefox, "auth/setpassword", b.sessionIn(record.SetPassword), object{"new_password": newSecret}); err != nil {
		t.Fatal(err)
	}
	settle(b.Service)
	if m := b.mail.last(t); !strings.Contains(m.Text, "\n\n2026-11-21 12:00 UTC, Firefox (Linux), 203.0.113.9\n\n") || strings.Contains(m.Text, "evil") {
		t.Errorf("the user's own change: %s", m.Text)
	}
	b.change(func(a *record.Account) { a.Phone = "+37061111111" })
	settle(b.Service)
	if m := b.mail.last(t); !strings.Contains(m.Text, "\n\n2026-11-21 12:00 UTC\n\n") || strings.Contains(m.Text, "192.0.2.7") {
		t.Errorf("an operator's change: %s", m.Text)
	}
	s := record.Session{Company: code, Account: b.account, Mnemocode: mnemocode} // as a node remembers it
	self, err := manage.NewSelf(t.Context(), b.Manager, b.company, s, session.Client{Address: "203.0.113.9", UserAgent: "Chrome/1 Windows"})
	must(t, err)
	s.Mnemocode = "lost" // by a failover, after which its id was given again
	if _, err := manage.NewSelf(t.Context(), b.Manager, b.company, s, session.Client{}); err != wire.ErrTokenInvalid {
		t.Errorf("the session of a lost account: %v", err)
	}
	if _, err := self.NewOwnBackupCodes(t.Context()); err != nil {
		t.Fatal(err)
	}
	settle(b.Service)
	if m := b.mail.last(t); m.Type != message.NoticeBackupCodesMade || !strings.Contains(m.Text, "UTC, Chrome (Windows), 203.0.113.9\n") {
		t.Errorf("a change on the security page: %s %s", m.Type, m.Text)
	}
}

// Three wrong codes in a row after a correct password tell the owner that someone knows
// it, whichever kind of code it is and however many logins it takes.
func TestOwnersAreToldOfThreeWrongCodesAfterTheirPassword(t *testing.T) {
	for _, kind := range []string{"sms", "app", "backup"} {
		t.Run(kind, func(t *testing.T) {
			b := newHarness(t)
			right := func() object { return object{"otp": b.sms.last(t).Code} }
			wrong, refusal := object{"otp": "000000"}, wire.ErrOTPInvalid
			b.update(true, func(a *record.Account) { a.SecondFactor = true })
			b.company.OTP.Fixed = nil
			switch kind {
			case "app":
				shows := b.newApp()
				if _, err := b.admin().ConfirmTOTP(t.Context(), mnemocode, shows(-30*time.Second), ""); err != nil {
					t.Fatal(err)
				}
				right = func() object { b.clock.advance(30 * time.Second); return object{"otp": shows(0)} }
			case "backup":
				b.backupCodes("AAAAABBBBB", "CCCCCDDDDD")
				wrong, refusal = object{"backup_code": "WRONGWRONG"}, wire.ErrBackupCodeInvalid
			}
			login := func() string {
				b.clock.advance(10 * time.Minute) // the budget of SMS
				return b.must("auth/checkcredentials", "", object{"login_id": email, "password": password}).SessionToken
			}
			fail := func() { b.wrong(refusal, "auth/checkotp", login(), wrong) }
			told := []string{"second_factor_failed " + email}
			b.wantNotices(nil, func() { fail(); fail() })
			b.wantNotices(nil, func() { b.must("auth/checkotp", login(), right()) }) // no more in a row
			b.wantNotices(nil, func() { fail(); fail() })
			b.wantNotices(told, fail)
			b.wantNotices(nil, func() { fail(); fail() })
			b.clock.advance(24 * time.Hour)
			b.wantNotices(nil, fail) // the others are too long ago
			b.wantNotices(told, func() { fail(); fail() })
		})
	}
}

// Nobody is told of wrong codes without a correct password, nor of codes that were not
// compared.
func TestOtherWrongCodesAreNoNews(t *testing.T) {
	for path, begin := range map[string]func(b *harness) string{
		"auth/recovery/checkotp": func(b *harness) string { return b.sessionIn(record.RecoveryOTP) },
		"auth/checkotp":          func(b *harness) string { b.withoutPassword(); return b.walk("auth/login").SessionToken },
	} {
		b := newHarness(t)
		b.wantNotices(nil, func() {
			for range 4 {
				b.wrong(wire.ErrOTPInvalid, path, begin(b), object{"otp": "000000"})
			}
		})
	}
	b := newHarness(t)
	token := b.sessionIn(record.CheckOTP)
	b.wantNotices(nil, func() {
		for range 4 {
			b.wrong(wire.ErrOTPInvalid, "auth/checkotp", token, object{"otp": "000000"}) // the first spends the code
		}
	})
}

// Wrong codes of a step-up are news only if the session began with the password.
func TestWrongCodesOfAStepUpAreNewsAfterAPassword(t *testing.T) {
	s := newStepper(t)
	for path, c := range map[string]struct {
		body object
		told []string
	}{
		"passkey/login":         {s.device.answer(code), nil},
		"auth/checkcredentials": {credentials(nil), []string{"second_factor_failed " + email}},
	} {
		token := s.must(path, "", c.body).SessionToken
		begun := s.must("stepup", token, object{"factor": "otp", "for": "fresh"})
		s.wantNotices(c.told, func() {
			for range 3 {
				s.wrong(wire.ErrOTPInvalid, "stepup/check", token, object{"stepup_token": begun.StepUpToken, "otp": "000000"})
			}
		})
	}
}

// Of racing wrong codes, the third causes the one notice.
func TestRacingWrongCodesCauseOneNotice(t *testing.T) {
	b := newHarness(t)
	b.withApp()
	token := b.awaitingApp()
	b.wantNotices([]string{"second_factor_failed " + email}, func() {
		race(5, func(int) error {
			_, err := b.serve("auth/checkotp", token, object{"otp": "000000"})
			return err
		})
	})
}

// An account's owner gets 20 mails of notices an hour. The last one says that there may be
// more, and after the hour they come again.
func TestMailsOfNoticesHaveABudget(t *testing.T) {
	b := newHarness(t)
	change := func() {
		for range 10 {
			b.Notify(t.Context(), b.company, b.load(), message.Notice{Type: message.NoticeTOTPChanged})
			settle(b.Service)
		}
	}
	const more = "even if there are more changes."
	b.wantNotices(slices.Repeat([]string{"totp_changed " + email}, 20), func() { change(); change(); change() })
	for i, m := range b.mail.sent {
		if strings.Contains(m.Text, more) != (i == 19) {
			t.Errorf("mail %d: %s", i+1, m.Text)
		}
	}
	b.clock.advance(time.Hour)
	b.wantNotices(slices.Repeat([]string{"totp_changed " + email}, 10), change)
	b.company.Mail = nil // SMS have a budget of their own
	b.wantNotices(slices.Repeat([]string{"totp_changed " + phone}, 10), func() { change(); change() })
}

// A notice that the gateway did not take is sent again, as the same message and once, also
// when the node stops. One that the gateway refused or may have taken is not.
func TestNoticesAreSentAgain(t *testing.T) {
	for name, c := range map[string]struct {
		err      error // of the first two attempts
		attempts int
	}{
		"not now": {&message.LaterError{Err: errDown}, 3},
		"refused": {errDown, 1},
	} {
		t.Run(name, func(t *testing.T) {
			b := newHarness(t)
			gateway := &moodySender{fails: []error{c.err, c.err}}
			b.company.Mail = gateway
			b.Notify(t.Context(), b.company, b.load(), message.Notice{Type: message.NoticePasskeyAdded})
			settle(b.Service)
			if len(gateway.ids) != c.attempts || slices.ContainsFunc(gateway.ids, func(id string) bool { return id == "" || id != gateway.ids[0] }) {
				t.Errorf("sent %q", gateway.ids)
			}
		})
	}
	b := newHarness(t)
	gateway := &moodySender{fails: []error{&message.LaterError{Err: errDown, Wait: time.Minute}}}
	b.company.Mail = gateway
	waits := make(chan time.Duration, 1)
	b.After = func(d time.Duration) <-chan time.Time { waits <- d; return nil }
	b.Notify(t.Context(), b.company, b.load(), message.Notice{Type: message.NoticePasskeyAdded})
	select {
	case d := <-waits:
		if d < time.Minute {
			t.Errorf("it waits %v", d)
		}
	case <-time.After(time.Minute):
		t.Fatal("it is not sent again")
	}
	b.Close()
	if len(gateway.ids) != 2 {
		t.Errorf("sent %q", gateway.ids)
	}

	b = newHarness(t)
	b.After = func(time.Duration) <-chan time.Time { return nil }
	var next *moodySender
	gateway, next = &moodySender{fails: []error{&message.LaterError{Err: errDown}}}, &moodySender{}
	now := *b.company
	b.company.Mail, now.Mail = gateway, next
	b.Running = func(string) *tenant.Company { return &now }
	b.Notify(t.Context(), b.company, b.load(), message.Notice{Type: message.NoticePasskeyAdded})
	b.Close()
	if len(gateway.ids) != 1 || !slices.Equal(next.ids, gateway.ids) {
		t.Errorf("the gateway was replaced: sent %q, then %q", gateway.ids, next.ids)
	}
}

// A notice goes out also if the store of its budgets fails at first. One whose budget is used
// up is not tried again.
func TestNoticesWaitForTheStore(t *testing.T) {
	b := newHarness(t)
	store := &moodyCounters{Sessions: b.Sessions}
	store.fails.Store(2)
	b.Sessions = store
	notify := func() {
		b.Notify(t.Context(), b.company, b.load(), message.Notice{Type: message.NoticeNewDevice})
		settle(b.Service)
	}
	b.wantNotices([]string{"new_device " + email}, notify)
	for range 2 {
		notify()
	}
	before := store.asked.Load()
	b.wantNotices(nil, notify)
	if n := store.asked.Load() - before; n != 1 {
		t.Errorf("a used-up budget was charged %d times", n)
	}
}

// The moodyCounters fail first.
type moodyCounters struct {
	record.Sessions
	fails, asked atomic.Int64
}

func (s *moodyCounters) Charge(ctx context.Context, now time.Time, counters ...record.Counter) error {
	if s.asked.Add(1) <= s.fails.Load() {
		return errDown
	}
	return s.Sessions.Charge(ctx, now, counters...)
}

// After ten minutes a notice is given up, and the log has the gateway's last word.
func TestANoticeThatIsGivenUpSaysWhy(t *testing.T) {
	inBubble(t, func(t *testing.T, s *flows.Service) {
		var log bytes.Buffer
		s.Log = slog.New(slog.NewTextHandler(&log, nil))
		company := &tenant.Company{Code: "acme", Texts: message.DefaultTexts(), Mail: lateSender{t}}
		s.Notify(t.Context(), company, record.Account{ID: 1, Email: email}, message.Notice{Type: message.NoticePasskeyAdded})
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if got := log.String(); s.Waiting() != 0 || !strings.Contains(got, errDown.Error()) {
			t.Errorf("%d wait; the log: %s", s.Waiting(), got)
		}
	})
}

// A lateSender asks to wait longer than a notice does.
type lateSender struct{ *testing.T }

func (s lateSender) Send(ctx context.Context, _ message.Message) error {
	if ctx.Err() != nil {
		s.Error("it is asked when the time is over")
	}
	return &message.LaterError{Err: errDown, Wait: time.Hour}
}

// A moodySender fails first.
type moodySender struct {
	fails []error
	ids   []string
}

func (s *moodySender) Send(_ context.Context, m message.Message) error {
	s.ids = append(s.ids, m.ID)
	if n := len(s.ids); n <= len(s.fails) {
		return s.fails[n-1]
	}
	return nil
}

// After a message that the gateway did not take, Retry-After says when the last of the
// budgets allows the next one, or what the gateway asks for.
func TestRetryAfterIsTheLatestThatIsAskedFor(t *testing.T) {
	b := newHarness(t)
	b.company.Limits.SMSPerAccount = tenant.Rate{N: 1, Per: time.Minute}
	b.company.Limits.SMSPerPhone = tenant.Rate{N: 1, Per: 24 * time.Hour}
	b.sms.broken = errDown
	_, err := b.serve("auth/recovery/recover", "", recovery(object{"method": "PHONE"}))
	if got := refusal(err).RetryAfter; codeOf(err) != wire.ErrUnavailable.Code || got != 24*time.Hour {
		t.Errorf("two budgets are used up: Retry-After is %v", got)
	}
	for asked, want := range map[time.Duration]time.Duration{90 * time.Second: 90 * time.Second, 48 * time.Hour: time.Hour} {
		b := newHarness(t)
		b.mail.broken = fmt.Errorf("mail: %w", &message.LaterError{Err: errDown, Wait: asked})
		_, err := b.serve("auth/recovery/recover", "", recovery(object{"method": "MAIL"}))
		if got := refusal(err).RetryAfter; codeOf(err) != wire.ErrUnavailable.Code || got < want || got > want+10*time.Second {
			t.Errorf("the gateway asks for %v: Retry-After is %v", asked, got)
		}
	}
}

// Notices say where users get help, in each language.
func TestNoticesNameTheSupport(t *testing.T) {
	b := newHarness(t)
	b.company.Support = "https://acme.example/help"
	for _, locale := range []string{"de", "en", "es", "fr", "lt"} {
		b.update(false, func(a *record.Account) { a.Locale = locale })
		b.Notify(t.Context(), b.company, b.load(), message.Notice{Type: message.NoticeTOTPChanged})
		settle(b.Service)
		if m := b.mail.last(t); !strings.HasSuffix(m.Text, ": https://acme.example/help") {
			t.Errorf("%s: %s", locale, m.Text)
		}
	}
}

// Notices of logins, which change nothing, are of each kind as many as recovery mails, whatever
// came of the other kind. Those of changes all go out.
func TestNoticesOfLoginsHaveABudget(t *testing.T) {
	b := newHarness(t)
	logins := func() {
		for range 5 {
			b.Notify(t.Context(), b.company, b.load(), message.Notice{Type: message.NoticeSecondFactorFailed})
			b.Notify(t.Context(), b.company, b.load(), message.Notice{Type: message.NoticeNewDevice})
		}
		settle(b.Service)
	}
	if n := len(b.noticesAfter(logins)); n != 6 {
		t.Errorf("%d notices of logins", n)
	}
	b.must("auth/recovery/recover", "", recovery(object{"method": "MAIL"})) // a budget of its own
	if n := len(b.noticesAfter(func() {
		for i := range 5 {
			b.change(func(a *record.Account) { a.Phone = "+3706111111" + string(rune('0'+i)) })
		}
	})); n != 10 {
		t.Errorf("%d notices of 5 changes, want one to the email and one to the old phone for each", n)
	}
	b = newHarness(t)
	b.company.Mail = nil
	for range 3 {
		logins()
	}
	b.wantNotices([]string{"passkey_added " + phone}, func() {
		b.Notify(t.Context(), b.company, b.load(), message.Notice{Type: message.NoticePasskeyAdded})
	})
}

// A gateway that hangs holds up no change, and what no longer fits is dropped and
// counted. One account can't use up the room of the others.
func TestNoticesHoldUpNoChange(t *testing.T) {
	b := newHarness(t)
	hangs := make(chan struct{})
	b.company.Mail = hangingSender(hangs)
	var dropped atomic.Int64
	b.Dropped = func(string) { dropped.Add(1) }
	bob := record.Account{ID: -1, Mnemocode: "bob", Email: "bob@example.com"}
	wantDropped := func(want int64) {
		t.Helper()
		if n := dropped.Load(); n != want {
			t.Errorf("%d were dropped, want %d", n, want)
		}
	}
	for range 300 {
		b.Notify(t.Context(), b.company, b.load(), message.Notice{Type: message.NoticePasskeyAdded})
	}
	wantDropped(284)
	b.change(func(a *record.Account) { a.Phone = "" }) // two recipients
	wantDropped(286)
	b.Notify(t.Context(), b.company, bob, message.Notice{Type: message.NoticePasswordChanged})
	wantDropped(286)
	for i := range 300 { // with the 17 above, 61 more than fit
		carol := record.Account{ID: int64(-2 - i), Mnemocode: "carol" + strconv.Itoa(i), Email: "carol@example.com"}
		b.Notify(t.Context(), b.company, carol, message.Notice{Type: message.NoticePasskeyAdded})
	}
	wantDropped(286 + 61)
	close(hangs)
	settle(b.Service)
	b.Notify(t.Context(), b.company, b.load(), message.Notice{Type: message.NoticePasskeyAdded})
	wantDropped(286 + 61)
}

type hangingSender chan struct{}

func (h hangingSender) Send(context.Context, message.Message) error {
	<-h
	return errors.New("too late")
}
