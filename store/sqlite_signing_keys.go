package store

import (
	"context"

	"github.com/mnemogate/mnemogate/flows/record"
)

const sqliteSigningKeys = `SELECT number, sealed, created FROM signing_keys WHERE company = ? ORDER BY number`

// SigningKeys implements record.SigningKeys.
func (s sqliteAccounts) SigningKeys(ctx context.Context, company string) ([]record.SigningKey, error) {
	var keys []record.SigningKey
	err := s.read(ctx, func(ctx context.Context, q *sqliteQueries) (err error) {
		keys, err = collectSQLite(ctx, q, scanSigningKey, sqliteSigningKeys, company)
		return err
	})
	return keys, translateSQLite("loading signing keys", err)
}

const (
	sqliteInsertSigningKey  = `INSERT INTO signing_keys (company, number, sealed, created) VALUES (?, ?, ?, ?)`
	sqliteDeleteSigningKeys = `DELETE FROM signing_keys WHERE company = ? AND number < ?`
)

// AddSigningKey implements record.SigningKeys.
func (s sqliteAccounts) AddSigningKey(ctx context.Context, company string, key record.SigningKey) error {
	return translateSQLite("storing a signing key", s.write(ctx, func(ctx context.Context, tx *sqliteQueries) error {
		_, err := tx.exec(ctx, sqliteInsertSigningKey, company, key.Number, key.Sealed, micros(key.Created))
		return err
	}))
}

// RemoveSigningKeys implements record.SigningKeys.
func (s sqliteAccounts) RemoveSigningKeys(ctx context.Context, company string, number int64) error {
	return translateSQLite("removing signing keys", s.write(ctx, func(ctx context.Context, tx *sqliteQueries) error {
		_, err := tx.exec(ctx, sqliteDeleteSigningKeys, company, number)
		return err
	}))
}

// Interface guard
var _ record.SigningKeys = sqliteAccounts{}
