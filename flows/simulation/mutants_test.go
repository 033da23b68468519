package simulation

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/store/memory"
)

// A mutant is a fault that stores, feeds and memories of other systems have had. It is planted
// in what the nodes are given, and a simulation must find it. The zero mutant is none.
type mutant struct {
	accounts     func(*world, record.Accounts) record.Accounts
	sessions     func(*world, record.Sessions) record.Sessions
	feed         func(record.Feed) record.Feed        // what a node's memory hears
	channel      func(record.Feed) record.Feed        // what Redis is told to publish
	memory       func(*memory.Memory) record.Sessions // what a node remembers
	hasty        bool                                 // wait_replicas does not wait
	hastyStandby bool                                 // synchronous_standby_names does not wait
	scripts      bool                                 // it is planted in a node that runs the scripts
	seed         uint64                               // with which it was found; tried first
}

var mutants = map[string]mutant{
	"a counter is read, then written":               {sessions: func(_ *world, s record.Sessions) record.Sessions { return readThenCharge{s} }},
	"a code is read, then removed":                  {sessions: func(_ *world, s record.Sessions) record.Sessions { return readThenSpend{s} }},
	"a token is replaced in two steps":              {sessions: func(_ *world, s record.Sessions) record.Sessions { return createThenDelete{s} }},
	"a key is looked at, then claimed":              {sessions: func(_ *world, s record.Sessions) record.Sessions { return lookThenClaim{s} }},
	"a logout is published before it is stored":     {seed: 486, sessions: func(w *world, s record.Sessions) record.Sessions { return publishThenDelete{s, w} }, channel: mute},
	"a revocation ends only what it lists":          {seed: 79, sessions: func(_ *world, s record.Sessions) record.Sessions { return listThenEnd{s} }},
	"a revocation is acknowledged, then stored":     {sessions: func(w *world, s record.Sessions) record.Sessions { return acknowledgeThenEnd{s, w} }},
	"a lost answer is taken for a success":          {seed: 101, sessions: func(_ *world, s record.Sessions) record.Sessions { return takeForSuccess{s} }},
	"a touch writes the whole session back":         {seed: 53, sessions: func(_ *world, s record.Sessions) record.Sessions { return touchBack{s} }},
	"a new session displaces none":                  {sessions: func(_ *world, s record.Sessions) record.Sessions { return displaceNone{s} }},
	"a failure count is read, then written":         {accounts: func(_ *world, a record.Accounts) record.Accounts { return readThenCount{a} }},
	"a backup code that is gone is used":            {accounts: func(_ *world, a record.Accounts) record.Accounts { return useAnyCode{a} }},
	"an event is stored some time after its change": {seed: 37, accounts: func(w *world, a record.Accounts) record.Accounts { return changeThenTell{a, w} }},
	"an event that failed is sent last":             {seed: 131, accounts: func(_ *world, a record.Accounts) record.Accounts { return failedLast{a} }},
	"events are acknowledged before they are sent":  {seed: 16, accounts: func(_ *world, a record.Accounts) record.Accounts { return acknowledgeAll{a} }},
	"a login id is looked up in all companies":      {accounts: func(_ *world, a record.Accounts) record.Accounts { return anyCompany{a} }},
	"a session is one of each company":              {memory: func(m *memory.Memory) record.Sessions { return eachCompany{m} }},
	"what is pending is never revoked":              {accounts: func(_ *world, a record.Accounts) record.Accounts { return pendingForever{a} }},
	"a feed trusts its memory for too long":         {seed: 152, feed: func(f record.Feed) record.Feed { return longLease{f} }},
	"a feed trusts its memory too early":            {seed: 43, feed: func(f record.Feed) record.Feed { return noFlush{f} }},
	"a feed passes on no revocation of a company":   {seed: 35, feed: func(f record.Feed) record.Feed { return noCompanies{f} }},
	"a memory keeps an answer that came late":       {memory: func(m *memory.Memory) record.Sessions { return &lateMemory{Memory: m} }},
	"a change is acknowledged without a replica":    {seed: 9, hasty: true},
	"a node remembers what a failover has lost":     {seed: 9, feed: func(f record.Feed) record.Feed { return noFlush{f} }, scripts: true},
	"a change is acknowledged without a standby":    {seed: 9, hastyStandby: true},
}

// Each planted fault is found within 1,000 seeds.
func TestPlantedFaultsAreFound(t *testing.T) {
	for _, name := range slices.Sorted(maps.Keys(mutants)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for i := range uint64(1001) {
				seed := cmp.Or(i, mutants[name].seed+1) - 1 // that of the row, then 0, 1, 2, …
				p := newPlan(seed)
				p.planted = name
				if failures, _ := simulate(t, p, false, mutants[name].scripts); len(failures) > 0 {
					t.Logf("seed %d: %s", seed, failures[0])
					return
				}
			}
			t.Error("not found")
		})
	}
}

