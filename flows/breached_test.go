package flows_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/flows/manage"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/session"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// breachedList is a list of breached passwords that records what it was asked about.
type breachedList struct {
	mu    sync.Mutex
	has   string // a part of each password in it
	down  error
	asked []string
}

func (l *breachedList) Has(_ context.Context, password string) (bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.asked = append(l.asked, password)
	return strings.Contains(password, l.has), l.down
}

func (l *breachedList) times() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.asked)
}

// newBreached returns a harness whose account has a breached password.
func newBreached(t *testing.T, atLogin, require bool) (*harness, *breachedList) {
	b := newHarness(t)
	l := &breachedList{has: "horse"}
	b.company.Breached = tenant.Breached{List: l, AtLogin: atLogin, Require: require}
	return b, l
}

const breachedSecret = "a horse of course" // in the list, and allowed otherwise

func TestABreachedPasswordCannotBeSet(t *testing.T) {
	ways := map[string]func(b *harness) error{
		"setpassword": func(b *harness) error {
			_, err := b.serve("auth/setpassword", b.sessionIn(record.SetPassword), object{"new_password": breachedSecret})
			return err
		},
		"recovery": func(b *harness) error {
			_, err := b.serve("auth/setpassword", b.sessionIn(record.RecoveryPassword), object{"new_password": breachedSecret})
			return err
		},
		"a user's own change": func(b *harness) error {
			return b.changeOwn(manage.PasswordChange{Current: password, New: breachedSecret})
		},
		"rules=user, of an account": func(b *harness) error {
			_, _, err := b.admin().Change(b.t.Context(), mnemocode, manage.Change{Password: breachedSecret, UserRules: true})
			return err
		},
		"rules=user, of a new account": func(b *harness) error {
			named := func(a *record.Account) error { a.Mnemocode, a.LoginName = "carol", "carol"; return nil }
			_, err := b.admin().Create(b.t.Context(), manage.Change{Apply: named, Password: breachedSecret, UserRules: true})
			return err
		},
	}
	for name, set := range ways {
		t.Run(name, func(t *testing.T) {
			b, l := newBreached(t, false, false)
			hash := b.load().PasswordHash
			err := set(b)
			rule, _ := errors.AsType[*tenant.RuleError](err)
			if refusal(err).Reason != wire.PasswordBreached && (rule == nil || rule.Reason != wire.PasswordBreached) {
				t.Errorf("got %v", err)
			}
			if b.load().PasswordHash != hash || len(l.asked) != 1 || l.asked[0] != breachedSecret {
				t.Errorf("asked about %q", l.asked)
			}
			l.down = errDown
			if err := set(b); err != nil {
				t.Errorf("without an answer: %v", err)
			}
			if b, l = newBreached(t, false, true); true {
				l.down = errDown
			}
			if err := set(b); !errors.Is(err, wire.ErrUnavailable) {
				t.Errorf("with require, without an answer: %v", err)
			}
		})
	}
}

func TestAPasswordThatBreaksAnotherRuleIsNotLookedUp(t *testing.T) {
	b, l := newBreached(t, false, false)
	token := b.sessionIn(record.SetPassword)
	for short, want := range map[string]*wire.Error{"horse": wire.ErrQuality, password: wire.ErrPasswordSame} {
		b.wrong(want, "auth/setpassword", token, object{"new_password": short})
	}
	if _, _, err := b.admin().Change(t.Context(), mnemocode, manage.Change{Password: "horse", UserRules: true}); err == nil || l.times() != 0 {
		t.Errorf("got %v, asked about %q", err, l.asked)
	}
	if _, _, err := b.admin().Change(t.Context(), mnemocode, manage.Change{Password: breachedSecret}); err != nil || l.times() != 0 {
		t.Errorf("an operator may set any password: got %v, asked about %q", err, l.asked)
	}
	if q := b.company.Quality(b.load()); !strings.Contains(q.Description, "data breach") {
		t.Errorf("the rules are %q", q.Description)
	}
}

// Both routes, with and without a second factor.
func TestABreachedPasswordIsReplacedAtLogin(t *testing.T) {
	for _, r := range passwordRoutes {
		for _, factor := range []bool{false, true} {
			b, l := newBreached(t, true, false)
			b.update(true, func(a *record.Account) { a.SecondFactor = factor })
			events := b.record()
			for range 2 { // it remains so, and is looked up once
				reply := b.must(r.path, b.sessionIn(record.CheckPassword), object{"login_id": email, "password": password})
				if factor {
					wantStep(t, reply, record.CheckOTP)
					reply = b.must("auth/checkotp", reply.SessionToken, object{"otp": b.sms.last(t).Code})
				}
				wantStep(t, reply, record.SetPassword)
			}
			if l.times() != 1 || !b.load().MustSetPassword || len(named(events(), record.AccountPasswordBreached)) != 1 {
				t.Errorf("asked %d times, %d events", l.times(), len(named(events(), record.AccountPasswordBreached)))
			}
			reply := b.must(r.path, b.sessionIn(record.CheckPassword), object{"login_id": email, "password": password})
			if factor {
				reply = b.must("auth/checkotp", reply.SessionToken, object{"otp": b.sms.last(t).Code})
			}
			_, err := b.serve("auth/setpassword", reply.SessionToken, object{"new_password": breachedSecret})
			if refusal(err).Reason != wire.PasswordBreached {
				t.Errorf("got %v", err)
			}
			wantStep(t, b.must("auth/setpassword", reply.SessionToken, object{"new_password": "another fine secret"}), record.Authorized)
		}
	}
}

