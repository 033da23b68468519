package senders

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	netmail "net/mail"
	"net/netip"
	"net/textproto"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/wneessen/go-mail"
	"github.com/wneessen/go-mail/smtp"

	"github.com/mnemogate/mnemogate/caddymodule/guest"
	"github.com/mnemogate/mnemogate/flows/message"
	"github.com/mnemogate/mnemogate/flows/typed"
	"github.com/mnemogate/mnemogate/store/causes"
)

func init() { caddy.RegisterModule(SMTP{}) }

// SMTP sends mails through an SMTP server, as plain text and HTML
// (multipart/alternative), with one connection for each mail. It sets
// the headers Message-ID, Date, Auto-Submitted (auto-generated) and
// X-Auto-Response-Suppress (no out-of-office replies by Exchange).
type SMTP struct {
	// The server, as host:port. The usual ports are 587 for starttls and 465 for
	// implicit TLS.
	Address string `json:"address,omitempty"`

	// The sender of the mails, as an address or as `Name <address>`.
	From string `json:"from,omitempty"`

	// The address that answers to the mails go to, as in `from`. Default: that of `from`.
	ReplyTo string `json:"reply_to,omitempty"`

	// The user name for the login at the server. May contain placeholders like
	// {env.NAME}. Default: no login.
	Username string `json:"username,omitempty"`

	// The password for the login at the server. Use a placeholder like {env.NAME} or
	// {file.PATH}.
	Password string `json:"password,omitempty"`

	// How the connection is encrypted: `starttls` (no mail is sent if the server
	// does not support it), `implicit`, or `off`. With `off`, anyone on the network
	// path can read the links and the password, so it requires `insecure`, unless the
	// server is on this machine. Default: `starttls`.
	TLS string `json:"tls,omitempty"`

	// Whether `tls` may be `off` for a server on another machine. Each start then
	// logs a warning. Default: false.
	Insecure bool `json:"insecure,omitempty"`

	// A PEM file with the certificates of the authorities that may have signed the
	// server's certificate. Default: the system's.
	CA string `json:"ca,omitempty"`

	// How many connections to the server may be open at once, 1 to 1000. Further mails wait,
	// within `timeout`. Notices leave one of them to other mails. Default: 3.
	MaxConns int `json:"max_conns,omitempty"`

	// The time limit for sending one mail, at most 1m. Default: 5s.
	Timeout caddy.Duration `json:"timeout,omitempty"`

	host    string
	port    int
	from    *netmail.Address
	replyTo *netmail.Address
	roots   *x509.CertPool // nil for the system's
	open    guest.Slots
}

// defaultMailConns is how many connections the mail servers of most providers allow.
const defaultMailConns = 3

// Values of SMTP.TLS.
const (
	tlsStartTLS = "starttls"
	tlsImplicit = "implicit"
	tlsOff      = "off"
)

// errNoGreeting means that a server accepts connections and says nothing.
var errNoGreeting = errors.New("no greeting in time")

// maxSCRAM is the most iterations of a login by SCRAM: a second of a processor or less.
const maxSCRAM = 1_000_000

// maxSMTPAnswers limits how many bytes a server may send while it accepts one mail.
const maxSMTPAnswers = 256 << 10

// quitTimeout is how long a server may take to answer QUIT after it accepted the
// mail.
const quitTimeout = 500 * time.Millisecond

// CaddyModule returns the Caddy module information.
func (SMTP) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "mnemogate.mail.smtp", New: func() caddy.Module { return new(SMTP) }}
}

// UnmarshalCaddyfile sets up the server from Caddyfile tokens.
func (s *SMTP) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	return guest.Parse(d, "<host:port>", guest.Text(&s.Address), s.options())
}

func init() { guest.Belong("mail smtp <host:port> { ... }", new(SMTP).options()) }

func (s *SMTP) options() guest.Parsers {
	return guest.Parsers{
		"from <address>":                       guest.Text(&s.From),
		"reply_to <address>":                   guest.Text(&s.ReplyTo),
		"username <name>":                      guest.Text(&s.Username),
		"password <secret>":                    guest.Text(&s.Password),
		"tls starttls|implicit|off [insecure]": s.parseTLS,
		"ca <file>":                            guest.Text(&s.CA),
		"max_conns <n>":                        guest.OneValue(guest.Int(&s.MaxConns)),
		"timeout <duration>":                   guest.OneValue(guest.Timeout(&s.Timeout)),
	}
}

