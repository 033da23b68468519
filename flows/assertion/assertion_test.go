package assertion

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/wire"
	"github.com/mnemogate/mnemogate/store/sqlite"
	"github.com/mnemogate/mnemogate/store/storetest"
)

var bg = context.Background()

var must = storetest.Must

// A clock is a time that tests move. All nodes of a test share it.
type clock struct{ atomic.Int64 }

func newClock() *clock {
	c := new(clock)
	c.Store(time.Date(2031, 5, 6, 7, 8, 9, 0, time.UTC).UnixNano())
	return c
}

func (c *clock) now() time.Time          { return time.Unix(0, c.Load()) }
func (c *clock) advance(d time.Duration) { c.Add(int64(d)) }

// A faulty store fails on demand, and counts how often it is asked.
type faulty struct {
	record.Accounts
	slow           time.Duration // how long each call takes, unless its context ends
	down, readOnly bool
	asked          atomic.Int64
}

type faultyKeys struct{ *faulty }

var errDown = errors.New("down")

func (f faultyKeys) SigningKeys(ctx context.Context, company string) ([]record.SigningKey, error) {
	f.asked.Add(1)
	if f.down {
		return nil, errDown
	}
	if err := f.wait(ctx); err != nil {
		return nil, err
	}
	return f.Accounts.SigningKeys(ctx, company)
}

func (f faultyKeys) AddSigningKey(ctx context.Context, company string, key record.SigningKey) error {
	if f.down || f.readOnly {
		return errDown
	}
	if err := f.wait(ctx); err != nil {
		return err
	}
	return f.Accounts.AddSigningKey(ctx, company, key)
}

// wait waits as PostgreSQL does.
func (f faultyKeys) wait(ctx context.Context) error {
	ctx, done := record.StoreContext(ctx, time.Minute)
	defer done()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(f.slow):
		return nil
	}
}

func newStore(t *testing.T) record.Accounts {
	s := sqlite.Open(filepath.Join(t.TempDir(), "keys.db"))
	must(t, s.Start(bg))
	t.Cleanup(func() { must(t, s.Close()) })
	return s.Accounts()
}

func node(c *clock, accounts record.Accounts) (*Keyring, *faulty) {
	f := &faulty{Accounts: accounts}
	return &Keyring{Accounts: faultyKeys{f}, Now: c.now}, f
}

// signs returns the key that a node signs with.
func signs(t *testing.T, r *Keyring, company string) string {
	t.Helper()
	keys, err := r.ForSigning(bg, company)
	must(t, err)
	return keys.signing(r.Now()).ID()
}

// published returns the keys that a node publishes, oldest first.
func published(t *testing.T, r *Keyring, company string) (ids []string) {
	t.Helper()
	keys, err := r.Published(bg, company)
	must(t, err)
	var set jose.JSONWebKeySet
	must(t, json.Unmarshal(keys.JWKS(), &set))
	for _, k := range set.Keys {
		if !k.IsPublic() || k.Use != "sig" || k.Algorithm != "ES256" {
			t.Errorf("the key %s is published as %+v", k.KeyID, k)
		}
		ids = append(ids, k.KeyID)
	}
	return ids
}

