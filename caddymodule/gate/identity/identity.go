// Package identity tells the application who the user of a request is, in headers that
// nobody else can set. File profile.go has the headers of the option forward, and
// assertion.go has the signed statement.
package identity

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/mnemogate/mnemogate/caddymodule/app"
	"github.com/mnemogate/mnemogate/caddymodule/guest"
	"github.com/mnemogate/mnemogate/flows/assertion"
	"github.com/mnemogate/mnemogate/flows/record"
)

const (
	defaultHeader        = "X-Profile-Mnemocode"
	defaultCompanyHeader = "X-Company-Code"
)

// Headers are the options of the identity headers.
type Headers struct {
	// The header that tells the application the user's profile_mnemocode. Default:
	// `X-Profile-Mnemocode`.
	Header string `json:"header,omitempty"`

	// The header that tells the application the user's company. Default:
	// `X-Company-Code`.
	CompanyHeader string `json:"company_header,omitempty"`

	// What else to tell the application about the user and the session, in headers
	// whose names begin with `X-Profile-`. The handler always removes these headers
	// from a client's request, even if this option is not set. Default: none.
	//
	// Word | Header | Value
	// -----|--------|------
	// `role`, `email`, `phone` | `X-Profile-Role`, `X-Profile-Email`, `X-Profile-Phone` | The fields of the account, with their values at the time of the login. A change of one of them revokes the account's sessions. Bytes other than visible ASCII, and `%`, are percent-encoded. A field that the account lacks is not sent. Sessions that began before `email` or `phone` was set do not send it.
	// `token` | `X-Profile-Token` | The id of the issued token, as in the accounts API. A session does not send it. An issued token does not send the next two headers.
	// `session` | `X-Profile-Session` | The id of the session, as in the accounts API.
	// `auth_time` | `X-Profile-Auth-Time` | The time of the login, in Unix seconds.
	// `auth_methods` | `X-Profile-Auth-Methods` | How the user logged in: words separated by spaces, of `pwd`, `sms`, `otp` (an authenticator app), `backup`, `oauth` and `passkey`, and `mfa` if two factors were given. For an issued token it is `token`.
	Forward []string `json:"forward,omitempty"`

	// A signed statement about the user, sent to the application with each request
	// that has a user. It proves that the request came through mnemogate, for
	// applications that others can reach, too. Default: none.
	Assertion *Assertion `json:"assertion,omitempty"`
}

// A Sender sends the identity headers to the application.
type Sender struct {
	headers  *Headers // with defaults
	guarded  []string // what never reaches the application as a client sent it
	profile  []profileHeader
	whole    bool              // see Whole
	signer   *assertion.Signer // nil without Assertion
	imagined bool              // see Imagined
	// published returns the keys of a company that verify assertions.
	published func(ctx context.Context, company string) (*assertion.Keys, error)
}

// withDefaults returns a copy with the defaults.
func (h *Headers) withDefaults() *Headers {
	so := *h
	so.Header = http.CanonicalHeaderKey(cmp.Or(so.Header, defaultHeader))
	so.CompanyHeader = http.CanonicalHeaderKey(cmp.Or(so.CompanyHeader, defaultCompanyHeader))
	if so.Assertion != nil {
		so.Assertion = so.Assertion.withDefaults()
	}
	return &so
}

// IdentityHeaders implements bypass.Gate. It returns the names of the identity headers, and
// the default names, since an application may still read one that is no longer configured.
func (h *Headers) IdentityHeaders() []string {
	so := h.withDefaults()
	names := []string{so.Header, so.CompanyHeader}
	if so.Assertion != nil {
		names = append(names, so.Assertion.Header)
	}
	others := []string{defaultHeader, defaultCompanyHeader, defaultAssertionHeader, actorHeader}
	for _, p := range profileHeaders {
		others = append(others, p.name)
	}
	for _, name := range others {
		if !isAmong(names, name) {
			names = append(names, name)
		}
	}
	return names
}

var headerName = regexp.MustCompile(`^[A-Za-z0-9-]+$`)

// otherHeaders have another meaning, or the proxy sets or removes them.
var otherHeaders = []string{
	"Accept", "Authorization", "X-Api-Key", "Host", "Location", "Range", "Set-Cookie", "User-Agent", "Www-Authenticate",
	"Sec-Websocket-Protocol", "Content-Length", "Content-Type", "Content-Encoding", "Cookie", "Origin", "Expect",
	"Connection", "Close", "Upgrade", "Te", "Trailer", "Transfer-Encoding", "Keep-Alive",
	"Proxy-Connection", "Proxy-Authenticate", "Proxy-Authorization", "Alt-Svc", "Early-Data",
	"Via", "Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Method", "X-Forwarded-Proto", "X-Forwarded-Uri",
}

// methodHeaders make some applications use another method than that of the request.
var methodHeaders = []string{"X-Http-Method-Override", "X-Http-Method", "X-Method-Override"}

// rewriteHeaders make some applications use another path than the one that the gate
// checked.
var rewriteHeaders = []string{"X-Original-Url", "X-Original-Uri", "X-Rewrite-Url", "X-Script-Name", "Script-Name", "Path-Info"}

// Validate refuses options that cannot work, apart from Assertion. Its errors begin with
// the option.
func (h *Headers) Validate() error {
	h = h.withDefaults()
	if err := cmp.Or(checkName("header", h.Header), checkName("company_header", h.CompanyHeader)); err != nil {
		return err
	}
	if strings.EqualFold(h.Header, h.CompanyHeader) {
		return errors.New("company_header: it must differ from header")
	}
	return h.checkForward()
}

