package gate

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/go-json-experiment/json/jsontext"
	"rsc.io/qr"

	"github.com/mnemogate/mnemogate/caddymodule/accounts/api"
	"github.com/mnemogate/mnemogate/caddymodule/guest"
	"github.com/mnemogate/mnemogate/flows"
	"github.com/mnemogate/mnemogate/flows/manage"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// With self_service, logged-in users look after their own login. The routes are in
// selfServiceRoutes. Their operations are those of the accounts API (package manage).

// selfPrefix begins the paths of these routes below /{company_code}/.
const selfPrefix = "v2/me/"

// A selfServiceRoute is one of these routes. Its answer is "status":"success" with the fields
// that serve returns.
type selfServiceRoute struct {
	method  string
	pattern string // after selfPrefix; {id} matches any one segment
	fresh   bool   // needs a recent login
	serve   func(*selfCall) (any, error)
}

var selfServiceRoutes = []selfServiceRoute{
	{http.MethodGet, "factors", false, (*selfCall).factors},
	{http.MethodGet, "sessions", false, (*selfCall).sessions},
	{http.MethodDelete, "sessions", false, (*selfCall).endOthers},
	{http.MethodDelete, "sessions/{id}", false, (*selfCall).endSession},
	{http.MethodGet, "devices", false, (*selfCall).devices},
	{http.MethodDelete, "devices", true, (*selfCall).forgetDevices},
	{http.MethodDelete, "devices/{id}", true, (*selfCall).forgetDevices},
	{http.MethodPost, "password", true, (*selfCall).changePassword},
	{http.MethodPost, "totp", true, (*selfCall).newTOTP},
	{http.MethodPost, "totp/confirm", true, (*selfCall).confirmTOTP},
	{http.MethodDelete, "totp", true, (*selfCall).removeTOTP},
	{http.MethodPost, "backup-codes", true, (*selfCall).newBackupCodes},
	{http.MethodGet, "passkeys", false, (*selfCall).passkeys},
	{http.MethodPost, "passkeys", true, (*selfCall).addPasskey},
	{http.MethodPost, "passkeys/options", true, (*selfCall).newPasskey},
	{http.MethodDelete, "passkeys/{id}", true, (*selfCall).removePasskey},
}

// A selfCall is a request to one of these routes, once its user is known.
type selfCall struct {
	*http.Request
	*manage.Self
	w       http.ResponseWriter
	handler *Handler
	id      string // of the session or other thing in the path
}

// done is the answer of a route without fields.
type done struct {
	Status string `json:"status"`
}

var succeeded = done{"success"}

// serveSelf answers a request to one of these routes.
func (h *Handler) serveSelf(w http.ResponseWriter, r *http.Request, t target) {
	_, rest := split(h.BasePath, r.URL.EscapedPath())
	route, id, err := findSelfRoute(w, r.Method, strings.TrimPrefix(rest, selfPrefix))
	if err != nil {
		h.refuse(w, err)
		return
	}
	w.Header().Add("Vary", h.vary())
	r = r.WithContext(record.WithStoreTime(r.Context()))
	var answer any
	err = h.withService(r.Context(), func(service *flows.Service) error {
		user, err := h.userOf(service, r, t, route.fresh)
		if err != nil {
			return err
		}
		answer, err = route.serve(&selfCall{r, user, w, h, id})
		return err
	})
	if err != nil {
		h.app.WarnUnanswered(h.log, err)
		h.refuse(w, err)
		return
	}
	writeJSON(w, http.StatusOK, answer)
}

// findSelfRoute returns the route of a method and path, and the id in the path.
func findSelfRoute(w http.ResponseWriter, method, path string) (*selfServiceRoute, string, error) {
	var methods []string
	for i := range selfServiceRoutes {
		route, id := &selfServiceRoutes[i], ""
		if before, ok := strings.CutSuffix(route.pattern, "{id}"); ok {
			if id, ok = strings.CutPrefix(path, before); !ok || id == "" || strings.Contains(id, "/") {
				continue
			}
		} else if path != route.pattern {
			continue
		}
		if route.method == method {
			return route, id, nil
		}
		methods = append(methods, route.method)
	}
	if methods == nil {
		return nil, "", wire.ErrNoRoute
	}
	slices.Sort(methods)
	w.Header().Set("Allow", strings.Join(methods, ", "))
	return nil, "", errSelfMethod
}

