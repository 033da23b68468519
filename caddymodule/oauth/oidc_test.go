package oauth

import (
	"cmp"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/go-jose/go-jose/v4"

	"github.com/mnemogate/mnemogate/caddymodule/guest"
	"github.com/mnemogate/mnemogate/caddymodule/guest/guesttest"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/wire"
	"github.com/mnemogate/mnemogate/store/causes"
	"github.com/mnemogate/mnemogate/store/storetest"
)

// testKeys are made once: RSA keys take their time.
var testKeys = sync.OnceValue(func() map[string]crypto.Signer {
	r, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		panic(err)
	}
	e, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	return map[string]crypto.Signer{"RS256": r, "ES256": e}
})

// fakeIssuer is an OpenID provider. Its answers can be changed one by one.
type fakeIssuer struct {
	*httptest.Server
	alg       string
	kid       string
	claims    map[string]any
	idToken   func(signed string) string
	discovery func(map[string]any)
	handlers  map[string]http.HandlerFunc // by path, instead of its own

	mu       sync.Mutex
	requests map[string]int
	form     url.Values
	auth     string
	spent    bool
}

func newIssuer(t testing.TB) *fakeIssuer {
	f := &fakeIssuer{alg: "RS256", kid: "RS256", requests: map[string]int{}, handlers: map[string]http.HandlerFunc{}}
	f.Server = httptest.NewServer(f)
	t.Cleanup(f.Close)
	now := time.Now().Unix()
	f.claims = map[string]any{"iss": f.URL, "aud": "me", "sub": "user-1", "exp": now + 300, "iat": now, "nonce": "n-1",
		"email": "ana@example.com", "email_verified": true}
	return f
}

// client is an OIDC module for the issuer.
func (f *fakeIssuer) client(t *testing.T) *OIDC {
	t.Helper()
	c := us
	c.Timeout = caddy.Duration(20 * time.Second)
	return guesttest.MustStart(t, &OIDC{Issuer: f.URL, oauthClient: c})
}

