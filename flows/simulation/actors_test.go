package simulation

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/mnemogate/mnemogate/flows"
	"github.com/mnemogate/mnemogate/flows/manage"
	"github.com/mnemogate/mnemogate/flows/message"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/session"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// verbs are what actions do. Each takes the arguments of its line.
var verbs = map[string]func(w *world, who string, args []string){
	"logs_in":              func(w *world, who string, args []string) { w.logIn(w.person(who), w.at(args)) },
	"uses_backup_code":     (*world).usesBackupCode,
	"retries":              (*world).retries,
	"logs_out":             (*world).logsOut,
	"steps_up":             (*world).stepsUp,
	"recovers":             (*world).recovers,
	"ends_sessions_of":     (*world).endsSessions,
	"ends_all_sessions_of": (*world).endsAllSessions,
	"changes_role_of":      (*world).changesRole,
	"sets_password_of":     (*world).setsPassword,
	"guesses":              (*world).guesses,
	"floods":               (*world).floods,

	"is_cut_off":       failing(func(n *network) { n.cut = true }, func(n *network) { n.cut = false }),
	"hears_nothing_of": failing(func(n *network) { n.silent = true }, func(n *network) { n.silent = false }),
	"is_slow_to":       failing(func(n *network) { n.slow = 300 * time.Millisecond }, func(n *network) { n.slow = 0 }),
	"loses_answers_of": failing(func(n *network) { n.lossy = true }, func(n *network) { n.lossy = false }),
	"crashes": func(w *world, who string, args []string) {
		n := w.at([]string{who})[0]
		n.crash()
		w.lasts(who, args[0])
		if n.running.Load() == nil {
			n.start()
		}
	},
	"stalls": func(w *world, who string, args []string) {
		w.tell("%s stalls for %s", who, args[0])
		w.at([]string{who})[0].awake.Store(int64(time.Since(w.began) + duration(args[0])))
	},
	"jumps": func(w *world, who string, args []string) {
		w.tell("the clock of %s is %s ahead", who, args[0])
		w.at([]string{who})[0].skew.Store(int64(duration(args[0])))
	},
	"fails_over": func(w *world, who string, args []string) { w.failOver(who, args[0]) },
	"fails": func(w *world, who string, args []string) {
		w.tell("the %s fails for %s", who, args[0])
		w.outside.fail(who, true)
		w.lasts(who, args[0])
		w.outside.fail(who, false)
	},
}

func duration(text string) time.Duration {
	d, err := time.ParseDuration(text)
	if err != nil {
		panic(err)
	}
	return d
}

// lasts waits while something lasts, a little longer so that nothing else happens at its end.
func (w *world) lasts(who, text string) {
	time.Sleep(duration(text) + between(w.draw(who, "lasts"), 0, time.Millisecond))
}

// failing returns the verb of a network that is broken for some time.
func failing(breaks, mends func(*network)) func(w *world, who string, args []string) {
	return func(w *world, who string, args []string) {
		way := &w.at([]string{who})[0].redis
		if args[0] == "postgres" {
			way = &w.at([]string{who})[0].postgres
		}
		way.set(breaks)
		w.lasts(who, args[1])
		way.set(mends)
		w.tell("%s reaches %s again", who, args[0])
	}
}

// A person is a user of a company, with what clients and operators know of the account.
type person struct {
	name, company, mnemocode string
	email, phone             string
	coded                    bool // has a second factor

	mu        sync.Mutex
	id        int64
	passwords []word                  // one of these is valid: several, if an answer was lost or changes raced
	former    []string                // none of these is
	used      map[string][2]time.Time // backup codes, and when
	held      []*held                 // sessions, the newest last
	ended     []*revocation
	settled   int // changes whose event must come
	wrong     int // wrong passwords that were told from right ones
}

// A word is a password, and when its change ended: zero until it does.
type word struct {
	text  string
	ended time.Time
}

