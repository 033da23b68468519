package passkey

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-webauthn/webauthn/protocol"
	"github.com/go-webauthn/webauthn/protocol/webauthncose"
	"github.com/go-webauthn/webauthn/webauthn"
	"github.com/google/uuid"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/tenant"
)

// A Verifier implements tenant.PasskeyVerifier. Its methods may be called concurrently.
type Verifier struct{ library *webauthn.WebAuthn }

// New returns the verifier for valid settings.
func New(s Settings) (*Verifier, error) {
	config := webauthn.Config{
		RPID:                  s.RPID,
		RPDisplayName:         s.Name,
		AttestationPreference: protocol.PreferNoAttestation,
		AuthenticatorSelection: protocol.AuthenticatorSelection{
			RequireResidentKey: protocol.ResidentKeyRequired(),
			ResidentKey:        protocol.ResidentKeyRequirementRequired,
			UserVerification:   protocol.VerificationRequired,
		},
		// For the browser's dialog. The challenge itself expires, too.
		Timeouts: webauthn.TimeoutsConfig{
			Login:        webauthn.TimeoutConfig{Timeout: tenant.PasskeyLife},
			Registration: webauthn.TimeoutConfig{Timeout: tenant.PasskeyLife},
		},
		// Some clients report extensions that nobody asked for.
		ExtensionsUnsolicitedOutputPolicy: protocol.UnsolicitedOutputPolicyIgnore,
	}
	for _, origin := range s.Origins {
		if isAndroidApp(origin) {
			config.RPOpaqueOrigins = append(config.RPOpaqueOrigins, origin)
		} else {
			config.RPOrigins = append(config.RPOrigins, origin)
		}
	}
	if len(config.RPOrigins) == 0 {
		config.RPOrigins = []string{"https://" + s.RPID}
	}
	library, err := webauthn.New(&config)
	return &Verifier{library}, err
}

// For returns a copy of the verifier for a company with this name, which authenticators
// show unless Settings.Name is set.
func (v *Verifier) For(name string) *Verifier {
	config := *v.library.Config
	config.RPDisplayName = cmp.Or(config.RPDisplayName, name)
	return &Verifier{&webauthn.WebAuthn{Config: &config}}
}

// RequestOptions implements tenant.PasskeyVerifier.
func (v *Verifier) RequestOptions(challenge []byte) ([]byte, error) {
	options, _, err := v.library.BeginDiscoverableLogin(webauthn.WithChallenge(challenge))
	if err != nil {
		return nil, explained(err)
	}
	return json.Marshal(options.Response)
}

// CreationOptions implements tenant.PasskeyVerifier.
func (v *Verifier) CreationOptions(challenge []byte, owner tenant.PasskeyOwner, has []record.Passkey) ([]byte, error) {
	u := user{owner, credentials(has)}
	options, _, err := v.library.BeginRegistration(u,
		webauthn.WithExclusions(webauthn.Credentials(u.credentials).CredentialDescriptors()),
		func(o *protocol.PublicKeyCredentialCreationOptions) error { o.Challenge = challenge; return nil })
	if err != nil {
		return nil, explained(err)
	}
	return json.Marshal(options.Response)
}

// ReadAssertion implements tenant.PasskeyVerifier.
func (v *Verifier) ReadAssertion(credential []byte) (tenant.PasskeyAssertion, error) {
	var raw protocol.CredentialAssertionResponse
	r := &raw.AssertionResponse
	if err := readJSON(credential, &raw, &raw.PublicKeyCredential, &r.ClientDataJSON, &r.AuthenticatorData, &r.Signature); err != nil {
		return tenant.PasskeyAssertion{}, err
	}
	verify := func(challenge []byte, p record.Passkey) (tenant.PasskeyUse, error) {
		parsed, err := raw.Parse()
		if err != nil {
			return tenant.PasskeyUse{}, explained(err)
		}
		owner := user{tenant.PasskeyOwner{Handle: p.UserHandle}, credentials([]record.Passkey{p})}
		eligible := parsed.Response.AuthenticatorData.Flags.HasBackupEligible()
		owner.credentials[0].Flags.BackupEligible = eligible // compared below, once the rest is verified
		find := func([]byte, []byte) (webauthn.User, error) { return owner, nil }
		_, used, err := v.library.ValidatePasskeyLogin(find, v.ceremony(challenge), parsed)
		if err != nil {
			return tenant.PasskeyUse{}, explained(err)
		}
		if eligible != p.BackupEligible { // WebAuthn Level 3, section 7.2, step 19
			return tenant.PasskeyUse{}, tenant.ErrPasskeyChanged
		}
		// Not used.Authenticator.SignCount, which the library does not move back.
		return tenant.PasskeyUse{SignCount: parsed.Response.AuthenticatorData.Counter, BackedUp: used.Flags.BackupState}, nil
	}
	return tenant.PasskeyAssertion{Credential: raw.RawID, UserHandle: r.UserHandle, Verify: verify}, nil
}

// RPID implements tenant.PasskeyVerifier.
func (v *Verifier) RPID() string { return v.library.Config.RPID }

