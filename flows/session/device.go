package session

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/mnemogate/mnemogate/flows/message"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/tokens"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// An account remembers devices from which its user logged in, so that strangers who guess
// its password or share the device's address don't lock out its user (OWASP, Device
// Cookies). The token of a device proves nothing else: the password is always needed.

// FindDevice finds out whether the client is a known device of the account. The token
// comes from the body and may be empty; a cookie takes its place. A token that is not the
// account's changes nothing. A device counts as unknown once it is revoked or expired, or
// has sent too many wrong passwords.
func (c *Call) FindDevice(ctx context.Context, a record.Account, token string) error {
	if c.Company.Devices.For == 0 {
		return nil
	}
	if token == "" && c.client.Device != nil {
		var err error
		if token, err = c.client.Device(); err != nil {
			return err
		}
	}
	if !tokens.IsWellFormed(tokens.DevicePrefix, token) {
		return nil
	}
	d, err := c.m.Accounts.Device(ctx, c.Company.Code, a.ID, record.HashToken(token))
	if errors.Is(err, record.ErrNotFound) {
		return nil
	}
	if err != nil {
		return wire.Unavailable("looking up the device", err)
	}
	if !c.Company.Limits.ForgetsDevice(d.Failures) && liveDevice(d, a, c.Now) {
		c.Device, c.device = d.ID, &d
	}
	return nil
}

// known returns the device that FindDevice has found, unless it is distrusted since; nil for
// none.
func (c *Call) known() *record.Device {
	if c.Device == "" {
		return nil
	}
	return c.device
}

// liveDevice reports whether a device is neither revoked nor expired. Whatever revokes
// the sessions of the account begins a new generation, and so revokes its devices.
func liveDevice(d record.Device, a record.Account, now time.Time) bool {
	return d.Generation == a.Generation && d.CompanyGeneration == a.CompanyGeneration && now.Before(d.Expires)
}

// SecondFactorDue reports whether the account needs a second factor after its password. It
// does not on a device on which one was given, if the company lets such devices skip it.
func (c *Call) SecondFactorDue(ctx context.Context, a record.Account) (bool, error) {
	if !c.Company.NeedsSecondFactor(a) {
		return false, nil
	}
	d := c.known()
	if !c.Company.Devices.SkipSecondFactor || d == nil || !c.Now.Before(d.FactorUntil) {
		return true, nil
	}
	// The device may have been removed while the password was compared.
	_, err := c.m.Accounts.Device(ctx, c.Company.Code, a.ID, d.Hash)
	switch {
	case err == nil:
		c.With = d.ID
		return false, nil
	case errors.Is(err, record.ErrNotFound):
		return true, nil
	}
	return true, wire.Unavailable("looking up the device again", err)
}

// Remember makes the account remember the client as a device, if the call's step makes
// the session authorized.
func (c *Call) Remember(wanted bool) { c.remember = wanted && c.Company.Devices.For != 0 }

// rememberDevice tells the owner of an account about a login from an unknown device. If the
// client wants it, rememberDevice stores it as a device of the account, in place of the one
// that it was, and returns its token. If the store fails, the client is not remembered, and
// logs in all the same.
func (c *Call) rememberDevice(ctx context.Context, a record.Account, next record.Session) string {
	if c.Company.Devices.For != 0 && c.Device == "" {
		c.Notify(ctx, a, message.NoticeNewDevice)
	}
	if !c.remember {
		return ""
	}
	until := c.Now.Add(time.Duration(c.Company.Devices.For))
	token, hash := tokens.NewDevice()
	d := record.Device{
		Hash: hash, ID: next.Device, Generation: next.Generation, CompanyGeneration: next.CompanyGeneration,
		Created: c.Now, Expires: until, Address: next.Address, UserAgent: next.UserAgent,
	}
	if next.Profile.Methods().Multi() {
		d.FactorUntil = until
	}
	if err := c.m.Accounts.AddDevice(ctx, c.Company.Code, next.Account, d, c.Device); err != nil {
		c.m.Warn("a device could not be remembered", "company", c.Company.Code, "error", err)
		return ""
	}
	c.Events = append(c.Events, record.Event{Name: record.AccountDeviceRemembered, Reason: d.ID})
	return token
}

// LiveDevices returns the devices of the account that are neither revoked nor expired,
// oldest first.
func (m *Manager) LiveDevices(ctx context.Context, a record.Account) ([]record.Device, error) {
	devices, err := m.Accounts.Devices(ctx, a.Company, a.ID)
	now := m.Now()
	return slices.DeleteFunc(devices, func(d record.Device) bool { return !liveDevice(d, a, now) }), err
}