func (f *fakeIssuer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	f.requests[r.URL.Path]++
	other := f.handlers[r.URL.Path]
	f.mu.Unlock()
	if other != nil {
		other(w, r)
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	switch r.URL.Path {
	case "/.well-known/openid-configuration":
		doc := map[string]any{"issuer": f.URL, "authorization_endpoint": f.URL + "/auth", "token_endpoint": f.URL + "/token",
			"jwks_uri": f.URL + "/keys", "id_token_signing_alg_values_supported": []string{"RS256", "ES256", "none", "HS256"}}
		if f.discovery != nil {
			f.discovery(doc)
		}
		json.NewEncoder(w).Encode(doc)
	case "/keys":
		var set jose.JSONWebKeySet
		for alg, key := range testKeys() {
			set.Keys = append(set.Keys, jose.JSONWebKey{Key: key.Public(), KeyID: alg, Algorithm: alg, Use: "sig"})
		}
		json.NewEncoder(w).Encode(set)
	case "/token":
		f.token(w, r)
	default:
		w.WriteHeader(404)
	}
}

// token gives tokens for a code once.
func (f *fakeIssuer) token(w http.ResponseWriter, r *http.Request) {
	r.ParseForm()
	f.form, f.auth = r.PostForm, r.Header.Get("Authorization")
	if f.spent || r.PostForm.Get("code") != grant.Code {
		w.WriteHeader(400)
		json.NewEncoder(w).Encode(map[string]any{"error": "invalid_grant", "error_description": r.PostForm.Get("code")})
		return
	}
	f.spent = true
	signed := sign(f.alg, f.kid, f.claims)
	if f.idToken != nil {
		signed = f.idToken(signed)
	}
	json.NewEncoder(w).Encode(map[string]any{"access_token": "hidden-access", "token_type": "Bearer", "expires_in": 60, "id_token": signed})
}

func sign(alg, kid string, claims map[string]any) string {
	payload, err := json.Marshal(claims)
	if err != nil {
		panic(err)
	}
	key := jose.SigningKey{Algorithm: jose.SignatureAlgorithm(alg), Key: jose.JSONWebKey{Key: any(testKeys()[alg]), KeyID: kid}}
	if alg == "HS256" { // with the public key for a secret, as in the well-known attack
		key.Key = testKeys()["RS256"].Public().(*rsa.PublicKey).N.Bytes()
	}
	signer, err := jose.NewSigner(key, nil)
	if err != nil {
		panic(err)
	}
	jws, err := signer.Sign(payload)
	if err != nil {
		panic(err)
	}
	compact, err := jws.CompactSerialize()
	if err != nil {
		panic(err)
	}
	return compact
}

func TestOIDCLogsIn(t *testing.T) {
	for _, alg := range []string{"RS256", "ES256"} {
		t.Run(alg, func(t *testing.T) {
			f := newIssuer(t)
			f.alg, f.kid = alg, alg
			p := f.client(t)
			user, err := p.Exchange(t.Context(), grant)
			if want := (tenant.OAuthUser{Subject: "user-1", Email: "ana@example.com", EmailVerified: true}); user != want || err != nil {
				t.Errorf("got %+v, %v, want %+v", user, err, want)
			}
			want := url.Values{"grant_type": {"authorization_code"}, "code": {grant.Code}, "redirect_uri": {grant.RedirectURI}, "code_verifier": {grant.CodeVerifier}}
			if f.form.Encode() != want.Encode() || f.auth != "Basic "+base64.StdEncoding.EncodeToString([]byte("me:hidden-secret")) {
				t.Errorf("sent %v, %s", f.form, f.auth)
			}
			if _, err := p.Exchange(t.Context(), grant); !errors.Is(err, wire.ErrOAuthFailed) || !strings.Contains(err.Error(), "invalid_grant") {
				t.Errorf("the code again: %v", err)
			} else {
				guesttest.NoSecrets(t, err, "hidden")
			}
			if want := map[string]int{"/.well-known/openid-configuration": 1, "/keys": 1, "/token": 2}; !maps.Equal(f.requests, want) {
				t.Errorf("got %v, want %v", f.requests, want)
			}
		})
	}
}

func TestOIDCSendsTheSecretAsTheProviderTakesIt(t *testing.T) {
	for name, c := range map[string]struct {
		methods []string
		secret  string
		inBody  bool
		fails   bool
	}{
		"basic":       {[]string{"client_secret_post", "client_secret_basic"}, "s", false, false},
		"post":        {[]string{"private_key_jwt", "client_secret_post"}, "s", true, false},
		"default":     {nil, "s", false, false},
		"public":      {[]string{"client_secret_basic", "none"}, "", true, false},
		"unsupported": {[]string{"private_key_jwt"}, "s", false, true},
	} {
		t.Run(name, func(t *testing.T) {
			f := newIssuer(t)
			if c.methods != nil {
				f.discovery = func(doc map[string]any) { doc["token_endpoint_auth_methods_supported"] = c.methods }
			}
			p := f.client(t)
			p.ClientSecret = c.secret
			_, err := p.Exchange(t.Context(), grant)
			if (err != nil) != c.fails || errors.Is(err, wire.ErrOAuthFailed) {
				t.Fatal(err)
			}
			if c.fails {
				return
			}
			if inBody := f.form.Get("client_id") == "me" && f.form.Get("client_secret") == c.secret; inBody != c.inBody || (f.auth == "") != c.inBody {
				t.Errorf("sent %v, %s", f.form, f.auth)
			}
			if f.requests["/token"] != 1 {
				t.Errorf("the code was sent %d times", f.requests["/token"])
			}
		})
	}
}

func TestOIDCClaims(t *testing.T) {
	now := time.Now().Unix()
	for name, c := range map[string]struct {
		claims map[string]any // nil: left out
		want   string         // of the error; empty for none
		email  bool           // is there, and verified
	}{
		"all right":             {nil, "", true},
		"verified as a string":  {map[string]any{"email_verified": "true"}, "", true},
		"not verified":          {map[string]any{"email_verified": false}, "", false},
		"not, as a string":      {map[string]any{"email_verified": "false"}, "", false},
		"verified as a number":  {map[string]any{"email_verified": 1}, "", false},
		"verified unknown":      {map[string]any{"email_verified": nil}, "", false},
		"no email":              {map[string]any{"email": nil}, "", false},
		"email that is none":    {map[string]any{"email": "a\u0000@b"}, "", false},
		"email of another type": {map[string]any{"email": []string{"ana@example.com"}}, "", false},
		"azp of another type":   {map[string]any{"azp": 1}, "", true},
		"of several, too":       {map[string]any{"aud": []string{"x", "me"}, "azp": []string{"me"}}, "azp", false},
		"tid of another type":   {map[string]any{"tid": 1}, "", true},
		"several audiences":     {map[string]any{"aud": []string{"x", "me"}, "azp": "me"}, "", true},
		"no azp":                {map[string]any{"aud": []string{"x", "me"}}, "azp", false},
		"another azp":           {map[string]any{"aud": []string{"x", "me"}, "azp": "x"}, "azp", false},
		"wrong aud":             {map[string]any{"aud": "you"}, "audience", false},
		"no aud":                {map[string]any{"aud": nil}, "audience", false},
		"wrong iss":             {map[string]any{"iss": "https://evil.example"}, "issued by", false},
		"no iss":                {map[string]any{"iss": nil}, "issued by", false},
		"iss with slash":        {map[string]any{"iss": "+/"}, "issued by", false},
		"expired":               {map[string]any{"exp": now - 1}, "expired", false},
		"no exp":                {map[string]any{"exp": nil}, "expired", false},
		"no iat":                {map[string]any{"iat": nil}, "iat", false},
		"iat in the future":     {map[string]any{"iat": now + 3600}, "iat", false},
		"clock skew":            {map[string]any{"iat": now + 60}, "", true},
		"nbf in the future":     {map[string]any{"nbf": now + 3600}, "nbf", false},
		"wrong nonce":           {map[string]any{"nonce": "n-2"}, "nonce", false},
		"no nonce":              {map[string]any{"nonce": nil}, "nonce", false},
		"empty nonce":           {map[string]any{"nonce": ""}, "nonce", false},
		"no sub":                {map[string]any{"sub": nil}, "can't be kept", false},
		"NUL in sub":            {map[string]any{"sub": "a\u0000"}, "can't be kept", false},
		"long sub":              {map[string]any{"sub": strings.Repeat("x", 256)}, "can't be kept", false},
		"numeric sub":           {map[string]any{"sub": 1}, "ID token", false},
		"another Sub":           {map[string]any{"Sub": "user-2", "\u017fub": "user-3"}, "", true},
		"no sub, but a Sub":     {map[string]any{"sub": nil, "Sub": "user-1"}, "can't be kept", false},
		"another Email":         {map[string]any{"email": nil, "eMail": "ben@example.com"}, "", false},
		"other names of others": {map[string]any{"_claim_names": map[string]any{"groups": []string{"a"}}, "ISS": 1, "NBF": now + 3600, "at_hash": 1}, "", true},
		"echo":                  {map[string]any{"iss": "hidden-code\nhidden-verifier hidden-secret"}, "issued by", false},
	} {
		t.Run(name, func(t *testing.T) {
			f := newIssuer(t)
			for claim, value := range c.claims {
				if value == "+/" {
					value = f.URL + "/"
				}
				f.claims[claim] = value
				if value == nil {
					delete(f.claims, claim)
				}
			}
			user, err := f.client(t).Exchange(t.Context(), grant)
			if c.want == "" {
				if err != nil || user.Subject != "user-1" || (user.Email != "" && user.EmailVerified) != c.email {
					t.Errorf("got %+v, %v", user, err)
				}
				return
			}
			guesttest.NoSecrets(t, err, "hidden", "\n")
			if !errors.Is(err, wire.ErrOAuthFailed) || !strings.Contains(err.Error(), c.want) || user != (tenant.OAuthUser{}) {
				t.Errorf("got %+v, %v, want %q", user, err, c.want)
			}
		})
	}
}

// An email that the ID token lacks is asked for at userinfo, if it can link an account.
func TestOIDCAsksUserinfoForTheEmail(t *testing.T) {
	const ana = `{"sub": "user-1", "email": "ana@example.com", "email_verified": true}`
	for name, c := range map[string]struct {
		inToken, unlinked bool
		known             bool   // an account has the user
		endpoint          string // in place of the issuer's /userinfo; "-": none
		status            int
		answer, want      string // of the error; empty for none
		email, asked      bool
	}{
		"there":                {answer: ana, email: true, asked: true},
		"verified as a string": {answer: `{"sub": "user-1", "email": "ana@example.com", "email_verified": "true"}`, email: true, asked: true},
		"not verified":         {answer: `{"sub": "user-1", "email": "ana@example.com"}`, asked: true},
		"Verified":             {answer: `{"sub": "user-1", "email": "ana@example.com", "email_verified": false, "Email_verified": true}`, asked: true},
		"another Email":        {answer: `{"sub": "user-1", "Email": "ana@example.com", "email_verified": true}`, asked: true},
		"another Sub":          {answer: `{"sub": "user-2", "Sub": "user-1", "email": "ana@example.com", "email_verified": true}`, want: "another sub", asked: true},
		"no email":             {answer: `{"sub": "user-1"}`, asked: true},
		"in the ID token":      {inToken: true, answer: ana, email: true},
		"not needed":           {unlinked: true, answer: ana},
		"not needed again":     {known: true, answer: ana},
		"no endpoint":          {endpoint: "-", answer: ana},
		"a bad address":        {endpoint: "/userinfo", answer: ana, want: "userinfo_endpoint"},
		"another user":         {answer: `{"sub": "user-2", "email": "ana@example.com", "email_verified": true}`, want: "another sub", asked: true},
		"no user":              {answer: `{"email": "ana@example.com", "email_verified": true}`, want: "another sub", asked: true},
		"no JSON":              {answer: "hidden", want: "not a JSON object", asked: true},
		"refused":              {status: 403, answer: ana, want: "userinfo answered 403", asked: true},
		"down":                 {status: 503, answer: ana, want: "asking userinfo", asked: true},
	} {
		t.Run(name, func(t *testing.T) {
			f := newIssuer(t)
			if !c.inToken {
				delete(f.claims, "email")
			}
			f.claims["auth_time"] = 1700000000
			f.discovery = func(doc map[string]any) {
				doc["userinfo_endpoint"] = strings.TrimPrefix(cmp.Or(c.endpoint, f.URL+"/userinfo"), "-")
			}
			f.handlers["/userinfo"] = func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("Authorization") != "Bearer hidden-access" {
					t.Errorf("the request has %v", r.Header)
				}
				w.WriteHeader(cmp.Or(c.status, 200))
				io.WriteString(w, c.answer)
			}
			p := f.client(t)
			p.LinkVerifiedEmail = !c.unlinked
			grant := grant
			grant.IsLinked = func(_ context.Context, subject string) bool { return c.known && subject == "user-1" }
			user, err := p.Exchange(t.Context(), grant)
			if asked := f.requests["/userinfo"] == 1; asked != c.asked {
				t.Errorf("userinfo was asked: %t", asked)
			}
			if c.want != "" {
				guesttest.NoSecrets(t, err, "hidden", "\n")
				if err == nil || !strings.Contains(err.Error(), c.want) || errors.Is(err, wire.ErrOAuthFailed) != (c.asked && c.status != 503) || user != (tenant.OAuthUser{}) {
					t.Errorf("got %+v, %v, want %q", user, err, c.want)
				}
				return
			}
			if err != nil || user.Subject != "user-1" || (user.Email != "" && user.EmailVerified) != c.email || user.AuthTime.Unix() != 1700000000 {
				t.Errorf("got %+v, %v", user, err)
			}
		})
	}
}

