package gate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/mnemogate/mnemogate/caddymodule/app"
	"github.com/mnemogate/mnemogate/caddymodule/guest"
	"github.com/mnemogate/mnemogate/flows"
	"github.com/mnemogate/mnemogate/flows/assertion"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/wire"
)

const (
	defaultAssertionHeader = "X-Mnemogate-Assertion"
	defaultAssertionTTL    = caddy.Duration(time.Minute)
	minAssertionTTL        = caddy.Duration(10 * time.Second)
)

// Assertion configures a JWT about the user, signed with ES256. Applications verify it
// with the keys at `/{company_code}/v2/jwks.json`, which need no API key.
//
// Its `typ` is `mnemogate+jwt`. It has the claims `iss`, `aud`, `sub` (the
// profile_mnemocode), `company`, `sid` (the session's id), `iat`, `exp`, `auth_time` (the
// time of the login) and `amr` (the methods of the login). It also has those of `role`,
// `email` and `phone` that `forward` names.
type Assertion struct {
	// The audience, `aud`: a name of the application, such as `profile-api`. The
	// application must refuse assertions for others.
	Audience string `json:"audience"`

	// The issuer, `iss`, for all companies. Default: `https://<host>/<company>` with
	// the host and, unless it is 443, the port of the request. If the site takes
	// requests for any host, clients can choose this host, so set the issuer.
	Issuer string `json:"issuer,omitempty"`

	// How long an assertion is valid, from `10s` to `10m`. The application may get the
	// same one for five sixths of this time. It accepts an assertion for this long
	// after the session was revoked, if it is reached in another way. Default: `60s`.
	TTL caddy.Duration `json:"ttl,omitempty"`

	// The header that carries the assertion. The handler always removes it, and the
	// default one, from a client's request. Default: `X-Mnemogate-Assertion`.
	Header string `json:"header,omitempty"`

	// Private keys in PEM on the curve P-256, as PKCS 8 or SEC 1. The first one signs,
	// and all are published. To rotate, add the new key at the end, move it to the
	// front after ten minutes, and remove the old one after `ttl`. These keys sign for
	// all companies of the site. Default: each company has keys of its own in the
	// store, which rotate every 30 days.
	Keys []string `json:"keys,omitempty"`

	fixed *assertion.Keys // nil: the keys are in the store
}

// withDefaults returns a copy with the defaults.
func (a *Assertion) withDefaults() *Assertion {
	so := *a
	so.TTL = cmp.Or(so.TTL, defaultAssertionTTL)
	so.Header = http.CanonicalHeaderKey(cmp.Or(so.Header, defaultAssertionHeader))
	return &so
}

// parseAssertion parses the audience and the block.
func (h *Handler) parseAssertion(d *caddyfile.Dispenser) func() error {
	return func() error {
		a := new(Assertion)
		if !d.Args(&a.Audience) || d.NextArg() {
			return d.ArgErr()
		}
		h.Assertion = a
		return guest.Options(d, map[string]func() error{
			"issuer": guest.Text(d, &a.Issuer),
			"ttl":    guest.OneValue(d, guest.Duration(&a.TTL)),
			"header": guest.Text(d, &a.Header),
			"key":    guest.List(d, &a.Keys),
		})
	}
}

// checkAssertion refuses values of assertion that can't work.
func (h *Handler) checkAssertion() error {
	a := h.Assertion
	if a == nil {
		return nil
	}
	switch {
	case a.Audience == "":
		return errors.New("assertion: name the application that it is for, as in assertion profile-api")
	case a.TTL < minAssertionTTL || a.TTL > caddy.Duration(assertion.MaxTTL):
		return errors.New("assertion: ttl: choose 10s to 10m")
	case strings.EqualFold(a.Header, h.Header), strings.EqualFold(a.Header, h.CompanyHeader):
		return fmt.Errorf("assertion: header: %s is header or company_header already; choose another name", a.Header)
	}
	for word, p := range profileHeaders {
		if sameName(a.Header, p.name) {
			return fmt.Errorf("assertion: header: %s is the header of forward %s; choose another name", a.Header, word)
		}
	}
	if a.Issuer != "" {
		if u, err := url.Parse(a.Issuer); err != nil || u.Scheme == "" || u.Host == "" {
			return fmt.Errorf("assertion: issuer: %q is not a URL; write one like https://api.example.com", a.Issuer)
		}
	}
	return guest.Inside("assertion", checkHeader("header", a.Header))
}

