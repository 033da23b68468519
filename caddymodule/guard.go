package caddymodule

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/mnemogate/mnemogate/flows"
)

// guard lets a request pass to the application if its token is good.
func (h *Handler) guard(w http.ResponseWriter, r *http.Request, t target, next caddyhttp.Handler) error {
	h.strip(r)
	session, company, err := h.authorize(r, t)
	countProtected(err)
	if err != nil {
		h.app.warnings.Unanswered(h.log, err)
		leaveUnread(w, r, time.Now().Add(bodyWithin))
		h.refuse(w, company, err)
		return nil
	}
	return h.pass(w, r, session, company, next)
}

// leaveUnread makes the server close the connection behind the answer: it would
// else first read what it can of the body. Once it has answered it still does,
// so that the client gets to see the answer, but only until then.
func leaveUnread(w http.ResponseWriter, r *http.Request, until time.Time) {
	if r.ContentLength != 0 && r.ProtoMajor == 1 {
		w.Header().Set("Connection", "close")
		readUntil(w, r, until)
	}
}

// authorize decides. It also returns the company that the path names, if it
// is one of ours.
func (h *Handler) authorize(r *http.Request, t target) (session flows.Session, company string, err error) {
	defer h.contain(&err)
	h.app.enter()
	defer h.app.leave()
	service, err := h.service(r.Context())
	if err != nil {
		return session, "", err
	}
	company, ambiguous := named(service, t)
	if r.Method == http.MethodTrace || r.Method == http.MethodConnect && !isExtendedWebSocket(r) {
		return session, company, errMethodNotAllowed
	}
	owner := company // whose token it must be
	if h.RequireAPIKey {
		if owner, err = keyOwner(service, company, r.Header[apiKeyHeader]); err != nil {
			return session, company, err
		}
	}
	session, err = service.Authorize(r.Context(), owner, r.Header["Authorization"])
	if err == nil && ambiguous {
		err = flows.ErrTokenInvalid // no token is two companies'
	}
	return session, company, err
}

// named returns the company that a path names, if it is one of ours, and
// whether it can be read so that it names another one.
func named(service *flows.Service, t target) (company string, ambiguous bool) {
	if service.Companies[t.company] != nil {
		company = t.company
	}
	for _, other := range t.others {
		if other == company || service.Companies[other] == nil {
			continue
		}
		if company != "" {
			return company, true
		}
		company = other
	}
	return company, false
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

// identify tells the application, and Caddy's own directives, who the user is.
// The values are the memory of its headers.
func (h *Handler) identify(r *http.Request, session *flows.Session, values *[2]string) {
	if !h.ForwardAuthorization {
		delete(r.Header, "Authorization")
	}
	delete(r.Header, apiKeyHeader)
	*values = [2]string{session.Mnemocode, session.Company}
	r.Header[h.Header] = values[:1:1]
	r.Header[h.CompanyHeader] = values[1:2:2]
	if repl, ok := r.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer); ok {
		repl.Set("http.auth.user.id", session.Mnemocode)
		repl.Set("http.auth.user.company", session.Company)
	}
}

// pass passes a request on, with the identity that the application trusts, and,
// while that takes long (a WebSocket, SSE, a large download), looks whether its
// session still lives.
func (h *Handler) pass(w http.ResponseWriter, r *http.Request, session flows.Session, company string, next caddyhttp.Handler) error {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	now := time.Now()
	s := &stream{
		ResponseWriterWrapper: caddyhttp.ResponseWriterWrapper{ResponseWriter: w},
		handler:               h,
		session:               session,
		recheck:               h.app.StreamRecheck(session.Company),
		confirmed:             now,
		ctx:                   ctx,
		cancel:                cancel,
	}
	h.identify(r, &s.session, &s.identity)
	streams.add(s, now, s.recheck/2)
	defer streams.remove(s)
	r = r.WithContext(ctx)
	if r.ProtoMajor == 1 && r.ContentLength < 0 {
		s.body.ReadCloser = r.Body
		r.Body = &s.body
	}
	err := next.ServeHTTP(s, r)
	if s.body.broken.Load() {
		if s.begun {
			panic(http.ErrAbortHandler)
		}
		w.Header().Set("Connection", "close")
	}
	switch {
	case !s.cut.Load():
		return err
	case s.begun:
		panic(http.ErrAbortHandler) // which closes it, so that it does not look whole
	default:
		clear(w.Header())
		leaveUnread(w, r, time.Now().Add(bodyWithin))
		h.refuse(w, company, s.why)
		return nil
	}
}

