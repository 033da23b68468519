package tenant

import (
	"errors"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// PasskeyLife is how long the challenge of a passkey is valid.
const PasskeyLife = 5 * time.Minute

// ErrNoPasskeys means that the company is not configured for passkeys.
var ErrNoPasskeys = &wire.Refusal{Err: wire.ErrNoRoute, Message: "This company has no passkeys. Do not offer them."}

// A PasskeyVerifier reads and writes WebAuthn's formats for a company. It requires user
// verification, so a passkey is two factors. It keeps nothing and may be called
// concurrently.
type PasskeyVerifier interface {
	// RequestOptions returns the PublicKeyCredentialRequestOptionsJSON for a login.
	RequestOptions(challenge []byte) ([]byte, error)
	// CreationOptions returns the PublicKeyCredentialCreationOptionsJSON for a new
	// passkey. The options exclude authenticators that have one of the passkeys.
	CreationOptions(challenge []byte, owner PasskeyOwner, has []record.Passkey) ([]byte, error)
	// ReadAssertion parses an AuthenticationResponseJSON. It verifies nothing. The
	// error is ErrPasskeyJSON.
	ReadAssertion(credential []byte) (PasskeyAssertion, error)
	// Register verifies a RegistrationResponseJSON and returns the new passkey with
	// what the authenticator says about it. If the browser has created it silently, the
	// user need not have confirmed it. The error is ErrPasskeyJSON, or says what does not
	// verify.
	Register(challenge []byte, owner PasskeyOwner, credential []byte, silent bool) (record.Passkey, error)
	// RPID returns the domain that the passkeys belong to. Companies may share it.
	RPID() string
}

// A PasskeyAssertion is an authenticator's answer to a challenge. Until Verify has
// succeeded, all of it may be forged.
type PasskeyAssertion struct {
	Credential []byte // the ID of the passkey that the authenticator used
	UserHandle []byte
	// Verify checks the answer against the challenge and the stored passkey, except
	// for the sign count. It fails unless the user handles are the same. The error
	// says what does not verify. It is ErrPasskeyChanged if all but that does.
	Verify func(challenge []byte, p record.Passkey) (PasskeyUse, error)
}

// A PasskeyUse is what a verified answer says about its passkey.
type PasskeyUse struct {
	SignCount uint32
	BackedUp  bool
}

// A PasskeyOwner is the user of a new passkey, as the authenticator stores and shows it.
type PasskeyOwner struct {
	Handle []byte
	Name   string // a login id that the user knows
}

// ErrPasskeyJSON means that a credential does not have WebAuthn's JSON form.
var ErrPasskeyJSON = errors.New("the credential is not the JSON of a PublicKeyCredential")

// ErrPasskeyChanged means that an authenticator says another thing than when the passkey was
// created about whether it can be backed up.
var ErrPasskeyChanged = errors.New("whether it can be backed up has changed since it was created")
