// Package causes tells operators why a server can't be used, and what to do about it.
package causes

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"io/fs"
	"net"
	"net/http"
	"slices"
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
	NoFiles
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

// NoSpace says what to do if a server can't write.
const NoSpace = "it answers and takes no writes: free or add space on its disk, and check that the disk does not fail (dmesg), and that the disk, the file and the server are not read-only; nobody can log in until then"

// causes says how each cause is recognized, the first that fits, and what to do in general.
var causes = []struct {
	cause Cause
	fits  func(error) bool
	step  string
}{
	{NoFiles, wraps(syscall.EMFILE, syscall.ENFILE), "too many files and connections are open: see who holds connections to Caddy, and raise LimitNOFILE or ulimit -n"},
	{NoName, is[*net.DNSError], "check that the name is right, and that names are resolved on this machine"},
	{Refused, wraps(syscall.ECONNREFUSED), "nothing listens there: check that the address and port are right, and that it runs"},
	{NoSocket, wraps(fs.ErrNotExist), "there is no such socket or file: check its path, and that the server runs"},
	{Forbidden, wraps(fs.ErrPermission), "the user that Caddy runs as may not use it: give that user the right, as by the group of its file"},
	{Authority, is[x509.UnknownAuthorityError], "this machine does not trust the authority of its certificate: let it trust that authority, or get a certificate from another"},
	{WrongName, is[x509.HostnameError], "its certificate is for another name: write a name that is in the certificate, or renew it with this one"},
	{Expired, is[x509.CertificateInvalidError], "its certificate has expired or is not valid yet: renew it, and check the clocks of both machines"},
	{NoTLS, noTLS, "it answers without TLS: check the port, or turn TLS on there"},
	{OldTLS, says("tls: ", "protocol version"), "it has only TLS 1.1 or older, which is not safe: update it"},
	{BadHandshake, says("remote error: tls: "), "it refused the TLS handshake: its log says why; it may ask for a client certificate"},
	{Closed, wraps(io.EOF, io.ErrUnexpectedEOF, syscall.ECONNRESET, syscall.EPIPE), "it closed the connection: check the port, and whether it expects TLS; its log may say why"},
	{Silent, timedOut, "check that the address is right, that it runs, and that no firewall is between"},
}

func is[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

func noTLS(err error) bool {
	return is[tls.RecordHeaderError](err) || errors.Is(err, http.ErrSchemeMismatch) || says("server refused TLS")(err)
}

func timedOut(err error) bool {
	late, ok := errors.AsType[net.Error](err)
	return ok && late.Timeout() || errors.Is(err, context.DeadlineExceeded)
}

func wraps(these ...error) func(error) bool {
	return func(err error) bool {
		return slices.ContainsFunc(these, func(e error) bool { return errors.Is(err, e) })
	}
}

func says(parts ...string) func(error) bool {
	return func(err error) bool {
		return !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(err.Error(), part) })
	}
}

// Of returns the cause of an error.
func Of(err error) Cause {
	cause, _ := find(err)
	return cause
}

func find(err error) (Cause, string) {
	for _, c := range causes {
		if err != nil && c.fits(err) {
			return c.cause, c.step
		}
	}
	return Other, ""
}

// Step returns what to do about err. s overrides what holds for all servers.
func (s Steps) Step(err error) string {
	cause, step := find(err)
	return cmp.Or(s[cause], step)
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
	text = strings.ReplaceAll(text, "\n\t", " ") // between the hosts that PostgreSQL's driver has tried
	if utf8.ValidString(text) && !strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return text
	}
	quoted := strconv.Quote(text)
	return strings.ReplaceAll(quoted[1:len(quoted)-1], `\"`, `"`)
}
