package store

import (
	"context"
	"errors"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
)

const sqliteDeleteSession = `DELETE FROM sessions WHERE hash = ? AND` + sqliteNotEnded

func (s sqliteSessions) Delete(ctx context.Context, hash record.TokenHash) error {
	return change(ctx, s, "ending session", record.ErrNotFound, sqliteDeleteSession, hash[:])
}

const sqliteDeleteID = `
	DELETE FROM sessions
	WHERE company = ? AND account = ? AND id = ? AND state <> ? AND expires > ? AND` + sqliteNotEnded + `
	RETURNING ` + sqliteSessionColumns

func (s sqliteSessions) DeleteID(ctx context.Context, now time.Time, company string, account int64, id string) (record.Session, error) {
	return changeOne(ctx, s, "ending session", scanSQLiteSession, sqliteDeleteID, company, account, id, string(record.MailedLink), micros(now))
}

const sqliteDeleteOthers = `
	DELETE FROM sessions
	WHERE company = ? AND account = ? AND state = ? AND expires > ? AND hash <> ? AND` + sqliteNotEnded + `
	RETURNING ` + sqliteSessionColumns

func (s sqliteSessions) DeleteOthers(ctx context.Context, now time.Time, company string, account int64, keep record.TokenHash) (ended []record.Session, err error) {
	err = s.write(ctx, func(ctx context.Context, tx *sqliteQueries) (err error) {
		ended, err = collect(ctx, tx, scanSQLiteSession, sqliteDeleteOthers, company, account, string(record.Authorized), micros(now), keep[:])
		return err
	})
	return ended, translate("ending sessions", err)
}

const (
	sqliteKeepSession = `
		UPDATE sessions SET epoch = epoch + 1
		WHERE hash = ? AND company = ? AND account = ? AND epoch = ? AND state = ? AND` + sqliteNotEnded
	sqliteStoreMarker = `
		INSERT INTO fences (company, account, epoch, expires, uncleared) VALUES (?, ?, ?, ?, 1)
		ON CONFLICT (company, account) DO UPDATE
		SET epoch = max(epoch, excluded.epoch), expires = max(expires, excluded.expires), uncleared = 1`
	sqliteClearEnded = `
		DELETE FROM sessions WHERE hash IN
			(SELECT hash FROM sessions WHERE company = ? AND account = ? AND epoch < ? LIMIT +?)
		RETURNING ` + sqliteSessionColumns
	sqliteInsertRevoked = `
		INSERT OR IGNORE INTO revoked (hash, company, account, epoch, era, state, expires) VALUES (?, ?, ?, ?, ?, ?, ?)`
	sqliteCleared = `UPDATE fences SET uncleared = 0 WHERE company = ? AND account = ? AND epoch = ?`
)

// End deletes the rows of an account at once, up to as many as an account usually
// has. The sweep deletes the rest, and all rows of a company.
func (s sqliteSessions) End(ctx context.Context, now time.Time, e record.Revocation) error {
	return translate("ending sessions", s.write(ctx, func(ctx context.Context, tx *sqliteQueries) error {
		_, err := tx.exec(ctx, sqliteKeepSession, e.Keep[:], e.Company, e.Account, e.Generation-1, string(record.Authorized))
		if err != nil {
			return err
		}
		_, err = tx.exec(ctx, sqliteStoreMarker, e.Company, e.Account, e.Generation, micros(now.Add(markerLife(e))))
		if err != nil || e.Account == 0 {
			return err
		}
		return tx.clearEnded(ctx, now, e)
	}))
}

// clearEnded deletes up to sqliteClearChunk revoked sessions of an account, and
// records if none is left. For those that have not expired it keeps what Revoked
// returns.
func (tx *sqliteQueries) clearEnded(ctx context.Context, now time.Time, e record.Revocation) error {
	ended, err := collect(ctx, tx, scanSQLiteSession, sqliteClearEnded, e.Company, e.Account, e.Generation, sqliteClearChunk)
	if err != nil {
		return err
	}
	for _, s := range ended {
		if !s.Expires.After(now) {
			continue
		}
		_, err := tx.exec(ctx, sqliteInsertRevoked, s.Hash[:], s.Company, s.Account, s.Generation, s.CompanyGeneration, string(s.State), micros(s.Expires))
		if err != nil {
			return err
		}
	}
	if len(ended) == sqliteClearChunk {
		return nil
	}
	_, err = tx.exec(ctx, sqliteCleared, e.Company, e.Account, e.Generation)
	return err
}

