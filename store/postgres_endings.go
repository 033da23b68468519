package store

import (
	"context"

	"github.com/mnemogate/mnemogate/flows/record"
)

const postgresNewEra = `
	INSERT INTO eras (company, era) VALUES ($1, 1) ON CONFLICT (company) DO UPDATE SET era = eras.era + 1
	RETURNING company, 0::bigint, era, ''::bytea`

func (s postgresAccounts) NewEra(ctx context.Context, company string) (e record.Ending, err error) {
	err = s.write(ctx, func(ctx context.Context, q postgresQueries) (err error) {
		e, err = scanEnding(q.row(ctx, postgresNewEra, company))
		return err
	})
	return e, translatePostgres("beginning an era", err)
}

// An ending of a company is owed until its era is the one that was ended.
const postgresSelectEndings = `
	(SELECT company, account, epoch, keep FROM endings WHERE (company, account) > ($1, $2) ORDER BY company, account LIMIT $3)
	UNION ALL
	(SELECT company, 0, era, '' FROM eras WHERE company > $1 AND ended < era ORDER BY company LIMIT $3)
	ORDER BY company, account LIMIT $3`

func (s postgresAccounts) Endings(ctx context.Context, after record.Ending, limit int) ([]record.Ending, error) {
	var endings []record.Ending
	err := s.read(ctx, func(ctx context.Context, q postgresQueries) (err error) {
		endings, err = collectPostgres(ctx, q, scanEnding, postgresSelectEndings, after.Company, after.Account, limit)
		return err
	})
	return endings, translatePostgres("loading endings", err)
}

const (
	postgresDeleteEnding = `DELETE FROM endings WHERE company = $1 AND account = $2 AND epoch <= $3`
	postgresEraEnded     = `UPDATE eras SET ended = greatest(ended, $3) WHERE company = $1 AND $2::bigint = 0`
)

func (s postgresAccounts) Ended(ctx context.Context, e record.Ending) error {
	query := postgresDeleteEnding
	if e.Account == 0 {
		query = postgresEraEnded
	}
	return translatePostgres("settling ending", s.write(ctx, func(ctx context.Context, q postgresQueries) error {
		_, err := q.exec(ctx, query, e.Company, e.Account, e.Epoch)
		return err
	}))
}
