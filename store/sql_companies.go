package store

import (
	"context"
	"errors"

	"github.com/mnemogate/mnemogate/flows/record"
)

const (
	sqlMoveLoginIDs         = `UPDATE login_ids SET company = $2 WHERE account = $1`
	sqlMoveIdentities       = `UPDATE identities SET company = $2 WHERE account = $1`
	sqlMovePasskeys         = `UPDATE passkeys SET company = $2 WHERE account = $1`
	sqlDeleteDevices        = `DELETE FROM devices WHERE account = $1`
	sqlDeleteDeviceFailures = `DELETE FROM tallies WHERE company = $1 AND account = CAST($2 AS bigint) AND login_id <> ''`
	sqlMoveFailures         = `UPDATE tallies SET company = $3 WHERE company = $1 AND account = CAST($2 AS bigint)`
	sqlMoveAccount          = `UPDATE accounts SET company = $2, totp = $3, totp_pending = $4 WHERE id = $1`
)

// MoveAccount implements record.Companies.
func (s sqlAccounts) MoveAccount(ctx context.Context, company string, id int64, to string, change func(*record.Account)) error {
	return translate("moving an account", s.transaction(ctx, func(ctx context.Context, tx queries) error {
		if err := s.lockAccount(ctx, tx, company, id); err != nil {
			return err
		}
		a, err := accountScan(s.text)(tx.row(ctx, s.accountByID, company, id))
		if err != nil {
			return err
		}
		a.Company = to
		change(&a)
		if err := tx.refuseTaken(ctx, record.Account{}, a); err != nil {
			return err
		}
		return errors.Join(
			tx.later(ctx, sqlMoveLoginIDs, id, to),
			tx.later(ctx, sqlMoveIdentities, id, to),
			tx.later(ctx, sqlMovePasskeys, id, to),
			tx.later(ctx, sqlDeleteDevices, id),
			tx.later(ctx, sqlDeleteDeviceFailures, company, id),
			tx.later(ctx, sqlMoveFailures, company, id, to),
			tx.later(ctx, sqlMoveAccount, id, to, a.TOTP, a.TOTPPending),
		)
	}))
}

const sqlInheritSeeds = `INSERT INTO seeds (company, mnemocode) SELECT $2, mnemocode FROM seeds WHERE company = $1 ON CONFLICT DO NOTHING`

// ForgetCompany implements record.Companies.
func (s sqlAccounts) ForgetCompany(ctx context.Context, company, heir string) error {
	tables := [][2]string{{"tallies", "company, account, login_id, kind"}, {"seeds", "company, mnemocode"}, {"signing_keys", "company, number"}}
	if heir == "" {
		tables = append(tables, [2]string{"outbox", "company, queue, number"}, [2]string{"outbox_queues", "company, queue"})
	} else if err := change(ctx, s, "handing on the configured accounts", nil, sqlInheritSeeds, company, heir); err != nil {
		return err
	}
	for _, t := range tables {
		if err := sweep(ctx, s, "forgetting a company", s.forgetOf(t[0], t[1]), company, s.chunk); err != nil {
			return err
		}
	}
	return nil
}
