package flows_test

import (
	"fmt"
	"slices"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
)

type modelDevice struct {
	key           string // never reused
	token         string
	account       *modelAccount
	expires       time.Time
	factorUntil   time.Time // until when it may skip the second factor
	ended         bool      // revoked or removed
	modelAttempts           // its own
}

// know finds out whether the client is a known device of the account.
func (m *model) know(c *modelCall, a *modelAccount) {
	token, _ := c.body["device_token"].(string)
	if token == "" {
		token = c.cookie
	}
	for _, d := range m.devices {
		if a != nil && d.token == token && d.account == a && d.lives(m.now) && d.passwords.n < c.company.Limits.LockAfter {
			c.device = d
		}
	}
}

func (d *modelDevice) lives(now time.Time) bool { return !d.ended && now.Before(d.expires) }

// origin names what the limits of addresses count: the address, or the known device.
func (c *modelCall) origin() string {
	if c.device != nil {
		return "device " + c.device.key
	}
	return c.address
}

// skipsSecond reports whether the client need not give a second factor again.
func (m *model) skipsSecond(c *modelCall) bool {
	return c.company.Devices.SkipSecondFactor && c.device != nil && m.now.Before(c.device.factorUntil)
}

// remember makes the client a known device, in place of the one that it was. An account
// has ten, and the oldest is dropped first.
func (m *model) remember(c *modelCall, s *modelSession) {
	m.drawnDevices++
	d := &modelDevice{
		key: fmt.Sprint(m.drawnDevices), token: c.got.device, account: s.account,
		expires: m.now.Add(time.Duration(c.company.Devices.For)),
	}
	if former := c.device; former != nil {
		if !former.ended { // as by a new password
			d.factorUntil = former.factorUntil
		}
		former.ended = true
	}
	if s.hasTwo() {
		d.factorUntil = d.expires
	}
	s.device, m.devices = d, append(m.devices, d)
	n := 0
	for _, other := range slices.Backward(m.devices) {
		if other.account != s.account || other.ended {
			continue
		}
		if n++; n > record.MaxDevices {
			other.ended = true
		}
	}
}

// endDevices revokes the devices of an account.
func (m *model) endDevices(a *modelAccount) {
	for _, d := range m.devices {
		d.ended = d.ended || d.account == a
	}
}
