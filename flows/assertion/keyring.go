package assertion

import (
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mnemogate/mnemogate/flows/panics"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/tokens"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// MaxTTL is the longest life of an assertion.
const MaxTTL = 10 * time.Minute

// A company's keys rotate by this schedule. Every node derives it from the times at which
// the keys were created, so the nodes agree without talking to each other.
const (
	rotateAfter = 30 * 24 * time.Hour // a key this old gets a successor
	// A new key waits for announce before it signs. By then every node publishes
	// it, and no backend still has the answer from before (max-age=300), even if their
	// clocks differ by some minutes. A company's first key signs at once: no answer from
	// before exists, except after a move to another store (docs/many-nodes.md).
	announce = 20 * time.Minute
	// retire is how long a key stays published after its successor begins to sign:
	// MaxTTL, and trust for nodes that do not know the successor.
	retire = trust + MaxTTL + 10*time.Minute
	// retireLeaked is retire for a leaked key. A node that can't learn of the successor for
	// longer is refused by backends.
	retireLeaked = MaxTTL + 5*time.Minute
	// trust is how long a node keeps signing with known keys once a newer one may exist.
	trust = time.Hour

	reload     = time.Minute     // how often a node looks for other keys
	retryAfter = 2 * time.Second // how long it waits after the store did not answer
)

// A Keyring keeps the companies' signing keys in the store, which all nodes share. Its
// methods may be called concurrently.
type Keyring struct {
	Accounts record.Accounts
	Now      func() time.Time
	// Failed, if not nil, is called if the store did not answer while known keys
	// remain in use.
	Failed func(error)

	companies sync.Map // *cachedKeys by company
}

// cachedKeys are a company's keys as a node last loaded them.
type cachedKeys struct {
	keys    atomic.Pointer[Keys]
	due     atomic.Pointer[time.Time] // when to load them again, on the monotonic clock, which nobody sets
	loading sync.Mutex                // held while they are loaded; guards failed
	failed  error
}

func (k *cachedKeys) isDue(now time.Time) bool {
	due := k.due.Load()
	return due == nil || !now.Before(*due)
}

// ForSigning returns the company's keys. It waits for the store only if the node knows no
// keys that it may still use. The error is then wire.ErrUnavailable if the store does not
// answer.
func (r *Keyring) ForSigning(ctx context.Context, company string) (*Keys, error) {
	return r.get(ctx, company, false)
}

// Published returns keys that are at most reload old. If the store does not answer,
// it returns keys that the node may still use; without those, the error is
// wire.ErrUnavailable.
func (r *Keyring) Published(ctx context.Context, company string) (*Keys, error) {
	return r.get(ctx, company, true)
}

func (r *Keyring) get(ctx context.Context, company string, newest bool) (*Keys, error) {
	found, ok := r.companies.Load(company)
	if !ok {
		found, _ = r.companies.LoadOrStore(company, new(cachedKeys))
	}
	k := found.(*cachedKeys)
	usable := func() (*Keys, bool) {
		keys, now := k.keys.Load(), r.Now()
		return keys, keys != nil && now.Before(keys.until) && (!newest || !k.isDue(now))
	}
	if keys, ok := usable(); ok {
		if k.isDue(r.Now()) && k.loading.TryLock() {
			go func() {
				defer k.loading.Unlock()
				_ = r.load(ctx, company, k)
			}()
		}
		return keys, nil
	}
	defer record.SpendStoreTime(ctx)()
	k.loading.Lock()
	defer k.loading.Unlock()
	if keys, ok := usable(); ok {
		return keys, nil // another caller has loaded them meanwhile
	}
	err := k.failed
	if err == nil || k.isDue(r.Now()) {
		err = r.load(ctx, company, k)
	}
	if keys := k.keys.Load(); keys != nil && r.Now().Before(keys.until) {
		return keys, nil
	}
	return nil, wire.Unavailable("loading the keys that sign assertions", err)
}

// load loads the company's keys, after it has created and removed what is due. The caller
// holds k.loading. Requests may wait for it, so it has their time, but not that of one of them.
func (r *Keyring) load(ctx context.Context, company string, k *cachedKeys) error {
	ctx = record.WithStoreTime(record.Detached(ctx))
	var keys *Keys
	err := panics.Contain(func() (err error) {
		keys, err = r.rotate(ctx, company, rotateAfter)
		return err
	})
	wait := retryAfter
	if keys != nil {
		k.keys.Store(keys)
	}
	if err == nil {
		wait = reload
	} else if r.Failed != nil && k.keys.Load() != nil {
		r.Failed(fmt.Errorf("the signing keys of company %s: %w", company, err))
	}
	k.failed = err
	k.due.Store(new(r.Now().Add(wait)))
	return err
}

// Rotate gives the company a new key before its time. It begins to sign as any other.
func (r *Keyring) Rotate(ctx context.Context, company string) error {
	_, err := r.rotate(ctx, company, 0)
	return err
}

// rotate returns the company's keys. It first stores a new key if the newest one is as old
// as after, and afterwards removes those that are no longer published. If the store can be read
// but not written, rotate returns both keys and an error.
func (r *Keyring) rotate(ctx context.Context, company string, after time.Duration) (*Keys, error) {
	secrets, err := r.Accounts.Secrets(ctx)
	if err != nil {
		return nil, err
	}
	now := r.Now()
	sealer, err := tokens.NewKeys(secrets, now)
	if err != nil {
		return nil, err
	}
	stored, err := r.Accounts.SigningKeys(ctx, company)
	if err != nil {
		return nil, err
	}
	var failed error
	if last := len(stored) - 1; last < 0 || now.Sub(stored[last].Created) >= after || leaked(sealer, company, stored[last]) {
		if failed = r.addKey(ctx, sealer, company, stored, now); failed == nil {
			if stored, err = r.Accounts.SigningKeys(ctx, company); err != nil {
				return nil, err
			}
		}
	}
	if len(stored) == 0 {
		return nil, cmp.Or(failed, errors.New("the store keeps no keys"))
	}
	n := retired(sealer, company, stored, now)
	if stored = stored[n:]; n > 0 {
		removing := r.Accounts.RemoveSigningKeys(ctx, company, stored[0].Number)
		failed = cmp.Or(failed, removing)
	}
	keys, err := open(sealer, company, stored, now)
	return keys, cmp.Or(err, failed)
}

// addKey stores a new key after the last one. If another node is faster, its key is the one.
func (r *Keyring) addKey(ctx context.Context, sealer *tokens.Keys, company string, stored []record.SigningKey, now time.Time) (err error) {
	next := record.SigningKey{Number: 1, Created: now}
	if last := len(stored) - 1; last >= 0 {
		next.Number = stored[last].Number + 1
	}
	if next.Sealed, err = generate(sealer, company); err != nil {
		return err
	}
	err = r.Accounts.AddSigningKey(ctx, company, next)
	if errors.Is(err, record.ErrConflict) {
		return nil
	}
	return err
}

// retired returns how many of the keys, the oldest first, nobody needs any more.
func retired(sealer *tokens.Keys, company string, stored []record.SigningKey, now time.Time) (n int) {
	for i, next := range stored[1:] {
		stays := retire
		if leaked(sealer, company, stored[i]) {
			stays = retireLeaked
		}
		if !now.Before(next.Created.Add(announce + stays)) {
			n = i + 1
		}
	}
	return n
}

// leaked reports whether a key is sealed with a secret that was replaced: whoever has a copy
// of the store from then can open it.
func leaked(sealer *tokens.Keys, company string, key record.SigningKey) bool {
	_, secret, err := sealer.OpenSigningKey(company, key.Sealed)
	return err == nil && secret < sealer.Secret()
}

func generate(sealer *tokens.Keys, company string) (sealed string, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return "", err
	}
	der, err := x509.MarshalPKCS8PrivateKey(private)
	return sealer.SealSigningKey(company, der), err
}

func open(sealer *tokens.Keys, company string, stored []record.SigningKey, now time.Time) (*Keys, error) {
	var list []*Key
	for _, s := range stored {
		der, _, err := sealer.OpenSigningKey(company, s.Sealed)
		if err != nil {
			return nil, err
		}
		parsed, err := x509.ParsePKCS8PrivateKey(der)
		if err != nil {
			return nil, err
		}
		key, err := onP256(parsed)
		if err != nil {
			return nil, err
		}
		key.begins = s.Created.Add(announce)
		list = append(list, key)
	}
	// Another node may create the next key from then on.
	next := stored[len(stored)-1].Created.Add(rotateAfter)
	if next.Before(now) {
		next = now
	}
	return newKeys(list, next.Add(trust))
}
