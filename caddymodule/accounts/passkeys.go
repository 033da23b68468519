package accounts

import (
	"net/http"

	"github.com/mnemogate/mnemogate/caddymodule/accounts/api"
)

func (c *Call) passkeys() error {
	passkeys, err := c.admin.Passkeys(c.ctx, c.mnemocode())
	return c.reply(http.StatusOK, api.PasskeysOf(passkeys), err)
}

func (c *Call) removePasskey() error {
	query, err := c.query("keep_session")
	if err != nil {
		return err
	}
	return c.done(c.admin.RemovePasskey(c.ctx, c.mnemocode(), c.Param("passkey"), query.Get("keep_session")))
}
