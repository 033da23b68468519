package integration

import (
	"cmp"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/mnemogate/mnemogate/caddymodule/guest/guesttest"
)

// oddProviders are what providers answer beside or instead of what the standards say, with
// which a login works as before: in the discovery document, among the keys, in the answer of
// the token endpoint and in the ID token.
var oddProviders = map[string]struct {
	document, key, answer, claims fields
	contentType, before           string // of the answer
	alg                           string // of its own key
}{
	"plain":       {},
	"challenge":   {document: fields{"code_challenge_methods_supported": "S256"}},
	"iss":         {document: fields{"authorization_response_iss_parameter_supported": "true"}},
	"methods":     {document: fields{"token_endpoint_auth_methods_supported": "client_secret_post"}},
	"unknown":     {document: fields{"x": []any{fields{}}}, answer: fields{"x": fields{}}, claims: fields{"x": []int{1}}},
	"curve":       {key: fields{"kty": "EC", "crv": "secp256k1", "x": "AA", "y": "AA"}},
	"empty":       {key: fields{"kty": "RSA", "n": "", "e": ""}},
	"certificate": {key: fields{"kty": "RSA", "n": "w7Zdfmec", "e": "AQAB", "x5c": []string{"AAAA"}}},
	"thumbprint":  {key: fields{"kty": "RSA", "n": "w7Zdfmec", "e": "AQAB", "x5t": "padded=="}},
	"null":        {key: fields(nil)},
	"nokty":       {key: fields{"kid": "none"}},
	"kid":         {key: fields{"kty": "RSA", "n": "w7Zdfmec", "e": "AQAB", "kid": 7}},
	"fraction":    {answer: fields{"expires_in": 3599.5}},
	"nothing":     {answer: fields{"expires_in": "", "refresh_token": false, "token_type": nil}},
	"access":      {answer: fields{"access_token": nil, "id_token_expires_in": 3600, "expires_in": nil}},
	"text":        {contentType: "text/plain; charset=utf-8"},
	"mark":        {before: "\ufeff"},
	"emails":      {claims: fields{"email": []string{"alice@example.com"}}},
	"tenant":      {claims: fields{"tid": 7, "azp": 7, "amr": "pwd"}},
	"clock":       {}, // is 30 s ahead
	"audience":    {claims: fields{"aud": []string{"other", "us"}, "azp": "us"}},
	"case":        {claims: fields{"Sub": "bob-there", "\u017fub": "bob-there"}},
	"sources":     {claims: fields{"_claim_names": fields{"groups": []string{"a"}}}},
	"alg":         {alg: "EC"},
	"x5c":         {key: fields{"kty": "oct", "k": "AAAA", "x5c": "no list"}},
}

