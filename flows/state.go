package flows

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"time"
)

// A State is the session_state of the interface, on the wire and in a store.
type State string

const (
	None              State = ""                       // no session
	CheckPassword     State = "checkpassword"          // the login id is known; the password comes next
	CheckOTP          State = "checkotp"               // a code was sent; it or a backup code comes next
	SetPassword       State = "setpassword"            // all is proven, but a new password is required
	AcceptDisclaimers State = "acceptdisclaimers"      // after OAuth: disclaimers are pending
	Authorized        State = "authorized"             // the protected path is open
	RecoveryOTP       State = "recovery-checkotp"      // a recovery code was sent
	RecoveryQuestion  State = "recovery-checkquestion" // the control question was asked
	RecoveryPassword  State = "recovery-setpassword"   // recovery is proven; a new password comes next

	// recoveryLink is kept under the token of a mailed link until
	// auth/recovery/checklink exchanges it. No answer ever carries it.
	recoveryLink State = "recovery-link"
)

// States lists every state, None first.
var States = []State{None, CheckPassword, CheckOTP, SetPassword, Authorized, AcceptDisclaimers,
	RecoveryOTP, RecoveryQuestion, RecoveryPassword}

// A TokenHash is the SHA-256 of a token: all that a store ever holds of it.
type TokenHash [sha256.Size]byte

// A Session is what a store keeps for one token.
type Session struct {
	Hash      TokenHash
	ID        string // names the session, through all its steps, to operators; of no use as a token
	Company   string
	Account   int64  // 0 for a decoy, which no step lets pass
	Mnemocode string // the account's; empty for a decoy
	LoginID   string // a decoy's normalised login id, which carries its counters
	Epoch     int64  // the account's Epoch when its owner began to log in
	State     State
	Accepted  []Acceptance // disclaimers accepted on the way, written to the account once authorized
	Created   time.Time
	Expires   time.Time // when the token ends unless it is used; moves with use while Authorized
	Ends      time.Time // when it ends whatever happens; Expires never lies behind it
	Code      *Code     // the one-time code that waits to be entered; nil when there is none or it was spent
}

// A Code is a one-time code as a store keeps it.
type Code struct {
	Hash    [sha256.Size]byte // keyed with the session's token, so that a stored hash can't be searched
	Phone   string            // where it was sent; it is void for any other
	Expires time.Time
}

const (
	tokenPrefix = "mgs_"
	linkPrefix  = "mgl_"
	tokenBytes  = 32
)

// newToken returns a token, 32 random bytes behind a prefix, and its hash.
func newToken(prefix string) (string, TokenHash) {
	var b [tokenBytes]byte
	rand.Read(b[:]) // never fails: it ends the process instead
	token := prefix + base64.RawURLEncoding.EncodeToString(b[:])
	return token, hashToken(token)
}

func hashToken(token string) TokenHash { return sha256.Sum256([]byte(token)) }

// tokenShaped reports whether newToken could have made s: only then is a store
// asked for it. The last character of 32 bytes in base64url has two unused
// bits, which must be zero; the strict decoder sees to that.
func tokenShaped(prefix, s string) bool {
	if len(s) != len(prefix)+43 || s[:len(prefix)] != prefix {
		return false
	}
	var b [tokenBytes]byte
	_, err := base64.RawURLEncoding.Strict().Decode(b[:], []byte(s[len(prefix):]))
	return err == nil
}

// newID returns 128 random bits in hex.
func newID() string {
	var b [16]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}
