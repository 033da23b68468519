package oauth

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/mnemogate/mnemogate/caddymodule/guest/guesttest"
	"github.com/mnemogate/mnemogate/flows/wire"
	"github.com/mnemogate/mnemogate/store/storetest"
)

const document = "/.well-known/openid-configuration"

// change changes the issuer between two requests.
func (f *fakeIssuer) change(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.spent = false
	change()
}

// elsewhere is the issuer's token endpoint at another address.
func (f *fakeIssuer) elsewhere(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	f.token(w, r)
}

// A provider changes what it says in its document, and its keys. The next login already
// follows, with the code that it has, and sends it to no endpoint twice.
func TestOIDCFollowsWhatAProviderChanges(t *testing.T) {
	moves := func(field, to string) func(map[string]any) {
		return func(doc map[string]any) { doc[field] = doc["issuer"].(string) + to }
	}
	for name, c := range map[string]struct {
		before func(doc map[string]any)
		change func(f *fakeIssuer)
	}{
		"algorithm": {
			func(doc map[string]any) { doc["id_token_signing_alg_values_supported"] = []string{"RS256"} },
			func(f *fakeIssuer) {
				f.alg, f.kid = "ES256", "ES256"
				f.discovery = func(doc map[string]any) { doc["id_token_signing_alg_values_supported"] = []string{"ES256"} }
			},
		},
		"new key": {nil, func(f *fakeIssuer) {
			f.alg, f.kid, f.handlers["/keys"] = "ES256", "new", keysOf("ES256", "new")
		}},
		"another key with the same id": {nil, func(f *fakeIssuer) {
			f.alg, f.handlers["/keys"] = "ES256", keysOf("ES256", "RS256")
		}},
		"address of the keys": {nil, func(f *fakeIssuer) {
			f.alg, f.kid = "ES256", "new"
			f.handlers["/keys"], f.handlers["/new/keys"] = guesttest.Answering(410, ""), keysOf("ES256", "new")
			f.discovery = moves("jwks_uri", "/new/keys")
		}},
		"address of the keys, without the old server": {moves("jwks_uri", "/broken/keys"), func(f *fakeIssuer) {
			f.alg, f.kid = "ES256", "new"
			f.handlers["/broken/keys"], f.handlers["/new/keys"] = guesttest.Raw(""), keysOf("ES256", "new")
			f.discovery = moves("jwks_uri", "/new/keys")
		}},
		"token endpoint, 404": {nil, func(f *fakeIssuer) {
			f.handlers["/token"] = guesttest.Answering(404, "")
			f.discovery = moves("token_endpoint", "/new/token")
		}},
		"token endpoint, 410": {nil, func(f *fakeIssuer) {
			f.handlers["/token"] = guesttest.Answering(410, "")
			f.discovery = moves("token_endpoint", "/new/token")
		}},
		"token endpoint, redirected": {nil, func(f *fakeIssuer) {
			f.handlers["/token"] = func(w http.ResponseWriter, r *http.Request) {
				http.Redirect(w, r, "/elsewhere", http.StatusPermanentRedirect)
			}
			f.discovery = moves("token_endpoint", "/new/token")
		}},
		"token endpoint, without the old server": {func(doc map[string]any) { doc["token_endpoint"] = "http://127.0.0.1:1/token" }, func(f *fakeIssuer) {
			f.discovery = moves("token_endpoint", "/new/token")
		}},
		"userinfo, 410": {moves("userinfo_endpoint", "/old"), func(f *fakeIssuer) {
			delete(f.claims, "email")
			f.handlers["/old"] = guesttest.Answering(410, "")
			f.discovery = moves("userinfo_endpoint", "/new/userinfo")
		}},
		"userinfo, without the old server": {func(doc map[string]any) { doc["userinfo_endpoint"] = "http://127.0.0.1:1/" }, func(f *fakeIssuer) {
			delete(f.claims, "email")
			f.discovery = moves("userinfo_endpoint", "/new/userinfo")
		}},
		"how the secret is sent":                {nil, takesPost("invalid_client")},
		"how the secret is sent, as Auth0 does": {nil, takesPost("access_denied")},
	} {
		t.Run(name, func(t *testing.T) {
			storetest.InQuiet(t, 20*time.Millisecond, func() error {
				f := newIssuer(t)
				f.handlers["/elsewhere"] = func(http.ResponseWriter, *http.Request) { t.Error("the redirect was followed") }
				f.handlers["/new/token"] = f.elsewhere
				if c.before != nil {
					f.discovery = c.before
				}
				f.handlers["/broken/keys"] = keysOf("RS256", "RS256")
				f.handlers["/new/userinfo"] = guesttest.Answering(200, `{"sub":"user-1","email":"ana@example.com","email_verified":true}`)
				p := f.client(t)
				p.LinkVerifiedEmail = true
				now := time.Now()
				p.now = func() time.Time { return now }
				if _, err := p.Exchange(t.Context(), grant); err != nil && !strings.HasSuffix(name, "server") {
					t.Fatal(err)
				}
				now = now.Add(askAgain)
				time.Sleep(50 * time.Millisecond) // until its goroutine has ended, go-oidc repeats the keys that it has fetched
				f.change(func() { c.change(f) })
				user, err := p.Exchange(t.Context(), grant)
				if err != nil || user.Subject != "user-1" || !user.EmailVerified || f.requests["/new/token"] > 1 {
					return fmt.Errorf("got %+v, %v, with %v", user, err, f.requests)
				}
				return nil
			})
		})
	}
}

