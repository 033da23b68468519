package caddymodule

import (
	"bytes"
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	netmail "net/mail"
	"net/textproto"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/wneessen/go-mail"
	"go.uber.org/zap"
	"golang.org/x/net/http/httpguts"

	"github.com/mnemogate/mnemogate/flows"
)

func init() {
	caddy.RegisterModule(SMSWebhook{})
	caddy.RegisterModule(MailWebhook{})
	caddy.RegisterModule(SMSLog{})
	caddy.RegisterModule(MailLog{})
	caddy.RegisterModule(SMTP{})
}

// defaultSendTimeout is how long a gateway may take.
const defaultSendTimeout = caddy.Duration(5 * time.Second)

// maxDrained is how much of a gateway's answer is read, only so that the
// connection can be used again.
const maxDrained = 64 << 10

// webhook is what SMSWebhook and MailWebhook share.
type webhook struct {
	// Where each message is posted to. Use https: with http, whoever is on the
	// way reads the codes and links. May contain placeholders like {env.NAME},
	// since some gateways have a key in their URL. A redirect is not followed,
	// but counts as not delivered.
	URL string `json:"url,omitempty"`

	// The key that the gateway verifies the signature with; required. One in
	// the form of Standard Webhooks, `whsec_` and base64, stands for the bytes
	// that the base64 encodes; of any other the characters are the key. Use a
	// placeholder like {env.NAME} or {file.PATH} for it.
	Secret string `json:"secret,omitempty"`

	// How long the gateway may take to answer, at most 1m. Default: 5s.
	Timeout caddy.Duration `json:"timeout,omitempty"`

	// More header fields of the request, by name. Their values may contain
	// placeholders.
	Headers map[string]string `json:"headers,omitempty"`

	what   string
	target *url.URL
	key    []byte
	client *http.Client
}

// SMSWebhook posts each SMS to an HTTP gateway as a Standard Webhooks request:
// the headers webhook-id, webhook-timestamp and webhook-signature, and a JSON
// object with type (otp.login, otp.recovery or notice.password_changed),
// company_code, profile_mnemocode, to, code, text and expires_at (RFC 3339;
// none with a notice). Any 2xx answer means that the SMS is on its way.
type SMSWebhook struct{ webhook }

// CaddyModule returns the Caddy module information.
func (SMSWebhook) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "mnemogate.sms.webhook", New: func() caddy.Module { return new(SMSWebhook) }}
}

// Provision resolves the placeholders.
func (w *SMSWebhook) Provision(caddy.Context) error { return w.provision("sms webhook") }

// MailWebhook posts each mail to an HTTP gateway as a Standard Webhooks
// request: the headers webhook-id, webhook-timestamp and webhook-signature, and
// a JSON object with type (recovery.link or notice.password_changed),
// company_code, profile_mnemocode, to, link, subject, text and expires_at (RFC
// 3339; none with a notice). Any 2xx answer means that the mail is on its way.
type MailWebhook struct{ webhook }

// CaddyModule returns the Caddy module information.
func (MailWebhook) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "mnemogate.mail.webhook", New: func() caddy.Module { return new(MailWebhook) }}
}

// Provision resolves the placeholders.
func (w *MailWebhook) Provision(caddy.Context) error { return w.provision("mail webhook") }

// UnmarshalCaddyfile sets up the gateway from Caddyfile tokens. Syntax:
//
//	webhook <url> {
//		secret <key>
//		timeout <duration>
//		header <name> <value>
//	}
//
// header may be repeated, with another name.
func (w *webhook) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next()
	if err := oneArg(d, &w.URL)(); err != nil {
		return err
	}
	return guestOptions(d, map[string]func() error{
		"secret":  oneArg(d, &w.Secret),
		"timeout": durationArg(d, &w.Timeout),
		"header":  func() error { return w.parseHeader(d) },
	}, "header")
}

