// Package senders contains the built-in plugins that deliver SMS and mails to users
// (webhook.go, smtp.go and, for tests, log.go and capture.go), deliver events to backends
// (events.go) and ask an old system about passwords (migrate.go). To add a gateway, write a
// message.Sender and register it as mnemogate.sms.<name> or mnemogate.mail.<name>; for
// events write a guest.EventsModule. See package guest.
package senders

import (
	"bytes"
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"golang.org/x/net/http/httpguts"

	"github.com/mnemogate/mnemogate/caddymodule/guest"
	"github.com/mnemogate/mnemogate/flows/message"
	"github.com/mnemogate/mnemogate/store/causes"
)

func init() {
	caddy.RegisterModule(SMSWebhook{})
	caddy.RegisterModule(MailWebhook{})
}

// defaultSendTimeout is the default time limit for a gateway's answer.
const defaultSendTimeout = caddy.Duration(5 * time.Second)

// defaultWebhookConns is how many requests a webhook handles at once without trouble.
const defaultWebhookConns = 32

// maxDrained is how many bytes of a gateway's answer are read, so that the
// connection can be reused.
const maxDrained = 64 << 10

// drainTimeout is how long that reading may take. Receivers may answer first and work then.
const drainTimeout = 500 * time.Millisecond

// webhook is the common part of SMSWebhook, MailWebhook, EventsWebhook and
// MigrateWebhook.
type webhook struct {
	// The URL that each message is posted to. It must be https, or http on this
	// machine. May contain placeholders like {env.NAME}, since the URLs of some
	// gateways contain a key. Redirects are not followed: a redirect counts as a
	// failed delivery.
	URL string `json:"url,omitempty"`

	// Whether the URL may be http on another machine. Anyone on the network path can
	// then read the codes and links. Each start logs a warning. Default: false.
	Insecure bool `json:"insecure,omitempty"`

	// The keys for the signature that the gateway verifies; at least one. Each signs every
	// request, so that the gateway can switch to a new one while both are valid. If one has
	// the form of Standard Webhooks, `whsec_` and base64, the key is the decoded base64.
	// Otherwise the characters are the key, and each start logs a warning: the
	// libraries of Standard Webhooks always decode base64, so they need `whsec_` and
	// the base64 of these characters. Use placeholders like {env.NAME} or
	// {file.PATH}.
	Secrets []string `json:"secrets,omitempty"`

	// The time limit for the gateway's answer, at most 1m. Default: 5s.
	Timeout caddy.Duration `json:"timeout,omitempty"`

	// How many requests to the gateway may be open at once, 1 to 1000. Further ones wait,
	// within `timeout`. Notices leave one of them to other messages. Default: 32.
	MaxConns int `json:"max_conns,omitempty"`

	// More headers of the request, by name. Their values may contain placeholders.
	Headers map[string]string `json:"headers,omitempty"`

	what   string
	target *url.URL
	keys   [][]byte
	client *http.Client
	open   guest.Slots
}

// SMSWebhook posts each SMS to an HTTP gateway as a Standard Webhooks request with
// the headers webhook-id, webhook-timestamp and webhook-signature. Any 2xx answer means
// that the gateway accepted the SMS. See webhook for the options. The body is a JSON
// object:
//
//   - type: otp.login, otp.recovery, otp.stepup, contact.code, test, or a notice such as
//     notice.password_changed
//   - company_code, profile_mnemocode (none with the contact.code of someone who has no
//     account) and to
//   - locale: the account's, else the company's
//   - code and text
//   - expires_at: RFC 3339; a notice has none
type SMSWebhook struct{ webhook }

// CaddyModule returns the Caddy module information.
func (SMSWebhook) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "mnemogate.sms.webhook", New: func() caddy.Module { return new(SMSWebhook) }}
}

// Provision resolves the placeholders.
func (w *SMSWebhook) Provision(caddy.Context) error { return w.provision("sms webhook") }

// MailWebhook posts each mail to an HTTP gateway as a Standard Webhooks request with
// the headers webhook-id, webhook-timestamp and webhook-signature. Any 2xx answer means
// that the gateway accepted the mail. See webhook for the options. The body is a JSON
// object:
//
//   - type: recovery.link, welcome.link, contact.code, test, or a notice such as
//     notice.password_changed
//   - company_code, profile_mnemocode (none with the contact.code of someone who has no
//     account) and to
//   - locale: the account's, else the company's
//   - link, or code with contact.code; subject, text and html
//   - expires_at: RFC 3339; a notice has none
type MailWebhook struct{ webhook }