func (s *SMTP) parseTLS(d *caddyfile.Dispenser) error {
	args, insecure := guest.CutInsecure(d.RemainingArgs())
	if len(args) != 1 || args[0] == "" {
		return guest.ErrArguments
	}
	s.TLS, s.Insecure = args[0], insecure
	return nil
}

// Provision sets the defaults, resolves the placeholders and reads the file of ca.
func (s *SMTP) Provision(caddy.Context) error {
	s.TLS = cmp.Or(s.TLS, tlsStartTLS)
	s.Timeout = cmp.Or(s.Timeout, defaultSendTimeout)
	s.MaxConns = cmp.Or(s.MaxConns, defaultMailConns)
	if s.CA != "" {
		certificates, err := guest.ReadFile(s.CA)
		if err != nil {
			return fmt.Errorf("mail smtp: ca: %w", err)
		}
		if s.roots = x509.NewCertPool(); !s.roots.AppendCertsFromPEM(certificates) {
			return fmt.Errorf("mail smtp: ca: %s has no certificate in PEM; name the file of the authority's certificate", s.CA)
		}
	}
	return errors.Join(
		guest.ResolveInto("mail smtp: username", &s.Username),
		guest.ResolveInto("mail smtp: password", &s.Password))
}

// Validate refuses an invalid address, and a server that must not receive a
// password.
func (s *SMTP) Validate() error {
	host, port, err := net.SplitHostPort(s.Address)
	if s.port, _ = strconv.Atoi(port); err != nil || host == "" || s.port < 1 || s.port > 65535 {
		return errors.New("mail smtp: write the server as host:port")
	}
	if err := guest.CheckNoPlaceholder(s.Address, "write the server as host:port"); err != nil {
		return fmt.Errorf("mail smtp: %w", err)
	}
	s.host = host
	if s.from, err = parseAddress("from", s.From); err != nil {
		return err
	}
	if s.ReplyTo != "" {
		if s.replyTo, err = parseAddress("reply_to", s.ReplyTo); err != nil {
			return err
		}
	}
	if s.open, err = guest.NewSlots(s.MaxConns); err != nil {
		return guest.Inside("mail smtp: max_conns", err)
	}
	if !slices.Contains([]string{tlsStartTLS, tlsImplicit, tlsOff}, s.TLS) {
		return fmt.Errorf("mail smtp: tls: %q is not starttls, implicit or off; choose one of these", s.TLS)
	}
	if (s.Username == "") != (s.Password == "") {
		return errors.New("mail smtp: username and password go together; add the other one")
	}
	if s.TLS == tlsOff && !guest.Loopback(host) && !s.Insecure {
		return errors.New("mail smtp: tls: anyone on the network path could read the links and the password with tls off; use starttls or implicit or, if you must, add the word insecure after it")
	}
	return guest.CheckTimeout("mail smtp", s.Timeout)
}

// Send implements message.Sender.
func (s *SMTP) Send(ctx context.Context, m message.Message) (err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(s.Timeout))
	defer cancel()
	began := time.Now()
	defer func() { guest.TraceCall(ctx, "smtp", "send", began, err != nil) }()
	mail, err := s.message(m)
	if err != nil {
		return err
	}
	err = s.open.Do(ctx, m.Company, message.IsNotice(m.Type), func() error { return s.deliver(ctx, mail, m) })
	if err != nil {
		again := guest.MaySendAgain(err)
		code, said, final := smtpAnswer(err)
		if code == 0 && ctx.Err() != nil && !again && !errors.Is(err, errNoGreeting) {
			err = guest.Cause(ctx.Err())
		}
		what, step := causes.Split(err)
		cause := smtpCause(err, what, m.Code, m.Link, s.Username, s.Password)
		if guest.TrialOf(ctx) != nil && said != "" {
			cause += ": " + s.shown(said)
		}
		err = causes.Explain(fmt.Errorf("mail smtp: %s: %s", s.Address, cause), cmp.Or(step, s.step(err, code, said)))
		switch {
		case again || code >= 400 && code <= 499:
			return &message.LaterError{Err: err}
		case final:
			return &message.FinalError{Err: err}
		default:
			return err
		}
	}
	if trial := guest.TrialOf(ctx); trial != nil {
		trial.Answer = s.Address + " accepted it: " + s.shown(mail.ServerResponse())
	}
	return nil
}

