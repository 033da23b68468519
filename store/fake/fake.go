// Package fake has stores that keep accounts and sessions in memory. They are small, and
// each call takes effect in one step, so a simulation can say what the stores hold at any
// time. They are only for the simulation and the tests of flows and gate. What these don't
// call is missing, such as devices, issued tokens and histories. All else passes the tests
// of all stores.
package fake

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
)

// A Link is a node's way to a store. It calls call, which has the effect of the method
// what, at most once. It can take its time before and after, fail in place of the call, or
// lose its answer.
type Link func(ctx context.Context, what string, call func() error) error

// Direct is the Link of a store in the same process.
func Direct(ctx context.Context, _ string, call func() error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return call()
}

// ask makes a call that returns a value. If the link fails, nobody learns the value.
func ask[T any](ctx context.Context, link Link, mu *sync.Mutex, what string, call func() (T, error)) (T, error) {
	var value T
	err := link(ctx, what, func() (err error) {
		mu.Lock()
		defer mu.Unlock()
		value, err = call()
		return err
	})
	if r, ok := err.(refusal); ok {
		err = r.error
	}
	if err != nil && !record.IsAnswer(err) {
		var none T
		return none, err
	}
	return value, err
}

// do is ask for a call without a value.
func do(ctx context.Context, link Link, mu *sync.Mutex, what string, call func() error) error {
	_, err := ask(ctx, link, mu, what, func() (struct{}, error) { return struct{}{}, call() })
	return err
}

// stored returns a time with the precision of a store.
func stored(t time.Time) time.Time { return record.FromMicros(record.Micros(t)) }

// A Sessions is what all nodes share of a store of sessions. Its zero value is empty.
type Sessions struct {
	// Feed, if not nil, is told of each revocation in the step that makes it.
	Feed record.Feed

	mu sync.Mutex
	sessionData
}

// sessionData is what a replica has too.
type sessionData struct {
	sessions map[record.TokenHash]session
	notes    map[record.TokenHash]record.Session // what Revoked returns
	markers  map[account]marker                  // a company's has the account 0
	counters map[string]count
	answers  map[string]answer
}

type account struct {
	company string
	id      int64
}

type session struct {
	record.Session
	expired time.Time // when it expired, once Expire has marked it
}

type marker struct {
	generation int64
	until      time.Time
}

type count struct {
	n     int
	until time.Time
}

type answer struct {
	holder string
	answer []byte
	until  time.Time
}

// Snapshot returns a function that brings the store back to the present state, as a
// failover does to a replica that has got nothing since.
func (s *Sessions) Snapshot() (restore func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := sessionData{maps.Clone(s.sessions), maps.Clone(s.notes), maps.Clone(s.markers), maps.Clone(s.counters), maps.Clone(s.answers)}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.sessionData = now
	}
}

// Through returns a node's view of the store.
func (s *Sessions) Through(link Link) record.Sessions {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sessions == nil {
		s.sessionData = sessionData{
			map[record.TokenHash]session{}, map[record.TokenHash]record.Session{}, map[account]marker{}, map[string]count{}, map[string]answer{},
		}
	}
	return sessions{s, link}
}

type sessions struct {
	*Sessions
	link Link
}

func (s sessions) do(ctx context.Context, what string, call func() error) error {
	return do(ctx, s.link, &s.mu, "sessions."+what, call)
}

// find returns a session that is not revoked.
func (s *Sessions) find(hash record.TokenHash) (session, error) {
	found, ok := s.sessions[hash]
	if !ok || s.revoked(found.Session) {
		return session{}, record.ErrNotFound
	}
	if found.Code != nil {
		code := *found.Code
		found.Code = &code
	}
	return found, nil
}

func (s *Sessions) revoked(of record.Session) bool {
	return s.markers[account{of.Company, 0}].generation > of.CompanyGeneration ||
		of.Account != 0 && s.markers[account{of.Company, of.Account}].generation > of.Generation
}

// live returns a session in a state that has not expired, or ErrConflict.
func (s *Sessions) live(now time.Time, hash record.TokenHash, state record.State) (session, error) {
	found, err := s.find(hash)
	if err != nil || found.State != state || !found.Expires.After(now) {
		return session{}, record.ErrConflict
	}
	return found, nil
}

