package store

import (
	"context"

	"github.com/mnemogate/mnemogate/flows/record"
)

const (
	postgresInsertDevice = `
		INSERT INTO devices (company, account, hash, id, epoch, era, factor, created, expires, address, user_agent)
		SELECT $1, id, $3, $4, $5, $6, $7, $8, $9, $10, $11 FROM accounts WHERE ` + postgresOne

	// postgresGoneDevices ends a WITH gone AS (DELETE FROM devices …): it deletes their
	// failure counts, too, and returns a row for each device.
	postgresGoneDevices = `
		RETURNING company, account, id), counts AS (
			DELETE FROM tallies WHERE ctid = ANY (ARRAY(
				SELECT (SELECT ctid FROM tallies WHERE company = gone.company AND account = gone.account
					AND login_id = gone.id AND kind = 'password')
				FROM gone))
		)
		SELECT id FROM gone`
	postgresDropDevices = `
		WITH gone AS (DELETE FROM devices WHERE account = $1 AND (id = $2 OR number <=
			(SELECT number FROM devices WHERE account = $1 AND id <> $2 ORDER BY number DESC LIMIT 1 OFFSET $3))` +
		postgresGoneDevices
	postgresRemoveDevices = `
		WITH gone AS (DELETE FROM devices
			WHERE account = (SELECT id FROM accounts WHERE ` + postgresOne + `) AND ($3 = '' OR id = $3)` +
		postgresGoneDevices
	// Skips rows that another transaction is changing. ORDER BY makes PostgreSQL use
	// the index.
	postgresSweepDevices = `
		WITH gone AS (DELETE FROM devices WHERE ctid = ANY (ARRAY(
			SELECT ctid FROM devices WHERE expires < $1 ORDER BY expires LIMIT $2 FOR UPDATE SKIP LOCKED))` +
		postgresGoneDevices
)

func (s postgresAccounts) AddDevice(ctx context.Context, company string, account int64, d record.Device, former string) error {
	return translatePostgres("storing a device", s.write(ctx, func(ctx context.Context, q postgresQueries) error {
		var b postgresBatch
		b.addOr(record.ErrNotFound, postgresLockAccount, company, account)
		b.add(postgresInsertDevice, company, account, d.Hash[:], d.ID, d.Generation, d.CompanyGeneration,
			micros(d.FactorUntil), micros(d.Created), micros(d.Expires), d.Address, d.UserAgent)
		b.add(postgresDropDevices, account, former, record.MaxDevices)
		return q.run(ctx, &b)
	}))
}

const (
	postgresSelectDevice = `
		SELECT hash, id, epoch, era, factor, created, expires, address, user_agent,
			coalesce((SELECT count FROM tallies WHERE company = devices.company AND account = devices.account
				AND login_id = devices.id AND kind = $1), 0)
		FROM devices WHERE (company = $2) IS TRUE`
	postgresDevice  = postgresSelectDevice + ` AND hash = $4 AND (account = $3) IS TRUE`
	postgresDevices = postgresSelectDevice + ` AND account = $3 ORDER BY number`
)

func (s postgresAccounts) Device(ctx context.Context, company string, account int64, hash record.TokenHash) (d record.Device, err error) {
	err = s.read(ctx, func(ctx context.Context, q postgresQueries) (err error) {
		d, err = scanDevice(q.row(ctx, postgresDevice, string(record.WrongPasswords), company, account, hash[:]))
		return err
	})
	return d, translatePostgres("loading a device", err)
}

func (s postgresAccounts) Devices(ctx context.Context, company string, account int64) (all []record.Device, err error) {
	err = s.read(ctx, func(ctx context.Context, q postgresQueries) (err error) {
		all, err = collectPostgres(ctx, q, scanDevice, postgresDevices, string(record.WrongPasswords), company, account)
		return err
	})
	return all, translatePostgres("listing devices", err)
}

func (s postgresAccounts) RemoveDevices(ctx context.Context, company string, account int64, id string) error {
	return translatePostgres("removing devices", s.write(ctx, func(ctx context.Context, q postgresQueries) error {
		n, err := q.exec(ctx, postgresRemoveDevices, company, account, id)
		if err == nil && n == 0 && id != "" {
			return record.ErrNotFound
		}
		return err
	}))
}