func (w *webhook) parseHeader(d *caddyfile.Dispenser) error {
	var name, value string
	if !d.AllArgs(&name, &value) {
		return d.ArgErr()
	}
	for other := range w.Headers {
		if strings.EqualFold(other, name) {
			return d.Errf("header %s already specified", name)
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
	if w.Timeout == 0 {
		w.Timeout = defaultSendTimeout
	}
	w.client = outboundClient(outbound, w.Timeout)
	for name, value := range w.Headers {
		if err := resolveInto(what+": header "+name, &value); err != nil {
			return err
		}
		w.Headers[name] = value
	}
	return errors.Join(resolveInto(what+": url", &w.URL), resolveInto(what+": secret", &w.Secret))
}

// Validate refuses what can't be sent or verified.
func (w *webhook) Validate() (err error) {
	if w.target, err = httpURL(w.URL); err != nil {
		return fmt.Errorf("%s: url: %w", w.what, err)
	}
	if w.Secret == "" {
		return fmt.Errorf("%s: secret: the gateway needs a key to know these requests by; add one", w.what)
	}
	if w.key, err = webhookKey(w.Secret); err != nil {
		return fmt.Errorf("%s: secret: %w", w.what, err)
	}
	for name, value := range w.Headers {
		if !httpguts.ValidHeaderFieldName(name) || !httpguts.ValidHeaderFieldValue(value) {
			return fmt.Errorf("%s: header %q: its name or its value can't be sent in HTTP", w.what, name)
		}
		if ownHeader(name) {
			return fmt.Errorf("%s: header %s is set by mnemogate; leave it out", w.what, name)
		}
	}
	return checkTimeout(w.what, w.Timeout)
}

// ownHeader tells the fields that a webhook's configuration can't set.
func ownHeader(name string) bool {
	name = strings.ToLower(name)
	return strings.HasPrefix(name, "webhook-") ||
		slices.Contains([]string{"content-type", "content-length", "host", "transfer-encoding", "connection", "trailer"}, name)
}

// webhookKey returns the bytes of a Standard Webhooks secret.
func webhookKey(secret string) ([]byte, error) {
	encoded, ok := strings.CutPrefix(secret, "whsec_")
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
	Type      string `json:"type"`
	Company   string `json:"company_code"`
	Mnemocode string `json:"profile_mnemocode"`
	To        string `json:"to"`
	Code      string `json:"code,omitempty"`
	Link      string `json:"link,omitempty"`
	Subject   string `json:"subject,omitempty"`
	Text      string `json:"text"`
	Expires   string `json:"expires_at,omitempty"`
}

// Send implements flows.Sender.
func (w *webhook) Send(ctx context.Context, m flows.Message) error {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(w.Timeout))
	defer cancel()
	req, err := w.request(ctx, m, time.Now())
	if err != nil {
		return err
	}
	resp, err := w.client.Do(req)
	if err != nil {
		return fmt.Errorf("%s: asking %s: %w", w.what, w.target.Host, netCause(err))
	}
	defer resp.Body.Close()
	io.CopyN(io.Discard, resp.Body, maxDrained) // the status has said all
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return fmt.Errorf("%s: %s answered %d", w.what, w.target.Host, resp.StatusCode)
	}
	return nil
}

// request makes the signed request, see standardwebhooks.com.
func (w *webhook) request(ctx context.Context, m flows.Message, now time.Time) (*http.Request, error) {
	content := webhookMessage{m.Type, m.Company, m.Mnemocode, m.To, m.Code, m.Link, m.Subject, m.Text, ""}
	if !m.Expires.IsZero() {
		content.Expires = m.Expires.UTC().Format(time.RFC3339)
	}
	body, err := json.Marshal(content)
	if err != nil {
		return nil, fmt.Errorf("%s: encoding the message failed", w.what)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.target.String(), bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("%s: making the request failed", w.what)
	}
	req.Header.Set("User-Agent", "mnemogate")
	for name, value := range w.Headers {
		req.Header.Set(name, value)
	}
	sent := strconv.FormatInt(now.Unix(), 10)
	mac := hmac.New(sha256.New, w.key)
	fmt.Fprintf(mac, "%s.%s.%s", m.ID, sent, body)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Webhook-Id", m.ID)
	req.Header.Set("Webhook-Timestamp", sent)
	req.Header.Set("Webhook-Signature", "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	sendOnce(req.Header) // the gateway tells a repetition by webhook-id
	return req, nil
}

// logSender is what SMSLog and MailLog share.
type logSender struct{ logger *zap.Logger }

// SMSLog writes every SMS, with its code, to Caddy's log at level INFO and
// sends nothing. It is for trying out: whoever reads the log can log in as
// anyone. A warning at each start says so.
type SMSLog struct{ logSender }

// CaddyModule returns the Caddy module information.
func (SMSLog) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "mnemogate.sms.log", New: func() caddy.Module { return new(SMSLog) }}
}