// A held is a session of which a client has the token.
type held struct {
	*person
	number int
	token  string
	born   time.Time // when its login began
	loaded time.Time // when the login had loaded the account: each revocation that began later covers it
	issued time.Time
	ended  []*revocation     // of this session alone
	told   map[string]string // what came of its last use, by node
}

// A revocation is one of a session, a person or a company.
type revocation struct {
	what  string
	began time.Time
	acked time.Time // zero until it is acknowledged
}

func (w *world) person(name string) *person {
	return w.persons[slices.IndexFunc(w.persons, func(p *person) bool { return p.name == name })]
}

// at returns the nodes with these names.
func (w *world) at(names []string) (nodes []*node) {
	for _, name := range names {
		nodes = append(nodes, w.nodes[slices.IndexFunc(w.nodes, func(n *node) bool { return n.name == name })])
	}
	return nodes
}

// ask sends a request to a node. If the node crashes, nobody learns what came of it.
func ask[T any](n *node, who string, f func(context.Context, *flows.Service) (T, error)) (T, error) {
	var none T
	p := n.running.Load()
	if p == nil {
		return none, errUnreachable
	}
	if p.wait(p.takes(p.draw(who, "request"), 0)) != nil {
		return none, errLost
	}
	value, err := f(context.WithValue(context.Background(), callerKey{}, caller{who, p}), p.service)
	if p.dead.Load() {
		return none, errLost
	}
	return value, err
}

// unknown reports whether an error leaves open what a request has done.
func unknown(err error) bool {
	return errors.Is(err, errLost) || errors.Is(err, errUnreachable) || wire.CodeOf(err) == wire.ErrUnavailable
}

type object map[string]any

// serve sends a request to a route.
func (w *world) serve(n *node, who string, p *person, path, token string, body object) (flows.Reply, error) {
	var raw []byte // empty without a body
	if body != nil {
		raw, _ = json.Marshal(body)
	}
	w.tell("%s → %s %s %s", who, n.name, path, w.masked(token, string(raw)))
	reply, err := ask(n, who, func(ctx context.Context, s *flows.Service) (flows.Reply, error) {
		return s.Serve(ctx, w.routed(p, path, token, raw))
	})
	w.tell("%s ← %s %s", who, n.name, w.answered(reply, err))
	w.checkAnswer(p, reply, err)
	return reply, err
}

// routed returns a request. Only mallory has an address of their own for long.
func (w *world) routed(p *person, path, token string, raw []byte) *flows.Request {
	address := "203.0.113.9"
	if p.name != "mallory" {
		r := w.draw(p.name, "address of "+path+token)
		address = fmt.Sprintf("10.%d.%d.%d", r.IntN(256), r.IntN(256), r.IntN(256))
	}
	r := &flows.Request{Company: p.company, Route: flows.RouteByPath(path), Client: session.Client{Address: address}, Body: func() ([]byte, error) { return raw, nil }}
	if token != "" {
		r.Authorization = []string{"Bearer " + token}
	}
	return r
}

// together calls do for 0 to n-1, and waits for all.
func together(n int, do func(i int)) {
	var others sync.WaitGroup
	for i := range n - 1 {
		others.Go(func() { roomy(); do(i + 1) })
	}
	do(0)
	others.Wait()
}

// roomy makes a new goroutine's stack as large as a request needs it. Otherwise it is copied
// several times, which takes a fifth of the time.
//
//go:noinline
func roomy() {
	var room [14 << 10]byte
	runtime.KeepAlive(&room)
}

// race does the same at several nodes at once, where it may succeed once.
func race[T any](w *world, what, who string, nodes []*node, do func(who string, n *node) (T, error)) (won T, ok bool) {
	began, values, errs := time.Now(), make([]T, len(nodes)), make([]error, len(nodes))
	together(len(nodes), func(i int) {
		name := who
		if i > 0 {
			name = fmt.Sprint(who, i+1)
			time.Sleep(between(w.draw(name, what), 0, time.Millisecond))
		}
		values[i], errs[i] = do(name, nodes[i])
	})
	wins := 0
	for i, err := range errs {
		if err == nil {
			wins++
			won, ok = values[i], true
		}
	}
	if wins > 1 && !w.replica.mayHaveLost(began, time.Now()) && !(what == "a backup code" && w.standby.mayHaveLost(began, time.Now())) {
		w.fail("%s: %s had an effect %d times", who, what, wins)
	}
	return won, ok
}

