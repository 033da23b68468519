package flows_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/flows"
	"github.com/mnemogate/mnemogate/flows/panics"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/session"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/wire"
)

type witnessKey struct{}

// A witnessed holds events. Those of messages come from other goroutines.
type witnessed struct {
	mu     sync.Mutex
	events []record.Event
}

// witness is the observer of the harness. It keeps the events of a call of Serve.
func witness(ctx context.Context, e record.Event) {
	if w, ok := ctx.Value(witnessKey{}).(*witnessed); ok {
		w.add(e)
	}
}

func (w *witnessed) add(e record.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events = append(w.events, e)
}

// seen returns the events up to the outcome of the route. Those of messages that are sent
// behind the answer may come later.
func (w *witnessed) seen() []record.Event {
	w.mu.Lock()
	defer w.mu.Unlock()
	seen := slices.Clone(w.events)
	for len(seen) > 0 && seen[len(seen)-1].Route == "" {
		seen = seen[:len(seen)-1]
	}
	return seen
}

// Serve checks the events of every request that a test makes. A request has exactly
// one event with its outcome, which is the last, and no event has fields that its
// kind does not list.
func (b *harness) Serve(ctx context.Context, r *flows.Request) (flows.Reply, error) {
	var w witnessed
	reply, err := b.Service.Serve(context.WithValue(ctx, witnessKey{}, &w), r)
	seen := w.seen()
	for _, e := range seen {
		checkEvent(b.t, e)
	}
	if len(seen) == 0 {
		b.t.Errorf("%s: there is no event", r.Route.Path)
		return reply, err
	}
	result := record.Success
	if err != nil {
		result = codeOf(err)
	}
	last := seen[len(seen)-1]
	if last.Name != r.Route.Event(result) || last.Result != result || last.Route != r.Route.Path || last.Address != r.Address {
		b.t.Errorf("%s: got %v, but the event %+v", r.Route.Path, err, last)
	}
	for _, e := range seen[:len(seen)-1] {
		if e.Result != "" {
			b.t.Errorf("%s has more than one outcome: %+v", r.Route.Path, seen)
		}
	}
	if want := b.Companies[r.Company] != nil; want != (last.Company != "") {
		b.t.Errorf("%s: the company is %q", r.Route.Path, last.Company)
	}
	checkExtensions(b.t, b.Companies[r.Company], reply, err)
	if err == nil && !slices.Contains(r.Route.To, reply.SessionState) {
		b.t.Errorf("%s led to %q, which its row does not list", r.Route.Path, reply.SessionState)
	}
	if !r.Route.StepsUp && ((reply.SessionToken == "") != (reply.SessionState == record.None) || (reply.ProfileMnemocode == "") != (reply.SessionState != record.Authorized)) {
		b.t.Errorf("%s led to %q with a token: %v, and %q", r.Route.Path, reply.SessionState, reply.SessionToken != "", reply.ProfileMnemocode)
	}
	if reply.SessionState != record.None && (last.State != reply.SessionState || last.Session == "") {
		b.t.Errorf("%s led to %s, but the event is %+v", r.Route.Path, reply.SessionState, last)
	}
	return reply, err
}

// checkExtensions checks expires_in and reason.
func checkExtensions(t *testing.T, company *tenant.Company, reply flows.Reply, err error) {
	t.Helper()
	if (reply.ExpiresIn != nil) != (reply.SessionToken != "" || reply.StepUpToken != "" || reply.AuthMethods != nil) {
		t.Errorf("expires_in is %v beside the token %q", reply.ExpiresIn, reply.SessionToken)
	}
	if reply.ExpiresIn != nil {
		want := time.Duration(company.Session.Temporary)
		if reply.SessionState == record.Authorized {
			want = min(time.Duration(company.Session.Idle), time.Duration(company.Session.Lifetime))
		}
		if *reply.ExpiresIn != int(want/time.Second) {
			t.Errorf("%s: expires_in is %d, want %v", reply.SessionState, *reply.ExpiresIn, want)
		}
	}
	code, _ := errors.AsType[*wire.Error](err)
	reason, always := refusal(err).Reason, code == wire.ErrRestricted || code == wire.ErrQuality
	if (reason != "" || always) && !slices.Contains(wire.Reasons[code], reason) {
		t.Errorf("%v has the reason %q", err, reason)
	}
}

