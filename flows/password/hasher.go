package password

import (
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
	// maxWait is how long a caller waits for its turn: less than the 2 s within
	// which it is told that there is none (contract, section 4).
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

// A Hasher hashes secrets and compares them with hashes, a few at a time:
// each takes megabytes and a whole CPU, and strangers can ask for it. Each Turn
// has its share of that, so that nobody is shut out by the storm of another. Its
// methods may be called concurrently. They return ErrBusy to those that it has no
// time for, and the context's error if that ends before their turn. No error
// holds anything of a secret or a hash.
type Hasher struct {
	// Waited is told how long each caller waited for its turn, and whether it
	// got it; nil for nobody.
	Waited func(d time.Duration, got bool)
	// Derive stands in for DeriveKey, which nil means: it can do the work in
	// another process. Both are set before the first call.
	Derive func(hash, secret string) ([]byte, error)

	turns turns
}

// NewHasher returns a Hasher that does as many hashes at once as slots says;
// with 0, one less than there are CPUs, so that one is left for all else.
func NewHasher(slots int) *Hasher {
	if slots <= 0 {
		slots = max(1, runtime.GOMAXPROCS(0)-1)
	}
	return &Hasher{turns: turns{slots: slots}}
}

// Slots returns how many hashes are done at once.
func (h *Hasher) Slots() int { return h.turns.slots }

// Queue returns how many callers wait or are at work, and how many may at once.
func (h *Hasher) Queue() (length, limit int) { return h.turns.count() }

// do runs work once it is its turn.
func (h *Hasher) do(ctx context.Context, turn Turn, work func() error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	began := time.Now()
	err := h.turns.await(ctx, turn)
	if err == nil {
		defer h.turns.pass()
	}
	if h.Waited != nil && (err == nil || err == ErrBusy) {
		h.Waited(time.Since(began), err == nil)
	}
	if err != nil {
		return err
	}
	return work()
}

func (h *Hasher) derive(hash, secret string) ([]byte, error) {
	if h.Derive != nil {
		return h.Derive(hash, secret)
	}
	return DeriveKey(hash, secret)
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
	unhashed := p.unhashed(salt)
	var hashes []string
	err := h.do(ctx, turn, func() error {
		for _, secret := range secrets {
			if err := ctx.Err(); err != nil {
				return err
			}
			key, err := h.derive(unhashed, secret)
			if err != nil {
				return err
			}
			hashes = append(hashes, p.encode(salt, key))
		}
		return nil
	})
	if err != nil {
		return nil, err
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
	err = h.do(ctx, turn, func() error {
		for i, form := range forms {
			if err := ctx.Err(); err != nil {
				return err
			}
			key, err := h.derive(hash, form)
			if err != nil {
				return err
			}
			if subtle.ConstantTimeCompare(key, d.key) == 1 {
				ok, stale = true, d.seesAll(form) && (i > 0 || d.weaker(p))
				return nil
			}
		}
		return nil
	})
	return ok, stale, err
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
	err = h.do(ctx, turn, func() error {
		keys := map[string][]byte{}
		for i, d := range digests {
			key, derived := keys[d.salted]
			if !derived {
				if err := ctx.Err(); err != nil {
					return err
				}
				var err error
				if key, err = h.derive(hashes[i], secret); err != nil {
					return err
				}
				keys[d.salted] = key
			}
			if subtle.ConstantTimeCompare(key, d.key) == 1 {
				match = hashes[i]
			}
		}
		return nil
	})
	return match, err
}

// waste takes the time of hashes.
func (h *Hasher) waste(ctx context.Context, turn Turn, p Argon2id, secrets ...string) error {
	_, err := h.HashSet(ctx, turn, p, secrets)
	return err
}

// turns are those of callers that wait for one of a few slots.
type turns struct {
	slots   int
	mu      sync.Mutex // guards all below
	taken   int
	waiting line // of a line for each company, of a line for each address
}

// A waiter waits to be told true when it is its turn, false if its place was
// given away.
type waiter struct {
	path []string // to its line
	told chan bool
}

func (t *turns) count() (length, limit int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.taken + t.waiting.length, t.slots * (1 + waitersPerSlot)
}

// await waits for a slot, which pass gives back.
func (t *turns) await(ctx context.Context, turn Turn) error {
	w := &waiter{path: []string{turn.Company, turn.Address}, told: make(chan bool, 1)}
	if !t.enqueue(w) {
		return ErrBusy
	}
	timeout := time.NewTimer(maxWait)
	defer timeout.Stop()
	var err error
	select {
	case got := <-w.told:
		if !got {
			return ErrBusy
		}
		return nil
	case <-timeout.C:
		err = ErrBusy
	case <-ctx.Done():
		err = ctx.Err()
	}
	if !t.leave(w) && <-w.told {
		t.pass() // its turn came at the same moment
	}
	return err
}

// enqueue reports whether there was a slot for the waiter, or a place to wait.
func (t *turns) enqueue(w *waiter) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.taken < t.slots {
		t.taken++
		w.told <- true
		return true
	}
	if t.waiting.length == t.slots*waitersPerSlot {
		other := t.waiting.displaced(w.path)
		if other == nil {
			return false
		}
		t.waiting.remove(other, other.path)
		other.told <- false
	}
	t.waiting.add(w, w.path)
	return true
}

// leave reports whether the waiter still waited.
func (t *turns) leave(w *waiter) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.waiting.remove(w, w.path)
}

