package caddymodule

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/mnemogate/mnemogate/flows"
)

// guard lets a request pass to the application if its token is good.
func (h *Handler) guard(w http.ResponseWriter, r *http.Request, t target, next caddyhttp.Handler) error {
	h.strip(r)
	session, company, err := h.authorize(r, t)
	if err != nil {
		if r.ContentLength != 0 && r.ProtoMajor == 1 {
			w.Header().Set("Connection", "close") // or the server would read the body first
		}
		h.refuse(w, company, err)
		return nil
	}
	h.identify(r, session)
	return h.watched(w, r, session, next)
}

// authorize decides. It also returns the company that the path names, if it
// is one of ours.
func (h *Handler) authorize(r *http.Request, t target) (session flows.Session, company string, err error) {
	defer h.contain(&err)
	service, err := h.app.Service(r.Context())
	if err != nil {
		return session, "", &flows.Refusal{Err: flows.ErrUnavailable, Cause: err}
	}
	if service.Companies[t.company] != nil {
		company = t.company
	}
	switch {
	case r.Method == http.MethodTrace || r.Method == http.MethodConnect && !isExtendedWebSocket(r):
		return session, company, errMethodNotAllowed
	case t.kind == twoCompanies:
		return session, company, flows.ErrTokenInvalid
	}
	owner := company // whose token it must be
	if h.RequireAPIKey {
		if owner, err = keyOwner(service, company, r.Header[apiKeyHeader]); err != nil {
			return session, company, err
		}
	}
	session, err = service.Authorize(r.Context(), owner, r.Header["Authorization"])
	return session, company, err
}

// keyOwner returns the company whose API key was sent: the one that the path
// names or, where it names none, any.
func keyOwner(service *flows.Service, company string, keys []string) (string, error) {
	var owner *flows.Company
	var err error
	if company != "" {
		owner, err = service.Company(company, keys)
	} else {
		owner, err = service.CompanyByKey(keys)
	}
	if err != nil {
		return "", err
	}
	return owner.Code, nil
}

// errMethodNotAllowed is ErrMethod where any method but two will do.
var errMethodNotAllowed = &flows.Error{
	Code:    flows.ErrMethod.Code,
	Status:  http.StatusMethodNotAllowed,
	Message: "CONNECT and TRACE are not let through.",
}

// isExtendedWebSocket reports whether r opens a WebSocket over HTTP/2 or
// HTTP/3 (RFC 8441, RFC 9220), which the reverse proxy turns into a GET. No
// HTTP/1 request can look so: a name with a colon is none of a header.
func isExtendedWebSocket(r *http.Request) bool {
	return r.ProtoMajor == 2 && r.Header.Get(":protocol") == "websocket" || r.ProtoMajor == 3 && r.Proto == "websocket"
}

// strip removes what a client could pass for our own word: every spelling of
// the identity headers that some upstream reads as theirs, also as trailers,
// and what would make a proxy behind us drop or reinterpret them.
func (h *Handler) strip(r *http.Request) {
	h.stripNames(r.Header)
	if r.Trailer != nil {
		h.stripNames(r.Trailer)
		r.Body = &trailerFilter{ReadCloser: r.Body, strip: h.stripNames, trailer: r.Trailer}
	}
	if values, ok := r.Header["Upgrade"]; ok && !(len(values) == 1 && strings.EqualFold(values[0], "websocket")) {
		delete(r.Header, "Upgrade")
	}
	if values, ok := r.Header["Connection"]; ok {
		keepConnection(r.Header, values)
	}
}

// keepConnection leaves close, keep-alive and upgrade in the Connection header.
// Any other name in it asks the next proxy to drop that header.
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

func (h *Handler) stripNames(header http.Header) {
	for name := range header {
		if sameName(name, h.Header) || sameName(name, h.CompanyHeader) {
			delete(header, name)
		}
	}
}

// sameName reports whether two header names are equal once lower-cased and
// with a dash for each character that is no letter or digit: so CGI and its
// descendants make variables of them, and some servers headers.
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

// A trailerFilter strips the trailers that a body brings at its end, before
// whoever reads the body sees that it ended.
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

func isHopHeader(name string) bool {
	switch http.CanonicalHeaderKey(name) {
	case "Connection", "Upgrade", "Te", "Trailer", "Transfer-Encoding", "Keep-Alive",
		"Proxy-Connection", "Proxy-Authenticate", "Proxy-Authorization", "Host", "Content-Length":
		return true
	}
	return false
}

// identify tells the application, and Caddy's own directives, who the user is.
func (h *Handler) identify(r *http.Request, session flows.Session) {
	if !h.ForwardAuthorization {
		delete(r.Header, "Authorization")
	}
	delete(r.Header, apiKeyHeader)
	r.Header.Set(h.Header, session.Mnemocode)
	r.Header.Set(h.CompanyHeader, session.Company)
	if repl, ok := r.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer); ok {
		repl.Set("http.auth.user.id", session.Mnemocode)
		repl.Set("http.auth.user.company", session.Company)
	}
}

// errEnded is why a stream was cut.
var errEnded = errors.New("the session has ended")

const never = 1 << 62 * time.Nanosecond

// watched passes a request on and, while that takes long (a WebSocket, SSE, a
// large download), looks whether its session still lives: it is cut once the
// session has ended, or could not be asked for as long as stream_recheck.
func (h *Handler) watched(w http.ResponseWriter, r *http.Request, session flows.Session, next caddyhttp.Handler) error {
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	every := h.app.StreamRecheck(session.Company) / 2 // two tries, should the store not answer
	confirmed := time.Now()
	var timer *time.Timer
	timer = time.AfterFunc(never, func() {
		checked := time.Now()
		err := h.live(ctx, session)
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			confirmed = checked
		case !errors.Is(err, flows.ErrUnavailable) || checked.Sub(confirmed) > every:
			cancel(errEnded)
			return
		}
		timer.Reset(every)
	})
	timer.Reset(every) // only now that the function can see the timer
	defer timer.Stop()
	return next.ServeHTTP(w, r.WithContext(ctx))
}

func (h *Handler) live(ctx context.Context, session flows.Session) error {
	service, err := h.app.Service(ctx)
	if err != nil {
		return &flows.Refusal{Err: flows.ErrUnavailable, Cause: err}
	}
	return service.Live(ctx, session)
}
