package accounts

import (
	"context"
	"net/http"

	"github.com/mnemogate/mnemogate/caddymodule/accounts/api"
)

func (c *Call) sessions() error {
	ctx, cancel := c.within()
	defer cancel()
	sessions, err := c.admin.LiveSessions(ctx, c.mnemocode())
	if err != nil {
		return err
	}
	views := make([]api.Session, len(sessions))
	for i, s := range sessions {
		views[i] = api.SessionOf(s)
	}
	c.WriteJSON(http.StatusOK, api.Sessions{Sessions: views})
	return nil
}

func (c *Call) endSession() error {
	return c.ends(func(ctx context.Context) error { return c.admin.EndSession(ctx, c.mnemocode(), c.Param("session")) })
}

func (c *Call) endSessions() error {
	return c.ends(func(ctx context.Context) error { return c.admin.EndSessions(ctx, c.mnemocode(), "") })
}

func (c *Call) forgetDevices() error {
	return c.ends(func(ctx context.Context) error { return c.admin.ForgetDevices(ctx, c.mnemocode(), "") })
}

func (c *Call) endAllSessions() error { return c.ends(c.admin.EndAllSessions) }

func (c *Call) ends(end func(context.Context) error) error {
	ctx, cancel := c.within()
	defer cancel()
	if err := end(ctx); err != nil {
		return err
	}
	c.noContent()
	return nil
}