func (s *Sessions) drop(hash record.TokenHash) {
	delete(s.sessions, hash)
	if s.Feed != nil {
		s.Feed.Ended(hash)
	}
}

func (s sessions) Get(ctx context.Context, hash record.TokenHash) (record.Session, error) {
	return ask(ctx, s.link, &s.mu, "sessions.get", func() (record.Session, error) {
		found, err := s.find(hash)
		return found.Session, err
	})
}

func (s sessions) Revoked(ctx context.Context, hash record.TokenHash) (record.Session, error) {
	return ask(ctx, s.link, &s.mu, "sessions.revoked", func() (record.Session, error) {
		note, ok := s.notes[hash]
		if !ok {
			return record.Session{}, record.ErrNotFound
		}
		return note, nil
	})
}

// of returns an account's sessions that have not expired, oldest first.
func (s *Sessions) of(now time.Time, company string, id int64) (all []record.Session) {
	for hash, found := range s.sessions {
		if found.Company == company && found.Account == id && found.Expires.After(now) && !s.revoked(found.Session) {
			whole, _ := s.find(hash)
			all = append(all, whole.Session)
		}
	}
	record.SortByAge(all)
	return all
}

func (s sessions) List(ctx context.Context, now time.Time, company string, id int64) ([]record.Session, error) {
	return ask(ctx, s.link, &s.mu, "sessions.list", func() ([]record.Session, error) { return s.of(now, company, id), nil })
}

func (s sessions) Create(ctx context.Context, now time.Time, next record.Session, counters ...record.Counter) error {
	return s.create(ctx, "create", now, next, counters, func() error {
		if next.State == record.MailedLink && next.Account != 0 {
			for hash, other := range s.sessions {
				if other.Company == next.Company && other.Account == next.Account && other.State == record.MailedLink {
					s.drop(hash)
				}
			}
		}
		return nil
	})
}

func (s sessions) Replace(ctx context.Context, now time.Time, old record.TokenHash, from record.State, next record.Session, counters ...record.Counter) error {
	return s.create(ctx, "replace", now, next, counters, func() error {
		replaced, err := s.live(now, old, from)
		if err == nil && from == record.Authorized && replaced.Profile != next.Profile {
			err = record.ErrConflict
		}
		if err == nil {
			s.drop(old)
		}
		return err
	})
}

// create stores a session, unless before fails. It is told the displaced after the step.
func (s sessions) create(ctx context.Context, what string, now time.Time, next record.Session, counters []record.Counter, before func() error) error {
	displaced, err := ask(ctx, s.link, &s.mu, "sessions."+what, func() (ids []string, err error) {
		if err = s.full(now, counters); err != nil {
			return nil, err
		}
		if _, exists := s.sessions[next.Hash]; exists || s.revoked(next) {
			return nil, record.ErrConflict
		}
		if err = before(); err != nil {
			return nil, err
		}
		s.charge(now, counters)
		kept := next
		kept.AtMost, kept.Displaced = 0, nil
		kept.Created, kept.Expires, kept.Ends, kept.LastUsed = stored(next.Created), stored(next.Expires), stored(next.Ends), stored(next.LastUsed)
		kept.Accepted = slices.Clone(next.Accepted)
		if next.Code != nil {
			kept.Code = new(*next.Code)
		}
		s.sessions[next.Hash] = session{Session: kept}
		if next.AtMost == 0 || next.Account == 0 {
			return nil, nil
		}
		var others []record.Session
		for _, other := range s.of(now, next.Company, next.Account) {
			if other.State == next.State && other.Hash != next.Hash {
				others = append(others, other)
			}
		}
		for i := range max(0, len(others)+1-next.AtMost) {
			s.drop(others[i].Hash)
			ids = append(ids, others[i].ID)
		}
		return ids, nil
	})
	if err == nil && next.Displaced != nil {
		for _, id := range displaced {
			next.Displaced(id)
		}
	}
	return err
}

