package flows_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/mnemogate/mnemogate/flows"
	"github.com/mnemogate/mnemogate/flows/manage"
	"github.com/mnemogate/mnemogate/flows/message"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/wire"
)

func hardenedHarness(t *testing.T) *harness {
	t.Helper()
	b := newHarness(t)
	b.company.Hardened = true
	b.company.Captcha = &captcha{}
	b.update(true, func(a *record.Account) { a.LoginName = "alice" })
	return b
}

// shape returns all that a client sees of an answer, except random values.
func shape(reply flows.Reply, err error) string {
	r := refusal(err)
	token := ""
	if reply.SessionToken != "" {
		token = reply.SessionToken[:4]
	}
	return fmt.Sprint(codeOf(err), " ", r.Captcha, r.RetryAfter, r.Message, " ", token, " ", reply.SessionState, " ",
		reply.Verification, " ", reply.UserPhone, reply.CaptchaRequired, reply.DisclaimersRequired, reply.UserEmail, reply.ControlQuestion)
}

// A script makes requests for one login id, from several addresses. Each answer is a
// line of its transcript.
type script func(b *harness, id string, say func(flows.Reply, error) flows.Reply)

var scripts = map[string]script{
	"login": func(b *harness, id string, say func(flows.Reply, error) flows.Reply) {
		token := say(b.serve("auth/login", "", object{"login_id": id})).SessionToken
		for i := range 14 {
			body := object{"password": "wrong"}
			if i > 4 {
				body["captcha_response"] = fmt.Sprint("good", i)
			}
			say(b.serve("auth/checkpassword", token, body))
			say(b.serve("auth/login", "", object{"login_id": id}))
		}
		b.clock.advance(time.Hour)
		say(b.serve("auth/checkpassword", token, object{"password": "wrong"}))
	},
	"other routes": func(b *harness, id string, say func(flows.Reply, error) flows.Reply) {
		token := say(b.serve("auth/login", "", object{"login_id": id})).SessionToken
		for i := range flows.Routes {
			if r := &flows.Routes[i]; r.TakesToken() && r.Path != "auth/logout" && r.Path != "auth/checkpassword" {
				say(b.serve(r.Path, token, b.goodBody(r.Path)))
			}
		}
		_, err := b.authorize(token)
		say(flows.Reply{}, err)
		say(b.serve("auth/logout", token, nil))
		say(b.serve("auth/logout", token, nil))
	},
	"recovery by phone": func(b *harness, id string, say func(flows.Reply, error) flows.Reply) {
		n := 0
		begin := func(more object) string {
			n++
			body := with(recovery(object{"login_id": id, "captcha_response": fmt.Sprint("good", n)}), more)
			return say(b.serve("auth/recovery/recover", "", body)).SessionToken
		}
		token := begin(nil)
		for range 15 { // the first attempt uses the code up
			say(b.serve("auth/recovery/checkotp", token, object{"otp": "000000"}))
		}
		for range 3 {
			say(b.serve("auth/recovery/renewotp", token, nil))
			say(b.serve("auth/recovery/checkotp", token, object{"otp": "000000"}))
		}
		begin(object{"method": "PHONE"})
		begin(object{"method": "PHONE"}) // beyond the budget
		begin(object{"method": "QUESTION"})
		begin(object{"captcha_response": "bad"})
		b.clock.advance(10 * time.Minute)
		say(b.serve("auth/recovery/renewotp", token, nil))
		for range 12 {
			token = begin(object{"method": "PHONE"})
			say(b.serve("auth/recovery/checkotp", token, object{"otp": "000000"}))
			b.clock.advance(10 * time.Minute)
		}
	},
	"recovery where the company has no SMS left": func(b *harness, id string, say func(flows.Reply, error) flows.Reply) {
		before := say(b.serve("auth/recovery/recover", "", recovery(object{"login_id": id, "method": "PHONE"}))).SessionToken
		b.company.Limits.SMSPerCompany = tenant.Rate{N: 1, Per: time.Hour}
		b.seed(manage.Seed{Account: record.Account{Mnemocode: "bob", Email: "bob@example.com", Phone: "+37060099999"}})
		b.must("auth/recovery/recover", "", recovery(object{"login_id": "bob@example.com", "method": "PHONE", "captcha_response": "good 2"}))
		settle(b.Service)
		for i := range 3 {
			say(b.serve("auth/recovery/recover", "", recovery(object{"login_id": id, "method": "PHONE", "captcha_response": fmt.Sprint("good 3", i)})))
			say(b.serve("auth/recovery/renewotp", before, nil))
			b.clock.advance(25 * time.Minute)
		}
	},
	"guesses where the country is sent no SMS": func(b *harness, id string, say func(flows.Reply, error) flows.Reply) {
		b.company.Limits.SMSCountries = []string{"+371"}
		guesses(b, id, say)
	},
	"guesses where no SMS is delivered": func(b *harness, id string, say func(flows.Reply, error) flows.Reply) {
		b.sms.broken = errors.New("gateway timeout")
		guesses(b, id, say)
	},
	"recovery by mail": func(b *harness, id string, say func(flows.Reply, error) flows.Reply) {
		for i := range 5 {
			say(b.serve("auth/recovery/recover", "", recovery(object{"login_id": id, "method": "MAIL", "captcha_response": fmt.Sprint("good", i)})))
		}
	},
}

