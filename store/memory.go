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
// The table holds no pointers that a garbage collector would have to follow,
// however many sessions it has.
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

// RecallWhole is Recall with ID and Created, which are kept beside the table, of
// those sessions that it was asked for: what nobody asks for takes no room.
func (m *Memory) RecallWhole(ctx context.Context, now time.Time, company string, hash record.TokenHash) (record.Session, error) {
	return m.recall(ctx, now, company, hash, true)
}

func (m *Memory) recall(ctx context.Context, now time.Time, company string, hash record.TokenHash, whole bool) (record.Session, error) {
	shard := &m.shards[hash.Bucket()]
	trusted := m.Trusted()
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
		n += m.shards[i].held()
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
	defer m.EndedAll(record.Ending{Company: company, Account: account, Epoch: record.AllEpochs})
	return m.Sessions.DeleteID(ctx, now, company, account, id)
}

// End implements Sessions.
func (m *Memory) End(ctx context.Context, now time.Time, e record.Ending) error {
	defer m.EndedAll(e)
	return m.Sessions.End(ctx, now, e)
}

// Touch implements Sessions. Of a session that is remembered the store is told
// behind the request, which does not wait for a disk: a crash at that moment, or
// a store that takes no writes, lets the session end as if the request had not
// been, and Untouched is told. With too much of it under way the request waits.
func (m *Memory) Touch(ctx context.Context, now time.Time, hash record.TokenHash, expires time.Time) error {
	if m.shards[hash.Bucket()].prolong(hash, expires) && m.Trusted() {
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
func (m *Memory) EndedAll(e record.Ending) {
	company := m.names.number(e.Company)
	if e.Account == 0 {
		for i := range m.shards {
			m.shards[i].forgetAll(func(e *entry) bool { return e.company == company })
		}
		return
	}
	m.shards[record.AccountBucket(e.Company, e.Account)].forgetAll(func(of *entry) bool {
		return of.account == e.Account && of.company == company && of.epoch < e.Epoch
	})
}

// Flush implements Feed.
func (m *Memory) Flush() {
	for i := range m.shards {
		m.shards[i].flush()
	}
}

// Trust implements Feed.
func (m *Memory) Trust(until time.Time) { m.trusted.Store(int64(until.Sub(started))) }

// Trusted reports whether what is remembered is believed: whether the feed is
// heard.
func (m *Memory) Trusted() bool { return int64(time.Since(started)) < m.trusted.Load() }

// started makes the monotonic clock a number: a clock that is set must not
// prolong trust.
var started = time.Now()

// A shard remembers the sessions of one bucket.
type shard struct {
	endings atomic.Uint64 // grows with each ending, before the forgetting
	hits    atomic.Uint64
	misses  atomic.Uint64
	mu      sync.RWMutex
	slots   []uint64 // where which entry is: see find
	chunks  []*[chunkLen]entry
	used    int     // entries ever taken
	free    []int32 // of those, the ones given back
	hand    int32   // where the next one to give up is looked for
	beside  map[int32]beside
	rest    map[int32]rest
}

// A rest is what an entry does not hold of its session, and what never changes.
type rest struct {
	id      string
	created time.Time
}

const chunkLen = 1024

// An entry is a remembered session.
type entry struct {
	hash      record.TokenHash
	account   int64
	epoch     int64
	expires   int64 // Unix nanoseconds
	ends      int64
	company   int32
	recent    uint32 // 1: asked for since the hand last came by
	length    uint8  // of the mnemocode
	mnemocode [longest]byte
}

// longest is the longest mnemocode that an entry holds.
const longest = 39

// A beside is what an entry has no room for. Most have nothing beside them.
type beside struct {
	mnemocode string
	profile   record.Profile
}

func (s *shard) at(i int32) *entry { return &s.chunks[i/chunkLen][i%chunkLen] }

// held returns how many sessions are remembered. The caller holds a lock, as of
// all below that take none.
func (s *shard) held() int { return s.used - len(s.free) }

// find returns the entry's place, and its slot. The slots are an open-addressed
// table, probed one by one: a power of two of them, at most three quarters in
// use. One in use has a place, plus one, and above it the entry's tag, whose low
// bits are the slot that is looked into first.
func (s *shard) find(hash record.TokenHash) (i int32, slot uint32, ok bool) {
	if len(s.slots) == 0 {
		return 0, 0, false
	}
	tag := tagOf(hash)
	for slot = s.first(tag); s.slots[slot] != 0; slot = s.after(slot) {
		i = int32(uint32(s.slots[slot]) - 1)
		if uint32(s.slots[slot]>>32) == tag && s.at(i).hash == hash {
			return i, slot, true
		}
	}
	return 0, 0, false
}

// tagOf returns bits of a hash that the choice of its bucket leaves random.
func tagOf(hash record.TokenHash) uint32 { return binary.LittleEndian.Uint32(hash[8:]) }

func (s *shard) first(tag uint32) uint32  { return tag & uint32(len(s.slots)-1) }
func (s *shard) after(slot uint32) uint32 { return (slot + 1) & uint32(len(s.slots)-1) }

// index makes an entry found, which is in its place already.
func (s *shard) index(i int32) {
	if 4*s.held() > 3*len(s.slots) {
		old := s.slots
		s.slots = make([]uint64, max(8, 2*len(old)))
		for _, content := range old {
			if content != 0 {
				s.fill(content)
			}
		}
	}
	s.fill(uint64(tagOf(s.at(i).hash))<<32 | uint64(i+1))
}

func (s *shard) fill(content uint64) {
	slot := s.first(uint32(content >> 32))
	for s.slots[slot] != 0 {
		slot = s.after(slot)
	}
	s.slots[slot] = content
}

// vacate empties a slot, and moves up what is behind it in the wrong place, so
// that it is still found.
func (s *shard) vacate(slot uint32) {
	mask := uint32(len(s.slots) - 1)
	for next := s.after(slot); s.slots[next] != 0; next = s.after(next) {
		first := s.first(uint32(s.slots[next] >> 32))
		if (next-first)&mask >= (next-slot)&mask {
			s.slots[slot] = s.slots[next]
			slot = next
		}
	}
	s.slots[slot] = 0
}

func (s *shard) recall(hash record.TokenHash, companies *companyNames, whole bool) (record.Session, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	i, _, ok := s.find(hash)
	if !ok {
		return record.Session{}, false
	}
	var whence rest
	if whole {
		if whence, ok = s.rest[i]; !ok {
			return record.Session{}, false
		}
	}
	e := s.at(i)
	if atomic.LoadUint32(&e.recent) == 0 {
		atomic.StoreUint32(&e.recent, 1)
	}
	more, ok := s.beside[i]
	if !ok {
		more.mnemocode = string(e.mnemocode[:e.length])
	}
	return record.Session{
		Hash:      hash,
		ID:        whence.id,
		Company:   companies.name(e.company),
		Account:   e.account,
		Mnemocode: more.mnemocode,
		Epoch:     e.epoch,
		State:     record.Authorized,
		Created:   whence.created,
		Expires:   time.Unix(0, e.expires),
		Ends:      time.Unix(0, e.ends),
		Profile:   more.profile,
	}, true
}

// remember puts a session into the table unless one has ended since endings was
// read.
func (s *shard) remember(session record.Session, company int32, limit int, endings uint64, whole bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.endings.Load() != endings {
		return
	}
	i, _, known := s.find(session.Hash)
	if !known {
		i = s.place(limit)
	}
	e := s.at(i)
	*e = entry{
		hash:    session.Hash,
		account: session.Account,
		epoch:   session.Epoch,
		expires: session.Expires.UnixNano(),
		ends:    session.Ends.UnixNano(),
		company: company,
	}
	e.length = uint8(copy(e.mnemocode[:], session.Mnemocode))
	delete(s.beside, i)
	if len(session.Mnemocode) > longest || session.Profile != "" {
		if s.beside == nil {
			s.beside = map[int32]beside{}
		}
		s.beside[i] = beside{session.Mnemocode, session.Profile}
	}
	if whole {
		if s.rest == nil {
			s.rest = map[int32]rest{}
		}
		s.rest[i] = rest{session.ID, session.Created}
	}
	if !known {
		s.index(i)
	}
}

// place returns a free place: where the table is full, that of an entry which
// was not asked for lately (the second-chance algorithm).
func (s *shard) place(limit int) int32 {
	if n := len(s.free); n > 0 {
		i := s.free[n-1]
		s.free = s.free[:n-1]
		return i
	}
	if s.used < limit {
		if s.used == len(s.chunks)*chunkLen {
			s.chunks = append(s.chunks, new([chunkLen]entry))
		}
		s.used++
		return int32(s.used - 1)
	}
	for {
		i := s.hand
		s.hand = (s.hand + 1) % int32(s.used)
		e := s.at(i)
		if e.recent == 0 {
			s.drop(i)
			s.free = s.free[:len(s.free)-1]
			return i
		}
		e.recent = 0
	}
}

// drop takes an entry out and gives its place back.
func (s *shard) drop(i int32) {
	_, slot, _ := s.find(s.at(i).hash)
	s.vacate(slot)
	delete(s.beside, i)
	delete(s.rest, i)
	*s.at(i) = entry{}
	s.free = append(s.free, i)
}

// prolong reports whether the session is remembered.
func (s *shard) prolong(hash record.TokenHash, expires time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	i, _, ok := s.find(hash)
	if ok {
		e := s.at(i)
		e.expires = max(e.expires, min(expires.UnixNano(), e.ends))
	}
	return ok
}

func (s *shard) forget(hash record.TokenHash) {
	s.endings.Add(1)
	s.mu.Lock()
	defer s.mu.Unlock()
	if i, _, ok := s.find(hash); ok {
		s.drop(i)
	}
}

func (s *shard) forgetAll(which func(*entry) bool) {
	s.endings.Add(1)
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range int32(s.used) {
		if e := s.at(i); which(e) && e.hash != (record.TokenHash{}) {
			s.drop(i)
		}
	}
}

func (s *shard) flush() {
	s.endings.Add(1)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.empty()
}

// reservedChunks are the room for the first 2,048 sessions of a shard: untouched it
// takes none of the machine's memory, and it makes collections rarer where there are few.
const reservedChunks = 2

// empty takes all out. The reserved room stays: where another process writes to the same
// file of SQLite, that is twenty times a second. What is in it nobody finds any more.
func (s *shard) empty() {
	for len(s.chunks) < reservedChunks {
		s.chunks = append(s.chunks, new([chunkLen]entry))
	}
	clear(s.chunks[reservedChunks:])
	s.chunks = s.chunks[:reservedChunks]
	s.slots, s.free, s.beside, s.rest = nil, nil, nil, nil
	s.used, s.hand = 0, 0
}

// companyNames numbers companies, so that an entry need not point to a string.
type companyNames struct {
	mu      sync.RWMutex
	numbers map[string]int32
	list    atomic.Pointer[[]string]
}

func (n *companyNames) number(name string) int32 {
	n.mu.RLock()
	i, ok := n.numbers[name]
	n.mu.RUnlock()
	if ok {
		return i
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if i, ok := n.numbers[name]; ok {
		return i
	}
	if n.numbers == nil {
		n.numbers = map[string]int32{}
	}
	var list []string
	if old := n.list.Load(); old != nil {
		list = *old
	}
	list = append(list[:len(list):len(list)], name)
	n.list.Store(&list)
	n.numbers[name] = int32(len(list) - 1)
	return n.numbers[name]
}

func (n *companyNames) name(i int32) string { return (*n.list.Load())[i] }
