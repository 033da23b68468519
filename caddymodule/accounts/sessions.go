package accounts

import (
	"net/http"

	"github.com/mnemogate/mnemogate/caddymodule/accounts/api"
	"github.com/mnemogate/mnemogate/flows/record"
)

func (c *Call) sessions() error {
	sessions, err := c.admin.LiveSessions(c.Context(), c.mnemocode())
	return c.Reply(http.StatusOK, api.Sessions{Sessions: api.Each(sessions, api.SessionOf)}, err)
}

func (c *Call) endSession() error {
	return c.done(c.admin.EndSession(c.Context(), c.mnemocode(), c.Param("session")))
}

func (c *Call) endSessions() error {
	return c.done(c.admin.EndSessions(c.Context(), c.mnemocode()))
}

func (c *Call) devices() error {
	devices, err := c.admin.Devices(c.Context(), c.mnemocode())
	view := func(d record.Device) api.Device { return api.DeviceOf(c.admin.Company, d) }
	return c.Reply(http.StatusOK, api.Devices{Devices: api.Each(devices, view)}, err)
}

func (c *Call) forgetDevices() error {
	return c.done(c.admin.ForgetDevices(c.Context(), c.mnemocode(), c.Param("device")))
}

func (c *Call) endAllSessions() error {
	return c.done(c.admin.EndAllSessions(c.Context()))
}
