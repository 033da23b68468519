package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/store/sqlstore"
)

// sessions implements record.Sessions for SQLite. A session counts as expired
// from the time Expires on.
type sessions struct{ *Store }

// notEnded is the condition that a session is not revoked. A revocation is a
// marker that takes effect when it is committed; the rows of the sessions may be
// deleted later. The marker of account 0 is the company's and revokes earlier
// company generations.
const notEnded = ` NOT EXISTS (SELECT 1 FROM revocations
		WHERE company = sessions.company AND account = sessions.account AND account <> 0 AND generation > sessions.generation)
	AND NOT EXISTS (SELECT 1 FROM revocations WHERE company = sessions.company AND account = 0 AND generation > sessions.company_generation)`

const (
	deleteLinks = `DELETE FROM sessions WHERE company = ? AND account = ? AND state = ?`

	insertSession = `
		INSERT INTO sessions (` + sessionColumns + `)
		SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22
		WHERE NOT EXISTS (SELECT 1 FROM revocations WHERE company = ?3 AND account = ?4 AND account <> 0 AND generation > ?7)
			AND NOT EXISTS (SELECT 1 FROM revocations WHERE company = ?3 AND account = 0 AND generation > ?17)`
)

func (s sessions) Create(ctx context.Context, now time.Time, sess record.Session, counters ...record.Counter) error {
	return s.store(ctx, "sessions.create: creating session", now, sess, counters, func(ctx context.Context, tx *queries) error {
		if sess.State != record.MailedLink || sess.Account == 0 {
			return nil
		}
		tx.Later(ctx, deleteLinks, sess.Company, sess.Account, string(record.MailedLink))
		return nil
	})
}

// store charges the counters, runs before and stores a session, in one write. It
// tells the feed and sess.Displaced which sessions were revoked to make room: the feed
// even after an error, which may come after the commit.
func (s sessions) store(
	ctx context.Context, what string, now time.Time, sess record.Session, counters []record.Counter,
	before func(context.Context, *queries) error,
) error {
	var displaced []record.Session
	err := s.call(ctx, what, func(ctx context.Context, tx *queries) error {
		if err := charge(ctx, tx, now, counters); err != nil {
			return err
		}
		if err := before(ctx, tx); err != nil {
			return err
		}
		err := tx.storeSession(ctx, sess)
		if err == nil && sess.AtMost > 0 && sess.Account != 0 {
			displaced, err = tx.revokeOldest(ctx, now, sess)
		}
		return err
	})
	for _, old := range displaced {
		if feed := s.feed.Load(); feed != nil {
			(*feed).Ended(old.Hash)
		}
		if err == nil && sess.Displaced != nil {
			sess.Displaced(old.ID)
		}
	}
	return err
}

func (tx *queries) storeSession(ctx context.Context, s record.Session) error {
	var code record.Code
	var hash []byte
	if s.Code != nil {
		code = *s.Code
		hash = code.Hash[:]
	}
	return sqlstore.ExecOr(ctx, tx, record.ErrConflict, insertSession,
		s.Hash[:], s.ID, s.Company, s.Account, s.Mnemocode, s.LoginID, s.Generation, string(s.State), record.EncodeAcceptances(s.Accepted),
		record.Micros(s.Created), record.Micros(s.Expires), record.Micros(s.Ends), hash, code.Phone, record.Micros(code.Expires), s.NoCode,
		s.CompanyGeneration, record.Micros(s.LastUsed), s.Address, s.UserAgent, string(s.Profile), s.Device)
}

const (
	// Counts expired sessions too, because then the index alone is enough.
	isOverLimit = `SELECT 1 FROM sessions WHERE company = ? AND account = ? AND state = ? LIMIT 1 OFFSET ?`
	endOldest   = `
		DELETE FROM sessions WHERE hash IN (
			SELECT hash FROM sessions
			WHERE company = ?1 AND account = ?2 AND state = ?3 AND expires > ?4 AND hash <> ?5 AND` + notEnded + `
			ORDER BY created DESC LIMIT -1 OFFSET ?6)
		RETURNING hash, id`
)