// shown returns what a server said while it accepted a trial. The only secrets of a
// trial are the username and password of the login.
func (s *SMTP) shown(said string) string {
	var sent []string
	for _, secret := range []string{s.Username, s.Password, "\x00" + s.Username + "\x00" + s.Password} {
		sent = append(sent, secret, base64.StdEncoding.EncodeToString([]byte(secret)))
	}
	return shown([]byte(said), sent...)
}

// smtpAnswer returns the reply that caused an error: its code and its text, and whether it
// refuses this message for good. That of MAIL FROM refuses the login or the sender.
func smtpAnswer(err error) (code int, said string, final bool) {
	if refused, ok := errors.AsType[*mail.SendError](err); ok {
		_, said, _ = strings.Cut(refused.Error(), ": ")
		said, _, _ = strings.Cut(said, ", affected ")
		return refused.ErrorCode(), said, refused.ErrorCode() >= 500 && refused.Reason != mail.ErrSMTPMailFrom
	}
	if answer, ok := errors.AsType[*textproto.Error](err); ok {
		return answer.Code, answer.Msg, false
	}
	return 0, "", false
}

// Endpoint implements guest.Remote.
func (s *SMTP) Endpoint() string { return s.Address }

// Weaknesses implements guest.Weak.
func (s *SMTP) Weaknesses() []guest.Weakness {
	if s.TLS != tlsOff || guest.Loopback(s.host) {
		return nil
	}
	return []guest.Weakness{{
		Message: "anyone on the network path to " + s.Address + " can read the links and the password, since tls is off",
		Advice:  "use starttls or implicit, and remove the word insecure",
	}}
}

// message creates the mail. Text from an account or a template is always encoded in
// headers.
func (s *SMTP) message(m message.Message) (*mail.Msg, error) {
	to, err := netmail.ParseAddress(m.To)
	if err != nil || to.Name != "" || strings.ContainsAny(to.Address, "<>") {
		return nil, errors.New("mail smtp: the account's email is not an address that mail can be sent to")
	}
	if ascii, err := typed.ASCIIDomain(to.Address); err == nil { // otherwise the server decides
		to.Address = ascii
	}
	message := mail.NewMsg(mail.WithNoDefaultUserAgent())
	message.SetAddrHeaderFromMailAddress(mail.HeaderFrom, s.from)
	message.SetAddrHeaderFromMailAddress(mail.HeaderTo, to)
	message.Subject(m.Subject)
	message.SetDate()
	message.SetMessageIDWithValue(m.ID + s.from.Address[strings.LastIndexByte(s.from.Address, '@'):])
	message.SetGenHeader("Auto-Submitted", "auto-generated") // RFC 3834
	// Exchange looks at this one (MS-OXCMAIL, 2.1.3.2.20). Reports of failed delivery still come.
	message.SetGenHeader("X-Auto-Response-Suppress", "DR, RN, NRN, OOF, AutoReply")
	if s.replyTo != nil {
		message.SetAddrHeaderFromMailAddress(mail.HeaderReplyTo, s.replyTo)
	}
	return message, nil
}

// encoding returns how a text is sent. Without an encoding, programs that don't undo
// quoted-printable show links whole.
func encoding(text string, eightBit bool) mail.Encoding {
	tooLong := func(line string) bool { return len(line) > maxLine }
	if !eightBit || strings.ContainsAny(text, "\r\x00") || slices.ContainsFunc(strings.Split(text, "\n"), tooLong) {
		return mail.EncodingQP
	}
	return mail.NoEncoding
}

// maxLine is the maximum length of a line in bytes (RFC 5322, section 2.1.1).
const maxLine = 998

