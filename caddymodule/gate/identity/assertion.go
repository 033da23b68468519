package identity

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/mnemogate/mnemogate/caddymodule/app"
	"github.com/mnemogate/mnemogate/caddymodule/guest"
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
// time of the login) and `amr` (the methods of the login). For an issued token it has `token`
// (the token's id) instead of `sid` and `auth_time`, and `act` with a `sub` if somebody acts
// as the user (RFC 8693). It also has those of `role`,
// `email` and `phone` that `forward` names.
type Assertion struct {
	// The audience, `aud`: a name of the application, such as `profile-api`. The
	// application must refuse assertions for others.
	Audience string `json:"audience"`

	// The issuer, `iss`, for all companies. Default: `https://<host>/<company>` with
	// the host of the request, and its port if the server listens there and it is not
	// 443. If the site takes requests for any host, or its name has a wildcard, clients
	// can choose this host, so set the issuer.
	Issuer string `json:"issuer,omitempty"`

	// How long an assertion is valid, from `10s` to `10m`. The application may get the
	// same one for five sixths of this time. If others can reach the application, it
	// accepts an assertion for up to this long after the session was revoked. Default:
	// `60s`.
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
}

// withDefaults returns a copy with the defaults.
func (a *Assertion) withDefaults() *Assertion {
	so := *a
	so.TTL = cmp.Or(so.TTL, defaultAssertionTTL)
	so.Header = http.CanonicalHeaderKey(cmp.Or(so.Header, defaultAssertionHeader))
	return &so
}

// ParseAssertion parses the audience and the block.
func (h *Headers) ParseAssertion(d *caddyfile.Dispenser) error {
	a := new(Assertion)
	if !d.Args(&a.Audience) || d.NextArg() {
		return guest.ErrArguments
	}
	h.Assertion = a
	return guest.Options(d, a.options())
}

func init() { guest.Belong("assertion <audience> { ... }", new(Assertion).options()) }

func (a *Assertion) options() guest.Parsers {
	return guest.Parsers{
		"issuer <url>":   guest.Text(&a.Issuer),
		"ttl <duration>": guest.OneValue(guest.Duration(&a.TTL)),
		"header <name>":  guest.Text(&a.Header),
		"key <PEM>...":   guest.List(&a.Keys),
	}
}

// ValidateAssertion refuses values of assertion that can't work.
func (h *Headers) ValidateAssertion() error {
	h = h.withDefaults()
	a := h.Assertion
	if a == nil {
		return nil
	}
	if err := guest.CheckNoPlaceholder(a.Audience, "write the audience as the application checks it"); err != nil {
		return guest.Inside("assertion", err)
	}
	if err := guest.CheckNoPlaceholder(a.Issuer, "write the URL as the application checks it"); err != nil {
		return guest.Inside("assertion: issuer", err)
	}
	switch {
	case a.Keys != nil && len(a.Keys) == 0:
		return errors.New("assertion: key: the list is empty; add a key, or leave it out to use those of the store")
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
	return guest.Inside("assertion", checkName("header", a.Header))
}

// provisionAssertion reads the keys and makes the signer.
func (s *Sender) provisionAssertion(in *app.App, source guest.Source) error {
	a := s.headers.Assertion
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
			return fmt.Errorf("%s: key %d of %d appears twice; remove one", option, i+1, len(a.Keys))
		}
		keys = append(keys, key)
		if text == given {
			in.Note([]app.Weakness{{Directive: "assertion key", At: source.Line("assertion key"), Weakness: guest.Weakness{
				Message: "the private key stands in the configuration, which the admin endpoint shows and Caddy saves",
				Advice:  "write {file.PATH} or {env.NAME}",
			}}})
		}
	}
	s.signer = &assertion.Signer{Audience: a.Audience, TTL: time.Duration(a.TTL), Limit: in.Cache, Now: time.Now}
	switch ring := in.SigningKeys(); {
	case len(keys) > 0:
		fixed, err := assertion.Fixed(keys)
		if err != nil {
			return err
		}
		s.published = func(context.Context, string) (*assertion.Keys, error) { return fixed, nil }
		s.signer.Keys = s.published
	default:
		s.published, s.signer.Keys = ring.Published, ring.ForSigning
	}
	for _, p := range s.profile {
		if p.claimed {
			s.signer.Fields = append(s.signer.Fields, p.field)
		}
	}
	s.whole = true
	return nil
}

// Assert returns the assertion about the user of a request, or "" if the site sends none.
func (s *Sender) Assert(r *http.Request, session *record.Session) (string, error) {
	if s.signer == nil {
		return "", nil
	}
	issuer := s.headers.Assertion.Issuer
	if issuer == "" {
		host, err := issuerHost(r)
		if err != nil {
			return "", err
		}
		issuer = "https://" + host + "/" + session.Company
	}
	if s.imagined {
		return "(an assertion by " + issuer + ")", nil
	}
	return s.signer.Assertion(r.Context(), issuer, *session)
}

// Imagined returns a Sender whose Assert describes assertions in place of signing them.
func (s *Sender) Imagined() *Sender {
	so := *s
	so.imagined = true
	return &so
}

// maxHost is the maximum length of a host's name (RFC 1035).
const maxHost = 253

// errHost is the answer to a host that only a site for any host accepts.
var errHost = wire.Invalid("The host of the request is not a name or an address.")

// issuerHost returns the host of a request for the issuer. Clients can spell the host of
// a site in several ways, all of which Caddy accepts, with any port. The result is the
// same for all of them, except that it has the port if the server listens there and it is
// not 443.
func issuerHost(r *http.Request) (string, error) {
	host, port := strings.ToLower(r.Host), ""
	if colon := strings.LastIndexByte(host, ':'); colon > strings.LastIndexByte(host, ']') && (host[0] == '[' || strings.IndexByte(host, ':') == colon) {
		host, port = host[:colon], host[colon+1:]
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	if len(host) > maxHost || strings.Trim(host, "abcdefghijklmnopqrstuvwxyz0123456789.-_:") != "" {
		return "", errHost
	}
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	if port == "" {
		return host, nil
	}
	local, _ := r.Context().Value(http.LocalAddrContextKey).(interface{ AddrPort() netip.AddrPort })
	if n, err := strconv.ParseUint(port, 10, 16); err == nil && local != nil && uint16(n) == local.AddrPort().Port() && n != 443 {
		host += ":" + strconv.FormatUint(n, 10)
	}
	return host, nil
}

// PublishedKeys returns the public keys of a company as a JSON Web Key Set.
func (s *Sender) PublishedKeys(ctx context.Context, company string) ([]byte, error) {
	keys, err := s.published(ctx, company)
	if err != nil {
		return nil, err
	}
	return keys.JWKS(), nil
}

// Asserts implements bypass.Gate.
func (h *Headers) Asserts() (sends, byHost bool) {
	return h.Assertion != nil, h.Assertion != nil && h.Assertion.Issuer == ""
}
