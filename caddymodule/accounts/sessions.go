package accounts

import (
	"net/http"

	"github.com/mnemogate/mnemogate/caddymodule/accounts/api"
	"github.com/mnemogate/mnemogate/flows/record"
)

func (c *Call) sessions() error {
	sessions, err := c.Admin.LiveSessions(c.Context(), c.mnemocode())
	return c.Reply(http.StatusOK, api.Sessions{Sessions: api.Each(sessions, api.SessionOf)}, err)
}

func (c *Call) endSession() error {
	return c.Done(c.Admin.EndSession(c.Context(), c.mnemocode(), c.Param("session")))
}

func (c *Call) endSessions() error {
	return c.Done(c.Admin.EndSessions(c.Context(), c.mnemocode()))
}

func (c *Call) devices() error {
	devices, err := c.Admin.Devices(c.Context(), c.mnemocode())
	view := func(d record.Device) api.Device { return api.DeviceOf(c.Admin.Company, d) }
	return c.Reply(http.StatusOK, api.Devices{Devices: api.Each(devices, view)}, err)
}

func (c *Call) forgetDevices() error {
	return c.Done(c.Admin.ForgetDevices(c.Context(), c.mnemocode(), c.Param("device")))
}

func (c *Call) endAllSessions() error {
	return c.Done(c.Admin.EndAllSessions(c.Context()))
}