// revokeOldest revokes the oldest sessions of the account in the state of s, but never s
// itself, so that at most s.AtMost are left. It returns their Hash and ID.
func (tx *queries) revokeOldest(ctx context.Context, now time.Time, s record.Session) ([]record.Session, error) {
	var overLimit int
	err := tx.Row(ctx, isOverLimit, s.Company, s.Account, string(s.State), s.AtMost).Scan(&overLimit)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	scan := func(row sqlstore.Scanner) (old record.Session, err error) {
		err = row.Scan(sqlstore.Hash(&old.Hash), &old.ID)
		return old, err
	}
	return sqlstore.Collect(ctx, tx, scan, endOldest,
		s.Company, s.Account, string(s.State), record.Micros(now), s.Hash[:], s.AtMost-1)
}

func scanHash(row sqlstore.Scanner) (hash record.TokenHash, err error) {
	err = row.Scan(sqlstore.Hash(&hash))
	return hash, err
}

const (
	sessionColumns = `hash, id, company, account, mnemocode, login_id, generation, state, accepted,
			created, expires, ends, code_hash, code_phone, code_expires, no_code,
			company_generation, last_used, address, user_agent, profile, device`
	selectSession = `SELECT ` + sessionColumns + ` FROM sessions`
	sessionByHash = selectSession + ` WHERE hash = ? AND` + notEnded
)

func (s sessions) Get(ctx context.Context, hash record.TokenHash) (record.Session, error) {
	return sqlstore.QueryOne(ctx, s, "sessions.get: loading session", scanSession, sessionByHash, hash[:])
}

func scanSession(row sqlstore.Scanner) (record.Session, error) {
	var s record.Session
	var accepted, codeHash []byte
	var code record.Code
	err := row.Scan(sqlstore.Hash(&s.Hash), &s.ID, &s.Company, &s.Account, &s.Mnemocode, &s.LoginID, &s.Generation, &s.State, &accepted,
		sqlstore.Time(&s.Created), sqlstore.Time(&s.Expires), sqlstore.Time(&s.Ends), &codeHash, &code.Phone, sqlstore.Time(&code.Expires), &s.NoCode,
		&s.CompanyGeneration, sqlstore.Time(&s.LastUsed), &s.Address, &s.UserAgent, &s.Profile, &s.Device)
	if err != nil {
		return record.Session{}, err
	}
	if codeHash != nil {
		copy(code.Hash[:], codeHash)
		s.Code = &code
	}
	s.Accepted, err = record.DecodeAcceptances(accepted)
	return s, err
}

// Revoked sessions that were not deleted yet are still in the table sessions, with a
// marker that revokes them.
const revoked = `
	SELECT company, account, generation, company_generation, state, expires FROM revoked WHERE hash = ?1
	UNION ALL
	SELECT company, account, generation, company_generation, state, expires FROM sessions
	WHERE hash = ?1 AND EXISTS (SELECT 1 FROM revocations
		WHERE company = sessions.company AND account = sessions.account AND account <> 0 AND generation > sessions.generation)`

func (s sessions) Revoked(ctx context.Context, hash record.TokenHash) (record.Session, error) {
	scan := func(row sqlstore.Scanner) (record.Session, error) {
		sess := record.Session{Hash: hash}
		err := row.Scan(&sess.Company, &sess.Account, &sess.Generation, &sess.CompanyGeneration, &sess.State, sqlstore.Time(&sess.Expires))
		return sess, err
	}
	return sqlstore.QueryOne(ctx, s, "sessions.revoked: loading revoked session", scan, revoked, hash[:])
}

const takeSession = `
	DELETE FROM sessions
	WHERE hash = ? AND state = ? AND expires > ? AND (state <> '` + string(record.Authorized) + `' OR profile = ?) AND` + notEnded

