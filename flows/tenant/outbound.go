package tenant

import (
	"context"
	"slices"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
)

// A PasswordVerifier asks another system whether a password is right. An error
// means that it did not say, and names no password. It may be called concurrently.
type PasswordVerifier interface {
	VerifyPassword(ctx context.Context, q PasswordQuestion) (bool, error)
}

// A PasswordQuestion is about one password of one account.
type PasswordQuestion struct {
	ID        string // unique
	Company   string
	Mnemocode string
	LoginIDs  []string // of the account
	Password  string   // as it was typed
}

// A Captcha verifies the response of a captcha with its provider. Verify
// returns an error only if the provider did not answer, keeps to its own
// timeout, and may be called concurrently. The address is the client's and may
// be empty.
type Captcha interface {
	Verify(ctx context.Context, response, address string) (bool, error)
}

// A ReusableCaptcha is a Captcha whose responses may be used again: for tests.
type ReusableCaptcha interface {
	Captcha
	Reusable()
}

// A ProofOfWork is a Captcha without a provider. The flows.Service makes its challenges
// and verifies the responses, since only it has the key to them: Verify is not
// called, and returns an error.
type ProofOfWork interface {
	Captcha
	// Bits is with how many zero bits the hash of a response must begin: one more
	// doubles the work.
	Bits() int
}

// An OAuthProvider exchanges an authorization code for the user it stands for.
// It returns wire.ErrOAuthFailed (it may be wrapped) if the provider refused or
// answered something that can't be trusted, any other error if it could not be
// asked. It keeps to its own timeout and may be called concurrently.
type OAuthProvider interface {
	Exchange(ctx context.Context, grant OAuthGrant) (OAuthUser, error)
}

// An OAuthAuthorizer knows where a login at an OAuthProvider begins. Start returns an
// error if the provider must be asked and did not answer; it may be called
// concurrently.
type OAuthAuthorizer interface {
	Start(ctx context.Context) (OAuthStart, error)
}

// An OAuthStart is where a browser is sent for a login.
type OAuthStart struct {
	URL  string // to which a client adds its parameters (RFC 6749, 4.1.1); empty if nobody knows
	PKCE bool   // whether the provider says that it takes S256 (RFC 7636)
}

// An OAuthGrant is what the client brought back from the provider.
type OAuthGrant struct {
	Code         string
	RedirectURI  string
	CodeVerifier string // RFC 7636; empty for none
	Nonce        string // OpenID Connect; empty for none, and then not checked
}

// An OAuthUser is whom the provider vouches for.
type OAuthUser struct {
	Subject       string
	Email         string
	EmailVerified bool
}

// An EventReceiver is told what happens to a company's accounts. Deliver
// returns nil once the receiver has taken the event, keeps to its own timeout,
// and may be called concurrently.
type EventReceiver interface {
	Deliver(ctx context.Context, e record.OutboxEvent) error
}

// Events is who is told of what happens to a company's accounts.
type Events struct {
	Receiver EventReceiver // nil for nobody
	Types    []string      // of record.OutboxTypes; nil for all
	Timeout  time.Duration // the receiver's own
	Retry    time.Duration // until an event is tried again for the first time
}

// Wants reports whether somebody is to be told of a type of event.
func (e *Events) Wants(kind string) bool {
	return e.Receiver != nil && (e.Types == nil || slices.Contains(e.Types, kind))
}
