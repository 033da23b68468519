package store

import (
	"context"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
)

const (
	sqliteInsertDevice = `
		INSERT INTO devices (company, account, hash, id, epoch, era, factor, created, expires, address, user_agent)
		SELECT ?1, id, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11 FROM accounts WHERE company = ?1 AND id = ?2`
	sqliteDropDevices = `
		DELETE FROM devices WHERE account = ?1 AND (id = ?2 OR number <=
			(SELECT number FROM devices WHERE account = ?1 AND id <> ?2 ORDER BY number DESC LIMIT 1 OFFSET ?3))`
	sqliteRemoveDevices = `DELETE FROM devices WHERE account = (SELECT id FROM accounts WHERE company = ? AND id = ?) AND (?3 = '' OR id = ?3)`
	sqliteSweepDevices  = `DELETE FROM devices WHERE number IN (SELECT number FROM devices WHERE expires < ? LIMIT +?)`

	sqliteDeleteDeviceFailures = `DELETE FROM tallies WHERE company = ? AND account = +? AND login_id = ?`
)

func (s sqliteAccounts) AddDevice(ctx context.Context, company string, account int64, d record.Device, former string) error {
	return translate("storing a device", s.write(ctx, func(ctx context.Context, tx *sqliteQueries) error {
		err := execOr(ctx, tx, record.ErrNotFound, sqliteInsertDevice, company, account, d.Hash[:], d.ID, d.Generation,
			d.CompanyGeneration, micros(d.FactorUntil), micros(d.Created), micros(d.Expires), d.Address, d.UserAgent)
		if err == nil {
			_, err = tx.removeDevices(ctx, sqliteDropDevices, account, former, record.MaxDevices)
		}
		return err
	}))
}

// removeDevices deletes devices and their failure counts, and returns how many.
func (tx *sqliteQueries) removeDevices(ctx context.Context, query string, args ...any) (int, error) {
	scan := func(row scanner) (key record.FailureKey, err error) {
		err = row.Scan(&key.Company, &key.Account, &key.Device)
		return key, err
	}
	gone, err := collect(ctx, tx, scan, query+` RETURNING company, account, id`, args...)
	for _, key := range gone {
		if err == nil {
			_, err = tx.exec(ctx, sqliteDeleteDeviceFailures, key.Company, key.Account, key.Device)
		}
	}
	return len(gone), err
}

func (s sqliteAccounts) RemoveDevices(ctx context.Context, company string, account int64, id string) error {
	return translate("removing devices", s.write(ctx, func(ctx context.Context, tx *sqliteQueries) error {
		n, err := tx.removeDevices(ctx, sqliteRemoveDevices, company, account, id)
		if err == nil && n == 0 && id != "" {
			return record.ErrNotFound
		}
		return err
	}))
}

func (s sqliteAccounts) sweepDevices(ctx context.Context, now time.Time) error {
	for {
		var n int
		err := s.write(ctx, func(ctx context.Context, tx *sqliteQueries) (err error) {
			n, err = tx.removeDevices(ctx, sqliteSweepDevices, micros(now), sqliteSweepChunk)
			return err
		})
		if err != nil || n < sqliteSweepChunk {
			return translate("sweeping devices", err)
		}
	}
}
