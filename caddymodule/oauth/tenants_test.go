package oauth

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/mnemogate/mnemogate/caddymodule/guest/guesttest"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/wire"
)

const (
	ours     = "11111111-2222-3333-4444-555555555555"
	theirs   = "99999999-2222-3333-4444-555555555555"
	personal = "9188040d-6c67-4c5b-b112-36a304b66dad"
)

// Each of Microsoft's spellings of an issuer that stands for many tenants is refused
// without tenants, and tenants for anything else.
func TestAnIssuerOfManyTenantsNamesThem(t *testing.T) {
	provider := func(issuer string, tenants ...string) *OIDC {
		return &OIDC{Issuer: issuer, Tenants: tenants, oauthClient: us}
	}
	const microsoft = "https://login.microsoftonline.com/"
	linking := provider(microsoft+"common/v2.0", ours)
	linking.LinkVerifiedEmail = true
	for want, bad := range map[string][]*OIDC{
		"tenants is missing": {
			provider(microsoft + "common/v2.0"), provider(microsoft + "organizations/v2.0"), provider(microsoft + "consumers/v2.0"),
			provider(microsoft + "common"), provider(microsoft + "{tenantid}/v2.0"), provider("https://sts.windows.net/{tenantid}/"),
			provider("https://login.microsoftonline.us/organizations/v2.0"), provider("https://login.partner.microsoftonline.cn/common/v2.0"),
		},
		"tenants: this issuer is that of one tenant": {provider(microsoft+ours+"/v2.0", ours), provider("https://id.example", anyTenant)},
		"is not a tenant's id": {
			provider(microsoft+"common/v2.0", "example.onmicrosoft.com"), provider(microsoft+"common/v2.0", ours, anyTenant), provider(microsoft+"common/v2.0", ""),
		},
		"the list is empty":   {provider(microsoft+"common/v2.0", []string{}...)},
		"link_verified_email": {linking},
	} {
		for _, p := range bad {
			if err := guesttest.Start(t, p); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s %v: got %v, want %s", p.Issuer, p.Tenants, err, want)
			}
		}
	}
	for _, good := range []*OIDC{
		provider(microsoft + ours + "/v2.0"), provider("https://id.example/common"),
		provider(microsoft+"common/v2.0", anyTenant), provider("https://sts.windows.net/{tenantid}/", ours, theirs),
	} {
		guesttest.MustStart(t, good)
	}
}

// An ID token must be that of a tenant whose users may log in, and of no other in any
// place. The subjects of two tenants are never confused, since the issuer signs for both.
func TestOIDCOfManyTenants(t *testing.T) {
	for _, spelling := range []string{"/common/v2.0", "/organizations/v2.0", "/{tenantid}/v2.0", "/consumers/v2.0"} {
		for name, c := range map[string]struct {
			tenants  []string
			iss, tid string
			fault    error // nil for a login
		}{
			"any":               {[]string{anyTenant}, theirs, theirs, nil},
			"one of those":      {[]string{ours, theirs}, theirs, theirs, nil},
			"another":           {[]string{ours}, theirs, theirs, wire.ErrOAuthFailed},
			"tid of another":    {[]string{ours}, theirs, ours, tenant.ErrProviderFault},
			"issuer of another": {[]string{ours}, ours, theirs, tenant.ErrProviderFault},
			"any, differing":    {[]string{anyTenant}, ours, theirs, tenant.ErrProviderFault},
			"no tid":            {[]string{anyTenant}, theirs, "", tenant.ErrProviderFault},
			"the placeholder":   {[]string{anyTenant}, tenantID, tenantID, tenant.ErrProviderFault},
			"the word":          {[]string{anyTenant}, "common", "common", tenant.ErrProviderFault},
			"more than an id":   {[]string{anyTenant}, ours + "/x", ours + "/x", tenant.ErrProviderFault},
		} {
			t.Run(name+spelling, func(t *testing.T) {
				f := newIssuer(t)
				word := strings.Split(strings.Replace(spelling, tenantID, "common", 1), "/")[1]
				said := tenantID
				if word == "consumers" { // as Microsoft does
					said = personal
				}
				f.handlers["/"+word+"/v2.0"+document] = func(w http.ResponseWriter, r *http.Request) {
					r.URL.Path = document
					f.ServeHTTP(w, r)
				}
				f.discovery = func(doc map[string]any) { doc["issuer"] = f.URL + "/" + said + "/v2.0" }
				maps.Copy(f.claims, map[string]any{"iss": f.URL + "/" + c.iss + "/v2.0", "tid": c.tid})
				p := guesttest.MustStart(t, &OIDC{Issuer: f.URL + spelling, Tenants: c.tenants, oauthClient: us})
				user, err := p.Exchange(t.Context(), grant)
				if (err == nil) != (c.fault == nil) || !errors.Is(err, c.fault) || (user.Subject != "") != (err == nil) || c.fault == wire.ErrOAuthFailed && errors.Is(err, tenant.ErrProviderFault) {
					t.Errorf("got %+v, %v", user, err)
				}
				if start, err := p.Start(t.Context()); err != nil || start.Issuer != "" || start.Iss {
					t.Errorf("a client is told %+v, %v", start, err)
				}
			})
		}
	}
	f := newIssuer(t)
	f.handlers["/common/v2.0"+document] = guesttest.Answering(200, `{"issuer":"https://evil.example/{tenantid}/v2.0"}`)
	p := guesttest.MustStart(t, &OIDC{Issuer: f.URL + "/common/v2.0", Tenants: []string{anyTenant}, oauthClient: us})
	if _, err := p.Exchange(t.Context(), grant); err == nil || !strings.Contains(err.Error(), "which must be written exactly so") {
		t.Errorf("the document of another issuer: %v", err)
	}
}