func (s sessions) Replace(
	ctx context.Context, now time.Time, old record.TokenHash, from record.State, next record.Session, counters ...record.Counter,
) error {
	return s.store(ctx, "sessions.replace: replacing session", now, next, counters, func(ctx context.Context, tx *queries) error {
		return sqlstore.ExecOr(ctx, tx, record.ErrConflict, takeSession, old[:], string(from), record.Micros(now), string(next.Profile))
	})
}

const touchSession = `
	UPDATE sessions SET expires = max(expires, min(?1, ends)), last_used = max(last_used, ?3)
	WHERE hash = ?2 AND expires > ?3 AND` + notEnded

func (s sessions) Touch(ctx context.Context, now time.Time, hash record.TokenHash, expires time.Time) error {
	return sqlstore.Change(ctx, s, "sessions.touch: touching session", record.ErrNotFound, touchSession, record.Micros(expires), hash[:], record.Micros(now))
}

const raiseSession = `
	UPDATE sessions SET profile = ?
	WHERE hash = ? AND state = '` + string(record.Authorized) + `' AND expires > ? AND profile = ? AND` + notEnded

// Raise needs no feed: other processes notice each commit.
func (s sessions) Raise(ctx context.Context, now time.Time, hash record.TokenHash, from, to record.Profile) error {
	return sqlstore.Change(ctx, s, "sessions.raise: raising session", record.ErrConflict, raiseSession, string(to), hash[:], record.Micros(now), string(from))
}

// ends takes the value of expires, so that the sweep knows when to delete the
// session.
const expireSession = `
	UPDATE sessions SET expires = 0, ends = expires, code_hash = NULL, code_phone = ''
	WHERE hash = ? AND expires > 0 AND expires <= ? AND` + notEnded

func (s sessions) Expire(ctx context.Context, now time.Time, hash record.TokenHash) error {
	return sqlstore.Change(ctx, s, "sessions.expire: expiring session", record.ErrNotFound, expireSession, hash[:], record.Micros(now))
}

const sessionsByState = selectSession + `
	WHERE company = ? AND account = ? AND state = ? AND expires > ? AND` + notEnded + `
	ORDER BY created DESC LIMIT +?`

func (s sessions) List(ctx context.Context, now time.Time, company string, account int64) ([]record.Session, error) {
	var all []record.Session
	err := sqlstore.Read(ctx, s, "sessions.list: listing sessions", func(ctx context.Context, q sqlstore.Queries) error {
		for _, state := range record.StoredStates {
			found, err := sqlstore.Collect(ctx, q, scanSession, sessionsByState,
				company, account, string(state), record.Micros(now), record.MaxSessions)
			if err != nil {
				return err
			}
			all = append(all, found...)
		}
		return nil
	})
	record.SortByAge(all)
	return all, err
}

const setCode = `
	UPDATE sessions SET code_hash = ?, code_phone = ?, code_expires = ?, no_code = 0
	WHERE hash = ? AND state = ? AND expires > ? AND (code_hash IS NULL OR NOT ?) AND` + notEnded

func (s sessions) SetCode(ctx context.Context, now time.Time, hash record.TokenHash, state record.State, code record.Code, onlyIfNone bool) error {
	return sqlstore.Change(ctx, s, "sessions.set_code: setting code", record.ErrConflict, setCode,
		code.Hash[:], code.Phone, record.Micros(code.Expires), hash[:], string(state), record.Micros(now), onlyIfNone)
}

const takeCode = `UPDATE sessions SET code_hash = NULL, code_phone = '' WHERE hash = ? AND code_hash = ? AND` + notEnded