func (s sessions) Touch(ctx context.Context, now time.Time, hash record.TokenHash, expires time.Time) error {
	return s.do(ctx, "touch", func() error {
		found, err := s.find(hash)
		if err != nil || !found.Expires.After(now) {
			return record.ErrNotFound
		}
		if until := stored(found.IdleUntil(expires)); until.After(found.Expires) {
			found.Expires = until
		}
		if now.After(found.LastUsed) {
			found.LastUsed = stored(now)
		}
		s.sessions[hash] = found
		return nil
	})
}

func (s sessions) Raise(ctx context.Context, now time.Time, hash record.TokenHash, from, to record.Profile) error {
	return s.do(ctx, "raise", func() error {
		found, err := s.live(now, hash, record.Authorized)
		if err != nil || found.Profile != from {
			return record.ErrConflict
		}
		found.Profile = to
		s.drop(hash)
		s.sessions[hash] = found
		return nil
	})
}

func (s sessions) Expire(ctx context.Context, now time.Time, hash record.TokenHash) error {
	return s.do(ctx, "expire", func() error {
		found, err := s.find(hash)
		if err != nil || found.Expires.After(now) || found.Expires.IsZero() {
			return record.ErrNotFound
		}
		found.expired, found.Expires = found.Expires, time.Time{}
		s.drop(hash)
		s.sessions[hash] = found
		return nil
	})
}

func (s sessions) Delete(ctx context.Context, hash record.TokenHash) error {
	return s.do(ctx, "delete", func() error {
		_, err := s.find(hash)
		if err == nil {
			s.drop(hash)
		}
		return err
	})
}

func (s sessions) DeleteID(ctx context.Context, now time.Time, company string, id int64, sessionID string) (record.Session, error) {
	return ask(ctx, s.link, &s.mu, "sessions.delete_id", func() (record.Session, error) {
		for _, found := range s.of(now, company, id) {
			if found.ID == sessionID && found.State != record.MailedLink {
				s.drop(found.Hash)
				return found, nil
			}
		}
		return record.Session{}, record.ErrNotFound
	})
}

func (s sessions) DeleteOthers(ctx context.Context, now time.Time, company string, id int64, keep record.TokenHash) ([]record.Session, error) {
	return ask(ctx, s.link, &s.mu, "sessions.delete_others", func() (ended []record.Session, err error) {
		for _, found := range s.of(now, company, id) {
			if found.State == record.Authorized && found.Hash != keep {
				s.drop(found.Hash)
				ended = append(ended, found)
			}
		}
		return ended, nil
	})
}

func (s sessions) End(ctx context.Context, now time.Time, e record.Revocation) error {
	return s.do(ctx, "end", func() error {
		if kept, err := s.find(e.Keep); err == nil && e.Account != 0 && kept.Company == e.Company && kept.Account == e.Account &&
			kept.State == record.Authorized && kept.Generation == e.Generation-1 {
			kept.Generation = e.Generation
			s.sessions[e.Keep] = kept
		}
		of, until := account{e.Company, e.Account}, now.Add(e.MarkerLife())
		before := s.markers[of]
		if until.Before(before.until) {
			until = before.until
		}
		s.markers[of] = marker{max(before.generation, e.Generation), until}
		for hash, found := range s.sessions {
			if found.Company != e.Company || !s.revoked(found.Session) {
				continue
			}
			delete(s.sessions, hash)
			if e.Account != 0 && found.Expires.After(now) {
				s.notes[hash] = record.Session{
					Hash: hash, Company: found.Company, Account: found.Account, Generation: found.Generation,
					CompanyGeneration: found.CompanyGeneration, State: found.State, Expires: found.Expires,
				}
			}
		}
		if s.Feed != nil {
			s.Feed.EndedAll(e)
		}
		return nil
	})
}

func (s sessions) SetCode(ctx context.Context, now time.Time, hash record.TokenHash, state record.State, code record.Code, onlyIfNone bool) error {
	return s.do(ctx, "set_code", func() error {
		found, err := s.live(now, hash, state)
		if err != nil || onlyIfNone && found.Code != nil {
			return record.ErrConflict
		}
		code.Expires = stored(code.Expires)
		found.Code, found.NoCode = &code, false
		s.sessions[hash] = found
		return nil
	})
}