// Provision warns.
func (l *SMSLog) Provision(ctx caddy.Context) error { return l.provision(ctx, "sms log") }

// MailLog writes every mail, with its link, to Caddy's log at level INFO and
// sends nothing. It is for trying out: whoever reads the log can take over any
// account. A warning at each start says so.
type MailLog struct{ logSender }

// CaddyModule returns the Caddy module information.
func (MailLog) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "mnemogate.mail.log", New: func() caddy.Module { return new(MailLog) }}
}

// Provision warns.
func (l *MailLog) Provision(ctx caddy.Context) error { return l.provision(ctx, "mail log") }

// UnmarshalCaddyfile takes no arguments. Syntax:
//
//	log
func (l *logSender) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next()
	if d.NextArg() {
		return d.ArgErr()
	}
	return guestOptions(d, nil)
}

func (l *logSender) provision(ctx caddy.Context, what string) error {
	l.logger = ctx.Logger()
	l.logger.Warn("NOT FOR PRODUCTION: nothing is sent; codes and links are written to this log instead",
		zap.String("directive", what))
	return nil
}

// Send implements flows.Sender.
func (l *logSender) Send(_ context.Context, m flows.Message) error {
	l.logger.Info("message not sent, but logged",
		zap.String("type", m.Type),
		zap.String("company", m.Company),
		zap.String("to", m.To),
		zap.String("subject", m.Subject),
		zap.String("text", m.Text))
	return nil
}

// SMTP sends mails through an SMTP server: one connection for each mail, whose
// certificate is verified by the system's roots. The headers Message-ID, Date
// and Auto-Submitted (auto-generated) are set.
type SMTP struct {
	// The server, as host:port. Usual ports are 587 for starttls and 465 for
	// implicit TLS.
	Address string `json:"address,omitempty"`

	// The sender of the mails, as an address or as `Name <address>`.
	From string `json:"from,omitempty"`

	// The name to log in at the server with. Default: no login. May contain
	// placeholders like {env.NAME}.
	Username string `json:"username,omitempty"`

	// The password to log in at the server with. Use a placeholder like
	// {env.NAME} or {file.PATH} for it.
	Password string `json:"password,omitempty"`

	// How the connection is encrypted: `starttls` (no mail is sent if the
	// server can't), `implicit`, or `off`. With `off` whoever is on the way
	// reads the links; a username is refused then, unless the server is this
	// machine. Default: `starttls`.
	TLS string `json:"tls,omitempty"`

	// How long sending one mail may take in all, at most 1m. Default: 5s.
	Timeout caddy.Duration `json:"timeout,omitempty"`

	host  string
	port  int
	from  *netmail.Address
	roots *x509.CertPool // nil for the system's
}

// What SMTP.TLS may be.
const (
	tlsStartTLS = "starttls"
	tlsImplicit = "implicit"
	tlsOff      = "off"
)

const (
	// maxSMTPAnswers bounds what a server may say while it takes one mail.
	maxSMTPAnswers = 256 << 10
	// quitTimeout is how long a server may take to say goodbye to a client
	// whose mail it has accepted.
	quitTimeout = 500 * time.Millisecond
)

// CaddyModule returns the Caddy module information.
func (SMTP) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "mnemogate.mail.smtp", New: func() caddy.Module { return new(SMTP) }}
}

// UnmarshalCaddyfile sets up the server from Caddyfile tokens. Syntax:
//
//	smtp <host:port> {
//		from <address>
//		username <name>
//		password <secret>
//		tls starttls|implicit|off
//		timeout <duration>
//	}
func (s *SMTP) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next()
	if err := oneArg(d, &s.Address)(); err != nil {
		return err
	}
	return guestOptions(d, map[string]func() error{
		"from":     oneArg(d, &s.From),
		"username": oneArg(d, &s.Username),
		"password": oneArg(d, &s.Password),
		"tls":      oneArg(d, &s.TLS),
		"timeout":  durationArg(d, &s.Timeout),
	})
}