// pause is long enough for another node.
func pause() { time.Sleep(3 * time.Millisecond) }

type readThenCharge struct{ record.Sessions }

func (s readThenCharge) Charge(ctx context.Context, now time.Time, counters ...record.Counter) error {
	if err := s.Sessions.Charge(ctx, now, record.CheckOnly(counters...)...); err != nil {
		return err
	}
	counters = slices.DeleteFunc(slices.Clone(counters), func(c record.Counter) bool { return c.CheckOnly })
	for i := range counters {
		counters[i].Limit = 1 << 30
	}
	return s.Sessions.Charge(ctx, now, counters...)
}

func (s readThenCharge) Create(ctx context.Context, now time.Time, next record.Session, counters ...record.Counter) error {
	if err := s.Charge(ctx, now, counters...); err != nil {
		return err
	}
	return s.Sessions.Create(ctx, now, next)
}

type readThenSpend struct{ record.Sessions }

func (s readThenSpend) SpendCode(ctx context.Context, now time.Time, company string, hash record.TokenHash, state record.State, counters ...record.Counter) (record.Session, error) {
	read, err := s.Get(ctx, hash)
	if err != nil || read.State != state {
		return s.Sessions.SpendCode(ctx, now, company, hash, state, counters...)
	}
	_, err = s.Sessions.SpendCode(ctx, now, company, hash, state, counters...)
	return read, err
}

func (s readThenSpend) Replace(ctx context.Context, now time.Time, old record.TokenHash, from record.State, next record.Session, counters ...record.Counter) error {
	return createThenDelete(s).Replace(ctx, now, old, from, next, counters...)
}

type createThenDelete struct{ record.Sessions }

func (s createThenDelete) Replace(ctx context.Context, now time.Time, old record.TokenHash, from record.State, next record.Session, counters ...record.Counter) error {
	if found, err := s.Get(ctx, old); err != nil || found.State != from {
		return record.ErrConflict
	}
	if err := s.Create(ctx, now, next, counters...); err != nil {
		return err
	}
	if err := s.Delete(ctx, old); !record.IsAnswer(err) {
		return err
	}
	return nil
}

type lookThenClaim struct{ record.Sessions }

func (s lookThenClaim) Claim(ctx context.Context, now time.Time, name, holder string, until time.Time, counters ...record.Counter) ([]byte, error) {
	answer, err := s.Sessions.Claim(ctx, now, name, "looks", now.Add(time.Microsecond), counters...)
	if err != nil || answer != nil {
		return answer, err
	}
	if _, err = s.Sessions.Claim(ctx, now.Add(time.Millisecond), name, holder, until); errors.Is(err, record.ErrConflict) {
		err = nil
	}
	return nil, err
}

// mute publishes nothing: publishThenDelete does.
func mute(record.Feed) record.Feed { return nil }

type publishThenDelete struct {
	record.Sessions
	w *world
}

func (s publishThenDelete) Delete(ctx context.Context, hash record.TokenHash) error {
	s.w.channel.Ended(hash)
	return s.Sessions.Delete(ctx, hash)
}

func (s publishThenDelete) End(ctx context.Context, now time.Time, e record.Revocation) error {
	s.w.channel.EndedAll(e)
	return s.Sessions.End(ctx, now, e)
}

type listThenEnd struct{ record.Sessions }

func (s listThenEnd) End(ctx context.Context, now time.Time, e record.Revocation) error {
	if e.Account == 0 {
		return s.Sessions.End(ctx, now, e)
	}
	all, err := s.List(ctx, now, e.Company, e.Account)
	for _, found := range all {
		if found.Generation < e.Generation && found.Hash != e.Keep && err == nil {
			if err = s.Delete(ctx, found.Hash); record.IsAnswer(err) {
				err = nil
			}
		}
	}
	return err
}

type acknowledgeThenEnd struct {
	record.Sessions
	w *world
}

func (s acknowledgeThenEnd) End(ctx context.Context, now time.Time, e record.Revocation) error {
	s.w.stopped.Go(func() { _ = s.Sessions.End(ctx, now, e) })
	return nil
}

type takeForSuccess struct{ record.Sessions }

func (s takeForSuccess) Delete(ctx context.Context, hash record.TokenHash) error {
	if err := s.Sessions.Delete(ctx, hash); record.IsAnswer(err) {
		return err
	}
	return nil
}

type touchBack struct{ record.Sessions }

func (s touchBack) Touch(ctx context.Context, now time.Time, hash record.TokenHash, expires time.Time) error {
	found, err := s.Get(ctx, hash)
	if err != nil {
		return err
	}
	pause()
	if err = s.Sessions.Touch(ctx, now, hash, expires); errors.Is(err, record.ErrNotFound) {
		err = s.Create(ctx, now, found)
	}
	return err
}

type displaceNone struct{ record.Sessions }

