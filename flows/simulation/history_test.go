package simulation

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mnemogate/mnemogate/flows"
	"github.com/mnemogate/mnemogate/flows/message"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// A history is what was seen of a world from outside. Each check compares it with what
// clients and operators were promised.
type history struct {
	mu        sync.Mutex
	traced    bool
	lines     []line
	failures  []string
	names     map[string]int // of tokens, in the order in which clients saw them
	ended     map[string]*[]*revocation
	attempts  []attempt
	failovers []time.Time

	passwords, flooded atomic.Int64
}

// An attempt is one that worked, and must not work again.
type attempt struct {
	*person
	from, to    time.Time
	path, token string
	body        object
}

// A line is one of the story.
type line struct {
	at   time.Duration
	text string
}

// tell adds a line to the story.
func (w *world) tell(format string, args ...any) {
	if !w.traced {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lines = append(w.lines, line{time.Since(w.began), fmt.Sprintf(format, args...)})
}

// tellCall tells what a store did for an actor. What nodes do by themselves is left out.
func (w *world) tellCall(who, node, what string, err error) {
	if w.traced && who != node && !strings.HasSuffix(who, browser) {
		w.tell("        %s for %s: %s %s", node, who, what, said(err))
	}
}

// fail reports that a promise was broken.
func (w *world) fail(format string, args ...any) {
	w.tell("BROKEN: "+format, args...)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.failures = append(w.failures, fmt.Sprintf(format, args...))
}

// story returns the lines in their order.
func (w *world) story() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	slices.SortStableFunc(w.lines, func(a, b line) int { return cmp.Or(cmp.Compare(a.at, b.at), strings.Compare(a.text, b.text)) })
	var b strings.Builder
	for _, l := range w.lines {
		fmt.Fprintf(&b, "%9.6fs  %s\n", l.at.Seconds(), l.text)
	}
	return b.String()
}

// numberOf returns the number of a token, by which the story names it.
func (w *world) numberOf(token string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	n, ok := w.names[token]
	if !ok {
		n = len(w.names) + 1
		w.names[token] = n
	}
	return n
}

var secret = regexp.MustCompile(`mg[a-z]_[A-Za-z0-9_.-]+|"otp":"[0-9]+"|"(challenge_token|Challenge|credential)":("[^"]*"|\{[^}]*\})`)

// masked returns a request without what is random.
func (w *world) masked(token, text string) string {
	if !w.traced {
		return ""
	}
	if token != "" {
		text = token + " " + text
	}
	return secret.ReplaceAllStringFunc(text, func(s string) string {
		if strings.HasPrefix(s, "mg") {
			return fmt.Sprintf("%s_%d", s[:3], w.numberOf(s))
		}
		name, _, _ := strings.Cut(s, ":")
		return name + ":…"
	})
}

func (w *world) answered(reply flows.Reply, err error) string {
	if !w.traced {
		return ""
	}
	if err != nil {
		return said(err)
	}
	return strings.TrimSpace(fmt.Sprint(cmp.Or(string(reply.SessionState), "success"), " ", w.masked(reply.SessionToken+reply.StepUpToken, "")))
}

// said returns an error as the story tells it.
func said(err error) string {
	switch code := codeOf(err); {
	case err == nil:
		return "success"
	case code != "" && code != wire.ErrService.Code:
		return code
	default:
		text, _, _ := strings.Cut(err.Error(), "\n")
		return text
	}
}

// No answer reveals another company.
func (w *world) checkAnswer(p *person, reply flows.Reply, err error) {
	other := "beta-"
	if p.company == "beta" {
		other = "acme-"
	}
	text, _ := json.Marshal(reply)
	if err != nil {
		text = []byte(err.Error())
	}
	if strings.Contains(string(text), other) && strings.Contains(secret.ReplaceAllString(string(text), ""), other) { // by chance, a token has it
		w.fail("%s learned of another company: %s", p.name, text)
	}
}

// A right password is not refused.
func (w *world) checkRefusal(p *person, asked time.Time, password string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if code := wire.CodeOf(err); code != wire.ErrCredentialsInvalid && code != wire.ErrPasswordInvalid {
		return
	}
	if len(p.passwords) == 1 && p.passwords[0].text == password && !slices.ContainsFunc(p.ended, func(r *revocation) bool { return r.acked.IsZero() || r.acked.After(asked) }) {
		w.fail("the password of %s was refused", p.name)
	}
}

// revocations returns those of a session, its person and its company.
func (w *world) revocations(h *held) (all []*revocation) {
	add := func(some []*revocation) {
		for _, r := range some { // copies: others write these
			all = append(all, new(*r))
		}
	}
	w.mu.Lock()
	add(*w.ended[h.company])
	w.mu.Unlock()
	h.mu.Lock()
	add(h.person.ended)
	add(h.ended)
	h.mu.Unlock()
	return all
}

