package sqlstore

import (
	"context"

	"github.com/mnemogate/mnemogate/flows/record"
)

const (
	selectDevice = `
		SELECT hash, id, generation, company_generation, factor, created, expires, address, user_agent,
			coalesce((SELECT count FROM failures WHERE company = devices.company AND account = devices.account
				AND login_id = devices.id AND kind = $1), 0)
		FROM devices WHERE (company = $2) IS TRUE`
	deviceByHash = selectDevice + ` AND hash = $4 AND (account = $3) IS TRUE`
	devicesOf    = selectDevice + ` AND account = $3 ORDER BY number`
)

func (s Accounts) Device(ctx context.Context, company string, account int64, hash record.TokenHash) (record.Device, error) {
	return QueryOne(ctx, s, "accounts.device: loading a device", scanDevice, deviceByHash, string(record.WrongPasswords), company, account, hash[:])
}

func (s Accounts) Devices(ctx context.Context, company string, account int64) ([]record.Device, error) {
	return QueryAll(ctx, s, "accounts.devices: listing devices", scanDevice, devicesOf, string(record.WrongPasswords), company, account)
}

func scanDevice(row Scanner) (d record.Device, err error) {
	var hash []byte
	var factor, created, expires int64
	err = row.Scan(&hash, &d.ID, &d.Generation, &d.CompanyGeneration, &factor, &created, &expires, &d.Address, &d.UserAgent, &d.Failures)
	copy(d.Hash[:], hash)
	d.FactorUntil, d.Created, d.Expires = record.FromMicros(factor), record.FromMicros(created), record.FromMicros(expires)
	return d, err
}