// errSelfMethod is ErrMethod for these routes.
var errSelfMethod = &wire.Error{
	Code:    wire.ErrMethod.Code,
	Status:  http.StatusMethodNotAllowed,
	Message: "Use a method that the header Allow lists.",
}

// userOf returns the logged-in user of a request.
func (h *Handler) userOf(service *flows.Service, r *http.Request, t target, fresh bool) (*manage.Self, error) {
	var within time.Duration
	if fresh {
		within = time.Duration(h.SelfService)
	}
	request := &flows.Request{Company: t.company, APIKeys: r.Header[apiKeyHeader], PageKey: h.hasPage(t.company)}
	company, found, err := service.User(r.Context(), request, within, func() ([]string, error) { return h.credentials(r, nil) })
	if err != nil {
		return nil, err
	}
	return manage.NewSelf(r.Context(), service.Manager, company, found, clientAddress(r))
}

// read decodes the body into request, as for an auth route.
func (c *selfCall) read(request any) error {
	body, err := readBody(c.w, c.Request, c.handler.MaxBody)
	if err != nil {
		return err
	}
	return wire.Decode(body, request)
}

type factors struct {
	done
	PasswordSet        bool                `json:"password_set"`
	TOTP               bool                `json:"totp"`
	BackupCodesLeft    int                 `json:"backup_codes_left"`
	Passkeys           int                 `json:"passkeys"`
	UserPhone          string              `json:"user_phone,omitempty"`
	Providers          []int               `json:"provider_ids"`
	SecondFactor       bool                `json:"second_factor"` // whether a login with the password needs a code
	SecondFactorPolicy tenant.SecondFactor `json:"second_factor_policy"`
	FreshFor           int                 `json:"fresh_for"` // seconds in which changes need no new login
}

func (c *selfCall) factors() (any, error) {
	a, company := c.Account(), c.Company()
	f := factors{
		done:               succeeded,
		PasswordSet:        a.PasswordHash != "",
		TOTP:               a.TOTP != "",
		BackupCodesLeft:    a.BackupCodes,
		Passkeys:           a.Passkeys,
		UserPhone:          record.MaskPhone(a.Phone),
		Providers:          []int{},
		SecondFactor:       company.NeedsSecondFactor(a),
		SecondFactorPolicy: company.SecondFactor,
		FreshFor:           max(0, int((time.Duration(c.handler.SelfService)-time.Since(c.LoginTime()))/time.Second)),
	}
	for _, identity := range a.Identities {
		f.Providers = append(f.Providers, identity.Provider)
	}
	return f, nil
}

// A selfSession is a session in the user's list.
type selfSession struct {
	api.Session
	Current bool `json:"current"`
}

func (c *selfCall) sessions() (any, error) {
	sessions, err := c.Sessions(c.Context())
	if err != nil {
		return nil, err
	}
	list := make([]selfSession, len(sessions))
	for i, s := range sessions {
		list[i] = selfSession{api.SessionOf(s), c.IsCurrent(s)}
	}
	return struct {
		done
		Sessions []selfSession `json:"sessions"`
	}{succeeded, list}, nil
}

func (c *selfCall) endOthers() (any, error) { return succeeded, c.EndOthers(c.Context()) }

func (c *selfCall) endSession() (any, error) {
	current, err := c.EndSession(c.Context(), c.id)
	if err == nil && current && c.handler.Cookie != "" {
		c.handler.clearCookie(c.w)
	}
	return succeeded, err
}

// A selfDevice is a known device in the user's list.
type selfDevice struct {
	ID               string    `json:"device_id"`
	Created          time.Time `json:"created_at"`
	Expires          time.Time `json:"expires_at"`
	Address          string    `json:"address,omitempty"`
	UserAgent        string    `json:"user_agent,omitempty"`
	SkipSecondFactor bool      `json:"skip_second_factor"`
	Current          bool      `json:"current"`
}