// Provision sets the defaults and resolves the placeholders.
func (s *SMTP) Provision(caddy.Context) error {
	if s.TLS == "" {
		s.TLS = tlsStartTLS
	}
	if s.Timeout == 0 {
		s.Timeout = defaultSendTimeout
	}
	return errors.Join(
		resolveInto("mail smtp: username", &s.Username),
		resolveInto("mail smtp: password", &s.Password))
}

// Validate refuses a server that can't be reached or must not be trusted with
// a password.
func (s *SMTP) Validate() error {
	host, port, err := net.SplitHostPort(s.Address)
	if s.port, _ = strconv.Atoi(port); err != nil || host == "" || s.port < 1 || s.port > 65535 {
		return errors.New("mail smtp: write the server as host:port")
	}
	s.host = host
	if s.from, err = netmail.ParseAddress(s.From); err != nil {
		return errors.New("mail smtp: from: write an address, like noreply@example.com")
	}
	if !slices.Contains([]string{tlsStartTLS, tlsImplicit, tlsOff}, s.TLS) {
		return fmt.Errorf("mail smtp: tls: %q is none of starttls, implicit, off", s.TLS)
	}
	if (s.Username == "") != (s.Password == "") {
		return errors.New("mail smtp: username and password go together; add the other one")
	}
	if s.Username != "" && s.TLS == tlsOff && !loopback(host) {
		return errors.New("mail smtp: tls off would show the password to the network; use starttls or implicit")
	}
	return checkTimeout("mail smtp", s.Timeout)
}

// Send implements flows.Sender.
func (s *SMTP) Send(ctx context.Context, m flows.Message) error {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(s.Timeout))
	defer cancel()
	message, err := s.message(m)
	if err != nil {
		return err
	}
	if err := s.deliver(ctx, message); err != nil {
		if ctx.Err() != nil {
			err = netCause(ctx.Err())
		}
		return fmt.Errorf("mail smtp: %s: %s", s.Address, smtpCause(err, m.Code, m.Link, s.Username, s.Password))
	}
	return nil
}

// message makes the mail. What comes from an account or a template reaches
// headers encoded only.
func (s *SMTP) message(m flows.Message) (*mail.Msg, error) {
	to, err := netmail.ParseAddress(m.To)
	if err != nil || to.Address != m.To {
		return nil, errors.New("mail smtp: the account's email is not an address that mail can be sent to")
	}
	message := mail.NewMsg(mail.WithNoDefaultUserAgent())
	message.SetAddrHeaderFromMailAddress(mail.HeaderFrom, s.from)
	message.SetAddrHeaderFromMailAddress(mail.HeaderTo, to)
	message.Subject(m.Subject)
	message.SetDate()
	message.SetMessageIDWithValue(m.ID + s.from.Address[strings.LastIndexByte(s.from.Address, '@'):])
	message.SetGenHeader("Auto-Submitted", "auto-generated") // RFC 3834
	message.SetBodyString(mail.TypeTextPlain, m.Text)
	return message, nil
}

// deliver hands the mail to the server. Once the server has accepted it,
// nothing is an error any more.
func (s *SMTP) deliver(ctx context.Context, message *mail.Msg) error {
	raw, err := new(net.Dialer).DialContext(ctx, "tcp", s.Address)
	if err != nil {
		return err
	}
	conn := &smtpConn{Conn: raw, left: maxSMTPAnswers}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()

	client, err := s.client(conn)
	if err != nil {
		return err
	}
	session, err := client.DialToSMTPClientWithContext(ctx)
	if err != nil {
		return err
	}
	err = client.SendWithSMTPClient(session, message)
	if !message.IsDelivered() {
		return cmp.Or(err, errors.New("it did not take the mail"))
	}
	raw.SetDeadline(time.Now().Add(quitTimeout))
	session.Quit() // for politeness
	return nil
}

