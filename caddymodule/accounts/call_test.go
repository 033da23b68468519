package accounts

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/mnemogate/mnemogate/caddymodule/app"
)

// Requests may share an error, so an answer does not change it.
func TestAnAnswerLeavesASharedErrorAsItIs(t *testing.T) {
	shared := Error{Status: http.StatusServiceUnavailable, Message: "starting"}
	before := shared
	d := &API{Root: "/", App: func(context.Context) (*app.App, error) { return nil, &shared }}
	w := httptest.NewRecorder()
	d.Serve(w, httptest.NewRequest(http.MethodGet, "/acme/accounts", nil), "192.0.2.1", "")
	if w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" || shared != before {
		t.Errorf("got %d %v, and the error is now %+v", w.Code, w.Header(), shared)
	}
}