func fieldsOf(e record.Event) map[string]string {
	return map[string]string{
		"company":    e.Company,
		"mnemocode":  e.Mnemocode,
		"session":    e.Session,
		"state":      string(e.State),
		"address":    e.Address,
		"user_agent": e.UserAgent,
		"key":        e.Key,
		"actor":      e.Actor,
		"country":    e.Country,
		"gateway":    e.Gateway,
		"route":      e.Route,
		"result":     e.Result,
		"reason":     e.Reason,
		"ref":        e.Ref,
		"factor":     e.Factor,
	}
}

func checkEvent(t *testing.T, e record.Event) {
	t.Helper()
	i := slices.IndexFunc(flows.EventKinds, func(k record.EventKind) bool { return k.Name == e.Name })
	if i < 0 {
		t.Errorf("EventKinds lacks %s", e.Name)
		return
	}
	for field, value := range fieldsOf(e) {
		if value != "" && !slices.Contains(flows.EventKinds[i].Fields, field) {
			t.Errorf("%s has the field %s, %q, which EventKinds does not list", e.Name, field, value)
		}
	}
	if e.Time.IsZero() {
		t.Errorf("%s has no time", e.Name)
	}
}

// record collects all events from now on, including those of work that goes on after
// answers.
func (b *harness) record() (all func() []record.Event) {
	settle(b.Service)
	var w witnessed
	inner := b.Observe
	b.Observe = func(ctx context.Context, e record.Event) {
		w.add(e)
		inner(ctx, e)
	}
	return func() []record.Event {
		settle(b.Service)
		w.mu.Lock()
		defer w.mu.Unlock()
		return slices.Clone(w.events)
	}
}

func named(events []record.Event, name string) []record.Event {
	var found []record.Event
	for _, e := range events {
		if e.Name == name {
			found = append(found, e)
		}
	}
	return found
}

func TestEventKindsAreWellFormed(t *testing.T) {
	form := regexp.MustCompile(`^mnemogate(\.[a-z_]+)+$`) // Caddy looks them up in lower case
	all := []string{"company", "mnemocode", "previous_mnemocode", "session", "state", "address", "user_agent", "key", "actor", "country", "gateway", "route", "result", "reason", "ref", "factor", "attempts", "accounts", "failures", "logins"}
	seen := map[string]bool{}
	for _, k := range flows.EventKinds {
		if !form.MatchString(k.Name) || seen[k.Name] || k.When == "" {
			t.Errorf("%+v", k)
		}
		seen[k.Name] = true
		for _, f := range k.Fields {
			if !slices.Contains(all, f) {
				t.Errorf("%s: there is no field %s", k.Name, f)
			}
		}
	}
}

