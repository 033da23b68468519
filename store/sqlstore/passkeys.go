package sqlstore

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
)

const (
	countPasskeys = `SELECT count(*) FROM passkeys WHERE account = $1`
	setUpdated    = `UPDATE accounts SET updated = $2 WHERE id = $1`
	insertPasskey = `
		INSERT INTO passkeys (company, credential, account, user_handle, public_key, sign_count, backup_eligible, backed_up,
			transports, name, created, last_used)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12) ON CONFLICT DO NOTHING`
)

func (s Accounts) AddPasskey(ctx context.Context, now time.Time, a record.Account, p record.Passkey, events ...record.OutboxEvent) error {
	return transact(ctx, s, "accounts.add_passkey: storing passkey", func(ctx context.Context, tx Queries) error {
		if err := s.lockPresent(ctx, tx, a); err != nil {
			return err
		}
		var has int
		if err := tx.Row(ctx, countPasskeys, a.ID).Scan(&has); err != nil {
			return err
		}
		if has >= record.MaxPasskeys {
			return record.ErrConflict
		}
		if err := insertPasskeys(ctx, tx, a.Company, a.ID, []record.Passkey{p}); err != nil {
			return err
		}
		tx.Later(ctx, setUpdated, a.ID, record.Micros(now))
		s.insertEvents(ctx, tx, a.Company, a.ID, events)
		return nil
	})
}

// insertPasskeys stores passkeys of an account. It returns a TakenError with the field
// credential if the company has one of them.
func insertPasskeys(ctx context.Context, tx Queries, company string, account int64, passkeys []record.Passkey) error {
	for _, p := range passkeys {
		err := ExecOr(ctx, tx, &record.TakenError{Field: "credential"}, insertPasskey, company, p.Credential, account, p.UserHandle,
			p.PublicKey, int64(p.SignCount), p.BackupEligible, p.BackedUp, p.Transports, p.Name, record.Micros(p.Created), record.Micros(p.LastUsed))
		if err != nil {
			return err
		}
	}
	return nil
}

const (
	selectPasskey = `
		SELECT account, credential, user_handle, public_key, sign_count, backup_eligible, backed_up, transports, name, created, last_used
		FROM passkeys`
	passkeysOf = selectPasskey + `
		WHERE account = (SELECT id FROM accounts WHERE ` + oneAccount + `) ORDER BY created, credential`
	passkeyByCredential = selectPasskey + ` WHERE company = $1 AND credential = $2`
)

func (s Accounts) Passkeys(ctx context.Context, company string, account int64) ([]record.Passkey, error) {
	return QueryAll(ctx, s, "accounts.passkeys: loading passkeys", scanPasskey, passkeysOf, company, account)
}

func (s Accounts) Passkey(ctx context.Context, company string, credential []byte) (record.Passkey, error) {
	return QueryOne(ctx, s, "accounts.passkey: loading passkey", scanPasskey, passkeyByCredential, company, credential)
}

func (s Accounts) CompaniesWithPasskey(ctx context.Context, credential []byte) ([]string, error) {
	const query = companies + ` AND (SELECT account FROM passkeys WHERE company = found.company AND credential = $1) IS NOT NULL`
	return QueryAll(ctx, s, "accounts.companies_with_passkey: looking for companies", ScanValue[string], query, credential)
}

func scanPasskey(row Scanner) (p record.Passkey, err error) {
	var signCount int64
	err = row.Scan(&p.Account, &p.Credential, &p.UserHandle, &p.PublicKey, &signCount, &p.BackupEligible, &p.BackedUp,
		&p.Transports, &p.Name, Time(&p.Created), Time(&p.LastUsed))
	p.SignCount = uint32(signCount)
	return p, err
}

const (
	usePasskey = `
		UPDATE passkeys SET sign_count = $3, backed_up = $4, last_used = $5
		WHERE company = $1 AND credential = $2 AND (sign_count < $3 OR sign_count = 0 AND $3 = 0)`
	renamePasskey = `UPDATE passkeys SET name = $4 WHERE company = $1 AND account = $2 AND credential = $3`
	deletePasskey = `DELETE FROM passkeys WHERE company = $1 AND account = $2 AND credential = $3`
	// Returns nothing if a deleted passkey was the account's last way to log in.
	nextGeneration = `
		UPDATE accounts SET generation = generation + 1, updated = $3
		WHERE ` + oneAccount + ` AND (phone <> '' OR password_hash <> '' AND (email <> '' OR login_name <> '') OR
			EXISTS (SELECT 1 FROM identities WHERE account = accounts.id) OR EXISTS (SELECT 1 FROM passkeys WHERE account = accounts.id))
		RETURNING generation`
)

func (s Accounts) UsePasskey(ctx context.Context, now time.Time, company string, credential []byte, signCount uint32, backedUp bool) error {
	return write(ctx, s, "accounts.use_passkey: using passkey", func(ctx context.Context, q Queries) error {
		n, err := q.Exec(ctx, usePasskey, company, credential, int64(signCount), backedUp, record.Micros(now))
		if err != nil || n > 0 {
			return err
		}
		_, err = scanPasskey(q.Row(ctx, passkeyByCredential, company, credential))
		return cmp.Or(err, record.ErrConflict)
	})
}

func (s Accounts) RenamePasskey(ctx context.Context, company string, account int64, credential []byte, name string) error {
	return Change(ctx, s, "accounts.rename_passkey: renaming passkey", record.ErrNotFound, renamePasskey, company, account, credential, name)
}

func (s Accounts) DeletePasskey(
	ctx context.Context, now time.Time, a record.Account, credential []byte, keep record.TokenHash, events ...record.OutboxEvent,
) (next int64, err error) {
	err = transact(ctx, s, "accounts.delete_passkey: deleting passkey", func(ctx context.Context, tx Queries) error {
		present, err := s.lockAndLoad(ctx, tx, a.Company, a.ID)
		if err != nil {
			return err
		}
		if err := ExecOr(ctx, tx, record.ErrNotFound, deletePasskey, a.Company, a.ID, credential); err != nil {
			return err
		}
		if a.Generation != 0 && !present.SameGenerations(a) {
			return record.ErrConflict
		}
		err = tx.Row(ctx, nextGeneration, a.Company, a.ID, record.Micros(now)).Scan(&next)
		if errors.Is(err, sql.ErrNoRows) {
			return record.ErrLastPasskey
		}
		if err != nil {
			return err
		}
		s.revokeLater(ctx, tx, record.Revocation{Company: a.Company, Account: a.ID, Generation: next, Keep: keep}, events)
		return nil
	})
	return next, err
}
