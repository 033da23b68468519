package caddymodule

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
	"time"

	"github.com/caddyserver/caddy/v2"
)

// outbound carries the requests of all guest modules, and outlives a config
// reload, so that no connection is made anew for one.
var outbound = newTransport()

func newTransport() *http.Transport {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.MaxIdleConnsPerHost = 16 // of many logins at once
	t.MaxResponseHeaderBytes = 64 << 10
	return t
}

var (
	errNoAnswer = errors.New("no answer in time")
	errTooLarge = errors.New("its answer is too large")
	errInsecure = errors.New("its URL is not https")
)

// An outage is an answer that says that the server can't answer now.
type outage struct{ status int }

func (o *outage) Error() string { return fmt.Sprintf("it answered %d", o.status) }

// outboundClient returns a client that follows no redirect.
func outboundClient(t http.RoundTripper, timeout caddy.Duration) *http.Client {
	return &http.Client{
		Transport:     t,
		Timeout:       time.Duration(timeout),
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// sendOnce lets Go's transport send a request again when the idle connection
// it chose turns out to be closed, as it does with a GET. The header is not
// sent: see http.Transport.
func sendOnce(h http.Header) { h["Idempotency-Key"] = []string{} }

// whole is a transport that reads an answer to its end before it hands it on:
// whatever goes wrong on the way is then an error of the request, and not one
// of whoever parses the answer. A 429 or 5xx is an error, too.
type whole struct {
	limit     int64
	httpsOnly bool // but for this machine
}

// RoundTrip implements http.RoundTripper.
func (w whole) RoundTrip(r *http.Request) (*http.Response, error) {
	if w.httpsOnly && !secureURL(r.URL) {
		if r.Body != nil {
			r.Body.Close()
		}
		return nil, errInsecure
	}
	r = r.Clone(r.Context())
	sendOnce(r.Header)
	resp, err := outbound.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, w.limit+1))
	switch {
	case err != nil:
		return nil, err
	case int64(len(body)) > w.limit:
		return nil, errTooLarge
	case resp.StatusCode >= 500 || resp.StatusCode == http.StatusTooManyRequests:
		return nil, &outage{resp.StatusCode}
	}
	resp.Body = io.NopCloser(bytes.NewReader(body))
	return resp, nil
}

// netCause returns what is wrong in words that are known to hold no secret:
// an error of package http tells the URL, and may quote what the server sent.
func netCause(err error) error {
	if ne, ok := errors.AsType[net.Error](err); ok && ne.Timeout() || errors.Is(err, context.DeadlineExceeded) {
		return errNoAnswer
	}
	for _, plain := range []error{context.Canceled, errTooLarge, errInsecure} {
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

// httpURL parses the URL of something to be asked. The error does not repeat
// it: it may hold credentials.
func httpURL(s string) (*url.URL, error) {
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" {
		return nil, errors.New("write a URL like https://host/path")
	}
	return u, nil
}

// httpsURL parses a URL that secrets go to.
func httpsURL(s string) (*url.URL, error) {
	u, err := httpURL(s)
	if err != nil {
		return nil, err
	}
	if !secureURL(u) || u.User != nil {
		return nil, errors.New("write an https URL without credentials; http is taken for this machine only")
	}
	return u, nil
}

func secureURL(u *url.URL) bool {
	return u.Scheme == "https" || u.Scheme == "http" && loopback(u.Hostname())
}

// loopback reports whether host is this machine.
func loopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}