func TestAPasswordIsLookedUpOnceInAMonth(t *testing.T) {
	b, l := newBreached(t, true, false)
	b.After = nil // logins at once wait for the one that asks
	l.has = "nothing"
	login := func() {
		if _, err := b.serve("auth/checkcredentials", "", object{"login_id": email, "password": password}); err != nil {
			t.Error(err)
		}
	}
	race(20, func(int) error { login(); return nil })
	b.clock.advance(30*24*time.Hour - time.Second)
	if login(); l.times() != 1 {
		t.Errorf("asked %d times", l.times())
	}
	b.clock.advance(time.Second)
	if login(); l.times() != 2 {
		t.Errorf("after a month: asked %d times", l.times())
	}
	for _, l.has = range []string{"nothing", "horse"} {
		b.withHash(bcryptHash(t, password))
		login()
		login()
	}
	if l.times() != 4 || !b.load().MustSetPassword {
		t.Errorf("with a hash that was replaced: asked %d times", l.times())
	}
	b, l = newBreached(t, true, false)
	l.down = errors.New("a wrong URL")
	login()
	l.down, b.company.Breached.From, b.company.Breached.Require = nil, "https://example.com/range", true
	for range 2 {
		login()
	}
	if l.times() != 2 || !b.load().MustSetPassword {
		t.Errorf("after the list was corrected: asked %d times", l.times())
	}
}

func TestNoWrongPasswordIsLookedUp(t *testing.T) {
	b, l := newBreached(t, true, false)
	b.company.Captcha = &captcha{}
	b.company.Disclaimers = []wire.Disclaimer{{Code: "terms", Version: "1"}}
	body := object{"login_id": email, "password": "wrong horse", "captcha_response": "good"}
	for i := range b.company.Limits.LockAfter {
		body["captcha_response"] = "good " + addressOf(i)
		b.wrong(wire.ErrCredentialsInvalid, "auth/checkcredentials", "", body)
	}
	body["password"], body["captcha_response"] = password, "good"
	b.wrong(wire.ErrRestricted, "auth/checkcredentials", "", body)
	b.clock.advance(time.Hour)
	b.wrong(wire.ErrDisclaimerInvalid, "auth/checkcredentials", "", body)
	b.status(record.StatusClosed)
	b.wrong(wire.ErrUserClosed, "auth/checkcredentials", "", object{"login_id": email, "password": password})
	if l.times() != 0 {
		t.Errorf("asked about %q", l.asked)
	}
}

// Of logins at once, none gets around the list.
func TestABreachedPasswordIsReplacedAtEachOfTwoLogins(t *testing.T) {
	login := object{"login_id": email, "password": password}
	for _, require := range []bool{false, true} {
		for hash, change := range map[string]func(b *harness){
			"argon2id": func(*harness) {},
			"bcrypt":   func(b *harness) { b.withHash(bcryptHash(t, password)) },
		} {
			b, _ := newBreached(t, true, require)
			change(b)
			began := false
			b.Accounts = laps{b.Accounts, func() {
				if !began { // a whole login comes between the steps of another one
					began = true
					wantStep(t, b.must("auth/checkcredentials", "", login), record.SetPassword)
				}
			}}
			if state := b.must("auth/checkcredentials", "", login).SessionState; state != record.SetPassword {
				t.Errorf("%s, require %v: got %s", hash, require, state)
			}
		}
	}
}

// While only the former system knows the passwords of many accounts, the answer about one
// says nothing about another.
func TestABreachedPasswordThatOnlyTheFormerSystemKnows(t *testing.T) {
	b, l := newBreached(t, true, true)
	b.company.Migrate = &elsewhere{right: password}
	b.withHash(record.ExternalPassword)
	accounts := &keepsHash{Accounts: b.Accounts}
	b.Accounts = accounts
	for _, c := range []struct {
		has  string
		want record.State
	}{{"cow", record.Authorized}, {"horse", record.SetPassword}} {
		l.has, accounts.refuse = c.has, true // another login has just replaced the hash
		wantStep(t, b.must("auth/checkcredentials", "", object{"login_id": email, "password": password}), c.want)
	}
}

