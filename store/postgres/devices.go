package postgres

import (
	"context"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/store/sqlstore"
)

const (
	insertDevice = `
		INSERT INTO devices (company, account, hash, id, generation, company_generation, factor, created, expires, address, user_agent)
		SELECT $1, id, $3, $4, $5, $6, $7, $8, $9, $10, $11 FROM accounts WHERE ` + sqlstore.OneAccount

	// goneDevices ends a WITH gone AS (DELETE FROM devices …): it deletes their
	// failure counts, too, and returns a row for each device.
	goneDevices = `
		RETURNING company, account, id), counts AS (
			DELETE FROM failures WHERE ctid = ANY (ARRAY(
				SELECT (SELECT ctid FROM failures WHERE company = gone.company AND account = gone.account
					AND login_id = gone.id AND kind = 'password')
				FROM gone))
		)
		SELECT id FROM gone`
	dropDevices = `
		WITH gone AS (DELETE FROM devices WHERE account = $1 AND (id = $2 OR number <=
			(SELECT number FROM devices WHERE account = $1 AND id <> $2 ORDER BY number DESC LIMIT 1 OFFSET $3))` +
		goneDevices
	removeDevices = `
		WITH gone AS (DELETE FROM devices
			WHERE account = (SELECT id FROM accounts WHERE ` + sqlstore.OneAccount + `) AND ($3 = '' OR id = $3)` +
		goneDevices
	// Skips rows that another transaction is changing. ORDER BY makes PostgreSQL use
	// the index.
	sweepDevices = `
		WITH gone AS (DELETE FROM devices WHERE ctid = ANY (ARRAY(
			SELECT ctid FROM devices WHERE expires < $1 ORDER BY expires LIMIT $2 FOR UPDATE SKIP LOCKED))` +
		goneDevices
)

func (s accounts) AddDevice(ctx context.Context, company string, account int64, d record.Device, former string) error {
	return s.called(ctx, "accounts.add_device: storing a device", s.write, func(ctx context.Context, q queries) error {
		var b batch
		b.addOr(record.ErrNotFound, s.AccountLock, company, account)
		b.add(insertDevice, company, account, d.Hash[:], d.ID, d.Generation, d.CompanyGeneration,
			record.Micros(d.FactorUntil), record.Micros(d.Created), record.Micros(d.Expires), d.Address, d.UserAgent)
		b.add(dropDevices, account, former, record.MaxDevices)
		return q.run(ctx, &b)
	})
}

func (s accounts) RemoveDevices(ctx context.Context, company string, account int64, id string) error {
	return s.called(ctx, "accounts.remove_devices: removing devices", s.write, func(ctx context.Context, q queries) error {
		n, err := q.Exec(ctx, removeDevices, company, account, id)
		if err == nil && n == 0 && id != "" {
			return record.ErrNotFound
		}
		return err
	})
}
