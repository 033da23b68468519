// Package memory remembers sessions in front of a store, so that most requests to the
// protected path ask no store.
package memory

import (
	"context"
	"encoding/binary"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/mnemogate/mnemogate/flows/panics"
	"github.com/mnemogate/mnemogate/flows/record"
)

// A Memory is a record.Sessions that remembers the authorized sessions which the
// protected path has asked for, so that it does not ask the store again. It forgets
// a session when the session is revoked. Its own methods forget before they return;
// other nodes report their revocations through the feed (see record.Feed). While the
// feed is stale, a Memory uses nothing that it remembers.
//
// Most of its entries contain no pointers, so that the garbage collector's work does
// not grow with the number of sessions.
type Memory struct {
	record.Sessions
	// Untouched is called when a Touch fails after its request was answered. Set it
	// before the first call. It may be called concurrently. Default: it does
	// nothing.
	Untouched func(error)

	limit    atomic.Int64 // entries per shard
	leaseEnd atomic.Int64 // end of the feed's lease, in nanoseconds since started
	kinds    kinds        // companies and profiles, by number
	asking   singleflight.Group
	touching chan struct{}  // limits the background calls of Touch
	touches  sync.WaitGroup // waits for these calls
	shards   [record.Buckets]shard
}

const maxTouching = 256

// New returns a Memory of up to limit sessions in front of a store. Pass it to the
// store's Run as feed: while it has no lease, it asks the store each time.
func New(sessions record.Sessions, limit int) *Memory {
	m := &Memory{Sessions: sessions, Untouched: func(error) {}, touching: make(chan struct{}, maxTouching)}
	m.kinds.numbers = map[kind]int32{}
	m.kinds.list.Store(new([]kind))
	m.SetLimit(limit)
	return m
}

// SetLimit changes the limit. A smaller limit removes nothing that is already
// remembered.
func (m *Memory) SetLimit(limit int) { m.limit.Store(int64(max(1, limit/record.Buckets))) }

// Recall implements record.Recaller.
//
// It remembers the store's answer only if no session of the same bucket was
// revoked while the store was asked. Otherwise a late answer could bring back a
// revoked session. The memory keeps ID and Created only for sessions that were asked for
// whole.
func (m *Memory) Recall(ctx context.Context, now time.Time, company string, hash record.TokenHash, whole bool, load loader) (record.Session, error) {
	shard := &m.shards[hash.Bucket()]
	if !m.HasLease() {
		shard.misses.Add(1)
		return load(ctx, hash)
	}
	// A session that has expired in memory may have been extended on another node.
	if s, ok := shard.recall(hash, &m.kinds, whole); ok && now.Before(s.Expires) {
		shard.hits.Add(1)
		return s, nil
	}
	shard.misses.Add(1)
	revocations := shard.revocations.Load()
	s, err := m.ask(ctx, company, hash, revocations, load)
	if err == nil && s.State == record.Authorized {
		shard.remember(s, &m.kinds, int(m.limit.Load()), revocations, whole)
	}
	return s, err
}

// A loader is Get of a store, or a function that returns the same.
type loader = func(context.Context, record.TokenHash) (record.Session, error)

// ask calls the store once for concurrent callers that want the same session.
// Callers share an answer only if no revocation arrived between their calls, as the
// answer may be older than that revocation.
func (m *Memory) ask(ctx context.Context, company string, hash record.TokenHash, revocations uint64, load loader) (record.Session, error) {
	key := string(hash[:]) + strconv.FormatUint(revocations, 10) + " " + company
	defer record.SpendStoreTime(ctx)()
	answer, err, _ := m.asking.Do(key, func() (any, error) {
		return load(record.NotYielding(record.Detached(ctx)), hash) // other callers wait for it too
	})
	s, _ := answer.(record.Session)
	return s, err
}

// Len returns the number of sessions in memory.
func (m *Memory) Len() int {
	n := 0
	for i := range m.shards {
		m.shards[i].mu.RLock()
		n += len(m.shards[i].entries)
		m.shards[i].mu.RUnlock()
	}
	return n
}

