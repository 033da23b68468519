package flows

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

// A Hasher hashes secrets and compares them with hashes, a few at a time:
// each takes megabytes and a whole CPU, and strangers can ask for it. Companies
// take turns, so that none is shut out by the storm on another. Its methods may
// be called concurrently. They return ErrBusy to those that it has no time for,
// and the context's error if that ends before their turn. No error holds
// anything of a secret or a hash.
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
	return &Hasher{turns: turns{slots: slots, queues: map[string][]waiter{}}}
}

// Slots returns how many hashes are done at once.
func (h *Hasher) Slots() int { return h.turns.slots }

// Queue returns how many callers wait or are at work, and how many may at once.
func (h *Hasher) Queue() (length, limit int) { return h.turns.count() }

// do runs work once it is the company's turn.
func (h *Hasher) do(ctx context.Context, company string, work func() error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	began := time.Now()
	err := h.turns.take(ctx, company)
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
func (h *Hasher) Hash(ctx context.Context, company string, p Argon2id, secret string) (string, error) {
	hashes, err := h.HashSet(ctx, company, p, []string{secret})
	if err != nil {
		return "", err
	}
	return hashes[0], nil
}

// HashSet hashes many secrets with one salt, so that Match costs no more than
// one hash. They must be random, as backup codes are: with one salt it shows
// if two are equal, and one guess tries them all.
func (h *Hasher) HashSet(ctx context.Context, company string, p Argon2id, secrets []string) ([]string, error) {
	if err := p.Bounded(); err != nil {
		return nil, err
	}
	salt := make([]byte, saltBytes)
	rand.Read(salt) // never fails: it ends the process instead
	unhashed := p.unhashed(salt)
	var hashes []string
	err := h.do(ctx, company, func() error {
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
// secret, and whether it should be replaced, because it is of another kind or
// weaker than p. An empty hash stands for an account without one, or for no
// account: it takes the time that a hash made with p would.
func (h *Hasher) Verify(ctx context.Context, company string, p Argon2id, hash, secret string) (ok, stale bool, err error) {
	if hash == "" {
		return false, false, h.waste(ctx, company, p, secret)
	}
	d, err := parseHash(hash)
	if err != nil {
		return false, false, err
	}
	err = h.do(ctx, company, func() error {
		key, err := h.derive(hash, secret)
		ok = err == nil && subtle.ConstantTimeCompare(key, d.key) == 1
		return err
	})
	return ok, ok && d.weaker(p), err
}

// Match returns that of the hashes which is the secret's, or "". It computes
// one hash for each salt among them, and with no hashes takes the time that one
// made with p would.
func (h *Hasher) Match(ctx context.Context, company string, p Argon2id, hashes []string, secret string) (match string, err error) {
	if len(hashes) == 0 {
		return "", h.waste(ctx, company, p, secret)
	}
	digests := make([]digest, len(hashes))
	for i, hash := range hashes {
		if digests[i], err = parseHash(hash); err != nil {
			return "", err
		}
	}
	err = h.do(ctx, company, func() error {
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

// waste takes the time of a hash.
func (h *Hasher) waste(ctx context.Context, company string, p Argon2id, secret string) error {
	_, err := h.Hash(ctx, company, p, secret)
	return err
}

// turns are those of callers that wait for one of a few slots: of a company
// they are served in order, of several in rotation.
type turns struct {
	slots   int
	mu      sync.Mutex // guards all below
	taken   int
	waiting int
	queues  map[string][]waiter // of the companies that have any
	next    []string            // those companies, in the order of their turns
}

// A waiter is told true when it is its turn, false if its place was given away.
type waiter chan bool

func (t *turns) count() (length, limit int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.taken + t.waiting, t.slots * (1 + waitersPerSlot)
}

// take waits for a slot, which pass gives back.
func (t *turns) take(ctx context.Context, company string) error {
	w := t.enqueue(company)
	if w == nil {
		return ErrBusy
	}
	timeout := time.NewTimer(maxWait)
	defer timeout.Stop()
	var err error
	select {
	case got := <-w:
		if !got {
			return ErrBusy
		}
		return nil
	case <-timeout.C:
		err = ErrBusy
	case <-ctx.Done():
		err = ctx.Err()
	}
	if !t.remove(company, w) && <-w {
		t.pass() // its turn came at the same moment
	}
	return err
}

// enqueue returns nil if there is no place to wait.
func (t *turns) enqueue(company string) waiter {
	t.mu.Lock()
	defer t.mu.Unlock()
	w := make(waiter, 1)
	if t.taken < t.slots {
		t.taken++
		w <- true
		return w
	}
	if t.waiting == t.slots*waitersPerSlot && !t.displace(company) {
		return nil
	}
	queue := t.queues[company]
	if len(queue) == 0 {
		t.next = append(t.next, company)
	}
	t.queues[company] = append(queue, w)
	t.waiting++
	return w
}

// displace gives away the last place of the company that has most, if another
// then still has no more than that.
func (t *turns) displace(by string) bool {
	longest := by
	for company, queue := range t.queues {
		if len(queue) > len(t.queues[longest]) {
			longest = company
		}
	}
	queue := t.queues[longest]
	if len(queue) <= len(t.queues[by])+1 {
		return false
	}
	last := len(queue) - 1
	queue[last] <- false
	t.queues[longest] = queue[:last]
	t.waiting--
	return true
}

func (t *turns) remove(company string, w waiter) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	i := slices.Index(t.queues[company], w)
	if i < 0 {
		return false
	}
	t.waiting--
	if t.queues[company] = slices.Delete(t.queues[company], i, i+1); len(t.queues[company]) == 0 {
		delete(t.queues, company)
		t.next = slices.DeleteFunc(t.next, func(c string) bool { return c == company })
	}
	return true
}

// pass gives a slot to whose turn it is.
func (t *turns) pass() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.next) == 0 {
		t.taken--
		return
	}
	company := t.next[0]
	t.next = t.next[1:]
	queue := t.queues[company]
	queue[0] <- true
	t.waiting--
	if len(queue) == 1 {
		delete(t.queues, company)
		return
	}
	t.queues[company] = queue[1:]
	t.next = append(t.next, company)
}