func (c *selfCall) devices() (any, error) {
	devices, current, err := c.Devices(c.Context())
	if err != nil {
		return nil, err
	}
	list := make([]selfDevice, len(devices))
	for i, d := range devices {
		list[i] = selfDevice{
			d.ID, d.Created.UTC(), d.Expires.UTC(), d.Address, d.UserAgent,
			c.Company().Devices.SkipSecondFactor && time.Now().Before(d.FactorUntil), d.ID == current,
		}
	}
	return struct {
		done
		Devices []selfDevice `json:"devices"`
	}{succeeded, list}, nil
}

func (c *selfCall) forgetDevices() (any, error) {
	return succeeded, c.ForgetDevices(c.Context(), c.id)
}

func (c *selfCall) changePassword() (any, error) {
	var body struct {
		Current string `json:"current_password" max:"128"`
		New     string `json:"new_password" max:"128" long:"password.too_long" need:"y"`
	}
	if err := c.read(&body); err != nil {
		return nil, err
	}
	return succeeded, c.ChangePassword(c.Context(), body.Current, body.New)
}

func (c *selfCall) newTOTP() (any, error) {
	if err := c.read(&struct{}{}); err != nil {
		return nil, err
	}
	secret, err := c.NewTOTP(c.Context())
	if err != nil {
		return nil, err
	}
	picture, err := drawQR(secret.URI)
	return struct {
		done
		manage.TOTPSecret
		QR string `json:"qr"`
	}{succeeded, secret, picture}, err
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

func (c *selfCall) confirmTOTP() (any, error) {
	var body struct {
		Code string `json:"code" max:"16" need:"y"`
	}
	if err := c.read(&body); err != nil {
		return nil, err
	}
	return succeeded, c.ConfirmTOTP(c.Context(), body.Code)
}

func (c *selfCall) removeTOTP() (any, error) { return succeeded, c.RemoveTOTP(c.Context()) }

func (c *selfCall) newBackupCodes() (any, error) {
	if err := c.read(&struct{}{}); err != nil {
		return nil, err
	}
	codes, err := c.NewBackupCodes(c.Context())
	return struct {
		done
		api.BackupCodes
	}{succeeded, api.BackupCodes{Codes: codes}}, err
}

func (c *selfCall) passkeys() (any, error) {
	passkeys, err := c.Passkeys(c.Context())
	return struct {
		done
		api.Passkeys
	}{succeeded, api.PasskeysOf(passkeys)}, err
}

func (c *selfCall) newPasskey() (any, error) {
	if err := c.read(&struct{}{}); err != nil {
		return nil, err
	}
	options, err := c.NewPasskey(c.Context())
	return struct {
		done
		manage.NewPasskey
	}{succeeded, options}, err
}

func (c *selfCall) addPasskey() (any, error) {
	var body struct {
		ChallengeToken string         `json:"challenge_token" max:"256" need:"y"`
		Credential     jsontext.Value `json:"credential" need:"y"`
		Name           string         `json:"name" max:"64"`
	}
	if err := c.read(&body); err != nil {
		return nil, err
	}
	added, err := c.AddPasskey(c.Context(), body.ChallengeToken, body.Credential, body.Name)
	return struct {
		done
		api.Passkey
	}{succeeded, api.PasskeyOf(added)}, err
}

func (c *selfCall) removePasskey() (any, error) { return succeeded, c.RemovePasskey(c.Context(), c.id) }

// Configuration

const (
	defaultSelfService = caddy.Duration(10 * time.Minute)
	minSelfService     = caddy.Duration(time.Second)
	maxSelfService     = caddy.Duration(24 * time.Hour)
)

func (h *Handler) checkSelfService() error {
	if s := h.SelfService; s != 0 && (s < minSelfService || s > maxSelfService) {
		return errors.New("self_service: how old a login may be for a change must be from 1s to 24h")
	}
	return nil
}

// parseSelfService parses an optional duration.
func (h *Handler) parseSelfService(d *caddyfile.Dispenser) func() error {
	return func() error {
		h.SelfService = defaultSelfService
		args := d.RemainingArgs()
		if len(args) > 1 {
			return d.ArgErr()
		}
		if len(args) == 1 {
			if complaint := guest.Duration(&h.SelfService)(args[0]); complaint != "" {
				return d.Errf("'%s' is %s", args[0], complaint)
			}
		}
		return nil
	}
}
