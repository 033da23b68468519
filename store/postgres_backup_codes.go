package store

import (
	"context"

	"github.com/mnemogate/mnemogate/flows/record"
)

const postgresSetBackupCodes = `
	WITH gone AS (
		DELETE FROM backup_codes USING accounts a
		WHERE account = a.id AND ` + postgresOne + ` AND hash <> ALL ($3::text[])
	)
	INSERT INTO backup_codes (account, hash)
	SELECT a.id, new.hash FROM accounts a, unnest($3::text[]) AS new (hash) WHERE ` + postgresOne + `
	ON CONFLICT DO NOTHING`

func (s postgresAccounts) SetBackupCodes(
	ctx context.Context, company string, id int64, hashes []string, events ...record.OutboxEvent,
) error {
	hashes = append([]string{}, hashes...) // nil would be NULL
	return translatePostgres("storing backup codes", s.writeWithEvents(ctx, company, &id, events, func(ctx context.Context, q postgresQueries) error {
		var b postgresBatch
		b.addOr(record.ErrNotFound, postgresLockAccount, company, id)
		b.add(postgresSetBackupCodes, company, id, hashes)
		return q.run(ctx, &b)
	}))
}

const postgresBackupCodes = `
	SELECT hash FROM backup_codes WHERE account = (SELECT id FROM accounts WHERE ` + postgresOne + `) ORDER BY hash`

func (s postgresAccounts) BackupCodes(ctx context.Context, company string, id int64) ([]string, error) {
	var hashes []string
	err := s.read(ctx, func(ctx context.Context, q postgresQueries) (err error) {
		hashes, err = collectPostgres(ctx, q, scanString, postgresBackupCodes, company, id)
		return err
	})
	return hashes, translatePostgres("loading backup codes", err)
}

const postgresUseBackupCode = `
	DELETE FROM backup_codes WHERE account = (SELECT id FROM accounts WHERE ` + postgresOne + `) AND hash = $3`

func (s postgresAccounts) UseBackupCode(ctx context.Context, company string, id int64, hash string) error {
	return translatePostgres("using backup code", s.write(ctx, func(ctx context.Context, q postgresQueries) error {
		return q.execOr(ctx, record.ErrConflict, postgresUseBackupCode, company, id, hash)
	}))
}
