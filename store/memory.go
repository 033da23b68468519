package store

import (
	"context"
	"encoding/binary"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mnemogate/mnemogate/flows/panics"
	"github.com/mnemogate/mnemogate/flows/record"
	"golang.org/x/sync/singleflight"
)

// A Memory is Sessions that remembers the authorized ones which the protected
// path has asked for, so that it need not ask again. It is told of what ends
// (see Feed): by its own methods before they return, by other nodes as soon as
// they tell. While it can't hear them it believes nothing that it remembers.
//
// What it keeps of most sessions has no pointers, so that the garbage collector's
// work does not grow with them.
type Memory struct {
	record.Sessions
	// Untouched is told of a Touch that failed behind its request. It is set before the
	// first call, and may be called concurrently. Default: nobody is told.
	Untouched func(error)

	limit    atomic.Int64 // entries of a shard
	trusted  atomic.Int64 // until when the feed is heard: nanoseconds since started
	names    companyNames // of companies
	asking   singleflight.Group
	touching chan struct{}  // holds one for each Touch that no request waits for
	behind   sync.WaitGroup // of these
	shards   [record.Buckets]shard
}

const maxTouching = 256

// NewMemory returns the sessions with a memory of up to limit of them.
func NewMemory(sessions record.Sessions, limit int) *Memory {
	m := &Memory{Sessions: sessions, Untouched: func(error) {}, touching: make(chan struct{}, maxTouching)}
	m.names.numbers = map[string]int32{}
	m.names.list.Store(new([]string))
	m.SetLimit(limit)
	for i := range m.shards {
		m.shards[i].empty()
	}
	return m
}

// SetLimit changes the limit. What is remembered beyond a smaller one stays.
func (m *Memory) SetLimit(limit int) { m.limit.Store(int64(max(1, limit/record.Buckets))) }

// Recall is Get for the protected path, where company is the one whose token it
// must be; empty for any. What comes from memory lacks ID, Era, Accepted, Created,
// LastUsed, Address and UserAgent, which are seldom of use there. Only what a
// store has said since the last ending of any session of the bucket is
// remembered, so that an answer which was under way meanwhile brings nothing
// back.
func (m *Memory) Recall(ctx context.Context, now time.Time, company string, hash record.TokenHash) (record.Session, error) {
	return m.recall(ctx, now, company, hash, false)
}

// RecallWhole is Recall with ID and Created. These are kept of the sessions that it
// was asked for.
func (m *Memory) RecallWhole(ctx context.Context, now time.Time, company string, hash record.TokenHash) (record.Session, error) {
	return m.recall(ctx, now, company, hash, true)
}

func (m *Memory) recall(ctx context.Context, now time.Time, company string, hash record.TokenHash, whole bool) (record.Session, error) {
	shard := &m.shards[hash.Bucket()]
	trusted := m.HasLease()
	if trusted {
		// One that seems expired may have been prolonged on another node.
		if s, ok := shard.recall(hash, &m.names, whole); ok && now.Before(s.Expires) {
			shard.hits.Add(1)
			return s, nil
		}
	}
	shard.misses.Add(1)
	if !trusted {
		return m.Get(ctx, hash)
	}
	endings := shard.endings.Load()
	s, err := m.ask(ctx, company, hash, endings)
	if err == nil && s.State == record.Authorized {
		shard.remember(s, m.names.number(s.Company), int(m.limit.Load()), endings, whole)
	}
	return s, err
}

// ask asks the store once for all who ask for the same at once, and whom the
// answer could have reached from memory: no ending was heard of since the first
// of them.
func (m *Memory) ask(ctx context.Context, company string, hash record.TokenHash, endings uint64) (record.Session, error) {
	var room [128]byte // spares an allocation
	key := append(binary.LittleEndian.AppendUint64(append(room[:0], hash[:]...), endings), company...)
	answer, err, _ := m.asking.Do(string(key), func() (any, error) {
		return m.Get(context.WithoutCancel(ctx), hash) // others wait for it too
	})
	s, _ := answer.(record.Session)
	return s, err
}

// Len returns how many sessions are remembered.
func (m *Memory) Len() int {
	n := 0
	for i := range m.shards {
		m.shards[i].mu.RLock()
		n += len(m.shards[i].entries)
		m.shards[i].mu.RUnlock()
	}
	return n
}

// Asked returns how often Recall found a session in memory, and how often the
// store was asked instead.
func (m *Memory) Asked() (hits, misses uint64) {
	for i := range m.shards {
		hits += m.shards[i].hits.Load()
		misses += m.shards[i].misses.Load()
	}
	return hits, misses
}

// Replace, Delete, DeleteID, End and Expire forget whatever the store answers: an error does not
// say that nothing has ended.

