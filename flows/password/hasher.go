package password

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"time"
)

// ErrBusy means that more secrets wait to be hashed than the machine can do. The caller
// should try again later.
var ErrBusy = errors.New("too many passwords are being hashed at once")

const (
	// maxWait is how long a request waits for its turns in total. It is less than the
	// 2 s within which a client gets the refusal (contract, section 4). A patient one waits
	// for up to patientWait.
	maxWait     = 1800 * time.Millisecond
	patientWait = 15 * time.Second
	// waitersPerSlot bounds the memory of waiting callers. A hash with the default
	// parameters takes 15 to 30 ms, so a caller after 128 others would wait in vain.
	waitersPerSlot = 128
)

// A Turn says for whom a hash is computed. Companies take turns, within a company its known
// devices and all others, and within these the addresses of clients.
type Turn struct {
	Company string
	Known   bool   // the client is a known device, which strangers' addresses must not crowd out
	Address string // empty if no client asked for the hash
	// Patient is for work for which an operator or a backend waits. It comes behind all
	// other callers, and may wait longer.
	Patient bool
	// Waited, if not nil, is how long the request has waited for turns so far. Hashes of
	// one request share it, so that together they wait no longer than one.
	Waited *time.Duration
}

// A Hasher hashes secrets and compares them with hashes, a few at a time, because each
// hash needs megabytes and a whole CPU, and anyone can request one. Each hash waits for
// its turn, and each Turn gets its share of the time. So one client's flood of requests
// or expensive hashes does not shut out the others.
//
// Its methods may be called concurrently. They return ErrBusy if the caller would wait
// too long, and the context's error if the context ends before the last turn. No error
// contains anything of a secret or a hash.
type Hasher struct {
	// Waited is called with how long each hash waited for its turn, and whether it
	// got one, except those of Patient turns. May be nil.
	Waited func(d time.Duration, got bool)
	// Derive is DeriveKey, or does the same in another process. Set Waited and
	// Derive before the first call.
	Derive func(hash, secret string) ([]byte, error)

	turns turns
	sets  sync.Map // *turns at HashSet, of each company and its patient turns
}

// NewHasher returns a Hasher that computes up to slots hashes at once. If slots is 0, it
// is one less than the number of CPUs, which leaves one for everything else.
func NewHasher(slots int) *Hasher {
	if slots <= 0 {
		slots = max(1, runtime.GOMAXPROCS(0)-1)
	}
	return &Hasher{Derive: DeriveKey, turns: turns{slots: slots}}
}

// Slots returns how many hashes are computed at once.
func (h *Hasher) Slots() int { return h.turns.slots }

// Queue returns how many callers are waiting or hashing, and the maximum. Patient callers
// that wait are not counted.
func (h *Hasher) Queue() (length, limit int) { return h.turns.count() }

// derive computes the key that d must have if it is a hash of secret.
func (h *Hasher) derive(ctx context.Context, turn Turn, d digest, secret string) (key []byte, err error) {
	err = h.do(ctx, turn, d.cost, func() (err error) {
		key, err = h.Derive(d.hash, secret)
		return err
	})
	return key, err
}

// do calls work when it is the caller's turn. estimate is how long work should take.
func (h *Hasher) do(ctx context.Context, turn Turn, estimate time.Duration, work func() error) error {
	return h.in(ctx, &h.turns, turn, estimate, work)
}

func (h *Hasher) in(ctx context.Context, turns *turns, turn Turn, estimate time.Duration, work func() error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	turn.Waited = cmp.Or(turn.Waited, new(time.Duration))
	limit := maxWait
	if turn.Patient {
		limit = patientWait
	}
	began := time.Now()
	w, err := turns.await(ctx, turn, estimate, limit-*turn.Waited)
	waited := time.Since(began)
	*turn.Waited += waited
	if err == nil {
		began := time.Now()
		defer func() { turns.release(w, time.Since(began)) }()
	}
	if h.Waited != nil && turns == &h.turns && !turn.Patient && (err == nil || err == ErrBusy) {
		h.Waited(waited, err == nil)
	}
	if err != nil {
		return err
	}
	return work()
}

