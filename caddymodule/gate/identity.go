package gate

import (
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2"

	"github.com/mnemogate/mnemogate/flows/record"
)

// isExtendedWebSocket reports whether r opens a WebSocket over HTTP/2 or HTTP/3 (RFC
// 8441, RFC 9220). The reverse proxy turns such a request into a GET. An HTTP/1
// request cannot look like one, since a header name cannot contain a colon.
func isExtendedWebSocket(r *http.Request) bool {
	return r.ProtoMajor == 2 && r.Header.Get(":protocol") == "websocket" || r.ProtoMajor == 3 && r.Proto == "websocket"
}

// rewriteHeaders make some applications use another path than the one that the gate
// checked.
var rewriteHeaders = []string{"X-Original-Url", "X-Original-Uri", "X-Rewrite-Url"}

// guardedHeaders never reach the application as a client sent them. The same applies
// to the configured names of the identity headers. The default names are always
// guarded, since an application may still read one that is no longer configured.
var guardedHeaders = func() []string {
	guarded := append([]string{defaultHeader, defaultCompanyHeader, defaultAssertionHeader}, rewriteHeaders...)
	for _, profile := range profileHeaders {
		guarded = append(guarded, profile.name)
	}
	return guarded
}()

func (h *Handler) isGuarded(name string) bool {
	return sameName(name, h.Header) || sameName(name, h.CompanyHeader) || isAmong(guardedHeaders, name) ||
		h.Assertion != nil && sameName(name, h.Assertion.Header)
}

// strip removes every spelling of the guarded headers that some application accepts,
// also from trailers. It also removes what would make a proxy after this one drop or
// reinterpret the identity headers. It reports whether a spelling was unusual.
func (h *Handler) strip(r *http.Request) (unusual bool) {
	for name := range r.Header {
		if h.isGuarded(name) {
			unusual = unusual || !headerName.MatchString(name)
			delete(r.Header, name)
		}
	}
	if r.Trailer != nil {
		h.stripTrailer(r.Trailer)
		r.Body = &trailerFilter{ReadCloser: r.Body, strip: h.stripTrailer, trailer: r.Trailer}
	}
	if values, ok := r.Header["Upgrade"]; ok && !(len(values) == 1 && strings.EqualFold(values[0], "websocket")) {
		delete(r.Header, "Upgrade")
	}
	if values, ok := r.Header["Connection"]; ok {
		keepConnection(r.Header, values)
	}
	return unusual
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
func (h *Handler) stripTrailer(trailer http.Header) {
	for name := range trailer {
		if h.isGuarded(name) || isForwarded(name) || isAmong(otherHeaders, name) {
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
	strip   func(http.Header)
	trailer http.Header
}

func (f *trailerFilter) Read(p []byte) (int, error) {
	n, err := f.ReadCloser.Read(p)
	if err == io.EOF {
		f.strip(f.trailer)
	}
	return n, err
}

// identify tells the application who the user is. For a request without a session it
// only removes the credentials.
func (h *Handler) identify(r *http.Request, s *stream) {
	nobodys := s.session.State == record.None
	if !h.ForwardAuthorization || nobodys {
		delete(r.Header, "Authorization")
	}
	delete(r.Header, apiKeyHeader)
	if h.Cookie != "" {
		h.dropCookies(r)
	}
	if !nobodys {
		h.setIdentity(r.Header, r, &s.session, &s.identity)
	}
}

// setIdentity sets the identity headers, of the request for the application or of the
// answer to another proxy. told are their mnemocode, company and assertion. It also tells
// Caddy's own directives who the user is.
func (h *Handler) setIdentity(header http.Header, r *http.Request, session *record.Session, told *[3]string) {
	header[h.Header] = told[:1:1]
	header[h.CompanyHeader] = told[1:2:2]
	if h.signer != nil {
		header[h.Assertion.Header] = told[2:3:3]
	}
	if len(h.profile) > 0 {
		h.tellProfile(header, session)
	}
	if repl, ok := r.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer); ok {
		repl.Set("http.auth.user.id", session.Mnemocode)
		repl.Set("http.auth.user.company", h.app.Companies[session.Company].Placeholder())
	}
}
