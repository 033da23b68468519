package store

import (
	"context"

	"github.com/mnemogate/mnemogate/flows/record"
)

const postgresNewCompanyGeneration = `
	INSERT INTO eras (company, era) VALUES ($1, 1) ON CONFLICT (company) DO UPDATE SET era = eras.era + 1
	RETURNING company, 0::bigint, era, ''::bytea`

func (s postgresAccounts) NewCompanyGeneration(ctx context.Context, company string) (e record.Revocation, err error) {
	err = s.write(ctx, func(ctx context.Context, q postgresQueries) (err error) {
		e, err = scanRevocation(q.row(ctx, postgresNewCompanyGeneration, company))
		return err
	})
	return e, translatePostgres("beginning a session generation", err)
}

// A company's revocation is pending while ended, the generation of its last
// completed revocation, is lower than the one in column era.
const postgresSelectPending = `
	(SELECT company, account, epoch, keep FROM endings WHERE (company, account) > ($1, $2) ORDER BY company, account LIMIT $3)
	UNION ALL
	(SELECT company, 0, era, '' FROM eras WHERE company > $1 AND ended < era ORDER BY company LIMIT $3)
	ORDER BY company, account LIMIT $3`

func (s postgresAccounts) PendingRevocations(ctx context.Context, after record.Revocation, limit int) ([]record.Revocation, error) {
	var endings []record.Revocation
	err := s.read(ctx, func(ctx context.Context, q postgresQueries) (err error) {
		endings, err = collectPostgres(ctx, q, scanRevocation, postgresSelectPending, after.Company, after.Account, limit)
		return err
	})
	return endings, translatePostgres("loading endings", err)
}

const (
	postgresDeletePending  = `DELETE FROM endings WHERE company = $1 AND account = $2 AND epoch <= $3`
	postgresCompanyRevoked = `UPDATE eras SET ended = greatest(ended, $3) WHERE company = $1 AND $2::bigint = 0`
)

func (s postgresAccounts) RevocationDone(ctx context.Context, e record.Revocation) error {
	query := postgresDeletePending
	if e.Account == 0 {
		query = postgresCompanyRevoked
	}
	return translatePostgres("settling ending", s.write(ctx, func(ctx context.Context, q postgresQueries) error {
		_, err := q.exec(ctx, query, e.Company, e.Account, e.Generation)
		return err
	}))
}