// Register implements tenant.PasskeyVerifier.
func (v *Verifier) Register(challenge []byte, owner tenant.PasskeyOwner, credential []byte, silent bool) (record.Passkey, error) {
	var raw protocol.CredentialCreationResponse
	r := &raw.AttestationResponse
	if err := readJSON(credential, &raw, &raw.PublicKeyCredential, &r.ClientDataJSON, &r.AttestationObject); err != nil {
		return record.Passkey{}, err
	}
	parsed, err := raw.Parse()
	if err != nil {
		return record.Passkey{}, explained(err)
	}
	object := &parsed.Response.AttestationObject
	key := object.AuthData.AttData.CredentialPublicKey
	if err := CheckPublicKey(key); err != nil { // the library parses it only at a login
		return record.Passkey{}, err
	}
	// The options ask for no attestation, so browsers remove it. Clients that send one
	// all the same would choose the keys with which it is verified, and so how long
	// that takes.
	object.Format, object.AttStatement, object.SubStatements = string(protocol.AttestationFormatNone), nil, nil
	ceremony := v.ceremony(challenge)
	ceremony.UserID, ceremony.CredParams = owner.Handle, webauthn.CredentialParametersDefault()
	if silent {
		ceremony.Mediation, ceremony.UserVerification = protocol.MediationConditional, protocol.VerificationPreferred
	}
	created, err := v.library.CreateCredential(user{owner, nil}, ceremony, parsed)
	if err != nil {
		return record.Passkey{}, explained(err)
	}
	aaguid, _ := uuid.FromBytes(created.Authenticator.AAGUID) // the library reads 16 bytes
	return record.Passkey{
		Name:           providers[aaguid.String()],
		Credential:     created.ID,
		UserHandle:     owner.Handle,
		PublicKey:      created.PublicKey,
		SignCount:      created.Authenticator.SignCount,
		BackupEligible: created.Flags.BackupEligible,
		BackedUp:       created.Flags.BackupState,
		Transports:     transports(created.Transport),
	}, nil
}

// CheckPublicKey refuses a public key, in COSE, with which no login could be verified in time.
func CheckPublicKey(key []byte) error {
	if len(key) > maxPublicKey {
		return fmt.Errorf("its public key has %d bytes", len(key))
	}
	if _, err := webauthncose.ParsePublicKey(key); err != nil {
		return explained(err)
	}
	return nil
}

// maxPublicKey is the maximum size of a public key in bytes. It is enough for RSA with 4096
// bits. Logins with much larger keys would take seconds.
const maxPublicKey = 600

// ceremony returns what the library would have stored when it made the options.
func (v *Verifier) ceremony(challenge []byte) webauthn.SessionData {
	return webauthn.SessionData{
		Challenge:        base64.RawURLEncoding.EncodeToString(challenge),
		RelyingPartyID:   v.library.Config.RPID,
		UserVerification: protocol.VerificationRequired,
	}
}

// readJSON parses a credential. It returns tenant.ErrPasskeyJSON unless all members that
// WebAuthn requires are there.
func readJSON(credential []byte, to any, common *protocol.PublicKeyCredential, required ...*protocol.URLEncodedBase64) error {
	if err := json.Unmarshal(credential, to); err != nil {
		return tenant.ErrPasskeyJSON
	}
	missing := func(b *protocol.URLEncodedBase64) bool { return len(*b) == 0 }
	if common.ID == "" || len(common.RawID) == 0 || common.Type == "" || slices.ContainsFunc(required, missing) {
		return tenant.ErrPasskeyJSON
	}
	return nil
}

// A user implements webauthn.User.
type user struct {
	tenant.PasskeyOwner
	credentials []webauthn.Credential
}

func (u user) WebAuthnID() []byte                         { return u.Handle }
func (u user) WebAuthnName() string                       { return u.Name }
func (u user) WebAuthnDisplayName() string                { return u.Name }
func (u user) WebAuthnCredentials() []webauthn.Credential { return u.credentials }

func credentials(passkeys []record.Passkey) []webauthn.Credential {
	all := make([]webauthn.Credential, len(passkeys))
	for i, p := range passkeys {
		all[i] = webauthn.Credential{
			ID:            p.Credential,
			PublicKey:     p.PublicKey,
			Flags:         webauthn.CredentialFlags{BackupEligible: p.BackupEligible, BackupState: p.BackedUp},
			Authenticator: webauthn.Authenticator{SignCount: p.SignCount},
		}
		for _, t := range strings.Fields(p.Transports) {
			all[i].Transport = append(all[i].Transport, protocol.AuthenticatorTransport(t))
		}
	}
	return all
}

// transports keeps the transports that WebAuthn names. Clients may send any text.
func transports(sent []protocol.AuthenticatorTransport) string {
	var known []string
	for _, t := range []protocol.AuthenticatorTransport{protocol.USB, protocol.NFC, protocol.BLE, protocol.SmartCard, protocol.Hybrid, protocol.Internal} {
		if slices.Contains(sent, t) {
			known = append(known, string(t))
		}
	}
	return strings.Join(known, " ")
}

// explained returns the library's error in words for the log. The details of a wrong
// challenge are left out, because they hold it.
func explained(err error) error {
	e, ok := errors.AsType[*protocol.Error](err)
	switch {
	case !ok:
		return errors.New("the JSON in it is not what WebAuthn requires")
	case e.DevInfo == "" || strings.Contains(e.Details, "challenge"):
		return errors.New(e.Details)
	default:
		return fmt.Errorf("%s: %.300s", e.Details, e.DevInfo)
	}
}

var _ tenant.PasskeyVerifier = (*Verifier)(nil)