// guesses sends wrong codes in recoveries until the lock: two for each code, of
// which the first counts.
func guesses(b *harness, id string, say func(flows.Reply, error) flows.Reply) {
	b.company.Limits.SMSPerPhone.N = 1000 // otherwise it would be used up together with the codes
	for i := range b.company.Limits.WrongCodes.N + 1 {
		token := say(b.serve("auth/recovery/recover", "", recovery(object{"login_id": id, "method": "PHONE", "captcha_response": fmt.Sprint("good", i)}))).SessionToken
		if i%2 == 1 {
			say(b.serve("auth/recovery/renewotp", token, nil))
		}
		for range 2 {
			say(b.serve("auth/recovery/checkotp", token, object{"otp": "000000"}))
		}
		b.clock.advance(b.company.Limits.SMSPerAccount.Per)
	}
}

// A client that does not know the secrets can't find out which login ids have an
// account, nor how that account can be recovered.
func TestHardenedAnswersAlike(t *testing.T) {
	t.Parallel()
	transcript := func(t *testing.T, run script, id string, prepare func(*record.Account)) []string {
		b := hardenedHarness(t)
		if prepare != nil {
			b.update(true, prepare)
		}
		var lines []string
		run(b, id, func(reply flows.Reply, err error) flows.Reply {
			settle(b.Service)
			lines = append(lines, strings.ReplaceAll(shape(reply, err), id, "<id>"))
			return reply
		})
		return lines
	}
	for name, run := range scripts {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, pair := range [][2]string{{email, "nobody@example.com"}, {phone, "+37061234545"}, {"alice", "nobody"}} {
				want := transcript(t, run, pair[0], nil)
				subjects := map[string]func(*record.Account){
					"unknown":     nil,
					"with an app": func(a *record.Account) { a.SecondFactor, a.TOTP = true, "sealed" },
				}
				if strings.Contains(name, "recover") {
					subjects["restricted"] = func(a *record.Account) { a.Status = record.StatusRestricted }
					subjects["with that phone as second factor"] = func(a *record.Account) { a.SecondFactor = true }
					subjects["with a login name alone"] = func(a *record.Account) { a.Phone, a.Email, a.LoginName = "", "", pair[0] }
				}
				for subject, prepare := range subjects {
					id := pair[0]
					if prepare == nil {
						id = pair[1]
					}
					got := transcript(t, run, id, prepare)
					for i := range want {
						if got[i] != want[i] {
							t.Errorf("%s: answer %d is\n%s, of a known login id\n%s", id+", "+subject, i+1, got[i], want[i])
							break
						}
					}
				}
			}
		})
	}
}