func (s displaceNone) Create(ctx context.Context, now time.Time, next record.Session, counters ...record.Counter) error {
	next.AtMost = 0
	return s.Sessions.Create(ctx, now, next, counters...)
}

type readThenCount struct{ record.Accounts }

func (a readThenCount) UpdateFailures(ctx context.Context, now time.Time, key record.FailureKey, kind record.FailureKind, change func(*record.FailureCount) error) error {
	counts, err := a.FailureCounts(ctx, key)
	if err != nil {
		return err
	}
	read := counts[kind]
	if err := change(&read); err != nil {
		return err
	}
	return a.Accounts.UpdateFailures(ctx, now, key, kind, func(f *record.FailureCount) error {
		*f = read
		return nil
	})
}

type useAnyCode struct{ record.Accounts }

func (a useAnyCode) UseBackupCode(ctx context.Context, company string, id int64, hash string) error {
	if err := a.Accounts.UseBackupCode(ctx, company, id, hash); !record.IsAnswer(err) {
		return err
	}
	return nil
}

type changeThenTell struct {
	record.Accounts
	w *world
}

func (a changeThenTell) Update(ctx context.Context, company string, id int64, change func(*record.Account) (bool, error)) (record.Account, error) {
	var events []record.OutboxEvent
	stored, err := a.Accounts.Update(ctx, company, id, func(of *record.Account) (bool, error) {
		ends, err := change(of)
		events, of.Outbox = of.Outbox, nil
		return ends, err
	})
	if err == nil {
		a.w.stopped.Go(func() {
			time.Sleep(200 * time.Millisecond)
			_ = a.Accept(ctx, company, id, nil, events...)
		})
	}
	return stored, err
}

type failedLast struct{ record.Accounts }

func (a failedLast) Claim(ctx context.Context, now, until time.Time, company string, limit int) ([]record.OutboxQueue, error) {
	queues, err := a.Accounts.Claim(ctx, now, until, company, limit)
	for i, q := range queues {
		if q.Tries > 0 && len(q.Events) > 1 {
			queues[i].Events = append(slices.Clone(q.Events[1:]), q.Events[0])
		}
	}
	return queues, err
}

type acknowledgeAll struct{ record.Accounts }

func (a acknowledgeAll) Claim(ctx context.Context, now, until time.Time, company string, limit int) ([]record.OutboxQueue, error) {
	queues, err := a.Accounts.Claim(ctx, now, until, company, limit)
	for _, q := range queues {
		var all []int64
		for _, e := range q.Events {
			all = append(all, e.Number)
		}
		_ = a.Acknowledge(ctx, q, all, now, 0)
	}
	return queues, err
}

type anyCompany struct{ record.Accounts }

func (a anyCompany) ByLoginID(ctx context.Context, _, loginID, loginIDHash string) (record.Account, error) {
	return a.Accounts.ByLoginID(ctx, "acme", loginID, loginIDHash)
}

type eachCompany struct{ *memory.Memory }

func (m eachCompany) Recall(ctx context.Context, now time.Time, company string, hash record.TokenHash, whole bool, load func(context.Context, record.TokenHash) (record.Session, error)) (record.Session, error) {
	found, err := m.Memory.Recall(ctx, now, company, hash, whole, load)
	found.Company = company
	return found, err
}

type pendingForever struct{ record.Accounts }

func (pendingForever) PendingRevocations(context.Context, record.Revocation, int) ([]record.Revocation, error) {
	return nil, nil
}

type longLease struct{ record.Feed }

func (f longLease) SetLease(until time.Time) {
	if !until.IsZero() {
		f.Feed.SetLease(until.Add(10 * time.Second))
	}
}

type noFlush struct{ record.Feed }

func (noFlush) Flush() {}

type noCompanies struct{ record.Feed }

func (f noCompanies) EndedAll(e record.Revocation) {
	if e.Account != 0 {
		f.Feed.EndedAll(e)
	}
}

// A lateMemory remembers what the store answered, even if the session was revoked meanwhile.
type lateMemory struct {
	*memory.Memory
	mu    sync.Mutex
	known map[record.TokenHash]record.Session
}

func (m *lateMemory) Recall(ctx context.Context, now time.Time, company string, hash record.TokenHash, whole bool, load func(context.Context, record.TokenHash) (record.Session, error)) (record.Session, error) {
	m.mu.Lock()
	found, ok := m.known[hash]
	m.mu.Unlock()
	if ok && m.HasLease() && m.Len() > 0 {
		return found, nil
	}
	before := m.Len()
	found, err := m.Memory.Recall(ctx, now, company, hash, whole, load)
	m.mu.Lock()
	defer m.mu.Unlock()
	if err == nil && found.State == record.Authorized && m.Len() == before {
		if m.known == nil {
			m.known = map[record.TokenHash]record.Session{}
		}
		m.known[hash] = found
	}
	return found, err
}
