package sqlite

import (
	"context"
	"errors"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/store/sqlstore"
)

const deleteSession = `DELETE FROM sessions WHERE hash = ? AND` + notEnded

func (s sessions) Delete(ctx context.Context, hash record.TokenHash) error {
	return sqlstore.Change(ctx, s, "sessions.delete: ending session", record.ErrNotFound, deleteSession, hash[:])
}

const deleteID = `
	DELETE FROM sessions
	WHERE company = ? AND account = ? AND id = ? AND state <> ? AND expires > ? AND` + notEnded + `
	RETURNING ` + sessionColumns

func (s sessions) DeleteID(ctx context.Context, now time.Time, company string, account int64, id string) (record.Session, error) {
	return sqlstore.ChangeOne(ctx, s, "sessions.delete_id: ending session", scanSession, deleteID, company, account, id, string(record.MailedLink), record.Micros(now))
}

const deleteOthers = `
	DELETE FROM sessions
	WHERE company = ? AND account = ? AND state = ? AND expires > ? AND hash <> ? AND` + notEnded + `
	RETURNING ` + sessionColumns

func (s sessions) DeleteOthers(ctx context.Context, now time.Time, company string, account int64, keep record.TokenHash) (ended []record.Session, err error) {
	err = s.call(ctx, "sessions.delete_others: ending sessions", func(ctx context.Context, tx *queries) (err error) {
		ended, err = sqlstore.Collect(ctx, tx, scanSession, deleteOthers, company, account, string(record.Authorized), record.Micros(now), keep[:])
		return err
	})
	return ended, err
}

const (
	keepSession = `
		UPDATE sessions SET generation = generation + 1
		WHERE hash = ? AND company = ? AND account = ? AND generation = ? AND state = ? AND` + notEnded
	storeMarker = `
		INSERT INTO revocations (company, account, generation, expires, uncleared) VALUES (?, ?, ?, ?, 1)
		ON CONFLICT (company, account) DO UPDATE
		SET generation = max(generation, excluded.generation), expires = max(expires, excluded.expires), uncleared = 1`
	clearEnded = `
		DELETE FROM sessions WHERE hash IN
			(SELECT hash FROM sessions WHERE company = ? AND account = ? AND generation < ? LIMIT +?)
		RETURNING ` + sessionColumns
	insertRevoked = `
		INSERT OR IGNORE INTO revoked (hash, company, account, generation, company_generation, state, expires) VALUES (?, ?, ?, ?, ?, ?, ?)`
	cleared = `UPDATE revocations SET uncleared = 0 WHERE company = ? AND account = ? AND generation = ?`
)

// End deletes the rows of an account at once, up to as many as an account usually
// has. The sweep deletes the rest, and all rows of a company.
func (s sessions) End(ctx context.Context, now time.Time, e record.Revocation) error {
	return s.call(ctx, "sessions.end: ending sessions", func(ctx context.Context, tx *queries) error {
		tx.Later(ctx, keepSession, e.Keep[:], e.Company, e.Account, e.Generation-1, string(record.Authorized))
		tx.Later(ctx, storeMarker, e.Company, e.Account, e.Generation, record.Micros(now.Add(e.MarkerLife())))
		if e.Account == 0 {
			return nil
		}
		return tx.clearEnded(ctx, now, e)
	})
}

// clearEnded deletes up to clearChunk revoked sessions of an account, and
// records if none is left. For those that have not expired it keeps what Revoked
// returns.
func (tx *queries) clearEnded(ctx context.Context, now time.Time, e record.Revocation) error {
	ended, err := sqlstore.Collect(ctx, tx, scanSession, clearEnded, e.Company, e.Account, e.Generation, clearChunk)
	if err != nil {
		return err
	}
	for _, s := range ended {
		if s.Expires.After(now) {
			tx.Later(ctx, insertRevoked, s.Hash[:], s.Company, s.Account, s.Generation, s.CompanyGeneration, string(s.State), record.Micros(s.Expires))
		}
	}
	if len(ended) < clearChunk {
		tx.Later(ctx, cleared, e.Company, e.Account, e.Generation)
	}
	return nil
}