// SpendCode reads before it writes, so that callers without a valid code do not
// queue for the writer. If several callers have read the same code, one of them
// removes it. For the others the code was already gone.
func (s sessions) SpendCode(
	ctx context.Context, now time.Time, company string, hash record.TokenHash, state record.State, counters ...record.Counter,
) (sess record.Session, err error) {
	err = sqlstore.Call(ctx, s, "sessions.spend_code: spending code", func() error {
		err := s.Reading(ctx, func(ctx context.Context, q sqlstore.Queries) (err error) {
			sess, err = scanSession(q.Row(ctx, sessionByHash, hash[:]))
			return err
		})
		code := sess.Code
		sess.Code = nil
		switch {
		case err != nil:
			return err
		case sess.Company != company || sess.State != state || !sess.Expires.After(now):
			return nil
		case code == nil:
			return s.look(ctx, now, counters)
		}
		var taken int64
		err = s.write(ctx, func(ctx context.Context, tx *queries) (err error) {
			if err := charge(ctx, tx, now, record.CheckOnly(counters...)); err != nil {
				return err
			}
			taken, err = tx.Exec(ctx, takeCode, hash[:], code.Hash[:])
			return err
		})
		if err == nil && taken == 1 {
			sess.Code = code
		}
		return err
	})
	return sess, err
}

const (
	// If no row changes, the counter is at its limit.
	chargeCounter = `
		INSERT INTO counters (key, count, until) VALUES (?1, 1, ?3)
		ON CONFLICT (key) DO UPDATE
		SET count = iif(until <= ?2, 1, count + 1), until = iif(until <= ?2, ?3, until)
		WHERE until <= ?2 OR count < ?4`
	fullCounter = `SELECT until FROM counters WHERE key = ? AND until > ? AND count >= ?`

	refund      = `UPDATE counters SET count = count - 1 WHERE key = ? AND until > ?`
	dropCounter = `DELETE FROM counters WHERE key = ? AND count <= 0`
)

// Charge reads before it writes, so that a flood of refused attempts does not block
// the single writer. A counter that is only looked at never needs the writer.
func (s sessions) Charge(ctx context.Context, now time.Time, counters ...record.Counter) error {
	return sqlstore.Call(ctx, s, "sessions.charge: charging counters", func() error {
		if err := s.look(ctx, now, counters); err != nil || !record.Charges(counters) {
			return err
		}
		return s.write(ctx, func(ctx context.Context, tx *queries) error { return charge(ctx, tx, now, counters) })
	})
}

func (s sessions) Refund(ctx context.Context, now time.Time, counters ...record.Counter) error {
	return s.call(ctx, "sessions.refund: refunding counters", func(ctx context.Context, tx *queries) error {
		for _, c := range counters {
			tx.Later(ctx, refund, c.Key, record.Micros(now))
			tx.Later(ctx, dropCounter, c.Key)
		}
		return nil
	})
}

func charge(ctx context.Context, q sqlstore.Queries, now time.Time, counters []record.Counter) error {
	for _, c := range counters {
		if !c.CheckOnly && c.Limit > 0 {
			n, err := q.Exec(ctx, chargeCounter, c.Key, record.Micros(now), record.Micros(now.Add(c.Window)), c.Limit)
			if err != nil {
				return err
			}
			if n > 0 {
				continue
			}
		}
		if err := full(ctx, q, now, c); err != nil {
			return err
		}
	}
	return nil
}

// full returns a FullError if a counter is at its limit. A counter whose limit
// is 0 has no window, so the error says that it ends one Window from now.
func full(ctx context.Context, q sqlstore.Queries, now time.Time, c record.Counter) error {
	full := &record.FullError{Key: c.Key, Limit: c.Limit}
	err := q.Row(ctx, fullCounter, c.Key, record.Micros(now), c.Limit).Scan(sqlstore.Time(&full.Until))
	switch {
	case err == nil:
		return full
	case !errors.Is(err, sql.ErrNoRows):
		return err
	case c.Limit <= 0:
		full.Until = record.FromMicros(record.Micros(now.Add(c.Window)))
		return full
	}
	return nil
}

func (s sessions) look(ctx context.Context, now time.Time, counters []record.Counter) error {
	return s.Reading(ctx, func(ctx context.Context, q sqlstore.Queries) error {
		return charge(ctx, q, now, record.CheckOnly(counters...))
	})
}
