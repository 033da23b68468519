package gate

import (
	"context"
	"errors"
	"io"
	"net/http"
	"regexp"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/mnemogate/mnemogate/caddymodule/app"
	"github.com/mnemogate/mnemogate/caddymodule/bodies"
	"github.com/mnemogate/mnemogate/flows"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// pass passes a request on with its identity headers. While the answer takes long (a
// WebSocket, SSE, a large download), it checks that the session is still valid.
func (h *Handler) pass(w http.ResponseWriter, r *http.Request, v visitor, next caddyhttp.Handler) error {
	s := &stream{
		ResponseWriterWrapper: caddyhttp.ResponseWriterWrapper{ResponseWriter: w},
		handler:               h,
		came:                  r,
		visitor:               v,
	}
	h.identify(r, &s.visitor)
	if v.isNobody() { // no session that could be revoked
		s.request = *r
	} else {
		s.recheck, s.confirmed = time.Duration(h.app.Companies[v.session.Company].Effective().Session.StreamRecheck), time.Now()
		s.ctx, s.cancel = context.WithCancelCause(r.Context())
		defer s.cancel(nil)
		defer time.AfterFunc(s.recheck/2, s.watch).Stop()
		s.request = *r.WithContext(s.ctx)
	}
	r = &s.request
	if r.ProtoMajor == 1 && r.ContentLength != 0 {
		s.body.Reader = r.Body
		r.Body = &s.body
	}
	err := s.serve(next)
	if !s.begun {
		s.own() // for the answer that Caddy itself gives
	}
	switch {
	case s.cut.Load() && s.begun:
		panic(http.ErrAbortHandler) // closes the connection, so that the answer does not look complete
	case s.cut.Load():
		clear(w.Header())
		h.deny(w, r, s.cutErr)
		return nil
	case s.body.remains() && s.begun:
		bodies.Linger(w, r, &s.body.clientBody)
	case s.body.remains():
		bodies.HangUp(w) // Caddy or handle_errors answers
	}
	return err
}

// A stream is a request that passed, and its answer. It is cut once its session is
// revoked or expires, or if the store did not answer for as long as stream_recheck.
// A cut cancels the request, as if the client had closed the connection, and drops
// what a handler writes afterwards.
type stream struct {
	caddyhttp.ResponseWriterWrapper
	visitor
	handler   *Handler
	came      *http.Request // as it came
	request   http.Request  // the request that is passed on
	recheck   time.Duration
	confirmed time.Time // when the session was last known to be valid
	ctx       context.Context
	cancel    context.CancelCauseFunc
	body      passedBody
	cutErr    error // the reason for the cut; set before cut
	cut       atomic.Bool
	mu        sync.Mutex // of the fields below
	begun     bool       // whether the answer has begun
	ended     bool       // whether serve has returned: its connection may have another request now
}

// serve passes the request on. Once it has returned, nothing more is cut.
func (s *stream) serve(next caddyhttp.Handler) error {
	defer func() {
		s.mu.Lock()
		s.ended = true
		s.mu.Unlock()
	}()
	return next.ServeHTTP(s, &s.request)
}

// watch checks the session until the request ends.
func (s *stream) watch() {
	for {
		again := s.check()
		select {
		case <-s.ctx.Done():
			return
		case <-time.After(again):
		}
	}
}

// check asks whether the session is still valid, and returns when to ask again: once
// within stream_recheck after a success, and several times if the store does not answer.
func (s *stream) check() time.Duration {
	again := s.recheck / 8
	late, err := s.ask(again)
	if late > again { // the whole process was held up meanwhile
		_, err = s.ask(again)
	}
	switch {
	case s.ctx.Err() != nil: // the request has ended
	case err == nil:
		return s.recheck / 2
	case errors.Is(err, wire.ErrUnavailable) && time.Since(s.confirmed)+again < s.recheck:
	default:
		s.end(err)
	}
	return again
}

// end cuts the request, and does not wait for a client that sends or reads slowly.
func (s *stream) end(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return
	}
	s.cutErr = err
	s.cut.Store(true)
	s.cancel(nil)
	bodies.End(s.ResponseWriter, s.came)
	if s.begun {
		control := http.NewResponseController(s.ResponseWriter)
		if _, idle := caddyhttp.IdleTimeoutsFromContext(s.ctx); idle != nil {
			control = idle.Ctrl // its own method is only for the handler's goroutine
		}
		_ = control.SetWriteDeadline(time.Now()) // a writer without deadlines ends with its client
	}
}

