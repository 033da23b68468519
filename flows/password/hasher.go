package password

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"runtime"
	"slices"
	"sync"
	"time"
)

// ErrBusy: more secrets are being hashed than the machine can do; the caller
// should try again later.
var ErrBusy = errors.New("too many passwords are being hashed at once")

const (
	// maxWait is how long a caller waits for its turns in all: less than the 2 s
	// within which it is told that there is none (contract, section 4).
	maxWait = 1800 * time.Millisecond
	// waitersPerSlot bounds the memory of those that wait. A hash with the
	// default parameters takes 15 to 30 ms, so whoever comes behind 128 others
	// would wait in vain.
	waitersPerSlot = 128
)

// A Turn says for whom a hash is computed: companies take turns and, within one,
// the addresses of its clients do.
type Turn struct {
	Company string
	Address string // empty for what no client asked for
}

// A Hasher hashes secrets and compares them with hashes, a few at a time: each
// takes megabytes and a whole CPU, and strangers can ask for it. Each hash waits
// for its turn, and each Turn has its share of the time, so that no client is shut
// out by another's storm or by another's expensive hashes. Its methods may be
// called concurrently. They return ErrBusy if the caller would wait too long, and
// the context's error if that ends before the last turn. No error holds anything
// of a secret or a hash.
type Hasher struct {
	// Waited is told how long each hash waited for its turn, and whether it
	// got it; nil for nobody.
	Waited func(d time.Duration, got bool)
	// Derive is DeriveKey, or does the same in another process. Both are set
	// before the first call.
	Derive func(hash, secret string) ([]byte, error)

	turns turns
}

// NewHasher returns a Hasher that does as many hashes at once as slots says;
// with 0, one less than there are CPUs, so that one is left for all else.
func NewHasher(slots int) *Hasher {
	if slots <= 0 {
		slots = max(1, runtime.GOMAXPROCS(0)-1)
	}
	return &Hasher{Derive: DeriveKey, turns: turns{slots: slots}}
}

// Slots returns how many hashes are done at once.
func (h *Hasher) Slots() int { return h.turns.slots }

// Queue returns how many callers wait or are at work, and how many may at once.
func (h *Hasher) Queue() (length, limit int) { return h.turns.count() }

// A caller takes a turn for each of its hashes, and waits for maxWait in all.
type caller struct {
	h    *Hasher
	turn Turn
	left time.Duration // of maxWait
}

func (h *Hasher) caller(turn Turn) *caller { return &caller{h, turn, maxWait} }

// derive computes the key that d must have to be the secret's.
func (c *caller) derive(ctx context.Context, d digest, secret string) (key []byte, err error) {
	err = c.do(ctx, d.cost, func() (err error) {
		key, err = c.h.Derive(d.hash, secret)
		return err
	})
	return key, err
}

// do runs work once it is the caller's turn. The estimate is how long that takes.
func (c *caller) do(ctx context.Context, estimate time.Duration, work func() error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	began := time.Now()
	w, err := c.h.turns.await(ctx, c.turn, estimate, c.left)
	waited := time.Since(began)
	c.left -= waited
	if err == nil {
		began := time.Now()
		defer func() { c.h.turns.pass(w, time.Since(began)) }()
	}
	if c.h.Waited != nil && (err == nil || err == ErrBusy) {
		c.h.Waited(waited, err == nil)
	}
	if err != nil {
		return err
	}
	return work()
}

// Hash returns the argon2id hash of a secret, which is taken byte for byte, as
// a PHC string.
func (h *Hasher) Hash(ctx context.Context, turn Turn, p Argon2id, secret string) (string, error) {
	hashes, err := h.HashSet(ctx, turn, p, []string{secret})
	if err != nil {
		return "", err
	}
	return hashes[0], nil
}

// HashSet hashes many secrets with one salt, so that Match costs no more than
// one hash. They must be random, as backup codes are: with one salt it shows
// if two are equal, and one guess tries them all.
func (h *Hasher) HashSet(ctx context.Context, turn Turn, p Argon2id, secrets []string) ([]string, error) {
	if err := p.Bounded(); err != nil {
		return nil, err
	}
	salt := make([]byte, saltBytes)
	rand.Read(salt) // never fails: it ends the process instead
	unknown := make([]byte, keyBytes)
	d, err := parseHash(p.encode(salt, unknown))
	if err != nil {
		return nil, err
	}
	var hashes []string
	c := h.caller(turn)
	for _, secret := range secrets {
		key, err := c.derive(ctx, d, secret)
		if err != nil {
			return nil, err
		}
		hashes = append(hashes, p.encode(salt, key))
	}
	return hashes, nil
}

// Verify reports whether a hash, of any kind that CheckHash allows, is that of
// one of the forms of a secret, and whether one of the first form made with p
// should replace it, because it is weaker or of another form. One that may not
// have seen the whole secret should not. An empty hash stands for an account
// without one, or for no account: it takes the time that hashes made with p would.
func (h *Hasher) Verify(ctx context.Context, turn Turn, p Argon2id, hash string, forms ...string) (ok, stale bool, err error) {
	if hash == "" {
		return false, false, h.waste(ctx, turn, p, forms...)
	}
	d, err := parseHash(hash)
	if err != nil {
		return false, false, err
	}
	c := h.caller(turn)
	for i, form := range forms {
		for _, hashed := range d.hashed(form) {
			key, err := c.derive(ctx, d, hashed)
			if err != nil {
				return false, false, err
			}
			if subtle.ConstantTimeCompare(key, d.key) == 1 {
				return true, d.seesAll(form) && (i > 0 || d.weaker(p)), nil
			}
		}
	}
	return false, false, nil
}

