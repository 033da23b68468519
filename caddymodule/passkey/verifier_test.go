package passkey_test

import (
	"bytes"
	"crypto/rand"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/fxamacker/cbor/v2"
	"github.com/go-webauthn/webauthn/protocol"

	"github.com/mnemogate/mnemogate/caddymodule/passkey"
	"github.com/mnemogate/mnemogate/caddymodule/passkey/keytest"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/store/storetest"
)

var must = storetest.Must

const (
	site   = "example.com"
	origin = "https://app.example.com:8443"
	app    = "android:apk-key-hash:AbCdEfGhIjKlMnOpQrStUvWxYz0123456789-_AbCdE"
)

var owner = tenant.PasskeyOwner{Handle: []byte("a handle of somebody"), Name: "alice@example.com"}

func newVerifier(t testing.TB, s passkey.Settings) *passkey.Verifier {
	t.Helper()
	must(t, s.Check())
	v, err := passkey.New(s)
	must(t, err)
	return v.For("Acme")
}

func newChallenge() []byte {
	challenge := make([]byte, 56)
	rand.Read(challenge)
	return challenge
}

// register creates a passkey on a page of the origin and verifies it.
func register(t testing.TB, v *passkey.Verifier, a *keytest.Authenticator, origin string) (record.Passkey, error) {
	t.Helper()
	challenge := newChallenge()
	options, err := v.CreationOptions(challenge, owner, nil)
	must(t, err)
	credential, err := a.Create(origin, options)
	must(t, err)
	return v.Register(challenge, owner, credential, false)
}

// login answers a challenge on a page of the origin and verifies the answer.
func login(t testing.TB, v *passkey.Verifier, a *keytest.Authenticator, origin string, p record.Passkey) (tenant.PasskeyUse, error) {
	t.Helper()
	challenge := newChallenge()
	options, err := v.RequestOptions(challenge)
	must(t, err)
	credential, err := a.Get(origin, options)
	must(t, err)
	assertion, err := v.ReadAssertion(credential)
	must(t, err)
	if !bytes.Equal(assertion.Credential, p.Credential) {
		t.Fatal("another passkey answered")
	}
	return assertion.Verify(challenge, p)
}

func TestOptions(t *testing.T) {
	v := newVerifier(t, passkey.Settings{RPID: site})
	challenge := newChallenge()
	request, err := v.RequestOptions(challenge)
	must(t, err)
	want := `{"challenge":"` + base64.RawURLEncoding.EncodeToString(challenge) + `","timeout":300000,"rpId":"example.com","userVerification":"required"}`
	if string(request) != want {
		t.Errorf("got %s, want %s", request, want)
	}
	creation, err := v.CreationOptions(challenge, owner, []record.Passkey{{Credential: []byte{1, 2, 3}, Transports: "internal hybrid"}})
	must(t, err)
	for _, part := range []string{
		`"rp":{"name":"Acme","id":"example.com"}`, `"user":{"name":"alice@example.com","displayName":"alice@example.com","id":"`,
		`"residentKey":"required"`, `"requireResidentKey":true`, `"userVerification":"required"`, `"attestation":"none"`,
		`"excludeCredentials":[{"type":"public-key","id":"AQID","transports":["internal","hybrid"]}]`,
	} {
		if !strings.Contains(string(creation), part) {
			t.Errorf("%s has no %s", creation, part)
		}
	}
}

func TestAPasskeyLogsIn(t *testing.T) {
	v := newVerifier(t, passkey.Settings{RPID: site, Origins: []string{origin, app}})
	a := &keytest.Authenticator{Counts: true}
	for _, from := range []string{origin, app} {
		p, err := register(t, v, a, from)
		must(t, err)
		if !p.BackupEligible || !p.BackedUp || p.Transports != "hybrid internal" || !bytes.Equal(p.UserHandle, owner.Handle) {
			t.Errorf("got %+v", p)
		}
		for count := range uint32(2) {
			if use, err := login(t, v, a, from, p); err != nil || use != (tenant.PasskeyUse{SignCount: count + 1, BackedUp: true}) {
				t.Errorf("got %+v, %v", use, err)
			}
		}
	}
}

