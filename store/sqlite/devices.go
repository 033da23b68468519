package sqlite

import (
	"context"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/store/sqlstore"
)

const (
	insertDevice = `
		INSERT INTO devices (company, account, hash, id, generation, company_generation, factor, created, expires, address, user_agent)
		SELECT ?1, id, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11 FROM accounts WHERE company = ?1 AND id = ?2`
	dropDevices = `
		DELETE FROM devices WHERE account = ?1 AND (id = ?2 OR number <=
			(SELECT number FROM devices WHERE account = ?1 AND id <> ?2 ORDER BY number DESC LIMIT 1 OFFSET ?3))`
	removeDevices = `DELETE FROM devices WHERE account = (SELECT id FROM accounts WHERE company = ? AND id = ?) AND (?3 = '' OR id = ?3)`
	sweepDevices  = `DELETE FROM devices WHERE number IN (SELECT number FROM devices WHERE expires < ? LIMIT +?)`

	deleteDeviceFailures = `DELETE FROM failures WHERE company = ? AND account = +? AND login_id = ?`
)

func (s accounts) AddDevice(ctx context.Context, company string, account int64, d record.Device, former string) error {
	return s.call(ctx, "accounts.add_device: storing a device", func(ctx context.Context, tx *queries) error {
		err := sqlstore.ExecOr(ctx, tx, record.ErrNotFound, insertDevice, company, account, d.Hash[:], d.ID, d.Generation,
			d.CompanyGeneration, record.Micros(d.FactorUntil), record.Micros(d.Created), record.Micros(d.Expires), d.Address, d.UserAgent)
		if err == nil {
			_, err = tx.removeDevices(ctx, dropDevices, account, former, record.MaxDevices)
		}
		return err
	})
}

// removeDevices deletes devices and their failure counts, and returns how many.
func (tx *queries) removeDevices(ctx context.Context, query string, args ...any) (int, error) {
	scan := func(row sqlstore.Scanner) (key record.FailureKey, err error) {
		err = row.Scan(&key.Company, &key.Account, &key.Device)
		return key, err
	}
	gone, err := sqlstore.Collect(ctx, tx, scan, query+` RETURNING company, account, id`, args...)
	for _, key := range gone {
		if err == nil {
			_, err = tx.Exec(ctx, deleteDeviceFailures, key.Company, key.Account, key.Device)
		}
	}
	return len(gone), err
}

func (s accounts) RemoveDevices(ctx context.Context, company string, account int64, id string) error {
	return s.call(ctx, "accounts.remove_devices: removing devices", func(ctx context.Context, tx *queries) error {
		n, err := tx.removeDevices(ctx, removeDevices, company, account, id)
		if err == nil && n == 0 && id != "" {
			return record.ErrNotFound
		}
		return err
	})
}

func (s accounts) sweepDevices(ctx context.Context, now time.Time) error {
	for {
		var n int
		err := s.call(ctx, "sweeping devices", func(ctx context.Context, tx *queries) (err error) {
			n, err = tx.removeDevices(ctx, sweepDevices, record.Micros(now), sweepChunk)
			return err
		})
		if err != nil || n < sweepChunk {
			return err
		}
	}
}