// takesPost is the change of a provider that takes the secret in the body from now on, and
// answers this error to others.
func takesPost(code string) func(*fakeIssuer) {
	return func(f *fakeIssuer) {
		f.handlers["/token"] = func(w http.ResponseWriter, r *http.Request) {
			if r.FormValue("client_secret") == "" {
				guesttest.Answering(401, `{"error":"`+code+`"}`)(w, r)
				return
			}
			f.elsewhere(w, r)
		}
		f.discovery = func(doc map[string]any) {
			doc["token_endpoint_auth_methods_supported"] = []string{"client_secret_post"}
		}
	}
}

// keysOf answers one key, under an id.
func keysOf(alg, kid string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		json.NewEncoder(w).Encode(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: testKeys()[alg].Public(), KeyID: kid, Algorithm: alg, Use: "sig"}}})
	}
}

// A key that a provider has withdrawn, perhaps because it was stolen, is forgotten within
// a day, although no other key id makes anybody ask.
func TestOIDCForgetsAWithdrawnKey(t *testing.T) {
	f := newIssuer(t)
	p := f.client(t)
	now := time.Now()
	p.now = func() time.Time { return now }
	if _, err := p.Exchange(t.Context(), grant); err != nil {
		t.Fatal(err)
	}
	f.change(func() { f.handlers["/keys"] = keysOf("ES256", "ES256") })
	now = now.Add(24 * time.Hour)
	f.claims["iat"], f.claims["exp"] = now.Unix(), now.Add(time.Hour).Unix()
	if _, err := p.Exchange(t.Context(), grant); !errors.Is(err, wire.ErrOAuthFailed) {
		t.Errorf("got %v", err)
	}
}