// Asked returns how often Recall found a session in memory (hits), and
// how often it asked the store (misses).
func (m *Memory) Asked() (hits, misses uint64) {
	for i := range m.shards {
		hits += m.shards[i].hits.Load()
		misses += m.shards[i].misses.Load()
	}
	return hits, misses
}

// Replace implements record.Sessions. Like all methods that revoke, it forgets the
// session even if the store returns an error: it may have been revoked all the same.
func (m *Memory) Replace(ctx context.Context, now time.Time, old record.TokenHash, from record.State, next record.Session, counters ...record.Counter) error {
	defer m.Ended(old)
	return m.Sessions.Replace(ctx, now, old, from, next, counters...)
}

// Delete implements record.Sessions.
func (m *Memory) Delete(ctx context.Context, hash record.TokenHash) error {
	defer m.Ended(hash)
	return m.Sessions.Delete(ctx, hash)
}

// DeleteID implements record.Sessions.
func (m *Memory) DeleteID(ctx context.Context, now time.Time, company string, account int64, id string) (record.Session, error) {
	// If the call fails, the store does not say which session it was.
	defer m.EndedAll(record.Revocation{Company: company, Account: account, Generation: record.AllGenerations})
	return m.Sessions.DeleteID(ctx, now, company, account, id)
}

// DeleteOthers implements record.Sessions.
func (m *Memory) DeleteOthers(ctx context.Context, now time.Time, company string, account int64, keep record.TokenHash) ([]record.Session, error) {
	defer m.EndedAll(record.Revocation{Company: company, Account: account, Generation: record.AllGenerations})
	return m.Sessions.DeleteOthers(ctx, now, company, account, keep)
}

// End implements record.Sessions.
func (m *Memory) End(ctx context.Context, now time.Time, e record.Revocation) error {
	defer m.EndedAll(e)
	return m.Sessions.End(ctx, now, e)
}

// Touch implements record.Sessions. For a remembered session it calls the store in the
// background, so that the request does not wait for a disk. If the process crashes
// at that moment or the store takes no writes, the session expires as if the request
// had not been made; Untouched is called with the store's error. If too many calls
// are under way, Touch waits for its own.
func (m *Memory) Touch(ctx context.Context, now time.Time, hash record.TokenHash, expires time.Time) error {
	if m.shards[hash.Bucket()].extend(hash, expires) && m.HasLease() {
		select {
		case m.touching <- struct{}{}:
			ctx = record.Detached(ctx)
			m.touches.Go(func() {
				defer func() { <-m.touching }()
				err := panics.Contain(func() error { return m.touch(ctx, now, hash, expires) })
				if err != nil && !errors.Is(err, record.ErrNotFound) {
					m.Untouched(err)
				}
			})
			return nil
		default:
		}
	}
	return m.touch(ctx, now, hash, expires)
}

// Wait waits for the background calls of Touch. Touch must not be called meanwhile.
func (m *Memory) Wait() { m.touches.Wait() }

func (m *Memory) touch(ctx context.Context, now time.Time, hash record.TokenHash, expires time.Time) error {
	told := false // still false if Touch panics
	defer func() {
		if !told {
			m.Ended(hash)
		}
	}()
	err := m.Sessions.Touch(ctx, now, hash, expires)
	told = err == nil
	return err
}

// Expire implements record.Sessions.
func (m *Memory) Expire(ctx context.Context, now time.Time, hash record.TokenHash) error {
	defer m.Ended(hash)
	return m.Sessions.Expire(ctx, now, hash)
}

// Raise implements record.Sessions. What is remembered has the profile from before.
func (m *Memory) Raise(ctx context.Context, now time.Time, hash record.TokenHash, from, to record.Profile) error {
	defer m.Ended(hash)
	return m.Sessions.Raise(ctx, now, hash, from, to)
}

// Ended implements record.Feed.
func (m *Memory) Ended(hash record.TokenHash) { m.shards[hash.Bucket()].forget(hash) }

// EndedAll implements record.Feed. If e is a company's revocation, it also forgets the
// sessions of the new generation, which are then loaded again. With a million
// sessions it takes some milliseconds.
func (m *Memory) EndedAll(e record.Revocation) {
	if e.Account == 0 {
		for i := range m.shards {
			m.shards[i].forgetAll(func(of *entry) bool { return m.kinds.of(of.kind).company == e.Company })
		}
		return
	}
	m.shards[record.AccountBucket(e.Company, e.Account)].forgetAll(func(of *entry) bool {
		return of.account == e.Account && of.generation < e.Generation && m.kinds.of(of.kind).company == e.Company
	})
}

