package flows

import (
	"context"
	"time"
)

// A Sender delivers SMS or mails. Send returns nil once the gateway has
// accepted the message and keeps to its own timeout; it may be called
// concurrently. Its errors are for the log and name no code or link.
type Sender interface {
	Send(ctx context.Context, m Message) error
}

// What a Message is about.
const (
	OTPLogin              = "otp.login"
	OTPRecovery           = "otp.recovery"
	RecoveryLink          = "recovery.link"
	WelcomeLink           = "welcome.link"
	NoticePasswordChanged = "notice.password_changed"
	NoticeIdentityBound   = "notice.identity_bound"
)

// A Message is an SMS or a mail, ready to be sent.
type Message struct {
	ID        string // unique
	Type      string
	Company   string
	Mnemocode string
	To        string // E.164 phone or email address
	Locale    string // the language tag of the account, else of the company; empty for none
	Code      string // with the OTP types
	Link      string // with RecoveryLink and WelcomeLink
	Subject   string // of a mail
	Text      string
	Expires   time.Time // of the code or link; zero for a notice
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

// A ProofOfWork is a Captcha without a provider. The Service makes its challenges
// and verifies the responses, since only it has the key to them: Verify is not
// called, and returns an error.
type ProofOfWork interface {
	Captcha
	// Bits is with how many zero bits the hash of a response must begin: one more
	// doubles the work.
	Bits() int
}

// An OAuthProvider exchanges an authorization code for the user it stands for.
// It returns ErrOAuthFailed (it may be wrapped) if the provider refused or
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
