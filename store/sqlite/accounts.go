package sqlite

import (
	"context"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/store/sqlstore"
)

// accounts implements record.Accounts for SQLite.
type accounts struct {
	*Store
	sqlstore.Accounts
}

var dialect = sqlstore.Dialect{
	JSON: func(object, from string) string {
		return `(SELECT json_group_array(json_object(` + object + `)) FROM ` + from + `)`
	},
	Position: "instr",
	// One transaction writes at a time.
	HoldGeneration:  `SELECT 1`,
	BeginGeneration: `SELECT 1`,
	// SQLite ignores arguments that a statement has no place for.
	InsertEvents: []string{
		`INSERT INTO outbox_queues (company, queue, due) VALUES ($1, ` + queueOf + `, $4) ON CONFLICT DO NOTHING`,
		`INSERT INTO outbox (company, queue, account, id, type, body, at, traceparent) VALUES ($1, ` + queueOf + `, $2, $5, $6, $7, $4, $8)`,
	},
	ClaimQueues: `
		UPDATE outbox_queues SET due = ?3, claim = ?4
		WHERE company = ?1 AND queue IN (SELECT queue FROM outbox_queues WHERE company = ?1 AND due <= ?2 ORDER BY due LIMIT +?5)
		RETURNING queue, tries`,
	Chunk: sweepChunk,
	DeleteSome: func(table, condition, key, _ string) string {
		return `DELETE FROM ` + table + ` WHERE (` + key + `) IN (SELECT ` + key + ` FROM ` + table + ` WHERE ` + condition + ` LIMIT +$2)`
	},
}.Complete()

const queueOf = `coalesce((SELECT queue FROM outbox WHERE company = $1 AND account = $2 ORDER BY number DESC LIMIT 1), $3)`

const (
	mnemocodeTaken = `SELECT EXISTS (SELECT 1 FROM accounts WHERE company = ? AND mnemocode = ? AND id <> ?)`
	loginIDTaken   = `SELECT EXISTS (SELECT 1 FROM login_ids WHERE company = ? AND login_id = ? AND account <> ?)`
	identityTaken  = `
		SELECT EXISTS (SELECT 1 FROM identities WHERE company = ? AND provider = ? AND subject = ? AND account <> ?)`
)

// RefuseTaken implements sqlstore.Queries. No other write can happen within the transaction. The
// primary keys would also refuse the account, but without naming the field.
func (tx *queries) RefuseTaken(ctx context.Context, before, a record.Account) error {
	check := func(field, query string, args ...any) error {
		var taken bool
		if err := tx.Row(ctx, query, args...).Scan(&taken); err != nil {
			return err
		}
		if taken {
			return &record.TakenError{Field: field}
		}
		return nil
	}
	if err := check("profile_mnemocode", mnemocodeTaken, a.Company, a.Mnemocode, a.ID); err != nil {
		return err
	}
	for field, id := range sqlstore.NewLoginIDs(before, a) {
		if err := check(field, loginIDTaken, a.Company, id, a.ID); err != nil {
			return err
		}
	}
	for _, i := range a.Identities {
		if err := check("oauth_identities", identityTaken, a.Company, i.Provider, i.Subject, a.ID); err != nil {
			return err
		}
	}
	return nil
}

// Sweep also empties the log, where it can.
func (s accounts) Sweep(ctx context.Context, now time.Time) error {
	if err := s.Accounts.Sweep(ctx, now); err != nil {
		return err
	}
	if s.holding.Load() > 0 {
		return nil // their reading needs the log; the next sweep empties it
	}
	return sqlstore.Call(ctx, s.Store, "emptying the log", func() error { return s.emptyLog(ctx) })
}
