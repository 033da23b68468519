package store

import (
	"context"

	"github.com/mnemogate/mnemogate/flows/record"
)

const postgresSigningKeys = `SELECT number, sealed, created FROM signing_keys WHERE company = $1 ORDER BY number`

// SigningKeys implements record.SigningKeys.
func (s postgresAccounts) SigningKeys(ctx context.Context, company string) ([]record.SigningKey, error) {
	var keys []record.SigningKey
	err := s.read(ctx, func(ctx context.Context, q postgresQueries) (err error) {
		keys, err = collectPostgres(ctx, q, scanSigningKey, postgresSigningKeys, company)
		return err
	})
	return keys, translatePostgres("loading signing keys", err)
}

const (
	postgresInsertSigningKey  = `INSERT INTO signing_keys (company, number, sealed, created) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING`
	postgresDeleteSigningKeys = `DELETE FROM signing_keys WHERE company = $1 AND number < $2`
)

// AddSigningKey implements record.SigningKeys.
func (s postgresAccounts) AddSigningKey(ctx context.Context, company string, key record.SigningKey) error {
	return translatePostgres("storing a signing key", s.write(ctx, func(ctx context.Context, q postgresQueries) error {
		return q.execOr(ctx, record.ErrConflict, postgresInsertSigningKey, company, key.Number, key.Sealed, micros(key.Created))
	}))
}

// RemoveSigningKeys implements record.SigningKeys.
func (s postgresAccounts) RemoveSigningKeys(ctx context.Context, company string, number int64) error {
	return translatePostgres("removing signing keys", s.write(ctx, func(ctx context.Context, q postgresQueries) error {
		_, err := q.exec(ctx, postgresDeleteSigningKeys, company, number)
		return err
	}))
}

// Interface guard
var _ record.SigningKeys = postgresAccounts{}