// logIn logs a person in: the first node begins it, and all race for the last step.
func (w *world) logIn(p *person, nodes []*node) *held {
	if p.name == "carol" {
		return w.logInByPasskey(p, nodes)
	}
	born := time.Now()
	checked, loaded, ok := w.checkPassword(p, nodes)
	if ok && checked.SessionState == record.CheckOTP {
		token, asked, body := checked.SessionToken, time.Now(), object{"otp": w.outside.last(p, message.OTPLogin).Code}
		checked, ok = race(w, "a code", p.name, nodes, func(who string, n *node) (flows.Reply, error) {
			return w.serve(n, who, p, "auth/checkotp", token, body)
		})
		if ok {
			w.spent(p, asked, "auth/checkotp", token, body)
		}
	}
	if !ok {
		return nil
	}
	return w.hold(p, checked, born, loaded)
}

// checkPassword begins a login, up to the step after the password.
func (w *world) checkPassword(p *person, nodes []*node) (checked flows.Reply, loaded time.Time, ok bool) {
	password := p.password()
	begun, err := w.serve(nodes[0], p.name, p, "auth/login", "", object{"login_id": p.email})
	if err != nil {
		return flows.Reply{}, time.Time{}, false
	}
	body := object{"password": password}
	if w.draw(p.name, "strays").IntN(4) == 0 {
		w.strays(p, "a token for auth/checkpassword", func(elsewhere *person) error {
			_, err := w.serve(nodes[0], p.name, elsewhere, "auth/checkpassword", begun.SessionToken, body)
			return err
		})
	}
	asked := time.Now()
	checked, ok = race(w, "a token for auth/checkpassword", p.name, nodes, func(who string, n *node) (flows.Reply, error) {
		reply, err := w.serve(n, who, p, "auth/checkpassword", begun.SessionToken, body)
		w.checkRefusal(p, asked, password, err)
		return reply, err
	})
	if ok {
		w.spent(p, asked, "auth/checkpassword", begun.SessionToken, body)
	}
	return checked, asked, ok
}

func (p *person) password() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.passwords[len(p.passwords)-1].text
}

// usesBackupCode begins a login on each node. All use the same code.
func (w *world) usesBackupCode(who string, args []string) {
	p, nodes := w.person(who), w.at(args)
	code := backupCodes[w.draw(who, "chooses a code").IntN(len(backupCodes))]
	type step struct {
		flows.Reply
		loaded time.Time
	}
	steps := map[string]step{} // by actor
	born := time.Now()
	for i, n := range nodes {
		name := who
		if i > 0 {
			name = fmt.Sprint(who, i+1)
		}
		reply, loaded, _ := w.checkPassword(p, []*node{n})
		steps[name] = step{reply, loaded}
	}
	asked := time.Now()
	won, ok := race(w, "a backup code", who, nodes, func(who string, n *node) (step, error) {
		begun := steps[who]
		if begun.SessionState != record.CheckOTP {
			return step{}, errUnreachable
		}
		reply, err := w.serve(n, who, p, "auth/checkotp", begun.SessionToken, object{"backup_code": code})
		return step{reply, begun.loaded}, err
	})
	if !ok {
		return
	}
	w.hold(p, won.Reply, born, won.loaded)
	p.mu.Lock()
	defer p.mu.Unlock()
	before, again := p.used[code]
	lost := w.standby.mayHaveLost(before[0], before[1]) ||
		asked.Before(before[1]) && w.standby.mayHaveLost(asked, time.Now()) // this use may have been the first
	if again && !lost {
		w.fail("%s logged in with a backup code that was used %s before", who, asked.Sub(before[1]))
	}
	p.used[code] = [2]time.Time{asked, time.Now()}
}

