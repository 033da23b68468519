package store

import (
	"context"

	"github.com/mnemogate/mnemogate/flows/record"
)

const (
	postgresInsertDevice = `
		INSERT INTO devices (company, account, hash, id, epoch, era, factor, created, expires, address, user_agent)
		SELECT $1, id, $3, $4, $5, $6, $7, $8, $9, $10, $11 FROM accounts WHERE ` + oneAccount

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
			WHERE account = (SELECT id FROM accounts WHERE ` + oneAccount + `) AND ($3 = '' OR id = $3)` +
		postgresGoneDevices
	// Skips rows that another transaction is changing. ORDER BY makes PostgreSQL use
	// the index.
	postgresSweepDevices = `
		WITH gone AS (DELETE FROM devices WHERE ctid = ANY (ARRAY(
			SELECT ctid FROM devices WHERE expires < $1 ORDER BY expires LIMIT $2 FOR UPDATE SKIP LOCKED))` +
		postgresGoneDevices
)

func (s postgresAccounts) AddDevice(ctx context.Context, company string, account int64, d record.Device, former string) error {
	return translate("storing a device", s.write(ctx, func(ctx context.Context, q postgresQueries) error {
		var b postgresBatch
		b.addOr(record.ErrNotFound, s.accountLock, company, account)
		b.add(postgresInsertDevice, company, account, d.Hash[:], d.ID, d.Generation, d.CompanyGeneration,
			micros(d.FactorUntil), micros(d.Created), micros(d.Expires), d.Address, d.UserAgent)
		b.add(postgresDropDevices, account, former, record.MaxDevices)
		return q.run(ctx, &b)
	}))
}

func (s postgresAccounts) RemoveDevices(ctx context.Context, company string, account int64, id string) error {
	return translate("removing devices", s.write(ctx, func(ctx context.Context, q postgresQueries) error {
		n, err := q.exec(ctx, postgresRemoveDevices, company, account, id)
		if err == nil && n == 0 && id != "" {
			return record.ErrNotFound
		}
		return err
	}))
}