// Flush implements record.Feed.
func (m *Memory) Flush() {
	for i := range m.shards {
		m.shards[i].flush()
	}
}

// SetLease implements record.Feed.
func (m *Memory) SetLease(until time.Time) { m.leaseEnd.Store(int64(until.Sub(started))) }

// HasLease reports whether the memory may be used, that is, whether the feed is not
// stale.
func (m *Memory) HasLease() bool { return int64(time.Since(started)) < m.leaseEnd.Load() }

// started is the origin of times on the monotonic clock. If somebody sets the wall
// clock, the lease must not become longer.
var started = time.Now()

// A shard holds the sessions of one bucket.
type shard struct {
	revocations atomic.Uint64 // counts revocations; incremented before the shard forgets
	hits        atomic.Uint64
	misses      atomic.Uint64

	mu      sync.RWMutex
	index   map[uint64]int32 // position in entries, by key
	entries []entry
	hand    int // where in entries the search for an entry to evict continues
	extras  map[record.TokenHash]extra
}

// An entry is a remembered session.
type entry struct {
	hash       record.TokenHash
	account    int64
	generation int64
	expires    int64 // Unix nanoseconds
	ends       int64
	kind       int32  // its number in kinds
	recent     uint32 // 1 if asked for since the hand last passed
	length     uint8  // length of the mnemocode
	mnemocode  [longest]byte
}

// longest is the length of the longest mnemocode that an entry can hold.
const longest = 39

// An extra holds the parts of a session that do not fit into an entry. Most sessions
// have none.
type extra struct {
	mnemocode string
	profile   record.Profile
	id        string // empty unless Recall asked for it
	created   time.Time
	issued    *record.IssuedToken
}

// key returns a part of the hash that does not determine the bucket. Whole hashes as
// keys would take 46 more bytes per session. If two sessions have the same key, the
// second replaces the first, which is then loaded again.
func key(hash record.TokenHash) uint64 { return binary.LittleEndian.Uint64(hash[8:]) }

// find returns the position of a session in entries.
func (s *shard) find(hash record.TokenHash) (i int32, ok bool) {
	i, ok = s.index[key(hash)]
	return i, ok && s.entries[i].hash == hash
}

func (s *shard) recall(hash record.TokenHash, kinds *kinds, whole bool) (record.Session, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	i, ok := s.find(hash)
	if !ok {
		return record.Session{}, false
	}
	e := &s.entries[i]
	of := kinds.of(e.kind)
	more, ok := s.extras[hash]
	if !ok {
		more.mnemocode, more.profile = string(e.mnemocode[:e.length]), of.profile
	}
	if whole && more.id == "" && more.issued == nil {
		return record.Session{}, false
	}
	if atomic.LoadUint32(&e.recent) == 0 {
		atomic.StoreUint32(&e.recent, 1)
	}
	return record.Session{
		Hash:       hash,
		ID:         more.id,
		Company:    of.company,
		Account:    e.account,
		Mnemocode:  more.mnemocode,
		Generation: e.generation,
		State:      record.Authorized,
		Created:    more.created,
		Expires:    time.Unix(0, e.expires),
		Ends:       time.Unix(0, e.ends),
		Profile:    more.profile,
		Issued:     more.issued,
	}, true
}

// remember stores a session unless a session of the shard was revoked since revocations
// was read.
func (s *shard) remember(session record.Session, kinds *kinds, limit int, revocations uint64, whole bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.revocations.Load() != revocations {
		return
	}
	if s.index == nil {
		s.entries = make([]entry, 0, reserved)
		s.index, s.extras = map[uint64]int32{}, map[record.TokenHash]extra{}
	}
	i, ok := s.index[key(session.Hash)]
	if !ok {
		i = s.place(limit)
		s.index[key(session.Hash)] = i
	}
	number, fits := kinds.number(kind{session.Company, session.Profile})
	e := &s.entries[i]
	delete(s.extras, e.hash)
	*e = entry{
		hash:       session.Hash,
		account:    session.Account,
		generation: session.Generation,
		expires:    session.Expires.UnixNano(),
		ends:       session.Ends.UnixNano(),
		kind:       number,
	}
	e.length = uint8(copy(e.mnemocode[:], session.Mnemocode))
	if len(session.Mnemocode) > longest || !fits || whole || session.Issued != nil {
		more := extra{mnemocode: session.Mnemocode, profile: session.Profile, issued: session.Issued}
		if whole || session.Issued != nil {
			more.id, more.created = session.ID, session.Created
		}
		s.extras[session.Hash] = more
	}
}