// isLost reports whether a failover may have lost that PostgreSQL knows of a revocation.
func (w *world) isLost(r *revocation) bool {
	return w.standby.mayHaveLost(r.began, cmp.Or(r.acked, time.Now()))
}

// A session is refused at most 100 ms after its revocation was acknowledged by a node that
// hears Redis, and after at most 2 s by any. One that nobody has ended is not refused.
func (w *world) checkUse(n *node, h *held, asked time.Time, err error) {
	all := w.revocations(h)
	covering := slices.DeleteFunc(slices.Clone(all), func(r *revocation) bool { return !r.acked.IsZero() && r.acked.Before(h.born) })
	if err != nil {
		lost := w.replica.mayHaveLost(h.born, h.issued) // with what came before
		if !unknown(err) && len(covering) == 0 && !lost && h.company == "acme" {
			w.fail("session %d of %s was refused on %s, although nobody has ended it: %s", h.number, h.name, n.name, said(err))
		}
		return
	}
	for _, r := range covering {
		// The next revocation after a lost one gets its generation: see testdata/lost.txt.
		again := slices.ContainsFunc(all, func(lost *revocation) bool {
			return w.isLost(lost) && lost.began.Before(r.began) && lost.began.Before(h.issued)
		})
		if again || r.acked.IsZero() || r.began.Before(h.loaded) || w.replica.mayHaveLost(r.began, r.acked) {
			continue
		}
		if late := asked.Sub(r.acked); late > 2*time.Second || late > 100*time.Millisecond && n.heard(r.acked) {
			w.fail("session %d of %s was accepted on %s %s after %s was acknowledged", h.number, h.name, n.name, late, r.what)
		}
	}
}

// heard reports whether the node has heard Redis ever since: its network worked, it did not
// stall, and its process and Redis' master stayed.
func (n *node) heard(since time.Time) bool {
	before := since.Add(-1500 * time.Millisecond) // it had time to subscribe again
	p := n.running.Load()
	n.world.mu.Lock()
	defer n.world.mu.Unlock()
	return n.redis.calmSince(before) && p != nil && p.started.Before(since.Add(-300*time.Millisecond)) && n.began.Add(time.Duration(n.awake.Load())).Before(before) &&
		!slices.ContainsFunc(n.failovers, func(t time.Time) bool { return t.After(before) })
}

// spent remembers an attempt that worked.
func (w *world) spent(p *person, from time.Time, path, token string, body object) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.attempts = append(w.attempts, attempt{p, from, time.Now(), path, token, body})
}

// outside is what is outside of a deployment: gateways and the receiver of events.
type outside struct {
	w        *world
	mu       sync.Mutex
	failing  map[string]bool
	messages []message.Message
	events   []record.OutboxEvent
}

func (o *outside) fail(who string, fails bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.failing[who] = fails
}

var errFailing = errors.New("it is broken")

// reach waits for the answer of a server outside.
func (o *outside) reach(ctx context.Context, who, what string, took func()) error {
	p := callerOf(ctx).process
	if err := p.wait(p.takes(p.draw(who, what), 0)); err != nil {
		return err
	}
	o.mu.Lock()
	failing := o.failing[who]
	if !failing {
		took()
	}
	o.mu.Unlock()
	if err := p.wait(p.takes(p.draw(who, what), 0)); err != nil {
		return err
	}
	if failing {
		return errFailing
	}
	return nil
}

// Send implements message.Sender.
func (o *outside) Send(ctx context.Context, m message.Message) error {
	return o.reach(ctx, "gateway", m.To, func() { o.messages = append(o.messages, m) })
}

// Deliver implements tenant.EventReceiver.
func (o *outside) Deliver(ctx context.Context, e record.OutboxEvent) error {
	return o.reach(ctx, "receiver", mnemocodeOf(e), func() {
		o.w.tell("the receiver gets %s of %s", e.Type, mnemocodeOf(e))
		o.events = append(o.events, e)
	})
}

func mnemocodeOf(e record.OutboxEvent) string {
	var body struct {
		Data struct {
			Mnemocode string `json:"profile_mnemocode"`
		} `json:"data"`
	}
	_ = json.Unmarshal(e.Body, &body)
	return body.Data.Mnemocode
}

// last returns the last message of a type to a person.
func (o *outside) last(p *person, kind string) message.Message {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, m := range slices.Backward(o.messages) {
		if m.Company == p.company && (m.To == p.phone || m.To == p.email) && m.Type == kind {
			return m
		}
	}
	return message.Message{}
}

// count counts the codes and links that were sent to a person.
func (o *outside) count(p *person, to string) (n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, m := range o.messages {
		if m.Company == p.company && m.To == to && !message.IsNotice(m.Type) {
			n++
		}
	}
	return n
}

var _ tenant.EventReceiver = (*outside)(nil)