// Match returns that of the hashes which is the secret's, or "". It computes
// one hash for each salt among them, and with no hashes takes the time that one
// made with p would.
func (h *Hasher) Match(ctx context.Context, turn Turn, p Argon2id, hashes []string, secret string) (match string, err error) {
	if len(hashes) == 0 {
		return "", h.waste(ctx, turn, p, secret)
	}
	digests := make([]digest, len(hashes))
	for i, hash := range hashes {
		if digests[i], err = parseHash(hash); err != nil {
			return "", err
		}
	}
	c := h.caller(turn)
	keys := map[string][][]byte{} // for each salt, those of all forms of the secret
	for _, d := range digests {
		if keys[d.salted] == nil {
			for _, hashed := range d.hashed(secret) {
				key, err := c.derive(ctx, d, hashed)
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

// waste takes the time of hashes.
func (h *Hasher) waste(ctx context.Context, turn Turn, p Argon2id, secrets ...string) error {
	_, err := h.HashSet(ctx, turn, p, secrets)
	return err
}

// turns gives a few slots to callers by fair queuing: a slot goes to the company
// that has used the least time, and within it to the address that has. A turn is
// charged with its estimate when it begins, so that a company can't begin many
// long ones at once, and with the time that it took when it ends.
type turns struct {
	slots int
	mu    sync.Mutex // guards all below
	taken int
	all   line // of companies
}

// newcomer is how far a new address is put behind the one whose turn began last:
// about as much as a hash takes. Otherwise an endless number of new addresses would
// keep all others from a second turn.
const newcomer = 20 * time.Millisecond

// A line is of waiters, who are served in order, or of lines: one of companies, in
// which each company has one of addresses.
type line struct {
	name    string
	used    time.Duration // by its turns, counted from what others had used when it came
	began   time.Duration // the most that a line within had used when its turn began
	behind  time.Duration // how far behind that a new line begins
	running int           // how many turns it has now
	length  int           // how many wait
	waiters []*waiter     // of an address
	lines   []*line       // in the order of their last turns
}

// A waiter waits to be told true when it is its turn, false if its place was
// given away.
type waiter struct {
	estimate time.Duration
	path     []*line // all, its company's, its address's
	told     chan bool
}

func (t *turns) count() (length, limit int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.taken + t.all.length, t.slots * (1 + waitersPerSlot)
}

// await waits for a slot, which pass gives back.
func (t *turns) await(ctx context.Context, turn Turn, estimate, limit time.Duration) (*waiter, error) {
	w := &waiter{estimate: estimate, told: make(chan bool, 1)}
	if !t.enqueue(w, turn) {
		return nil, ErrBusy
	}
	waiting, stop := context.WithTimeout(ctx, limit)
	defer stop()
	var got bool
	select {
	case got = <-w.told:
	case <-waiting.Done():
		got = !t.leave(w) && <-w.told // its turn may come at the same moment
	}
	if !got {
		return nil, cmp.Or(ctx.Err(), ErrBusy)
	}
	return w, nil
}

// enqueue reports whether there was a slot for the waiter, or a place to wait.
func (t *turns) enqueue(w *waiter, turn Turn) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.all.length == t.slots*waitersPerSlot {
		other := t.all.displaced(turn.Company, turn.Address)
		if other == nil {
			return false
		}
		other.leave()
		other.told <- false
	}
	company := t.all.enter(turn.Company)
	address := company.enter(turn.Address)
	w.path = []*line{&t.all, company, address}
	if t.taken < t.slots {
		t.taken++
		w.begin()
		return true
	}
	address.waiters = append(address.waiters, w)
	for _, l := range w.path {
		l.length++
	}
	return true
}

// leave reports whether the waiter still waited.
func (t *turns) leave(w *waiter) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return w.leave()
}

// pass ends the turn of w, which took so long, and gives its slot to the next.
func (t *turns) pass(w *waiter, took time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, l := range w.path[1:] {
		l.used += took - w.estimate
		l.running--
	}
	if t.all.length > 0 {
		next := t.all.next()
		next.leave()
		next.begin()
	} else {
		t.taken--
	}
	for _, l := range w.path[:2] {
		l.forget(t.taken < t.slots)
	}
}

// begin tells the waiter that it is its turn.
func (w *waiter) begin() {
	for i, l := range w.path[1:] {
		w.path[i].began = max(w.path[i].began, l.used)
		l.used += w.estimate
		l.running++
	}
	w.told <- true
}

// leave reports whether the waiter still waited.
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

// enter returns the line of a name, a new one if there is none. The time while
// nobody was in it gives it no credit.
func (l *line) enter(name string) *line {
	within := l.find(name)
	if within == nil {
		within = &line{name: name, behind: newcomer}
		l.lines = append(l.lines, within)
	}
	if within.empty() {
		within.used = max(within.used, l.entry())
	}
	return within
}

// entry is what a line within is taken to have used when it comes anew.
func (l *line) entry() time.Duration { return l.began + l.behind }

// forget drops the empty lines within that have used no more than a new one, or,
// while nobody waits, all empty ones.
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

// empty reports whether nobody waits in the line or has a turn.
func (l *line) empty() bool { return l.length == 0 && l.running == 0 }

// next returns the waiter whose turn it is.
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

// displaced returns who gives its place to one more waiter on path: the last of
// the longest line, if the one on path then is no longer than that; else nil.
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