// CaddyModule returns the Caddy module information.
func (MailWebhook) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "mnemogate.mail.webhook", New: func() caddy.Module { return new(MailWebhook) }}
}

// Provision resolves the placeholders.
func (w *MailWebhook) Provision(caddy.Context) error { return w.provision("mail webhook") }

// UnmarshalCaddyfile sets up the webhook from Caddyfile tokens.
func (w *webhook) UnmarshalCaddyfile(d *caddyfile.Dispenser) error { return w.parse(d, nil) }

// parse parses a webhook that has additional options.
func (w *webhook) parse(d *caddyfile.Dispenser, more guest.Parsers) error {
	options := w.options()
	maps.Copy(options, more)
	err := guest.Parse(d, "<url> [insecure]", guest.Address(&w.URL, &w.Insecure), options, "header")
	return guest.Complete(d, err, w.checkGiven)
}

func init() { guest.Belong("the block of a webhook", new(webhook).options()) }

func (w *webhook) options() guest.Parsers {
	return guest.Parsers{
		"secret <key>...":       w.parseSecrets,
		"timeout <duration>":    guest.OneValue(guest.Timeout(&w.Timeout)),
		"max_conns <n>":         guest.OneValue(guest.Int(&w.MaxConns)),
		"header <name> <value>": w.parseHeader,
	}
}

// checkGiven refuses a gateway without a required option.
func (w *webhook) checkGiven() error {
	if len(w.Secrets) == 0 {
		return errors.New("secret: the gateway needs a key to know these requests by; add one")
	}
	return nil
}

func (w *webhook) parseSecrets(d *caddyfile.Dispenser) error {
	secrets := d.RemainingArgs()
	if len(secrets) == 0 || slices.Contains(secrets, "") {
		return guest.ErrEmpty
	}
	for _, secret := range secrets {
		if err := guest.Literally(d, secret, func(secret string) error { _, err := webhookKey(secret); return err }); err != nil {
			return err
		}
	}
	w.Secrets = secrets
	return nil
}

func (w *webhook) parseHeader(d *caddyfile.Dispenser) error {
	var name, value string
	if !d.AllArgs(&name, &value) {
		return guest.ErrArguments
	}
	for other := range w.Headers {
		if strings.EqualFold(other, name) {
			return d.Errf("%s already specified; remove one", name)
		}
	}
	if w.Headers == nil {
		w.Headers = map[string]string{}
	}
	w.Headers[name] = value
	return nil
}

func (w *webhook) provision(what string) error {
	w.what = what
	w.Timeout = cmp.Or(w.Timeout, defaultSendTimeout)
	w.MaxConns = cmp.Or(w.MaxConns, defaultWebhookConns)
	w.client = guest.Client(guest.Outbound, w.Timeout)
	for _, name := range slices.Sorted(maps.Keys(w.Headers)) {
		value := w.Headers[name]
		if err := guest.ResolveInto(what+": header "+name, &value); err != nil {
			return err
		}
		w.Headers[name] = value
	}
	for i := range w.Secrets {
		if err := guest.ResolveInto(what+": secret", &w.Secrets[i]); err != nil {
			return err
		}
	}
	return guest.ResolveInto(what+": url", &w.URL)
}

// Validate refuses a gateway that messages can't be sent to or signed for.
func (w *webhook) Validate() (err error) {
	if w.target, err = guest.RemoteURL(w.URL, w.Insecure); err != nil {
		return fmt.Errorf("%s: url: %w", w.what, err)
	}
	if err := w.checkGiven(); err != nil {
		return fmt.Errorf("%s: %w", w.what, err)
	}
	if w.open, err = guest.NewSlots(w.MaxConns); err != nil {
		return fmt.Errorf("%s: max_conns: %w", w.what, err)
	}
	for _, secret := range w.Secrets {
		key, err := webhookKey(secret)
		if err != nil {
			return fmt.Errorf("%s: secret: %w", w.what, err)
		}
		w.keys = append(w.keys, key)
	}
	names := slices.Sorted(maps.Keys(w.Headers))
	for i, name := range names {
		if slices.ContainsFunc(names[:i], func(other string) bool { return strings.EqualFold(other, name) }) {
			return fmt.Errorf("%s: header %s already specified; remove one", w.what, name)
		}
		if !httpguts.ValidHeaderFieldName(name) || !fieldValue.MatchString(w.Headers[name]) {
			return fmt.Errorf("%s: header %q: HTTP can't carry its name, or its value, which must be visible ASCII without space around it; correct it", w.what, name)
		}
		if ownHeader(name) {
			return fmt.Errorf("%s: header %s is set by mnemogate; leave it out", w.what, name)
		}
	}
	return guest.CheckTimeout(w.what, w.Timeout)
}

