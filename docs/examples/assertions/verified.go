//go:build ignore

// Verifies the assertions of mnemogate, as docs/backends.md describes them.
package main

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/go-jose/go-jose/v4"
)

// identity matches the names of identity headers and of the assertion, in any spelling.
var identity = regexp.MustCompile(`(?i)^x.(profile.*|company.code|mnemogate.assertion)$`)

// Verified passes requests on with the user of a valid assertion, and refuses others.
func Verified(next http.Handler) http.Handler {
	// Requests wait for the keys, so they must not wait without limit.
	ctx := oidc.ClientContext(context.Background(), &http.Client{Timeout: 5 * time.Second})
	verifier := oidc.NewVerifier("https://api.example.com/acme", &keySet{ctx: ctx},
		&oidc.Config{ClientID: "profile-api", SupportedSigningAlgs: []string{"ES256"}})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		assertion := r.Header.Get("X-Mnemogate-Assertion")
		claims, err := verifier.Verify(r.Context(), assertion)
		var more struct {
			Company string
			Act     struct{ Sub string } // who acts as the user
		}
		if err == nil {
			err = errors.Join(checkType(assertion), claims.Claims(&more))
		}
		if err != nil && strings.Contains(err.Error(), "fetching keys") { // the library has no type for it
			http.Error(w, "the keys can't be loaded", http.StatusServiceUnavailable)
			return
		}
		if err != nil || more.Company != "acme" {
			http.Error(w, "no valid assertion", http.StatusForbidden)
			return
		}
		for name := range r.Header { // those who come past mnemogate can forge the others
			if identity.MatchString(name) {
				delete(r.Header, name)
			}
		}
		r.Header.Set("X-Profile-Mnemocode", claims.Subject)
		r.Header.Set("X-Company-Code", more.Company)
		if more.Act.Sub != "" {
			r.Header.Set("X-Profile-Actor", url.PathEscape(more.Act.Sub))
		}
		next.ServeHTTP(w, r)
	})
}

// A keySet loads the keys again after five minutes. RemoteKeySet alone keeps a key that was
// withdrawn, for example because it had leaked.
type keySet struct {
	ctx    context.Context
	mu     sync.Mutex
	keys   oidc.KeySet
	loaded time.Time
}

func (s *keySet) VerifySignature(ctx context.Context, assertion string) ([]byte, error) {
	s.mu.Lock()
	if now := time.Now(); now.Sub(s.loaded) > 5*time.Minute {
		s.keys, s.loaded = oidc.NewRemoteKeySet(s.ctx, "https://api.example.com/acme/v2/jwks.json"), now
	}
	keys := s.keys
	s.mu.Unlock()
	return keys.VerifySignature(ctx, assertion)
}

// checkType refuses other JWTs with the same key. The library does not look at the type.
func checkType(assertion string) error {
	signed, err := jose.ParseSigned(assertion, []jose.SignatureAlgorithm{jose.ES256})
	if err == nil && signed.Signatures[0].Header.ExtraHeaders[jose.HeaderType] != "mnemogate+jwt" {
		err = errors.New("not an assertion")
	}
	return err
}