func TestEventTellsWhoseAttemptItWas(t *testing.T) {
	b := newHarness(t)
	all := b.record()
	token := b.must("auth/login", "", object{"login_id": email}).SessionToken
	b.wrong(wire.ErrPasswordInvalid, "auth/checkpassword", token, object{"password": "wrong"})
	b.must("auth/checkpassword", token, object{"password": password})
	b.wrong(wire.ErrLoginIDNotFound, "auth/login", "", object{"login_id": "hunter2"})
	b.wrong(wire.ErrSessionInvalid, "auth/checkotp", b.sessionIn(record.CheckPassword), object{"otp": "1"})
	var got []string
	for _, e := range all() {
		got = append(got, strings.Join([]string{e.Name, e.Mnemocode, string(e.State), e.Result}, " "))
	}
	want := []string{
		"mnemogate.login.success alice-0001 checkpassword success",
		"mnemogate.checkpassword.failure alice-0001 checkpassword auth.password.invalid",
		"mnemogate.checkpassword.success alice-0001 authorized success",
		"mnemogate.login.failure   auth.loginid.notfound",
		"mnemogate.login.success alice-0001 checkpassword success",
		"mnemogate.checkotp.failure alice-0001 checkpassword auth.session.invalid",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if e := all(); e[0].Session == "" || e[0].Session != e[1].Session || e[0].Session != e[2].Session {
		t.Errorf("the session has the ids %q, %q and %q on its way", e[0].Session, e[1].Session, e[2].Session)
	}
}

func TestPanicIsAnEvent(t *testing.T) {
	b := newHarness(t)
	all := b.record()
	func() {
		defer func() { _ = recover() }()
		_, _ = b.Service.Serve(t.Context(), &flows.Request{
			Company: code,
			Route:   flows.RouteByPath("auth/login"),
			Body:    func() ([]byte, error) { panic("hunter2") },
		})
	}()
	if len(all()) != 1 || all()[0].Result != wire.ErrService.Code || all()[0].Reason != "" {
		t.Errorf("got %+v", all())
	}
}

// An observer that panics fails only the call that it observes.
func TestPanicOfTheObserverEndsOneCall(t *testing.T) {
	b := newHarness(t)
	observe := b.Observe
	b.Observe = func(context.Context, record.Event) { panic("hunter2") }
	for range 100 {
		err := panics.Contain(func() error {
			_, err := b.serve("auth/login", "", object{"login_id": email})
			return err
		})
		if _, ok := errors.AsType[*panics.Error](err); !ok {
			t.Fatalf("got %v, want the observer's panic, which the HTTP layer answers", err)
		}
	}
	b.Observe = observe
	b.must("auth/login", "", object{"login_id": email})
}

// A lock emits one event when it is reached, no matter how many requests it refuses
// afterwards. The events and the answers have the same words for it.
func TestEachLockIsOneEvent(t *testing.T) {
	login := object{"login_id": email}
	wrongPassword := func(b *harness) error {
		_, err := b.serve("auth/checkcredentials", "", object{"login_id": email, "password": "wrong"})
		return err
	}
	start := func(b *harness) error { _, err := b.serve("auth/login", "", login); return err }
	recover := func(method string) func(*harness) error {
		return func(b *harness) error {
			_, err := b.serve("auth/recovery/recover", "", object{"login_id": email, "captcha_response": "x", "method": method})
			return err
		}
	}
	one := tenant.Rate{N: 1, Per: time.Hour}
	tests := map[string]struct {
		reason wire.Reason // in the answer
		limits func(*tenant.Company)
		state  record.State // of the session that the attempts need
		try    func(b *harness) error
		with   func(b *harness, token string) error
	}{
		record.LockPassword: {reason: "lock.password", limits: func(c *tenant.Company) { c.Limits.LockAfter = 2 }, try: wrongPassword},
		record.LockDisabled: {reason: "lock.disabled", limits: func(c *tenant.Company) { c.Limits.LockAfter, c.Limits.DisableAfter = 2, 2 }, try: wrongPassword},
		record.LimitAddress: {reason: "limit.address", limits: func(c *tenant.Company) { c.Limits.FailuresPerAddress = one }, try: wrongPassword},
		record.LimitLogins:  {reason: "limit.logins", limits: func(c *tenant.Company) { c.Limits.LoginsPerAddress = one }, try: wrongPassword},
		record.LockCodes: {reason: "lock.codes", limits: func(c *tenant.Company) { c.Limits.WrongCodes = one }, state: record.CheckOTP,
			with: func(b *harness, token string) error {
				_, err := b.serve("auth/checkotp", token, object{"backup_code": "ZZZZZ23456"})
				return err
			}},
		record.LockAnswers: {reason: "lock.answers", limits: func(c *tenant.Company) { c.Limits.WrongAnswers = one }, state: record.RecoveryQuestion,
			with: func(b *harness, token string) error {
				_, err := b.serve("auth/recovery/checkquestion", token, object{"control_answer": "wrong"})
				return err
			}},
		record.LimitRenewals: {reason: "limit.renewals", limits: func(c *tenant.Company) { c.OTP.Renewals = new(1) }, state: record.CheckOTP,
			with: func(b *harness, token string) error { _, err := b.serve("auth/renewotp", token, nil); return err }},
		record.LimitSMSAccount:  {reason: "limit.sms_account", limits: func(c *tenant.Company) { c.Limits.SMSPerAccount = one }, try: start},
		record.LimitSMSPhone:    {reason: "limit.sms_phone", limits: func(c *tenant.Company) { c.Limits.SMSPerPhone = one }, try: start},
		record.LimitSMSAddress:  {reason: "limit.sms_address", limits: func(c *tenant.Company) { c.Limits.SMSPerAddress = one }, try: start},
		record.LimitSMSCompany:  {reason: "limit.sms_company", limits: func(c *tenant.Company) { c.Limits.SMSPerCompany = one }, try: start},
		record.LimitSMSCountry:  {reason: "limit.sms_country", limits: func(c *tenant.Company) { c.Limits.SMSPerCountry = one }, try: start},
		record.LimitSMSUnlisted: {reason: "limit.sms_country", limits: func(c *tenant.Company) { c.Limits.SMSCountries = []string{"+1"} }, try: start},
		record.LimitMails:       {reason: "limit.mails", limits: func(c *tenant.Company) { c.Limits.MailsPerAccount = one }, try: recover("MAIL")},
		record.LimitChanges:     {reason: "limit.changes", limits: func(*tenant.Company) {}, state: record.Authorized, with: changeOften},
	}
	for _, kind := range flows.EventKinds {
		if _, ok := record.CutLimit(kind.Name); ok && tests[kind.Name].limits == nil {
			t.Errorf("no test reaches %s", kind.Name)
		}
	}
	for lock, test := range tests {
		t.Run(lock, func(t *testing.T) {
			b := newHarness(t)
			test.limits(b.company)
			if strings.Contains(lock, "sms_") {
				b.withoutPassword()
			}
			try := test.try
			if test.with != nil {
				token := b.sessionIn(test.state)
				try = func(b *harness) error { return test.with(b, token) }
			}
			all := b.record()
			var refused int
			for range 5 {
				if err := try(b); errors.Is(err, wire.ErrRestricted) {
					refused++
					if got := refusal(err).Reason; got != test.reason {
						t.Errorf("the client is told %q, want %q", got, test.reason)
					}
				}
			}
			if refused < 3 {
				t.Fatalf("only %d of 5 tries were refused: %+v", refused, all())
			}
			var locks []string
			for _, e := range all() {
				if reason, ok := record.CutLimit(e.Name); ok {
					locks = append(locks, e.Name)
					if !strings.HasPrefix(reason, string(test.reason)) {
						t.Errorf("a search for %s does not find the event %s", test.reason, e.Name)
					}
				}
				if e.Result == wire.ErrRestricted.Code && e.Reason != string(test.reason) {
					t.Errorf("the event of a refusal gives the reason %q", e.Reason)
				}
			}
			if !slices.Equal(locks, []string{lock}) {
				t.Errorf("got the locks %q, want %q alone", locks, lock)
			}
			if e := named(all(), lock); len(e) == 1 && (e[0].Company != code || e[0].Mnemocode != mnemocode || e[0].Address != "192.0.2.1") {
				t.Errorf("got %+v", e[0])
			}
		})
	}
}

func TestEachEndedSessionIsAnEvent(t *testing.T) {
	b := newHarness(t)
	sessions := func() []string {
		list, err := b.Sessions.List(t.Context(), b.clock.Now(), code, b.account)
		must(t, err)
		var ids []string
		for _, s := range list {
			ids = append(ids, s.ID)
		}
		return ids
	}
	check := func(what string, events []record.Event, reason string, ids []string) {
		t.Helper()
		var got []string
		for _, e := range named(events, record.SessionEnded) {
			checkEvent(t, e)
			if e.Reason != reason || e.Mnemocode != mnemocode || e.Company != code || (e.Address == "") != (reason == record.EndedLate) {
				t.Errorf("%s: got %+v", what, e)
			}
			got = append(got, e.Session)
		}
		slices.Sort(got)
		slices.Sort(ids)
		if !slices.Equal(got, ids) || len(ids) == 0 {
			t.Errorf("%s: got %q, want %q", what, got, ids)
		}
	}

	token := b.sessionIn(record.Authorized)
	ids := sessions()
	all := b.record()
	b.must("auth/logout", token, nil)
	check("logout", all(), record.EndedByLogout, ids)

	b.sessionIn(record.Authorized)
	b.sessionIn(record.RecoveryQuestion)
	b.goodBody("auth/recovery/checklink") // mails a link
	ids = sessions()
	token = b.sessionIn(record.RecoveryPassword)
	all = b.record()
	b.must("auth/setpassword", token, object{"new_password": "another fine secret"})
	check("setpassword", all(), record.EndedByPassword, ids)

	b.sessionIn(record.RecoveryQuestion)
	ids = sessions()
	all = b.record()
	_, err := b.Accounts.Update(t.Context(), code, b.account, func(a *record.Account) (ends bool, err error) { a.Phone = ""; return true, nil })
	must(t, err)
	b.walk("auth/oauth") // a session that the change does not end
	must(t, b.RevokePending(t.Context(), late))
	check("a change by someone else", all(), record.EndedLate, ids)
}

// Users sometimes type a password as login id, so no event contains what was typed.
func TestEventsHoldNothingThatWasTyped(t *testing.T) {
	const typed = "hunter2-typed"
	var all []record.Event
	for i := range flows.Routes {
		route := &flows.Routes[i]
		b := newHarness(t)
		b.company.Captcha = &captcha{}
		b.company.Limits.CaptchaAfter = new(1)
		seen := b.record()
		for _, state := range route.From {
			token := ""
			if state != record.None {
				b.company.Captcha = nil
				token = b.sessionIn(state)
				b.company.Captcha = &captcha{}
			}
			for _, field := range []string{"login_id", "password", "new_password", "captcha_response", "control_answer",
				"otp", "backup_code", "code", "redirect_uri", "method", "token", typed} {
				body := object{"login_id": typed, "password": typed, "captcha_response": typed, "provider_id": 1, "code": typed, "redirect_uri": typed}
				body[field] = typed
				_, _ = b.serve(route.Path, token, body)
				body[field] = []string{typed}
				_, _ = b.serve(route.Path, token, body)
			}
			_, _ = b.serve(route.Path, typed, nil)
			_, _ = b.serveAs(typed, "192.0.2.1", route.Path, token, nil)
			b.clock.advance(time.Hour) // so that no lock refuses the rest
		}
		all = append(all, seen()...)
	}
	if len(all) < 100 {
		t.Errorf("there are only %d events", len(all))
	}
	for _, e := range all {
		for field, value := range fieldsOf(e) {
			if strings.Contains(value, typed) || strings.Contains(value, "mgs_") || strings.Contains(value, "mgl_") {
				t.Errorf("%s: %s is %q", e.Name, field, value)
			}
		}
	}
}

// eventTable returns the list of events in docs/monitoring.md, with their fields. The
// events of routes differ only in their names, so two rows describe them all. Adjacent
// events for which the table says the same share a row.
func eventTable() string {
	var fields []string
	for _, k := range flows.EventKinds {
		for _, f := range k.Fields {
			if !slices.Contains(fields, "`"+f+"`") {
				fields = append(fields, "`"+f+"`")
			}
		}
	}
	b := "Each line has those of these fields that apply: " + strings.Join(fields, ", ") + ".\n\n| Event | When |\n| --- | --- |\n" +
		"| `mnemogate.<route>.success`, `mnemogate.<route>.failure` | the outcome of a route, without auth/ and with dots for slashes; result is `success`, `canceled` (the client hung up) or the error_code |\n"
	rows := flows.EventKinds[2*len(flows.Routes):]
	for i, k := range rows {
		if i > 0 && rows[i-1].When == k.When {
			continue
		}
		var names []string
		for _, same := range rows[i:] {
			if same.When != k.When {
				break
			}
			names = append(names, "`"+same.Name+"`")
		}
		b += "| " + strings.Join(names, ", ") + " | " + k.When + " |\n"
	}
	return b
}

// changeOften begins 30 changes of a logged-in user, and returns the outcome of the last.
func changeOften(b *harness, token string) (err error) {
	for range 30 {
		err = b.self(token).BeginChange(b.t.Context(), "x")
	}
	return err
}

// No limit counts malformed requests: whoever has a token sends any number of them, with any
// user agents. They push neither logins nor guessed passwords out of the account's history.
func TestWhatNoLimitCountsPushesNothingOutOfAHistory(t *testing.T) {
	b := newHarness(t)
	history := b.Accounts.(record.History)
	flood := func(path, token string, body object) {
		b := *b
		b.Service = &flows.Service{Manager: session.New(&session.Config{
			Accounts: b.Accounts, Sessions: b.Sessions, Companies: b.Companies, Hasher: b.Hasher, Log: b.Log, Now: b.Now, After: b.After, Observe: b.Observe, History: history,
		})}
		for i := range 3 * record.HistoryKept {
			if _, err := b.ask(flows.Request{Client: session.Client{UserAgent: fmt.Sprint(i)}}, path, token, body); !errors.Is(err, wire.ErrValidation) {
				t.Fatal(err)
			}
		}
		b.Close()
	}
	must(t, history.Record(t.Context(), []record.Event{
		{Company: code, Account: b.account, Name: "mnemogate.checkpassword.success", Route: "auth/checkpassword", Result: record.Success},
		{Company: code, Account: b.account, Name: "mnemogate.checkpassword.failure", Route: "auth/checkpassword", Result: wire.ErrPasswordInvalid.Code, Noise: true},
	}))
	flood("auth/checkpassword", b.walk("auth/login").SessionToken, object{})
	flood("auth/logout", b.sessionIn(record.Authorized), object{"a": "\x00"})
	events, err := history.Recorded(t.Context(), code, b.account, 2*record.HistoryKept)
	must(t, err)
	results := map[string]int{}
	for _, e := range events {
		results[e.Name+" "+e.Result]++
	}
	want := map[string]int{
		"mnemogate.checkpassword.success success": 1, "mnemogate.checkpassword.failure " + wire.ErrPasswordInvalid.Code: 1,
		"mnemogate.checkpassword.failure " + wire.ErrValidation.Code: record.HistoryKeptApart, "mnemogate.logout.failure " + wire.ErrValidation.Code: record.HistoryKeptApart,
	}
	if !maps.Equal(results, want) {
		t.Errorf("the history has %v, want %v", results, want)
	}
}