// checkEnd checks what must hold once all faults have ended.
func (w *world) checkEnd() {
	for _, a := range w.attempts { // what was spent stays spent
		if w.replica.mayHaveLost(a.from, a.to) {
			continue
		}
		n := w.nodes[w.draw(a.name, a.path).IntN(len(w.nodes))]
		if _, err := w.serve(n, a.name, a.person, a.path, a.token, a.body); err == nil {
			w.fail("%s could use %s once more", a.name, a.path)
		}
	}
	for _, p := range w.persons {
		for _, h := range p.held { // what was revoked stays revoked, everywhere
			first := w.use(w.nodes[0], h)
			for _, n := range w.nodes[1:] {
				if err := w.use(n, h); said(err) != said(first) {
					w.fail("session %d of %s: %s on %s, but %s on %s", h.number, h.name, said(err), n.name, said(first), w.nodes[0].name)
				}
			}
		}
		w.checkLogin(p)
		if sent := w.outside.count(p, p.phone); sent > smsPerAccount && !w.replica.forgetful() {
			w.fail("%d SMS were sent to %s; the limit is %d", sent, p.name, smsPerAccount)
		}
		if sent := w.outside.count(p, p.email); sent > mailsPerAccount && !w.replica.forgetful() {
			w.fail("%d mails were sent to %s; the limit is %d", sent, p.name, mailsPerAccount)
		}
		w.checkEvents(p)
	}
	if left, err := w.accounts.Through(direct).PendingRevocations(context.Background(), record.Revocation{}, 10); len(left) > 0 || err != nil {
		w.fail("what crashes left is not revoked: %v, %v", left, err)
	}
	for _, n := range w.nodes {
		if has := n.running.Load().memory.Len(); has > remembered {
			w.fail("%s remembers %d sessions; the limit is %d", n.name, has, remembered)
		}
	}
	live := 0
	all, _ := w.nodes[0].running.Load().service.Sessions.List(context.Background(), time.Now(), "beta", w.person("alba").id)
	for _, s := range all {
		if s.State == record.Authorized {
			live++
		}
	}
	if live > sessionsPerAccount {
		w.fail("alba has %d sessions; the limit is %d", live, sessionsPerAccount)
	}
}

// checkLogin checks that a person can log in, and that no former password is valid.
func (w *world) checkLogin(p *person) {
	if p.name == "victor" {
		return // is locked out
	}
	for _, password := range p.former {
		if _, err := w.serve(w.nodes[0], p.name, p, "auth/checkcredentials", "", object{"login_id": p.email, "password": password}); err == nil {
			w.fail("%s has a new password, and logged in with a former one", p.name)
		}
	}
	for _, r := range slices.Concat(p.ended, *w.ended[p.company]) { // see "Backup and restore" in docs/many-nodes.md
		switch {
		case !w.isLost(r):
		case slices.Contains(p.ended, r):
			w.endsSessions("operator", []string{p.name, "node1"})
		default:
			w.endsAllSessions("operator", []string{p.company, "node1"})
		}
	}
	logIn := w.logIn
	if p.coded { // may have used up its SMS
		logIn = w.logInByPasskey
	}
	for range len(p.passwords) { // one of them is right
		if len(p.passwords)+len(p.former) > 1 { // wrong ones were perhaps tried too often
			w.operate(w.nodes[0], "unlocks "+p.name, func(ctx context.Context, s *flows.Service) error {
				_, err := w.admin(s, p.company).Unlock(ctx, p.mnemocode)
				return err
			})
		}
		if h := logIn(p, w.nodes[:1]); h != nil {
			for _, n := range w.nodes {
				if err := w.use(n, h); err != nil {
					w.fail("%s logged in and was refused on %s: %s", p.name, n.name, said(err))
				}
			}
			return
		}
		p.passwords = append(p.passwords[len(p.passwords)-1:], p.passwords[:len(p.passwords)-1]...)
	}
	w.fail("%s can't log in, although all faults have ended", p.name)
}

// checkEvents checks that the events of an account came, in order.
func (w *world) checkEvents(p *person) {
	var numbers []int64
	changes := 0
	w.outside.mu.Lock()
	events := slices.Clone(w.outside.events)
	w.outside.mu.Unlock()
	for _, e := range events {
		if mnemocodeOf(e) == p.mnemocode && !slices.Contains(numbers, e.Number) {
			numbers = append(numbers, e.Number)
			if e.Type == record.TypeAccountChanged || e.Type == record.TypePasswordChanged {
				changes++
			}
		}
	}
	if !slices.IsSorted(numbers) {
		w.fail("events of %s came in the order %v", p.name, numbers)
	}
	if changes < p.settled && p.company == "acme" {
		w.fail("%d events of changes of %s came, and %d changes were acknowledged", changes, p.name, p.settled)
	}
}