// A provider may answer an ID token alone, as Azure AD B2C does. Only userinfo needs more.
func TestOIDCWithoutAnAccessToken(t *testing.T) {
	for _, linking := range []bool{false, true} {
		f := newIssuer(t)
		delete(f.claims, "email")
		f.discovery = func(doc map[string]any) { doc["userinfo_endpoint"] = f.URL + "/userinfo" }
		f.handlers["/token"] = func(w http.ResponseWriter, r *http.Request) {
			json.NewEncoder(w).Encode(map[string]any{"id_token": sign(f.alg, f.kid, f.claims), "token_type": "Bearer", "scope": "openid"})
		}
		p := f.client(t)
		p.LinkVerifiedEmail = linking
		user, err := p.Exchange(t.Context(), grant)
		if f.requests["/userinfo"] != 0 || linking != errors.Is(err, tenant.ErrProviderFault) || linking && !strings.Contains(err.Error(), "no access token") || !linking && user.Subject != "user-1" {
			t.Errorf("%t: got %+v, %v, with %v", linking, user, err, f.requests)
		}
	}
}

// An ID token with a nonce shows that the client sent one to the provider. A code that
// somebody else sends without it logs nobody in (OpenID Connect Core, section 3.1.3.7).
func TestOIDCWithoutTheClientsNonce(t *testing.T) {
	for _, c := range []struct {
		off   string
		nonce any
		want  string // of the error; empty for none
	}{{"", "n-1", "sent none"}, {nonceOff, "n-1", "sent none"}, {"", nil, ""}} {
		f := newIssuer(t)
		f.claims["nonce"] = c.nonce
		client := f.client(t)
		client.Nonce = c.off
		stolen := grant
		stolen.Nonce = ""
		_, err := client.Exchange(t.Context(), stolen)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v", c, err)
		}
	}
}