func checkName(option, name string) error {
	if !headerName.MatchString(name) {
		return fmt.Errorf("%s: %q cannot be the name of a header here; use letters, digits and dashes", option, name)
	}
	if isAmong(otherHeaders, name) || isAmong(methodHeaders, name) || isAmong(rewriteHeaders, name) || isAmong([]string{actorHeader}, name) {
		return fmt.Errorf("%s: %s has another meaning; choose another name", option, name)
	}
	return nil
}

// Provision makes the sessions of the app carry what the headers need, and reads the keys
// of the assertion. The source has the positions of the options.
func (h *Headers) Provision(a *app.App, source guest.Source) (*Sender, error) {
	s := &Sender{headers: h.withDefaults(), guarded: append(h.IdentityHeaders(), rewriteHeaders...)}
	for _, word := range h.Forward {
		p := profileHeaders[word]
		a.Forward(p.field)
		s.profile = append(s.profile, p)
		s.whole = s.whole || p.whole
	}
	return s, s.provisionAssertion(a, source)
}

// Whole reports whether Set and Assert need a session that was found with
// Requirement.Whole.
func (s *Sender) Whole() bool { return s.whole }

// Set sets the identity headers, of the request for the application or of the answer to
// another proxy.
func (s *Sender) Set(header http.Header, session *record.Session, assertion string) {
	header[s.headers.Header] = []string{session.Mnemocode}
	header[s.headers.CompanyHeader] = []string{session.Company}
	if s.signer != nil {
		header[s.headers.Assertion.Header] = []string{assertion}
	}
	if session.Issued != nil && session.Issued.Actor != "" {
		header[actorHeader] = []string{record.EscapeProfile(session.Issued.Actor)}
	}
	if len(s.profile) > 0 {
		s.setProfile(header, session)
	}
}

// Strip removes every spelling of the identity headers that some application accepts,
// also from trailers. It also removes what would make a proxy after this one drop or
// reinterpret the identity headers. It reports whether a spelling was unusual.
func (s *Sender) Strip(r *http.Request) (unusual bool) {
	for name := range r.Header {
		if isAmong(s.guarded, name) {
			unusual = unusual || !headerName.MatchString(name)
			delete(r.Header, name)
		}
	}
	if r.Trailer != nil {
		s.stripTrailer(r.Trailer)
		r.Body = &trailerFilter{ReadCloser: r.Body, sender: s, trailer: r.Trailer}
	}
	if values, ok := r.Header["Upgrade"]; ok && !(len(values) == 1 && strings.EqualFold(values[0], "websocket")) {
		delete(r.Header, "Upgrade")
	}
	if values, ok := r.Header["Connection"]; ok {
		keepConnection(r.Header, values)
	}
	return unusual
}

// OverridesMethod reports whether an application might use another method than that of the
// request.
func OverridesMethod(header http.Header) bool {
	for name := range header {
		if isAmong(methodHeaders, name) {
			return true
		}
	}
	return false
}

// keepConnection keeps close, keep-alive and upgrade in the Connection header. Any
// other name in it asks the next proxy to drop the header of that name.
func keepConnection(header http.Header, values []string) {
	var kept []string
	for _, value := range values {
		for option := range strings.SplitSeq(value, ",") {
			option = strings.TrimSpace(option)
			switch strings.ToLower(option) {
			case "upgrade":
				if _, ok := header["Upgrade"]; ok {
					kept = append(kept, option)
				}
			case "close", "keep-alive":
				kept = append(kept, option)
			}
		}
	}
	if len(kept) == 0 {
		delete(header, "Connection")
		return
	}
	header["Connection"] = []string{strings.Join(kept, ", ")}
}

// stripTrailer also removes fields that have a meaning only as headers. An upstream
// that merges trailers into the headers would otherwise let a client replace the
// values that the gate checked or that the proxy set.
func (s *Sender) stripTrailer(trailer http.Header) {
	for name := range trailer {
		if isAmong(s.guarded, name) || isForwarded(name) || isAmong(otherHeaders, name) || isAmong(methodHeaders, name) {
			delete(trailer, name)
		}
	}
}

func isForwarded(name string) bool {
	const prefix = "X-Forwarded-"
	return len(name) > len(prefix) && sameName(name[:len(prefix)], prefix)
}

func isAmong(names []string, name string) bool {
	return slices.ContainsFunc(names, func(other string) bool { return sameName(name, other) })
}

// sameName reports whether two header names are equal in lower case with every
// character other than letters and digits replaced by a dash. CGI and its
// descendants turn header names into variables this way, and some servers into
// headers.
func sameName(a, b string) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range len(a) {
		if dashed(a[i]) != dashed(b[i]) {
			return false
		}
	}
	return true
}

func dashed(c byte) byte {
	switch {
	case 'A' <= c && c <= 'Z':
		return c | 0x20
	case 'a' <= c && c <= 'z', '0' <= c && c <= '9':
		return c
	default:
		return '-'
	}
}

// A trailerFilter strips the trailers of a body when the body ends, before its
// reader sees the end.
type trailerFilter struct {
	io.ReadCloser
	sender  *Sender
	trailer http.Header
}

func (f *trailerFilter) Read(p []byte) (int, error) {
	n, err := f.ReadCloser.Read(p)
	if err == io.EOF {
		f.sender.stripTrailer(f.trailer)
	}
	return n, err
}