// parseAddress parses an address of ours, with or without a name. It writes its domain in
// ASCII.
func parseAddress(option, text string) (*netmail.Address, error) {
	address, err := netmail.ParseAddress(text)
	if err == nil {
		address.Address, err = typed.ASCIIDomain(typed.Email(address.Address))
	}
	if err != nil {
		return nil, fmt.Errorf("mail smtp: %s: write an address that mail can be sent to, like help@example.com", option)
	}
	if err := guest.CheckNoPlaceholder(text, "write the address itself"); err != nil {
		return nil, fmt.Errorf("mail smtp: %s: %w", option, err)
	}
	return address, nil
}

func isASCII(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r > unicode.MaxASCII })
}

// helo returns the name for EHLO: the host's or, if that is not a full name, as in
// containers, the address of our end (RFC 5321, section 4.1.4).
func helo(host string, local net.Addr) string {
	end, err := netip.ParseAddrPort(local.String())
	switch addr := end.Addr().Unmap().WithZone(""); {
	case err != nil || strings.Contains(host, "."):
		return cmp.Or(host, "localhost")
	case addr.Is4():
		return "[" + addr.String() + "]"
	default:
		return "[IPv6:" + addr.String() + "]"
	}
}

// deliver passes the mail to the server, with its content. It returns nil once the server
// has accepted the mail, whatever happens afterwards.
func (s *SMTP) deliver(ctx context.Context, message *mail.Msg, content message.Message) error {
	raw, err := new(net.Dialer).DialContext(ctx, "tcp", s.Address)
	if err != nil {
		return err
	}
	conn := &smtpConn{Conn: raw, left: maxSMTPAnswers}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()

	to, err := message.GetRecipients()
	if err != nil {
		return err
	}
	addresses := s.from.Address + strings.Join(to, "")
	if s.replyTo != nil {
		addresses += s.replyTo.Address // a header that is not ASCII needs SMTPUTF8, too (RFC 6532)
	}
	host, _ := os.Hostname()
	name := helo(host, raw.LocalAddr())
	client, err := s.client(conn, name, isASCII(addresses))
	if err != nil {
		return err
	}
	session, err := client.DialToSMTPClientWithContext(ctx)
	if err != nil && ctx.Err() != nil && conn.left == maxSMTPAnswers {
		return errNoGreeting
	}
	if _, refused := errors.AsType[*textproto.Error](err); refused && strings.Contains(err.Error(), "EHLO/HELO exchange failed") {
		return causes.Explain(err, "it refused EHLO with the name "+name+": if that is not a full name, give this machine or container one, such as mail.example.com; otherwise try again later, or look at its log")
	}
	if err != nil {
		return err
	}
	eightBit, _ := session.Extension("8BITMIME")
	message.SetBodyString(mail.TypeTextPlain, content.Text, mail.WithPartEncoding(encoding(content.Text, eightBit)))
	if content.HTML != "" {
		message.AddAlternativeString(mail.TypeTextHTML, content.HTML, mail.WithPartEncoding(encoding(content.HTML, eightBit)))
	}
	err = client.SendWithSMTPClient(session, message)
	if !message.IsDelivered() {
		return cmp.Or(err, errors.New("it did not take the mail"))
	}
	raw.SetDeadline(time.Now().Add(quitTimeout))
	session.Quit() // a courtesy to the server
	return nil
}

// client creates a go-mail client that uses conn, and name for EHLO. For implicit TLS we do the
// handshake, since go-mail does none on a connection that it is given. If the addresses
// are ASCII, the client does not ask for SMTPUTF8: a relay would refuse the mail if the
// next server lacks it.
func (s *SMTP) client(conn net.Conn, name string, ascii bool) (*mail.Client, error) {
	config := &tls.Config{ServerName: s.host, RootCAs: s.roots, MinVersion: tls.VersionTLS12}
	policy := mail.TLSMandatory
	if s.TLS != tlsStartTLS {
		policy = mail.NoTLS
	}
	if s.TLS == tlsImplicit {
		conn = tls.Client(conn, config)
	}
	options := []mail.Option{
		mail.WithHELO(name),
		mail.WithPort(s.port),
		mail.WithTLSPolicy(policy),
		mail.WithTLSConfig(config),
		mail.WithTimeout(time.Duration(s.Timeout)),
		mail.WithoutNoop(),
		mail.WithoutRset(),
		mail.WithDialContextFunc(func(context.Context, string, string) (net.Conn, error) { return conn, nil }),
	}
	if ascii {
		options = append(options, mail.WithoutSMTPUTF8())
	}
	if s.Username != "" {
		options = append(options, mail.WithSMTPAuthCustom(&smtpLogin{smtp: s}))
	}
	return mail.NewClient(s.host, options...)
}