// With nonce off, an ID token may lack the nonce, and may not have another one.
func TestOIDCWithoutANonce(t *testing.T) {
	for name, c := range map[string]struct {
		nonce any
		ok    bool
	}{"none": {nil, true}, "the client's": {"n-1", true}, "another": {"n-2", false}} {
		f := newIssuer(t)
		f.claims["nonce"] = c.nonce
		client := f.client(t)
		client.Nonce = nonceOff
		if _, err := client.Exchange(t.Context(), grant); (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A code needs a nonce or PKCE (RFC 9700, section 2.1.1).
func TestACodeWithoutNonceAndPKCEIsWarnedOf(t *testing.T) {
	for _, c := range []struct {
		nonce string
		pkce  bool
		warns bool
	}{{"", false, false}, {nonceOff, true, false}, {nonceOff, false, true}} {
		client := us
		client.RequirePKCE = c.pkce
		found := guesttest.MustStart(t, &OIDC{Issuer: "https://id.example", Nonce: c.nonce, oauthClient: client}).Weaknesses()
		if len(found) > 0 != c.warns || c.warns && !strings.Contains(found[0].Advice, "require_pkce") {
			t.Errorf("%v: %v", c, found)
		}
		if c.nonce == "" { // OAuth 2.0 has none
			continue
		}
		found = guesttest.MustStart(t, &OAuth2{TokenURL: "https://id.example/t", UserinfoURL: "https://id.example/u", Subject: "id", oauthClient: client}).Weaknesses()
		if len(found) > 0 != c.warns || c.warns && !strings.Contains(found[0].Message, "a code of id.example") {
			t.Errorf("%v: OAuth 2.0: %v", c, found)
		}
	}
}

func TestOIDCSaysWhenTheUserLoggedIn(t *testing.T) {
	at := time.Now().Add(-time.Hour).Truncate(time.Second)
	for name, c := range map[string]struct {
		claim any
		want  time.Time
	}{
		"a number": {at.Unix(), at},
		"a text":   {strconv.FormatInt(at.Unix(), 10), at},
		"null":     {nil, time.Time{}},
		"zero":     {0, time.Time{}},
		"words":    {"today", time.Time{}},
		"too much": {1e300, time.Time{}},
	} {
		f := newIssuer(t)
		f.claims["auth_time"] = c.claim
		if user, err := f.client(t).Exchange(t.Context(), grant); err != nil || !user.AuthTime.Equal(c.want) {
			t.Errorf("%s: got %+v, %v", name, user, err)
		}
	}
}

func TestOIDCRefusesForgedTokens(t *testing.T) {
	part := func(v string) string { return base64.RawURLEncoding.EncodeToString([]byte(v)) }
	payload := func(signed string) string { return strings.Split(signed, ".")[1] }
	for name, c := range map[string]struct {
		alg, kid string
		idToken  func(string) string
	}{
		"alg none":       {idToken: func(s string) string { return part(`{"alg":"none"}`) + "." + payload(s) + "." }},
		"alg None":       {idToken: func(s string) string { return part(`{"alg":"None"}`) + "." + payload(s) + "." }},
		"no signature":   {idToken: func(s string) string { return s[:strings.LastIndexByte(s, '.')+1] }},
		"another key":    {alg: "ES256", kid: "RS256"},
		"unknown kid":    {kid: "gone"},
		"symmetric":      {alg: "HS256", kid: "RS256"},
		"changed":        {idToken: func(s string) string { return strings.Replace(s, payload(s), part(`{"sub":"admin"}`), 1) }},
		"no token":       {idToken: func(string) string { return "" }},
		"garbage":        {idToken: func(string) string { return "hidden-code.hidden-secret.x" }},
		"two signatures": {idToken: func(s string) string { return s + "." + s }},
		"embedded own key": {idToken: func(s string) string {
			return part(`{"alg":"RS256","jwk":{"kty":"oct","k":"AA"}}`) + "." + payload(s) + ".AA"
		}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newIssuer(t)
			f.idToken = c.idToken
			if c.alg != "" {
				f.alg = c.alg
			}
			if c.kid != "" {
				f.kid = c.kid
			}
			_, err := f.client(t).Exchange(t.Context(), grant)
			guesttest.NoSecrets(t, err, "hidden")
			if !errors.Is(err, wire.ErrOAuthFailed) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// huge answers more than is ever read.
func huge(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	w.Write([]byte(`{"x":"` + strings.Repeat("x", maxOAuthAnswer) + `"}`))
}

func redirect(w http.ResponseWriter, r *http.Request) {
	http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
}

// A meaning is what an answer says of a login.
type meaning int

const (
	refusal meaning = iota
	fault           // of the provider, or of our registration
	silence
	// unclear says nothing of the code, so it is an outage of a token endpoint;
	// elsewhere it says of the user what is not trusted.
	unclear
)

// refuses reports whether the endpoint has refused the login.
func (m meaning) refuses(tokenEndpoint bool) bool {
	return m == refusal || m == fault || m == unclear && !tokenEndpoint
}

// blames reports whether the error says whose fault it is: of a refusal, the client is to
// blame only at the token endpoint.
func (m meaning) blames(err error, tokenEndpoint bool) bool {
	return errors.Is(err, tenant.ErrProviderFault) == (m.refuses(tokenEndpoint) && (m == fault || !tokenEndpoint))
}

// misbehaviours are what an endpoint can do wrong.
var misbehaviours = map[string]struct {
	handler http.HandlerFunc
	says    meaning
}{
	"400":         {guesttest.Answering(400, `{"error":"hidden-code"}`), refusal},
	"400 odd":     {guesttest.Answering(400, `{"error":{"message":"hidden-code"}}`), refusal}, // as Facebook refuses
	"401":         {guesttest.Answering(401, `{"error":"invalid_client","error_description":"hidden-secret"}`), fault},
	"403":         {guesttest.Answering(403, `hidden-code`), fault},
	"404":         {guesttest.Answering(404, ``), fault},
	"grant 401":   {guesttest.Answering(401, `{"error":"invalid_grant"}`), refusal},                                            // as VK refuses
	"secret 401":  {guesttest.Answering(401, `{"error":"access_denied","error_description":"Unauthorized"}`), fault},           // as Auth0 says it
	"secret 400":  {guesttest.Answering(400, `{"error":{"message":"hidden-secret","type":"OAuthException","code":1}}`), fault}, // Facebook
	"code 400":    {guesttest.Answering(400, `{"error":{"message":"hidden-code","type":"OAuthException","code":100}}`), refusal},
	"slack 200":   {guesttest.Answering(200, `{"ok":false,"error":"bad_client_secret"}`), fault},
	"busy 400":    {guesttest.Answering(400, `{"error":"temporarily_unavailable"}`), unclear},
	"secret 200":  {guesttest.Answering(200, `{"error":"incorrect_client_credentials"}`), fault},
	"error 200":   {guesttest.Answering(200, `{"error":"bad_verification_code"}`), refusal},
	"429":         {guesttest.Answering(429, `{}`), silence},
	"500":         {guesttest.Answering(500, `hidden-code`), silence},
	"503":         {guesttest.Answering(503, `{"access_token":"x"}`), silence},
	"huge 502":    {func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(502); huge(w, r) }, silence},
	"redirect":    {redirect, fault},
	"html":        {guesttest.Answering(200, `<html>hidden-code`), unclear},
	"empty":       {guesttest.Answering(200, ``), unclear},
	"null":        {guesttest.Answering(200, `null`), unclear},
	"list":        {guesttest.Answering(200, `[]`), unclear},
	"object":      {guesttest.Answering(200, `{}`), unclear},
	"huge":        {huge, unclear},
	"broke off":   {guesttest.Raw("HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n{\"access_"), unclear},
	"only a head": {guesttest.Raw("HTTP/1.1 200 OK\r\n\r\n"), unclear},
	"slow":        {guesttest.Hang, silence},
	"closed":      {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, silence},
	"echo":        {guesttest.Raw("hidden-code hidden-secret hidden-access\r\n\r\n"), silence},
	"slow body": {func(w http.ResponseWriter, r *http.Request) {
		w.Write([]byte(`{"access_token":"x"`))
		http.NewResponseController(w).Flush()
		guesttest.Hang(w, r)
	}, silence},
}

func TestOIDCTellsARefusalFromAnOutage(t *testing.T) {
	for name, c := range misbehaviours {
		for _, path := range []string{"/token", "/keys", "/.well-known/openid-configuration"} {
			t.Run(name+path, func(t *testing.T) {
				t.Parallel()
				f := newIssuer(t)
				f.handlers[path] = c.handler
				f.handlers["/elsewhere"] = func(http.ResponseWriter, *http.Request) { t.Error("the redirect was followed") }
				p := f.client(t)
				if c.says == silence { // the others answer, however busy this machine is
					p.Timeout, p.client.Timeout = caddy.Duration(300*time.Millisecond), 300*time.Millisecond
				}
				watch := storetest.StartWatch()
				_, err := p.Exchange(t.Context(), grant)
				if took := watch.Took(); took > 3*time.Second {
					t.Errorf("it took %v", took)
				}
				guesttest.NoSecrets(t, err, "hidden")
				if refused := c.says.refuses(path == "/token") && !strings.HasPrefix(path, "/."); errors.Is(err, wire.ErrOAuthFailed) != refused || refused && !c.says.blames(err, path == "/token") {
					t.Errorf("got %v, refused: %v", err, refused)
				}
			})
		}
	}
}

func TestOIDCKeysAreAskedForAgainAfterAFailure(t *testing.T) {
	f := newIssuer(t)
	p := f.client(t)
	f.handlers["/keys"] = guesttest.Answering(503, "")
	if _, err := p.Exchange(t.Context(), grant); err == nil || errors.Is(err, wire.ErrOAuthFailed) {
		t.Errorf("got %v", err)
	}
	f.change(func() { delete(f.handlers, "/keys") })
	// For a moment after the failure, go-oidc gives the same answer to others.
	storetest.Eventually(t, 10*time.Second, "login with the keys", func() bool {
		f.change(func() { f.spent = false })
		_, err := p.Exchange(t.Context(), grant)
		return err == nil
	})
}

func TestOIDCDiscoveryIsShared(t *testing.T) {
	f := newIssuer(t)
	p := f.client(t)
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			g := grant
			g.Code = "wrong"
			if _, err := p.Exchange(t.Context(), g); !errors.Is(err, wire.ErrOAuthFailed) {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := f.requests["/.well-known/openid-configuration"]; n > 2 || f.requests["/token"] != 16 {
		t.Errorf("got %v", f.requests)
	}
}

func TestOIDCRefusesABadDiscoveryDocument(t *testing.T) {
	for name, change := range map[string]func(map[string]any){
		"another issuer": func(doc map[string]any) { doc["issuer"] = "https://evil.example" },
		"no token":       func(doc map[string]any) { delete(doc, "token_endpoint") },
		"no keys":        func(doc map[string]any) { delete(doc, "jwks_uri") },
		"http token":     func(doc map[string]any) { doc["token_endpoint"] = "http://id.example/token" },
		"http keys":      func(doc map[string]any) { doc["jwks_uri"] = "http://id.example/keys" },
		"file keys":      func(doc map[string]any) { doc["jwks_uri"] = "file:///etc/passwd" },
		"types":          func(doc map[string]any) { doc["id_token_signing_alg_values_supported"] = "RS256" },
	} {
		t.Run(name, func(t *testing.T) {
			f := newIssuer(t)
			f.discovery = change
			_, err := f.client(t).Exchange(t.Context(), grant)
			if err == nil || errors.Is(err, wire.ErrOAuthFailed) || f.requests["/token"] != 0 {
				t.Errorf("got %v, %v", err, f.requests)
			}
		})
	}
}

// The document of an issuer on the web leads to no server without TLS, such as the admin
// endpoint of the Caddy that reads it.
func TestAnIssuerOnTheWebLeadsNowhereOnThisMachine(t *testing.T) {
	var asked atomic.Int32
	here := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	t.Cleanup(here.Close)
	for _, field := range []string{"authorization_endpoint", "token_endpoint", "jwks_uri"} {
		f := newIssuer(t)
		f.Server = httptest.NewTLSServer(f)
		t.Cleanup(f.Close)
		f.discovery = func(doc map[string]any) { doc[field] = here.URL + "/stop" }
		p := f.client(t)
		p.client.Transport = f.Client().Transport
		if start, err := p.Start(t.Context()); err == nil || start.URL != "" {
			t.Errorf("%s: a login begins at %+v", field, start)
		}
		if field == "authorization_endpoint" {
			continue
		}
		if _, err := p.Exchange(t.Context(), grant); err == nil || errors.Is(err, wire.ErrOAuthFailed) || asked.Load() > 0 {
			t.Errorf("%s: got %v, and %d requests", field, err, asked.Load())
		}
	}
}

// Browsers may bring codes over plain http to this machine only.
func TestAReturnOverHTTPIsWarnedOf(t *testing.T) {
	for uri, warns := range map[string]bool{
		"https://app.example.com/": false, "http://localhost:3000/": false, "com.example.app:/back": false, "http://app.example.com/": true,
	} {
		c := oauthClient{ClientID: "c", ClientSecret: "s", RedirectURI: []string{uri}, RequirePKCE: true}
		for _, p := range []interface{ Weaknesses() []guest.Weakness }{
			guesttest.MustStart(t, &OIDC{Issuer: "https://id.example.com", oauthClient: c}),
			&OAuth2{AuthorizeURL: "https://id.example.com/", TokenURL: "https://id.example.com/", UserinfoURL: "https://id.example.com/", oauthClient: c},
		} {
			if found := p.Weaknesses(); len(found) > 0 != warns {
				t.Errorf("%s: %v", uri, found)
			}
		}
	}
}

// A client secret like Apple's is warned of before it expires, and the warning does not
// reveal it.
func TestAClientSecretThatExpiresIsWarnedOf(t *testing.T) {
	const day = 24 * time.Hour
	now := time.Now()
	of := func(left time.Duration) string {
		return sign("ES256", "key", map[string]any{"iss": "team", "exp": now.Add(left).Unix()})
	}
	for secret, want := range map[string]string{
		of(31 * day):        "",
		of(29 * day):        "expires on " + now.Add(29*day).UTC().Format(time.DateOnly),
		of(-day):            "expired on " + now.Add(-day).UTC().Format(time.DateOnly),
		"hidden-secret":     "",
		"hidden.secret.e30": "",
		sign("ES256", "key", map[string]any{"iss": "team"}): "",
	} {
		c := oauthClient{ClientID: "c", ClientSecret: secret, RedirectURI: []string{"https://app.example.com/"}}
		p := guesttest.MustStart(t, &OIDC{Issuer: "https://appleid.apple.com", oauthClient: c})
		found := p.Weaknesses()
		switch {
		case want == "" && len(found) == 0:
		case len(found) != 1 || !strings.Contains(found[0].Message, want) || strings.Contains(found[0].Message, secret):
			t.Errorf("got %v, want %q", found, want)
		}
	}
}

// Whatever is wrong at a provider, the log's line says what to do about it.
func TestOIDCSaysWhatToDo(t *testing.T) {
	now := time.Now().Unix()
	claim := func(name string, value any) func(*fakeIssuer) {
		return func(f *fakeIssuer) { f.claims[name] = value }
	}
	answers := func(path string, status int, body string) func(*fakeIssuer) {
		return func(f *fakeIssuer) { f.handlers[path] = guesttest.Answering(status, body) }
	}
	for name, c := range map[string]struct {
		change func(*fakeIssuer)
		what   string // ends so
		step   string
	}{
		"expired":    {claim("exp", now-1), "", checkClocks},
		"nbf":        {claim("nbf", now+3600), "", checkClocks},
		"iat":        {claim("iat", now+3600), "its ID token has an iat in the future", checkClocks},
		"no iat":     {func(f *fakeIssuer) { delete(f.claims, "iat") }, "its ID token has no iat", askOperator},
		"issuer":     {claim("iss", "https://id.example/oidc: token is expired"), `got "https://id.example/oidc: token is expired"`, checkIssuer},
		"audience":   {claim("aud", "you"), `got ["you"]`, checkIDToken},
		"azp":        {claim("aud", []string{"x", "me"}), "azp is not this client", checkIDToken},
		"sub":        {claim("sub", 1), "", askOperator},
		"no sub":     {claim("sub", nil), "can't be kept", checkSubject},
		"algorithm":  {func(f *fakeIssuer) { f.alg = "HS256" }, "", checkIDToken},
		"encrypted":  {func(f *fakeIssuer) { f.idToken = func(string) string { return "a.b.c.d.e" } }, "", checkIDToken},
		"no token":   {func(f *fakeIssuer) { f.idToken = func(string) string { return "" } }, "answered no id_token", checkIDToken},
		"no keys":    {answers("/keys", 404, "no"), "get keys failed: 404 Not Found no", askOperator},
		"other keys": {func(f *fakeIssuer) { f.kid = "gone" }, "failed to verify id token signature", askOperator},
		"client":     {answers("/token", 401, `{"error":"invalid_client"}`), "answered invalid_client", checkRegistration},
		"forbidden":  {answers("/userinfo", 403, ""), "userinfo answered 403", checkUserinfo},
		"signed":     {answers("/userinfo", 200, "a.b.c"), "is not a JSON object", checkUserinfo},
		"another":    {answers("/userinfo", 200, `{"sub":"user-2"}`), "is for another sub than the ID token", askOperator},
	} {
		t.Run(name, func(t *testing.T) {
			f := newIssuer(t)
			delete(f.claims, "email")
			f.discovery = func(doc map[string]any) { doc["userinfo_endpoint"] = f.URL + "/userinfo" }
			c.change(f)
			p := f.client(t)
			p.LinkVerifiedEmail = true
			_, err := p.Exchange(t.Context(), grant)
			if what, step := causes.Split(err); !errors.Is(err, tenant.ErrProviderFault) || !strings.HasSuffix(what, c.what) || step != c.step {
				t.Errorf("got %v", err)
			}
		})
	}
}
