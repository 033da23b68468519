package accounts

import (
	"errors"
	"net/http"

	"github.com/mnemogate/mnemogate/caddymodule/accounts/api"
	"github.com/mnemogate/mnemogate/flows/manage"
)

func (c *Call) passkeys() error {
	ctx, cancel := c.within()
	defer cancel()
	passkeys, err := c.admin.Passkeys(ctx, c.mnemocode())
	if err != nil {
		return err
	}
	c.WriteJSON(http.StatusOK, api.PasskeysOf(passkeys))
	return nil
}

func (c *Call) removePasskey() error {
	ctx, cancel := c.within()
	defer cancel()
	query, err := c.query("keep_session")
	if err != nil {
		return err
	}
	err = c.admin.RemovePasskey(ctx, c.mnemocode(), c.Param("passkey"), query.Get("keep_session"))
	switch {
	case errors.Is(err, manage.ErrNoPasskey):
		return &Error{Status: http.StatusNotFound, Message: err.Error()}
	case errors.Is(err, manage.ErrLastPasskey):
		return &Error{Status: http.StatusConflict, Message: err.Error()}
	case err != nil:
		return err
	}
	c.noContent()
	return nil
}