func (w *world) hold(p *person, reply flows.Reply, born, loaded time.Time) *held {
	if reply.SessionState != record.Authorized {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	h := &held{person: p, number: w.numberOf(reply.SessionToken), token: reply.SessionToken, born: born, loaded: loaded, issued: time.Now(), told: map[string]string{}}
	p.held = append(p.held, h)
	return h
}

// newest returns the newest session of a person whose end was not acknowledged, or nil.
func (p *person) newest() *held {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, h := range slices.Backward(p.held) {
		if !slices.ContainsFunc(h.ended, func(r *revocation) bool { return !r.acked.IsZero() }) {
			return h
		}
	}
	return nil
}

// A keychain stands for WebAuthn: a signature is the challenge itself.
type keychain struct{ tenant.PasskeyVerifier }

type assertion struct{ ID, Challenge []byte }

func (keychain) RequestOptions(challenge []byte) ([]byte, error) {
	return json.Marshal(assertion{Challenge: challenge})
}

func (keychain) ReadAssertion(credential []byte) (tenant.PasskeyAssertion, error) {
	var a assertion
	err := json.Unmarshal(credential, &a)
	return tenant.PasskeyAssertion{Credential: a.ID, Verify: func(challenge []byte, _ record.Passkey) (tenant.PasskeyUse, error) {
		if string(challenge) != string(a.Challenge) {
			return tenant.PasskeyUse{}, errors.New("wrong challenge")
		}
		return tenant.PasskeyUse{}, nil
	}}, err
}

func (w *world) logInByPasskey(p *person, nodes []*node) *held {
	options, err := w.serve(nodes[0], p.name, p, "passkey/options", "", object{})
	if err != nil {
		return nil
	}
	var a assertion
	_ = json.Unmarshal(options.PublicKey, &a)
	a.ID = []byte(p.name)
	body := object{"challenge_token": options.ChallengeToken, "credential": a}
	born := time.Now()
	reply, ok := race(w, "a challenge", p.name, nodes, func(who string, n *node) (flows.Reply, error) {
		return w.serve(n, who, p, "passkey/login", "", body)
	})
	if !ok {
		return nil
	}
	w.spent(p, born, "passkey/login", "", body)
	return w.hold(p, reply, born, time.Now())
}

// retries sends a password with an Idempotency-Key several times, as a client does that got
// no answer.
func (w *world) retries(who string, args []string) {
	p, nodes := w.person(who), w.at(args)
	if p.name == "carol" {
		return
	}
	born := time.Now()
	begun, err := w.serve(nodes[0], who, p, "auth/login", "", object{"login_id": p.email})
	if err != nil {
		return
	}
	loaded := time.Now()
	raw, _ := json.Marshal(object{"password": p.password()})
	token := begun.SessionToken
	var mu sync.Mutex
	var answers []string
	nodes = append(nodes, nodes[0])
	together(len(nodes), func(i int) {
		n, name := nodes[i], fmt.Sprint(who, i+1)
		time.Sleep(between(w.draw(name, "retries"), 0, time.Millisecond))
		w.tell("%s → %s auth/checkpassword with a key, %s", name, n.name, w.masked(token, string(raw)))
		answer, err := ask(n, name, func(ctx context.Context, s *flows.Service) ([]byte, error) {
			repeatable := flows.Repeatable{
				Key: "k", Route: "POST auth/checkpassword", Credentials: []string{token}, Body: raw, KeepFor: time.Minute, Later: w.stopped.Go,
			}
			answer, _, err := s.Once(ctx, repeatable, func(ctx context.Context) []byte {
				reply, err := s.Serve(ctx, w.routed(p, "auth/checkpassword", token, raw))
				if unknown(err) {
					return nil
				}
				text, _ := json.Marshal(struct {
					flows.Reply
					Error string `json:"error"`
				}{reply, codeOf(err)})
				return text
			})
			return answer, err
		})
		var reply flows.Reply
		_ = json.Unmarshal(answer, &reply)
		w.tell("%s ← %s %s %v", name, n.name, w.answered(reply, nil), err)
		if err == nil && answer != nil {
			mu.Lock()
			defer mu.Unlock()
			answers = append(answers, string(answer))
			if len(answers) == 1 {
				w.hold(p, reply, born, loaded)
			}
		}
	})
	if len(slices.Compact(slices.Sorted(slices.Values(answers)))) > 1 && !w.replica.mayHaveLost(born, time.Now()) {
		w.fail("%s: one key has several answers: %s", who, w.masked(answers[0], strings.Join(answers, " ")))
	}
}

func codeOf(err error) string {
	if code := wire.CodeOf(err); code != nil {
		return code.Code
	}
	return ""
}

func (w *world) logsOut(who string, args []string) {
	p := w.person(who)
	h := p.newest()
	if h == nil {
		return
	}
	w.revoke(&h.ended, fmt.Sprint("the logout of session ", h.number), &p.mu, func() bool {
		_, ok := race(w, "a token for auth/logout", who, w.at(args), func(who string, n *node) (flows.Reply, error) {
			return w.serve(n, who, p, "auth/logout", h.token, nil)
		})
		return ok
	})
}

// revoke does what ends sessions, and remembers when it was acknowledged.
func (w *world) revoke(list *[]*revocation, what string, mu *sync.Mutex, do func() bool) {
	r := &revocation{what: what, began: time.Now()}
	mu.Lock()
	*list = append(*list, r)
	mu.Unlock()
	if do() {
		mu.Lock()
		r.acked = time.Now()
		mu.Unlock()
	}
}

func (w *world) stepsUp(who string, args []string) {
	p, nodes := w.person(who), w.at(args)
	h := p.newest()
	if h == nil || p.name == "carol" {
		return
	}
	begun, err := w.serve(nodes[0], who, p, "stepup", h.token, object{"factor": "pwd", "for": "fresh"})
	if err != nil {
		return
	}
	asked, body := time.Now(), object{"stepup_token": begun.StepUpToken, "password": p.password()}
	if _, ok := race(w, "a step-up", who, nodes, func(who string, n *node) (flows.Reply, error) {
		return w.serve(n, who, p, "stepup/check", h.token, body)
	}); ok {
		w.spent(p, asked, "stepup/check", h.token, body)
	}
}

func (w *world) recovers(who string, args []string) {
	p, nodes := w.person(who), w.at(args)
	before := w.outside.count(p, p.email)
	if _, err := w.serve(nodes[0], who, p, "auth/recovery/recover", "", object{"login_id": p.email, "method": "MAIL", "captcha_response": "x"}); err != nil {
		return
	}
	for range 20 {
		time.Sleep(between(w.draw(who, "reads mails"), 100*time.Millisecond, 300*time.Millisecond))
		if w.outside.count(p, p.email) > before {
			break
		}
	}
	link := strings.TrimPrefix(w.outside.last(p, message.RecoveryLink).Link, recoveryLink)
	if link == "" {
		return
	}
	asked := time.Now()
	step, ok := race(w, "a link", who, nodes, func(who string, n *node) (flows.Reply, error) {
		return w.serve(n, who, p, "auth/recovery/checklink", "", object{"token": link})
	})
	if !ok {
		return
	}
	w.spent(p, asked, "auth/recovery/checklink", "", object{"token": link})
	password := w.newPassword(who)
	asked = time.Now()
	w.change(p, password, func() error {
		_, ok := race(w, "a token for auth/setpassword", who, nodes, func(who string, n *node) (flows.Reply, error) {
			return w.serve(n, who, p, "auth/setpassword", step.SessionToken, object{"new_password": password})
		})
		if !ok {
			return errLost
		}
		w.spent(p, asked, "auth/setpassword", step.SessionToken, object{"new_password": w.newPassword(who)})
		return nil
	})
}

func (w *world) newPassword(who string) string {
	return fmt.Sprintf("%s's new secret %d", who, w.passwords.Add(1))
}

// change sets a new password, which ends all sessions.
func (w *world) change(p *person, password string, set func() error) {
	began := time.Now()
	p.mu.Lock()
	p.passwords = append([]word{{text: password}}, p.passwords...)
	p.mu.Unlock()
	w.revoke(&p.ended, "a new password of "+p.name, &p.mu, func() bool {
		err := set()
		p.mu.Lock()
		defer p.mu.Unlock()
		for i := range p.passwords {
			if p.passwords[i].text == password {
				p.passwords[i].ended = time.Now()
			}
		}
		if err != nil {
			return false
		}
		if w.standby.mayHaveLost(began, time.Now()) { // Redis still knows that the sessions have ended
			return true
		}
		p.settled++
		p.passwords = slices.DeleteFunc(p.passwords, func(old word) bool {
			replaced := old.text != password && !old.ended.IsZero() && old.ended.Before(began)
			if replaced {
				p.former = append(p.former, old.text)
			}
			return replaced
		})
		return true
	})
}

func (w *world) admin(s *flows.Service, company string) *manage.Admin {
	return &manage.Admin{Manager: s.Manager, Company: w.companies[company], Actor: record.ActorAdmin}
}

// operate lets the operator do something on a node, and reports whether it was acknowledged.
func (w *world) operate(n *node, what string, do func(context.Context, *flows.Service) error) bool {
	w.tell("operator → %s %s", n.name, what)
	_, err := ask(n, "operator", func(ctx context.Context, s *flows.Service) (struct{}, error) { return struct{}{}, do(ctx, s) })
	w.tell("operator ← %s %s", n.name, said(err))
	return err == nil
}

func (w *world) endsSessions(_ string, args []string) {
	p := w.person(args[0])
	w.revoke(&p.ended, "the end of the sessions of "+p.name, &p.mu, func() bool {
		return w.operate(w.at(args[1:])[0], "ends the sessions of "+p.name, func(ctx context.Context, s *flows.Service) error {
			return w.admin(s, p.company).EndSessions(ctx, p.mnemocode)
		})
	})
}

func (w *world) endsAllSessions(_ string, args []string) {
	w.revoke(w.ended[args[0]], "the end of all sessions of "+args[0], &w.mu, func() bool {
		return w.operate(w.at(args[1:])[0], "ends all sessions of "+args[0], func(ctx context.Context, s *flows.Service) error {
			return w.admin(s, args[0]).EndAllSessions(ctx)
		})
	})
}

func (w *world) changesRole(_ string, args []string) {
	p, began := w.person(args[0]), time.Now()
	w.revoke(&p.ended, "a new role of "+p.name, &p.mu, func() bool {
		return w.operate(w.at(args[1:])[0], "changes the role of "+p.name, func(ctx context.Context, s *flows.Service) error {
			_, _, err := w.admin(s, p.company).Change(ctx, p.mnemocode, manage.Change{Apply: func(a *record.Account) error {
				a.Role += "+"
				return nil
			}})
			if err == nil && !w.standby.mayHaveLost(began, time.Now()) {
				p.mu.Lock()
				p.settled++
				p.mu.Unlock()
			}
			return err
		})
	})
}

func (w *world) setsPassword(_ string, args []string) {
	p := w.person(args[0])
	password := w.newPassword(p.name)
	w.change(p, password, func() error {
		ok := w.operate(w.at(args[1:])[0], "sets a password of "+p.name, func(ctx context.Context, s *flows.Service) error {
			_, _, err := w.admin(s, p.company).Change(ctx, p.mnemocode, manage.Change{Password: password})
			return err
		})
		if !ok {
			return errLost
		}
		return nil
	})
}

// guesses tries wrong passwords of the victim, all at once.
func (w *world) guesses(_ string, args []string) {
	victim := w.person("victor")
	w.attack(w.at(args), victim.email, func(wrong bool) {
		victim.mu.Lock()
		defer victim.mu.Unlock()
		if wrong {
			victim.wrong++
		}
		if victim.wrong > lockAfter && !w.replica.forgetful() && !w.standby.forgetful() {
			w.fail("mallory learned of %d passwords of victor that they are wrong; the limit is %d", victim.wrong, lockAfter)
		}
	})
}

// floods tries login ids that nobody has, all at once.
func (w *world) floods(_ string, args []string) {
	w.attack(w.at(args), "", func(wrong bool) {
		if n := w.flooded.Load(); wrong && w.flooded.Add(1) > failuresPerAddress && !w.replica.forgetful() {
			w.fail("mallory's address failed %d times; the limit is %d", n+1, failuresPerAddress)
		}
	})
}

func (w *world) attack(nodes []*node, loginID string, outcome func(wrong bool)) {
	mallory := &person{name: "mallory", company: "acme"}
	if loginID != "" {
		mallory.name = "mallory's botnet"
	}
	nodes = append(nodes, nodes...)
	together(len(nodes), func(i int) {
		who, id := fmt.Sprint(mallory.name, i+1), loginID
		time.Sleep(between(w.draw(who, "attacks"), 0, time.Millisecond))
		if id == "" {
			id = fmt.Sprintf("nobody%d@example.com", w.draw(who, "makes up a name").IntN(1e6))
		}
		_, err := w.serve(nodes[i], who, mallory, "auth/checkcredentials", "", object{"login_id": id, "password": "a wrong guess"})
		outcome(wire.CodeOf(err) == wire.ErrCredentialsInvalid)
	})
}

// strays uses a token in the other company, which must refuse it like one that it does not know.
func (w *world) strays(p *person, what string, use func(elsewhere *person) error) {
	elsewhere := &person{name: p.name, company: map[string]string{"acme": "beta", "beta": "acme"}[p.company]}
	if err := use(elsewhere); !unknown(err) && wire.CodeOf(err) != wire.ErrTokenInvalid {
		w.fail("%s used %s of %s in %s: %s", p.name, what, p.company, elsewhere.company, said(err))
	}
}

// browse uses a session of a person a little later, perhaps one that was ended.
func (w *world) browse(p *person) {
	r := w.draw(p.name, "browses")
	time.Sleep(between(r, 20*time.Millisecond, 150*time.Millisecond))
	p.mu.Lock()
	var h *held
	if n := len(p.held); n > 0 {
		h = p.held[max(0, n-1-r.IntN(3))]
	}
	p.mu.Unlock()
	if h != nil {
		n := w.nodes[r.IntN(len(w.nodes))]
		w.use(n, h)
		if r.IntN(8) == 0 {
			w.strays(p, "a session", func(elsewhere *person) error { return w.authorize(n, h, elsewhere.company) })
		}
	}
}

const browser = "'s browser"

// authorize requests a path of a company's application with a session.
func (w *world) authorize(n *node, h *held, company string) error {
	_, err := ask(n, h.name+browser, func(ctx context.Context, s *flows.Service) (record.Session, error) {
		found, err := s.Authorize(ctx, session.Requirement{Company: company}, []string{"Bearer " + h.token})
		if err == nil && found.Mnemocode != h.mnemocode {
			w.fail("session %d of %s is that of %s", h.number, h.mnemocode, found.Mnemocode)
		}
		return found, err
	})
	return err
}

// use requests a path of the application with a session.
func (w *world) use(n *node, h *held) error {
	asked := time.Now()
	err := w.authorize(n, h, h.company)
	if w.traced {
		h.mu.Lock()
		before, known := h.told[n.name]
		h.told[n.name] = said(err)
		h.mu.Unlock()
		if !known || before != said(err) { // it is tried all the time
			w.tell("%s uses session %d on %s: %s", h.name, h.number, n.name, said(err))
		}
	}
	w.checkUse(n, h, asked, err)
	return err
}
