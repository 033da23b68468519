//go:build ignore

// Verifies the assertions of mnemogate, as docs/backends.md describes them.
package main

import (
	"context"
	"net/http"
	"strings"

	"github.com/coreos/go-oidc/v3/oidc"
)

// Verified passes requests on with the user of a valid assertion, and refuses others.
func Verified(next http.Handler) http.Handler {
	keys := oidc.NewRemoteKeySet(context.Background(), "https://api.example.com/acme/v2/jwks.json")
	verifier := oidc.NewVerifier("https://api.example.com/acme", keys,
		&oidc.Config{ClientID: "profile-api", SupportedSigningAlgs: []string{"ES256"}})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		claims, err := verifier.Verify(r.Context(), r.Header.Get("X-Mnemogate-Assertion"))
		var more struct{ Company string }
		if err == nil {
			err = claims.Claims(&more)
		}
		if err != nil {
			http.Error(w, "no valid assertion", http.StatusForbidden)
			return
		}
		for name := range r.Header { // those who come past mnemogate can forge the others
			if strings.HasPrefix(name, "X-Profile-") {
				r.Header.Del(name)
			}
		}
		r.Header.Set("X-Profile-Mnemocode", claims.Subject)
		r.Header.Set("X-Company-Code", more.Company)
		next.ServeHTTP(w, r)
	})
}
