package guest

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"golang.org/x/net/idna"

	"github.com/mnemogate/mnemogate/store/causes"
)

// Outbound carries the requests of all plugins. It outlives config reloads, so that
// its connections stay open.
var Outbound = tracedTransport{newTransport()}

// dialer divides its timeout among the addresses of a name, and Go does not shorten it to that of
// the request. So it is short: if one of two addresses is dead, requests have time for the other.
// It includes the lookup of the name, which takes 5 s if the first nameserver is dead.
var dialer = &net.Dialer{Timeout: 7 * time.Second}

// Reach connects to the server of a URL as Outbound does and, for https, shakes hands. It sends
// no request. If the environment has a proxy for the URL, Reach connects to that alone.
func Reach(ctx context.Context, to *url.URL) error {
	conn, err := dialer.DialContext(ctx, "tcp", HostPort(to))
	if err != nil {
		return Cause(err)
	}
	defer conn.Close()
	if proxy, _ := http.ProxyFromEnvironment(&http.Request{URL: to}); proxy != nil || to.Scheme != "https" {
		return nil
	}
	secure := tls.Client(conn, &tls.Config{ServerName: to.Hostname(), NextProtos: []string{"h2", "http/1.1"}})
	defer secure.Close()
	if err := secure.HandshakeContext(ctx); err != nil {
		return Cause(err)
	}
	return nil
}

// CheckReach is a Check for modules of a server that can only be reached.
func CheckReach(to *url.URL) (string, func(context.Context) error) {
	return HostPort(to), func(ctx context.Context) error { return Reach(ctx, to) }
}

func newTransport() *http.Transport {
	t := &http.Transport{ // not a copy of the default one, which other modules may have replaced or set up
		Proxy:                  http.ProxyFromEnvironment,
		ForceAttemptHTTP2:      true,
		MaxIdleConns:           100,
		MaxIdleConnsPerHost:    16, // for many logins at once
		IdleConnTimeout:        90 * time.Second,
		TLSHandshakeTimeout:    10 * time.Second,
		ExpectContinueTimeout:  time.Second,
		MaxResponseHeaderBytes: 64 << 10,
		DialContext:            dialer.DialContext,
		// Otherwise a connection that a firewall has forgotten, for example, stays in use for minutes.
		HTTP2: &http.HTTP2Config{SendPingTimeout: 15 * time.Second, PingTimeout: 5 * time.Second},
	}
	t.OnProxyConnectResponse = func(_ context.Context, _ *url.URL, _ *http.Request, answer *http.Response) error {
		if answer.StatusCode == http.StatusOK {
			return nil
		}
		err := fmt.Errorf("the proxy answered %d", answer.StatusCode)
		return &net.OpError{Op: proxyConnect, Net: "tcp", Err: causes.Explain(err, "check the proxy that HTTPS_PROXY names, with its user and password: its log may say why")}
	}
	return t
}

// proxyConnect is the Op of Go's errors about the proxy of the environment.
const proxyConnect = "proxyconnect"

var (
	// ErrTooLarge means that an answer has more bytes than Transport.MaxAnswer.
	ErrTooLarge = errors.New("its answer is too large")
	errInsecure = errors.New("its URL is not https")
)

// An outage is an answer by which a server says that it can't serve the request now.
type outage struct {
	status int
	wait   time.Duration
}

func (o *outage) Error() string { return fmt.Sprintf("it answered %d", o.status) }

// RetryAfter implements wire.Waiter.
func (o *outage) RetryAfter() time.Duration { return o.wait }

// RetryAfter returns how long a server asks to wait (RFC 9110, section 10.2.3), or zero if
// it does not say.
func RetryAfter(h http.Header) time.Duration {
	given := h.Get("Retry-After")
	if seconds, err := strconv.ParseUint(given, 10, 31); err == nil {
		return time.Duration(seconds) * time.Second
	}
	if at, err := http.ParseTime(given); err == nil {
		return max(0, time.Until(at))
	}
	return 0
}

// Client returns a client that follows no redirects. A timeout of 0 sets no limit. Pass the
// client's errors through Cause, because they contain the URL.
func Client(t http.RoundTripper, timeout caddy.Duration) *http.Client {
	return &http.Client{
		Transport:     t,
		Timeout:       time.Duration(timeout),
		CheckRedirect: NoRedirects,
	}
}

