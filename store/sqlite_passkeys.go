package store

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
)

const (
	sqliteCountPasskeys = `SELECT count(*) FROM passkeys WHERE account = ?`
	sqliteInsertPasskey = `
		INSERT INTO passkeys (company, credential, account, user_handle, public_key, sign_count, backup_eligible, backed_up,
			transports, name, created, last_used)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING`
)

func (s sqliteAccounts) AddPasskey(ctx context.Context, company string, p record.Passkey, events ...record.OutboxEvent) error {
	return translateSQLite("storing passkey", s.write(ctx, func(ctx context.Context, tx *sqliteQueries) error {
		if err := tx.row(ctx, sqliteAccountExists, company, p.Account).Scan(&p.Account); err != nil {
			return err
		}
		var has int
		if err := tx.row(ctx, sqliteCountPasskeys, p.Account).Scan(&has); err != nil {
			return err
		}
		if has >= record.MaxPasskeys {
			return record.ErrConflict
		}
		err := tx.execOr(ctx, &record.TakenError{Field: "credential"}, sqliteInsertPasskey, company, p.Credential, p.Account, p.UserHandle,
			p.PublicKey, int64(p.SignCount), p.BackupEligible, p.BackedUp, p.Transports, p.Name, micros(p.Created), micros(p.LastUsed))
		if err != nil {
			return err
		}
		return tx.insertEvents(ctx, company, p.Account, events)
	}))
}

const (
	sqliteSelectPasskey = `
		SELECT account, credential, user_handle, public_key, sign_count, backup_eligible, backed_up, transports, name, created, last_used
		FROM passkeys`
	sqlitePasskeysOf = sqliteSelectPasskey + `
		WHERE account = (SELECT id FROM accounts WHERE company = ? AND id = ?) ORDER BY created, credential`
	sqlitePasskey = sqliteSelectPasskey + ` WHERE company = ? AND credential = ?`
)

func (s sqliteAccounts) Passkeys(ctx context.Context, company string, account int64) (passkeys []record.Passkey, err error) {
	err = s.read(ctx, func(ctx context.Context, q *sqliteQueries) (err error) {
		passkeys, err = collectSQLite(ctx, q, scanPasskey, sqlitePasskeysOf, company, account)
		return err
	})
	return passkeys, translateSQLite("loading passkeys", err)
}

func (s sqliteAccounts) Passkey(ctx context.Context, company string, credential []byte) (p record.Passkey, err error) {
	err = s.read(ctx, func(ctx context.Context, q *sqliteQueries) (err error) {
		p, err = scanPasskey(q.row(ctx, sqlitePasskey, company, credential))
		return err
	})
	return p, translateSQLite("loading passkey", err)
}

const (
	sqliteUsePasskey = `
		UPDATE passkeys SET sign_count = ?3, backed_up = ?4, last_used = ?5
		WHERE company = ?1 AND credential = ?2 AND (sign_count < ?3 OR sign_count = 0 AND ?3 = 0)`
	sqlitePasskeyExists = `SELECT 1 FROM passkeys WHERE company = ? AND credential = ?`
)

func (s sqliteAccounts) UsePasskey(ctx context.Context, now time.Time, company string, credential []byte, signCount uint32, backedUp bool) error {
	return translateSQLite("using passkey", s.write(ctx, func(ctx context.Context, tx *sqliteQueries) error {
		var one int
		if err := tx.row(ctx, sqlitePasskeyExists, company, credential).Scan(&one); err != nil {
			return err
		}
		return tx.execOr(ctx, record.ErrConflict, sqliteUsePasskey, company, credential, int64(signCount), backedUp, micros(now))
	}))
}

const sqliteRenamePasskey = `UPDATE passkeys SET name = ? WHERE company = ? AND account = ? AND credential = ?`

func (s sqliteAccounts) RenamePasskey(ctx context.Context, company string, account int64, credential []byte, name string) error {
	return translateSQLite("renaming passkey", s.write(ctx, func(ctx context.Context, tx *sqliteQueries) error {
		return tx.execOr(ctx, record.ErrNotFound, sqliteRenamePasskey, name, company, account, credential)
	}))
}

const (
	sqliteDeletePasskey = `DELETE FROM passkeys WHERE company = ? AND account = ? AND credential = ?`
	// The account keeps a way to log in, or nothing is returned.
	sqliteNextGeneration = `
		UPDATE accounts SET epoch = epoch + 1, updated = ?
		WHERE company = ? AND id = ? AND (phone <> '' OR password_hash <> '' OR EXISTS (SELECT 1 FROM passkeys WHERE account = accounts.id))
		RETURNING epoch`
)

func (s sqliteAccounts) DeletePasskey(
	ctx context.Context, now time.Time, company string, account int64, credential []byte, keep record.TokenHash, events ...record.OutboxEvent,
) (generation int64, err error) {
	err = s.write(ctx, func(ctx context.Context, tx *sqliteQueries) error {
		if err := tx.execOr(ctx, record.ErrNotFound, sqliteDeletePasskey, company, account, credential); err != nil {
			return err
		}
		err := tx.row(ctx, sqliteNextGeneration, micros(now), company, account).Scan(&generation)
		if errors.Is(err, sql.ErrNoRows) {
			return record.ErrConflict
		}
		if err != nil {
			return err
		}
		if _, err := tx.exec(ctx, sqliteAddPending, company, account, generation, keptBytes(keep)); err != nil {
			return err
		}
		return tx.insertEvents(ctx, company, account, events)
	})
	return generation, translateSQLite("deleting passkey", err)
}