// Two nodes live through three rotations. Whatever one of them signs, the other
// publishes before and until it has expired. A backend that asks every five minutes
// never meets an unknown key.
func TestKeysRotateWithoutAFailure(t *testing.T) {
	c, accounts := newClock(), newStore(t)
	one, _ := node(c, accounts)
	two, _ := node(c, accounts)
	type signature struct {
		key string
		at  time.Time
	}
	var signatures []signature
	var backend []string // what a backend remembers of the keys
	var asked, began time.Time
	var used []string
	for began = c.now(); c.now().Sub(began) < 3*rotateAfter+4*time.Hour; {
		// The nodes change keys between the 30th day and an hour later; a test of each
		// minute of the other days would only take long.
		if day := c.now().Sub(began) % rotateAfter; day > 4*time.Hour && day < rotateAfter-time.Hour {
			c.advance(rotateAfter - time.Hour - day)
			signatures, asked = nil, time.Time{}
		}
		if c.now().Sub(asked) >= 5*time.Minute {
			backend, asked = published(t, []*Keyring{one, two}[len(signatures)%2], "acme"), c.now()
		}
		for _, n := range []*Keyring{one, two} {
			key := signs(t, n, "acme")
			if !slices.Contains(used, key) {
				used = append(used, key)
				t.Logf("%v: signs with key %d", c.now().Sub(began), len(used))
			}
			signatures = append(signatures, signature{key, c.now()})
		}
		for len(signatures) > 0 && c.now().Sub(signatures[0].at) > MaxTTL {
			signatures = signatures[1:]
		}
		for _, s := range signatures {
			if !slices.Contains(backend, s.key) {
				t.Fatalf("%v after the start, a backend does not know the key that signed %v ago", c.now().Sub(began), c.now().Sub(s.at))
			}
		}
		c.advance(time.Minute)
	}
	if len(used) != 4 {
		t.Errorf("there were %d keys", len(used))
	}
	c.advance(5 * time.Hour)
	if got := published(t, one, "acme"); len(got) != 1 || got[0] != used[3] {
		t.Errorf("published are %v of %v", got, used)
	}
	if stored, err := accounts.SigningKeys(bg, "acme"); err != nil || len(stored) != 1 {
		t.Errorf("the store has %d keys, and %v", len(stored), err)
	}
}

// If the store gets a new secret, the leaked key has a successor at once, and is withdrawn as
// soon as nothing that it signed is valid. The nodes learn of the secret one after the
// other. No backend meets an unknown key.
func TestALeakedKeyIsWithdrawn(t *testing.T) {
	c, accounts := newClock(), newStore(t)
	one, _ := node(c, accounts)
	two, _ := node(c, accounts)
	leaked := signs(t, one, "acme")
	get := func(secrets []record.Secret, err error) []record.Secret { must(t, err); return secrets }
	get(accounts.Secrets(bg))
	c.advance(24 * time.Hour)
	published(t, one, "acme")
	c.advance(30 * time.Second) // the nodes read the keys at different times
	published(t, two, "acme")
	must(t, accounts.AddSecret(bg, record.Secret{Number: 1, Value: bytes.Repeat([]byte("n"), 32), Begins: c.now().Add(time.Minute)}))
	backend, withdrawn := published(t, one, "acme"), time.Duration(0)
	for minute := range 90 {
		if minute%5 == 0 {
			backend = published(t, []*Keyring{one, two}[minute/5%2], "acme")
		}
		for _, n := range []*Keyring{one, two} {
			if key := signs(t, n, "acme"); !slices.Contains(backend, key) {
				t.Fatalf("after %d minutes, a backend does not know the key that signs", minute)
			} else if minute > 23 && key == leaked {
				t.Fatalf("after %d minutes, a node signs with the leaked key", minute)
			}
		}
		if withdrawn == 0 && !slices.Contains(published(t, one, "acme"), leaked) && !slices.Contains(published(t, two, "acme"), leaked) {
			withdrawn = time.Duration(minute) * time.Minute
		}
		c.advance(time.Minute)
	}
	if withdrawn < 30*time.Minute || withdrawn > 40*time.Minute {
		t.Errorf("the leaked key was withdrawn after %v", withdrawn)
	}
	if stored, err := accounts.SigningKeys(bg, "acme"); err != nil || len(stored) != 1 || stored[0].Number != 2 {
		t.Errorf("the store has %v, %v", stored, err)
	}
}

func TestNodesThatRaceShareOneKey(t *testing.T) {
	c, accounts := newClock(), newStore(t)
	for _, wait := range []time.Duration{0, rotateAfter} {
		c.advance(wait)
		var wg sync.WaitGroup
		got := make([]string, 20)
		for i := range got {
			wg.Go(func() {
				r, _ := node(c, accounts)
				got[i] = signs(t, r, "acme") + fmt.Sprint(published(t, r, "acme"))
			})
		}
		wg.Wait()
		if len(slices.Compact(got)) != 1 {
			t.Errorf("nodes differ: %v", got)
		}
	}
	r, _ := node(c, accounts)
	if ids := published(t, r, "other"); slices.Contains(published(t, r, "acme"), ids[0]) {
		t.Error("two companies share a key")
	}
}

