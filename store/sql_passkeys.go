package store

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
)

const (
	sqlCountPasskeys = `SELECT count(*) FROM passkeys WHERE account = $1`
	sqlInsertPasskey = `
		INSERT INTO passkeys (company, credential, account, user_handle, public_key, sign_count, backup_eligible, backed_up,
			transports, name, created, last_used)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12) ON CONFLICT DO NOTHING`
)

func (s sqlAccounts) AddPasskey(ctx context.Context, company string, p record.Passkey, events ...record.OutboxEvent) error {
	return translate("storing passkey", s.transaction(ctx, func(ctx context.Context, tx queries) error {
		if err := s.lockAccount(ctx, tx, company, p.Account); err != nil {
			return err
		}
		var has int
		if err := tx.row(ctx, sqlCountPasskeys, p.Account).Scan(&has); err != nil {
			return err
		}
		if has >= record.MaxPasskeys {
			return record.ErrConflict
		}
		err := execOr(ctx, tx, &record.TakenError{Field: "credential"}, sqlInsertPasskey, company, p.Credential, p.Account, p.UserHandle,
			p.PublicKey, int64(p.SignCount), p.BackupEligible, p.BackedUp, p.Transports, p.Name, micros(p.Created), micros(p.LastUsed))
		if err != nil {
			return err
		}
		return tx.insertEvents(ctx, company, p.Account, events)
	}))
}

const (
	sqlSelectPasskey = `
		SELECT account, credential, user_handle, public_key, sign_count, backup_eligible, backed_up, transports, name, created, last_used
		FROM passkeys`
	sqlPasskeysOf = sqlSelectPasskey + `
		WHERE account = (SELECT id FROM accounts WHERE ` + oneAccount + `) ORDER BY created, credential`
	sqlPasskey = sqlSelectPasskey + ` WHERE company = $1 AND credential = $2`
)

func (s sqlAccounts) Passkeys(ctx context.Context, company string, account int64) ([]record.Passkey, error) {
	return queryAll(ctx, s, "loading passkeys", scanPasskey, sqlPasskeysOf, company, account)
}

func (s sqlAccounts) Passkey(ctx context.Context, company string, credential []byte) (record.Passkey, error) {
	return queryOne(ctx, s, "loading passkey", scanPasskey, sqlPasskey, company, credential)
}

func scanPasskey(row scanner) (p record.Passkey, err error) {
	var signCount, created, used int64
	err = row.Scan(&p.Account, &p.Credential, &p.UserHandle, &p.PublicKey, &signCount, &p.BackupEligible, &p.BackedUp,
		&p.Transports, &p.Name, &created, &used)
	p.SignCount, p.Created, p.LastUsed = uint32(signCount), fromMicros(created), fromMicros(used)
	return p, err
}

const (
	sqlUsePasskey = `
		UPDATE passkeys SET sign_count = $3, backed_up = $4, last_used = $5
		WHERE company = $1 AND credential = $2 AND (sign_count < $3 OR sign_count = 0 AND $3 = 0)`
	sqlRenamePasskey = `UPDATE passkeys SET name = $4 WHERE company = $1 AND account = $2 AND credential = $3`
	sqlDeletePasskey = `DELETE FROM passkeys WHERE company = $1 AND account = $2 AND credential = $3`
	// Returns nothing if a deleted passkey was the account's last way to log in.
	sqlNextGeneration = `
		UPDATE accounts SET epoch = epoch + 1, updated = $3
		WHERE ` + oneAccount + ` AND (phone <> '' OR password_hash <> '' OR
			EXISTS (SELECT 1 FROM identities WHERE account = accounts.id) OR EXISTS (SELECT 1 FROM passkeys WHERE account = accounts.id))
		RETURNING epoch`
)

func (s sqlAccounts) UsePasskey(ctx context.Context, now time.Time, company string, credential []byte, signCount uint32, backedUp bool) error {
	return translate("using passkey", s.writing(ctx, func(ctx context.Context, q queries) error {
		n, err := q.exec(ctx, sqlUsePasskey, company, credential, int64(signCount), backedUp, micros(now))
		if err != nil || n > 0 {
			return err
		}
		_, err = scanPasskey(q.row(ctx, sqlPasskey, company, credential))
		return cmp.Or(err, record.ErrConflict)
	}))
}

func (s sqlAccounts) RenamePasskey(ctx context.Context, company string, account int64, credential []byte, name string) error {
	return change(ctx, s, "renaming passkey", record.ErrNotFound, sqlRenamePasskey, company, account, credential, name)
}

func (s sqlAccounts) DeletePasskey(
	ctx context.Context, now time.Time, company string, account int64, credential []byte, keep record.TokenHash, events ...record.OutboxEvent,
) (generation int64, err error) {
	err = s.transaction(ctx, func(ctx context.Context, tx queries) error {
		if err := s.lockAccount(ctx, tx, company, account); err != nil {
			return err
		}
		if err := execOr(ctx, tx, record.ErrNotFound, sqlDeletePasskey, company, account, credential); err != nil {
			return err
		}
		err := tx.row(ctx, sqlNextGeneration, company, account, micros(now)).Scan(&generation)
		if errors.Is(err, sql.ErrNoRows) {
			return record.ErrConflict
		}
		if err != nil {
			return err
		}
		return s.revokeLater(ctx, tx, record.Revocation{Company: company, Account: account, Generation: generation, Keep: keep}, events)
	})
	return generation, translate("deleting passkey", err)
}
