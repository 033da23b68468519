package store

import (
	"context"

	"github.com/mnemogate/mnemogate/flows/record"
)

const (
	sqlSelectDevice = `
		SELECT hash, id, epoch, era, factor, created, expires, address, user_agent,
			coalesce((SELECT count FROM tallies WHERE company = devices.company AND account = devices.account
				AND login_id = devices.id AND kind = $1), 0)
		FROM devices WHERE (company = $2) IS TRUE`
	sqlDevice  = sqlSelectDevice + ` AND hash = $4 AND (account = $3) IS TRUE`
	sqlDevices = sqlSelectDevice + ` AND account = $3 ORDER BY number`
)

func (s sqlAccounts) Device(ctx context.Context, company string, account int64, hash record.TokenHash) (record.Device, error) {
	return queryOne(ctx, s, "loading a device", scanDevice, sqlDevice, string(record.WrongPasswords), company, account, hash[:])
}

func (s sqlAccounts) Devices(ctx context.Context, company string, account int64) ([]record.Device, error) {
	return queryAll(ctx, s, "listing devices", scanDevice, sqlDevices, string(record.WrongPasswords), company, account)
}

func scanDevice(row scanner) (d record.Device, err error) {
	var hash []byte
	var factor, created, expires int64
	err = row.Scan(&hash, &d.ID, &d.Generation, &d.CompanyGeneration, &factor, &created, &expires, &d.Address, &d.UserAgent, &d.Failures)
	copy(d.Hash[:], hash)
	d.FactorUntil, d.Created, d.Expires = fromMicros(factor), fromMicros(created), fromMicros(expires)
	return d, err
}