// client makes go-mail speak over conn. The TLS of implicit is ours, since
// go-mail leaves it to whoever brings the connection.
func (s *SMTP) client(conn net.Conn) (*mail.Client, error) {
	config := &tls.Config{ServerName: s.host, RootCAs: s.roots, MinVersion: tls.VersionTLS12}
	policy := mail.TLSMandatory
	if s.TLS != tlsStartTLS {
		policy = mail.NoTLS
	}
	if s.TLS == tlsImplicit {
		conn = tls.Client(conn, config)
	}
	options := []mail.Option{
		mail.WithPort(s.port),
		mail.WithTLSPolicy(policy),
		mail.WithTLSConfig(config),
		mail.WithTimeout(time.Duration(s.Timeout)),
		mail.WithoutNoop(),
		mail.WithoutRset(),
		mail.WithDialContextFunc(func(context.Context, string, string) (net.Conn, error) { return conn, nil }),
	}
	if s.Username != "" {
		options = append(options, mail.WithUsername(s.Username), mail.WithPassword(s.Password),
			mail.WithOpportunisticSMTPAuth(s.mechanisms()...))
	}
	return mail.NewClient(s.host, options...)
}

// mechanisms lists how to log in. Without TLS the server is this machine:
// Validate has seen to that.
func (s *SMTP) mechanisms() []mail.SMTPAuthType {
	if s.TLS == tlsOff {
		return []mail.SMTPAuthType{mail.SMTPAuthSCRAMSHA256, mail.SMTPAuthPlainNoEnc, mail.SMTPAuthLoginNoEnc}
	}
	return []mail.SMTPAuthType{mail.SMTPAuthSCRAMSHA256, mail.SMTPAuthPlain, mail.SMTPAuthLogin}
}

// smtpCause tells what went wrong without what the server said: it may quote
// the mail.
func smtpCause(err error, secrets ...string) string {
	if refused, ok := errors.AsType[*mail.SendError](err); ok {
		if refused.ErrorCode() == 0 {
			return fmt.Sprintf("%v failed: the connection broke", refused.Reason)
		}
		return strings.TrimSpace(fmt.Sprintf("%v failed: %d %s", refused.Reason, refused.ErrorCode(), refused.EnhancedStatusCode()))
	}
	if answer, ok := errors.AsType[*textproto.Error](err); ok {
		return fmt.Sprintf("it answered %d", answer.Code)
	}
	if _, ok := errors.AsType[textproto.ProtocolError](err); ok {
		return "its answer is not SMTP"
	}
	return scrub(err.Error(), secrets...)
}

// smtpConn is a connection that ends with the whole mail's context: go-mail
// would set a new deadline with every step. It also bounds what the server may
// say.
type smtpConn struct {
	net.Conn
	left int
}

// SetDeadline implements net.Conn.
func (*smtpConn) SetDeadline(time.Time) error { return nil }

// SetReadDeadline implements net.Conn.
func (*smtpConn) SetReadDeadline(time.Time) error { return nil }

// SetWriteDeadline implements net.Conn.
func (*smtpConn) SetWriteDeadline(time.Time) error { return nil }

// Read implements net.Conn.
func (c *smtpConn) Read(b []byte) (int, error) {
	if c.left <= 0 {
		return 0, errTooLarge
	}
	n, err := c.Conn.Read(b[:min(len(b), c.left)])
	c.left -= n
	return n, err
}

var (
	_ flows.Sender          = (*SMSWebhook)(nil)
	_ caddy.Provisioner     = (*SMSWebhook)(nil)
	_ caddy.Validator       = (*SMSWebhook)(nil)
	_ caddyfile.Unmarshaler = (*SMSWebhook)(nil)

	_ flows.Sender          = (*MailWebhook)(nil)
	_ caddy.Provisioner     = (*MailWebhook)(nil)
	_ caddy.Validator       = (*MailWebhook)(nil)
	_ caddyfile.Unmarshaler = (*MailWebhook)(nil)

	_ flows.Sender          = (*SMSLog)(nil)
	_ caddy.Provisioner     = (*SMSLog)(nil)
	_ caddyfile.Unmarshaler = (*SMSLog)(nil)

	_ flows.Sender          = (*MailLog)(nil)
	_ caddy.Provisioner     = (*MailLog)(nil)
	_ caddyfile.Unmarshaler = (*MailLog)(nil)

	_ flows.Sender          = (*SMTP)(nil)
	_ caddy.Provisioner     = (*SMTP)(nil)
	_ caddy.Validator       = (*SMTP)(nil)
	_ caddyfile.Unmarshaler = (*SMTP)(nil)
)