// Tokens do not reveal unknown login ids. At a login they are as long as an
// account's and belong to no bucket. In a recovery, the bucket depends only on the login
// id: not on whether there is an account, nor on its status or its other login ids.
func TestDecoyTokensHaveNoMark(t *testing.T) {
	b := hardenedHarness(t)
	known := b.must("auth/login", "", object{"login_id": email}).SessionToken
	if decoy := b.must("auth/login", "", object{"login_id": "nobody"}).SessionToken; len(decoy) != len(known) {
		t.Errorf("a decoy's token has %d characters, an account's %d", len(decoy), len(known))
	}
	solved := 0
	bucket := func(id string) int {
		b.clock.advance(time.Hour) // so that the next SMS is allowed
		solved++
		token := b.must("auth/recovery/recover", "", object{"login_id": id, "captcha_response": fmt.Sprint("good", solved), "method": "PHONE"}).SessionToken
		return record.TokenHash(sha256.Sum256([]byte(token))).Bucket()
	}
	seen := map[int]bool{}
	for i := range 40 {
		id := fmt.Sprintf("nobody%d", i)
		first := bucket(id)
		if bucket(id) != first || bucket(" "+strings.ToUpper(id)) != first {
			t.Errorf("%s: the bucket changes", id)
		}
		seen[first] = true
	}
	if len(seen) < 10 {
		t.Errorf("40 login ids share %d buckets", len(seen))
	}
	ids := []string{email, phone, "alice"}
	buckets := func() (all []int) {
		for _, id := range ids {
			all = append(all, bucket(id))
		}
		return all
	}
	active := buckets()
	b.changeStatus(record.StatusClosed)
	if closed := buckets(); !slices.Equal(closed, active) {
		t.Errorf("buckets %v, and %v of a closed account", active, closed)
	}
}

// A recovery by phone shows a phone only if the client sent it. The mask of a known
// account's phone would reveal its country, and no mask could be made up for an
// unknown login id.
func TestARecoveryShowsNoPhoneButTheOneThatWasSent(t *testing.T) {
	b := hardenedHarness(t)
	b.seed(manage.Seed{Account: record.Account{Mnemocode: "bob", LoginName: "+4915112345678", Phone: "+37060099999"}})
	for id, want := range map[string]string{
		email: "", "alice": "", "nobody@example.com": "", "nobody": "",
		phone: "+37*******45", " 00370 (600) 12345": "+37*******45", // known
		"+370 600 99998": "+37*******98",   // unknown
		"+4915112345678": "+49*********78", // a login name
	} {
		reply := b.must("auth/recovery/recover", "", recovery(object{"login_id": id, "method": "PHONE", "captcha_response": "good " + id}))
		if reply.SessionState != record.RecoveryOTP || reply.UserPhone != want {
			t.Errorf("%s: got the state %s and the phone %q, want %q", id, reply.SessionState, reply.UserPhone, want)
		}
		if later, err := b.Current(t.Context(), asking(reply.SessionToken)); err != nil || later.UserPhone != want {
			t.Errorf("%s: later it shows the phone %q, %v", id, later.UserPhone, err)
		}
	}
}

// slowAtFirst is a gateway that fails to send its first message, and reports the
// failure only after a while.
type slowAtFirst struct {
	*outbox
	fail  chan error
	again atomic.Bool
}

func (s *slowAtFirst) Send(ctx context.Context, m message.Message) error {
	if !s.again.Swap(true) {
		<-s.fail
		return <-s.fail
	}
	return s.outbox.Send(ctx, m)
}

