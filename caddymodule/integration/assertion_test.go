package integration

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/mnemogate/mnemogate/flows/wire"
)

// asserted returns the assertion that the backend received with its last request.
func (s *site) asserted(header string) string {
	s.t.Helper()
	lines := linesNamed(s.backend.last(), header)
	if len(lines) == 0 {
		return ""
	}
	if len(lines) > 1 {
		s.t.Errorf("the application got %q", lines)
	}
	_, token, _ := strings.Cut(lines[0], ": ")
	return token
}

// keySet returns the keys that verify assertions, as anybody gets them.
func (s *site) keySet(path string) jose.JSONWebKeySet {
	s.t.Helper()
	a := s.do(s.request("GET", path, "")).wantStatus(200)
	var set jose.JSONWebKeySet
	if err := json.Unmarshal(a.Body, &set); err != nil || len(set.Keys) == 0 {
		s.t.Fatalf("%s: %v", a.Body, err)
	}
	return set
}

// verified returns the claims of an assertion, or an error if it was not signed by one of
// the keys.
func verified(token string, keys jose.JSONWebKeySet) (claims fields, err error) {
	parsed, err := jwt.ParseSigned(token, []jose.SignatureAlgorithm{jose.ES256})
	if err != nil {
		return nil, err
	}
	if err := parsed.Claims(keys, &claims); err != nil {
		return nil, err
	}
	if h := parsed.Headers[0]; h.ExtraHeaders["typ"] != "mnemogate+jwt" {
		return nil, fmt.Errorf("the header is %v", h)
	}
	return claims, nil
}