// However many ID tokens with unknown keys come, each document is fetched once in some
// seconds.
func TestOIDCAsksOnceWhateverComes(t *testing.T) {
	f := newIssuer(t)
	f.handlers["/token"] = func(w http.ResponseWriter, r *http.Request) {
		f.change(func() {})
		f.elsewhere(w, r)
	}
	p := f.client(t)
	now := time.Now()
	p.now = func() time.Time { return now }
	for round := 1; round <= 2; round++ {
		f.change(func() { f.kid = "unknown" })
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				if _, err := p.Exchange(t.Context(), grant); !errors.Is(err, wire.ErrOAuthFailed) {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		for range 5 {
			if _, err := p.Exchange(t.Context(), grant); !errors.Is(err, wire.ErrOAuthFailed) {
				t.Error(err)
			}
		}
		if f.requests["/keys"] != round || f.requests[document] != round {
			t.Errorf("round %d: got %v", round, f.requests)
		}
		now = now.Add(askAgain)
	}
	f.change(func() { f.kid = "RS256" })
	if _, err := p.Exchange(t.Context(), grant); err != nil {
		t.Errorf("a known key: %v", err)
	}
}

// A document is read again by its age. A provider that then fails, or says that it is
// another one, changes nothing.
func TestOIDCReadsTheDocumentAgain(t *testing.T) {
	f := newIssuer(t)
	p := f.client(t)
	now := time.Now()
	p.now = func() time.Time { return now }
	starts := func() string {
		t.Helper()
		start, err := p.Start(t.Context())
		if err != nil {
			t.Error(err)
		}
		return strings.TrimPrefix(start.URL, f.URL)
	}
	logsIn := func(reads int) {
		t.Helper()
		f.change(func() { f.claims["iat"], f.claims["exp"] = time.Now().Unix(), now.Add(time.Hour).Unix() })
		if _, err := p.Exchange(t.Context(), grant); err != nil || f.requests[document] != reads {
			t.Errorf("got %v, with %d reads, want %d", err, f.requests[document], reads)
		}
	}
	logsIn(1)
	now = now.Add(24*time.Hour - time.Second)
	logsIn(1)
	now = now.Add(time.Second)
	logsIn(2)
	f.change(func() { f.discovery = func(doc map[string]any) { doc["authorization_endpoint"] = f.URL + "/new" } })
	now = now.Add(time.Minute - time.Second)
	if got := starts(); got != "/auth" || f.requests[document] != 2 {
		t.Errorf("got %s, with %v", got, f.requests)
	}
	now = now.Add(time.Second)
	if got := starts(); got != "/new" || f.requests[document] != 3 {
		t.Errorf("got %s, with %v", got, f.requests)
	}
	for i, bad := range []func(){
		func() { f.handlers[document] = guesttest.Answering(503, "") },
		func() { f.handlers[document] = guesttest.Answering(200, `{}`) },
		func() {
			delete(f.handlers, document)
			f.discovery = func(doc map[string]any) { doc["issuer"] = "https://evil.example" }
		},
	} {
		now = now.Add(48 * time.Hour)
		f.change(bad)
		for range 3 {
			if got := starts(); got != "/new" {
				t.Errorf("got %s", got)
			}
		}
		logsIn(4 + i)
	}
}

// Apple's document had another name for its issuer for a day, while its ID tokens kept the old
// one. Nobody else's name counts.
func TestOIDCKnowsBothNamesOfApple(t *testing.T) {
	for _, c := range []struct {
		issuer, document, token string
		ok                      bool
	}{
		{apple, apple, apple, true},
		{apple, appleAlso, apple, true},
		{apple, apple, appleAlso, true},
		{apple, apple, "https://evil.example", false},
		{apple, "https://evil.example", apple, false},
		{"https://id.example", "https://id.example", appleAlso, false},
		{"https://id.example", appleAlso, "https://id.example", false},
	} {
		f := newIssuer(t)
		f.claims["iss"] = c.token
		f.discovery = func(doc map[string]any) { doc["issuer"] = c.document }
		client := us
		client.Insecure = true // for the other addresses of the document
		p := guesttest.MustStart(t, &OIDC{Issuer: c.issuer, oauthClient: client})
		p.client.Transport = roundTripper(func(r *http.Request) (*http.Response, error) {
			if "https://"+r.URL.Host == c.issuer {
				r.URL.Scheme, r.URL.Host = "http", strings.TrimPrefix(f.URL, "http://")
			}
			return http.DefaultTransport.RoundTrip(r)
		})
		if user, err := p.Exchange(t.Context(), grant); (err == nil) != c.ok || (user.Subject != "") != c.ok {
			t.Errorf("%v: got %+v, %v", c, user, err)
		}
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