func TestWhatDoesNotVerify(t *testing.T) {
	v := newVerifier(t, passkey.Settings{RPID: site, Origins: []string{origin, app}})
	good := &keytest.Authenticator{}
	p, err := register(t, v, good, origin)
	must(t, err)
	changed := func(change func(*keytest.Authenticator)) *keytest.Authenticator {
		a := good.Copy()
		change(a)
		return a
	}
	for name, c := range map[string]struct {
		origin string
		a      *keytest.Authenticator
		want   string
	}{
		"a page of another site": {"https://example.net", good, "origin"},
		"another subdomain":      {"https://evil.example.com", good, "origin"},
		"another port":           {"https://app.example.com", good, "origin"},
		"http":                   {"http://app.example.com:8443", good, "origin"},
		"another app":            {strings.Replace(app, "AbC", "XbC", 1), good, "origin"},
		"an app in another case": {strings.ToUpper(app), good, "origin"},
		"a frame":                {origin, changed(func(a *keytest.Authenticator) { a.CrossOrigin = true }), "origin"},
		"no user verification":   {origin, changed(func(a *keytest.Authenticator) { a.Unverified = true }), "ser verification"},
		"another user's handle":  {origin, changed(func(a *keytest.Authenticator) { a.Handle = []byte("another") }), "User handle"},
		"no user handle":         {origin, changed(func(a *keytest.Authenticator) { a.Handle = []byte{} }), "Handle"},
	} {
		if _, err := login(t, v, c.a, c.origin, p); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("login, %s: %v", name, err)
		}
		if strings.Contains(name, "handle") {
			continue // a registration has none
		}
		if _, err := register(t, v, c.a.Copy(), c.origin); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("registration, %s: %v", name, err)
		}
	}

	other, err := register(t, v, &keytest.Authenticator{}, origin)
	must(t, err)
	stolen := p
	stolen.PublicKey = other.PublicKey
	if _, err := login(t, v, good, origin, stolen); err == nil || !strings.Contains(err.Error(), "signature") {
		t.Errorf("another key: %v", err)
	}
	challenge := newChallenge()
	options, _ := v.RequestOptions(challenge)
	credential, err := good.Get(origin, options)
	must(t, err)
	assertion, err := newVerifier(t, passkey.Settings{RPID: "app." + site, Origins: []string{origin}}).ReadAssertion(credential)
	must(t, err)
	if _, err := assertion.Verify(challenge, p); err == nil {
		t.Error("another domain: it was accepted")
	}
}

// A passkey that can be backed up can't become one that can't, nor the reverse (WebAuthn Level
// 3, section 7.2). Nobody but its holder learns of that.
func TestAChangedPasskeyIsRefused(t *testing.T) {
	v := newVerifier(t, passkey.Settings{RPID: site, Origins: []string{origin}})
	a := &keytest.Authenticator{}
	p, err := register(t, v, a, origin)
	must(t, err)
	p.BackupEligible, p.BackedUp = false, false
	if _, err := login(t, v, a, origin, p); err != tenant.ErrPasskeyChanged {
		t.Errorf("got %v", err)
	}
	other, err := register(t, v, &keytest.Authenticator{}, origin)
	must(t, err)
	p.PublicKey = other.PublicKey
	if _, err := login(t, v, a, origin, p); err == nil || err == tenant.ErrPasskeyChanged {
		t.Errorf("another key: %v", err)
	}
}

// A browser that creates a passkey silently has not asked its user. Each login asks.
func TestAPasskeyIsCreatedSilently(t *testing.T) {
	v := newVerifier(t, passkey.Settings{RPID: site, Origins: []string{origin}})
	a := &keytest.Authenticator{Unverified: true, Absent: true}
	challenge := newChallenge()
	options, err := v.CreationOptions(challenge, owner, nil)
	must(t, err)
	credential, err := a.Create(origin, options)
	must(t, err)
	if _, err := v.Register(challenge, owner, credential, false); err == nil {
		t.Error("it was accepted as if the user had confirmed it")
	}
	p, err := v.Register(challenge, owner, credential, true)
	must(t, err)
	if _, err := login(t, v, a, origin, p); err == nil {
		t.Error("a login passed without the user")
	}
	a.Unverified, a.Absent = false, false
	_, err = login(t, v, a, origin, p)
	must(t, err)
}

