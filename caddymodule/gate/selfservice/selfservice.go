// Package selfservice has the routes with which logged-in users manage their own login.
// Their operations are those of the accounts API (package manage). Package gate finds
// out whose request it is.
package selfservice

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"rsc.io/qr"

	"github.com/mnemogate/mnemogate/caddymodule/accounts/api"
	"github.com/mnemogate/mnemogate/caddymodule/bodies"
	"github.com/mnemogate/mnemogate/caddymodule/gate/paths"
	"github.com/mnemogate/mnemogate/caddymodule/routes"
	"github.com/mnemogate/mnemogate/flows/manage"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// A Route is one of the routes.
type Route struct {
	Method  string
	pattern string // {id} matches any one segment
	needs   need
	action  action
}

// A need is what a route needs of the session.
type need int

const (
	aSession    need = iota
	recentLogin      // for a change
	twoFactors       // for a change of what the user logs in with, with self_service_mfa
)

// Routes lists the routes.
var Routes = []Route{
	{http.MethodGet, "factors", aSession, plain((*Call).factors)},
	{http.MethodGet, "sessions", aSession, plain((*Call).sessions)},
	{http.MethodDelete, "sessions", recentLogin, bodyless((*Call).endOthers)},
	{http.MethodDelete, endSession, recentLogin, bodyless((*Call).endSession)},
	{http.MethodGet, "devices", aSession, plain((*Call).devices)},
	{http.MethodDelete, "devices", recentLogin, bodyless((*Call).forgetDevices)},
	{http.MethodDelete, "devices/{id}", recentLogin, bodyless((*Call).forgetDevices)},
	{http.MethodPost, "password", twoFactors, with((*Call).changePassword)},
	{http.MethodPost, "totp", twoFactors, with((*Call).newTOTP)},
	{http.MethodPost, "totp/confirm", twoFactors, with((*Call).confirmTOTP)},
	{http.MethodDelete, "totp", twoFactors, bodyless((*Call).removeTOTP)},
	{http.MethodPost, "second_factor", twoFactors, with((*Call).setSecondFactor)},
	{http.MethodPost, "backup-codes", twoFactors, with((*Call).newBackupCodes)},
	{http.MethodPost, "phone", twoFactors, with((*Call).sendPhone)},
	{http.MethodPost, "phone/confirm", twoFactors, with(confirm(record.Phone))},
	{http.MethodDelete, "phone", twoFactors, bodyless(remove(record.Phone))},
	{http.MethodPost, "email", twoFactors, with((*Call).sendEmail)},
	{http.MethodPost, "email/confirm", twoFactors, with(confirm(record.Email))},
	{http.MethodDelete, "email", twoFactors, bodyless(remove(record.Email))},
	{http.MethodGet, "passkeys", aSession, plain((*Call).passkeys)},
	{http.MethodPost, "passkeys", twoFactors, with((*Call).addPasskey)},
	{http.MethodPost, "passkeys/options", twoFactors, with((*Call).newPasskey)},
	{http.MethodPatch, "passkeys/{id}", recentLogin, with((*Call).renamePasskey)},
	{http.MethodDelete, "passkeys/{id}", twoFactors, bodyless((*Call).removePasskey)},
	{http.MethodGet, "tokens", aSession, plain((*Call).tokens)},
	{http.MethodPost, "tokens", recentLogin, with((*Call).issueToken)},
	{http.MethodDelete, "tokens/{id}", recentLogin, bodyless((*Call).removeToken)},
}

const endSession = "sessions/{id}"

// IsFresh reports whether the route needs a recent login.
func (r *Route) IsFresh() bool { return r.needs >= recentLogin }

// ChangesFactors reports whether the route changes what the user logs in with.
func (r *Route) ChangesFactors() bool { return r.needs == twoFactors }

// IsChange reports whether the user makes a change with the route and the id in the path. It
// then needs a recent login, and has a budget. A logout does not.
func (r *Route) IsChange(user *manage.Self, id string) bool {
	return r.IsFresh() && (r.pattern != endSession || !user.IsCurrent(record.Session{ID: id}))
}

