// Package captcha contains the built-in captcha plugins, one file for each kind:
// siteverify, which Turnstile, hCaptcha and reCAPTCHA use; pow; and static, for tests. To
// add a captcha, write a tenant.Captcha and register it as mnemogate.captcha.<name>; see
// package guest.
package captcha

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"golang.org/x/net/idna"

	"github.com/mnemogate/mnemogate/caddymodule/guest"
	"github.com/mnemogate/mnemogate/caddymodule/logs"
	"github.com/mnemogate/mnemogate/flows/background"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/store/causes"
)

func init() {
	caddy.RegisterModule(Turnstile{})
	caddy.RegisterModule(HCaptcha{})
	caddy.RegisterModule(ReCaptcha{})
	caddy.RegisterModule(Siteverify{})
	guest.Belong("captcha turnstile|hcaptcha|recaptcha <secret> { ... }", guest.Parsers{"site_key": nil, "hostname": nil})
}

const (
	defaultCaptchaTimeout = caddy.Duration(3 * time.Second)
	maxSiteverifyAnswer   = 64 << 10
)

// siteverify is the common part of the captcha providers: the form POST that
// reCAPTCHA introduced and the others adopted.
type siteverify struct {
	// The secret key of the site; required. Use a placeholder like {env.NAME} or
	// {file.PATH}.
	Secret string `json:"secret,omitempty"`

	// The site's public key. Clients find it in client.json, and pages pass it to
	// the provider's widget. The login page needs it. Default: none.
	SiteKey string `json:"site_key,omitempty"`

	// The host names on which captchas may be solved. Responses from other hosts are
	// invalid. Default: the provider's own list decides.
	Hostname []string `json:"hostname,omitempty"`

	// The URL that verifies responses and receives the secret. It must be https, or
	// http on this machine. Default: the provider's address; `siteverify` has no
	// default.
	URL string `json:"url,omitempty"`

	// Whether the URL may be http on another machine. Anyone on the network path can
	// then read the secret and forge the provider's answers. Each start logs a
	// warning. Default: false.
	Insecure bool `json:"insecure,omitempty"`

	// The time limit for the provider's answer, at most 1m. Default: 3s.
	Timeout caddy.Duration `json:"timeout,omitempty"`

	what     string
	minScore float64 // for answers that have a score
	client   *http.Client
	log      *slog.Logger
	warnings *background.Warnings
}

// Turnstile verifies responses of Cloudflare Turnstile. If Cloudflare does not answer,
// or says that the secret is wrong, nobody passes. See siteverify for the options.
type Turnstile struct{ siteverify }

// CaddyModule returns the Caddy module information.
func (Turnstile) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "mnemogate.captcha.turnstile", New: func() caddy.Module { return new(Turnstile) }}
}

// Provision sets the defaults and resolves the placeholders.
func (t *Turnstile) Provision(ctx caddy.Context) error {
	return t.provision(ctx, "captcha turnstile", "https://challenges.cloudflare.com/turnstile/v0/siteverify")
}

// HCaptcha verifies responses of hCaptcha. If hCaptcha does not answer, or says that
// the secret is wrong, nobody passes. See siteverify for the options.
type HCaptcha struct{ siteverify }

// CaddyModule returns the Caddy module information.
func (HCaptcha) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "mnemogate.captcha.hcaptcha", New: func() caddy.Module { return new(HCaptcha) }}
}

// Provision sets the defaults and resolves the placeholders.
func (h *HCaptcha) Provision(ctx caddy.Context) error {
	return h.provision(ctx, "captcha hcaptcha", "https://api.hcaptcha.com/siteverify")
}

// ReCaptcha verifies responses of Google reCAPTCHA, v2 and v3. reCAPTCHA v3 confirms
// every response and adds a score; a score of at least 0.5 passes, which is Google's
// default. If Google does not answer, or says that the secret is wrong, nobody passes.
// See siteverify for the options.
type ReCaptcha struct{ siteverify }

// CaddyModule returns the Caddy module information.
func (ReCaptcha) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "mnemogate.captcha.recaptcha", New: func() caddy.Module { return new(ReCaptcha) }}
}

// Provision sets the defaults and resolves the placeholders.
func (r *ReCaptcha) Provision(ctx caddy.Context) error {
	r.minScore = 0.5
	return r.provision(ctx, "captcha recaptcha", "https://www.google.com/recaptcha/api/siteverify")
}