// A request that needs the first keys of a company waits for several calls to the store,
// but together not longer than for one.
func TestSlowStoreDelaysARequestOnce(t *testing.T) {
	t.Parallel()
	r, f := node(newClock(), newStore(t))
	f.slow = 1500 * time.Millisecond
	began, stalled := time.Now(), storetest.WatchStalls()
	_, err := r.ForSigning(bg, "acme")
	if took := time.Since(began); !errors.Is(err, wire.ErrUnavailable) || took > 2*time.Second+stalled() {
		t.Errorf("got %v after %v", err, took)
	}
}

func TestKeysOutliveTheStoresOutage(t *testing.T) {
	c, accounts := newClock(), newStore(t)
	r, f := node(c, accounts)
	f.down = true
	_, err := r.ForSigning(bg, "acme")
	if !errors.Is(err, wire.ErrUnavailable) || !errors.Is(err, errDown) {
		t.Fatalf("without any key: %v", err)
	}
	asked := f.asked.Load()
	if _, err := r.Published(bg, "acme"); !errors.Is(err, wire.ErrUnavailable) || f.asked.Load() != asked {
		t.Errorf("at once again: %v, and the store was asked %d times", err, f.asked.Load())
	}
	f.down = false
	c.advance(retryAfter)
	key := signs(t, r, "acme")
	f.down = true
	var failures atomic.Int64
	r.Failed = func(error) { failures.Add(1) }
	for range 30 * 24 {
		c.advance(time.Hour)
		if signs(t, r, "acme") != key || published(t, r, "acme")[0] != key {
			t.Fatal("another key")
		}
	}
	if failures.Load() == 0 {
		t.Error("nobody hears of the outage")
	}
	// From now on another node may have made a key, which signs soon.
	c.advance(trust)
	if _, err := r.ForSigning(bg, "acme"); !errors.Is(err, wire.ErrUnavailable) {
		t.Errorf("after an hour: %v", err)
	}
	f.down, f.readOnly = false, true
	c.advance(retryAfter)
	if signs(t, r, "acme") != key { // it is still the only one
		t.Error("a store that takes no writes changes the key")
	}
}

func parse(t *testing.T, token string, keys *Keys) (claims, jose.Header) {
	t.Helper()
	parsed, err := jwt.ParseSigned(token, []jose.SignatureAlgorithm{jose.ES256})
	must(t, err)
	var set jose.JSONWebKeySet
	must(t, json.Unmarshal(keys.JWKS(), &set))
	var got claims
	must(t, parsed.Claims(set, &got))
	return got, parsed.Headers[0]
}

var someone = record.Session{
	Hash: record.HashToken("one"), ID: "session-1", Company: "acme", Mnemocode: "alice",
	Created: time.Unix(1_900_000_000, 999), Profile: record.NewProfile(record.Account{Role: "Büro 100%", Email: "a@example.com", Phone: "+37060000001"},
		[]record.ProfileField{record.ProfileRole, record.ProfileEmail, record.ProfilePhone}, time.Time{}, record.ByPassword.With(record.BySMS)),
}

// newSigner returns a signer with one key. made counts its signatures.
func newSigner(t *testing.T, c *clock) (s *Signer, keys *Keys, made *atomic.Int64) {
	r, _ := node(c, newStore(t))
	keys, err := r.ForSigning(bg, "acme")
	must(t, err)
	made = new(atomic.Int64)
	s = &Signer{Audience: "profile-api", TTL: time.Minute, Limit: 1000, Now: c.now}
	s.Keys = func(context.Context, string) (*Keys, error) {
		made.Add(1)
		return keys, nil
	}
	return s, keys, made
}