// A Call is a request to a Route, once its user is known.
type Call struct {
	*http.Request
	*manage.Self
	FreshFor   time.Duration          // the age up to which a login allows changes
	MFAMissing bool                   // some changes need a factor more than the session was given
	ReadBody   func() ([]byte, error) // reads the body of the request
	Accepted   func()                 // is called once the body was accepted
	LoggedOut  func()                 // is called after the session of the request was revoked
	ID         string                 // of the session or other thing in the path
	Change     bool                   // what IsChange reports
}

// Serve returns the answer of a route: "status":"success" and the route's fields. It
// refuses a query. A change counts once its body is valid.
func (r *Route) Serve(c Call) (answer any, err error) {
	defer func() {
		err = c.EndChange(c.Context(), err)
	}()
	if c.URL.RawQuery != "" {
		return nil, wire.Invalid("This route has no query parameters. Leave them out.")
	}
	next, err := r.action(&c)
	if err != nil {
		return nil, err
	}
	c.Accepted()
	if c.Change {
		if err := c.BeginChange(c.Context(), r.Method+" "+r.pattern); err != nil {
			return nil, err
		}
	}
	return next(&c)
}

// done is the answer of a route without fields.
type done struct {
	Status string `json:"status"`
}

var succeeded = done{"success"}

// Name returns the name of the route in events: its path below the company's v2/.
func (r *Route) Name() string { return "me/" + r.pattern }

// Find returns the route of a method and path, and the id in the path.
func Find(method, path string) (*Route, string, error) {
	at := func(r *Route) (method, pattern string) { return r.Method, r.pattern }
	route, params, allow := routes.Find(Routes, at, method, strings.Split(path, "/"))
	switch {
	case route != nil:
		return route, params["id"], nil
	case allow != "":
		return nil, "", wire.NotAllowed(allow, "Use a method that the header Allow lists.")
	}
	return nil, "", wire.ErrNoRoute
}

// An action reads the body of a request. It returns what serves the request then.
type action func(*Call) (serve, error)

type serve = func(*Call) (any, error)

// plain is the action of a route that changes nothing.
func plain(next serve) action { return func(*Call) (serve, error) { return next, nil } }

// bodyless refuses a body that says something: otherwise a client that names one session in
// it would end all.
func bodyless(next serve) action {
	return func(c *Call) (serve, error) {
		body, err := c.ReadBody()
		if errors.Is(err, wire.ErrTooLarge) || errors.Is(err, wire.ErrMediaType) || !bodies.IsEmpty(body) {
			err = wire.Invalid("This route has no body. Leave it out.")
		}
		return next, err
	}
}

// with decodes the body, as for an auth route.
func with[Body any](next func(*Call, Body) (any, error)) action {
	return func(c *Call) (serve, error) {
		var body Body
		sent, err := c.ReadBody()
		if err == nil {
			err = wire.Decode(sent, &body)
		}
		return func(c *Call) (any, error) { return next(c, body) }, err
	}
}

type factors struct {
	done
	// What to call the user on a screen: the email, else the login name, else the masked phone.
	// Absent if there is none.
	User string `json:"user,omitempty"`
	// Whether the account has a password.
	PasswordSet bool `json:"password_set"`
	// Whether an authenticator app is set up and confirmed.
	TOTP bool `json:"totp"`
	// How many backup codes are left.
	BackupCodesLeft int `json:"backup_codes_left"`
	// How many passkeys there are.
	Passkeys int `json:"passkeys"`
	// The phone that gets codes, masked. Absent if there is none.
	UserPhone string `json:"user_phone,omitempty"`
	// The phone. Absent if there is none.
	Phone *contact `json:"phone,omitempty"`
	// The email. Absent if there is none.
	Email *contact `json:"email,omitempty"`
	// To which of phone and email the company can send a code, so that users can change them.
	Provable []string `json:"provable"`
	// The OAuth providers that the account is linked to.
	Providers []int `json:"provider_ids"`
	// Whether a login with the password needs a code, too.
	SecondFactor bool `json:"second_factor"`
	// The company's setting. With `off` no login with a password needs a code; with `required`
	// every login with a password does.
	SecondFactorPolicy tenant.SecondFactor `json:"second_factor_policy"`
	// For how many seconds the login is recent enough for changes.
	FreshFor int `json:"fresh_for"`
	// Whether changes of what the user logs in with need a step-up for `mfa` first.
	MFAMissing bool `json:"mfa_missing"`
	*tenant.PasswordQuality
}