// Siteverify verifies responses with any service that implements reCAPTCHA's
// siteverify. The service receives a POST of a form with secret, response and
// remoteip. It answers a JSON object with success and, where they are needed,
// hostname and error-codes. If it does not answer, nobody passes. See siteverify for the
// options.
type Siteverify struct{ siteverify }

// CaddyModule returns the Caddy module information.
func (Siteverify) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "mnemogate.captcha.siteverify", New: func() caddy.Module { return new(Siteverify) }}
}

// Provision sets the defaults and resolves the placeholders.
func (s *Siteverify) Provision(ctx caddy.Context) error {
	return s.provision(ctx, "captcha siteverify", "")
}

// UnmarshalCaddyfile sets up the service from Caddyfile tokens. The word insecure may also
// follow the secret.
func (s *Siteverify) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	return guest.Parse(d, "<url> [insecure] <secret>", func(d *caddyfile.Dispenser) error {
		args := d.RemainingArgs()
		if i := slices.Index(args, guest.Insecure); i > 0 && len(args) == 3 {
			s.Insecure = true
			args = slices.Delete(args, i, i+1)
		}
		if len(args) != 2 {
			return guest.ErrArguments
		}
		s.URL, s.Secret = args[0], args[1]
		return guest.Literally(d, s.URL, guest.CheckAddress(s.Insecure))
	}, s.options())
}

// UnmarshalCaddyfile sets up the provider from Caddyfile tokens.
func (s *siteverify) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	options := s.options()
	options["site_key <key>"] = guest.Text(&s.SiteKey)
	return guest.Parse(d, "<secret>", guest.Text(&s.Secret), options)
}

func (s *siteverify) options() guest.Parsers {
	return guest.Parsers{
		"hostname <name>...": guest.List(&s.Hostname),
		"timeout <duration>": guest.OneValue(guest.Timeout(&s.Timeout)),
	}
}

func (s *siteverify) provision(ctx caddy.Context, what, defaultURL string) error {
	s.what, s.log, s.warnings = what, logs.Slog(ctx), new(background.Warnings)
	s.URL = cmp.Or(s.URL, defaultURL)
	s.Timeout = cmp.Or(s.Timeout, defaultCaptchaTimeout)
	s.client = guest.Client(guest.Transport{MaxAnswer: maxSiteverifyAnswer}, s.Timeout)
	return errors.Join(
		guest.ResolveInto(what+": secret", &s.Secret),
		guest.ResolveInto(what+": site_key", &s.SiteKey))
}

// Validate refuses a configuration that can't verify any response.
func (s *siteverify) Validate() error {
	if _, err := guest.LiteralURL(s.URL, s.Insecure); err != nil {
		return fmt.Errorf("%s: url: %w", s.what, err)
	}
	if s.Secret == "" {
		return fmt.Errorf("%s: the secret is missing; copy it from the provider's console", s.what)
	}
	if s.Hostname != nil && len(s.Hostname) == 0 {
		return fmt.Errorf("%s: hostname: the list is empty; name a host, or leave it out", s.what)
	}
	for _, name := range s.Hostname {
		if name == "" || strings.ContainsAny(name, ":/?#@*{} ") { // no answer would ever name it
			return fmt.Errorf("%s: hostname: %q is not a host name; write it like app.example.com", s.what, name)
		}
		if ascii, _ := idna.Lookup.ToASCII(name); !strings.EqualFold(ascii, name) {
			return fmt.Errorf("%s: hostname: %q is not how providers write it; write %s", s.what, name, ascii)
		}
	}
	return guest.CheckTimeout(s.what, s.Timeout)
}

// verdict is the provider's answer.
type verdict struct {
	Success    any      `json:"success"`
	Hostname   string   `json:"hostname"`
	Score      any      `json:"score"` // reCAPTCHA v3 gives a number, v2 nothing
	ErrorCodes []string `json:"error-codes"`
}

// operatorErrors are the error codes of Turnstile, hCaptcha and reCAPTCHA for faults
// of the configuration or the provider. They say nothing about the user.
var operatorErrors = []string{
	"missing-input-secret",
	"invalid-input-secret",
	"sitekey-secret-mismatch",
	"not-using-dummy-passcode",
	"missing-remoteip",
	"invalid-remoteip",
	"bad-request",
	"internal-error",
}