func TestHardenedRecovery(t *testing.T) {
	t.Run("by phone, not delivered until it was renewed", func(t *testing.T) {
		b := hardenedHarness(t)
		fail := make(chan error)
		b.company.SMS = &slowAtFirst{outbox: b.sms, fail: fail}
		reply := b.must("auth/recovery/recover", "", recovery(nil))
		fail <- nil // it is being sent
		b.must("auth/recovery/renewotp", reply.SessionToken, nil)
		b.sms.await(1)
		fail <- errors.New("gateway timeout")
		settle(b.Service)
		wantStep(t, b.must("auth/recovery/checkotp", reply.SessionToken, object{"otp": b.sms.last(t).Code}), record.RecoveryPassword)
	})
	t.Run("not delivered", func(t *testing.T) {
		b := hardenedHarness(t)
		b.sms.broken, b.mail.broken = errDown, errDown
		token := b.must("auth/recovery/recover", "", recovery(object{"method": "PHONE"})).SessionToken
		b.must("auth/recovery/recover", "", recovery(object{"method": "MAIL", "captcha_response": "good 2"}))
		settle(b.Service)
		b.wrong(wire.ErrOTPInvalid, "auth/recovery/checkotp", token, object{"otp": b.sms.last(t).Code})
		b.wrong(wire.ErrTokenInvalid, "auth/recovery/checklink", "", object{"token": strings.TrimPrefix(b.mail.last(t).Link, linkURL)})
	})
	t.Run("by mail", func(t *testing.T) {
		b := hardenedHarness(t)
		for id, want := range map[string]string{phone: "***@***", "alice": "***@***", " Alice@Example.com": "Alice@Example.com"} {
			reply := b.must("auth/recovery/recover", "", recovery(object{"login_id": id, "method": "MAIL", "captcha_response": "good " + id}))
			if reply.UserEmail != want {
				t.Errorf("%s: got %q", id, reply.UserEmail)
			}
		}
	})
	t.Run("never by question", func(t *testing.T) {
		b := hardenedHarness(t)
		b.wrong(wire.ErrMethodRestricted, "auth/recovery/recover", "", recovery(object{"method": "QUESTION"}))
		b.company.Recovery.Methods = []tenant.Method{tenant.ByQuestion, tenant.ByPhone}
		if got := b.must("auth/recovery/recover", "", recovery(object{"captcha_response": "good 2"})).Verification; got != tenant.ByPhone {
			t.Errorf("got %s", got)
		}
		b.company.Recovery.Methods = []tenant.Method{tenant.ByQuestion}
		b.wrong(wire.ErrMethodRestricted, "auth/recovery/recover", "", recovery(object{"captcha_response": "good 3"}))
	})
}

// A login at a hardened company gets the same answer for everyone: all disclaimers
// of the company, and no status.
func TestALoginTellsNothingOfAnAccount(t *testing.T) {
	b := hardenedHarness(t)
	b.company.Disclaimers = []wire.Disclaimer{terms, privacy}
	b.must("auth/checkcredentials", "", credentials(object{"accept_disclaimers": []string{"terms", "privacy"}}))
	unknown := b.must("auth/login", "", object{"login_id": "nobody"})
	for _, change := range []func(*record.Account){
		func(*record.Account) {},
		func(a *record.Account) { a.Status = record.StatusRestricted },
		func(a *record.Account) { a.Status, a.PasswordHash = record.StatusClosed, "" },
	} {
		b.update(true, change)
		known := b.must("auth/login", "", object{"login_id": email})
		known.SessionToken = unknown.SessionToken
		if diff := gocmp.Diff(unknown, known); diff != "" {
			t.Errorf("(-unknown +known):\n%s", diff)
		}
	}
}

// The private count reaches the lock together with the public one.
func TestALockOfAHardenedCompanyIsOneEvent(t *testing.T) {
	b := hardenedHarness(t)
	b.company.Captcha = nil
	b.company.Limits.LockAfter = 2
	all := b.record()
	for range 2 {
		b.wrong(wire.ErrCredentialsInvalid, "auth/checkcredentials", "", object{"login_id": email, "password": "wrong"})
	}
	if locks := named(all(), record.LockPassword); len(locks) != 1 {
		t.Errorf("got the locks %+v", locks)
	}
}