// Contract, section 15: the assertion has these claims, and only the keys of its company
// verify it.
func TestTheApplicationGetsAnAssertion(t *testing.T) {
	t.Parallel()
	s := startNodes(t, siteConfig{company: people, more: umbra, handler: "assertion profile-api\nforward role phone\npublic /public\ncors https://app.example.com"})
	s.all()[0].admin("PATCH", "accounts/alice", fields{"role": "Büro 100%"}).wantStatus(200)
	token, began := s.login("alice@example.com"), time.Now()
	session := s.sessions("alice")[0]
	keys := s.keySet("/acme/v2/jwks.json")
	r := s.getRequest("/profile", token)
	r.Host = "API.example.com:8443" // another server's port
	s.do(r).wantStatus(200)
	assertion := s.asserted("X-Mnemogate-Assertion")
	got, err := verified(assertion, keys)
	if err != nil {
		t.Fatalf("%q: %v", assertion, err)
	}
	issued := got["iat"].(float64)
	if age := began.Unix() - int64(issued); age < -30 || age > 30 {
		t.Errorf("issued %d s before", age)
	}
	want := fields{
		"iss": "https://api.example.com/acme", "aud": "profile-api", "sub": "alice", "company": "acme", "sid": session.ID,
		"iat": issued, "exp": issued + 60, "auth_time": float64(session.Created.Unix()), "amr": []any{"pwd"},
		"role": "Büro 100%", "phone": "+37060000001",
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	// Each node signs once. Both use the company's key.
	used := map[string]bool{assertion: true}
	for range 6 {
		r := s.getRequest("/profile", token)
		r.Host = "api.example.com"
		s.do(r).wantStatus(200)
		used[s.asserted("X-Mnemogate-Assertion")] = true
	}
	for assertion := range used {
		if _, err := verified(assertion, keys); err != nil {
			t.Errorf("%q: %v", assertion, err)
		}
	}
	if len(used) > len(s.nodes) {
		t.Errorf("%d assertions were signed", len(used))
	}

	umbras := s.keySet("/umbra/v2/jwks.json")
	if _, err := verified(assertion, umbras); err == nil {
		t.Error("another company's keys verify it")
	}
	s.get("/umbra", s.loginAt("umbra", "other-key", "zoe")).wantStatus(200)
	if got, err := verified(s.asserted("X-Mnemogate-Assertion"), umbras); err != nil || got["company"] != "umbra" || got["sub"] != "zoe" || got["role"] != nil {
		t.Errorf("of another company: %v, %v", got, err)
	}
	s.get("/public", "").wantStatus(200)
	if got := s.asserted("X-Mnemogate-Assertion"); got != "" {
		t.Errorf("without a user the application got %q", got)
	}
	s.get("/public", token).wantStatus(200)
	if _, err := verified(s.asserted("X-Mnemogate-Assertion"), keys); err != nil {
		t.Errorf("on a public path: %v", err)
	}

	t.Run("the keys' path", func(t *testing.T) {
		const path = "/acme/v2/jwks.json"
		s.do(s.request("POST", path, "")).want(wire.ErrMethod)
		if a := s.ask("HEAD", path, ""); a.Status != 200 || len(a.Body) != 0 || a.Header.Get("Content-Type") != "application/json" {
			t.Errorf("HEAD: %d %v %s", a.Status, a.Header, a.Body)
		}
		s.do(s.request("GET", "/nobody/v2/jwks.json", "")).want(wire.ErrNoRoute)
		r := s.request("GET", path, "")
		r.Header.Set("Origin", "https://app.example.com")
		s.do(r).wantStatus(200).wantHeader("Access-Control-Allow-Origin", "https://app.example.com")
	})
}

// Contract, section 15: a signature for a session, not for each request. Clients cannot
// get more by other spellings of the host, and only the port of the server is one.
func TestClientsChooseNoIssuer(t *testing.T) {
	t.Parallel()
	s := startSite(t, siteConfig{company: people, handler: "assertion profile-api"})
	token, keys := s.login("alice@example.com"), s.keySet("/acme/v2/jwks.json")
	at := get(url.Parse(s.URL))(t)
	host, port := at.Hostname(), at.Port()
	want := "https://" + host + ":" + port + "/acme"
	without := "https://" + host + "/acme"
	used := map[string]bool{}
	asks := func(host, issuer string) {
		t.Helper()
		r := s.getRequest("/", token)
		r.Host = host
		s.do(r).wantStatus(200)
		assertion := s.asserted("X-Mnemogate-Assertion")
		used[assertion] = true
		if got, err := verified(assertion, keys); err != nil || got["iss"] != issuer {
			t.Errorf("%.99s: %v, %v", host, got["iss"], err)
		}
	}
	asks(host+":"+port, want)
	asks(host+":0"+port, want)
	for _, port := range []string{"", ":", ":443", ":1", ":65536", ":-1", ":x", ":" + strings.Repeat("1", 20_000)} {
		asks(host+port, without)
	}
	asks("["+host+"]", without)
	for port := range 30 {
		asks(fmt.Sprint(host, ":", 5000+port), without)
	}
	if len(used) != 2 {
		t.Errorf("%d assertions were signed", len(used))
	}
	asks("EXAMPLE.com", "https://example.com/acme")
	asks("[::1]", "https://[::1]/acme")
	asks("[::1]:"+port, "https://[::1]:"+port+"/acme")
	for _, host := range []string{strings.Repeat("a", 254), "a~b"} {
		r := s.getRequest("/", token)
		r.Host = host
		s.do(r).want(wire.ErrValidation)
	}
	// Five hosts have been asked for.
	for i := range 11 {
		asks(fmt.Sprint(i, ".example.com"), fmt.Sprintf("https://%d.example.com/acme", i))
	}
	r := s.getRequest("/", token)
	r.Host = "one-more.example.com"
	s.do(r).want(wire.ErrRestricted).wantHeader("Retry-After", "60")
	asks("0.example.com", "https://0.example.com/acme")
}

// Keys of the configuration replace those of the store. The first one signs.
func TestAssertionsAreSignedWithGivenKeys(t *testing.T) {
	t.Parallel()
	pkcs8, sec1 := testP256Keys(t)
	s := startSite(t, siteConfig{company: people, more: umbra, env: []string{"ONE=" + sec1}, site: `
		handle_path /plain/* {
			mnemogate
			reverse_proxy BACKEND
		}
		handle {
			mnemogate {
				company acme
				assertion profile-api {
					issuer https://id.example.com/
					ttl 10s
					header X-Proof
					key {env.ONE} {file.` + pkcs8 + `}
				}
			}
			reverse_proxy BACKEND
		}`})
	keys := s.keySet("/acme/v2/jwks.json")
	s.get("/", s.login("alice@example.com")).wantStatus(200)
	assertion := s.asserted("X-Proof")
	got, err := verified(assertion, keys)
	if err != nil || got["iss"] != "https://id.example.com/" || got["exp"] != got["iat"].(float64)+10 {
		t.Errorf("%v, %v", got, err)
	}
	if len(keys.Keys) != 2 || len(keys.Key(keyIDOf(t, assertion))) != 1 || keys.Keys[0].KeyID != keyIDOf(t, assertion) {
		t.Errorf("%s is signed with another key than the first of %v", assertion, keys)
	}
	s.do(s.request("GET", "/umbra/v2/jwks.json", "")).want(wire.ErrNoRoute) // the site does not serve it
	s.wantNoneLogged("PRIVATE KEY")

	// Without the option, the path is the application's.
	s.get("/plain/acme/v2/jwks.json", "").want(wire.ErrHeaderMissing)
	s.get("/plain/", s.login("alice@example.com")).wantStatus(200)
	if got := s.asserted("X-Proof") + s.asserted("X-Mnemogate-Assertion"); got != "" {
		t.Errorf("the application got %q", got)
	}
}

func keyIDOf(t *testing.T, assertion string) string {
	t.Helper()
	parsed := get(jwt.ParseSigned(assertion, []jose.SignatureAlgorithm{jose.ES256}))(t)
	return parsed.Headers[0].KeyID
}

// Without a key, no request reaches the application: it would have no assertion.
func TestNoKeyNoRequest(t *testing.T) {
	t.Parallel()
	servers := sharedServers(t)
	way := servers.newWay()
	s := servers.start(siteConfig{company: people, handler: "assertion profile-api\npublic /public"}, servers.through(way))
	token := s.login("alice@example.com")
	way.postgres.Refuse()
	s.get("/", token).want(wire.ErrUnavailable)
	s.do(s.request("GET", "/acme/v2/jwks.json", "")).want(wire.ErrUnavailable)
	if got := s.backend.requests(); len(got) != 0 {
		t.Errorf("the application got %q", got)
	}
	s.get("/public", token).wantStatus(200) // as without a token
	if got := linesNamed(s.backend.requests()[0], guardedHeaders...); len(got) != 0 {
		t.Errorf("the application got %q", got)
	}
	way.postgres.Heal()
	s.normally(func(node *site) bool { return node.get("/", token).Status == 200 })
	if s.asserted("X-Mnemogate-Assertion") == "" {
		t.Error("the application got no assertion")
	}
	way.postgres.Refuse() // the keys are known by now
	s.get("/", token).wantStatus(200)
	s.keySet("/acme/v2/jwks.json")
}

// testP256Keys returns two private keys: the file of one in PKCS 8, and the text of one
// in SEC 1.
func testP256Keys(t *testing.T) (pkcs8 string, sec1 string) {
	t.Helper()
	one := get(x509.MarshalPKCS8PrivateKey(get(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)))(t)
	two := get(x509.MarshalECPrivateKey(get(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)))(t)
	pkcs8 = t.TempDir() + "/key.pem"
	must(t, os.WriteFile(pkcs8, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: one}), 0o600))
	return pkcs8, string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: two}))
}
