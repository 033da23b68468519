package record

import (
	"encoding/base64"
	"time"
)

// A Passkey is a WebAuthn credential with which the user of an account logs in.
type Passkey struct {
	Account    int64
	Credential []byte // the credential ID, up to 1023 bytes; unique within a company
	// UserHandle is what the authenticator keeps with the passkey. All passkeys of an
	// account have the same one, so that an authenticator replaces a passkey instead
	// of keeping two. It holds no personal data.
	UserHandle     []byte
	PublicKey      []byte // in COSE
	SignCount      uint32 // of the last login; 0 if the authenticator does not count
	BackupEligible bool   // whether the authenticator may copy it to other devices; never changes
	BackedUp       bool   // whether copies existed at the last login
	Transports     string // how browsers reach the authenticator, separated by spaces; empty for unknown
	Name           string // for the user
	Created        time.Time
	LastUsed       time.Time // zero until the first login
}

// MaxPasskeys is how many passkeys an account can have.
const MaxPasskeys = 50

// ID returns the credential ID as WebAuthn's JSON spells it. It is not a secret.
func (p Passkey) ID() string { return base64.RawURLEncoding.EncodeToString(p.Credential) }

// CredentialOf returns the Credential of the passkey with this ID. It reports false for
// any other spelling.
func CredentialOf(id string) ([]byte, bool) {
	credential, err := base64.RawURLEncoding.Strict().DecodeString(id)
	return credential, err == nil && len(credential) > 0 && Passkey{Credential: credential}.ID() == id
}
