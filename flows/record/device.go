package record

import (
	"context"
	"time"
)

// A Device is a client that an account remembers, so that the client is not locked out
// by what strangers do. The client holds a token for it.
type Device struct {
	Hash              TokenHash // of its token
	ID                string    // identifies it to operators and its user; it is not a token
	Generation        int64     // the account's Generation when it was remembered; with a newer one it is revoked
	CompanyGeneration int64     // the company's at that time, see Account
	// FactorUntil is until when a login with the device may go without a second factor:
	// zero if none was given when it was remembered.
	FactorUntil time.Time
	Created     time.Time
	Expires     time.Time
	Address     string // the client's when it was remembered
	UserAgent   string // of the same request
	Failures    int    // wrong passwords that the device has sent; AddDevice ignores it
}

// MaxDevices is how many devices an account can have (contract, section 18).
const MaxDevices = 10

// Devices keeps the devices of accounts, each with the failure counts of its FailureKey.
// Whatever removes a device removes these, too. A new Generation of an account removes its
// devices.
type Devices interface {
	// AddDevice stores a device of the account, and removes the device with the ID
	// former, if the account has it. If d has no FactorUntil, it takes that of the removed
	// one, if they are of the same generations. AddDevice then removes the oldest until
	// MaxDevices are left. It returns ErrNotFound if there is no such account.
	AddDevice(ctx context.Context, company string, account int64, d Device, former string) error
	// Device finds the account's device with this hash, even if it is revoked or
	// expired. It returns ErrNotFound if there is none. It takes as long for an account
	// that does not exist.
	Device(ctx context.Context, company string, account int64, hash TokenHash) (Device, error)
	// Devices returns the account's devices, oldest first, including those that are
	// revoked or expired.
	Devices(ctx context.Context, company string, account int64) ([]Device, error)
	// RemoveDevices removes the account's device with this ID or, if id is empty, all
	// of them. It returns ErrNotFound if there is none with this ID.
	RemoveDevices(ctx context.Context, company string, account int64, id string) error
}
