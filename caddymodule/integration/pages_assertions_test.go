package integration

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/mnemogate/mnemogate/caddymodule/guest/guesttest"
	"github.com/mnemogate/mnemogate/flows/wire"
	"github.com/mnemogate/mnemogate/store/storetest"
)

const (
	shownIssuer = "https://api.example.com/acme"
	shownKeys   = shownIssuer + "/v2/jwks.json"

	goBackend = `package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync/atomic"
	"time"
)

var later atomic.Int64

func now() time.Time { return time.Now().Add(time.Duration(later.Load())) }

func main() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	fmt.Printf("{\"port\": %d}\n", listener.Addr().(*net.TCPAddr).Port)
	http.HandleFunc("/later", func(http.ResponseWriter, *http.Request) { later.Add(int64(30 * time.Minute)) })
	http.Handle("/", Verified(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, r.Header.Get("X-Profile-Mnemocode"))
		if actor := r.Header.Get("X-Profile-Actor"); actor != "" {
			fmt.Fprint(w, " by ", actor)
		}
		for _, values := range r.Header {
			if values[0] == "mallory" {
				fmt.Fprint(w, " or mallory")
			}
		}
		if r.Header.Get("X-Mnemogate-Assertion") != "" {
			fmt.Fprint(w, " with an assertion")
		}
	})))
	go http.Serve(listener, nil)
	io.Copy(io.Discard, os.Stdin)
}
`
	// On /later, the cache of keys grows older by half an hour, in each backend. Its clock
	// has no other use there.
	nodeBackend = `
import { createServer } from 'node:http';
import { verified } from './verified.mjs';

const now = Date.now;
let later = 0;
Date.now = () => now() + later;
const server = createServer((req, res) => {
  if (req.url === '/later') { later += 30 * 60_000; res.end(); return; }
  const actor = () => (req.headers['x-profile-actor'] ? ' by ' + req.headers['x-profile-actor'] : '');
  verified(req, res, () => res.end(req.headers['x-profile-mnemocode'] + actor() + (Object.values(req.headers).includes('mallory') ? ' or mallory' : '')
    + ('x-mnemogate-assertion' in req.headers ? ' with an assertion' : '')));
}).listen(0, '127.0.0.1', () => console.log(JSON.stringify({ port: server.address().port })));
process.stdin.on('end', () => process.exit()).resume();
`
	pythonBackend = `
import json, sys, threading, time
from wsgiref.simple_server import WSGIRequestHandler, make_server
from verified import verified

class Quiet(WSGIRequestHandler):
    def log_message(self, *args): pass

def app(environ, start_response):
    start_response("200 OK", [("Content-Type", "text/plain")])
    actor = "HTTP_X_PROFILE_ACTOR"
    by = " by " + environ[actor] if actor in environ else ""
    return [(environ["HTTP_X_PROFILE_MNEMOCODE"] + by).encode(), b" or mallory" * ("mallory" in environ.values()),
            b" with an assertion" * ("HTTP_X_MNEMOGATE_ASSERTION" in environ)]

now, later = time.monotonic, 0
time.monotonic = lambda: now() + later

def either(environ, start_response):
    global later
    if environ["PATH_INFO"] != "/later":
        return verified(app)(environ, start_response)
    later += 1800
    start_response("200 OK", [])
    return []

server = make_server("127.0.0.1", 0, either, handler_class=Quiet)
threading.Thread(target=server.serve_forever, daemon=True).start()
print(json.dumps({"port": server.server_port}), flush=True)
sys.stdin.read()
`
)

