package gate

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/store/storetest"
)

// A switchable store has a session, or fails.
type switchable struct {
	err atomic.Pointer[error]
}

func (s *switchable) fail(err error) { s.err.Store(&err) }

func (s *switchable) get(context.Context) (record.Session, error) {
	if err := s.err.Load(); err != nil && *err != nil {
		return record.Session{}, *err
	}
	return record.Session{Company: "acme", Mnemocode: "alice", State: record.Authorized, Expires: time.Now().Add(time.Hour), Ends: time.Now().Add(time.Hour)}, nil
}

// watch serves one request whose handler is next, and returns what came.
func watch(t *testing.T, recheck time.Duration, sessions *switchable, next caddyhttp.HandlerFunc) (status int, body string, err error) {
	t.Helper()
	h, _ := newHandler(t, recheck, liveSessions{get: sessions.get})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := h.ServeHTTP(w, r, next); err != nil {
			w.WriteHeader(http.StatusBadGateway)
		}
	}))
	defer server.Close()
	r, err := http.NewRequest("GET", server.URL, nil)
	must(t, err)
	r.Header.Set("Authorization", "Bearer "+someToken)
	response, err := client.Do(r)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	b, err := io.ReadAll(response.Body)
	return response.StatusCode, string(b), err
}

// A reader that never ends, slowly.
type endless struct{}

func (endless) Read(p []byte) (int, error) {
	time.Sleep(time.Millisecond)
	return copy(p, "more"), nil
}

// Whatever the application's handler does, what it writes ends with the session.
func TestHandlersThatIgnoreCancellationAreCut(t *testing.T) {
	const recheck = 100 * time.Millisecond
	for name, next := range map[string]func(http.ResponseWriter) error{
		"writing": func(w http.ResponseWriter) error {
			for {
				if _, err := w.Write([]byte("more")); err != nil {
					return nil // as file servers do
				}
				time.Sleep(time.Millisecond)
			}
		},
		"copying": func(w http.ResponseWriter) error {
			_, err := io.Copy(w, endless{})
			return err
		},
		"flushing": func(w http.ResponseWriter) error {
			for {
				if err := http.NewResponseController(w).Flush(); err != nil {
					return err
				}
				time.Sleep(time.Millisecond)
			}
		},
		"a length": func(w http.ResponseWriter) error {
			w.Header().Set("Content-Length", "1000000")
			_, err := io.Copy(w, endless{})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			var sessions switchable
			status, body, err := watch(t, recheck, &sessions, func(w http.ResponseWriter, _ *http.Request) error {
				if _, err := io.WriteString(w, "begun "); err != nil {
					return err
				}
				sessions.fail(record.ErrNotFound)
				return next(w)
			})
			if err == nil {
				t.Errorf("got %d, and %d bytes that look whole", status, len(body))
			}
		})
	}
	for _, protocol := range []string{"HTTP/1.1", "HTTP/2.0"} {
		t.Run("a client that reads nothing, over "+protocol, func(t *testing.T) {
			var sessions switchable
			h, _ := newHandler(t, recheck, liveSessions{get: sessions.get})
			ended := make(chan error, 1)
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_ = h.ServeHTTP(w, r, caddyhttp.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) error {
					_, err := io.Copy(w, rand.Reader)
					ended <- err
					return err
				}))
			}))
			if server.EnableHTTP2 = protocol == "HTTP/2.0"; server.EnableHTTP2 {
				server.StartTLS()
			} else {
				server.Start() // TLS would wait 5 s to say goodbye
			}
			defer server.Close()
			r, err := http.NewRequest("GET", server.URL, nil)
			must(t, err)
			r.Header.Set("Authorization", "Bearer "+someToken)
			response, err := server.Client().Do(r)
			must(t, err)
			defer response.Body.Close()
			if response.StatusCode != 200 || response.Proto != protocol {
				t.Fatalf("got %s %s", response.Proto, response.Status)
			}
			time.Sleep(recheck) // until no more is sent
			sessions.fail(record.ErrNotFound)
			select {
			case err := <-ended:
				if err == nil {
					t.Error("it looks whole")
				}
			case <-time.After(30 * time.Second):
				t.Error("it waits for the client")
			}
		})
	}
	t.Run("what had not begun is refused", func(t *testing.T) {
		var sessions switchable
		status, body, err := watch(t, recheck, &sessions, func(w http.ResponseWriter, r *http.Request) error {
			sessions.fail(record.ErrNotFound)
			<-r.Context().Done()
			w.Header().Set("Content-Encoding", "gzip")
			w.WriteHeader(499) // as the reverse proxy does
			return nil
		})
		if err != nil || status != 401 || !strings.Contains(body, `"auth.token.invalid"`) {
			t.Errorf("got %d %s, %v", status, body, err)
		}
	})
	t.Run("what lives is left alone", func(t *testing.T) {
		storetest.InQuiet(t, recheck/4, func() error { // a stall counts as the store's
			var sessions switchable
			status, body, err := watch(t, recheck, &sessions, func(w http.ResponseWriter, r *http.Request) error {
				time.Sleep(3 * recheck)
				w.WriteHeader(http.StatusCreated)
				_, err := fmt.Fprint(w, "whole ", r.Context().Err())
				return err
			})
			if err != nil || status != 201 || body != "whole <nil>" {
				return fmt.Errorf("got %d %q, %v", status, body, err)
			}
			return nil
		})
	})
	t.Run("a panic in the store cuts, and ends nothing else", func(t *testing.T) {
		var asked atomic.Bool
		h, _ := newHandler(t, recheck, liveSessions{get: func(ctx context.Context) (record.Session, error) {
			if asked.Swap(true) {
				panic("a defect")
			}
			return new(switchable).get(ctx)
		}})
		w := handle(h, func(_ http.ResponseWriter, r *http.Request) error {
			<-r.Context().Done()
			return r.Context().Err()
		})
		if w.Code != 500 || !strings.Contains(w.Body.String(), `"service.error"`) {
			t.Errorf("got %d %s", w.Code, w.Body)
		}
	})
}