// pass gives a slot to whose turn it is.
func (t *turns) pass() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.waiting.length == 0 {
		t.taken--
		return
	}
	t.waiting.first().told <- true
}

// A line is of waiters, who are served in order, or of lines, which take turns.
// Its zero value is an empty one.
type line struct {
	length  int // how many wait in all
	waiters []*waiter
	lines   map[string]*line // those that are not empty
	next    []string         // their names, in the order of their turns
}

func (l *line) add(w *waiter, path []string) {
	l.length++
	if len(path) == 0 {
		l.waiters = append(l.waiters, w)
		return
	}
	name := path[0]
	if l.lines == nil {
		l.lines = map[string]*line{}
	}
	if l.lines[name] == nil {
		l.lines[name] = &line{}
		l.next = append(l.next, name)
	}
	l.lines[name].add(w, path[1:])
}

// first takes out the waiter whose turn it is.
func (l *line) first() *waiter {
	l.length--
	if len(l.lines) == 0 {
		w := l.waiters[0]
		l.waiters = l.waiters[1:]
		return w
	}
	name := l.next[0]
	l.next = l.next[1:]
	within := l.lines[name]
	w := within.first()
	if within.length > 0 {
		l.next = append(l.next, name)
	} else {
		delete(l.lines, name)
	}
	return w
}

// remove takes out a waiter, and reports whether it was there.
func (l *line) remove(w *waiter, path []string) bool {
	if len(path) == 0 {
		i := slices.Index(l.waiters, w)
		if i < 0 {
			return false
		}
		l.waiters = slices.Delete(l.waiters, i, i+1)
		l.length--
		return true
	}
	name := path[0]
	within := l.lines[name]
	if within == nil || !within.remove(w, path[1:]) {
		return false
	}
	l.length--
	if within.length == 0 {
		delete(l.lines, name)
		l.next = slices.DeleteFunc(l.next, func(other string) bool { return other == name })
	}
	return true
}

// displaced returns who gives its place to one more waiter on path: the last of
// the longest line, if the one on path then is no longer than that; else nil.
func (l *line) displaced(path []string) *waiter {
	if len(path) == 0 {
		return nil
	}
	own := l.lines[path[0]]
	if own == nil {
		own = &line{}
	}
	if longest := l.longest(); longest.length > own.length+1 {
		return longest.last()
	}
	return own.displaced(path[1:])
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
