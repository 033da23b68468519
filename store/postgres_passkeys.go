package store

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/mnemogate/mnemogate/flows/record"
)

// postgresAddPasskey reports whether it stored the passkey and, if not, whether the
// account has too many. The account is locked, so that the count stays true.
const postgresAddPasskey = `
	WITH added AS (
		INSERT INTO passkeys (company, credential, account, user_handle, public_key, sign_count, backup_eligible, backed_up,
			transports, name, created, last_used)
		SELECT company, $3::bytea, id, $4::bytea, $5::bytea, $6::bigint, $7::boolean, $8::boolean, $9, $10, $11::bigint, $12::bigint
		FROM accounts WHERE ` + postgresOne + ` AND (SELECT count(*) FROM passkeys WHERE account = $2) < $13
		ON CONFLICT DO NOTHING
		RETURNING account
	)
	SELECT EXISTS (SELECT 1 FROM added), (SELECT count(*) FROM passkeys WHERE account = $2) >= $13`

func (s postgresAccounts) AddPasskey(ctx context.Context, company string, p record.Passkey, events ...record.OutboxEvent) error {
	return translatePostgres("storing passkey", s.writeWithEvents(ctx, company, &p.Account, events, func(ctx context.Context, q postgresQueries) error {
		var added, full bool
		var b postgresBatch
		b.addOr(record.ErrNotFound, postgresLockAccount, company, p.Account)
		b.addRow(func(row scanner) error { return row.Scan(&added, &full) }, postgresAddPasskey, company, p.Account, p.Credential, p.UserHandle,
			p.PublicKey, int64(p.SignCount), p.BackupEligible, p.BackedUp, p.Transports, p.Name, micros(p.Created), micros(p.LastUsed),
			record.MaxPasskeys)
		err := q.run(ctx, &b)
		switch {
		case err != nil || added:
			return err
		case full:
			return record.ErrConflict
		default:
			return &record.TakenError{Field: "credential"}
		}
	}))
}

const (
	postgresSelectPasskey = `
		SELECT account, credential, user_handle, public_key, sign_count, backup_eligible, backed_up, transports, name, created, last_used
		FROM passkeys`
	postgresPasskeysOf = postgresSelectPasskey + `
		WHERE account = (SELECT id FROM accounts WHERE ` + postgresOne + `) ORDER BY created, credential`
	postgresPasskey = postgresSelectPasskey + ` WHERE company = $1 AND credential = $2`
)

func (s postgresAccounts) Passkeys(ctx context.Context, company string, account int64) (passkeys []record.Passkey, err error) {
	err = s.read(ctx, func(ctx context.Context, q postgresQueries) (err error) {
		passkeys, err = collectPostgres(ctx, q, scanPasskey, postgresPasskeysOf, company, account)
		return err
	})
	return passkeys, translatePostgres("loading passkeys", err)
}

func (s postgresAccounts) Passkey(ctx context.Context, company string, credential []byte) (p record.Passkey, err error) {
	err = s.read(ctx, func(ctx context.Context, q postgresQueries) (err error) {
		p, err = scanPasskey(q.row(ctx, postgresPasskey, company, credential))
		return err
	})
	return p, translatePostgres("loading passkey", err)
}

// postgresUsePasskey locks the passkey, so that the update sees the newest count.
const (
	postgresLockPasskey = `SELECT account FROM passkeys WHERE company = $1 AND credential = $2 FOR UPDATE`
	postgresUsePasskey  = `
		UPDATE passkeys SET sign_count = $3, backed_up = $4, last_used = $5
		WHERE company = $1 AND credential = $2 AND (sign_count < $3 OR sign_count = 0 AND $3 = 0)`
)

func (s postgresAccounts) UsePasskey(ctx context.Context, now time.Time, company string, credential []byte, signCount uint32, backedUp bool) error {
	return translatePostgres("using passkey", s.write(ctx, func(ctx context.Context, q postgresQueries) error {
		var b postgresBatch
		b.addOr(record.ErrNotFound, postgresLockPasskey, company, credential)
		b.addOr(record.ErrConflict, postgresUsePasskey, company, credential, int64(signCount), backedUp, micros(now))
		return q.run(ctx, &b)
	}))
}

const postgresRenamePasskey = `UPDATE passkeys SET name = $4 WHERE company = $1 AND account = $2 AND credential = $3`

func (s postgresAccounts) RenamePasskey(ctx context.Context, company string, account int64, credential []byte, name string) error {
	return translatePostgres("renaming passkey", s.write(ctx, func(ctx context.Context, q postgresQueries) error {
		var b postgresBatch
		b.addOr(record.ErrNotFound, postgresRenamePasskey, company, account, credential, name)
		return q.run(ctx, &b)
	}))
}

// postgresNextGeneration finds no account if a deleted passkey was its last way to log in.
const (
	postgresDeletePasskey  = `DELETE FROM passkeys WHERE company = $1 AND credential = $3 AND account = $2`
	postgresNextGeneration = `
		WITH changed AS (
			UPDATE accounts SET epoch = epoch + 1, updated = $3
			WHERE ` + postgresOne + ` AND (phone <> '' OR password_hash <> '' OR EXISTS (SELECT 1 FROM passkeys WHERE account = $2))
			RETURNING company, id, epoch
		), owed AS (
			INSERT INTO endings (company, account, epoch, keep) SELECT company, id, epoch, $4 FROM changed` + postgresOweLater + `
		)
		SELECT epoch FROM changed`
)

func (s postgresAccounts) DeletePasskey(
	ctx context.Context, now time.Time, company string, account int64, credential []byte, keep record.TokenHash, events ...record.OutboxEvent,
) (generation int64, err error) {
	err = s.transact(ctx, func(ctx context.Context, q postgresQueries) error {
		var b postgresBatch
		b.addOr(record.ErrNotFound, postgresLockAccount, company, account)
		b.addOr(record.ErrNotFound, postgresDeletePasskey, company, account, credential)
		if err := q.run(ctx, &b); err != nil {
			return err
		}
		err := q.row(ctx, postgresNextGeneration, company, account, micros(now), keptBytes(keep)).Scan(&generation)
		if errors.Is(err, pgx.ErrNoRows) {
			return record.ErrConflict
		}
		if err != nil {
			return err
		}
		return q.insertEvents(ctx, company, account, events)
	})
	return generation, translatePostgres("deleting passkey", err)
}