// NoRedirects makes a client follow no redirects, which could take a secret to another
// server, or a DELETE to another path.
func NoRedirects(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// AllowRetry lets Go's transport repeat a request, as it does with a GET, if the idle
// connection that it chose turns out to be closed. The header itself is not sent:
// see http.Transport.
func AllowRetry(h http.Header) { h["Idempotency-Key"] = []string{} }

// Transport reads an answer completely before it returns it. A failure on the way is
// then an error of the request and not of the code that parses the answer. It also
// returns an error for a 429 or 5xx.
type Transport struct {
	MaxAnswer int64 // in bytes; 0 allows no body
	HTTPSOnly bool  // except on this machine
	// Unrepeated prevents Go's transport from repeating a request that the server
	// may already have received, such as one with the code of a login, which works
	// once.
	Unrepeated bool
}

// RoundTrip implements http.RoundTripper.
func (w Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if w.HTTPSOnly && !secureURL(r.URL) {
		if r.Body != nil {
			r.Body.Close()
		}
		return nil, errInsecure
	}
	r = r.Clone(r.Context())
	if !w.Unrepeated {
		AllowRetry(r.Header)
	}
	resp, err := Outbound.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode >= 500 || resp.StatusCode == http.StatusTooManyRequests {
		return nil, &outage{resp.StatusCode, RetryAfter(resp.Header)}
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, w.MaxAnswer+1))
	if err != nil {
		return nil, err
	}
	if int64(len(body)) > w.MaxAnswer {
		return nil, ErrTooLarge
	}
	resp.Body = io.NopCloser(bytes.NewReader(body))
	return resp, nil
}

// steps are for servers that are called over HTTP.
var steps = causes.Steps{
	causes.Authority: "this machine does not trust the authority of its certificate: install that authority's certificate here (update-ca-certificates, or name its file in SSL_CERT_FILE), and restart Caddy",
	causes.NoTLS:     "it answers without TLS: check the port, or write http if it is on this machine",
	causes.Closed:    "check the port, and whether it expects TLS; its log may say why", // the rest is in describe
	causes.Other:     "check that it speaks HTTP on this port, and that the URL begins with https if it expects TLS",
}

// A described error has words of its own for another error, whose text may contain a secret.
type described struct {
	text  string
	cause error
}

func (d *described) Error() string { return d.text }

func (d *described) Unwrap() error { return d.cause }

// Cause describes an error in words that contain no secret, and says what to do about it.
// The errors of package http contain the URL and may quote what the server sent.
func Cause(err error) error {
	var o *outage
	switch {
	case errors.As(err, &o):
		return causes.Explain(o, StatusStep(o.status))
	case errors.Is(err, ErrTooLarge):
		return ErrTooLarge
	case errors.Is(err, errInsecure):
		return errInsecure
	case errors.Is(err, context.Canceled):
		return context.Canceled
	}
	return causes.Explain(describe(err), steps.Step(err))
}

func describe(err error) error {
	switch causes.Of(err) {
	case causes.Silent:
		return &described{"no answer in time", err}
	case causes.Closed:
		return &described{"it closed the connection", err}
	case causes.NoTLS:
		return &described{"its answer is not TLS", err}
	case causes.OldTLS:
		return &described{"it has no version of TLS that is safe", err}
	}
	if op, ok := errors.AsType[*net.OpError](err); ok {
		return op
	}
	if cert, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return cert
	}
	return &described{"its answer is not valid HTTP", err}
}

// StatusStep says what to do about the status with which a server refused a request.
func StatusStep(status int) string {
	switch {
	case status >= 300 && status <= 399:
		return "no redirect is followed: configure the URL that it leads to"
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		return "check that it has the same secret, and check any key in the URL or in a header"
	case status == http.StatusNotFound || status == http.StatusMethodNotAllowed:
		return "check the path of the URL"
	case status == http.StatusTooManyRequests:
		return "it says that there were too many: try again later, or ask its operator for a higher limit"
	case status >= 500:
		return "it is at fault: look at its log, or ask its operator"
	default:
		return "it refused this message: look at its log, and check that it accepts the type and expects https or http as configured"
	}
}