func TestAnAssertionSaysWhoTheUserIs(t *testing.T) {
	c := newClock()
	s, keys, _ := newSigner(t, c)
	token, err := s.Assertion(bg, "https://example.com/acme", someone)
	must(t, err)
	got, header := parse(t, token, keys)
	now := c.now().Unix()
	want := claims{
		Issuer: "https://example.com/acme", Audience: "profile-api", Subject: "alice", Company: "acme", Session: "session-1",
		IssuedAt: now, Expires: now + 60, AuthTime: 1_900_000_000, Methods: []string{"pwd", "sms", "mfa"},
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if header.Algorithm != "ES256" || header.KeyID != keys.list[0].ID() || header.ExtraHeaders["typ"] != "mnemogate+jwt" {
		t.Errorf("the header is %+v", header)
	}
	s, keys, _ = newSigner(t, c)
	s.Fields = []record.ProfileField{record.ProfileRole, record.ProfilePhone}
	token, err = s.Assertion(bg, "https://example.com/acme", someone)
	must(t, err)
	if got, _ := parse(t, token, keys); got.Role != "Büro 100%" || got.Phone != "+37060000001" || got.Email != "" {
		t.Errorf("the account is %+v", got)
	}
}

// A session that is used all the time is signed for once in two thirds of the TTL. If that
// fails, requests get the assertion of before until a sixth of its life is left.
func TestItSignsOnceInTwoThirdsOfATTL(t *testing.T) {
	c := newClock()
	s, _, made := newSigner(t, c)
	signing := s.Keys
	ask := func() string {
		t.Helper()
		token, err := s.Assertion(bg, "https://example.com/acme", someone)
		must(t, err)
		return token
	}
	first := ask()
	for range 39 {
		c.advance(time.Second)
		if ask() != first {
			t.Fatal("a new assertion before its time")
		}
	}
	s.Keys = func(context.Context, string) (*Keys, error) { return nil, errDown }
	for range 10 {
		c.advance(time.Second)
		if ask() != first {
			t.Fatal("a new assertion without a key")
		}
	}
	c.advance(time.Second)
	if _, err := s.Assertion(bg, "https://example.com/acme", someone); !errors.Is(err, errDown) {
		t.Errorf("less than a sixth is left: got %v", err)
	}
	s.Keys = signing
	second := ask()
	if second == first || made.Load() != 2 || ask() != second {
		t.Errorf("%d signatures", made.Load())
	}
	// Many requests that come first at once share a signature.
	made.Store(0)
	c.advance(time.Hour)
	var wg sync.WaitGroup
	for range 100 {
		wg.Go(func() { ask() })
	}
	wg.Wait()
	if made.Load() != 1 {
		t.Errorf("%d signatures for requests at once", made.Load())
	}
}

// Whatever requests do at once, assertions of a session are signed at least two thirds of
// a TTL apart, and each has a sixth of its life left when it is sent.
func TestRequestsAtOnceShareSignatures(t *testing.T) {
	c := newClock()
	s, _, _ := newSigner(t, c)
	const sessions = 20
	signedAt := make([]sync.Map, sessions)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for i := range 1000 {
				session := someone
				session.Hash = record.HashToken(fmt.Sprint(i % sessions))
				now := c.now()
				token, err := s.Assertion(bg, "https://example.com/acme", session)
				if err != nil {
					t.Error(err)
					return
				}
				var got claims
				parsed, err := jwt.ParseSigned(token, []jose.SignatureAlgorithm{jose.ES256})
				if err == nil {
					err = parsed.UnsafeClaimsWithoutVerification(&got)
				}
				if left := got.Expires - now.Unix(); err != nil || left < 9 {
					t.Errorf("%d s are left of an assertion, %v", left, err)
				}
				signedAt[i%sessions].Store(got.IssuedAt, true)
				if i%4 == 0 {
					c.advance(100 * time.Millisecond)
				}
			}
		})
	}
	wg.Wait()
	for i := range signedAt {
		var times []int64
		signedAt[i].Range(func(at, _ any) bool { times = append(times, at.(int64)); return true })
		slices.Sort(times)
		for j := range times[1:] {
			if gap := times[j+1] - times[j]; gap < 39 {
				t.Errorf("session %d was signed twice within %d s", i, gap)
			}
		}
		if len(times) < 3 {
			t.Errorf("session %d was signed %d times in %v", i, len(times), c.now())
		}
	}
}

