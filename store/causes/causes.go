// Package causes tells operators why a server can't be used, and what to do about it.
package causes

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"io/fs"
	"net"
	"net/http"
	"strconv"
	"strings"
	"syscall"
	"unicode"
	"unicode/utf8"
)

// A Cause is why a connection failed.
type Cause int

// The causes that servers of all kinds have in common.
const (
	Other Cause = iota
	NoName
	Refused
	NoSocket
	Forbidden
	Authority
	WrongName
	Expired
	NoTLS
	OldTLS
	BadHandshake
	Closed
	Silent
)

// Steps says what to do, by cause.
type Steps map[Cause]string

var steps = Steps{
	NoName:       "check that the name is right, and that names are resolved on this machine",
	Refused:      "nothing listens there: check that the address and port are right, and that it runs",
	NoSocket:     "there is no such socket or file: check its path, and that the server runs",
	Forbidden:    "the user that Caddy runs as may not use it: give that user the right, as by the group of its file",
	Authority:    "this machine does not trust the authority of its certificate: let it trust that authority, or get a certificate from another",
	WrongName:    "its certificate is for another name: write a name that is in the certificate, or renew it with this one",
	Expired:      "its certificate has expired or is not valid yet: renew it, and check the clocks of both machines",
	NoTLS:        "it answers without TLS: check the port, or turn TLS on there",
	OldTLS:       "it has only TLS 1.1 or older, which is not safe: update it",
	BadHandshake: "it refused the TLS handshake: its log says why; it may ask for a client certificate",
	Closed:       "it closed the connection: check the port, and whether it expects TLS; its log may say why",
	Silent:       "check that the address is right, that it runs, and that no firewall is between",
}

// Of returns the cause of an error.
func Of(err error) Cause {
	text := ""
	if err != nil {
		text = err.Error()
	}
	timeout, ok := errors.AsType[net.Error](err)
	switch {
	case is[*net.DNSError](err):
		return NoName
	case errors.Is(err, syscall.ECONNREFUSED):
		return Refused
	case errors.Is(err, fs.ErrNotExist):
		return NoSocket
	case errors.Is(err, fs.ErrPermission):
		return Forbidden
	case is[x509.UnknownAuthorityError](err):
		return Authority
	case is[x509.HostnameError](err):
		return WrongName
	case is[x509.CertificateInvalidError](err):
		return Expired
	case is[tls.RecordHeaderError](err), errors.Is(err, http.ErrSchemeMismatch), strings.Contains(text, "refused TLS"):
		return NoTLS
	case strings.Contains(text, "tls: ") && strings.Contains(text, "protocol version"):
		return OldTLS
	case strings.Contains(text, "remote error: tls: "):
		return BadHandshake
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return Closed
	case errors.Is(err, context.DeadlineExceeded), ok && timeout.Timeout():
		return Silent
	}
	return Other
}

func is[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

// Step returns what to do about err. s overrides what holds for all servers.
func (s Steps) Step(err error) string {
	cause := Of(err)
	if own, ok := s[cause]; ok {
		return own
	}
	return steps[cause]
}

// An explained error also says what to do.
type explained struct {
	error
	step string
}

// Error implements error. A server may have sent anything, so bytes that a terminal can't
// show are quoted.
func (e *explained) Error() string { return Printable(e.error.Error()) + "; " + e.step }

func (e *explained) Unwrap() error { return e.error }

// Explain adds a step to the text of err, unless it is empty or err has one.
func Explain(err error, step string) error {
	if err == nil || step == "" || is[*explained](err) {
		return err
	}
	return &explained{err, step}
}

// Split returns the text of err without its step, and the step.
func Split(err error) (what, step string) {
	if e, ok := errors.AsType[*explained](err); ok {
		return strings.Replace(Printable(err.Error()), "; "+e.step, "", 1), e.step
	}
	return Printable(err.Error()), ""
}

// Printable quotes the bytes of a text if a terminal can't show some of them.
func Printable(text string) string {
	if utf8.ValidString(text) && !strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return text
	}
	quoted := strconv.Quote(text)
	return strings.ReplaceAll(quoted[1:len(quoted)-1], `\"`, `"`)
}
