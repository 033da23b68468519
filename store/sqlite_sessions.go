package store

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/mnemogate/mnemogate/flows"
)

// sqliteSessions is a SQLite's flows.Sessions. A session is expired at the
// moment it expires.
type sqliteSessions struct{ *SQLite }

const (
	// fenceLife is how long an ended epoch stays forbidden: longer than a
	// session can live (contract, section 5).
	fenceLife = 31 * 24 * time.Hour
)

const (
	sqliteDeleteLinks = `DELETE FROM sessions WHERE company = ? AND account = ? AND state = ?`

	// Of a decoy, account 0, there is never a fence.
	sqliteInsertSession = `
		INSERT INTO sessions (hash, id, company, account, mnemocode, login_id, epoch, state, accepted,
			created, expires, ends, code_hash, code_phone, code_expires)
		SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15
		WHERE NOT EXISTS (SELECT 1 FROM fences WHERE company = ?3 AND account = ?4 AND epoch > ?7)`
)

func (s sqliteSessions) Create(ctx context.Context, now time.Time, sess flows.Session, counters ...flows.Counter) error {
	return translateSQLite("creating session", s.write(ctx, func(ctx context.Context, tx *sqliteQueries) error {
		if err := tx.charge(ctx, now, counters); err != nil {
			return err
		}
		if sess.State == flows.MailedLink && sess.Account != 0 {
			if _, err := tx.exec(ctx, sqliteDeleteLinks, sess.Company, sess.Account, string(flows.MailedLink)); err != nil {
				return err
			}
		}
		return tx.storeSession(ctx, sess)
	}))
}

func (tx *sqliteQueries) storeSession(ctx context.Context, s flows.Session) error {
	accepted, err := encodeAcceptances(s.Accepted)
	if err != nil {
		return err
	}
	var code flows.Code
	var hash []byte
	if s.Code != nil {
		code = *s.Code
		hash = code.Hash[:]
	}
	return tx.execOr(ctx, flows.ErrConflict, sqliteInsertSession,
		s.Hash[:], s.ID, s.Company, s.Account, s.Mnemocode, s.LoginID, s.Epoch, string(s.State), accepted,
		micros(s.Created), micros(s.Expires), micros(s.Ends), hash, code.Phone, micros(code.Expires))
}

const (
	sqliteSelectSession = `
		SELECT hash, id, company, account, mnemocode, login_id, epoch, state, accepted,
			created, expires, ends, code_hash, code_phone, code_expires
		FROM sessions`
	sqliteSessionByHash = sqliteSelectSession + ` WHERE hash = ?`
)

func (s sqliteSessions) Get(ctx context.Context, hash flows.TokenHash) (flows.Session, error) {
	var sess flows.Session
	err := s.read(ctx, func(ctx context.Context, q *sqliteQueries) (err error) {
		sess, err = scanSQLiteSession(q.row(ctx, sqliteSessionByHash, hash[:]))
		return err
	})
	return sess, translateSQLite("loading session", err)
}

func scanSQLiteSession(row scanner) (flows.Session, error) {
	var s flows.Session
	var hash, accepted, codeHash []byte
	var created, expires, ends, codeExpires int64
	var phone string
	err := row.Scan(&hash, &s.ID, &s.Company, &s.Account, &s.Mnemocode, &s.LoginID, &s.Epoch, &s.State, &accepted,
		&created, &expires, &ends, &codeHash, &phone, &codeExpires)
	if err != nil {
		return flows.Session{}, err
	}
	copy(s.Hash[:], hash)
	s.Created, s.Expires, s.Ends = fromMicros(created), fromMicros(expires), fromMicros(ends)
	s.Code = makeCode(codeHash, phone, codeExpires)
	s.Accepted, err = decodeAcceptances(accepted)
	return s, err
}

// makeCode returns the code of a row, nil where there is none.
func makeCode(hash []byte, phone string, expires int64) *flows.Code {
	if hash == nil {
		return nil
	}
	code := &flows.Code{Phone: phone, Expires: fromMicros(expires)}
	copy(code.Hash[:], hash)
	return code
}

const sqliteTakeSession = `DELETE FROM sessions WHERE hash = ? AND state = ? AND expires > ?`

func (s sqliteSessions) Replace(
	ctx context.Context, now time.Time, old flows.TokenHash, from flows.State, next flows.Session, counters ...flows.Counter,
) error {
	return translateSQLite("replacing session", s.write(ctx, func(ctx context.Context, tx *sqliteQueries) error {
		if err := tx.charge(ctx, now, counters); err != nil {
			return err
		}
		err := tx.execOr(ctx, flows.ErrConflict, sqliteTakeSession, old[:], string(from), micros(now))
		if err != nil {
			return err
		}
		return tx.storeSession(ctx, next)
	}))
}

