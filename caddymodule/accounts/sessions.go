package accounts

import (
	"net/http"

	"github.com/mnemogate/mnemogate/caddymodule/accounts/api"
)

func (c *Call) sessions() error {
	sessions, err := c.admin.LiveSessions(c.ctx, c.mnemocode())
	views := make([]api.Session, len(sessions))
	for i, s := range sessions {
		views[i] = api.SessionOf(s)
	}
	return c.reply(http.StatusOK, api.Sessions{Sessions: views}, err)
}

func (c *Call) endSession() error {
	return c.done(c.admin.EndSession(c.ctx, c.mnemocode(), c.Param("session")))
}

func (c *Call) endSessions() error {
	return c.done(c.admin.EndSessions(c.ctx, c.mnemocode()))
}

func (c *Call) devices() error {
	devices, err := c.admin.Devices(c.ctx, c.mnemocode())
	views := make([]api.Device, len(devices))
	for i, d := range devices {
		views[i] = api.DeviceOf(c.admin.Company, d)
	}
	return c.reply(http.StatusOK, api.Devices{Devices: views}, err)
}

func (c *Call) forgetDevices() error {
	return c.done(c.admin.ForgetDevices(c.ctx, c.mnemocode(), c.Param("device")))
}

func (c *Call) endAllSessions() error {
	return c.done(c.admin.EndAllSessions(c.ctx))
}