// Logins and recoveries that began before a reload changed `hardened` must begin again:
// they count for other login ids than those after it.
func TestAChangeOfHardenedEndsLoginsAndRecoveries(t *testing.T) {
	b := newHarness(t)
	question := b.sessionIn(record.RecoveryQuestion)
	b.company.Hardened = true
	b.wrong(wire.ErrTokenInvalid, "auth/recovery/checkquestion", question, object{"control_answer": "Rex"})
	for _, hardened := range []bool{false, true} {
		b.company.Hardened = hardened
		login := b.must("auth/login", "", object{"login_id": email}).SessionToken
		recovery := b.must("auth/recovery/recover", "", recovery(object{"method": "PHONE", "captcha_response": fmt.Sprint("good", hardened)})).SessionToken
		b.company.Hardened = !hardened
		b.wrong(wire.ErrTokenInvalid, "auth/checkpassword", login, object{"password": password})
		b.wrong(wire.ErrTokenInvalid, "auth/recovery/checkotp", recovery, object{"otp": "123456"})
		b.wrong(wire.ErrTokenInvalid, "auth/recovery/renewotp", recovery, nil)
	}
}

// A recovery enables a disabled password for all login ids, or fails before it changes anything.
func TestARecoveryEnablesThePassword(t *testing.T) {
	b := hardenedHarness(t)
	b.company.Captcha = nil
	b.company.Limits.LockFor, b.company.Limits.DisableAfter = 0, 20
	for range b.company.Limits.DisableAfter {
		b.wrong(wire.ErrCredentialsInvalid, "auth/checkcredentials", "", credentials(object{"password": "wrong"}))
	}
	b.wrong(wire.ErrRestricted, "auth/login", "", object{"login_id": email})
	token := b.walk("auth/recovery/recover").SessionToken
	b.sms.await(1)
	token = b.must("auth/recovery/checkotp", token, object{"otp": b.sms.last(t).Code}).SessionToken
	accounts := b.Accounts
	b.Accounts = failing{accounts}
	b.wrong(wire.ErrUnavailable, "auth/setpassword", token, object{"new_password": newSecret})
	b.Accounts = accounts
	b.must("auth/setpassword", token, object{"new_password": newSecret})
	for _, id := range []string{email, phone} {
		b.must("auth/checkcredentials", "", object{"login_id": id, "password": newSecret})
	}
}

// The budgets that recoveries with one login id use up do not show with another
// login id. Even so, the account gets no more messages than its own budget allows.
func TestBudgetsTellNothingOfAnotherLoginID(t *testing.T) {
	for method, limit := range map[tenant.Method]func(*tenant.Limits) *tenant.Rate{
		tenant.ByPhone: func(l *tenant.Limits) *tenant.Rate { return &l.SMSPerAccount },
		tenant.ByMail:  func(l *tenant.Limits) *tenant.Rate { return &l.MailsPerAccount },
	} {
		t.Run(string(method), func(t *testing.T) {
			b := hardenedHarness(t)
			b.company.Captcha = nil
			n := limit(&b.company.Limits).N
			b.company.Limits.SMSPerAddress.N = 1000
			recover := func(id string) error {
				_, err := b.serve("auth/recovery/recover", "", object{"login_id": id, "captcha_response": "x", "method": string(method)})
				return err
			}
			for _, id := range []string{email, phone} {
				for range n {
					if err := recover(id); err != nil {
						t.Fatalf("%s: %v", id, err)
					}
				}
				wantError(t, recover(id), wire.ErrRestricted)
			}
			b.Close() // waits for messages that are sent later
			if sent := b.sms.count() + b.mail.count(); sent != n {
				t.Errorf("%d were sent, want %d", sent, n)
			}
		})
	}
}