func TestItForgetsWhatIsNotUsed(t *testing.T) {
	c := newClock()
	s, _, _ := newSigner(t, c)
	remembered := func() (n int) {
		for i := range s.shards {
			n += len(s.shards[i].recent) + len(s.shards[i].older)
		}
		return n
	}
	session := someone
	for i := range 5000 {
		session.Hash = record.HashToken(fmt.Sprint(i))
		_, err := s.Assertion(bg, "https://example.com/acme", session)
		must(t, err)
	}
	if n := remembered(); n > 2*s.Limit {
		t.Errorf("%d signatures are remembered, with a limit of %d", n, s.Limit)
	}
	for range 3 {
		c.advance(s.TTL)
		for i := range 500 {
			session.Hash = record.HashToken(fmt.Sprint("later", i))
			_, err := s.Assertion(bg, "https://example.com/acme", session)
			must(t, err)
		}
	}
	if n := remembered(); n > 2*500 {
		t.Errorf("%d signatures are remembered of 500 sessions", n)
	}
}

// Where clients choose the host, they choose the issuer. Signatures and memory are bounded
// all the same.
func TestASessionHasFewIssuersAtOnce(t *testing.T) {
	c := newClock()
	s, _, made := newSigner(t, c)
	ask := func(issuer int) {
		t.Helper()
		_, err := s.Assertion(bg, fmt.Sprintf("https://%d.example.com/acme", issuer), someone)
		must(t, err)
	}
	for range 3 {
		for i := range maxIssuers {
			ask(i)
		}
	}
	if made.Load() != maxIssuers {
		t.Errorf("%d signatures for %d issuers", made.Load(), maxIssuers)
	}
	for i := range 1000 {
		_, err := s.Assertion(bg, fmt.Sprintf("https://another-%d.example.com/acme", i), someone)
		refused, ok := errors.AsType[*wire.Refusal](err)
		if !ok || refused.Err != wire.ErrRestricted || refused.RetryAfter != s.TTL {
			t.Fatalf("got %v", err)
		}
	}
	other := someone
	other.Hash = record.HashToken("another session")
	_, err := s.Assertion(bg, "https://another.example.com/acme", other)
	must(t, err)
	ask(0)
	if made.Load() != maxIssuers+1 {
		t.Errorf("%d signatures in all", made.Load())
	}
	c.advance(s.TTL * 2 / 3) // from here on, others take the places of those that are not used
	for i := range maxIssuers {
		ask(1000 + i)
	}
	for i := range s.shards {
		for _, of := range s.shards[i].recent {
			if len(of) > maxIssuers || cap(of) > 2*maxIssuers {
				t.Errorf("%d issuers are remembered", len(of))
			}
		}
	}
	made.Store(0)
	c.advance(s.TTL) // they move to the next generation
	for range 2 {
		for i := range maxIssuers {
			ask(1000 + i)
		}
	}
	if made.Load() != maxIssuers {
		t.Errorf("%d signatures later", made.Load())
	}
}

func TestWithoutAKeyNothingIsAsserted(t *testing.T) {
	c := newClock()
	s, _, _ := newSigner(t, c)
	s.Keys = func(context.Context, string) (*Keys, error) { return nil, wire.Unavailable("loading", errDown) }
	if token, err := s.Assertion(bg, "https://example.com/acme", someone); token != "" || !errors.Is(err, wire.ErrUnavailable) {
		t.Errorf("got %q and %v", token, err)
	}
}

func TestOnlyKeysOnP256AreParsed(t *testing.T) {
	for name, text := range map[string]string{
		"nothing": "", "a certificate": "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
		"damaged":   "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n",
		"encrypted": "-----BEGIN EC PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,00\n\nAAAA\n-----END EC PRIVATE KEY-----\n",
	} {
		if _, err := ParseKey(text); err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
}
