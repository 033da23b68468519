package senders

import (
	"net/http"
	"testing"

	"github.com/mnemogate/mnemogate/caddymodule/guest/guesttest"
	"github.com/mnemogate/mnemogate/flows/tenant"
)

// Only 401 and 403 say that a password is wrong. After any other answer but 200, nobody
// knows. Redirects are not followed, and errors do not hold the password.
func TestMigrateWebhookTellsAWrongPasswordFromAnOutage(t *testing.T) {
	status := 0
	old := guesttest.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/" {
			w.Header().Set("Location", "/elsewhere")
			w.WriteHeader(status)
		}
	}))
	w := guesttest.MustStart(t, &MigrateWebhook{webhook{URL: old.URL + "/", Secrets: []string{guesttest.Secret}}})
	for _, c := range []struct {
		status     int
		right, out bool
	}{{200, true, false}, {401, false, false}, {403, false, false}, {204, false, true}, {302, false, true}, {404, false, true}, {429, false, true}, {500, false, true}} {
		status = c.status
		right, err := w.VerifyPassword(t.Context(), tenant.PasswordQuestion{ID: "1", Company: "acme", Mnemocode: "alice", Password: "correct horse battery"})
		if right != c.right || (err != nil) != c.out {
			t.Errorf("%d: got %v, %v", c.status, right, err)
		}
		if err != nil {
			guesttest.NoSecrets(t, err, "correct horse battery")
		}
	}
}