// HTTPURL parses the URL of a server. The error does not repeat the URL, since it
// may contain credentials.
func HTTPURL(s string) (*url.URL, error) {
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" {
		return nil, errors.New("write a URL like https://host/path")
	}
	return u, nil
}

// CheckURL returns the error of HTTPURL. It refuses placeholders, which are not replaced.
func CheckURL(s string) error {
	_, err := HTTPURL(s)
	return cmp.Or(err, CheckNoPlaceholder(s, "write the URL itself"))
}

// RemoteURL parses the URL of a server that receives codes or secrets. It accepts
// plain http only for this machine, unless insecure is true.
func RemoteURL(s string, insecure bool) (*url.URL, error) {
	u, err := HTTPURL(s)
	if err == nil && !insecure && !secureURL(u) {
		return nil, errors.New("anyone on the network path can read http; write https or, if you must, the word insecure after the address")
	}
	return u, err
}

// LiteralURL is RemoteURL for an address whose placeholders are not replaced.
func LiteralURL(s string, insecure bool) (*url.URL, error) {
	u, err := RemoteURL(s, insecure)
	return u, cmp.Or(err, CheckNoPlaceholder(s, "write the URL itself"))
}

// HTTPWeakness reports addresses that use plain http because insecure allows it.
func HTTPWeakness(insecure bool, addresses ...string) []Weakness {
	for _, address := range addresses {
		if u, err := url.Parse(address); insecure && err == nil && !secureURL(u) {
			return []Weakness{{
				Message: "anyone on the network path to " + u.Host + " can read what is sent there over http",
				Advice:  "write https, and remove the word insecure",
			}}
		}
	}
	return nil
}

// uri matches the characters of RFC 3986.
var uri = regexp.MustCompile(`^[!#-;=?-Z\[\]_a-z~]+$`)

// CheckURI refuses an address that ends early in a mail, or that clients and providers
// spell in another way.
func CheckURI(s string) error {
	if !uri.MatchString(s) {
		return errors.New("it has a space or another character that no URL may have; percent-encode it, and write a domain in ASCII (xn--…)")
	}
	return nil
}

// HTTPSURL parses the URL of a page that receives secrets.
func HTTPSURL(s string) (*url.URL, error) {
	u, err := HTTPURL(s)
	if err == nil {
		err = CheckURI(s)
	}
	if err != nil {
		return nil, err
	}
	if !secureURL(u) || u.User != nil {
		return nil, errors.New("write an https URL without credentials; http is allowed only for this machine")
	}
	return u, nil
}

func secureURL(u *url.URL) bool {
	return u.Scheme == "https" || u.Scheme == "http" && Loopback(u.Hostname())
}

// Loopback reports whether host is this machine.
func Loopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}

// HostPort returns the host:port of a URL, or of the proxy that the environment sets
// for it.
func HostPort(u *url.URL) string {
	if proxy, err := http.ProxyFromEnvironment(&http.Request{URL: u}); err == nil && proxy != nil {
		u = proxy
	}
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443", "socks5": "1080", "socks5h": "1080"}[u.Scheme]
	}
	return net.JoinHostPort(u.Hostname(), port)
}

// EndpointOf is HostPort for a URL given as text. It returns "" if the URL is
// invalid.
func EndpointOf(s string) string {
	u, err := url.Parse(s)
	if err != nil {
		return ""
	}
	return HostPort(u)
}

// BrowserOrigin returns an origin as browsers write it: without the default port of its
// scheme, and with the domain in ASCII.
func BrowserOrigin(origin string) string {
	for prefix, port := range map[string]string{"https://": ":443", "http://": ":80"} {
		if strings.HasPrefix(origin, prefix) {
			origin = strings.TrimSuffix(origin, port)
		}
	}
	u, err := url.Parse(origin)
	if err != nil {
		return origin
	}
	ascii, err := idna.Lookup.ToASCII(u.Hostname())
	if err != nil { // no domain
		return origin
	}
	return strings.Replace(origin, u.Hostname(), ascii, 1)
}
