package accounts

import (
	"errors"
	"net/http"
	"testing"

	"github.com/mnemogate/mnemogate/caddymodule/routes"
	"github.com/mnemogate/mnemogate/flows/manage"
)

// Clients, and handle_path of Caddy, resolve dots in a path, so it would name something else.
func TestDotsInAPathAreNoSubject(t *testing.T) {
	for segment, good := range map[string]bool{".": false, "..": false, "%2E": false, "...": true, "a%2Fb": true} {
		_, params, _ := routes.Find(Routes, (*Route).at, http.MethodPut, segmentsOf("acme/accounts/x/identities/1/"+segment))
		_, err := (&Call{params: params}).identityInPath()
		if _, refused := errors.AsType[*manage.FieldError](err); refused == good {
			t.Errorf("%s: %v", segment, err)
		}
	}
}
