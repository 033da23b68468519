package accounts

import (
	"errors"
	"testing"

	"github.com/mnemogate/mnemogate/flows/manage"
)

// Clients, and handle_path of Caddy, resolve dots in a path, so it would name something else.
func TestDotsInAPathAreNoSubject(t *testing.T) {
	for segment, good := range map[string]bool{".": false, "..": false, "%2E": false, "...": true, "a%2Fb": true} {
		_, params := match("acme/accounts/x/identities/1/"+segment, Routes)
		_, err := (&Call{params: params}).identityInPath()
		if _, refused := errors.AsType[*manage.FieldError](err); refused == good {
			t.Errorf("%s: %v", segment, err)
		}
	}
}