// provisionAssertion reads the keys and makes the signer.
func (h *Handler) provisionAssertion() error {
	a := h.Assertion
	if a == nil {
		return nil
	}
	var keys []*assertion.Key
	for i, given := range a.Keys {
		const option = "assertion: key"
		text := given
		if err := guest.ResolveInto(option, &text); err != nil {
			return err
		}
		key, err := assertion.ParseKey(text)
		if err != nil {
			return fmt.Errorf("%s: key %d of %d: %w", option, i+1, len(a.Keys), err)
		}
		if slices.ContainsFunc(keys, func(other *assertion.Key) bool { return other.ID() == key.ID() }) {
			return fmt.Errorf("%s: key %d of %d is there twice; remove one", option, i+1, len(a.Keys))
		}
		keys = append(keys, key)
		if text == given {
			h.app.Note([]app.Weakness{{Directive: "assertion key", At: h.Source.Line("assertion key"), Weakness: guest.Weakness{
				Message: "the private key stands in the configuration, which the admin endpoint shows and Caddy saves",
				Advice:  "write {file.PATH} or {env.NAME}",
			}}})
		}
	}
	a.Keys = nil
	if len(keys) > 0 {
		var err error
		if a.fixed, err = assertion.Fixed(keys); err != nil {
			return err
		}
	} else if h.app.SigningKeys() == nil {
		return errors.New("assertion: the store can't keep the keys; set key, or use another store")
	}
	h.signer = &assertion.Signer{
		Audience: a.Audience, TTL: time.Duration(a.TTL), Limit: h.app.Cache, Now: time.Now,
		Keys: func(ctx context.Context, company string) (*assertion.Keys, error) { return h.keys(ctx, company, false) },
	}
	for _, word := range h.Forward {
		if field, ok := assertedFields[word]; ok {
			h.signer.Fields = append(h.signer.Fields, field)
		}
	}
	h.whole = true
	return nil
}

// assertedFields are the words of forward that add a claim.
var assertedFields = map[string]record.ProfileField{"role": record.ProfileRole, "email": record.ProfileEmail, "phone": record.ProfilePhone}

// keys returns a company's keys: those that may sign, or the ones to publish.
func (h *Handler) keys(ctx context.Context, company string, publish bool) (*assertion.Keys, error) {
	switch {
	case h.Assertion.fixed != nil:
		return h.Assertion.fixed, nil
	case publish:
		return h.app.SigningKeys().Published(ctx, company)
	}
	return h.app.SigningKeys().ForSigning(ctx, company)
}

// assert returns the assertion about the user of a request.
func (h *Handler) assert(r *http.Request, session record.Session) (string, error) {
	issuer := h.Assertion.Issuer
	if issuer == "" {
		issuer = "https://" + strings.TrimSuffix(strings.ToLower(r.Host), ":443") + "/" + session.Company
	}
	return h.signer.Assertion(r.Context(), issuer, session)
}

// keySetPath is the path of the keys that verify assertions, below /{company_code}/.
const keySetPath = "v2/jwks.json"

// serveKeySet answers with a company's public keys. They are no secret, so no API key is
// needed.
func (h *Handler) serveKeySet(w http.ResponseWriter, r *http.Request, t target) {
	var keys *assertion.Keys
	err := h.withService(r.Context(), func(service *flows.Service) (err error) {
		switch {
		case r.Method != http.MethodGet && r.Method != http.MethodHead:
			return errGetOnly
		case service.Companies[t.company] == nil:
			return wire.ErrNoRoute
		}
		keys, err = h.keys(r.Context(), t.company, true)
		return err
	})
	if err != nil {
		h.app.WarnUnanswered(h.log, err)
		h.refuse(w, err)
		return
	}
	header := w.Header()
	header.Set("Content-Type", "application/json")
	header.Set("Cache-Control", "public, max-age=300")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Content-Length", strconv.Itoa(len(keys.JWKS())))
	_, _ = w.Write(keys.JWKS()) // the client may be gone
}