// Hash returns the argon2id hash of a secret as a PHC string. It hashes the bytes of the
// secret as they are.
func (h *Hasher) Hash(ctx context.Context, turn Turn, p Argon2id, secret string) (string, error) {
	hashes, err := h.hashAll(ctx, turn, p, []string{secret})
	if err != nil {
		return "", err
	}
	return hashes[0], nil
}

// HashSet hashes many secrets with one salt, so that Match costs only one hash. The
// secrets must be random, such as backup codes: with one salt, equal secrets have equal
// hashes, and one guess tests them all.
//
// Each hash has its turn, as always. A company's sets are made one after the other, or one
// for each slot. Otherwise those asked for at once would all be begun, and none be finished
// before its caller has waited too long.
func (h *Hasher) HashSet(ctx context.Context, turn Turn, p Argon2id, secrets []string) (hashes []string, err error) {
	turn.Waited = cmp.Or(turn.Waited, new(time.Duration))
	sets, _ := h.sets.LoadOrStore(Turn{Company: turn.Company, Patient: turn.Patient}, &turns{slots: h.Slots()})
	err = h.in(ctx, sets.(*turns), turn, 0, func() error {
		hashes, err = h.hashAll(ctx, turn, p, secrets)
		return err
	})
	return hashes, err
}

func (h *Hasher) hashAll(ctx context.Context, turn Turn, p Argon2id, secrets []string) ([]string, error) {
	if err := p.Bounded(); err != nil {
		return nil, err
	}
	salt := make([]byte, saltBytes)
	rand.Read(salt)
	unknown := make([]byte, keyBytes)
	d, err := parseHash(p.encode(salt, unknown))
	if err != nil {
		return nil, err
	}
	var hashes []string
	turn.Waited = cmp.Or(turn.Waited, new(time.Duration))
	for _, secret := range secrets {
		key, err := h.derive(ctx, turn, d, secret)
		if err != nil {
			return nil, err
		}
		hashes = append(hashes, p.encode(salt, key))
	}
	return hashes, nil
}

// Verify reports whether hash, of any kind that CheckHash allows, is a hash of one of the
// forms of a secret. outdated means that the caller should replace it with a hash of the
// first form made with p, because it is weaker or of another form. A hash that may not
// cover the whole secret is never outdated. An empty hash stands for an account without one,
// or for no account: Verify then takes as long as with hashes made with p.
func (h *Hasher) Verify(ctx context.Context, turn Turn, p Argon2id, hash string, forms ...string) (ok, outdated bool, err error) {
	if hash == "" {
		_, err := h.hashAll(ctx, turn, p, forms)
		return false, false, err
	}
	d, err := parseHash(hash)
	if err != nil {
		return false, false, err
	}
	turn.Waited = cmp.Or(turn.Waited, new(time.Duration))
	// A right secret costs as much as a wrong one. Otherwise its time would tell it from a
	// wrong one that gets the same answer, and a client that hangs up in time could be
	// answered if its guess is right, and not be counted if it is wrong.
	for i, form := range forms {
		for _, hashed := range d.hashed(form) {
			key, err := h.derive(ctx, turn, d, hashed)
			if err != nil {
				return false, false, err
			}
			if subtle.ConstantTimeCompare(key, d.key) == 1 && !ok {
				ok, outdated = true, d.seesAll(form) && (i > 0 || d.weaker(p))
			}
		}
	}
	return ok, outdated, nil
}

