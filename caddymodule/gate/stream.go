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

// pass passes a request on with its identity headers. While the answer takes long (a
// WebSocket, SSE, a large download), it checks that the session is still valid. A
// request without a session has state None. assertion is empty if the site sends none.
func (h *Handler) pass(w http.ResponseWriter, r *http.Request, session record.Session, assertion string, next caddyhttp.Handler) error {
	s := &stream{
		ResponseWriterWrapper: caddyhttp.ResponseWriterWrapper{ResponseWriter: w},
		handler:               h,
		session:               session,
		identity:              [3]string{session.Mnemocode, session.Company, assertion},
	}
	h.identify(r, s)
	if session.State == record.None { // no session that could be revoked
		s.request = *r
	} else {
		s.request = *r.WithContext(s.watched(r.Context(), r.ContentLength != 0))
		defer s.unwatch()
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
		panic(http.ErrAbortHandler) // closes the connection, so that the answer does not look complete
	default:
		clear(w.Header())
		h.deny(w, r, s.cutErr)
		return nil
	}
}

// A stream is a request that passed, and its answer. It is cut once its session is
// revoked or expires, or if the store did not answer for as long as stream_recheck.
// A cut cancels the request, as if the client had closed the connection, and drops
// what a handler writes afterwards.
type stream struct {
	caddyhttp.ResponseWriterWrapper
	handler   *Handler
	session   record.Session
	request   http.Request // the request that is passed on
	recheck   time.Duration
	confirmed time.Time // when the session was last known to be valid
	ctx       context.Context
	cancel    context.CancelCauseFunc
	client    detachedContext // the context of the original request
	identity  [3]string       // mnemocode, company, assertion
	varies    [1]string
	body      chunkedBody
	cutErr    error // the reason for the cut; set before cut
	cut       atomic.Bool
	begun     bool // whether the answer has begun

	// Fields of the streamWatch.
	list         *streamList
	before, next *stream
	due          time.Time
	unfollow     func() bool // undoes follow; nil until the context ends with the client's
}

// A detachedContext is a context with the values of another one that does not end with it.
type detachedContext struct{ context.Context }

func (*detachedContext) Done() <-chan struct{} { return nil }
func (*detachedContext) Err() error            { return nil }

// watched starts the watch and returns the context of the request. It links that
// context to the client's only after watchTick, since the link costs more than the
// rest of the watch. It links them at once in two cases. If the client's context has
// a deadline, a late link would change the error. If the request has a body, a
// client that stops sending it ends its context first, which tells the reverse proxy
// that the application did not fail.
func (s *stream) watched(client context.Context, hasBody bool) context.Context {
	company := s.handler.app.Companies[s.session.Company]
	s.recheck, s.confirmed, s.client.Context = company.StreamRecheck(), time.Now(), client
	if _, hasDeadline := client.Deadline(); hasDeadline || hasBody {
		s.ctx, s.cancel = context.WithCancelCause(client)
		s.unfollow = func() bool { return false } // it follows the client's context already
	} else {
		s.ctx, s.cancel = context.WithCancelCause(&s.client)
	}
	streams.add(s, s.confirmed, watchTick)
	return s.ctx
}

// follow makes the context end with the client's, even if that has already ended.
func (s *stream) follow() {
	s.unfollow = context.AfterFunc(s.client.Context, func() { s.cancel(context.Cause(s.client.Context)) })
}

// unwatch stops the watch.
func (s *stream) unwatch() {
	streams.remove(s)
	s.cancel(nil)
}

// check asks whether the session is still valid. After a success it asks again once
// within stream_recheck, and several times if the store does not answer.
func (s *stream) check() {
	again := s.recheck / 8
	late, err := s.ask(again)
	if late > again { // the whole process was held up meanwhile
		_, err = s.ask(again)
	}
	switch {
	case s.ctx.Err() != nil: // the request has ended
	case err == nil:
		streams.add(s, time.Now(), s.recheck/2)
	case errors.Is(err, wire.ErrUnavailable) && time.Since(s.confirmed)+again < s.recheck:
		streams.add(s, time.Now(), again)
	default:
		s.cutErr = err
		s.cut.Store(true)
		s.cancel(nil)
	}
}

// ask asks once, for as long as stream_recheck allows but at least for a while, since
// the whole process may have been held up before. It also returns how long ago that
// time was over if the store did not answer.
func (s *stream) ask(least time.Duration) (late time.Duration, err error) {
	asked := time.Now()
	until := s.confirmed.Add(s.recheck)
	if soon := asked.Add(least); until.Before(soon) {
		until = soon
	}
	ctx, cancel := context.WithDeadline(s.ctx, until)
	defer cancel()
	err = s.handler.withService(ctx, func(service *flows.Service) error { return service.CheckLive(ctx, s.session) })
	switch {
	case err == nil:
		s.confirmed = asked
	case errors.Is(err, wire.ErrUnavailable):
		late = time.Since(until)
	}
	return late, err
}

// begin records that the answer begins, and sets its Vary header.
func (s *stream) begin() {
	if !s.begun {
		s.begun = true
		s.vary()
	}
}

// vary declares that the answer is only for clients that send this token or cookie.
// Otherwise a browser's cache could show it to the next user (RFC 9111, section
// 4.1). It runs at the last moment, so that the values that the application and
// Caddy's directives add to Vary stay.
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
		return 0, s.cutErr
	}
	s.begin()
	return s.ResponseWriterWrapper.Write(b)
}

// ReadFrom implements io.ReaderFrom.
func (s *stream) ReadFrom(r io.Reader) (int64, error) {
	if s.cut.Load() {
		return 0, s.cutErr
	}
	s.begin()
	return s.ResponseWriterWrapper.ReadFrom(&uncutReader{r, s})
}

// FlushError implements the method that http.ResponseController uses to flush.
func (s *stream) FlushError() error {
	if s.cut.Load() {
		return s.cutErr
	}
	if !s.begun {
		s.WriteHeader(http.StatusOK) // Caddy's recorders flush nothing before it
	}
	return http.NewResponseController(s.ResponseWriter).Flush()
}

// An uncutReader reads until the stream is cut.
type uncutReader struct {
	io.Reader
	stream *stream
}

func (r *uncutReader) Read(p []byte) (int, error) {
	if r.stream.cut.Load() {
		return 0, r.stream.cutErr
	}
	return r.Reader.Read(p)
}