const sqliteDeleteSession = `DELETE FROM sessions WHERE hash = ?`

func (s sqliteSessions) Delete(ctx context.Context, hash flows.TokenHash) error {
	return translateSQLite("ending session", s.write(ctx, func(ctx context.Context, tx *sqliteQueries) error {
		return tx.execOr(ctx, flows.ErrNotFound, sqliteDeleteSession, hash[:])
	}))
}

const (
	sqliteStoreFence = `
		INSERT INTO fences (company, account, epoch, expires) VALUES (?, ?, ?, ?)
		ON CONFLICT (company, account) DO UPDATE
		SET epoch = max(epoch, excluded.epoch), expires = max(expires, excluded.expires)`
	sqliteEndSessions = `DELETE FROM sessions WHERE company = ? AND account = ? AND epoch < ?`
)

func (s sqliteSessions) End(ctx context.Context, now time.Time, e flows.Ending) error {
	if e.Account == 0 { // decoys are nobody's
		return nil
	}
	return translateSQLite("ending sessions", s.write(ctx, func(ctx context.Context, tx *sqliteQueries) error {
		_, err := tx.exec(ctx, sqliteStoreFence, e.Company, e.Account, e.Epoch, micros(now.Add(fenceLife)))
		if err != nil {
			return err
		}
		_, err = tx.exec(ctx, sqliteEndSessions, e.Company, e.Account, e.Epoch)
		return err
	}))
}

const sqliteTouchSession = `UPDATE sessions SET expires = max(expires, min(?, ends)) WHERE hash = ? AND expires > ?`

func (s sqliteSessions) Touch(ctx context.Context, now time.Time, hash flows.TokenHash, expires time.Time) error {
	return translateSQLite("touching session", s.write(ctx, func(ctx context.Context, tx *sqliteQueries) error {
		return tx.execOr(ctx, flows.ErrNotFound, sqliteTouchSession, micros(expires), hash[:], micros(now))
	}))
}

// What is no longer true of expires, ends tells the sweep.
const sqliteExpireSession = `
	UPDATE sessions SET expires = 0, ends = expires, code_hash = NULL, code_phone = ''
	WHERE hash = ? AND expires > 0 AND expires <= ?`

func (s sqliteSessions) Expire(ctx context.Context, now time.Time, hash flows.TokenHash) error {
	return translateSQLite("expiring session", s.write(ctx, func(ctx context.Context, tx *sqliteQueries) error {
		return tx.execOr(ctx, flows.ErrNotFound, sqliteExpireSession, hash[:], micros(now))
	}))
}

const sqliteSessionsByAccount = sqliteSelectSession + ` WHERE company = ? AND account = ? AND expires > ? ORDER BY created, id`

func (s sqliteSessions) List(ctx context.Context, now time.Time, company string, account int64) ([]flows.Session, error) {
	var all []flows.Session
	err := s.read(ctx, func(ctx context.Context, q *sqliteQueries) (err error) {
		all, err = collectSQLite(ctx, q, scanSQLiteSession, sqliteSessionsByAccount, company, account, micros(now))
		return err
	})
	return all, translateSQLite("listing sessions", err)
}

const sqliteOpenCode = `
	UPDATE sessions SET code_number = code_number + 1, code_hash = NULL, code_phone = ''
	WHERE hash = ? AND state = ? AND expires > ? RETURNING code_number`

func (s sqliteSessions) OpenCode(ctx context.Context, now time.Time, hash flows.TokenHash, state flows.State) (int64, error) {
	var number int64
	err := s.write(ctx, func(ctx context.Context, tx *sqliteQueries) error {
		err := tx.row(ctx, sqliteOpenCode, hash[:], string(state), micros(now)).Scan(&number)
		if errors.Is(err, sql.ErrNoRows) {
			return flows.ErrConflict
		}
		return err
	})
	return number, translateSQLite("opening code", err)
}

const sqliteSetCode = `UPDATE sessions SET code_hash = ?, code_phone = ?, code_expires = ? WHERE hash = ? AND code_number = ?`

func (s sqliteSessions) SetCode(ctx context.Context, hash flows.TokenHash, number int64, code flows.Code) error {
	return translateSQLite("setting code", s.write(ctx, func(ctx context.Context, tx *sqliteQueries) error {
		return tx.execOr(ctx, flows.ErrConflict, sqliteSetCode, code.Hash[:], code.Phone, micros(code.Expires), hash[:], number)
	}))
}

const sqliteTakeCode = `UPDATE sessions SET code_hash = NULL, code_phone = '' WHERE hash = ? AND code_hash = ?`

