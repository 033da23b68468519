// Package keytest has a software authenticator for tests.
package keytest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"slices"

	"github.com/fxamacker/cbor/v2"
)

// An Authenticator creates passkeys and answers challenges with them, as a browser does
// with the device's authenticator. Its fields make it misbehave.
type Authenticator struct {
	Unverified  bool   // it does not verify the user
	Absent      bool   // it does not see the user
	CrossOrigin bool   // the page is a frame of another site
	Handle      []byte // sent as the user handle, if not nil
	AAGUID      [16]byte
	Key         []byte // sent as the public key of a new passkey, in COSE, if not nil
	Counts      bool   // it counts signatures

	passkeys []*passkey
}

type passkey struct {
	site       string
	id, handle []byte
	key        *ecdsa.PrivateKey
	count      uint32
}

// Flags of authenticator data (WebAuthn, section 6.1).
const (
	userPresent    = 1 << 0
	userVerified   = 1 << 2
	backupEligible = 1 << 3
	backedUp       = 1 << 4
	attested       = 1 << 6
)

// Copy returns an authenticator with copies of the passkeys.
func (a *Authenticator) Copy() *Authenticator {
	other := *a
	other.passkeys = nil
	for _, p := range a.passkeys {
		other.passkeys = append(other.passkeys, new(*p))
	}
	return &other
}

// Create creates a passkey on a page of the origin. It returns the RegistrationResponseJSON
// for PublicKeyCredentialCreationOptionsJSON.
func (a *Authenticator) Create(origin string, options []byte) ([]byte, error) {
	var o struct {
		Challenge string
		RP        struct{ ID string }
		User      struct{ ID string }
		Exclude   []struct{ ID string } `json:"excludeCredentials"`
	}
	if err := json.Unmarshal(options, &o); err != nil {
		return nil, err
	}
	handle, err := decode(o.User.ID)
	if err != nil {
		return nil, err
	}
	for _, p := range a.passkeys {
		if slices.ContainsFunc(o.Exclude, func(e struct{ ID string }) bool { return e.ID == encode(p.id) }) {
			return nil, errors.New("InvalidStateError: the authenticator has a passkey already")
		}
	}
	p := &passkey{site: o.RP.ID, id: make([]byte, 16), handle: handle}
	rand.Read(p.id)
	if p.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		return nil, err
	}
	public, err := p.key.PublicKey.Bytes()
	if err != nil {
		return nil, err
	}
	key, err := cbor.Marshal(map[int]any{1: 2, 3: -7, -1: 1, -2: public[1:33], -3: public[33:]})
	if err != nil {
		return nil, err
	}
	if a.Key != nil {
		key = a.Key
	}
	data := a.authenticatorData(p, attested)
	data = append(data, a.AAGUID[:]...)
	data = binary.BigEndian.AppendUint16(data, uint16(len(p.id)))
	data = slices.Concat(data, p.id, key)
	object, err := cbor.Marshal(map[string]any{"fmt": "none", "attStmt": map[string]any{}, "authData": data})
	if err != nil {
		return nil, err
	}
	a.passkeys = append(a.passkeys, p)
	return json.Marshal(credential(p, map[string]any{
		"clientDataJSON":    encode(a.clientData("webauthn.create", o.Challenge, origin)),
		"attestationObject": encode(object),
		"transports":        []string{"internal", "hybrid", "<unknown>"},
	}))
}

// Get answers with the newest passkey for the site, on a page of the origin. It returns the
// AuthenticationResponseJSON for PublicKeyCredentialRequestOptionsJSON.
func (a *Authenticator) Get(origin string, options []byte) ([]byte, error) {
	var o struct{ Challenge, RPID string }
	if err := json.Unmarshal(options, &o); err != nil {
		return nil, err
	}
	for _, p := range slices.Backward(a.passkeys) {
		if p.site != o.RPID {
			continue
		}
		if a.Counts {
			p.count++
		}
		handle := p.handle
		if a.Handle != nil {
			handle = a.Handle
		}
		data, client := a.authenticatorData(p, 0), a.clientData("webauthn.get", o.Challenge, origin)
		hash := sha256.Sum256(client)
		signed := sha256.Sum256(slices.Concat(data, hash[:]))
		signature, err := ecdsa.SignASN1(rand.Reader, p.key, signed[:])
		if err != nil {
			return nil, err
		}
		return json.Marshal(credential(p, map[string]any{
			"clientDataJSON":    encode(client),
			"authenticatorData": encode(data),
			"signature":         encode(signature),
			"userHandle":        encode(handle),
		}))
	}
	return nil, errors.New("NotAllowedError: there is no passkey for this site")
}

func (a *Authenticator) authenticatorData(p *passkey, flags byte) []byte {
	flags |= userPresent | userVerified | backupEligible | backedUp
	if a.Unverified {
		flags &^= userVerified
	}
	if a.Absent {
		flags &^= userPresent
	}
	site := sha256.Sum256([]byte(p.site))
	return binary.BigEndian.AppendUint32(append(site[:], flags), p.count)
}

func (a *Authenticator) clientData(kind, challenge, origin string) []byte {
	data, err := json.Marshal(map[string]any{"type": kind, "challenge": challenge, "origin": origin, "crossOrigin": a.CrossOrigin})
	if err != nil {
		panic(err) // cannot happen: these are strings
	}
	return data
}

func credential(p *passkey, response map[string]any) map[string]any {
	return map[string]any{
		"id": encode(p.id), "rawId": encode(p.id), "type": "public-key", "authenticatorAttachment": "platform",
		"response": response, "clientExtensionResults": map[string]any{"credProps": map[string]any{"rk": true}},
	}
}

func encode(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

func decode(s string) ([]byte, error) { return base64.RawURLEncoding.DecodeString(s) }