func TestNoJSONOfACredential(t *testing.T) {
	v := newVerifier(t, passkey.Settings{RPID: site, Origins: []string{origin}})
	a := &keytest.Authenticator{}
	if _, err := register(t, v, a, origin); err != nil {
		t.Fatal(err)
	}
	options, _ := v.RequestOptions(newChallenge())
	good, err := a.Get(origin, options)
	must(t, err)
	var parts map[string]any
	must(t, json.Unmarshal(good, &parts))
	bad := []string{``, `{}`, `[]`, `null`, `"x"`, string(good) + "x"}
	without := func(change func(credential, response map[string]any)) {
		c, r := maps.Clone(parts), maps.Clone(parts["response"].(map[string]any))
		c["response"] = r
		change(c, r)
		text, _ := json.Marshal(c)
		bad = append(bad, string(text))
	}
	for _, name := range []string{"id", "rawId", "type", "response"} {
		without(func(c, _ map[string]any) { delete(c, name) })
		without(func(c, _ map[string]any) { c[name] = 1 })
	}
	for _, name := range []string{"clientDataJSON", "authenticatorData", "signature"} {
		without(func(_, r map[string]any) { delete(r, name) })
		without(func(_, r map[string]any) { r[name] = "!" })
	}
	for _, text := range bad {
		if _, err := v.ReadAssertion([]byte(text)); !errors.Is(err, tenant.ErrPasskeyJSON) {
			t.Errorf("%s: %v", text, err)
		}
		if _, err := v.Register(newChallenge(), owner, []byte(text), false); !errors.Is(err, tenant.ErrPasskeyJSON) {
			t.Errorf("registration, %s: %v", text, err)
		}
	}
	without(func(c, r map[string]any) { r["authenticatorData"] = "AAAA" })
	assertion, err := v.ReadAssertion([]byte(bad[len(bad)-1]))
	if err != nil {
		t.Fatalf("short authenticator data is JSON: %v", err)
	}
	if _, err := assertion.Verify(newChallenge(), record.Passkey{Credential: assertion.Credential}); err == nil {
		t.Error("short authenticator data: it was accepted")
	}
}

// The vectors of https://www.w3.org/TR/webauthn-3/#sctn-test-vectors.
//
//go:embed testdata/vectors.json
var vectors []byte

// Vectors without user verification or from a frame must be refused, the others accepted.
// Their attestations do not count: nobody asked for one.
func TestVectorsOfTheSpecification(t *testing.T) {
	var all []struct {
		Name, Credential             string
		Registration, Authentication struct {
			Challenge, ClientDataJSON, AttestationObject, AuthenticatorData, Signature string
		}
	}
	must(t, json.Unmarshal(vectors, &all))
	v := newVerifier(t, passkey.Settings{RPID: "example.org"})
	accepted := map[string][]string{}
	for _, c := range all {
		t.Run(c.Name, func(t *testing.T) {
			inJSON := func(response map[string]string) []byte {
				text, err := json.Marshal(map[string]any{"id": c.Credential, "rawId": c.Credential, "type": "public-key", "response": response})
				must(t, err)
				return text
			}
			number, _, _ := strings.Cut(c.Name, " ")
			created := inJSON(map[string]string{"clientDataJSON": c.Registration.ClientDataJSON, "attestationObject": c.Registration.AttestationObject})
			parsed, err := protocol.ParseCredentialCreationResponseBytes(created)
			must(t, err)
			flags := parsed.Response.AttestationObject.AuthData.Flags
			p, err := v.Register(decode(t, c.Registration.Challenge), owner, created, false)
			if want := flags.HasUserVerified() && !parsed.Response.CollectedClientData.CrossOrigin; want != (err == nil) {
				t.Errorf("registration: %v", err)
			}
			if err == nil {
				accepted["registration"] = append(accepted["registration"], number)
			} else {
				p = record.Passkey{
					Credential: parsed.RawID, UserHandle: owner.Handle, BackupEligible: flags.HasBackupEligible(),
					PublicKey: parsed.Response.AttestationObject.AuthData.AttData.CredentialPublicKey,
				}
			}
			assertion, err := v.ReadAssertion(inJSON(map[string]string{
				"clientDataJSON": c.Authentication.ClientDataJSON, "authenticatorData": c.Authentication.AuthenticatorData,
				"signature": c.Authentication.Signature, "userHandle": base64.RawURLEncoding.EncodeToString(owner.Handle),
			}))
			must(t, err)
			verified := decode(t, c.Authentication.AuthenticatorData)[32]&4 != 0
			framed := bytes.Contains(decode(t, c.Authentication.ClientDataJSON), []byte(`"crossOrigin":true`))
			_, err = assertion.Verify(decode(t, c.Authentication.Challenge), p)
			if want := verified && !framed; want != (err == nil) {
				t.Errorf("authentication: %v", err)
			}
			if err == nil {
				accepted["authentication"] = append(accepted["authentication"], number)
			}
			if _, err := assertion.Verify(newChallenge(), p); err == nil {
				t.Error("another challenge: it was accepted")
			}
		})
	}
	if len(accepted["registration"]) < 3 || !slices.Contains(accepted["authentication"], "16.8") {
		t.Errorf("accepted: %v", accepted)
	}
}