// fieldValue matches the values that every server reads alike (RFC 9110, section 5.5).
var fieldValue = regexp.MustCompile(`^[!-~]([ \t!-~]*[!-~])?$`)

// ownHeader reports whether a header is one that the configuration must not set.
func ownHeader(name string) bool {
	name = strings.ToLower(name)
	return strings.HasPrefix(name, "webhook-") ||
		slices.Contains([]string{"content-type", "content-length", "host", "transfer-encoding", "connection", "trailer", "upgrade", "expect", "te"}, name)
}

// keyPrefix is the prefix of a Standard Webhooks secret. Base64 follows it.
const keyPrefix = "whsec_"

// minKeyBytes is how long the keys of Standard Webhooks must be.
const minKeyBytes = 24

// webhookKey returns the bytes of a Standard Webhooks secret.
func webhookKey(secret string) ([]byte, error) {
	if secret == "" {
		return nil, errors.New("it is empty")
	}
	encoded, ok := strings.CutPrefix(secret, keyPrefix)
	if !ok {
		return []byte(secret), nil
	}
	key, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil || len(key) == 0 {
		return nil, errors.New("what follows whsec_ must be base64")
	}
	return key, nil
}

// webhookMessage is the body of the request.
type webhookMessage struct {
	// What the message is for.
	Type string `json:"type"`
	// The company's code.
	Company string `json:"company_code"`
	// What people call the company, if it has a name besides its code.
	CompanyName string `json:"company_name,omitempty"`
	// The profile_mnemocode of the owner of the message; absent in a test, and with the
	// contact.code of someone who has no account.
	Mnemocode string `json:"profile_mnemocode,omitempty"`
	// The phone (E.164) or address, quoted where RFC 5321 demands it.
	To string `json:"to"`
	// The language tag of the account, else of the company; absent if neither has one.
	Locale string `json:"locale,omitempty"`
	// The language tag of the text; absent with a text of your own for all languages.
	Language string `json:"language,omitempty"`
	// The one-time code.
	Code string `json:"code,omitempty"`
	// The link.
	Link string `json:"link,omitempty"`
	// The subject of a mail.
	Subject string `json:"subject,omitempty"`
	// The text for the owner.
	Text string `json:"text"`
	// The text of a mail as HTML.
	HTML string `json:"html,omitempty"`
	// When the code or link expires.
	Expires string `json:"expires_at,omitempty"`
}

// Send implements message.Sender.
func (w *webhook) Send(ctx context.Context, m message.Message) error {
	content := webhookMessage{m.Type, m.Company, m.Name, m.Mnemocode, m.To, m.Locale, m.Language, m.Code, m.Link, m.Subject, m.Text, m.HTML, ""}
	if !m.Expires.IsZero() {
		content.Expires = m.Expires.UTC().Format(time.RFC3339)
	}
	body, _ := json.Marshal(content) // strings: never fails
	return w.post(ctx, m.Company, message.IsNotice(m.Type), m.ID, body)
}