// A chunkedBody notes that it is malformed: what then follows on the connection
// is no request, and Caddy's server, which can't see how a wrapped body ended,
// would take it for one.
type chunkedBody struct {
	io.ReadCloser
	broken atomic.Bool
}

func (b *chunkedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && err != io.EOF && !errors.Is(err, http.ErrBodyReadAfterClose) {
		b.broken.Store(true)
	}
	return n, err
}

// Close reads what is left, up to a limit.
func (b *chunkedBody) Close() error {
	err := b.ReadCloser.Close()
	if err != nil {
		b.broken.Store(true)
	}
	return err
}

// A stream is a request that passed, and its answer. It is cut once its session
// has ended, or could not be asked for as long as stream_recheck: the request
// is cancelled, as if the client were gone, and for handlers that don't care
// nothing more is written.
type stream struct {
	caddyhttp.ResponseWriterWrapper
	handler   *Handler
	session   flows.Session
	recheck   time.Duration
	confirmed time.Time // when the session was last known to live
	ctx       context.Context
	cancel    context.CancelFunc
	identity  [2]string
	body      chunkedBody
	why       error // it was cut; set before cut
	cut       atomic.Bool
	begun     bool // the answer

	// These are the watch's.
	list         *streamList
	before, next *stream
	due          time.Time
}

// check looks whether the session lives. That it does is worth asking once
// within stream_recheck; that the store does not answer, several times.
func (s *stream) check() {
	asked, again := time.Now(), s.recheck/8
	until := s.confirmed.Add(s.recheck)
	if soon := asked.Add(again); until.Before(soon) {
		until = soon // the whole process was held up; that is no reason not to ask
	}
	ctx, cancel := context.WithDeadline(s.ctx, until)
	defer cancel()
	err := s.handler.live(ctx, s.session)
	switch {
	case s.ctx.Err() != nil: // the request has ended
	case err == nil:
		s.confirmed = asked
		streams.add(s, time.Now(), s.recheck/2)
	case errors.Is(err, flows.ErrUnavailable) && time.Since(s.confirmed)+again < s.recheck:
		streams.add(s, time.Now(), again)
	default:
		s.why = err
		s.cut.Store(true)
		s.cancel()
	}
}

func (h *Handler) live(ctx context.Context, session flows.Session) (err error) {
	defer h.contain(&err)
	h.app.enter()
	defer h.app.leave()
	service, err := h.service(ctx)
	if err != nil {
		return err
	}
	return service.Live(ctx, session)
}

// WriteHeader implements http.ResponseWriter.
func (s *stream) WriteHeader(status int) {
	if !s.begun && (status >= 200 || status == http.StatusSwitchingProtocols) {
		if s.cut.Load() {
			return
		}
		s.begun = true
	}
	s.ResponseWriterWrapper.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (s *stream) Write(b []byte) (int, error) {
	if s.cut.Load() {
		return 0, s.why
	}
	s.begun = true
	return s.ResponseWriterWrapper.Write(b)
}

// ReadFrom implements io.ReaderFrom.
func (s *stream) ReadFrom(r io.Reader) (int64, error) {
	if s.cut.Load() {
		return 0, s.why
	}
	s.begun = true
	return s.ResponseWriterWrapper.ReadFrom(&uncutReader{r, s})
}

// FlushError implements what http.ResponseController flushes.
func (s *stream) FlushError() error {
	if s.cut.Load() {
		return s.why
	}
	s.begun = true
	return http.NewResponseController(s.ResponseWriter).Flush()
}

// An uncutReader reads until the stream is cut.
type uncutReader struct {
	io.Reader
	stream *stream
}

func (r *uncutReader) Read(p []byte) (int, error) {
	if r.stream.cut.Load() {
		return 0, r.stream.why
	}
	return r.Reader.Read(p)
}
