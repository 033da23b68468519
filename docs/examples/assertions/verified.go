//go:build ignore

// Verifies the assertions of mnemogate, as docs/backends.md describes them.
package main

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"regexp"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/go-jose/go-jose/v4"
)

// identity matches the names of identity headers, in any spelling.
var identity = regexp.MustCompile(`(?i)^x.(profile.*|company.code)$`)

// Verified passes requests on with the user of a valid assertion, and refuses others.
func Verified(next http.Handler) http.Handler {
	// Requests wait for the keys, so they must not wait without limit.
	ctx := oidc.ClientContext(context.Background(), &http.Client{Timeout: 5 * time.Second})
	keys := oidc.NewRemoteKeySet(ctx, "https://api.example.com/acme/v2/jwks.json")
	verifier := oidc.NewVerifier("https://api.example.com/acme", keys,
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

// checkType refuses other JWTs with the same key. The library does not look at the type.
func checkType(assertion string) error {
	signed, err := jose.ParseSigned(assertion, []jose.SignatureAlgorithm{jose.ES256})
	if err == nil && signed.Signatures[0].Header.ExtraHeaders[jose.HeaderType] != "mnemogate+jwt" {
		err = errors.New("not an assertion")
	}
	return err
}