// SpendCode reads before it writes, so that those who have nothing to spend
// don't queue. Of those who have read the same code, one removes it; to the
// others it is as if they had come when it was gone.
func (s sqliteSessions) SpendCode(
	ctx context.Context, now time.Time, company string, hash flows.TokenHash, state flows.State, counters ...flows.Counter,
) (flows.Session, error) {
	sess, err := s.Get(ctx, hash)
	if err != nil {
		return flows.Session{}, err
	}
	code := sess.Code
	sess.Code = nil
	if sess.Company != company || sess.State != state || !sess.Expires.After(now) {
		return sess, nil
	}
	if code == nil {
		return sess, s.Peek(ctx, now, counters...)
	}
	var taken int64
	err = s.write(ctx, func(ctx context.Context, tx *sqliteQueries) (err error) {
		if err := tx.look(ctx, now, counters); err != nil {
			return err
		}
		taken, err = tx.exec(ctx, sqliteTakeCode, hash[:], code.Hash[:])
		return err
	})
	if err == nil && taken == 1 {
		sess.Code = code
	}
	return sess, translateSQLite("spending code", err)
}

const (
	// A row that is not changed is at its limit.
	sqliteCharge = `
		INSERT INTO counters (key, count, until) VALUES (?1, 1, ?3)
		ON CONFLICT (key) DO UPDATE
		SET count = iif(until <= ?2, 1, count + 1), until = iif(until <= ?2, ?3, until)
		WHERE until <= ?2 OR count < ?4`
	sqliteFullCounter = `SELECT until FROM counters WHERE key = ? AND until > ? AND count >= ?`
)

func (s sqliteSessions) Charge(ctx context.Context, now time.Time, counters ...flows.Counter) error {
	return translateSQLite("charging counters", s.write(ctx, func(ctx context.Context, tx *sqliteQueries) error {
		return tx.charge(ctx, now, counters)
	}))
}

func (tx *sqliteQueries) charge(ctx context.Context, now time.Time, counters []flows.Counter) error {
	for _, c := range counters {
		if err := tx.chargeOne(ctx, now, c); err != nil {
			return err
		}
	}
	return nil
}

func (tx *sqliteQueries) chargeOne(ctx context.Context, now time.Time, c flows.Counter) error {
	if c.Look || c.Limit <= 0 {
		return tx.full(ctx, now, c)
	}
	n, err := tx.exec(ctx, sqliteCharge, c.Key, micros(now), micros(now.Add(c.Window)), c.Limit)
	if err == nil && n == 0 {
		return tx.full(ctx, now, c)
	}
	return err
}

// full returns a Full error if a counter is at its limit. A limit of nothing
// has no window that could end it; it is said to last one from now.
func (q *sqliteQueries) full(ctx context.Context, now time.Time, c flows.Counter) error {
	var until int64
	err := q.row(ctx, sqliteFullCounter, c.Key, micros(now), c.Limit).Scan(&until)
	switch {
	case err == nil:
		return &flows.Full{Key: c.Key, Until: fromMicros(until)}
	case !errors.Is(err, sql.ErrNoRows):
		return err
	case c.Limit <= 0:
		return &flows.Full{Key: c.Key, Until: fromMicros(micros(now.Add(c.Window)))}
	}
	return nil
}

func (s sqliteSessions) Peek(ctx context.Context, now time.Time, counters ...flows.Counter) error {
	return translateSQLite("reading counters", s.read(ctx, func(ctx context.Context, q *sqliteQueries) error {
		return q.look(ctx, now, counters)
	}))
}

func (q *sqliteQueries) look(ctx context.Context, now time.Time, counters []flows.Counter) error {
	for _, c := range counters {
		if err := q.full(ctx, now, c); err != nil {
			return err
		}
	}
	return nil
}

const (
	sqliteSweepSessions = `
		DELETE FROM sessions WHERE hash IN
			(SELECT hash FROM sessions WHERE expires < ?1 AND (expires > 0 OR ends < ?1) LIMIT ?2)`
	sqliteSweepCounters = `DELETE FROM counters WHERE key IN (SELECT key FROM counters WHERE until < ? LIMIT ?)`
	sqliteSweepFences   = `
		DELETE FROM fences WHERE (company, account) IN (SELECT company, account FROM fences WHERE expires < ? LIMIT ?)`
)

func (s sqliteSessions) Sweep(ctx context.Context, now time.Time) error {
	before := micros(now.Add(-flows.Keep))
	for _, query := range []string{sqliteSweepSessions, sqliteSweepCounters, sqliteSweepFences} {
		if err := s.sweep(ctx, query, before); err != nil {
			return translateSQLite("sweeping sessions", err)
		}
	}
	return nil
}
