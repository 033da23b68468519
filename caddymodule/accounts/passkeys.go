package accounts

import (
	"net/http"

	"github.com/mnemogate/mnemogate/caddymodule/accounts/api"
)

func (c *Call) passkeys() error {
	passkeys, err := c.Admin.Passkeys(c.Context(), c.mnemocode())
	return c.Reply(http.StatusOK, api.Passkeys{Passkeys: api.Each(passkeys, api.PasskeyOf)}, err)
}

func (c *Call) removePasskey() error {
	return c.Done(c.Admin.RemovePasskey(c.Context(), c.mnemocode(), c.Param("passkey"), c.query.Get("keep_session")))
}