func (c *Call) factors() (any, error) {
	a, company := c.Account, c.Company
	f := factors{
		done:               succeeded,
		User:               a.ScreenName(),
		PasswordSet:        a.PasswordHash != "",
		TOTP:               a.TOTP != "",
		BackupCodesLeft:    a.BackupCodes,
		Passkeys:           a.Passkeys,
		Provable:           []string{},
		Providers:          []int{},
		SecondFactor:       company.NeedsSecondFactor(a),
		SecondFactorPolicy: company.SecondFactor,
		FreshFor:           max(0, int((c.FreshFor-time.Since(c.Session.LoginTime()))/time.Second)),
		MFAMissing:         c.MFAMissing,
		PasswordQuality:    company.Quality(a),
	}
	f.Phone, f.Email = c.contact(record.Phone, record.MaskPhone(a.Phone)), c.contact(record.Email, a.Email)
	if company.SMS != nil {
		f.Provable = append(f.Provable, record.Phone.Name)
	}
	if company.Mail != nil {
		f.Provable = append(f.Provable, record.Email.Name)
	}
	if company.SendsCodesTo(a.Phone) {
		f.UserPhone = record.MaskPhone(a.Phone)
	}
	for _, identity := range a.Identities {
		f.Providers = append(f.Providers, identity.Provider)
	}
	return f, nil
}

// A contact is the user's phone or email.
type contact struct {
	// A phone is masked.
	Value string `json:"value"`
	// When its owner has proven it. Absent if it was not proven.
	Verified time.Time `json:"verified_at,omitzero"`
	// Whether the account could do without it.
	Removable bool `json:"removable"`
}

// contact returns nil if the user has none.
func (c *Call) contact(of record.Contact, shown string) *contact {
	if shown == "" {
		return nil
	}
	return &contact{shown, *of.Verified(&c.Account), c.CanRemoveContact(of)}
}

type newPhone struct {
	Text string `json:"phone" max:"254" need:"y"`
}

type newEmail struct {
	Text string `json:"email" max:"254" need:"y"`
}

type sentContact struct {
	done
	manage.SentContact
	// The phone, masked.
	Phone string `json:"user_phone,omitempty"`
	// The email as it will be stored.
	Email string `json:"user_email,omitempty"`
}

type contactCode struct {
	Token string `json:"contact_token" max:"2048" need:"y"`
	Code  string `json:"code" max:"16" need:"y"`
}

func (c *Call) sendPhone(body newPhone) (any, error) {
	sent, phone, err := c.SendOwnContact(c.Context(), record.Phone, body.Text)
	return sentContact{succeeded, sent, record.MaskPhone(phone), ""}, err
}

func (c *Call) sendEmail(body newEmail) (any, error) {
	sent, email, err := c.SendOwnContact(c.Context(), record.Email, body.Text)
	return sentContact{succeeded, sent, "", email}, err
}

func confirm(contact record.Contact) func(*Call, contactCode) (any, error) {
	return func(c *Call, body contactCode) (any, error) {
		return succeeded, c.ConfirmOwnContact(c.Context(), contact, body.Token, body.Code)
	}
}

func remove(contact record.Contact) serve {
	return func(c *Call) (any, error) { return succeeded, c.RemoveOwnContact(c.Context(), contact) }
}

// A session is one in the user's list.
type session struct {
	api.Session
	// Whether the request was sent with this session.
	Current bool `json:"current"`
}

type sessions struct {
	done
	// The sessions.
	Sessions []session `json:"sessions"`
}

func (c *Call) sessions() (any, error) {
	live, err := c.LiveSessions(c.Context(), c.Account.Mnemocode)
	list := []session{}
	for _, s := range live {
		if s.State == record.Authorized {
			list = append(list, session{api.SessionOf(s), c.IsCurrent(s)})
		}
	}
	return sessions{succeeded, list}, err
}

func (c *Call) endOthers() (any, error) { return succeeded, c.EndOthers(c.Context()) }