// A user logs in whatever a provider answers beside what a login needs. What a provider
// answers instead of it, doctor names with what to do.
func TestOddProviders(t *testing.T) {
	t.Parallel()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: key, KeyID: "ours"}}, nil)
	must(t, err)
	var provider *httptest.Server
	with := func(all, odd fields) []byte {
		for name, value := range odd {
			all[name] = value
		}
		text, err := json.Marshal(all)
		must(t, err)
		return text
	}
	provider = guesttest.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name, path, _ := strings.Cut(r.URL.Path[1:], "/")
		odd, issuer := oddProviders[name], provider.URL+"/"+name
		w.Header().Set("Content-Type", "application/json")
		switch {
		case name == "moved":
			http.Redirect(w, r, "/plain/"+path, http.StatusMovedPermanently)
		case name == "page":
			fmt.Fprint(w, "<html>We are back soon.</html>")
		case name == "slash" && path != "keys":
			w.Write(with(fields{"issuer": issuer + "/", "token_endpoint": issuer + "/token", "jwks_uri": issuer + "/keys"}, nil))
		case path == ".well-known/openid-configuration":
			fmt.Fprint(w, odd.before)
			w.Write(with(fields{"issuer": issuer, "authorization_endpoint": issuer + "/authorize", "token_endpoint": issuer + "/token",
				"jwks_uri": issuer + "/keys", "id_token_signing_alg_values_supported": []string{"ES256"}}, odd.document))
		case path == "keys":
			keys := []any{jose.JSONWebKey{Key: key.Public(), KeyID: "ours", Algorithm: cmp.Or(odd.alg, "ES256"), Use: "sig"}}
			if odd.key != nil {
				keys = []any{odd.key, keys[0]}
			}
			if name == "nokeys" {
				keys = []any{fields{"kty": "RSA", "n": "", "e": ""}}
			}
			fmt.Fprint(w, odd.before)
			w.Write(with(fields{"keys": keys}, nil))
		case path == "token" && name == "redirected":
			http.Redirect(w, r, "/plain/token", http.StatusTemporaryRedirect)
		case path == "token":
			if odd.contentType != "" {
				w.Header().Set("Content-Type", odd.contentType)
			}
			now := time.Now()
			switch name {
			case "clock":
				now = now.Add(30 * time.Second)
			case "ahead":
				now = now.Add(10 * time.Minute)
			}
			signed, err := signer.Sign(with(fields{"iss": issuer, "sub": "alice-there", "aud": "us", "iat": now.Unix(), "nbf": now.Unix(), "exp": now.Add(time.Hour).Unix()}, odd.claims))
			must(t, err)
			token, err := signed.CompactSerialize()
			must(t, err)
			fmt.Fprint(w, odd.before)
			w.Write(with(fields{"access_token": "a", "token_type": "Bearer", "expires_in": 60, "id_token": token}, odd.answer))
		default:
			http.NotFound(w, r)
		}
	}))

	const redirect = "https://app.example.com/callback"
	wrong := map[string]string{ // what doctor says
		"moved":  "instead of its discovery document it answered 301",
		"page":   "its discovery document can't be read",
		"slash":  fmt.Sprintf("the document is the issuer's %q, which must be written exactly so", provider.URL+"/slash/"),
		"nokeys": "there are no keys at the document's jwks_uri that can be used",
	}
	var companies strings.Builder
	company := func(name string) {
		fmt.Fprintf(&companies, "company %s {\napi_key %s\n%soauth 1 oidc %s/%[1]s {\nclient_id us\nclient_secret s\nredirect_uri %[5]s\n}\naccount alice {\nidentity 1 alice-there\n}\n}\n",
			name, testKey, roomy, provider.URL, redirect)
	}
	for name := range oddProviders {
		company(name)
	}
	for name := range wrong {
		company(name)
	}
	company("redirected")
	company("ahead")
	s := startSite(t, siteConfig{company: roomy, more: companies.String()})
	login := func(name string) answer {
		return s.postTo(name, testKey, "auth/oauth", "", fields{"provider_id": 1, "code": "of " + name, "redirect_uri": redirect})
	}
	for name := range oddProviders {
		if a := login(name); a.Status != http.StatusOK {
			t.Errorf("%s: %d %s", name, a.Status, a.Body)
		}
	}
	for name := range wrong {
		if a := login(name); a.Status == http.StatusOK {
			t.Errorf("%s: %d %s", name, a.Status, a.Body)
		}
	}
	login("redirected").wantStatus(http.StatusUnauthorized)
	s.tells("the token endpoint answered 307; no redirect is followed")
	login("ahead").wantStatus(http.StatusUnauthorized)
	s.tells("; compare this machine's clock (timedatectl) with the provider's")
	var parts []string
	for name, said := range wrong {
		parts = append(parts, provider.URL+"/"+name+" can't be used: "+said)
	}
	out := s.doctor(1, parts...).out
	if strings.Contains(out, "look at the log of its server, and check that it runs and can be reached from here") {
		t.Errorf("doctor does not say what to do:\n%s", out)
	}
}
