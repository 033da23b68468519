// Package flows is the protocol of mnemogate: which requests a client may send
// in which session state, and what each does.
//
// Start with Routes, the one table of the state machine, then read one flow
// file: each is named after its route. Service.Serve runs a route,
// Service.Authorize decides on the protected path. The package knows nothing
// of HTTP servers, SQL or Caddy: stores, senders, captchas and providers reach
// it through the interfaces in store.go and outbound.go.
package flows

import (
	"context"
	"reflect"
	"slices"

	"github.com/mnemogate/mnemogate/flows/record"
)

// A Route is one row of the state machine.
type Route struct {
	Path  string         // behind /{company_code}/v2/
	From  []record.State // states the session may be in; None: no token is looked at
	To    []record.State // states that a success may lead to; None: it issues no token
	Fails []*Error       // what it may answer beside Common and, where it takes a token, TokenErrors
	run   runner
}

// Groups of the interface document ("Common error code groups"), with our
// extensions and, in Common, what any body can be guilty of.
var (
	Common      = []*Error{ErrAPIKeyMissing, ErrAPIKeyInvalid, ErrValidation, ErrTooLarge, ErrMediaType, ErrUnavailable, ErrService}
	TokenErrors = []*Error{ErrHeaderMissing, ErrHeaderInvalid, ErrTokenInvalid, ErrTokenExpired, ErrSessionInvalid}
	userErrors  = []*Error{ErrUserRestricted, ErrUserClosed, ErrUserDenied}
)

// Routes is the state machine, in the order of the interface document. Where
// that lists no auth.restricted, rates and locks need it all the same. After
// an unknown login id a hardened company issues decoys, which pass nowhere.
var Routes = []Route{
	{ // login.go
		Path:  "auth/login",
		From:  in(record.None),
		To:    to(record.CheckPassword, record.CheckOTP),
		Fails: fails(userErrors, ErrLoginIDNotFound, ErrRestricted),
		run:   run((*Service).login),
	},
	{ // password.go
		Path:  "auth/checkpassword",
		From:  in(record.CheckPassword),
		To:    to(record.CheckOTP, record.SetPassword, record.Authorized),
		Fails: fails(userErrors, ErrCaptchaMissing, ErrCaptchaInvalid, ErrPasswordInvalid, ErrDisclaimerInvalid, ErrRestricted),
		run:   run((*Service).checkPassword),
	},
	{ // otp.go
		Path:  "auth/checkotp",
		From:  in(record.CheckOTP),
		To:    to(record.SetPassword, record.Authorized),
		Fails: fails(userErrors, ErrOTPInvalid, ErrBackupCodeInvalid, ErrDisclaimerInvalid, ErrRestricted),
		run:   run((*Service).checkOTP),
	},
	{ // otp.go
		Path:  "auth/renewotp",
		From:  in(record.CheckOTP),
		To:    to(record.None), // the token and its state stay
		Fails: fails(userErrors, ErrRestricted),
		run:   run((*Service).renewOTP),
	},
	{ // setpassword.go; disclaimers can become pending after the step that asked for them
		Path:  "auth/setpassword",
		From:  in(record.SetPassword, record.RecoveryPassword),
		To:    to(record.Authorized, record.None), // None after a recovery
		Fails: fails(userErrors, ErrPasswordSame, ErrQuality, ErrDisclaimerInvalid),
		run:   run((*Service).setPassword),
	},
	{ // credentials.go
		Path:  "auth/checkcredentials",
		From:  in(record.None),
		To:    to(record.CheckOTP, record.SetPassword, record.Authorized),
		Fails: fails(userErrors, ErrCaptchaMissing, ErrCaptchaInvalid, ErrCredentialsInvalid, ErrDisclaimerInvalid, ErrRestricted),
		run:   run((*Service).checkCredentials),
	},
	{ // oauth.go; the interface lists the token errors, but no token is looked at
		Path:  "auth/oauth",
		From:  in(record.None),
		To:    to(record.Authorized, record.AcceptDisclaimers),
		Fails: fails(userErrors, ErrOAuthNotFound, ErrOAuthFailed, ErrRestricted),
		run:   run((*Service).oauth),
	},
	{ // disclaimers.go
		Path:  "auth/acceptdisclaimers",
		From:  in(record.AcceptDisclaimers),
		To:    to(record.Authorized),
		Fails: fails(userErrors, ErrDisclaimerInvalid),
		run:   run((*Service).acceptDisclaimers),
	},
	{ // logout.go
		Path:  "auth/logout",
		From:  record.States[1:],
		To:    to(record.None),
		Fails: fails(nil, ErrRestricted),
		run:   run((*Service).logout),
	},
	{ // recovery.go
		Path: "auth/recovery/recover",
		From: in(record.None),
		To:   to(record.RecoveryOTP, record.RecoveryQuestion, record.None), // None: a link was mailed
		Fails: fails(userErrors, ErrLoginIDNotFound, ErrCaptchaInvalid, ErrMethodRestricted,
			ErrPhoneNotSet, ErrEmailNotSet, ErrQuestionNotSet, ErrRestricted),
		run: run((*Service).recover),
	},
	{ // otp.go
		Path:  "auth/recovery/checkotp",
		From:  in(record.RecoveryOTP),
		To:    to(record.RecoveryPassword),
		Fails: fails(userErrors, ErrOTPInvalid, ErrRestricted),
		run:   run((*Service).recoveryCheckOTP),
	},
	{ // otp.go
		Path:  "auth/recovery/renewotp",
		From:  in(record.RecoveryOTP),
		To:    to(record.None), // the token and its state stay
		Fails: fails(userErrors, ErrRestricted),
		run:   run((*Service).recoveryRenewOTP),
	},
	{ // recovery.go; the interface names recovery-checkotp here, but recover issues this state
		Path:  "auth/recovery/checkquestion",
		From:  in(record.RecoveryQuestion),
		To:    to(record.RecoveryPassword),
		Fails: fails(userErrors, ErrAnswerInvalid, ErrRestricted),
		run:   run((*Service).checkQuestion),
	},
	{ // recovery.go; open in the interface: takes the token of a mailed link in the body
		Path:  "auth/recovery/checklink",
		From:  in(record.None),
		To:    to(record.RecoveryPassword),
		Fails: fails(userErrors, ErrTokenInvalid, ErrTokenExpired, ErrRestricted),
		run:   run((*Service).checkLink),
	},
}

