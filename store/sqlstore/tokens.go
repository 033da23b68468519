package sqlstore

import (
	"context"
	"strings"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
)

const (
	companyGeneration = `coalesce((SELECT generation FROM company_generations WHERE company = accounts.company), 0)`
	countTokens       = `
		SELECT count(*) FROM tokens JOIN accounts ON accounts.id = tokens.account
		WHERE account = $1 AND expires > $2 AND company_generation = ` + companyGeneration
	insertToken = `
		INSERT INTO tokens (account, hash, id, company_generation, name, paths, methods, actor, reason, created, expires, last_used)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, 0)`
	selectToken = `
		SELECT hash, tokens.id, company, account, name, paths, methods, actor, reason, tokens.created, expires, last_used
		FROM tokens JOIN accounts ON accounts.id = tokens.account
		WHERE company_generation = ` + companyGeneration
	tokenByHash = selectToken + ` AND hash = $1`
	tokensOf    = selectToken + ` AND (company = $1) IS TRUE AND account = $2 AND expires > $3 ORDER BY number`
	useToken    = `UPDATE tokens SET last_used = $2 WHERE hash = $1 AND last_used < $2`
	deleteToken = `DELETE FROM tokens WHERE account = $1 AND id = $2 AND (NOT $3 OR actor <> '') RETURNING number`
	// A row that is there is of the present generation, and spares the same session as before.
	addPendingToken = `
		INSERT INTO pending_revocations (company, account, generation, token)
		SELECT company, id, generation, CAST($3 AS bigint) FROM accounts WHERE ` + oneAccount + `
		ON CONFLICT (company, account) DO UPDATE SET token = excluded.token
		RETURNING company, account, generation, keep, token`

	deleteTokens = `DELETE FROM tokens WHERE account = $1`
)

func (s Accounts) AddToken(ctx context.Context, a record.Account, t *record.IssuedToken, limit int) error {
	return transact(ctx, s, "accounts.add_token: storing a token", func(ctx context.Context, tx Queries) error {
		if err := s.lockPresent(ctx, tx, a); err != nil {
			return err
		}
		var has int
		if err := tx.Row(ctx, countTokens, a.ID, record.Micros(t.Created)).Scan(&has); err != nil {
			return err
		}
		if has >= limit {
			return record.ErrConflict
		}
		tx.Later(ctx, insertToken, a.ID, t.Hash[:], t.ID, a.CompanyGeneration, t.Name, strings.Join(t.Paths, "\n"), strings.Join(t.Methods, " "),
			t.Actor, t.Reason, record.Micros(t.Created), record.Micros(t.Expires))
		return nil
	})
}

func (s Accounts) Token(ctx context.Context, hash record.TokenHash) (*record.IssuedToken, error) {
	return QueryOne(ctx, s, "accounts.token: loading a token", scanToken, tokenByHash, hash[:])
}

func (s Accounts) Tokens(ctx context.Context, now time.Time, company string, account int64) ([]*record.IssuedToken, error) {
	return QueryAll(ctx, s, "accounts.tokens: listing tokens", scanToken, tokensOf, company, account, record.Micros(now))
}

func (s Accounts) UseToken(ctx context.Context, hash record.TokenHash, at time.Time) error {
	return Change(ctx, s, "accounts.use_token: noting the use of a token", nil, useToken, hash[:], record.Micros(at))
}

func (s Accounts) DeleteToken(ctx context.Context, company string, account int64, id string, acting bool) (e record.Revocation, err error) {
	err = transact(ctx, s, "accounts.delete_token: removing a token", func(ctx context.Context, tx Queries) error {
		if err := s.lockAccount(ctx, tx, company, account); err != nil {
			return err
		}
		var number int64
		if err := tx.Row(ctx, deleteToken, account, id, acting).Scan(&number); err != nil {
			return err
		}
		e, err = ScanRevocation(tx.Row(ctx, addPendingToken, company, account, number))
		return err
	})
	return e, err
}

func scanToken(row Scanner) (*record.IssuedToken, error) {
	var t record.IssuedToken
	var paths, methods string
	err := row.Scan(Hash(&t.Hash), &t.ID, &t.Company, &t.Account, &t.Name, &paths, &methods, &t.Actor, &t.Reason,
		Time(&t.Created), Time(&t.Expires), Time(&t.LastUsed))
	t.Paths, t.Methods = strings.Split(paths, "\n"), strings.Fields(methods)
	return &t, err
}
