package gate

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/mnemogate/mnemogate/flows"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// pass passes a request on, with the identity that the application trusts, and,
// while that takes long (a WebSocket, SSE, a large download), looks whether its
// session still lives. Nobody's session has state None.
func (h *Handler) pass(w http.ResponseWriter, r *http.Request, session record.Session, next caddyhttp.Handler) error {
	s := &stream{
		ResponseWriterWrapper: caddyhttp.ResponseWriterWrapper{ResponseWriter: w},
		handler:               h,
		session:               session,
	}
	h.identify(r, s)
	if session.State == record.None { // there is nothing that could end
		s.request = *r
	} else {
		s.request = *r.WithContext(s.watched(r.Context(), r.ContentLength != 0))
		defer s.left()
	}
	r = &s.request
	if r.ProtoMajor == 1 && r.ContentLength < 0 {
		s.body.ReadCloser = r.Body
		r.Body = &s.body
	}
	err := next.ServeHTTP(s, r)
	if !s.begun {
		s.vary() // for the answer that Caddy itself gives
	}
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
		h.deny(w, r, s.why)
		return nil
	}
}

// A stream is a request that passed, and its answer. It is cut once its session
// has ended, or could not be asked for as long as stream_recheck: the request
// is cancelled, as if the client were gone, and for handlers that don't care
// nothing more is written.
type stream struct {
	caddyhttp.ResponseWriterWrapper
	handler   *Handler
	session   record.Session
	request   http.Request // as it is passed on
	recheck   time.Duration
	confirmed time.Time // when the session was last known to live
	ctx       context.Context
	cancel    context.CancelCauseFunc
	client    apart // the request's context as it came
	identity  [2]string
	varies    [1]string
	body      chunkedBody
	why       error // it was cut; set before cut
	cut       atomic.Bool
	begun     bool // the answer

	// These are the watch's.
	list         *streamList
	before, next *stream
	due          time.Time
	unfollow     func() bool // nil: the context does not end with the client's yet
}

// An apart is a context that does not end with the one whose values it has.
type apart struct{ context.Context }

func (*apart) Done() <-chan struct{} { return nil }
func (*apart) Err() error            { return nil }

// watched begins the watch, and returns the context of the request. That it ends with
// the client's is arranged only once the request has taken watchTick, since it costs
// more than all else here. A client's deadline would make another error of it; and
// whoever breaks off a body ends its context first, by which the reverse proxy knows
// that it was not the application that failed.
func (s *stream) watched(client context.Context, hasBody bool) context.Context {
	company := s.handler.app.Companies[s.session.Company]
	s.recheck, s.confirmed, s.client.Context = company.StreamRecheck(), time.Now(), client
	if _, hasDeadline := client.Deadline(); hasDeadline || hasBody {
		s.ctx, s.cancel = context.WithCancelCause(client)
		s.unfollow = func() bool { return false } // it follows already
	} else {
		s.ctx, s.cancel = context.WithCancelCause(&s.client)
	}
	streams.add(s, s.confirmed, watchTick)
	return s.ctx
}

// follow has the context end with the client's, also if that has ended already.
func (s *stream) follow() {
	s.unfollow = context.AfterFunc(s.client.Context, func() { s.cancel(context.Cause(s.client.Context)) })
}

// left ends the watch.
func (s *stream) left() {
	streams.remove(s)
	s.cancel(nil)
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
	case errors.Is(err, wire.ErrUnavailable) && time.Since(s.confirmed)+again < s.recheck:
		streams.add(s, time.Now(), again)
	default:
		s.why = err
		s.cut.Store(true)
		s.cancel(nil)
	}
}

func (h *Handler) live(ctx context.Context, session record.Session) error {
	return h.withService(ctx, func(service *flows.Service) error { return service.Live(ctx, session) })
}

// begin notes that the answer begins, and what it varies by.
func (s *stream) begin() {
	if !s.begun {
		s.begun = true
		s.vary()
	}
}

// vary says that the answer is only for who sends this token or cookie: a browser's cache
// would else answer its next user with it (RFC 9111, 4.1). That comes at the
// last moment, since what the application and Caddy's directives say of Vary
// stays beside it.
func (s *stream) vary() {
	header := s.Header()
	if others := header["Vary"]; others != nil {
		header["Vary"] = append(others, s.handler.vary())
		return
	}
	s.varies[0] = s.handler.vary()
	header["Vary"] = s.varies[:]
}

// WriteHeader implements http.ResponseWriter.
func (s *stream) WriteHeader(status int) {
	if !s.begun && (status >= 200 || status == http.StatusSwitchingProtocols) {
		if s.cut.Load() {
			return
		}
		s.begin()
	}
	s.ResponseWriterWrapper.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (s *stream) Write(b []byte) (int, error) {
	if s.cut.Load() {
		return 0, s.why
	}
	s.begin()
	return s.ResponseWriterWrapper.Write(b)
}

// ReadFrom implements io.ReaderFrom.
func (s *stream) ReadFrom(r io.Reader) (int64, error) {
	if s.cut.Load() {
		return 0, s.why
	}
	s.begin()
	return s.ResponseWriterWrapper.ReadFrom(&uncutReader{r, s})
}

// FlushError implements what http.ResponseController flushes.
func (s *stream) FlushError() error {
	if s.cut.Load() {
		return s.why
	}
	s.begin()
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
