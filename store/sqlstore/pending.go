package sqlstore

import (
	"context"

	"github.com/mnemogate/mnemogate/flows/record"
)

const addPending = `
	INSERT INTO pending_revocations (company, account, generation, keep) VALUES ($1, $2, $3, $4)
	ON CONFLICT (company, account) DO UPDATE SET generation = excluded.generation, keep = excluded.keep, token = 0
	WHERE excluded.generation > pending_revocations.generation`

// revokeLater stores a pending revocation of an account and the outbox events of the change
// that causes it, and removes the account's devices. The account's row must be locked.
func (s Accounts) revokeLater(ctx context.Context, tx Queries, e record.Revocation, events []record.OutboxEvent) {
	if e.Generation != record.AllGenerations { // the account still exists
		tx.Later(ctx, removeDevices, e.Company, e.Account, "")
		tx.Later(ctx, forgetDevices, e.Company, e.Account)
	}
	tx.Later(ctx, addPending, e.Company, e.Account, e.Generation, e.Keep.Bytes())
	s.insertEvents(ctx, tx, e.Company, e.Account, events)
}

const newCompanyGeneration = `
	INSERT INTO company_generations (company, generation) VALUES ($1, 1) ON CONFLICT (company) DO UPDATE SET generation = company_generations.generation + 1
	RETURNING generation`

func (s Accounts) NewCompanyGeneration(ctx context.Context, company string) (record.Revocation, error) {
	e := record.Revocation{Company: company}
	err := transact(ctx, s, "accounts.new_company_generation: beginning a session generation", func(ctx context.Context, tx Queries) error {
		tx.Later(ctx, s.BeginGeneration, company)
		return tx.Row(ctx, newCompanyGeneration, company).Scan(&e.Generation)
	})
	return e, err
}

// A company's revocation is pending while revoked, the generation of its last completed
// revocation, is lower than generation.
const pendingRevocations = `
	SELECT * FROM (SELECT company, account, generation, keep, token FROM pending_revocations WHERE (company, account) > ($1, $2)
		ORDER BY company, account LIMIT CAST($3 AS bigint)) AS accounts
	UNION ALL
	SELECT * FROM (SELECT company, 0, generation, CAST(NULL AS bytea), 0 FROM company_generations WHERE company > $1 AND revoked < generation
		ORDER BY company LIMIT CAST($3 AS bigint)) AS companies
	ORDER BY company, account LIMIT CAST($3 AS bigint)`

func (s Accounts) PendingRevocations(ctx context.Context, after record.Revocation, limit int) ([]record.Revocation, error) {
	return QueryAll(ctx, s, "accounts.pending_revocations: loading pending revocations", ScanRevocation, pendingRevocations, after.Company, after.Account, limit)
}

// ScanRevocation reads a row of pendingRevocations.
func ScanRevocation(row Scanner) (e record.Revocation, err error) {
	err = row.Scan(&e.Company, &e.Account, &e.Generation, Hash(&e.Keep), &e.Token)
	return e, err
}

const (
	deletePending  = `DELETE FROM pending_revocations WHERE company = $1 AND account = $2 AND generation = $3 AND token = $4`
	companyRevoked = `UPDATE company_generations SET revoked = $2 WHERE company = $1 AND revoked < $2`
)

func (s Accounts) RevocationDone(ctx context.Context, e record.Revocation) error {
	if e.Account == 0 {
		return Change(ctx, s, "accounts.revocation_done: completing a revocation", nil, companyRevoked, e.Company, e.Generation)
	}
	return Change(ctx, s, "accounts.revocation_done: completing a revocation", nil, deletePending, e.Company, e.Account, e.Generation, e.Token)
}
