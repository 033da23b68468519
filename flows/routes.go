// Package flows implements the protocol of mnemogate: which requests a client may
// send in each session state, and what each request does.
//
// Start with Routes, the table of the state machine. Then read one flow file; each
// is named after its route. Service.Serve runs a route. The package does not depend
// on HTTP servers, SQL or Caddy.
//
// It builds on these packages:
//
//   - session creates, advances and revokes sessions, and authorizes requests for
//     the protected path
//   - limits counts attempts
//   - background runs the work that no request waits for
//   - tenant holds the configuration of a company
//   - tokens makes the tokens and codes that clients hold
//   - typed reads what people type: codes, phones, emails, login names
//   - wire defines the errors
//   - record defines what stores keep
//
// Package manage has the operations of operators.
package flows

import (
	"context"
	"reflect"
	"slices"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/session"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// A Route is one row of the state machine.
type Route struct {
	Path  string         // after /{company_code}/v2/
	From  []record.State // states the session may be in; None: the route takes no token
	To    []record.State // states that a success may lead to; None: the route issues no token
	Fails []*wire.Error  // errors of the route, in addition to Common and, if it takes a token, TokenErrors
	// Unkept says that an Idempotency-Key means nothing to the route.
	Unkept bool
	// StepsUp says that the route raises sessions: it takes a cookie, too, and exists only on
	// sites that may ask for that.
	StepsUp bool
	run     runner
}

// Error groups of the interface document ("Common error code groups"), with our
// extensions. Common includes the errors of a malformed body.
var (
	Common      = []*wire.Error{wire.ErrAPIKeyMissing, wire.ErrAPIKeyInvalid, wire.ErrValidation, wire.ErrTooLarge, wire.ErrMediaType, wire.ErrUnavailable, wire.ErrService}
	TokenErrors = []*wire.Error{wire.ErrHeaderMissing, wire.ErrHeaderInvalid, wire.ErrTokenInvalid, wire.ErrTokenExpired, wire.ErrSessionInvalid}
	userErrors  = []*wire.Error{wire.ErrUserRestricted, wire.ErrUserClosed, wire.ErrUserDenied}
)

// Routes is the state machine, in the order of the interface document. It differs from that
// document as departures in flows/pages_test.go and the end of docs/api.md say. For an
// unknown login id, a hardened company issues decoys: sessions that cannot succeed.
//
// To add a route, write its row here and a file in this package. If strangers can cause its
// events, see isNoise, isHistory and isUnlimited in flows/routeevents.go.
var Routes = []Route{
	{ // login.go
		Path:  "auth/login",
		From:  in(record.None),
		To:    to(record.CheckPassword, record.CheckOTP),
		Fails: fails(userErrors, wire.ErrHeaderInvalid, wire.ErrLoginIDNotFound, wire.ErrRestricted), // ErrHeaderInvalid: for the cookie of a device
		run:   run((*Service).login),
	},
	{ // checkpassword.go
		Path:  "auth/checkpassword",
		From:  in(record.CheckPassword),
		To:    to(record.CheckOTP, record.SetPassword, record.Authorized),
		Fails: fails(userErrors, wire.ErrCaptchaMissing, wire.ErrCaptchaInvalid, wire.ErrPasswordInvalid, wire.ErrDisclaimerInvalid, wire.ErrRestricted),
		run:   run((*Service).checkPassword),
	},
	{ // checkotp.go
		Path:  "auth/checkotp",
		From:  in(record.CheckOTP),
		To:    to(record.SetPassword, record.Authorized),
		Fails: fails(userErrors, wire.ErrOTPInvalid, wire.ErrBackupCodeInvalid, wire.ErrDisclaimerInvalid, wire.ErrRestricted),
		run:   run((*Service).checkOTP),
	},
	{ // renewotp.go
		Path:  "auth/renewotp",
		From:  in(record.CheckOTP),
		To:    to(record.None), // the token and its state stay
		Fails: fails(userErrors, wire.ErrRestricted),
		run:   run((*Service).renewOTP),
	},
	{ // setpassword.go; new disclaimers can become pending after the step that asked for them
		Path:  "auth/setpassword",
		From:  in(record.SetPassword, record.RecoveryPassword),
		To:    to(record.Authorized, record.None), // None after a recovery
		Fails: fails(userErrors, wire.ErrPasswordSame, wire.ErrQuality, wire.ErrDisclaimerInvalid),
		run:   run((*Service).setPassword),
	},
	{ // checkcredentials.go
		Path:  "auth/checkcredentials",
		From:  in(record.None),
		To:    to(record.CheckOTP, record.SetPassword, record.Authorized),
		Fails: fails(userErrors, wire.ErrHeaderInvalid, wire.ErrCaptchaMissing, wire.ErrCaptchaInvalid, wire.ErrCredentialsInvalid, wire.ErrDisclaimerInvalid, wire.ErrRestricted),
		run:   run((*Service).checkCredentials),
	},
	{ // oauth.go; the interface lists the token errors, but the route takes no token
		Path:  "auth/oauth",
		From:  in(record.None),
		To:    to(record.Authorized, record.AcceptDisclaimers),
		Fails: fails(userErrors, wire.ErrHeaderInvalid, wire.ErrOAuthNotFound, wire.ErrOAuthFailed, wire.ErrRestricted),
		run:   run((*Service).oauth),
	},
	{ // acceptdisclaimers.go
		Path:  "auth/acceptdisclaimers",
		From:  in(record.AcceptDisclaimers),
		To:    to(record.Authorized),
		Fails: fails(userErrors, wire.ErrDisclaimerInvalid),
		run:   run((*Service).acceptDisclaimers),
	},
	{ // logout.go
		Path:  "auth/logout",
		From:  record.States[1:],
		To:    to(record.None),
		Fails: fails(nil, wire.ErrRestricted),
		run:   run((*Service).logout),
	},
	{ // recover.go
		Path: "auth/recovery/recover",
		From: in(record.None),
		To:   to(record.RecoveryOTP, record.RecoveryQuestion, record.None), // None: a link was mailed
		Fails: fails(userErrors, wire.ErrLoginIDNotFound, wire.ErrCaptchaInvalid, wire.ErrMethodRestricted,
			wire.ErrPhoneNotSet, wire.ErrEmailNotSet, wire.ErrQuestionNotSet, wire.ErrRestricted),
		run: run((*Service).recover),
	},
	{ // checkotp.go
		Path:  "auth/recovery/checkotp",
		From:  in(record.RecoveryOTP),
		To:    to(record.RecoveryPassword),
		Fails: fails(userErrors, wire.ErrOTPInvalid, wire.ErrRestricted),
		run:   run((*Service).recoveryCheckOTP),
	},
	{ // renewotp.go
		Path:  "auth/recovery/renewotp",
		From:  in(record.RecoveryOTP),
		To:    to(record.None), // the token and its state stay
		Fails: fails(userErrors, wire.ErrRestricted),
		run:   run((*Service).recoveryRenewOTP),
	},
	{ // checkquestion.go; the interface says recovery-checkotp, but recover issues this state
		Path:  "auth/recovery/checkquestion",
		From:  in(record.RecoveryQuestion),
		To:    to(record.RecoveryPassword),
		Fails: fails(userErrors, wire.ErrAnswerInvalid, wire.ErrRestricted),
		run:   run((*Service).checkQuestion),
	},
	{ // checklink.go; not settled in the interface: the body has the token of a mailed link
		Path:  "auth/recovery/checklink",
		From:  in(record.None),
		To:    to(record.RecoveryPassword),
		Fails: fails(userErrors, wire.ErrTokenInvalid, wire.ErrTokenExpired, wire.ErrRestricted),
		run:   run((*Service).checkLink),
	},
	{ // passkey.go; only with passkeys
		Path:   "passkey/options",
		From:   in(record.None),
		To:     to(record.None), // no session begins
		Fails:  fails(nil, wire.ErrNoRoute),
		Unkept: true,
		run:    run((*Service).passkeyOptions),
	},
	{ // passkey.go; only with passkeys
		Path:  "passkey/login",
		From:  in(record.None),
		To:    to(record.SetPassword, record.Authorized, record.AcceptDisclaimers),
		Fails: fails(userErrors, wire.ErrHeaderInvalid, wire.ErrCredentialsInvalid, wire.ErrDisclaimerInvalid, wire.ErrRestricted, wire.ErrNoRoute),
		run:   run((*Service).passkeyLogin),
	},
	{ // stepup.go
		Path:    "stepup",
		From:    in(record.Authorized),
		To:      to(record.None), // the token and its state stay
		Fails:   fails(userErrors, wire.ErrRestricted),
		StepsUp: true,
		run:     run((*Service).stepUp),
	},
	{ // stepup.go
		Path:    "stepup/check",
		From:    in(record.Authorized),
		To:      to(record.Authorized), // the token stays
		Fails:   fails(userErrors, wire.ErrOTPInvalid, wire.ErrBackupCodeInvalid, wire.ErrPasswordInvalid, wire.ErrCredentialsInvalid, wire.ErrRestricted),
		StepsUp: true,
		run:     run((*Service).checkStepUp),
	},
}

func in(states ...record.State) []record.State { return states }
func to(states ...record.State) []record.State { return states }

func fails(group []*wire.Error, more ...*wire.Error) []*wire.Error {
	return append(slices.Clone(group), more...)
}

// TakesToken reports whether the route needs a session.
func (r *Route) TakesToken() bool { return r.From[0] != record.None }

// MayFail reports whether the route may answer with e.
func (r *Route) MayFail(e *wire.Error) bool {
	return slices.Contains(Common, e) || r.TakesToken() && slices.Contains(TokenErrors, e) || slices.Contains(r.Fails, e)
}

// Request returns the struct of the route's body.
func (r *Route) Request() reflect.Type { return r.run.request }

// Fields lists the fields of the route's body. If there are none, the body may be empty.
func (r *Route) Fields() []wire.Field { return wire.Fields(r.run.request) }

// A runner runs a route after its token was checked.
type runner struct {
	request reflect.Type // the struct that the body is decoded into
	serve   func(ctx context.Context, s *Service, c *session.Call, request any) (Reply, error)
}

// run returns a runner that calls f.
func run[Req any](f func(*Service, context.Context, *session.Call, *Req) (Reply, error)) runner {
	return runner{reflect.TypeFor[Req](), func(ctx context.Context, s *Service, c *session.Call, request any) (Reply, error) {
		return f(s, ctx, c, request.(*Req))
	}}
}

// decode reads the body into a new request.
func (r runner) decode(body func() ([]byte, error)) (request any, err error) {
	request = reflect.New(r.request).Interface()
	raw, err := body()
	if err != nil {
		return nil, err
	}
	return request, wire.Decode(raw, request)
}

// A codeRequest is a request that may carry a one-time code by SMS, which has this length.
// If it does, Serve spends the session's code when it finds the session, even if the
// request then fails, so that this is no further call to the store.
type codeRequest interface{ mayBeCode(length int) bool }

// RouteByPath returns the route with this path after /{company_code}/v2/, or nil.
func RouteByPath(path string) *Route {
	i := slices.IndexFunc(Routes, func(r Route) bool { return r.Path == path })
	if i < 0 {
		return nil
	}
	return &Routes[i]
}