// Replace implements Sessions.
func (m *Memory) Replace(ctx context.Context, now time.Time, old record.TokenHash, from record.State, next record.Session, counters ...record.Counter) error {
	defer m.Ended(old)
	return m.Sessions.Replace(ctx, now, old, from, next, counters...)
}

// Delete implements Sessions.
func (m *Memory) Delete(ctx context.Context, hash record.TokenHash) error {
	defer m.Ended(hash)
	return m.Sessions.Delete(ctx, hash)
}

// DeleteID implements Sessions.
func (m *Memory) DeleteID(ctx context.Context, now time.Time, company string, account int64, id string) (record.Session, error) {
	// Which it is, a store may not get to say.
	defer m.EndedAll(record.Revocation{Company: company, Account: account, Generation: record.AllGenerations})
	return m.Sessions.DeleteID(ctx, now, company, account, id)
}

// End implements Sessions.
func (m *Memory) End(ctx context.Context, now time.Time, e record.Revocation) error {
	defer m.EndedAll(e)
	return m.Sessions.End(ctx, now, e)
}

// Touch implements Sessions. Of a session that is remembered the store is told
// behind the request, which does not wait for a disk: a crash at that moment, or
// a store that takes no writes, lets the session end as if the request had not
// been, and Untouched is told. With too much of it under way the request waits.
func (m *Memory) Touch(ctx context.Context, now time.Time, hash record.TokenHash, expires time.Time) error {
	if m.shards[hash.Bucket()].prolong(hash, expires) && m.HasLease() {
		select {
		case m.touching <- struct{}{}:
			ctx = context.WithoutCancel(ctx)
			m.behind.Go(func() {
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

// Wait returns once nothing is under way that no request waits for, which must
// not begin meanwhile.
func (m *Memory) Wait() { m.behind.Wait() }

func (m *Memory) touch(ctx context.Context, now time.Time, hash record.TokenHash, expires time.Time) error {
	told := false // also if it panics
	defer func() {
		if !told {
			m.Ended(hash)
		}
	}()
	err := m.Sessions.Touch(ctx, now, hash, expires)
	told = err == nil
	return err
}

// Expire implements Sessions.
func (m *Memory) Expire(ctx context.Context, now time.Time, hash record.TokenHash) error {
	defer m.Ended(hash)
	return m.Sessions.Expire(ctx, now, hash)
}

// Ended implements Feed.
func (m *Memory) Ended(hash record.TokenHash) { m.shards[hash.Bucket()].forget(hash) }

// EndedAll implements Feed. Of a company it forgets also the sessions of the new
// era, which are asked for again: a million take some milliseconds.
func (m *Memory) EndedAll(e record.Revocation) {
	company := m.names.number(e.Company)
	if e.Account == 0 {
		for i := range m.shards {
			m.shards[i].forgetAll(func(e *entry) bool { return e.company == company })
		}
		return
	}
	m.shards[record.AccountBucket(e.Company, e.Account)].forgetAll(func(of *entry) bool {
		return of.account == e.Account && of.company == company && of.generation < e.Generation
	})
}

// Flush implements Feed.
func (m *Memory) Flush() {
	for i := range m.shards {
		m.shards[i].flush()
	}
}

// Trust implements Feed.
func (m *Memory) SetLease(until time.Time) { m.trusted.Store(int64(until.Sub(started))) }

// Trusted reports whether what is remembered is believed: whether the feed is
// heard.
func (m *Memory) HasLease() bool { return int64(time.Since(started)) < m.trusted.Load() }

// started makes the monotonic clock a number: a clock that is set must not
// prolong trust.
var started = time.Now()

// A shard remembers the sessions of one bucket.
type shard struct {
	endings atomic.Uint64 // grows with each ending, before the forgetting
	hits    atomic.Uint64
	misses  atomic.Uint64

	mu      sync.RWMutex
	index   map[uint64]int32 // by key, where in entries
	entries []entry
	hand    int // where in entries the next one to give up is looked for
	extras  map[record.TokenHash]extra
}

// An entry is a remembered session.
type entry struct {
	hash       record.TokenHash
	account    int64
	generation int64
	expires    int64 // Unix nanoseconds
	ends       int64
	company    int32
	recent     uint32 // 1: asked for since the hand last came by
	length     uint8  // of the mnemocode
	mnemocode  [longest]byte
}

// longest is the longest mnemocode that an entry holds.
const longest = 39

// An extra is what an entry has no room for. Most sessions have none.
type extra struct {
	mnemocode string
	profile   record.Profile
	id        string // empty unless RecallWhole asked for it
	created   time.Time
}

// key is a part of a hash, which the choice of its bucket leaves random. Whole hashes would
// take 46 bytes a session more. Of two sessions with one key the second takes the place of
// the first, which is then asked for again.
func key(hash record.TokenHash) uint64 { return binary.LittleEndian.Uint64(hash[8:]) }

// find returns where in entries a session is.
func (s *shard) find(hash record.TokenHash) (i int32, ok bool) {
	i, ok = s.index[key(hash)]
	return i, ok && s.entries[i].hash == hash
}

func (s *shard) recall(hash record.TokenHash, companies *companyNames, whole bool) (record.Session, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	i, ok := s.find(hash)
	if !ok {
		return record.Session{}, false
	}
	e := &s.entries[i]
	more, ok := s.extras[hash]
	if !ok {
		more.mnemocode = string(e.mnemocode[:e.length])
	}
	if whole && more.id == "" {
		return record.Session{}, false
	}
	if atomic.LoadUint32(&e.recent) == 0 {
		atomic.StoreUint32(&e.recent, 1)
	}
	return record.Session{
		Hash:       hash,
		ID:         more.id,
		Company:    companies.name(e.company),
		Account:    e.account,
		Mnemocode:  more.mnemocode,
		Generation: e.generation,
		State:      record.Authorized,
		Created:    more.created,
		Expires:    time.Unix(0, e.expires),
		Ends:       time.Unix(0, e.ends),
		Profile:    more.profile,
	}, true
}

// remember stores a session unless one has ended since endings was read.
func (s *shard) remember(session record.Session, company int32, limit int, endings uint64, whole bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.endings.Load() != endings {
		return
	}
	i, ok := s.index[key(session.Hash)]
	if !ok {
		i = s.place(limit)
		s.index[key(session.Hash)] = i
	}
	e := &s.entries[i]
	delete(s.extras, e.hash)
	*e = entry{
		hash:       session.Hash,
		account:    session.Account,
		generation: session.Generation,
		expires:    session.Expires.UnixNano(),
		ends:       session.Ends.UnixNano(),
		company:    company,
	}
	e.length = uint8(copy(e.mnemocode[:], session.Mnemocode))
	if len(session.Mnemocode) > longest || session.Profile != "" || whole {
		more := extra{mnemocode: session.Mnemocode, profile: session.Profile}
		if whole {
			more.id, more.created = session.ID, session.Created
		}
		s.extras[session.Hash] = more
	}
}

// place returns a place for a new entry: where the memory is full, that of one
// which was not asked for lately (the second-chance algorithm).
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

// drop removes an entry, and moves the last one to its place.
func (s *shard) drop(i int32) {
	hash, last := s.entries[i].hash, len(s.entries)-1
	s.entries[i] = s.entries[last]
	s.index[key(s.entries[i].hash)] = i
	s.entries = s.entries[:last]
	delete(s.index, key(hash))
	delete(s.extras, hash)
}

// prolong reports whether the session is remembered.
func (s *shard) prolong(hash record.TokenHash, expires time.Time) bool {
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
	s.endings.Add(1)
	s.mu.Lock()
	defer s.mu.Unlock()
	if i, ok := s.find(hash); ok {
		s.drop(i)
	}
}

func (s *shard) forgetAll(which func(*entry) bool) {
	s.endings.Add(1)
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := len(s.entries) - 1; i >= 0; i-- {
		if which(&s.entries[i]) {
			s.drop(int32(i))
		}
	}
}

// reserved is the room for sessions that a shard begins with. Untouched it takes none of
// the machine's memory, and it makes collections rarer where there are few sessions.
const reserved = 2048

func (s *shard) flush() {
	s.endings.Add(1)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.empty()
}

// empty forgets all. It allocates nothing unless there were many sessions: where another
// process writes to the same SQLite file, it is called twenty times a second.
func (s *shard) empty() {
	s.hand = 0
	if cap(s.entries) == reserved {
		s.entries = s.entries[:0]
		clear(s.index)
		clear(s.extras)
		return
	}
	s.entries = make([]entry, 0, reserved)
	s.index, s.extras = map[uint64]int32{}, map[record.TokenHash]extra{}
}

// companyNames numbers companies, so that an entry need not point to a string.
type companyNames struct {
	mu      sync.Mutex
	numbers map[string]int32
	list    atomic.Pointer[[]string]
}

func (n *companyNames) number(name string) int32 {
	n.mu.Lock()
	defer n.mu.Unlock()
	i, ok := n.numbers[name]
	if !ok {
		i = int32(len(n.numbers))
		n.numbers[name] = i
		list := append(*n.list.Load(), name)
		n.list.Store(&list)
	}
	return i
}

func (n *companyNames) name(i int32) string { return (*n.list.Load())[i] }
