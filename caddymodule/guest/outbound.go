package guest

import (
	"bytes"
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
	"syscall"
	"time"

	"github.com/caddyserver/caddy/v2"
	"golang.org/x/net/idna"
)

// Outbound carries the requests of all plugins. It outlives config reloads, so that
// its connections stay open.
var Outbound = tracedTransport{newTransport()}

func newTransport() *http.Transport {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.MaxIdleConnsPerHost = 16 // for many logins at once
	t.MaxResponseHeaderBytes = 64 << 10
	return t
}

var (
	errNoAnswer = errors.New("no answer in time")
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

// Client returns a client that follows no redirects.
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
	MaxAnswer int64
	HTTPSOnly bool // except on this machine
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

// Cause describes an error in words that contain no secret. The errors of package
// http contain the URL and may quote what the server sent.
func Cause(err error) error {
	if ne, ok := errors.AsType[net.Error](err); ok && ne.Timeout() || errors.Is(err, context.DeadlineExceeded) {
		return errNoAnswer
	}
	for _, plain := range []error{context.Canceled, ErrTooLarge, errInsecure} {
		if errors.Is(err, plain) {
			return plain
		}
	}
	if o, ok := errors.AsType[*outage](err); ok {
		return o
	}
	if op, ok := errors.AsType[*net.OpError](err); ok {
		return op
	}
	if cert, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return cert
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("it closed the connection")
	}
	return errors.New("its answer is not valid HTTP")
}

// ReachAdvice says what to do if a server could not be reached or did not answer.
func ReachAdvice(err error) string {
	if _, ok := errors.AsType[*net.DNSError](err); ok {
		return "check that the name is right, and that names are resolved on this machine"
	}
	if errors.Is(err, syscall.ECONNREFUSED) {
		return "nothing listens there: check that the address and port are right, and that it runs"
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return "its certificate must be valid for this name, and from an authority that this machine trusts"
	}
	return "check that the address is right, that it runs, and that no firewall is between"
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

// CheckURL returns the error of HTTPURL.
func CheckURL(s string) error {
	_, err := HTTPURL(s)
	return err
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