// An smtpLogin is a login by the best mechanism that the server offers.
type smtpLogin struct {
	smtp.Auth
	smtp *SMTP
}

// Start implements smtp.Auth.
func (l *smtpLogin) Start(server *smtp.ServerInfo) (string, []byte, error) {
	s, plaintext := l.smtp, l.smtp.TLS == tlsOff
	offers := func(mechanism string) bool {
		return slices.ContainsFunc(server.Auth, func(offered string) bool { return strings.EqualFold(offered, mechanism) })
	}
	switch {
	case len(server.Auth) == 0:
		return "", nil, errNoSMTPAuth
	case offers("SCRAM-SHA-256"):
		l.Auth = smtp.ScramSHA256Auth(s.Username, s.Password)
	case offers("PLAIN"):
		l.Auth = smtp.PlainAuth("", s.Username, s.Password, s.host, plaintext)
	case offers("LOGIN"):
		l.Auth = smtp.LoginAuth(s.Username, s.Password, s.host, plaintext)
	default:
		return "", nil, mail.ErrNoSupportedAuthDiscovered
	}
	return l.Auth.Start(server)
}

// Next implements smtp.Auth. It bounds the work that a SCRAM server demands (RFC 5802, section
// 5.1), because no timeout ends it.
func (l *smtpLogin) Next(challenge []byte, more bool) ([]byte, error) {
	if _, demanded, scram := strings.Cut(string(challenge), ",i="); scram && more {
		demanded, _, _ = strings.Cut(demanded, ",") // extensions
		if n, err := strconv.Atoi(demanded); err != nil || n > maxSCRAM {
			return nil, errors.New("it demands too much work for a login")
		}
	}
	return l.Auth.Next(challenge, more)
}

var errNoSMTPAuth = errors.New("it has no SMTP AUTH")

// smtpCause describes an error, whose text is what, without the server's text, which may
// quote the mail.
func smtpCause(err error, what string, secrets ...string) string {
	if refused, ok := errors.AsType[*mail.SendError](err); ok {
		if refused.ErrorCode() == 0 {
			return fmt.Sprintf("%v failed: the connection broke", refused.Reason)
		}
		return strings.TrimSpace(fmt.Sprintf("%v failed: %d %s", refused.Reason, refused.ErrorCode(), refused.EnhancedStatusCode()))
	}
	if answer, ok := errors.AsType[*textproto.Error](err); ok {
		return strings.TrimSpace(fmt.Sprintf("it answered %d %s", answer.Code, enhancedCode.FindString(answer.Msg)))
	}
	if errors.Is(err, mail.ErrNoSupportedAuthDiscovered) {
		return "it takes no passwords: none of the logins in its answer AUTH has one"
	}
	if _, ok := errors.AsType[textproto.ProtocolError](err); ok {
		return "its answer is not SMTP"
	}
	return guest.Scrub(what, secrets...)
}

// enhancedCode matches the status code (RFC 3463) at the beginning of an answer.
var enhancedCode = regexp.MustCompile(`^[245]\.\d{1,3}\.\d{1,3}\b`)

// smtpConn is a connection whose deadline covers the whole mail: go-mail would set a
// new deadline for every step. It also limits how much the server may send.
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
		return 0, guest.ErrTooLarge
	}
	n, err := c.Conn.Read(b[:min(len(b), c.left)])
	c.left -= n
	return n, err
}

// Interface guards
var (
	_ message.Sender        = (*SMTP)(nil)
	_ guest.Remote          = (*SMTP)(nil)
	_ guest.Weak            = (*SMTP)(nil)
	_ caddy.Provisioner     = (*SMTP)(nil)
	_ caddy.Validator       = (*SMTP)(nil)
	_ caddyfile.Unmarshaler = (*SMTP)(nil)
)
