package sqlstore

import (
	"cmp"
	"context"
	"slices"
	"time"

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
	err = row.Scan(Hash(&d.Hash), &d.ID, &d.Generation, &d.CompanyGeneration, Time(&d.FactorUntil), Time(&d.Created), Time(&d.Expires),
		&d.Address, &d.UserAgent, &d.Failures)
	return d, err
}

const (
	insertDevice = `
		INSERT INTO devices (company, account, hash, id, generation, company_generation, factor, created, expires, address, user_agent)
		SELECT $1, id, $3, $4, $5, $6, coalesce(nullif(CAST($7 AS bigint), 0),
			(SELECT factor FROM devices WHERE account = $2 AND id = $12 AND generation = $5 AND company_generation = $6), 0), $8, $9, $10, $11
		FROM accounts WHERE ` + oneAccount
	dropDevices = `
		DELETE FROM devices WHERE account = $1 AND (id = $2 OR number <=
			(SELECT number FROM devices WHERE account = $1 AND id <> $2 ORDER BY number DESC LIMIT 1 OFFSET $3))`
	removeDevices = `
		DELETE FROM devices WHERE account = (SELECT id FROM accounts WHERE ` + oneAccount + `) AND ($3 = '' OR id = $3)`
	// Deletes the failure counts of devices that the account has no more.
	forgetDevices = `
		DELETE FROM failures WHERE company = $1 AND account = CAST($2 AS bigint) AND login_id <> ''
			AND login_id NOT IN (SELECT id FROM devices WHERE account = CAST($2 AS bigint))`
)

func (s Accounts) AddDevice(ctx context.Context, company string, account int64, d record.Device, former string) error {
	return transact(ctx, s, "accounts.add_device: storing a device", func(ctx context.Context, tx Queries) error {
		tx.Later(ctx, s.accountLock, company, account)
		err := ExecOr(ctx, tx, record.ErrNotFound, insertDevice, company, account, d.Hash[:], d.ID, d.Generation, d.CompanyGeneration,
			record.Micros(d.FactorUntil), record.Micros(d.Created), record.Micros(d.Expires), d.Address, d.UserAgent, former)
		if err != nil {
			return err
		}
		tx.Later(ctx, dropDevices, account, former, record.MaxDevices)
		tx.Later(ctx, forgetDevices, company, account)
		return nil
	})
}

func (s Accounts) RemoveDevices(ctx context.Context, company string, account int64, id string) error {
	return transact(ctx, s, "accounts.remove_devices: removing devices", func(ctx context.Context, tx Queries) error {
		tx.Later(ctx, s.accountLock, company, account) // AddDevice may have read one of them
		n, err := tx.Exec(ctx, removeDevices, company, account, id)
		if err != nil {
			return err
		}
		if n == 0 && id != "" {
			return record.ErrNotFound
		}
		tx.Later(ctx, forgetDevices, company, account)
		return nil
	})
}

// sweepDevices removes the devices that have expired.
func (s Accounts) sweepDevices(ctx context.Context, now time.Time) error {
	scan := func(row Scanner) (of record.FailureKey, err error) {
		err = row.Scan(&of.Company, &of.Account)
		return of, err
	}
	query := s.DeleteSome("devices", "expires < $1", "number", "expires") + ` RETURNING company, account`
	for {
		var removed []record.FailureKey
		err := transact(ctx, s, "sweeping devices", func(ctx context.Context, tx Queries) (err error) {
			removed, err = Collect(ctx, tx, scan, query, record.Micros(now), s.Chunk)
			// Once for an account, and in one order: otherwise two nodes could wait for each other.
			slices.SortFunc(removed, func(a, b record.FailureKey) int { return cmp.Compare(a.Account, b.Account) })
			for _, of := range slices.Compact(removed) {
				tx.Later(ctx, forgetDevices, of.Company, of.Account)
			}
			return err
		})
		if err != nil || int64(len(removed)) < s.Chunk {
			return err
		}
	}
}
