package manage

import (
	"context"
	"errors"

	"github.com/mnemogate/mnemogate/flows/record"
)

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
