package flows_test

import (
	"crypto/sha256"
	"errors"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/flows"
	"github.com/mnemogate/mnemogate/flows/session"
	"github.com/mnemogate/mnemogate/flows/wire"
)

func (b *harness) pageKey(company string) string {
	b.t.Helper()
	key, err := b.PageKey(b.t.Context(), company)
	must(b.t, err)
	return key
}

// newKeyedHarness returns a harness of two companies with API keys and captcha pow.
func newKeyedHarness(t *testing.T) *harness {
	b := newWorkHarness(t)
	b.pages = true
	b.company.NoAPIKey, b.company.APIKeys = false, [][sha256.Size]byte{sha256.Sum256([]byte("key"))}
	b.addCompany("other")
	return b
}

// asks makes the requests of a login page to a company and returns their errors.
func (b *harness) asks(company string, keys ...string) map[string]error {
	r := func() *flows.Request {
		return &flows.Request{Company: company, APIKeys: keys, PageKey: b.pages, Client: session.Client{Address: "192.0.2.1"}}
	}
	asked := map[string]error{}
	_, asked["v2/session"] = b.Current(b.t.Context(), r())
	_, asked["POST v2/session"] = b.ExchangeToken(b.t.Context(), r(), nil)
	_, asked["v2/captcha"] = b.Challenge(b.t.Context(), r())
	for _, route := range flows.Routes {
		r := r()
		r.Route = &route
		r.Body = func() ([]byte, error) { return nil, wire.ErrMediaType }
		_, asked[route.Path] = b.Serve(b.t.Context(), r)
	}
	return asked
}

func (b *harness) wantKey(want error, company string, keys ...string) {
	b.t.Helper()
	for asked, err := range b.asks(company, keys...) {
		about := errors.Is(err, wire.ErrAPIKeyInvalid) || errors.Is(err, wire.ErrAPIKeyMissing) || errors.Is(err, wire.ErrUnavailable)
		if want == nil && about || want != nil && !errors.Is(err, want) {
			b.t.Errorf("%s of %s: got %v, want %v", asked, company, err, want)
		}
	}
}

// Contract, section 13: a page key is valid for its company for an hour, on every
// node, and is not stored.
func TestAPageKeyIsGoodForOneCompanyForAnHour(t *testing.T) {
	b := newKeyedHarness(t)
	key := b.pageKey(code)
	b.wantKey(nil, code, key)
	b.wantKey(wire.ErrAPIKeyInvalid, "other", key)
	b.wantKey(wire.ErrAPIKeyInvalid, "nobody", key)
	b.wantKey(wire.ErrAPIKeyInvalid, "nobody", b.pageKey("nobody"))
	b.wantKey(wire.ErrAPIKeyInvalid, code, key, key)
	b.wantKey(wire.ErrAPIKeyInvalid, code, "key", key)
	b.wantKey(wire.ErrAPIKeyInvalid, code, key+" ")
	b.wantKey(wire.ErrAPIKeyMissing, code)
	b.wantKey(nil, code, "key")

	b.pages = false
	b.wantKey(wire.ErrAPIKeyInvalid, code, key)
	b.wantKey(nil, code, "key")
	b.pages = true

	b.clock.advance(time.Minute - time.Microsecond)
	if b.pageKey(code) != key {
		t.Error("within a minute it is another")
	}
	b.clock.advance(time.Microsecond)
	if b.pageKey(code) == key {
		t.Error("it is the same after a minute")
	}
	b.clock.advance(time.Hour - time.Minute - time.Microsecond)
	b.wantKey(nil, code, key)
	b.clock.advance(time.Microsecond)
	b.wantKey(wire.ErrAPIKeyInvalid, code, key)

	b.node().wantKey(nil, code, b.pageKey(code)) // a node accepts the key of another

	b.company.NoAPIKey = true
	b.wantKey(nil, code, key)
}

// A page key that can't be verified is refused. Other keys need no store.
func TestAPageKeyNeedsTheStoresSecret(t *testing.T) {
	b := newKeyedHarness(t)
	key := b.pageKey(code)
	b.Accounts = secretless{b.Accounts}
	b = b.node()
	b.wantKey(wire.ErrUnavailable, code, key)
	b.wantKey(wire.ErrUnavailable, "nobody", key)
	b.wantKey(wire.ErrAPIKeyInvalid, code, "wrong")
	if _, err := b.PageKey(t.Context(), code); !errors.Is(err, wire.ErrUnavailable) {
		t.Errorf("got %v", err)
	}
}