func (s sessions) SpendCode(ctx context.Context, now time.Time, company string, hash record.TokenHash, state record.State, counters ...record.Counter) (record.Session, error) {
	return ask(ctx, s.link, &s.mu, "sessions.spend_code", func() (record.Session, error) {
		found, err := s.find(hash)
		if err != nil {
			return record.Session{}, err
		}
		spent := found.Session
		if found.Company == company && found.State == state && found.Expires.After(now) {
			if err := s.full(now, record.CheckOnly(counters...)); err != nil {
				spent.Code = nil
				return spent, err
			}
			found.Code = nil
			s.sessions[hash] = found
			return spent, nil
		}
		spent.Code = nil
		return spent, nil
	})
}

// full returns the error of Charge if a counter is at its limit.
func (s *Sessions) full(now time.Time, counters []record.Counter) error {
	charged := map[string]int{} // a counter can occur twice
	for _, c := range counters {
		has := s.counters[c.Key]
		if !has.until.After(now) {
			has = count{until: stored(now.Add(c.Window))}
		}
		if has.n+charged[c.Key] >= c.Limit {
			return &record.FullError{Key: c.Key, Limit: c.Limit, Until: has.until}
		}
		if !c.CheckOnly {
			charged[c.Key]++
		}
	}
	return nil
}

func (s *Sessions) charge(now time.Time, counters []record.Counter) {
	for _, c := range counters {
		if !c.CheckOnly {
			has := s.counters[c.Key]
			if !has.until.After(now) {
				has = count{until: stored(now.Add(c.Window))}
			}
			has.n++
			s.counters[c.Key] = has
		}
	}
}

func (s sessions) Charge(ctx context.Context, now time.Time, counters ...record.Counter) error {
	return s.do(ctx, "charge", func() error {
		err := s.full(now, counters)
		if err == nil {
			s.charge(now, counters)
		}
		return err
	})
}

func (s sessions) Refund(ctx context.Context, now time.Time, counters ...record.Counter) error {
	return s.do(ctx, "refund", func() error {
		for _, c := range counters {
			if has := s.counters[c.Key]; has.until.After(now) {
				if has.n--; has.n <= 0 {
					has = count{}
				}
				s.counters[c.Key] = has
			}
		}
		return nil
	})
}

func (s sessions) Claim(ctx context.Context, now time.Time, name, holder string, until time.Time, counters ...record.Counter) ([]byte, error) {
	return ask(ctx, s.link, &s.mu, "sessions.claim", func() ([]byte, error) {
		if kept := s.answers[name]; kept.until.After(now) {
			if kept.answer == nil {
				return nil, record.ErrConflict
			}
			return slices.Clone(kept.answer), nil
		}
		if err := s.full(now, counters); err != nil {
			return nil, err
		}
		s.charge(now, counters)
		s.answers[name] = answer{holder: holder, until: stored(until)}
		return nil, nil
	})
}

func (s sessions) Keep(ctx context.Context, now time.Time, name, holder string, kept []byte, until time.Time) error {
	return s.do(ctx, "keep", func() error {
		if before := s.answers[name]; before.holder != holder || !before.until.After(now) || before.answer != nil {
			return record.ErrConflict
		}
		if !until.After(now) {
			delete(s.answers, name)
			return nil
		}
		s.answers[name] = answer{holder, slices.Clone(kept), stored(until)}
		return nil
	})
}

func (s sessions) Sweep(ctx context.Context, now time.Time) error {
	return s.do(ctx, "sweep", func() error {
		before := now.Add(-record.KeepExpired)
		maps.DeleteFunc(s.sessions, func(_ record.TokenHash, found session) bool {
			return found.Expires.Before(before) && found.expired.Before(before)
		})
		maps.DeleteFunc(s.notes, func(_ record.TokenHash, note record.Session) bool { return note.Expires.Before(before) })
		maps.DeleteFunc(s.markers, func(_ account, m marker) bool { return m.until.Before(before) })
		maps.DeleteFunc(s.counters, func(_ string, c count) bool { return c.until.Before(before) })
		maps.DeleteFunc(s.answers, func(_ string, kept answer) bool { return !kept.until.After(now) })
		return nil
	})
}