// verifyingBackends starts the verifying backends of docs/examples/assertions, and
// returns their addresses. They load the keys from an address of the test.
func verifyingBackends(t *testing.T, keys string) map[string]string {
	t.Helper()
	files := map[string]string{"main.go": goBackend, "backend.mjs": nodeBackend, "backend.py": pythonBackend}
	for _, name := range []string{"verified.go", "verified.mjs", "verified.py"} {
		files[name] = changed(t, string(get(os.ReadFile("../../docs/examples/assertions/"+name))(t)), shownKeys, keys)
	}
	files["verified.go"] = changed(t, files["verified.go"], "time.Now()", "now()")
	w := newWorkshop(t, files)
	output(t, exec.Command("go", "build", "-o", w.dir+"/backend", w.dir+"/main.go", w.dir+"/verified.go"))
	commands := map[string]*exec.Cmd{
		"go":   exec.Command(w.dir + "/backend"),
		"node": exec.Command("node", w.dir+"/backend.mjs"),
	}
	if exec.Command("/usr/bin/python3", "-c", "import jwt, cryptography").Run() == nil {
		commands["python"] = exec.Command("/usr/bin/python3", w.dir+"/backend.py")
	} else if os.Getenv("MNEMOGATE_TEST_REQUIRE") != "" {
		t.Error("PyJWT is missing (python3-jwt)")
	}
	addresses := map[string]string{}
	for language, cmd := range commands {
		addresses[language] = fmt.Sprint("127.0.0.1:", runBackend(t, cmd))
	}
	return addresses
}