func in(states ...record.State) []record.State { return states }
func to(states ...record.State) []record.State { return states }

func fails(group []*Error, more ...*Error) []*Error { return append(slices.Clone(group), more...) }

// TakesToken reports whether the route needs a session.
func (r *Route) TakesToken() bool { return r.From[0] != record.None }

// MayFail reports whether the route may answer with e.
func (r *Route) MayFail(e *Error) bool {
	return slices.Contains(Common, e) || r.TakesToken() && slices.Contains(TokenErrors, e) || slices.Contains(r.Fails, e)
}

// Fields lists the fields of the route's body. A body without any may be empty.
func (r *Route) Fields() []Field { return Fields(r.run.request) }

// A runner does what a route does, once the token is found good.
type runner struct {
	request reflect.Type // the struct that the body is decoded into
	serve   func(ctx context.Context, s *Service, c *call, request any) (Reply, error)
}

// run makes a runner of f.
func run[Req any](f func(*Service, context.Context, *call, *Req) (Reply, error)) runner {
	return runner{reflect.TypeFor[Req](), func(ctx context.Context, s *Service, c *call, request any) (Reply, error) {
		return f(s, ctx, c, request.(*Req))
	}}
}

// decode reads the body into a new request.
func (r runner) decode(c *call) (request any, err error) {
	request = reflect.New(r.request).Interface()
	body, err := c.body()
	if err != nil {
		return nil, err
	}
	return request, decode(body, request)
}

// A codeRequest is one that may bring a one-time code. If it does, the code that
// was sent is spent by looking for its session, whatever comes of it.
type codeRequest interface{ bringsCode() bool }

// RouteByPath returns the route behind /{company_code}/v2/, nil if there is none.
func RouteByPath(path string) *Route {
	i := slices.IndexFunc(Routes, func(r Route) bool { return r.Path == path })
	if i < 0 {
		return nil
	}
	return &Routes[i]
}
