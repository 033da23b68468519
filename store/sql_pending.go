package store

import (
	"context"

	"github.com/mnemogate/mnemogate/flows/record"
)

const (
	sqlAddPending = `INSERT INTO endings (company, account, epoch, keep) VALUES ($1, $2, $3, $4)` + sqlNewerPending
	// sqlNewerPending is the end of an INSERT INTO endings.
	sqlNewerPending = `
		ON CONFLICT (company, account) DO UPDATE SET epoch = excluded.epoch, keep = excluded.keep
		WHERE excluded.epoch > endings.epoch`
)

// revokeLater stores a pending revocation and the outbox events of the change that
// causes it.
func (s sqlAccounts) revokeLater(ctx context.Context, tx queries, e record.Revocation, events []record.OutboxEvent) error {
	if err := tx.later(ctx, sqlAddPending, e.Company, e.Account, e.Generation, keptBytes(e.Keep)); err != nil {
		return err
	}
	return tx.insertEvents(ctx, e.Company, e.Account, events)
}

// keptBytes returns Revocation.Keep as it is stored. It is empty if there is none.
func keptBytes(keep record.TokenHash) []byte {
	if keep == (record.TokenHash{}) {
		return []byte{}
	}
	return keep[:]
}

const sqlNewCompanyGeneration = `
	INSERT INTO eras (company, era) VALUES ($1, 1) ON CONFLICT (company) DO UPDATE SET era = eras.era + 1
	RETURNING era`

func (s sqlAccounts) NewCompanyGeneration(ctx context.Context, company string) (record.Revocation, error) {
	generation, err := changeOne(ctx, s, "beginning a session generation", scanValue[int64], sqlNewCompanyGeneration, company)
	return record.Revocation{Company: company, Generation: generation}, err
}

// A company's revocation is pending while ended, the generation of its last completed
// revocation, is lower than the one in column era.
const sqlPendingRevocations = `
	SELECT * FROM (SELECT company, account, epoch, keep FROM endings WHERE (company, account) > ($1, $2)
		ORDER BY company, account LIMIT CAST($3 AS bigint)) AS accounts
	UNION ALL
	SELECT * FROM (SELECT company, 0, era, CAST(NULL AS bytea) FROM eras WHERE company > $1 AND ended < era
		ORDER BY company LIMIT CAST($3 AS bigint)) AS companies
	ORDER BY company, account LIMIT CAST($3 AS bigint)`

func (s sqlAccounts) PendingRevocations(ctx context.Context, after record.Revocation, limit int) ([]record.Revocation, error) {
	return queryAll(ctx, s, "loading pending revocations", scanRevocation, sqlPendingRevocations, after.Company, after.Account, limit)
}

func scanRevocation(row scanner) (e record.Revocation, err error) {
	var keep []byte
	err = row.Scan(&e.Company, &e.Account, &e.Generation, &keep)
	copy(e.Keep[:], keep)
	return e, err
}

const (
	sqlDeletePending  = `DELETE FROM endings WHERE company = $1 AND account = $2 AND epoch <= $3`
	sqlCompanyRevoked = `UPDATE eras SET ended = $2 WHERE company = $1 AND ended < $2`
)

func (s sqlAccounts) RevocationDone(ctx context.Context, e record.Revocation) error {
	if e.Account == 0 {
		return change(ctx, s, "completing a revocation", nil, sqlCompanyRevoked, e.Company, e.Generation)
	}
	return change(ctx, s, "completing a revocation", nil, sqlDeletePending, e.Company, e.Account, e.Generation)
}