func decode(t *testing.T, s string) []byte {
	t.Helper()
	b, err := base64.RawURLEncoding.DecodeString(s)
	must(t, err)
	return b
}

// A key of 16384 bits would take a login a hundred times as long as one of 4096 bits.
func TestTheSizeOfAKey(t *testing.T) {
	v := newVerifier(t, passkey.Settings{RPID: site, Origins: []string{origin}})
	for bits, accepted := range map[int]bool{2048: true, 4096: true, 16384: false} {
		modulus := bytes.Repeat([]byte{0xff}, bits/8)
		key, err := cbor.Marshal(map[int]any{1: 3, 3: -257, -1: modulus, -2: []byte{1, 0, 1}})
		must(t, err)
		if _, err := register(t, v, &keytest.Authenticator{Key: key}, origin); accepted != (err == nil) {
			t.Errorf("RSA with %d bits: %v", bits, err)
		}
	}
}

// A key that can verify nothing would be no way to log in.
func TestABrokenKeyIsRefused(t *testing.T) {
	v := newVerifier(t, passkey.Settings{RPID: site, Origins: []string{origin}})
	half := bytes.Repeat([]byte{1}, 32)
	for name, fields := range map[string]map[int]any{
		"without coordinates": {1: 2, 3: -7, -1: 1},
		"not on the curve":    {1: 2, 3: -7, -1: 1, -2: half, -3: half},
		"of another kind":     {1: 1, 3: -7},
	} {
		key, err := cbor.Marshal(fields)
		must(t, err)
		if _, err := register(t, v, &keytest.Authenticator{Key: key}, origin); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

// Whatever strangers send as a credential is refused without a panic.
func FuzzCredential(f *testing.F) {
	v := newVerifier(f, passkey.Settings{RPID: site, Origins: []string{origin}})
	a := &keytest.Authenticator{}
	challenge := newChallenge()
	creation, _ := v.CreationOptions(challenge, owner, nil)
	created, err := a.Create(origin, creation)
	must(f, err)
	p, err := v.Register(challenge, owner, created, false)
	must(f, err)
	request, _ := v.RequestOptions(challenge)
	answered, err := a.Get(origin, request)
	must(f, err)
	f.Add(created)
	f.Add(answered)
	f.Add([]byte(`{"id":"AA","rawId":"AA","type":"public-key","response":{"clientDataJSON":"e30","authenticatorData":"AA","signature":"AA","attestationObject":"oA"}}`))
	other := newChallenge()
	f.Fuzz(func(t *testing.T, credential []byte) {
		if _, err := v.Register(other, owner, credential, false); err == nil {
			t.Error("a registration for another challenge was accepted")
		}
		assertion, err := v.ReadAssertion(credential)
		if err != nil {
			return
		}
		if _, err := assertion.Verify(other, p); err == nil {
			t.Error("an answer to another challenge was accepted")
		}
	})
}