// Match returns the hash that belongs to secret, or "". It computes one hash for each
// different salt. Without hashes it takes as long as with one made with p.
func (h *Hasher) Match(ctx context.Context, turn Turn, p Argon2id, hashes []string, secret string) (match string, err error) {
	if len(hashes) == 0 {
		_, err := h.hashAll(ctx, turn, p, []string{secret})
		return "", err
	}
	digests := make([]digest, len(hashes))
	for i, hash := range hashes {
		if digests[i], err = parseHash(hash); err != nil {
			return "", err
		}
	}
	turn.Waited = cmp.Or(turn.Waited, new(time.Duration))
	keys := map[string][][]byte{} // for each salt, the keys of all forms of the secret
	for _, d := range digests {
		if keys[d.salted] == nil {
			for _, hashed := range d.hashed(secret) {
				key, err := h.derive(ctx, turn, d, hashed)
				if err != nil {
					return "", err
				}
				keys[d.salted] = append(keys[d.salted], key)
			}
		}
		for _, key := range keys[d.salted] {
			if subtle.ConstantTimeCompare(key, d.key) == 1 {
				match = d.hash
			}
		}
	}
	return match, nil
}

// turns gives a few slots to callers by fair queuing. A slot goes to the company that has
// used the least time and, within the company, to the address that has. A turn is charged
// its estimate when it begins, so that a company can't begin many long turns at once, and
// the time it really took when it ends.
type turns struct {
	slots int
	mu    sync.Mutex // guards the fields below
	inUse int
	// The lines of companies. The patient ones get a turn when no other waits.
	all, patient line
}

// newcomer is how much more time a new address is taken to have used than the one whose
// turn began last: about one hash. Otherwise an endless number of new addresses could
// keep all others from a second turn.
const newcomer = 20 * time.Millisecond

// A line holds waiters, who are served in order, or other lines. The line of companies
// holds a line for each company, which holds one for known devices and one for all others.
// These hold one for each address.
type line struct {
	name string
	used time.Duration // by its turns, plus what it is taken to have used when it entered
	// virtualTime is that of start-time fair queuing: the highest used that a line inside
	// it had when its turn began. A line that enters starts with virtualTime + handicap.
	virtualTime time.Duration
	handicap    time.Duration
	running     int       // turns in progress
	length      int       // waiters
	waiters     []*waiter // of an address
	lines       []*line   // in the order of their last turns
}

// A waiter waits for its turn. It receives true when the turn comes, and false if its
// place was given to another.
type waiter struct {
	estimate time.Duration
	path     []*line // from the line of all companies to that of its address
	granted  chan bool
}

func (t *turns) count() (length, limit int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.inUse + t.all.length, t.slots * (1 + waitersPerSlot)
}

// await waits for a slot until the limit. If the limit is not positive, it only takes a slot
// that is free. The caller returns the slot with release.
func (t *turns) await(ctx context.Context, turn Turn, estimate, limit time.Duration) (*waiter, error) {
	w := &waiter{estimate: estimate, granted: make(chan bool, 1)}
	if !t.enqueue(w, turn, limit > 0) {
		return nil, ErrBusy
	}
	waiting, stop := context.WithTimeout(ctx, limit)
	defer stop()
	var got bool
	select {
	case got = <-w.granted:
	case <-waiting.Done():
		got = !t.leave(w) && <-w.granted // the turn may come at the same moment
	}
	if !got {
		return nil, cmp.Or(ctx.Err(), ErrBusy)
	}
	return w, nil
}

// enqueue gives the waiter a slot or, if it may wait, a place, and reports whether it could.
func (t *turns) enqueue(w *waiter, turn Turn, mayWait bool) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.inUse == t.slots && !mayWait {
		return false // it takes no other waiter's place
	}
	all := &t.all
	if turn.Patient {
		all = &t.patient
	}
	kind := strconv.FormatBool(turn.Known)
	if all.length == t.slots*waitersPerSlot {
		other := all.displaced(turn.Company, kind, turn.Address)
		if other == nil {
			return false
		}
		other.leave()
		other.granted <- false
	}
	company := all.enter(turn.Company)
	clients := company.enter(kind)
	address := clients.enter(turn.Address)
	w.path = []*line{all, company, clients, address}
	if t.inUse < t.slots {
		t.inUse++
		w.begin()
		return true
	}
	address.waiters = append(address.waiters, w)
	for _, l := range w.path {
		l.length++
	}
	return true
}