// Verify implements tenant.Captcha.
func (s *siteverify) Verify(ctx context.Context, response, address string) (bool, error) {
	if response == "" {
		return false, nil
	}
	v, err := s.ask(ctx, response, address)
	if err != nil {
		return false, fmt.Errorf("%s: %w", s.what, err)
	}
	return s.accepts(v), nil
}

func (s *siteverify) ask(ctx context.Context, response, address string) (verdict, error) {
	form := url.Values{"secret": {s.Secret}, "response": {response}}
	if address != "" {
		form.Set("remoteip", address)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL, strings.NewReader(form.Encode()))
	if err != nil {
		return verdict{}, errors.New("making the request failed")
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("Accept", "application/json")
	resp, err := s.client.Do(req)
	if err != nil {
		return verdict{}, fmt.Errorf("asking the provider: %w", guest.Cause(err))
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return verdict{}, causes.Explain(fmt.Errorf("the provider answered %d", resp.StatusCode), guest.StatusStep(resp.StatusCode))
	}
	body, _ := io.ReadAll(resp.Body) // guest.Transport has read it
	return parseVerdict(body)
}

// parseVerdict returns an error if the answer says nothing about the response.
func parseVerdict(body []byte) (verdict, error) {
	var v verdict
	var otherType *json.UnmarshalTypeError // then all other members are set
	if err := json.Unmarshal(body, &v); err != nil && !errors.As(err, &otherType) || v.Success != true && v.Success != false {
		return verdict{}, errors.New("the provider's answer is not a JSON object with success")
	}
	for _, code := range operatorErrors {
		if v.Success != true && slices.Contains(v.ErrorCodes, code) {
			return verdict{}, fmt.Errorf("the provider answered %s; check the secret and the site key", code)
		}
	}
	return v, nil
}

// WidgetKey implements guest.Widget.
func (s *siteverify) WidgetKey() string { return s.SiteKey }

// Endpoint implements guest.Remote.
func (s *siteverify) Endpoint() string { return guest.EndpointOf(s.URL) }

// Check implements guest.Checked.
func (s *siteverify) Check() (string, func(context.Context) error) {
	to, _ := url.Parse(s.URL) // Validate has parsed it
	return guest.CheckReach(to)
}

// Weaknesses implements guest.Weak.
func (s *siteverify) Weaknesses() []guest.Weakness {
	weaknesses := guest.HTTPWeakness(s.Insecure, s.URL)
	if slices.Contains(testSecrets, s.Secret) {
		weaknesses = append(weaknesses, guest.Weakness{
			Message: "its secret is the one that the provider has published for tests: anybody passes",
			Advice:  "copy your own secret from the provider's console",
		})
	}
	return weaknesses
}

// testSecrets are the secrets that Turnstile, hCaptcha and reCAPTCHA have published for
// tests, and with which anybody can pass.
var testSecrets = []string{
	"1x0000000000000000000000000000000AA",
	"0x0000000000000000000000000000000000000000",
	"6LeIxAcTAAAAAGG-vFI1TnRWxMZNFuojJ4WifJWe",
}

func (s *siteverify) accepts(v verdict) bool {
	if score, _ := v.Score.(float64); v.Success != true || v.Score != nil && score < s.minScore {
		return false
	}
	sameHost := func(name string) bool { return strings.EqualFold(name, v.Hostname) }
	if len(s.Hostname) > 0 && !slices.ContainsFunc(s.Hostname, sameHost) {
		s.warnings.WarnOfStrangers(s.log, "a captcha was solved on another host than those in hostname, and is refused", "hostname", guest.Scrub(v.Hostname))
		return false
	}
	return true
}

// Interface guards
var (
	_ tenant.Captcha        = (*siteverify)(nil)
	_ guest.Remote          = (*siteverify)(nil)
	_ guest.Checked         = (*siteverify)(nil)
	_ guest.Widget          = (*siteverify)(nil)
	_ guest.Weak            = (*siteverify)(nil)
	_ caddy.Validator       = (*siteverify)(nil)
	_ caddyfile.Unmarshaler = (*siteverify)(nil)
	_ caddyfile.Unmarshaler = (*Siteverify)(nil)
	_ caddy.Provisioner     = (*Turnstile)(nil)
	_ caddy.Provisioner     = (*HCaptcha)(nil)
	_ caddy.Provisioner     = (*ReCaptcha)(nil)
	_ caddy.Provisioner     = (*Siteverify)(nil)
)