// Each of these statements reads only rows that it deletes, because all writes wait
// for it.
const (
	sweepSessions = `
		DELETE FROM sessions WHERE hash IN (SELECT hash FROM sessions WHERE expires > 0 AND expires < ? LIMIT +?)`
	// Deletes sessions that Expire has marked. SQLite itself would choose the index
	// of expires.
	sweepExpired = `
		DELETE FROM sessions WHERE hash IN
			(SELECT hash FROM sessions INDEXED BY sessions_expired WHERE expires = 0 AND ends < ? LIMIT +?)`
	sweepCounters = `DELETE FROM counters WHERE key IN (SELECT key FROM counters WHERE until < ? LIMIT +?)`
	sweepRevoked  = `DELETE FROM revoked WHERE hash IN (SELECT hash FROM revoked WHERE expires < ? LIMIT +?)`
	sweepAnswers  = `DELETE FROM answers WHERE name IN (SELECT name FROM answers WHERE until <= ? LIMIT +?)`
	sweepMarkers  = `
		DELETE FROM revocations WHERE (company, account) IN
			(SELECT company, account FROM revocations WHERE expires < ? AND uncleared = 0 LIMIT +?)`
)

const uncleared = `SELECT company, account, generation, x'', 0 FROM revocations WHERE uncleared = 1 LIMIT 1`

func (s sessions) Sweep(ctx context.Context, now time.Time) error {
	before := record.Micros(now.Add(-record.KeepExpired))
	for _, query := range []string{sweepSessions, sweepExpired, sweepRevoked, sweepCounters, sweepMarkers} {
		if err := sqlstore.Sweep(ctx, s, "sweeping sessions", query, before, sweepChunk); err != nil {
			return err
		}
	}
	if err := sqlstore.Sweep(ctx, s, "sweeping answers", sweepAnswers, record.Micros(now), sweepChunk); err != nil {
		return err
	}
	return sqlstore.Call(ctx, s, "sweeping ended sessions", func() error { return s.sweepEnded(ctx, now) })
}

// sweepEnded deletes the rows of revoked sessions that End left. It deletes each
// chunk in a write of its own.
func (s sessions) sweepEnded(ctx context.Context, now time.Time) error {
	for {
		e, err := sqlstore.QueryOne(ctx, s, "looking for revoked sessions", sqlstore.ScanRevocation, uncleared)
		switch {
		case errors.Is(err, record.ErrNotFound):
			return nil
		case err != nil:
		case e.Account == 0:
			err = s.sweepCompany(ctx, e)
		default:
			err = s.write(ctx, func(ctx context.Context, tx *queries) error { return tx.clearEnded(ctx, now, e) })
		}
		if err != nil {
			return err
		}
	}
}

const (
	// Scans the primary key, because no index has company generations. The + keeps
	// SQLite from using another index, whose order would not match after.
	olderGeneration = `SELECT hash FROM sessions WHERE hash > ? AND +company = ? AND company_generation < ? ORDER BY hash LIMIT +?`
	delete          = `DELETE FROM sessions WHERE hash = ?`
)

// sweepCompany deletes the revoked sessions of a company. It searches for them in a
// read, so that no write waits. That is safe: no such session is added meanwhile,
// and a session keeps its company generation.
func (s sessions) sweepCompany(ctx context.Context, e record.Revocation) error {
	after := []byte{}
	for {
		hashes, err := sqlstore.QueryAll(ctx, s, "looking for revoked sessions", scanHash, olderGeneration, after, e.Company, e.Generation, clearChunk)
		if err != nil {
			return err
		}
		err = s.write(ctx, func(ctx context.Context, tx *queries) error {
			for _, hash := range hashes {
				tx.Later(ctx, delete, hash[:])
			}
			if len(hashes) < clearChunk {
				tx.Later(ctx, cleared, e.Company, e.Account, e.Generation)
			}
			return nil
		})
		if err != nil || len(hashes) < clearChunk {
			return err
		}
		after = hashes[len(hashes)-1][:]
	}
}