// ask asks once, until stream_recheck is over but for at least the time least, since the
// whole process may have been held up before. If the store did not answer, late is how much
// longer than that it took.
func (s *stream) ask(least time.Duration) (late time.Duration, err error) {
	asked := time.Now()
	until := s.confirmed.Add(s.recheck)
	if soon := asked.Add(least); until.Before(soon) {
		until = soon
	}
	ctx, cancel := context.WithDeadline(s.ctx, until)
	defer cancel()
	check := func(service *flows.Service) error { return service.CheckLive(ctx, s.session) }
	first := s.handler.app
	second := app.Running()                          // after a reload, our own stores may be closed
	if second != nil && second.SharesStores(first) { // it may have removed the company, or its issued tokens
		first, second = second, first
	}
	err = s.handler.withServiceOf(ctx, first, check)
	if errors.Is(err, wire.ErrUnavailable) && second != nil && second != first {
		err = s.handler.withServiceOf(ctx, second, check)
	}
	switch {
	case err == nil:
		s.confirmed = asked
	case errors.Is(err, wire.ErrUnavailable):
		late = time.Since(until)
	}
	return late, err
}

// begin records that the answer begins, and declares whose it is. The connection ends
// with an answer that begins before the request's body has ended.
func (s *stream) begin(status int) {
	if s.begun {
		return
	}
	s.mu.Lock()
	s.begun = true
	s.mu.Unlock()
	s.own()
	if s.body.remains() && status != http.StatusSwitchingProtocols {
		s.Header().Set("Connection", "close")
	}
}

// own declares that the answer is only for clients that send this token or cookie.
// Otherwise a browser's cache could show it to the next user (RFC 9111, section
// 4.1), and so could a CDN that ignores Vary. A cookie, unlike Authorization, does not keep
// a shared cache from storing the answer (section 3.5). own runs at the last moment, so that
// what the application and Caddy's directives set stays.
func (s *stream) own() {
	header := s.Header()
	header["Vary"] = append(header["Vary"], s.handler.vary())
	if !s.isNobody() && !slices.ContainsFunc(header["Cache-Control"], saysForWhom.MatchString) {
		header["Cache-Control"] = append(header["Cache-Control"], "private")
	}
}

// saysForWhom matches a Cache-Control that says whether shared caches may store the answer
// (RFC 9111, section 5.2.2). A private that names headers does not.
var saysForWhom = regexp.MustCompile(`(?i)(^|,)\s*(public|private|no-store|s-maxage\s*=[^,]*)\s*(,|$)`)

// WriteHeader implements http.ResponseWriter. Over HTTP/1, it drops interim answers such as 103
// Early Hints. Older versions of nginx take them for the answer, and its cache then keeps the
// user's. The server itself sends 100 once the body is read.
func (s *stream) WriteHeader(status int) {
	switch {
	case status < 200 && status != http.StatusSwitchingProtocols:
		if s.came.ProtoMajor < 2 {
			return
		}
	case !s.begun:
		if s.cut.Load() {
			return
		}
		s.begin(status)
	}
	s.ResponseWriterWrapper.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (s *stream) Write(b []byte) (int, error) {
	if s.cut.Load() {
		return 0, s.cutErr
	}
	s.begin(http.StatusOK)
	return s.ResponseWriterWrapper.Write(b)
}

// ReadFrom implements io.ReaderFrom by Write, which fails once the stream is cut.
func (s *stream) ReadFrom(r io.Reader) (int64, error) { return io.Copy(struct{ io.Writer }{s}, r) }

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