// keepsHash refuses the next change.
type keepsHash struct {
	record.Accounts
	refuse bool
}

func (k *keepsHash) Update(ctx context.Context, company string, id int64, change func(*record.Account) (bool, error)) (record.Account, error) {
	if k.refuse {
		k.refuse = false
		return record.Account{}, record.ErrConflict
	}
	return k.Accounts.Update(ctx, company, id, change)
}

// A login waits for the answer that another one has asked for.
func TestALoginWaitsForTheAnswerToAnother(t *testing.T) {
	login := object{"login_id": email, "password": password}
	b, l := newBreached(t, true, false)
	waits, answered, second := make(chan bool), make(chan time.Time), make(chan record.State)
	b.After = func(time.Duration) <-chan time.Time {
		close(waits)
		return answered
	}
	b.company.Breached.List = asks{l, func() {
		go func() { second <- b.must("auth/checkcredentials", "", login).SessionState }()
		<-waits
	}}
	wantStep(t, b.must("auth/checkcredentials", "", login), record.SetPassword)
	close(answered)
	if state := <-second; state != record.SetPassword || l.times() != 1 {
		t.Errorf("got %s, asked %d times", state, l.times())
	}
}

// A login asks itself if the other one gets no answer in time.
func TestALoginDoesNotWaitForeverForTheAnswerToAnother(t *testing.T) {
	login := object{"login_id": email, "password": password}
	b, l := newBreached(t, true, false)
	began := false
	b.company.Breached.List = asks{l, func() {
		if !began {
			began = true
			wantStep(t, b.must("auth/checkcredentials", "", login), record.SetPassword)
		}
	}}
	wantStep(t, b.must("auth/checkcredentials", "", login), record.SetPassword)
}

// asks is a list that calls before before it answers.
type asks struct {
	*breachedList
	before func()
}

func (l asks) Has(ctx context.Context, password string) (bool, error) {
	l.before()
	return l.breachedList.Has(ctx, password)
}

// A list without an answer lets the password pass, and is not asked about it again; with
// require, nobody passes until it has answered.
func TestALoginWithoutAnAnswerOfTheList(t *testing.T) {
	login := object{"login_id": email, "password": password}
	b, l := newBreached(t, true, false)
	l.down = errDown
	for range 3 {
		wantStep(t, b.must("auth/checkcredentials", "", login), record.Authorized)
	}
	if l.times() != 1 {
		t.Errorf("asked %d times", l.times())
	}
	b, l = newBreached(t, true, true)
	l.down = errDown
	for range 3 {
		b.wrong(wire.ErrUnavailable, "auth/checkcredentials", "", login)
	}
	l.down = nil
	for range 3 {
		wantStep(t, b.must("auth/checkcredentials", "", login), record.SetPassword)
	}
	if l.times() != 4 {
		t.Errorf("with require: asked %d times", l.times())
	}
}

// A password that the list has is not forgotten if the store does not answer just then.
func TestABreachedPasswordThatCouldNotBeNoted(t *testing.T) {
	b, _ := newBreached(t, true, false)
	accounts := b.Accounts
	b.Accounts = noUpdate{accounts}
	b.wrong(wire.ErrUnavailable, "auth/checkcredentials", "", object{"login_id": email, "password": password})
	b.Accounts = accounts
	b.clock.advance(time.Minute)
	wantStep(t, b.must("auth/checkcredentials", "", object{"login_id": email, "password": password}), record.SetPassword)
}

// noUpdate is a store that changes no account.
type noUpdate struct{ record.Accounts }

func (noUpdate) Update(context.Context, string, int64, func(*record.Account) (bool, error)) (record.Account, error) {
	return record.Account{}, errDown
}

// A client that hangs up does not get around the list.
func TestAClientThatHangsUpIsLookedUp(t *testing.T) {
	b, l := newBreached(t, true, false)
	ctx, cancel := context.WithCancel(t.Context())
	b.company.Breached.List = hangUp{l, cancel}
	c := b.NewCall(session.Client{Address: "192.0.2.1"})
	c.Company = b.company
	a := b.load()
	if err := b.CheckBreached(ctx, &c.Attempt, &a, password); err != nil || !a.MustSetPassword || !b.load().MustSetPassword {
		t.Errorf("got %v, must set a new one: %v", err, a.MustSetPassword)
	}
	if listed, err := b.Breached(ctx, b.company, breachedSecret); err != nil || !listed {
		t.Errorf("a new password: %v, %v", listed, err)
	}
}

// hangUp is a list that the client does not wait for.
type hangUp struct {
	*breachedList
	cancel func()
}

func (h hangUp) Has(ctx context.Context, password string) (bool, error) {
	if h.cancel(); ctx.Err() != nil {
		return false, ctx.Err()
	}
	return h.breachedList.Has(ctx, password)
}