// The verifying backends of docs/examples/assertions refuse forged assertions. They
// accept those of two nodes through a rotation of the keys under load, although the
// nodes restart, and know nothing but the address of the keys.
func TestVerifyingBackendsOfThePage(t *testing.T) {
	t.Parallel()
	var nodes atomic.Pointer[[]*site]
	var down atomic.Int32 // the status with which the keys are refused; -1: the connection breaks; -2: it is silent
	own := get(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	// The keys are the test's until there are nodes. Then they are those of any node
	// that is up. One that starts accepts connections before it answers.
	soon := &http.Client{Timeout: time.Second}
	keys := guesttest.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch status := down.Load(); {
		case status < -1:
			<-r.Context().Done()
			return
		case status < 0:
			panic(http.ErrAbortHandler)
		case status > 0:
			w.WriteHeader(int(status))
			return
		}
		if nodes.Load() == nil {
			_ = json.NewEncoder(w).Encode(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: &own.PublicKey, KeyID: "own", Algorithm: "ES256", Use: "sig"}}})
			return
		}
		for range 200 {
			for _, node := range *nodes.Load() {
				if response, err := soon.Get(node.URL + r.URL.Path); err == nil {
					body, _ := io.ReadAll(response.Body)
					response.Body.Close()
					if response.StatusCode == http.StatusServiceUnavailable {
						continue // its store was late
					}
					w.WriteHeader(response.StatusCode)
					_, _ = w.Write(body)
					return
				}
			}
			time.Sleep(10 * time.Millisecond)
		}
	}))
	backends := verifyingBackends(t, keys.URL+"/acme/v2/jwks.json")

	t.Run("without keys", func(t *testing.T) {
		for _, status := range []int32{503, -1, -2} {
			down.Store(status)
			unavailableWithoutKeys(t, backends, own)
		}
		down.Store(0)
	})
	t.Run("forged", func(t *testing.T) { refusesForged(t, backends, own) })
	down.Store(503)
	unknown := get(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	for language, address := range backends { // what a failure must not forget
		for _, c := range []struct {
			kid     string
			key     *ecdsa.PrivateKey
			accepts bool
		}{{"unknown", unknown, false}, {"own", own, true}} {
			now := time.Now().Unix()
			signed := signedBy(t, "mnemogate+jwt", c.kid, jose.ES256, c.key, fields{"iss": shownIssuer, "aud": "profile-api", "sub": "alice", "company": "acme", "iat": now, "exp": now + 60})
			if a, err := askBackend(t, address, signed); err != nil || (a.Status == 200) != c.accepts {
				t.Errorf("%s: %s key, while none can be loaded: %d, %v", language, c.kid, a.Status, err)
			}
		}
	}
	down.Store(0)

	servers := sharedServers(t)
	directives := "mnemogate {\nassertion profile-api {\nissuer " + shownIssuer + "\nttl 10m\n}\n}\n" +
		"respond /assertion {header.X-Mnemogate-Assertion}\n"
	for language, address := range backends {
		directives += "handle_path /" + language + "/* {\nreverse_proxy " + address + "\n}\n"
	}
	s := servers.start(siteConfig{company: people, more: umbra, site: directives}, servers.direct(), servers.direct())
	nodes.Store(&s.nodes)
	token := s.login("alice@example.com")
	published := func() (ids []string) {
		t.Helper()
		for i, node := range s.nodes {
			set := node.keySet("/acme/v2/jwks.json")
			if i == 0 {
				for _, k := range set.Keys {
					ids = append(ids, k.KeyID)
				}
			} else if len(set.Keys) != len(ids) {
				t.Errorf("the nodes publish %d and %d keys", len(ids), len(set.Keys))
			}
		}
		return ids
	}
	first := published()
	later := func(interval string) {
		t.Helper()
		servers.postgres.Exec(t, fmt.Sprintf("UPDATE %q.signing_keys SET created = created - extract(epoch FROM interval '%s') * 1000000", servers.schema, interval))
		for _, address := range backends {
			if response, err := http.Get("http://" + address + "/later"); err != nil || response.StatusCode != 200 {
				t.Fatal(response, err)
			}
		}
	}
	later("0")
	stolen := string(get(exchanged(t, client, s.nodes[0].getRequest("/assertion", token)))(t).Body)
	wantStolen := func(status int) {
		t.Helper()
		for language, address := range backends {
			var a answer
			storetest.Eventually(t, 20*time.Second, language+" with keys", func() bool {
				a = get(askBackend(t, address, stolen))(t)
				return a.Status != http.StatusServiceUnavailable
			})
			if a.Status != status {
				t.Errorf("%s: an assertion by the first key: %d, want %d", language, a.Status, status)
			}
		}
	}
	wantStolen(200)

	load := &loading{site: s}
	load.startWorkers()
	var answered atomic.Int64
	ask := func(language, token string, node *site) (answer, error) {
		return exchanged(t, client, node.getRequest("/"+language+"/", token))
	}
	for language := range backends {
		for i := range s.nodes {
			load.workers.Go(func() {
				for n := i; !load.over(); n++ {
					pace()
					a, err := ask(language, token, s.nodes[n%len(s.nodes)])
					if err != nil {
						time.Sleep(10 * time.Millisecond) // the node restarts
						continue
					}
					if a.fails(wire.ErrUnavailable) { // of mnemogate, not of the backend
						load.unavailable.Add(1)
						time.Sleep(250 * time.Millisecond) // the node's stores are late
						continue
					}
					if a.Status != 200 || string(a.Body) != "alice" {
						t.Errorf("%s: %d %s", language, a.Status, a.Body)
						return
					}
					answered.Add(1)
				}
			})
		}
	}
	some := func() {
		t.Helper()
		before := answered.Load()
		storetest.Eventually(t, time.Minute, "answers of backends", func() bool { return answered.Load() > before+100 || t.Failed() })
	}
	some()
	later("30 days") // a new key is announced
	for _, node := range s.nodes {
		node.restart()
	}
	if got := published(); len(got) != 2 || got[0] != first[0] {
		t.Errorf("published are %v, before it was %v", got, first)
	}
	some()
	later("25 minutes") // one node signs with the new key, the other still with the old one
	s.nodes[0].restart()
	some()
	later("2 hours") // the old key is gone
	s.nodes[1].restart()
	some()
	load.stopWorkers()
	if got := s.nodes[1].keySet("/acme/v2/jwks.json"); len(got.Keys) != 1 || got.Keys[0].KeyID == first[0] {
		t.Errorf("published is %v, before it was %v", got, first)
	}
	s.nodes[0].restart()
	later("0") // the backends learn that, too
	wantStolen(403)
	zoes := s.loginAt("umbra", "other-key", "zoe")
	for language := range backends {
		if a, err := ask(language, zoes, s.nodes[0]); err != nil || a.Status != 403 {
			t.Errorf("%s: another company's assertion: %d %s %v", language, a.Status, a.Body, err)
		}
	}
	t.Logf("%d requests were answered", answered.Load())
}

// unavailableWithoutKeys sends a right assertion to backends that can't load the keys.
func unavailableWithoutKeys(t *testing.T, backends map[string]string, key *ecdsa.PrivateKey) {
	t.Helper()
	now := time.Now().Unix()
	right := signedAssertion(t, jose.ES256, key, fields{"iss": shownIssuer, "aud": "profile-api", "sub": "alice", "iat": now, "exp": now + 60})
	var asked sync.WaitGroup
	for language, address := range backends {
		asked.Go(func() {
			if a, err := askBackend(t, address, right); err != nil || a.Status != 503 {
				t.Errorf("%s: without keys: %d, %v", language, a.Status, err)
			}
		})
	}
	asked.Wait()
}