// A key of Microsoft that names its issuer counts for that one alone (RFC 8725, section 3.8),
// even if another key has its kid.
func TestOIDCAKeyCountsForItsIssuer(t *testing.T) {
	for name, c := range map[string]struct {
		issuer any // of the key that signs; nil: it names none
		kid    string
		ok     bool
	}{
		"none":           {nil, "RS256", true},
		"any tenant":     {"/" + tenantID + "/v2.0", "RS256", true},
		"its tenant":     {"/" + ours + "/v2.0", "RS256", true},
		"another tenant": {"/" + personal + "/v2.0", "RS256", false},
		"one kid":        {"/" + personal + "/v2.0", "", false},
		"no text":        {1, "RS256", false},
	} {
		t.Run(name, func(t *testing.T) {
			f := newIssuer(t)
			f.kid = c.kid
			f.handlers["/common/v2.0"+document] = func(w http.ResponseWriter, r *http.Request) {
				r.URL.Path = document
				f.ServeHTTP(w, r)
			}
			f.handlers["/keys"] = func(w http.ResponseWriter, _ *http.Request) {
				var keys []map[string]any
				for alg, key := range testKeys() {
					var members map[string]any
					text, _ := jose.JSONWebKey{Key: key.Public(), KeyID: cmp.Or(c.kid, "same")}.MarshalJSON()
					json.Unmarshal(text, &members)
					if path, ok := c.issuer.(string); ok && alg == f.alg {
						members["issuer"] = f.URL + path
					} else if alg == f.alg && c.issuer != nil {
						members["issuer"] = c.issuer
					}
					keys = append(keys, members)
				}
				json.NewEncoder(w).Encode(map[string]any{"keys": keys})
			}
			f.discovery = func(doc map[string]any) { doc["issuer"] = f.URL + "/" + tenantID + "/v2.0" }
			maps.Copy(f.claims, map[string]any{"iss": f.URL + "/" + ours + "/v2.0", "tid": ours})
			p := guesttest.MustStart(t, &OIDC{Issuer: f.URL + "/common/v2.0", Tenants: []string{anyTenant}, oauthClient: us})
			if user, err := p.Exchange(t.Context(), grant); (err == nil) != c.ok || !c.ok && !strings.Contains(err.Error(), "a key of another issuer") {
				t.Errorf("got %+v, %v", user, err)
			}
		})
	}
}

// doctor finds what would fail a login, whatever an earlier login has found.
func TestOIDCCheckFindsWhatALoginNeeds(t *testing.T) {
	for want, change := range map[string]func(*fakeIssuer){
		"": func(*fakeIssuer) {},
		"document it answered 404; check that the issuer": func(f *fakeIssuer) { f.handlers[document] = guesttest.Answering(404, "") },
		"document it answered 301; no redirect is followed": func(f *fakeIssuer) {
			f.handlers[document] = func(w http.ResponseWriter, r *http.Request) {
				http.Redirect(w, r, "/elsewhere", http.StatusMovedPermanently)
			}
		},
		"its discovery document can't be read": func(f *fakeIssuer) { f.handlers[document] = guesttest.Answering(200, "<html>") },
		"its answer is too large":              func(f *fakeIssuer) { f.handlers[document] = huge },
		"written exactly so":                   func(f *fakeIssuer) { f.discovery = func(doc map[string]any) { doc["issuer"] = "https://id.example" } },
		"jwks_uri is missing":                  func(f *fakeIssuer) { f.discovery = func(doc map[string]any) { delete(doc, "jwks_uri") } },
		"authorization_endpoint":               func(f *fakeIssuer) { f.discovery = func(doc map[string]any) { delete(doc, "authorization_endpoint") } },
		"with none of RS256": func(f *fakeIssuer) {
			f.discovery = func(doc map[string]any) { doc["id_token_signing_alg_values_supported"] = []string{"HS256"} }
		},
		"there are no keys": func(f *fakeIssuer) { f.handlers["/keys"] = guesttest.Answering(200, `{"keys":[]}`) },
		"that can be used": func(f *fakeIssuer) {
			f.handlers["/keys"] = guesttest.Answering(200, `{"keys":[{"kty":"RSA","n":"","e":""},{"kty":"EC","crv":"secp256k1","x":"AA","y":"AA"}]}`)
		},
		"it answered 503": func(f *fakeIssuer) { f.handlers["/keys"] = guesttest.Answering(503, "") },
	} {
		f := newIssuer(t)
		p := f.client(t)
		now := time.Now()
		p.now = func() time.Time { return now }
		if _, err := p.Exchange(t.Context(), grant); err != nil {
			t.Fatal(err)
		}
		now = now.Add(askAgain)
		f.change(func() { change(f) })
		what, check := p.Check()
		if err := check(context.Background()); what != f.URL || (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// A token's signature is tried with each key of its kid, so a provider must not send any number.
func TestOIDCTakesAHundredKeys(t *testing.T) {
	key, err := json.Marshal(jose.JSONWebKey{Key: testKeys()["ES256"].Public(), KeyID: "k"})
	if err != nil {
		t.Fatal(err)
	}
	var set jose.JSONWebKeySet
	text := `{"keys":[` + strings.Repeat(string(key)+",", 1400) + string(key) + `]}`
	if err := json.Unmarshal(new(keySet).usable([]byte(text)), &set); err != nil || len(set.Keys) != 100 {
		t.Errorf("got %d keys, %v", len(set.Keys), err)
	}
}