func (c *Call) endSession() (any, error) {
	err := c.EndSession(c.Context(), c.Account.Mnemocode, c.ID)
	if err == nil && c.ID == c.Session.ID {
		c.LoggedOut()
	}
	return succeeded, err
}

// A device is a known device in the user's list.
type device struct {
	api.Device
	// Whether the session of this request is of this device.
	Current bool `json:"current"`
}

type devices struct {
	done
	// The devices.
	Devices []device `json:"devices"`
}

func (c *Call) devices() (any, error) {
	known, current, err := c.OwnDevices(c.Context())
	view := func(d record.Device) device { return device{api.DeviceOf(c.Company, d), d.ID == current} }
	return devices{succeeded, api.Each(known, view)}, err
}

func (c *Call) forgetDevices() (any, error) {
	return succeeded, c.ForgetDevices(c.Context(), c.Account.Mnemocode, c.ID)
}

type passwordChange struct {
	// The current password. Leave it out only if the account has none.
	Current string `json:"current_password" max:"128"`
	New     string `json:"new_password" max:"128" long:"password.too_long" need:"y"`
}

func (c *Call) changePassword(body passwordChange) (any, error) {
	if body.Current == "" && c.Account.PasswordHash != "" {
		return nil, wire.Invalid("The field current_password is missing.")
	}
	return succeeded, c.ChangePassword(c.Context(), c.Account.Mnemocode, manage.PasswordChange{
		Current: body.Current, New: body.New, Address: c.Address, Keep: c.Session.ID,
	})
}

type newSecret struct {
	done
	manage.TOTPSecret
	// The QR code of the URI, as an SVG image.
	QR string `json:"qr"`
}

func (c *Call) newTOTP(struct{}) (any, error) {
	secret, err := c.NewTOTP(c.Context(), c.Account.Mnemocode)
	if err != nil {
		return nil, err
	}
	picture, err := drawQR(secret.URI)
	return newSecret{succeeded, secret, picture}, err
}

// quietZone is the number of light modules that must surround a QR code (ISO/IEC 18004).
const quietZone = 4

// drawQR returns the QR code of a text as SVG.
func drawQR(text string) (string, error) {
	code, err := qr.Encode(text, qr.M)
	if err != nil {
		return "", fmt.Errorf("drawing a QR code: %w", err)
	}
	var dark strings.Builder
	for y := range code.Size {
		for x := 0; x < code.Size; x++ {
			from := x
			for code.Black(x, y) { // nothing is black beyond the edge
				x++
			}
			if x > from {
				fmt.Fprintf(&dark, "M%d %dh%dv1H%dz", from+quietZone, y+quietZone, x-from, from+quietZone)
			}
		}
	}
	size := code.Size + 2*quietZone
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %[1]d" shape-rendering="crispEdges"><path fill="#fff" d="M0 0h%[1]dv%[1]dH0z"/><path d="%s"/></svg>`, size, dark.String()), nil
}

type appCode struct {
	// The app's current code.
	Code string `json:"code" max:"16" need:"y"`
}

type appConfirmed struct {
	done
	// Backup codes, shown only this once, if the account had none left.
	Codes []string `json:"backup_codes,omitempty"`
}

func (c *Call) confirmTOTP(body appCode) (any, error) {
	codes, err := c.ConfirmOwnTOTP(c.Context(), body.Code)
	return appConfirmed{succeeded, codes}, err
}

type secondFactor struct {
	// Whether to turn it on.
	Enabled *bool `json:"enabled" need:"y"`
}

func (c *Call) setSecondFactor(body secondFactor) (any, error) {
	return succeeded, c.SetSecondFactor(c.Context(), *body.Enabled)
}

func (c *Call) removeTOTP() (any, error) {
	_, err := c.RemoveTOTP(c.Context(), c.Account.Mnemocode, c.Session.ID)
	return succeeded, err
}

func (c *Call) newBackupCodes(struct{}) (any, error) {
	codes, err := c.NewOwnBackupCodes(c.Context())
	return struct {
		done
		api.BackupCodes
	}{succeeded, api.BackupCodes{Codes: codes}}, err
}

type ownPasskeys struct {
	done
	api.Passkeys
	// What WebAuthn's signalAllAcceptedCredentials and signalCurrentUserDetails take. With it
	// the browser hides passkeys that were removed, and shows the user's present name. Absent
	// if the company has no passkeys.
	Signal *manage.PasskeysSignal `json:"signal,omitempty"`
}

