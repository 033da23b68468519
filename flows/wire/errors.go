// Package wire is the format of requests and responses: it parses bodies and tokens, and
// lists every error of the API.
//
// Start with the errors: each error_code is a variable with its status and message. A
// Refusal adds the details of one request, such as when to retry. Decode parses a body
// strictly, and so that no response repeats what a client sent.
package wire

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/mnemogate/mnemogate/flows/panics"
	"github.com/mnemogate/mnemogate/flows/record"
)

// An Error is an error_code of the API, with its HTTP status and a message that tells the
// developer of a client what to do. All codes are declared below and nowhere else. A code
// with two statuses has two variables.
type Error struct {
	Code    string
	Status  int
	Message string
}

// Error returns the code.
func (e *Error) Error() string { return e.Code }

// CodeOf returns the error_code for an error.
func CodeOf(err error) *Error {
	if code, ok := errors.AsType[*Error](err); ok {
		return code
	}
	return ErrService
}

// The result of a request whose client has hung up, and its status, which Caddy and nginx use,
// too. It is no error of the API, since nobody reads the answer.
const (
	Canceled       = "canceled"
	StatusCanceled = 499
)

// ResultOf returns what logs and metrics call the answer to a request, which is record.Success,
// Canceled or the error_code, and its status. ctx is the request's.
func ResultOf(ctx context.Context, err error) (result string, status int) {
	switch code := CodeOf(err); {
	case err == nil:
		return record.Success, 200
	case code == ErrUnavailable && HungUp(ctx, err):
		return Canceled, StatusCanceled
	default:
		return code.Code, code.Status
	}
}

// HungUp reports whether a request with ctx failed because its client has hung up. A plugin or a
// store may cancel what it was asked, too, and then the client waits for an answer.
func HungUp(ctx context.Context, err error) bool {
	return ctx.Err() == context.Canceled && errors.Is(err, context.Canceled)
}

