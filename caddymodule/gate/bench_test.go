package gate

import (
	"cmp"
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/mnemogate/mnemogate/caddymodule/gate/paths"
	"github.com/mnemogate/mnemogate/flows/record"
)

// What a request costs that passes, beside one that nothing guards. The application's
// handler does to the context what the reverse proxy does.
func BenchmarkPass(b *testing.B) {
	session := record.Session{ID: "0123456789abcdef0123456789abcdef", Company: "acme", Mnemocode: "alice", Profile: "admin a@example.com +37060012345 pwd sms mfa", State: record.Authorized, Created: time.Now(), Expires: time.Now().Add(time.Hour), Ends: time.Now().Add(time.Hour)}
	next := caddyhttp.HandlerFunc(func(w http.ResponseWriter, r *http.Request) error {
		ctx, cancel := context.WithCancelCause(context.WithValue(r.Context(), http.LocalAddrContextKey, w))
		defer cancel(nil)
		if ctx.Done() != nil {
			w.WriteHeader(http.StatusNoContent)
		}
		return nil
	})
	bearer := http.Header{"Authorization": {"Bearer " + someToken}}
	for _, c := range []struct {
		name   string
		header http.Header
		config func(*Handler) // nil: nothing guards it
	}{
		{"bare", bearer, nil},
		{"Bearer", bearer, func(*Handler) {}},
		{"Bearer where cookie is", bearer, func(h *Handler) { h.Cookie = defaultCookie }},
		{"cookie", http.Header{"Cookie": {"theme=dark; " + defaultCookie + "=" + someToken}}, func(h *Handler) { h.Cookie = defaultCookie }},
		{"forward", bearer, func(h *Handler) {
			h.Forward = []string{"role", "email", "phone", "session", "auth_time", "auth_methods"}
		}},
		{"role", bearer, func(h *Handler) {
			h.Role = []paths.Role{{Role: "admin", Paths: []string{"/acme/*"}}, {Role: "editor", Paths: []string{"/edit/*"}}}
		}},
		{"public", nil, func(h *Handler) { h.Public = []string{"/*"} }},
	} {
		b.Run(c.name, func(b *testing.B) {
			h, _ := newHandler(b, time.Minute, liveSessions{get: func(context.Context) (record.Session, error) { return session, nil }})
			if c.config != nil {
				c.config(h)
				if err := cmp.Or(h.Headers.Provision(h.app, nil), h.Validate()); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportAllocs()
			request, w := httptest.NewRequest("GET", "/acme/orders/12345", nil), httptest.NewRecorder()
			for b.Loop() {
				ctx, cancel := context.WithCancel(context.WithValue(context.Background(), caddy.ReplacerCtxKey, caddy.NewReplacer()))
				r := request.WithContext(ctx)
				r.Header = c.header.Clone()
				clear(w.Header())
				var err error
				if c.config != nil {
					err = h.ServeHTTP(w, r, next)
				} else {
					err = next(w, r)
				}
				if err != nil {
					b.Fatal(err)
				}
				cancel()
			}
		})
	}
}