// leave removes the waiter, and reports whether it was still waiting.
func (t *turns) leave(w *waiter) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return w.leave()
}

// release ends the turn of w, which lasted took, and gives its slot to the next waiter.
func (t *turns) release(w *waiter, took time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, l := range w.path[1:] {
		l.used += took - w.estimate
		l.running--
	}
	all := &t.all
	if all.length == 0 {
		all = &t.patient
	}
	if all.length > 0 {
		next := all.next()
		next.leave()
		next.begin()
	} else {
		t.inUse--
	}
	for _, l := range w.path[:3] {
		l.forget(t.inUse < t.slots)
	}
}

// begin tells the waiter that its turn has come.
func (w *waiter) begin() {
	for i, l := range w.path[1:] {
		w.path[i].virtualTime = max(w.path[i].virtualTime, l.used)
		l.used += w.estimate
		l.running++
	}
	w.granted <- true
}

// leave removes the waiter, and reports whether it was still waiting.
func (w *waiter) leave() bool {
	address := w.path[len(w.path)-1]
	i := slices.Index(address.waiters, w)
	if i < 0 {
		return false
	}
	address.waiters = slices.Delete(address.waiters, i, i+1)
	for _, l := range w.path {
		l.length--
	}
	return true
}

// enter returns the line with a name, and creates it if necessary. An empty line gets no
// credit for the time that it was empty.
func (l *line) enter(name string) *line {
	within := l.find(name)
	if within == nil {
		within = &line{name: name, handicap: newcomer}
		l.lines = append(l.lines, within)
	}
	if within.empty() {
		within.used = max(within.used, l.entry())
	}
	return within
}

// entry returns what a line inside l is taken to have used when it enters.
func (l *line) entry() time.Duration { return l.virtualTime + l.handicap }

// forget removes the empty lines that have used no more than a new line would start
// with. If all is set, because no caller waits, it removes all empty lines.
func (l *line) forget(all bool) {
	l.lines = slices.DeleteFunc(l.lines, func(within *line) bool {
		return within.empty() && (all || within.used <= l.entry())
	})
}

func (l *line) find(name string) *line {
	for _, within := range l.lines {
		if within.name == name {
			return within
		}
	}
	return nil
}

// empty reports whether the line has no waiters and no turns in progress.
func (l *line) empty() bool { return l.length == 0 && l.running == 0 }

// next returns the next waiter, and moves its lines to the end.
func (l *line) next() *waiter {
	if len(l.waiters) > 0 {
		return l.waiters[0]
	}
	least := -1
	for i, within := range l.lines {
		if within.length > 0 && (least < 0 || within.used < l.lines[least].used) {
			least = i
		}
	}
	within := l.lines[least]
	l.lines = append(slices.Delete(l.lines, least, least+1), within)
	return within.next()
}

// displaced returns the waiter that loses its place to a new waiter on path: the last of
// the longest line. It returns nil if the new waiter's own line would then be longer.
func (l *line) displaced(path ...string) *waiter {
	for _, name := range path {
		own := cmp.Or(l.find(name), &line{})
		if longest := l.longest(); longest.length > own.length+1 {
			return longest.last()
		}
		l = own
	}
	return nil
}

// last returns the last waiter of the longest line.
func (l *line) last() *waiter {
	if len(l.lines) == 0 {
		return l.waiters[len(l.waiters)-1]
	}
	return l.longest().last()
}

func (l *line) longest() *line {
	longest := &line{}
	for _, within := range l.lines {
		if within.length > longest.length {
			longest = within
		}
	}
	return longest
}
