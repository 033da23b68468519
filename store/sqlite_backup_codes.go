package store

import (
	"context"

	"github.com/mnemogate/mnemogate/flows/record"
)

const (
	sqliteAccountExists     = `SELECT id FROM accounts WHERE company = ? AND id = ?`
	sqliteDeleteBackupCodes = `DELETE FROM backup_codes WHERE account = ?`
	sqliteInsertBackupCode  = `INSERT INTO backup_codes (account, hash) VALUES (?, ?) ON CONFLICT DO NOTHING`
)

func (s sqliteAccounts) SetBackupCodes(
	ctx context.Context, company string, id int64, hashes []string, events ...record.OutboxEvent,
) error {
	return translateSQLite("storing backup codes", s.write(ctx, func(ctx context.Context, tx *sqliteQueries) error {
		if err := tx.row(ctx, sqliteAccountExists, company, id).Scan(&id); err != nil {
			return err
		}
		if _, err := tx.exec(ctx, sqliteDeleteBackupCodes, id); err != nil {
			return err
		}
		if err := tx.insertBackupCodes(ctx, id, hashes); err != nil {
			return err
		}
		return tx.insertEvents(ctx, company, id, events)
	}))
}

func (tx *sqliteQueries) insertBackupCodes(ctx context.Context, id int64, hashes []string) error {
	for _, hash := range hashes {
		if _, err := tx.exec(ctx, sqliteInsertBackupCode, id, hash); err != nil {
			return err
		}
	}
	return nil
}

const sqliteBackupCodes = `
	SELECT hash FROM backup_codes WHERE account = (SELECT id FROM accounts WHERE company = ? AND id = ?) ORDER BY hash`

func (s sqliteAccounts) BackupCodes(ctx context.Context, company string, id int64) ([]string, error) {
	var hashes []string
	err := s.read(ctx, func(ctx context.Context, q *sqliteQueries) (err error) {
		hashes, err = collectSQLite(ctx, q, scanString, sqliteBackupCodes, company, id)
		return err
	})
	return hashes, translateSQLite("loading backup codes", err)
}

const sqliteUseBackupCode = `
	DELETE FROM backup_codes WHERE account = (SELECT id FROM accounts WHERE company = ? AND id = ?) AND hash = ?`

func (s sqliteAccounts) UseBackupCode(ctx context.Context, company string, id int64, hash string) error {
	return translateSQLite("using backup code", s.write(ctx, func(ctx context.Context, tx *sqliteQueries) error {
		return tx.execOr(ctx, record.ErrConflict, sqliteUseBackupCode, company, id, hash)
	}))
}