// The errors of the API. Statuses marked "fixed" come from the interface document. The
// others are our choice.
//
// To add an error, add:
//   - a variable here, and a Reason below (that of a lock or limit comes from the name of
//     its event)
//   - its routes in flows/routes.go, because others answer service.error instead
//   - for the gate alone, errorTable in flows/pages_test.go, and fails in
//     caddymodule/gate/openapi.yaml
//   - in caddymodule/page/assets, reason.… in each language of texts if users can see the
//     reason, and fields in page.js if the error is shown at an input
var (
	ErrAPIKeyMissing = &Error{"auth.apikey.missing", 401, "Send your API key in one X-Api-Key header."}
	ErrAPIKeyInvalid = &Error{"auth.apikey.invalid", 401, "X-Api-Key is not a key of the company in the path."}

	ErrHeaderMissing  = &Error{"auth.header.missing", 401, "Send the session token in an Authorization header: Bearer <session_token>."}
	ErrHeaderInvalid  = &Error{"auth.header.invalid", 400, "Send exactly one Authorization header of the form Bearer <session_token>."}
	ErrTokenInvalid   = &Error{"auth.token.invalid", 401, "The token is unknown or has been revoked. Start again."}
	ErrTokenExpired   = &Error{"auth.token.expired", 401, "The token has expired. Start again."}
	ErrSessionInvalid = &Error{"auth.session.invalid", 403, "This path needs another session_state. Continue with the one that came with the token."}

	ErrLoginIDNotFound = &Error{"auth.loginid.notfound", 404, "No account has this login_id. Let the user correct it."}         // fixed
	ErrUserRestricted  = &Error{"auth.user.restricted", 403, "The account is restricted. Only an operator can change this."}    // fixed
	ErrUserClosed      = &Error{"auth.user.closed", 403, "The account is closed. Only an operator can change this."}            // fixed
	ErrUserDenied      = &Error{"auth.user.denied", 403, "Access to this account is denied. Only an operator can change this."} // fixed
	ErrRestricted      = &Error{"auth.restricted", 429, "Too many attempts. Try again after the seconds in Retry-After."}       // a limit or a lock
	ErrCaptchaMissing  = &Error{"auth.captcha.missing", 403, "Solve the captcha and send captcha_response."}
	ErrCaptchaInvalid  = &Error{"auth.captcha.invalid", 403, "The captcha_response is wrong or was used. Solve a new captcha."}
	ErrPasswordInvalid = &Error{"auth.password.invalid", 401, "The password is wrong. Try again with the same token."}
	// ErrPasswordSame is the auth.password.invalid of auth/setpassword.
	ErrPasswordSame       = &Error{"auth.password.invalid", 422, "new_password is the current password. Choose a different one."}
	ErrCredentialsInvalid = &Error{"auth.credentials.invalid", 401, "The login_id or the password is wrong. Ask for both again."}
	ErrOTPInvalid         = &Error{"auth.otp.invalid", 401, "The otp is wrong, expired or used. Request a new code before you try again."}
	ErrBackupCodeInvalid  = &Error{"auth.backupcode.invalid", 401, "The backup_code is wrong or was used. Try another one with the same token."}
	ErrDisclaimerInvalid  = &Error{"auth.disclaimer.invalid", 403, "Send the codes of all disclaimers_required in accept_disclaimers, with a new SMS code or passkey challenge if you sent one."}
	ErrOAuthNotFound      = &Error{"auth.oauth.notfound", 404, "No account is linked to this user of the provider. Offer another way to log in."}                     // fixed
	ErrOAuthFailed        = &Error{"auth.oauth.failed", 401, "The provider did not confirm the login. Check code and redirect_uri, and begin at the provider again."} // fixed
	ErrAnswerInvalid      = &Error{"auth.controlanswer.invalid", 401, "The control_answer is wrong. Try again with the same token."}

	ErrMethodRestricted = &Error{"recovery.method.restricted", 403, "This recovery method is not allowed. Choose another one, or leave out method."} // fixed
	ErrPhoneNotSet      = &Error{"recovery.phone.notset", 409, "The account has no phone. Choose another method."}
	ErrEmailNotSet      = &Error{"recovery.email.notset", 409, "The account has no email address. Choose another method."}
	ErrQuestionNotSet   = &Error{"recovery.question.notset", 409, "The account has no control question. Choose another method."}

	ErrValidation = &Error{"request.validation.failed", 400, "The request is malformed."}
	ErrQuality    = &Error{"request.validation.failed", 422, "The new_password is too weak. Ask for a different one."} // fixed
	ErrOtherBody  = &Error{"request.validation.failed", 422, "This Idempotency-Key came with another body. Send the same bytes, or another key."}
	ErrNoRoute    = &Error{"request.validation.failed", 404, "There is no such route. /{company_code}/v2/openapi.json lists all routes."}
	ErrConflict   = &Error{"request.validation.failed", 409, "The account could no longer log in. Add another way to log in first."}
	ErrMethod     = &Error{"request.validation.failed", 405, "Use POST."}
	ErrTooLarge   = &Error{"request.validation.failed", 413, "The body is larger than max_body (16 KiB by default)."}
	ErrEarlyData  = &Error{"request.validation.failed", 425, "Send the request again after the handshake: it came in early data (RFC 8470)."}
	ErrMediaType  = &Error{"request.validation.failed", 415, "Send the body as application/json in UTF-8, without Content-Encoding."}

	// ErrUnavailable and ErrService extend the interface document.
	ErrUnavailable = &Error{"service.unavailable", 503, "A service that this request needs did not answer. Try again after the seconds in Retry-After."}
	ErrService     = &Error{"service.error", 500, "The server failed. Tell its operator: the log has the details."}
)

// A Reason tells programs the cause of a code that has several. Reasons lists all of
// them.
type Reason string

// The reasons that are neither locks nor limits.
const (
	PasswordTooShort Reason = "password.too_short"
	PasswordTooLong  Reason = "password.too_long"
	PasswordCommon   Reason = "password.common"
	PasswordPersonal Reason = "password.personal"
	PasswordPattern  Reason = "password.pattern"
	PasswordBreached Reason = "password.breached"
	NoSecondFactor   Reason = "user.no_second_factor"
	TooOld           Reason = "too_old"
	OneFactor        Reason = "mfa"
	WrongRole        Reason = "role"
	OutOfScope       Reason = "scope"
	CrossSite        Reason = "cross_site"
	PasskeyUnknown   Reason = "passkey.unknown"
	PasskeyChanged   Reason = "passkey.changed"
)

// Reasons lists the possible reasons of each error. An error that is not listed has none.
var Reasons = map[*Error][]Reason{
	ErrCredentialsInvalid: {PasskeyUnknown, PasskeyChanged},
	ErrQuality:            {PasswordTooShort, PasswordCommon, PasswordPersonal, PasswordPattern, PasswordBreached},
	ErrValidation:         {PasswordTooLong},
	ErrUserRestricted:     {NoSecondFactor},
	ErrSessionInvalid:     {TooOld, OneFactor, WrongRole, OutOfScope},
	ErrHeaderInvalid:      {CrossSite},
	ErrRestricted:         limitReasons(),
}