func (c *Call) passkeys() (any, error) {
	passkeys, signal, err := c.PasskeysSignal(c.Context(), c.Account.Mnemocode)
	return ownPasskeys{succeeded, api.Passkeys{Passkeys: api.Each(passkeys, api.PasskeyOf)}, signal}, err
}

func (c *Call) newPasskey(struct{}) (any, error) {
	options, err := c.NewPasskey(c.Context(), c.Account.Mnemocode)
	return struct {
		done
		manage.NewPasskey
	}{succeeded, options}, err
}

type addedPasskey struct {
	// The challenge_token that came with the options. It works once.
	ChallengeToken string `json:"challenge_token" max:"256" need:"y"`
	// WebAuthn's RegistrationResponseJSON.
	Credential jsontext.Value `json:"credential" need:"y"`
	// What the user calls it. Without a name it is called like the provider that keeps it,
	// such as 1Password, or else like the browser and system.
	Name string `json:"name" max:"64"`
	// `conditional` if the browser created the passkey without asking the user, as it may
	// after a login with a password.
	Mediation string `json:"mediation" max:"64"`
}

func (c *Call) addPasskey(body addedPasskey) (any, error) {
	added, err := c.AddPasskey(c.Context(), c.Account.Mnemocode, body.ChallengeToken, body.Credential, body.Name, body.Mediation == "conditional")
	return struct {
		done
		api.Passkey
	}{succeeded, api.PasskeyOf(added)}, err
}

type passkeyName struct {
	// What the user calls it.
	Name string `json:"name" max:"64" need:"y"`
}

func (c *Call) renamePasskey(body passkeyName) (any, error) {
	return succeeded, c.RenamePasskey(c.Context(), c.Account.Mnemocode, c.ID, body.Name)
}

func (c *Call) removePasskey() (any, error) {
	return succeeded, c.RemovePasskey(c.Context(), c.Account.Mnemocode, c.ID, c.Session.ID)
}

type newToken struct {
	// What the user calls it.
	Name string `json:"name" max:"128" need:"y"`
	// The paths that it opens, in the syntax of `fresh`. An application may read a path in
	// several ways: each must match one of them.
	Paths []string `json:"paths" max:"256" need:"y"`
	// The methods that it opens them for, in upper case; `GET` is also for `HEAD`.
	Methods []string `json:"methods" max:"128" need:"y"`
	// How many seconds it is valid. Default, and at most: `issued_tokens.lifetime` of
	// client.json.
	ExpiresIn *int64 `json:"expires_in"`
}

// A token is an issued token in the user's list. It does not say who acts as the user, and
// why.
type token struct {
	api.Token
	// Whether somebody, such as support, acts as the user with it. The name is empty then.
	Acting bool `json:"acting"`
}

func tokenOf(t *record.IssuedToken) token {
	v := token{api.TokenOf(t), t.Actor != ""}
	if v.Acting {
		v.Name, v.Actor, v.Reason = "", "", ""
	}
	return v
}

type tokens struct {
	done
	// The tokens that were issued for the account, oldest first.
	Tokens []token `json:"tokens"`
}

func (c *Call) tokens() (any, error) {
	issued, err := c.IssuedTokens(c.Context(), c.Account.Mnemocode)
	return tokens{succeeded, api.Each(issued, tokenOf)}, err
}

func (c *Call) issueToken(body newToken) (any, error) {
	if err := paths.CheckToken(body.Paths); err != nil {
		return nil, &manage.FieldError{Field: "paths", Message: err.Error()}
	}
	secret, issued, err := c.IssueToken(c.Context(), c.Account.Mnemocode, manage.TokenWish{
		Name: body.Name, Paths: body.Paths, Methods: body.Methods, ExpiresIn: body.ExpiresIn,
	})
	if err != nil {
		return nil, err
	}
	v := tokenOf(issued)
	v.Token.Token = secret
	return struct {
		done
		token
	}{succeeded, v}, nil
}

func (c *Call) removeToken() (any, error) {
	return succeeded, c.RemoveToken(c.Context(), c.Account.Mnemocode, c.ID, false)
}
