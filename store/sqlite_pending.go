package store

import (
	"context"

	"github.com/mnemogate/mnemogate/flows/record"
)

const sqliteNewCompanyGeneration = `
	INSERT INTO eras (company, era) VALUES (?, 1) ON CONFLICT (company) DO UPDATE SET era = era + 1
	RETURNING company, 0, era, x''`

func (s sqliteAccounts) NewCompanyGeneration(ctx context.Context, company string) (e record.Revocation, err error) {
	err = s.write(ctx, func(ctx context.Context, tx *sqliteQueries) (err error) {
		e, err = scanRevocation(tx.row(ctx, sqliteNewCompanyGeneration, company))
		return err
	})
	return e, translateSQLite("beginning a session generation", err)
}

// A company's revocation is pending while ended, the generation of its last completed
// revocation, is lower than the one in column era.
const sqliteSelectPending = `
	SELECT * FROM (SELECT company, account, epoch, keep FROM endings WHERE (company, account) > (?1, ?2)
		ORDER BY company, account LIMIT +?3)
	UNION ALL
	SELECT * FROM (SELECT company, 0, era, x'' FROM eras WHERE company > ?1 AND ended < era ORDER BY company LIMIT +?3)
	ORDER BY company, account LIMIT +?3`

func (s sqliteAccounts) PendingRevocations(ctx context.Context, after record.Revocation, limit int) ([]record.Revocation, error) {
	var endings []record.Revocation
	err := s.read(ctx, func(ctx context.Context, q *sqliteQueries) (err error) {
		endings, err = collectSQLite(ctx, q, scanRevocation, sqliteSelectPending, after.Company, after.Account, limit)
		return err
	})
	return endings, translateSQLite("loading endings", err)
}

const (
	sqliteDeletePending  = `DELETE FROM endings WHERE company = ?1 AND account = ?2 AND epoch <= ?3`
	sqliteCompanyRevoked = `UPDATE eras SET ended = max(ended, ?3) WHERE company = ?1 AND ?2 = 0`
)

func (s sqliteAccounts) RevocationDone(ctx context.Context, e record.Revocation) error {
	query := sqliteDeletePending
	if e.Account == 0 {
		query = sqliteCompanyRevoked
	}
	return translateSQLite("settling ending", s.write(ctx, func(ctx context.Context, tx *sqliteQueries) error {
		_, err := tx.exec(ctx, query, e.Company, e.Account, e.Generation)
		return err
	}))
}
