package manage

import (
	"context"
	"errors"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// ErrNoDevice means that the account has no device with this ID.
var ErrNoDevice = errors.New("the account has no such device")

// ForgetDevices removes the account's device with this ID or, if id is empty, all of
// them. It revokes no sessions.
func (ad *Admin) ForgetDevices(ctx context.Context, mnemocode, id string) error {
	a, err := ad.ByMnemocode(ctx, mnemocode)
	if err != nil {
		return err
	}
	err = ad.Accounts.RemoveDevices(ctx, a.Company, a.ID, id)
	if errors.Is(err, record.ErrNotFound) {
		return ErrNoDevice
	}
	if err != nil {
		return adminError("removing devices", err)
	}
	forgotten := ad.event(record.AccountDevicesForgotten, a)
	forgotten.Reason = id
	ad.emit(ctx, forgotten)
	return nil
}

// Devices returns the account's known devices, oldest first.
func (ad *Admin) Devices(ctx context.Context, mnemocode string) ([]record.Device, error) {
	a, err := ad.ByMnemocode(ctx, mnemocode)
	if err != nil {
		return nil, err
	}
	devices, err := ad.LiveDevices(ctx, a)
	return devices, adminError("listing the devices", err)
}

// Devices returns the account's known devices, oldest first, and the ID of the user's
// own, if it is one of them.
func (s *Self) Devices(ctx context.Context) (devices []record.Device, current string, err error) {
	devices, err = s.admin.LiveDevices(ctx, s.account)
	if err != nil {
		return nil, "", wire.Unavailable("listing the devices", err)
	}
	own, err := s.admin.Sessions.Get(ctx, s.session.Hash) // memory may lack its Device
	if errors.Is(err, record.ErrNotFound) {
		return nil, "", wire.ErrTokenInvalid
	}
	if err != nil {
		return nil, "", wire.Unavailable("loading the session", err)
	}
	return devices, own.Device, nil
}

// ForgetDevices is Admin.ForgetDevices.
func (s *Self) ForgetDevices(ctx context.Context, id string) error {
	return selfError(s.admin.ForgetDevices(ctx, s.account.Mnemocode, id))
}