// Each of these statements reads only rows that it deletes, because all writes wait
// for it.
const (
	sqliteSweepSessions = `
		DELETE FROM sessions WHERE hash IN (SELECT hash FROM sessions WHERE expires > 0 AND expires < ? LIMIT +?)`
	// Deletes sessions that Expire has marked. SQLite itself would choose the index
	// of expires.
	sqliteSweepExpired = `
		DELETE FROM sessions WHERE hash IN
			(SELECT hash FROM sessions INDEXED BY sessions_expired WHERE expires = 0 AND ends < ? LIMIT +?)`
	sqliteSweepCounters = `DELETE FROM counters WHERE key IN (SELECT key FROM counters WHERE until < ? LIMIT +?)`
	sqliteSweepRevoked  = `DELETE FROM revoked WHERE hash IN (SELECT hash FROM revoked WHERE expires < ? LIMIT +?)`
	sqliteSweepMarkers  = `
		DELETE FROM fences WHERE (company, account) IN
			(SELECT company, account FROM fences WHERE expires < ? AND uncleared = 0 LIMIT +?)`
)

const sqliteUncleared = `SELECT company, account, epoch, x'' FROM fences WHERE uncleared = 1 LIMIT 1`

func (s sqliteSessions) Sweep(ctx context.Context, now time.Time) error {
	before := micros(now.Add(-record.KeepExpired))
	for _, query := range []string{sqliteSweepSessions, sqliteSweepExpired, sqliteSweepRevoked, sqliteSweepCounters, sqliteSweepMarkers} {
		if err := sweep(ctx, s, "sweeping sessions", query, before, sqliteSweepChunk); err != nil {
			return err
		}
	}
	return translate("sweeping ended sessions", s.sweepEnded(ctx, now))
}

// sweepEnded deletes the rows of revoked sessions that End left. It deletes each
// chunk in a write of its own.
func (s sqliteSessions) sweepEnded(ctx context.Context, now time.Time) error {
	for {
		e, err := queryOne(ctx, s, "looking for revoked sessions", scanRevocation, sqliteUncleared)
		switch {
		case errors.Is(err, record.ErrNotFound):
			return nil
		case err != nil:
		case e.Account == 0:
			err = s.sweepCompany(ctx, e)
		default:
			err = s.write(ctx, func(ctx context.Context, tx *sqliteQueries) error { return tx.clearEnded(ctx, now, e) })
		}
		if err != nil {
			return err
		}
	}
}

const (
	// Scans the primary key, because no index has company generations. The + keeps
	// SQLite from using another index, whose order would not match after.
	sqliteOlderGeneration = `SELECT hash FROM sessions WHERE hash > ? AND +company = ? AND era < ? ORDER BY hash LIMIT +?`
	sqliteDelete          = `DELETE FROM sessions WHERE hash = ?`
)

// sweepCompany deletes the revoked sessions of a company. It searches for them in a
// read, so that no write waits. That is safe: no such session is added meanwhile,
// and a session keeps its company generation.
func (s sqliteSessions) sweepCompany(ctx context.Context, e record.Revocation) error {
	after := []byte{}
	for {
		hashes, err := queryAll(ctx, s, "looking for revoked sessions", scanSQLiteHash, sqliteOlderGeneration, after, e.Company, e.Generation, sqliteClearChunk)
		if err != nil {
			return err
		}
		err = s.write(ctx, func(ctx context.Context, tx *sqliteQueries) error {
			for _, hash := range hashes {
				if _, err := tx.exec(ctx, sqliteDelete, hash[:]); err != nil {
					return err
				}
			}
			if len(hashes) == sqliteClearChunk {
				return nil
			}
			_, err := tx.exec(ctx, sqliteCleared, e.Company, e.Account, e.Generation)
			return err
		})
		if err != nil || len(hashes) < sqliteClearChunk {
			return err
		}
		after = hashes[len(hashes)-1][:]
	}
}
