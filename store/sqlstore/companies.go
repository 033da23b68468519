package sqlstore

import (
	"context"
	"database/sql"
	"errors"

	"github.com/mnemogate/mnemogate/flows/record"
)

const (
	// Conflicts that RefuseTaken can't see, because an account is loaded without its PhoneRegion
	// and passkeys.
	takenLoginID = `SELECT account FROM login_ids AS mine WHERE account = $1 AND (SELECT account FROM login_ids WHERE company = $2 AND login_id = mine.login_id) <> $1 LIMIT 1`
	takenPasskey = `SELECT account FROM passkeys AS mine WHERE account = $1 AND (SELECT account FROM passkeys WHERE company = $2 AND credential = mine.credential) <> $1 LIMIT 1`

	moveLoginIDs   = `UPDATE login_ids SET company = $2 WHERE account = $1`
	moveIdentities = `UPDATE identities SET company = $2 WHERE account = $1`
	movePasskeys   = `UPDATE passkeys SET company = $2 WHERE account = $1`
	deleteDevices  = `DELETE FROM devices WHERE account = $1`
	moveFailures   = `UPDATE failures SET company = $3 WHERE company = $1 AND account = CAST($2 AS bigint)`
	moveAccount    = `UPDATE accounts SET company = $2, totp = $3, totp_pending = $4 WHERE id = $1`
)

func (s Accounts) MoveAccount(ctx context.Context, company string, id int64, to string, change func(*record.Account)) error {
	return transact(ctx, s, "accounts.move_account: moving an account", func(ctx context.Context, tx Queries) error {
		a, err := s.lockAndLoad(ctx, tx, company, id)
		if err != nil {
			return err
		}
		a.Company = to
		change(&a)
		if err := tx.RefuseTaken(ctx, record.Account{}, a); err != nil {
			return err
		}
		for _, taken := range [...]struct{ field, query string }{{"login_name", takenLoginID}, {"credential", takenPasskey}} {
			if _, err := ScanValue[int64](tx.Row(ctx, taken.query, id, to)); err == nil {
				return &record.TakenError{Field: taken.field}
			} else if !errors.Is(err, sql.ErrNoRows) {
				return err
			}
		}
		tx.Later(ctx, moveLoginIDs, id, to)
		tx.Later(ctx, moveIdentities, id, to)
		tx.Later(ctx, movePasskeys, id, to)
		tx.Later(ctx, deleteDevices, id)
		tx.Later(ctx, deleteTokens, id)
		tx.Later(ctx, forgetDevices, company, id)
		tx.Later(ctx, moveFailures, company, id, to)
		tx.Later(ctx, moveAccount, id, to, a.TOTP, a.TOTPPending)
		return nil
	})
}

const (
	inheritSeeds = `INSERT INTO seeds (company, mnemocode) SELECT $2, mnemocode FROM seeds WHERE company = $1 ON CONFLICT DO NOTHING`

	lastQueue  = `SELECT coalesce(max(queue), '') FROM (SELECT queue FROM outbox_queues WHERE company = $1 ORDER BY queue LIMIT CAST($2 AS bigint)) AS first`
	moveQueues = `INSERT INTO outbox_queues (company, queue, due, tries) SELECT $2, queue, due, tries FROM outbox_queues WHERE company = $1 AND queue <= $3
		ON CONFLICT (company, queue) DO UPDATE SET tries = outbox_queues.tries -- as it is: see insertEvents of PostgreSQL`
	moveEvents   = `UPDATE outbox SET company = $2 WHERE company = $1 AND queue <= $3`
	deleteQueues = `DELETE FROM outbox_queues WHERE company = $1 AND queue <= $2`
)

// moveOutbox moves the events of a company, which gets no new ones, to its heir. Each queue
// moves with its events, because events without one would never be delivered.
func (s Accounts) moveOutbox(ctx context.Context, company, heir string) error {
	for {
		last := ""
		err := s.Transaction(ctx, func(ctx context.Context, tx Queries) error {
			if err := tx.Row(ctx, lastQueue, company, s.Chunk).Scan(&last); err != nil {
				return err
			}
			tx.Later(ctx, moveQueues, company, heir, last)
			tx.Later(ctx, moveEvents, company, heir, last)
			tx.Later(ctx, deleteQueues, company, last)
			return nil
		})
		if err != nil || last == "" {
			return err
		}
	}
}

func (s Accounts) ForgetCompany(ctx context.Context, company, heir string) error {
	tables := [][2]string{{"failures", "company, account, login_id, kind"}, {"seeds", "company, mnemocode"}, {"signing_keys", "company, number"}}
	if heir == "" {
		tables = append(tables, [2]string{"outbox", "company, queue, number"}, [2]string{"outbox_queues", "company, queue"})
	}
	return Call(ctx, s, "accounts.forget_company: forgetting a company", func() error {
		if heir != "" {
			err := s.Writing(ctx, func(ctx context.Context, q Queries) error { return ExecOr(ctx, q, nil, inheritSeeds, company, heir) })
			if err == nil {
				err = s.moveOutbox(ctx, company, heir)
			}
			if err != nil {
				return err
			}
		}
		for _, t := range tables {
			if err := sweep(ctx, s, s.DeleteSome(t[0], "company = $1", t[1], t[1]), company, s.Chunk); err != nil {
				return err
			}
		}
		return nil
	})
}