// Attempts with one login id of an account do not show with another login id, but
// they count all the same.
func TestCountsTellNothingOfAnotherLoginID(t *testing.T) {
	b := hardenedHarness(t)
	b.company.Captcha = nil
	b.company.Limits.FailuresPerAddress.N = 1000
	l := &b.company.Limits
	for range l.LockAfter {
		b.wrong(wire.ErrCredentialsInvalid, "auth/checkcredentials", "", object{"login_id": email, "password": "wrong"})
	}
	b.wrong(wire.ErrRestricted, "auth/checkcredentials", "", object{"login_id": email, "password": "wrong"})
	b.wrong(wire.ErrRestricted, "auth/login", "", object{"login_id": email})
	b.must("auth/login", "", object{"login_id": phone})
	b.clock.advance(time.Duration(l.LockFor) / 2)
	b.wrong(wire.ErrCredentialsInvalid, "auth/checkcredentials", "", object{"login_id": phone, "password": "wrong"})
	_, err := b.serve("auth/checkcredentials", "", object{"login_id": phone, "password": password})
	wantError(t, err, wire.ErrRestricted)
	if reason := refusal(err).Reason; reason != "lock.password" {
		t.Errorf("the reason is %q", reason)
	}
	b.clock.advance(time.Duration(l.LockFor) / 2) // the wrong one has not extended the lock
	b.must("auth/checkcredentials", "", object{"login_id": phone, "password": password})
	b.wrong(wire.ErrOTPInvalid, "auth/recovery/checkotp", b.walk("auth/recovery/recover").SessionToken, object{"otp": "000000"})
	if n := b.failureCount(record.WrongCodes); n != 1 {
		t.Errorf("%d wrong codes are counted", n)
	}
}

// Strangers who have failed with a login id do not see that its owner logs in or sets a
// new password. What they see ends by age alone, whether or not there is an account.
func TestNothingShowsWhatTheOwnerDoes(t *testing.T) {
	const nobody = "nobody@example.com"
	for name, owner := range map[string]func(b *harness) error{
		"login": func(b *harness) error {
			_, err := b.serve("auth/checkcredentials", "", object{"login_id": email, "password": password, "captcha_response": "good, by the owner"})
			return err
		},
		"change of the password": func(b *harness) error {
			return b.changeOwn(manage.PasswordChange{Current: password, New: "another fine secret"})
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := hardenedHarness(t)
			login := func(id string) string { return shape(b.serve("auth/login", "", object{"login_id": id})) }
			alike := func() string {
				t.Helper()
				known := login(email)
				if unknown := login(nobody); unknown != known {
					t.Errorf("got\n%s, with an unknown login id\n%s", known, unknown)
				}
				return known
			}
			before := alike()
			for _, id := range []string{email, nobody} {
				for i := range 3 {
					b.wrong(wire.ErrCredentialsInvalid, "auth/checkcredentials", "", object{"login_id": id, "password": "wrong", "captcha_response": fmt.Sprint("good ", id, i)})
				}
			}
			must(t, owner(b))
			if alike() == before {
				t.Error("the failures do not show")
			}
			b.clock.advance(time.Duration(b.company.Limits.LockFor))
			alike()
			b.clock.advance(24 * time.Hour)
			must(t, b.Accounts.Sweep(t.Context(), b.clock.Now()))
			if after := alike(); after != before {
				t.Errorf("a day later: got\n%s, want\n%s", after, before)
			}
		})
	}
}

func TestADecoyNeverPasses(t *testing.T) {
	b := hardenedHarness(t)
	const id = "bob@example.com"
	b.company.OTP.Fixed = []tenant.FixedCode{{Code: "123456", Phones: []string{""}}} // what the code would be
	token := b.must("auth/login", "", object{"login_id": id}).SessionToken
	recovered := b.must("auth/recovery/recover", "", recovery(object{"login_id": id, "method": "PHONE"}))
	b.must("auth/recovery/recover", "", recovery(object{"login_id": " BOB@example.com", "method": "PHONE", "captcha_response": "good 2"}))
	b.must("auth/recovery/recover", "", recovery(object{"login_id": "+370 600 99999", "captcha_response": "good 3"}))
	b.seed(manage.Seed{Account: record.Account{Mnemocode: "bob", Email: id, Phone: "+37060099999"}, Password: password})
	b.wrong(wire.ErrPasswordInvalid, "auth/checkpassword", token, object{"password": password})
	b.wrong(wire.ErrOTPInvalid, "auth/recovery/checkotp", recovered.SessionToken, object{"otp": "123456"})
	b.must("auth/checkpassword", b.must("auth/login", "", object{"login_id": id}).SessionToken, object{"password": password})
	b.Close()
	if b.sms.count()+b.mail.count() != 0 {
		t.Error("something was sent")
	}
}