func limitReasons() (all []Reason) {
	for _, kind := range record.EventKinds {
		if _, ok := record.CutLimit(kind.Name); ok {
			all = append(all, reasonOf(kind.Name))
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// reasonOf returns the reason of refusals by a lock or limit, which its event is named after.
func reasonOf(limit string) Reason {
	if limit == record.LimitSMSUnlisted {
		limit = record.LimitSMSCountry
	}
	reason, _ := record.CutLimit(limit)
	return Reason(reason)
}

// A Refusal is an Error with the details of one request.
type Refusal struct {
	Err         *Error
	Message     string        // replaces the Error's, if set; contains no secret
	Reason      Reason        // one of the Error's Reasons; empty for none
	RetryAfter  time.Duration // with ErrRestricted and ErrUnavailable
	Captcha     bool          // the next attempt needs a captcha_response
	MaxAge      time.Duration // with TooOld: the maximum age of the login
	Disclaimers []Disclaimer  // with ErrDisclaimerInvalid: the required ones
	Allow       string        // with ErrMethod: the methods of a path that takes others than POST
	Cause       error         // for the log; never sent to the client
	Doing       string        // with ErrUnavailable: what failed; a constant
}

// Error returns the code and, for the log, the cause.
func (r *Refusal) Error() string {
	if r.Cause != nil {
		return r.Err.Code + ": " + r.Cause.Error()
	}
	return r.Err.Code
}

// Unwrap makes errors.Is find both the code and the cause.
func (r *Refusal) Unwrap() []error {
	if r.Cause == nil {
		return []error{r.Err}
	}
	return []error{r.Err, r.Cause}
}

// ReasonOf returns the reason of an error; empty for none.
func ReasonOf(err error) Reason {
	if refusal, ok := errors.AsType[*Refusal](err); ok {
		return refusal.Reason
	}
	return ""
}

// DoingOf returns what failed, according to Unavailable, or "".
func DoingOf(err error) string {
	if refusal, ok := errors.AsType[*Refusal](err); ok {
		return refusal.Doing
	}
	return ""
}

// NotAllowed returns ErrMethod for a path that takes the methods in allow.
func NotAllowed(allow, message string) error {
	return &Refusal{Err: ErrMethod, Message: message, Allow: allow}
}

// Invalid returns request.validation.failed with a message that names the field.
func Invalid(format string, args ...any) error {
	return &Refusal{Err: ErrValidation, Message: fmt.Sprintf(format, args...)}
}

// Restricted returns auth.restricted until a time, with a Retry-After of at least a second.
// limit is the name of the event of the lock or limit.
func Restricted(limit string, now, until time.Time) error {
	r := &Refusal{Err: ErrRestricted, Reason: reasonOf(limit), RetryAfter: max(until.Sub(now), time.Second)}
	switch limit { // those that waiting does not end
	case record.LimitSMSUnlisted:
		r.Message = "No SMS are sent to the country of this phone. Use another way to log in."
	case record.LockDisabled:
		r.Message = "The password is disabled after too many wrong attempts. Reset it by recovery, or let an operator unlock it."
	}
	return r
}

// A Waiter is an error with which another service may say how long to wait; zero if it does
// not.
type Waiter interface {
	error
	RetryAfter() time.Duration
}

// Unavailable returns service.unavailable, caused by err, which may be a Waiter, or
// service.error if err is a panic. doing is a constant that says what failed, as in "loading
// the session".
func Unavailable(doing string, err error) error {
	if _, panicked := errors.AsType[*panics.Error](err); panicked {
		return &Refusal{Err: ErrService, Cause: fmt.Errorf("%s: %w", doing, err)}
	}
	wait := RetrySoon
	if w, ok := errors.AsType[Waiter](err); ok {
		wait = max(wait, min(w.RetryAfter(), retryLatest))
	}
	return &Refusal{Err: ErrUnavailable, RetryAfter: wait, Cause: fmt.Errorf("%s: %w", doing, err), Doing: doing}
}

// IsFailure reports whether err is service.unavailable or service.error: the client is not to
// blame.
func IsFailure(err error) bool { return errors.Is(err, ErrUnavailable) || errors.Is(err, ErrService) }

// Gone returns auth.token.invalid for the error of a store which says that what a token stands
// for is gone, or another request was faster. Of any other error it is Unavailable; nil for nil.
func Gone(doing string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, record.ErrNotFound), errors.Is(err, record.ErrConflict):
		return ErrTokenInvalid
	default:
		return Unavailable(doing, err)
	}
}

// The Retry-After when an external service failed, and the most that it may ask for.
const (
	RetrySoon   = 2 * time.Second
	retryLatest = time.Hour
)
