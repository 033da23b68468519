package admin

import (
	"net/http"

	"github.com/mnemogate/mnemogate/caddymodule/accounts"
	"github.com/mnemogate/mnemogate/caddymodule/accounts/api"
	"github.com/mnemogate/mnemogate/flows/record"
)

// rekey answers after some 25 seconds. It goes on if it is repeated.
func rekey(c *accounts.Call) error {
	done, err := c.Service.Rekey(c.Context(), record.Event{Name: record.StoreRekeyed, Address: c.Address, Actor: record.ActorAdmin})
	return c.Reply(http.StatusOK, api.Rekeyed(done), err)
}