// post sends a body. It returns nil if the gateway accepted it.
func (w *webhook) post(ctx context.Context, company string, notice bool, id string, body []byte) error {
	resp, said, err := w.ask(ctx, company, notice, id, body)
	if err != nil {
		return err
	}
	trial := guest.TrialOf(ctx)
	taken := resp.StatusCode >= 200 && resp.StatusCode <= 299
	if taken && trial == nil {
		return nil
	}
	header := resp.Request.Header.Clone()
	header.Del("Webhook-Timestamp") // digits that the answer may well have in a phone
	sent := append(slices.Concat(slices.Collect(maps.Values(header))...), resp.Request.URL.String())
	sent = append(sent, w.Secrets...)
	if trial == nil {
		sent = append(sent, string(body))
	}
	answer := fmt.Sprintf("%s answered %d: %s", w.target.Host, resp.StatusCode, shown(said, sent...))
	if trial != nil {
		trial.Answer = answer
	}
	if taken {
		return nil
	}
	err = causes.Explain(fmt.Errorf("%s: %s", w.what, answer), guest.StatusStep(resp.StatusCode))
	switch status := resp.StatusCode; {
	case status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable:
		return &message.LaterError{Err: err, Wait: guest.RetryAfter(resp.Header)}
	case status < http.StatusInternalServerError:
		return &message.FinalError{Err: err, Gone: status == http.StatusGone}
	default:
		return err
	}
}

// ask sends a body and returns the answer and its text. For a notice, ask leaves a slot to
// others.
func (w *webhook) ask(ctx context.Context, company string, notice bool, id string, body []byte) (resp *http.Response, said []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(w.Timeout))
	defer cancel()
	err = w.open.Do(ctx, company, notice, func() error {
		req, err := w.request(ctx, id, body, time.Now())
		if err != nil {
			return err
		}
		if resp, err = w.client.Do(req); err != nil {
			err = fmt.Errorf("%s: asking %s: %w", w.what, w.target.Host, guest.Cause(err))
			if guest.MaySendAgain(err) {
				err = &message.LaterError{Err: err}
			}
			return err
		}
		defer resp.Body.Close()
		defer time.AfterFunc(drainTimeout, cancel).Stop()
		said, _ = io.ReadAll(io.LimitReader(resp.Body, maxDrained)) // the status is sufficient
		return nil
	})
	return resp, said, err
}

// Endpoint implements guest.Remote.
func (w *webhook) Endpoint() string { return guest.HostPort(w.target) }

// Check implements guest.Checked.
func (w *webhook) Check() (string, func(context.Context) error) { return guest.CheckReach(w.target) }

// Weaknesses implements guest.Weak.
func (w *webhook) Weaknesses() []guest.Weakness {
	found := guest.HTTPWeakness(w.Insecure, w.URL)
	if slices.ContainsFunc(w.keys, func(key []byte) bool { return len(key) < minKeyBytes }) {
		found = append(found, guest.Weakness{Message: fmt.Sprintf("the secret: it has fewer than %d bytes, the least in Standard Webhooks", minKeyBytes), Advice: `generate a random one, for example with echo "whsec_$(openssl rand -base64 24)"`})
	}
	if slices.ContainsFunc(w.Secrets, func(s string) bool { return !strings.HasPrefix(s, keyPrefix) }) {
		found = append(found, guest.Weakness{
			Message: "the secret has no whsec_ before it, so its characters are the key; a Standard Webhooks library would decode it as base64, and find each signature wrong",
			Advice:  "write whsec_ and the base64 of the key, or check that the gateway takes the characters",
		})
	}
	return found
}

// request creates the signed request, see standardwebhooks.com.
func (w *webhook) request(ctx context.Context, id string, body []byte, now time.Time) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.target.String(), bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("%s: making the request failed", w.what)
	}
	req.Header.Set("User-Agent", "mnemogate")
	for name, value := range w.Headers {
		req.Header.Set(name, value)
	}
	sent := strconv.FormatInt(now.Unix(), 10)
	var signatures []string
	for _, key := range w.keys {
		mac := hmac.New(sha256.New, key)
		fmt.Fprintf(mac, "%s.%s.%s", id, sent, body)
		signatures = append(signatures, "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Webhook-Id", id)
	req.Header.Set("Webhook-Timestamp", sent)
	req.Header.Set("Webhook-Signature", strings.Join(signatures, " "))
	guest.AllowRetry(req.Header) // the gateway recognizes a repeated request by webhook-id
	return req, nil
}

// Interface guards
var (
	_ message.Sender        = (*webhook)(nil)
	_ guest.Remote          = (*webhook)(nil)
	_ guest.Checked         = (*webhook)(nil)
	_ guest.Weak            = (*webhook)(nil)
	_ caddy.Validator       = (*webhook)(nil)
	_ caddyfile.Unmarshaler = (*webhook)(nil)
	_ caddy.Provisioner     = (*SMSWebhook)(nil)
	_ caddy.Provisioner     = (*MailWebhook)(nil)
)
