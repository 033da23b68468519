package sqlstore

import (
	"context"

	"github.com/mnemogate/mnemogate/flows/record"
)

const (
	addPending = `INSERT INTO endings (company, account, epoch, keep) VALUES ($1, $2, $3, $4)` + NewerPending
	// NewerPending is the end of an INSERT INTO endings.
	NewerPending = `
		ON CONFLICT (company, account) DO UPDATE SET epoch = excluded.epoch, keep = excluded.keep
		WHERE excluded.epoch > endings.epoch`
)

// RevokeLater stores a pending revocation and the outbox events of the change that
// causes it.
func (s Accounts) RevokeLater(ctx context.Context, tx Queries, e record.Revocation, events []record.OutboxEvent) error {
	if err := tx.Later(ctx, addPending, e.Company, e.Account, e.Generation, e.Keep.Bytes()); err != nil {
		return err
	}
	return tx.InsertEvents(ctx, e.Company, e.Account, events)
}

const newCompanyGeneration = `
	INSERT INTO eras (company, era) VALUES ($1, 1) ON CONFLICT (company) DO UPDATE SET era = eras.era + 1
	RETURNING era`

func (s Accounts) NewCompanyGeneration(ctx context.Context, company string) (record.Revocation, error) {
	generation, err := ChangeOne(ctx, s, "accounts.new_company_generation: beginning a session generation", ScanValue[int64], newCompanyGeneration, company)
	return record.Revocation{Company: company, Generation: generation}, err
}

// A company's revocation is pending while ended, the generation of its last completed
// revocation, is lower than the one in column era.
const pendingRevocations = `
	SELECT * FROM (SELECT company, account, epoch, keep FROM endings WHERE (company, account) > ($1, $2)
		ORDER BY company, account LIMIT CAST($3 AS bigint)) AS accounts
	UNION ALL
	SELECT * FROM (SELECT company, 0, era, CAST(NULL AS bytea) FROM eras WHERE company > $1 AND ended < era
		ORDER BY company LIMIT CAST($3 AS bigint)) AS companies
	ORDER BY company, account LIMIT CAST($3 AS bigint)`

func (s Accounts) PendingRevocations(ctx context.Context, after record.Revocation, limit int) ([]record.Revocation, error) {
	return QueryAll(ctx, s, "accounts.pending_revocations: loading pending revocations", ScanRevocation, pendingRevocations, after.Company, after.Account, limit)
}

// ScanRevocation reads a row of pendingRevocations.
func ScanRevocation(row Scanner) (e record.Revocation, err error) {
	var keep []byte
	err = row.Scan(&e.Company, &e.Account, &e.Generation, &keep)
	copy(e.Keep[:], keep)
	return e, err
}

const (
	deletePending  = `DELETE FROM endings WHERE company = $1 AND account = $2 AND epoch <= $3`
	companyRevoked = `UPDATE eras SET ended = $2 WHERE company = $1 AND ended < $2`
)

func (s Accounts) RevocationDone(ctx context.Context, e record.Revocation) error {
	if e.Account == 0 {
		return Change(ctx, s, "accounts.revocation_done: completing a revocation", nil, companyRevoked, e.Company, e.Generation)
	}
	return Change(ctx, s, "accounts.revocation_done: completing a revocation", nil, deletePending, e.Company, e.Account, e.Generation)
}