// A stream is cut within stream_recheck, even if its session is revoked just after
// the store was asked. A busy machine may be late, but not every time.
func TestStreamsOfRevokedSessionsAreCutInTime(t *testing.T) {
	const recheck = 200 * time.Millisecond
	for _, answers := range []int{1, 2} { // until the session is revoked
		fastest := time.Hour
		for range 5 {
			asked, revoked := 0, time.Time{}
			h, _ := newHandler(t, recheck, liveSessions{get: func(ctx context.Context) (record.Session, error) {
				if asked++; asked > answers {
					return record.Session{}, record.ErrNotFound
				}
				revoked = time.Now()
				return new(switchable).get(ctx)
			}})
			w := handle(h, func(_ http.ResponseWriter, r *http.Request) error {
				<-r.Context().Done()
				return r.Context().Err()
			})
			if w.Code != 401 {
				t.Errorf("got %d %s", w.Code, w.Body)
			}
			fastest = min(fastest, time.Since(revoked))
		}
		if fastest > recheck {
			t.Errorf("revoked after %d answers, and cut after %v", answers, fastest)
		}
	}
}

// A store that fails now and then cuts nothing; one that does not answer for
// as long as stream_recheck does.
func TestStreamsOutlastAStoreThatFailsForAMoment(t *testing.T) {
	const recheck = 400 * time.Millisecond
	outage := errors.New("connection refused")
	t.Run("for a moment", func(t *testing.T) {
		storetest.InQuiet(t, recheck/4, func() error { // a stall counts as the store's
			var sessions switchable
			var asked atomic.Int32
			h, _ := newHandler(t, recheck, liveSessions{get: func(ctx context.Context) (record.Session, error) {
				if asked.Add(1) == 2 {
					return record.Session{}, outage
				}
				return sessions.get(ctx)
			}})
			w := handle(h, func(w http.ResponseWriter, r *http.Request) error {
				deadline := time.After(10 * time.Second)
				for asked.Load() < 4 {
					select {
					case <-r.Context().Done():
						return r.Context().Err()
					case <-deadline:
						return errors.New("it is not asked again")
					case <-time.After(time.Millisecond):
					}
				}
				w.WriteHeader(http.StatusNoContent)
				return nil
			})
			if w.Code != 204 {
				return fmt.Errorf("got %d %s", w.Code, w.Body)
			}
			return nil
		})
	})
	t.Run("while the whole process is held up", func(t *testing.T) {
		storetest.InQuiet(t, recheck/4, func() error { // a stall counts as the store's
			var asked atomic.Int32
			h, _ := newHandler(t, recheck, liveSessions{get: func(ctx context.Context) (record.Session, error) {
				if asked.Add(1) == 2 {
					<-ctx.Done()
					time.Sleep(recheck) // as if the process had been stopped
					return record.Session{}, ctx.Err()
				}
				return new(switchable).get(ctx)
			}})
			w := handle(h, func(w http.ResponseWriter, r *http.Request) error {
				select {
				case <-r.Context().Done():
					return r.Context().Err()
				case <-time.After(3 * recheck):
					w.WriteHeader(http.StatusNoContent)
					return nil
				}
			})
			if w.Code != 204 || asked.Load() < 3 {
				return fmt.Errorf("got %d %s after %d questions", w.Code, w.Body, asked.Load())
			}
			return nil
		})
	})
	for name, fail := range map[string]func(context.Context) error{
		"for long": func(context.Context) error { return outage },
		"hanging": func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		},
	} {
		t.Run(name, func(t *testing.T) {
			var asked atomic.Int32
			h, _ := newHandler(t, recheck, liveSessions{get: func(ctx context.Context) (record.Session, error) {
				if asked.Add(1) > 1 {
					return record.Session{}, fail(ctx)
				}
				return new(switchable).get(ctx)
			}})
			began := time.Now()
			w := handle(h, func(_ http.ResponseWriter, r *http.Request) error {
				<-r.Context().Done()
				return r.Context().Err()
			})
			if w.Code != 503 || !strings.Contains(w.Body.String(), `"service.unavailable"`) {
				t.Errorf("got %d %s", w.Code, w.Body)
			}
			if took := time.Since(began); took < recheck*3/4 {
				t.Errorf("cut after %v", took)
			}
		})
	}
}

// The context of an application's handler ends with the client, for the client's
// reason, and at the latest with the request.
func TestContextsEndWithTheClientAndTheRequest(t *testing.T) {
	h, _ := newHandler(t, time.Hour, liveSessions{get: new(switchable).get})
	reason := errors.New("the connection is gone")
	for _, leaves := range []bool{false, true} {
		client, leave := context.WithCancelCause(t.Context())
		r := httptest.NewRequestWithContext(client, "GET", "/", nil)
		r.Header.Set("Authorization", "Bearer "+someToken)
		var ctx context.Context
		err := h.ServeHTTP(httptest.NewRecorder(), r, caddyhttp.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) error {
			ctx = r.Context()
			if leaves {
				leave(reason)
				<-ctx.Done()
			}
			if (ctx.Err() != nil) != leaves {
				t.Errorf("the client is gone %v: %v", leaves, ctx.Err())
			}
			return nil
		}))
		if err != nil || ctx == nil {
			t.Fatalf("served %v, %v", ctx != nil, err)
		}
		if ctx.Err() != context.Canceled || leaves && context.Cause(ctx) != reason {
			t.Errorf("the client is gone %v: got %v because of %v", leaves, ctx.Err(), context.Cause(ctx))
		}
		leave(nil)
	}
}