func signedAssertion(t *testing.T, algorithm jose.SignatureAlgorithm, key any, claims fields) string {
	t.Helper()
	return signedJWT(t, "mnemogate+jwt", algorithm, key, claims)
}

func signedJWT(t *testing.T, kind jose.ContentType, algorithm jose.SignatureAlgorithm, key any, claims fields) string {
	t.Helper()
	return signedBy(t, kind, "own", algorithm, key, claims)
}

func signedBy(t *testing.T, kind jose.ContentType, kid string, algorithm jose.SignatureAlgorithm, key any, claims fields) string {
	t.Helper()
	signer := get(jose.NewSigner(jose.SigningKey{Algorithm: algorithm, Key: key}, new(jose.SignerOptions).WithType(kind).WithHeader("kid", kid)))(t)
	payload := get(json.Marshal(claims))(t)
	signed := get(signer.Sign(payload))(t)
	return get(signed.CompactSerialize())(t)
}

// askBackend sends an assertion to a backend directly, as somebody does who reaches its
// port, with forged headers beside it.
func askBackend(t *testing.T, address, assertion string) (answer, error) {
	t.Helper()
	r := get(http.NewRequestWithContext(t.Context(), "GET", "http://"+address+"/", nil))(t)
	if assertion != "" {
		r.Header.Set("X-Mnemogate-Assertion", assertion)
	}
	for _, name := range []string{"X-Profile-Mnemocode", "X-Company-Code", "X-Profile-Role", "X_Profile_Role", "X.Profile.Email", "X-Profile-Actor"} {
		r.Header[name] = []string{"mallory"}
	}
	return exchanged(t, client, r)
}

// refusesForged sends a right assertion and forged ones to backends.
func refusesForged(t *testing.T, backends map[string]string, key *ecdsa.PrivateKey) {
	public := get(x509.MarshalPKIXPublicKey(&key.PublicKey))(t)
	public = pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public})
	stranger := get(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	now := time.Now().Unix()
	claims := func(changes ...any) fields {
		claims := fields{"iss": shownIssuer, "aud": "profile-api", "sub": "alice", "company": "acme", "sid": "1", "iat": now, "exp": now + 60, "auth_time": now}
		for i := 0; i < len(changes); i += 2 {
			claims[changes[i].(string)] = changes[i+1]
		}
		return claims
	}
	signed := func(algorithm jose.SignatureAlgorithm, key any, claims fields) string {
		t.Helper()
		return signedAssertion(t, algorithm, key, claims)
	}
	right := signed(jose.ES256, key, claims())
	parts := strings.Split(right, ".")
	accepts := map[string]string{"right": "alice", "by a clock that is ahead": "alice", "of support": "alice by Anna%20%C3%96"}
	for name, token := range map[string]string{
		"right": right, "of support": signed(jose.ES256, key, claims("act", fields{"sub": "Anna Ö"})), "missing": "", "not a token": "x",
		"by a clock that is ahead":         signed(jose.ES256, key, claims("iat", now+20, "exp", now+80)),
		"unsigned":                         "eyJhbGciOiJub25lIiwia2lkIjoib3duIiwidHlwIjoibW5lbW9nYXRlK2p3dCJ9." + parts[1] + ".",
		"without a signature":              parts[0] + "." + parts[1] + ".",
		"by HMAC":                          signed(jose.HS256, public, claims()),
		"by another key":                   signed(jose.ES256, stranger, claims()),
		"expired":                          signed(jose.ES256, key, claims("iat", now-120, "exp", now-60)),
		"for another":                      signed(jose.ES256, key, claims("aud", "other-api")),
		"of another":                       signed(jose.ES256, key, claims("iss", "https://api.example.com/umbra", "company", "umbra")),
		"of another, with the same issuer": signed(jose.ES256, key, claims("company", "umbra")),
		"another kind of JWT":              signedJWT(t, "JWT", jose.ES256, key, claims()),
	} {
		for language, address := range backends {
			a, err := askBackend(t, address, token)
			want, is := accepts[name]
			if accepted := a.Status == 200 && string(a.Body) == want; err != nil || accepted != is || !accepted && a.Status != 403 {
				t.Errorf("%s: an assertion that is %s: %d %s, %v", language, name, a.Status, a.Body, err)
			}
		}
	}
}