// place returns a position for a new entry. If the shard is full, it evicts an entry
// that was not asked for lately (the second-chance algorithm).
func (s *shard) place(limit int) int32 {
	if len(s.entries) < limit {
		s.entries = append(s.entries, entry{})
		return int32(len(s.entries) - 1)
	}
	for {
		i := s.hand % len(s.entries)
		s.hand = i + 1
		e := &s.entries[i]
		if e.recent == 0 {
			delete(s.index, key(e.hash))
			delete(s.extras, e.hash)
			return int32(i)
		}
		e.recent = 0
	}
}

// drop removes an entry and moves the last one to its position.
func (s *shard) drop(i int32) {
	hash, last := s.entries[i].hash, len(s.entries)-1
	s.entries[i] = s.entries[last]
	s.index[key(s.entries[i].hash)] = i
	s.entries = s.entries[:last]
	delete(s.index, key(hash))
	delete(s.extras, hash)
}

// extend moves the session's expiry forward. It reports whether the session is
// remembered.
func (s *shard) extend(hash record.TokenHash, expires time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	i, ok := s.find(hash)
	if ok {
		e := &s.entries[i]
		e.expires = max(e.expires, min(expires.UnixNano(), e.ends))
	}
	return ok
}

func (s *shard) forget(hash record.TokenHash) {
	s.revocations.Add(1)
	s.mu.Lock()
	defer s.mu.Unlock()
	if i, ok := s.find(hash); ok {
		s.drop(i)
	}
}

func (s *shard) forgetAll(which func(*entry) bool) {
	s.revocations.Add(1)
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := len(s.entries) - 1; i >= 0; i-- {
		if which(&s.entries[i]) {
			s.drop(int32(i))
		}
	}
}

// reserved is the capacity of a shard with its first session. Unused capacity takes no
// physical memory, and it makes garbage collections rarer when there are few sessions.
const reserved = 2048

func (s *shard) flush() {
	s.revocations.Add(1)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.empty()
}

// empty forgets all sessions. It keeps the capacity unless there were many: if
// another process writes to the same SQLite file, it is called twenty times a
// second.
func (s *shard) empty() {
	s.hand = 0
	if cap(s.entries) == reserved {
		s.entries = s.entries[:0]
		clear(s.index)
		clear(s.extras)
		return
	}
	s.entries, s.index, s.extras = nil, nil, nil
}

// A kind is what many sessions have in common: their company and their profile.
type kind struct {
	company string
	profile record.Profile
}

// maxKinds bounds the profiles that are shared. They hold a role and the methods of the
// login, and sometimes its time.
const maxKinds = 4096

// kinds gives numbers to kinds, so that an entry needs no pointer to a string.
type kinds struct {
	mu      sync.Mutex
	numbers map[kind]int32
	list    atomic.Pointer[[]kind]
}

// number returns the number of a kind. If there are too many, or the profile has an email or
// phone, it returns that of the company without the profile, and false: a kind stays when its
// sessions end.
func (n *kinds) number(k kind) (i int32, ok bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	fits := true
	i, ok = n.numbers[k]
	if !ok && k.profile != "" && (len(n.numbers) >= maxKinds || k.profile.Value(record.ProfileEmail)+k.profile.Value(record.ProfilePhone) != "") {
		k.profile, fits = "", false
		i, ok = n.numbers[k]
	}
	if !ok {
		i = int32(len(n.numbers))
		n.numbers[k] = i
		list := append(*n.list.Load(), k)
		n.list.Store(&list)
	}
	return i, fits
}

func (n *kinds) of(i int32) kind { return (*n.list.Load())[i] }
