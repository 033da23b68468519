package tenant

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// A PasswordVerifier asks another system whether a password is right. For a wrong one it
// returns (false, nil). An error means that the system did not answer, so no attempt is
// counted and no lock comes; it must not contain the password. VerifyPassword has 5 s, also
// when the client hangs up, and may be called concurrently.
type PasswordVerifier interface {
	VerifyPassword(ctx context.Context, q PasswordQuestion) (bool, error)
}

// A PasswordQuestion asks about one password of one account.
type PasswordQuestion struct {
	ID        string // unique
	Company   string
	Mnemocode string
	LoginIDs  []string // the account's
	Password  string   // as the user typed it
}

// A BreachedList knows the passwords that were found in data breaches. An error means that
// the list did not answer; it must not contain the password or its hash. Has enforces its
// own timeout and may be called concurrently. The password is normalised.
type BreachedList interface {
	Has(ctx context.Context, password string) (bool, error)
}

// Breached says what happens to passwords in a BreachedList.
type Breached struct {
	List    BreachedList // nil for none
	From    string       // names the List: what another one has answered does not count
	AtLogin bool         // a user whose password is in it must set a new one
	Require bool         // if the list does not answer, the request fails; otherwise the password passes
}

// A Captcha verifies the response of a captcha with its provider. Verify returns an
// error only if the provider did not answer. It enforces its own timeout: ctx ends after a
// minute, but not when the client hangs up. It may be called concurrently. The address is the
// client's and may be empty.
type Captcha interface {
	Verify(ctx context.Context, response, address string) (bool, error)
}

// A ReusableCaptcha is a Captcha that accepts a response more than once, for tests.
type ReusableCaptcha interface {
	Captcha
	Reusable()
}

// A ProofOfWork is a Captcha without a provider. The flows.Service creates its challenges
// and verifies the responses, because only the Service has the key. Verify is never
// called and returns an error.
type ProofOfWork interface {
	Captcha
	// Bits returns the number of zero bits that the hash of a response must start
	// with. Each further bit doubles the work.
	Bits() int
}

// An OAuthProvider exchanges an authorization code for a user. Exchange returns
// wire.ErrOAuthFailed, possibly wrapped, if the provider refused what the client sent,
// and ErrProviderFault if the client is not to blame. It returns any other error if the
// provider did not answer. It enforces its own timeout: ctx ends after a minute, but not when
// the client hangs up. It may be called concurrently.
type OAuthProvider interface {
	Exchange(ctx context.Context, grant OAuthGrant) (OAuthUser, error)
}

// ErrProviderFault is a wire.ErrOAuthFailed for which the client is not to blame: our
// registration with the provider is wrong, or its answer can't be used or trusted. It is
// no failure of the client's address.
var ErrProviderFault = fmt.Errorf("%w", wire.ErrOAuthFailed)

// An OAuthAuthorizer knows where a login with an OAuthProvider starts. Start returns an
// error if it had to ask the provider and got no answer. It has 1.5 s, and may be called
// concurrently.
type OAuthAuthorizer interface {
	Start(ctx context.Context) (OAuthStart, error)
}

// An OAuthStart says where a client sends the browser for a login.
type OAuthStart struct {
	URL  string // without the client's parameters (RFC 6749, 4.1.1); empty if unknown
	PKCE bool   // whether the provider says that it supports S256 (RFC 7636)

	// The provider's issuer, and whether it says that its answers name it as iss (RFC
	// 9207). An empty issuer is unknown.
	Issuer string
	Iss    bool
}

// An OAuthGrant is what the client got from the provider.
type OAuthGrant struct {
	Code         string
	RedirectURI  string
	CodeVerifier string // RFC 7636; empty for none
	Nonce        string // OpenID Connect; empty if the client sent none to the provider
	// IsLinked reports whether an account has this user of the provider, which then needs to
	// tell no email. IsLinked may be nil, for false.
	IsLinked func(ctx context.Context, subject string) bool
}

// An OAuthUser is the user that the provider vouches for.
type OAuthUser struct {
	Subject string // see record.IsSubject; the provider never gives it to another user
	Email   string
	// EmailVerified means that the provider itself has proven that the user owns the Email.
	// With link_verified_email, the user then logs in to the account that has it.
	EmailVerified bool
	AuthTime      time.Time // when the user last proved to the provider who they are; zero if unknown
}

// ErrReceiverGone is the error of an EventReceiver that wants no more events. This node
// sends it none until its configuration is loaded again; the events wait.
var ErrReceiverGone = errors.New("the receiver wants no more events")

// An EventReceiver receives the account events of a company. Deliver returns nil once
// the receiver has accepted the event. With a message.LaterError, it is asked again only after
// Wait. It may be called concurrently, and has the Timeout of Events. A reload waits for it, so
// it must return soon after ctx has ended.
type EventReceiver interface {
	Deliver(ctx context.Context, e record.OutboxEvent) error
}

// Events configures the receiver of a company's account events.
type Events struct {
	Receiver EventReceiver // nil for none
	Types    []string      // of record.OutboxTypes; nil for all
	Timeout  time.Duration // of the receiver, at most a minute
	Retry    time.Duration // the delay before the first retry of an event, from 100 ms to 10 min
	// Traceparent names the trace of a request, as record.OutboxEvent does; nil for none.
	Traceparent func(context.Context) string
}

// Check refuses a timeout or retry with which a Relay would not deliver, or not pause, and what
// CheckEventTypes refuses.
func (e *Events) Check() error {
	err := CheckEventTypes(e.Types)
	switch {
	case err != nil:
		return fmt.Errorf("types: %w", err)
	case e.Timeout <= 0 || e.Timeout > time.Minute:
		return errors.New("timeout: it must be above 0, and at most 1m")
	case e.Retry < 100*time.Millisecond || e.Retry > 10*time.Minute:
		return errors.New("retry: choose 100ms to 10m")
	}
	return nil
}

// CheckEventTypes refuses types that no event has, those that are named twice, and a list without
// any.
func CheckEventTypes(types []string) error {
	if types != nil && len(types) == 0 {
		return errors.New("the list is empty; name a type, or leave it out to get all")
	}
	for i, kind := range types {
		switch {
		case !slices.Contains(record.OutboxTypes, kind):
			return fmt.Errorf("there is no event %q; choose from %s", kind, strings.Join(record.OutboxTypes, ", "))
		case slices.Contains(types[:i], kind):
			return fmt.Errorf("%s already specified", kind)
		}
	}
	return nil
}

// Wants reports whether the receiver wants events of this type.
func (e *Events) Wants(kind string) bool {
	return e.Receiver != nil && (e.Types == nil || slices.Contains(e.Types, kind))
}
