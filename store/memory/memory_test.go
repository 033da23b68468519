package memory

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"flag"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"runtime/metrics"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/store/sqlite"
)

// A madeSessions makes up each session that it is asked for. Its other methods fail.
type madeSessions struct {
	record.Sessions
	change  func(*record.Session) // applied to each session
	during  func(record.Session)  // called before Get returns its answer
	gets    atomic.Int64          // calls of Get
	touches atomic.Int64          // calls of Touch
	release chan struct{}         // Get and Touch block until it is closed; nil for never
	refused error                 // returned by Touch
}

func newMadeSessions() *madeSessions {
	return &madeSessions{Sessions: sqlite.Open("").Sessions(), change: func(*record.Session) {}, during: func(record.Session) {}}
}

var farAway = time.Now().Add(1000 * time.Hour)

func (m *madeSessions) Get(ctx context.Context, hash record.TokenHash) (record.Session, error) {
	m.gets.Add(1)
	if m.release != nil {
		select {
		case <-m.release:
		case <-ctx.Done():
			return record.Session{}, ctx.Err()
		}
	}
	s := record.Session{
		Hash: hash, ID: "0123456789abcdef0123456789abcdef", Company: "acme", Account: 7, Mnemocode: "profile-0000001", Generation: 1,
		State: record.Authorized, Created: farAway.Add(-time.Hour), Expires: farAway, Ends: farAway.Add(time.Hour),
	}
	m.change(&s)
	m.during(s)
	return s, nil
}

func (m *madeSessions) Touch(context.Context, time.Time, record.TokenHash, time.Time) error {
	m.touches.Add(1)
	if m.release != nil {
		<-m.release
	}
	return m.refused
}

// newLeasedMemory returns a Memory whose lease does not end during the test.
func newLeasedMemory(sessions record.Sessions, limit int) *Memory {
	m := New(sessions, limit)
	m.SetLease(farAway)
	return m
}

// recall calls Recall and reports whether that asked the store.
func recall(t testing.TB, m *Memory, hash record.TokenHash) (_ record.Session, asked bool) {
	t.Helper()
	_, before := m.Asked()
	s, err := m.Recall(bg, time.Now(), "", hash, false, m.Get)
	must(t, err)
	_, after := m.Asked()
	return s, after != before
}

func wantAsked(t testing.TB, m *Memory, hash record.TokenHash, want bool, why string) {
	t.Helper()
	if _, asked := recall(t, m, hash); asked != want {
		t.Errorf("%s: the store was asked: %v, want %v", why, asked, want)
	}
}

func TestMemoryReturnsWhatTheStoreSaid(t *testing.T) {
	for name, change := range map[string]func(*record.Session){
		"a usual session":  func(*record.Session) {},
		"a long mnemocode": func(s *record.Session) { s.Mnemocode = strings.Repeat("long", 32) },
		"a profile":        func(s *record.Session) { s.Profile = "a profile" },
	} {
		t.Run(name, func(t *testing.T) {
			made := newMadeSessions()
			made.change = change
			want := get[record.Session](t)(made.Get(bg, hash("a")))
			memory := newLeasedMemory(made, 1000)
			for i := range 3 {
				got, asked := recall(t, memory, hash("a"))
				if asked != (i == 0) {
					t.Errorf("call %d: the store was asked: %v", i, asked)
				}
				got.ID, got.Created = want.ID, want.Created
				wantEqual(t, "recalled", got, want)
			}
			for i := range 3 {
				before := made.gets.Load()
				wantEqual(t, "recalled whole", get[record.Session](t)(memory.Recall(bg, time.Now(), "", hash("a"), true, memory.Get)), want)
				if asked := made.gets.Load() > before; asked != (i == 0) {
					t.Errorf("whole, call %d: the store was asked: %v", i, asked)
				}
			}
			if n := memory.Len(); n != 1 {
				t.Errorf("%d sessions are remembered, want 1", n)
			}
		})
	}
}

// The store's methods return errors here. The session may have been revoked all the
// same.
func TestMemoryForgetsWhatIsRevokedWhateverTheStoreAnswers(t *testing.T) {
	next := record.Session{Hash: hash("next"), State: record.Authorized}
	for name, revoke := range map[string]func(m *Memory, s record.Session) error{
		"Replace":  func(m *Memory, s record.Session) error { return m.Replace(bg, t0, s.Hash, s.State, next) },
		"Delete":   func(m *Memory, s record.Session) error { return m.Delete(bg, s.Hash) },
		"Raise":    func(m *Memory, s record.Session) error { return m.Raise(bg, t0, s.Hash, s.Profile, "raised") },
		"Expire":   func(m *Memory, s record.Session) error { return m.Expire(bg, t0, s.Hash) },
		"DeleteID": func(m *Memory, s record.Session) error { return second(m.DeleteID(bg, t0, s.Company, s.Account, s.ID)) },
		"DeleteOthers": func(m *Memory, s record.Session) error {
			return second(m.DeleteOthers(bg, t0, s.Company, s.Account, hash("another")))
		},
		"End of the account": func(m *Memory, s record.Session) error {
			return m.End(bg, t0, record.Revocation{Company: s.Company, Account: s.Account, Generation: s.Generation + 1})
		},
		"End of the company": func(m *Memory, s record.Session) error {
			return m.End(bg, t0, record.Revocation{Company: s.Company, Generation: 1})
		},
	} {
		t.Run(name, func(t *testing.T) {
			memory := newLeasedMemory(newMadeSessions(), 1000)
			token := tokenOf("acme", 7)
			s, _ := recall(t, memory, token)
			if err := revoke(memory, s); err == nil {
				t.Error("the store has not failed")
			}
			wantAsked(t, memory, token, true, "after the call")
		})
	}
}

// tokenOf returns a hash in the bucket of an account's sessions.
func tokenOf(company string, account int64) record.TokenHash {
	return record.TokenHash{byte(record.AccountBucket(company, account))}
}

func TestMemoryForgetsOnlyWhatIsRevoked(t *testing.T) {
	made := newMadeSessions()
	made.change = func(s *record.Session) {
		if s.Hash[1] == 1 {
			s.Generation = 2
		}
	}
	memory := newLeasedMemory(made, 1000)
	old, young := tokenOf("acme", 7), tokenOf("acme", 7)
	young[1], young[8] = 1, 1
	recall(t, memory, old)
	recall(t, memory, young)
	memory.EndedAll(record.Revocation{Company: "other", Account: 7, Generation: 9})
	memory.EndedAll(record.Revocation{Company: "acme", Account: 8, Generation: 9})
	memory.EndedAll(record.Revocation{Company: "other", Generation: 9})
	wantAsked(t, memory, old, false, "after others'")
	memory.EndedAll(record.Revocation{Company: "acme", Account: 7, Generation: 2})
	wantAsked(t, memory, young, false, "of the new generation")
	wantAsked(t, memory, old, true, "of the one that was revoked")
	memory.Ended(old)
	wantAsked(t, memory, young, false, "beside one that was revoked")
	wantAsked(t, memory, old, true, "revoked by its hash")
}

func TestAReadUnderWayDuringARevocationBringsNothingBack(t *testing.T) {
	for name, revoke := range map[string]func(m *Memory, s record.Session){
		"of the session": func(m *Memory, s record.Session) { m.Ended(s.Hash) },
		"of the account": func(m *Memory, s record.Session) {
			m.EndedAll(record.Revocation{Company: s.Company, Account: s.Account, Generation: s.Generation + 1})
		},
		"of the company": func(m *Memory, s record.Session) { m.EndedAll(record.Revocation{Company: s.Company, Generation: 1}) },
		"of the feed":    func(m *Memory, _ record.Session) { m.Flush() },
	} {
		t.Run(name, func(t *testing.T) {
			made := newMadeSessions()
			memory := newLeasedMemory(made, 1000)
			made.during = func(s record.Session) { revoke(memory, s) }
			recall(t, memory, tokenOf("acme", 7)) // the store answered before the revocation
			if memory.Len() != 0 {
				t.Error("a session that was revoked meanwhile is remembered")
			}
		})
	}
}

func TestWithoutALeaseNothingIsBelieved(t *testing.T) {
	memory := newLeasedMemory(newMadeSessions(), 1000)
	wantAsked(t, memory, hash("a"), true, "at first")
	wantAsked(t, memory, hash("a"), false, "with trust")
	memory.SetLease(time.Time{})
	wantAsked(t, memory, hash("a"), true, "without trust")
	wantAsked(t, memory, hash("a"), true, "still without trust")
	memory.Flush()
	memory.SetLease(farAway)
	wantAsked(t, memory, hash("a"), true, "after the trust's return")
	wantAsked(t, memory, hash("a"), false, "and then")
}

// A session that is used on another node is extended there, so it only seems to
// expire on this one.
func TestWhatSeemsExpiredIsAskedFor(t *testing.T) {
	made := newMadeSessions()
	memory := newLeasedMemory(made, 1000)
	recall(t, memory, hash("a"))
	made.change = func(s *record.Session) { s.Expires = s.Ends }
	for i, now := range []time.Time{farAway.Add(-1), farAway, farAway} {
		s := get[record.Session](t)(memory.Recall(bg, now, "", hash("a"), false, memory.Get))
		if !now.Before(s.Expires) || made.gets.Load() != int64(min(2, 1+i)) {
			t.Errorf("at %v: it expires at %v, and the store was asked %d times", now, s.Expires, made.gets.Load())
		}
	}
}

// Each session keeps its own company and profile, also once the memory has seen more
// profiles than it shares.
func TestMemoryKeepsAnyNumberOfProfiles(t *testing.T) {
	made := newMadeSessions()
	made.change = func(s *record.Session) {
		s.Company = "company " + strconv.Itoa(int(s.Hash[8]%2))
		s.Profile = record.Profile(strconv.Itoa(int(binary.LittleEndian.Uint32(s.Hash[8:]))))
	}
	memory := newLeasedMemory(made, 1<<20)
	const n = maxKinds + 10
	for range 2 {
		for i := range n {
			var hash record.TokenHash
			binary.LittleEndian.PutUint32(hash[8:], uint32(i))
			got, _ := recall(t, memory, hash)
			if got.Company != "company "+strconv.Itoa(i%2) || got.Profile != record.Profile(strconv.Itoa(i)) {
				t.Fatalf("session %d: got %q of %q", i, got.Profile, got.Company)
			}
		}
	}
	if asked := made.gets.Load(); asked != n {
		t.Errorf("the store was asked %d times for %d sessions", asked, n)
	}
	memory.EndedAll(record.Revocation{Company: "company 1"})
	if left := memory.Len(); left != n/2 {
		t.Errorf("%d sessions are left, want %d", left, n/2)
	}
}

// An ended session leaves no email or phone: only what many users have in common stays.
func TestMemoryForgetsEmailsAndPhones(t *testing.T) {
	for _, profile := range []record.Profile{"user alice@example.com   pwd", "user  +37060000001  pwd", "  +37060000001  "} {
		for _, issued := range []*record.IssuedToken{nil, {ID: "t"}} {
			made := newMadeSessions()
			made.change = func(s *record.Session) { s.Profile, s.Issued = profile, issued }
			memory := newLeasedMemory(made, 1000)
			token := tokenOf("acme", 7)
			recall(t, memory, token)
			if s, asked := recall(t, memory, token); asked || s.Profile != profile {
				t.Errorf("%q was not remembered: %q", profile, s.Profile)
			}
			memory.EndedAll(record.Revocation{Company: "acme", Account: 7, Generation: 2})
			for _, k := range *memory.kinds.list.Load() {
				if k.profile != "" {
					t.Errorf("%q is kept", k.profile)
				}
			}
			if n := len(memory.shards[token.Bucket()].extras); n != 0 {
				t.Errorf("%d extras are kept", n)
			}
		}
	}
}

// Sessions in use stay. Sessions that were asked for once make room.
func TestTheMemoryIsBounded(t *testing.T) {
	made := newMadeSessions()
	made.change = func(s *record.Session) { s.Mnemocode = strings.Repeat("long", 32) }
	memory := newLeasedMemory(made, 10*record.Buckets)
	used := record.TokenHash{5, 5}
	recall(t, memory, used)
	for i := range 200 {
		wantAsked(t, memory, used, false, "in use")
		recall(t, memory, record.TokenHash{5, 6, 8: byte(1 + i)})
		if _, ok := memory.shards[5].find(record.TokenHash{5, 6, 8: byte(i)}); i > 0 && !ok {
			t.Errorf("session %d has made room for the next one", i)
		}
		if n := memory.Len(); n != min(10, 2+i) {
			t.Fatalf("%d sessions are remembered after %d", n, 2+i)
		}
	}
	if n := len(memory.shards[5].extras); n != 10 {
		t.Errorf("%d extras, want 10", n)
	}
	memory.SetLimit(1) // existing entries stay
	wantAsked(t, memory, used, false, "in use")
	recall(t, memory, record.TokenHash{5, 8: 255})
	if n := memory.Len(); n != 10 {
		t.Errorf("%d sessions are remembered, want 10", n)
	}
}

// After any sequence of remembering and forgetting, the Memory finds exactly what it
// remembers.
func TestMemoryFindsWhatItHolds(t *testing.T) {
	t.Parallel()
	memory := newLeasedMemory(newMadeSessions(), 1<<20)
	hash := func(i int) (h record.TokenHash) {
		binary.LittleEndian.PutUint32(h[8:], uint32(i))
		return h
	}
	draw := rand.New(rand.NewPCG(1, 2))
	held := map[int]bool{}
	for step := range 100_000 {
		i := draw.IntN(500)
		switch draw.IntN(2 + step/20_000%3) { // grows, then shrinks
		case 0:
			s, asked := recall(t, memory, hash(i))
			if s.Hash != hash(i) || asked == held[i] {
				t.Fatalf("step %d: got the session of %x, the store asked: %v, remembered: %v", step, s.Hash, asked, held[i])
			}
			held[i] = true
		default:
			memory.Ended(hash(i))
			delete(held, i)
		}
		if step%30_000 == 29_999 {
			memory.Flush()
			clear(held)
		}
		if step%50 == 0 && memory.Len() != len(held) { // counting is slow, so not in each step
			t.Fatalf("step %d: %d are remembered, want %d", step, memory.Len(), len(held))
		}
	}
}

// If two sessions have the same key in the index, only one is remembered, and
// neither is mistaken for the other.
func TestMemoryTellsSessionsWithOneKeyApart(t *testing.T) {
	made := newMadeSessions()
	made.change = func(s *record.Session) {
		s.Mnemocode, s.Profile = strings.Repeat("long", 32), record.Profile(s.Hash[20:21])
	}
	memory := newLeasedMemory(made, 1000)
	a, b := record.TokenHash{20: 'a'}, record.TokenHash{20: 'b'}
	for range 2 {
		for _, hash := range []record.TokenHash{a, b} {
			s, asked := recall(t, memory, hash)
			if s.Hash != hash || s.Profile != record.Profile(hash[20:21]) || !asked {
				t.Errorf("got %x with %q, asked: %v", s.Hash, s.Profile, asked)
			}
		}
	}
	memory.Ended(a)
	wantAsked(t, memory, b, false, "after the other's end")
	if memory.Len() != 1 || len(memory.shards[0].extras) != 1 {
		t.Errorf("%d sessions are remembered, with %d extras", memory.Len(), len(memory.shards[0].extras))
	}
}

// Recall, revoke and flush concurrently. A session that was revoked before Recall
// began is never returned.
func TestMemoryUnderConcurrency(t *testing.T) {
	s := sqlite.Open(filepath.Join(t.TempDir(), "test.db"))
	must(t, s.Start(bg))
	t.Cleanup(func() { must(t, s.Close()) })
	sessions := s.Sessions()
	memory := newLeasedMemory(sessions, 2*record.Buckets)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for j := range 30 {
				s := session("m1", 1, 1, record.Authorized)
				s.Hash[8], s.Hash[9], s.ID = byte(i), byte(j), strconv.Itoa(i*100+j)
				must(t, memory.Create(bg, t0, s))
				for range rand.IntN(4) {
					if _, err := memory.Recall(bg, t0, "", s.Hash, false, memory.Get); err != nil {
						t.Errorf("a live session was refused: %v", err)
					}
				}
				must(t, memory.Delete(bg, s.Hash))
				wantErr(t, "recalling a revoked session", second(memory.Recall(bg, t0, "", s.Hash, false, memory.Get)), record.ErrNotFound)
			}
		})
	}
	wg.Go(func() {
		for range 50 {
			memory.Flush()
			memory.Len()
			runtime.Gosched()
		}
	})
	wg.Wait()
}

func TestATouchWaitsForNoDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		made := newMadeSessions()
		made.change = func(s *record.Session) { s.Expires, s.Ends = now.Add(time.Hour), now.Add(24*time.Hour) }
		made.release = make(chan struct{})
		memory := New(made, 100)
		memory.SetLease(now.Add(time.Hour))
		expires := func() time.Time {
			return get[record.Session](t)(memory.Recall(bg, now, "", hash("a"), false, memory.Get)).Expires
		}
		touched := make(chan error, 1)
		touch := func() {
			go func() { touched <- memory.Touch(bg, now, hash("a"), now.Add(2*time.Hour)) }()
			synctest.Wait()
		}
		touch()
		select {
		case <-touched:
			t.Error("what is not remembered must be written first")
		default:
		}
		close(made.release)
		<-touched
		expires() // loads the session, so that it is remembered
		made.release = make(chan struct{})
		for range maxTouching {
			touch()
			must(t, <-touched)
		}
		if got := expires(); !got.Equal(now.Add(2 * time.Hour)) {
			t.Errorf("it expires at %v", got)
		}
		touch()
		select {
		case <-touched:
			t.Error("nothing bounds what waits behind requests")
		default:
		}
		close(made.release)
		<-touched
		memory.Wait()
		if n := made.touches.Load(); n != maxTouching+2 {
			t.Errorf("the store was told %d times, want %d", n, maxTouching+2)
		}

		made.refused = errors.New("the disk is full")
		touch()
		must(t, <-touched)
		synctest.Wait()
		if got := expires(); !got.Equal(now.Add(time.Hour)) {
			t.Errorf("what could not be written is believed: it expires at %v", got)
		}
	})
}

func TestRequestsForOneUnknownSessionAskTheStoreOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		made := newMadeSessions()
		made.change = func(s *record.Session) { s.Expires = now.Add(time.Hour) }
		made.release = make(chan struct{})
		memory := New(made, 100)
		memory.SetLease(now.Add(time.Hour))
		recall := func(ctx context.Context, company string, n int) {
			for range n {
				go func() {
					if got, err := memory.Recall(ctx, now, company, hash("a"), false, memory.Get); err != nil || got.ID == "" {
						t.Errorf("%+v, %v", got, err)
					}
				}()
			}
			synctest.Wait()
		}
		want := func(gets int64, why string) {
			t.Helper()
			if n := made.gets.Load(); n != gets {
				t.Errorf("%s: the store was asked %d times, want %d", why, n, gets)
			}
		}
		ctx, hangUp := context.WithCancel(bg)
		recall(ctx, "", 1)
		hangUp() // must not fail the other waiting callers
		recall(bg, "", 50)
		want(1, "at once")
		recall(bg, "acme", 50)
		want(2, "where the token must be of one company")
		other := hash("a")
		other[31]++
		memory.Ended(other)
		recall(bg, "", 50)
		want(3, "after a revocation that the first answer may not know of")
		memory.SetLease(time.Time{})
		recall(bg, "", 50)
		want(53, "while revocations may be missed")
		close(made.release)
		synctest.Wait()
	})
}

// A slowStore needs a second for a call, and notes how long it may take.
type slowStore struct {
	*madeSessions
	may time.Duration
}

func (s *slowStore) wait(ctx context.Context) {
	call, done := record.StoreContext(ctx, time.Minute)
	defer done()
	deadline, _ := call.Deadline()
	s.may = time.Until(deadline)
	time.Sleep(time.Second)
}

func (s *slowStore) Get(ctx context.Context, hash record.TokenHash) (record.Session, error) {
	s.wait(ctx)
	return s.madeSessions.Get(ctx, hash)
}

func (s *slowStore) Touch(ctx context.Context, now time.Time, hash record.TokenHash, expires time.Time) error {
	s.wait(ctx)
	return s.madeSessions.Touch(ctx, now, hash, expires)
}

// A request that has little time left does not shorten a call that others wait for, or that
// goes on behind it. It counts the time that it waits, and no other.
func TestTheTimeOfARequestIsItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &slowStore{madeSessions: newMadeSessions()}
		memory := newLeasedMemory(store, 100)
		left := func(ctx context.Context) time.Duration {
			call, done := record.StoreContext(ctx, time.Hour)
			defer done()
			deadline, _ := call.Deadline()
			return time.Until(deadline)
		}
		first, second := record.WithStoreTime(bg), record.WithStoreTime(bg)
		whole := left(second)
		spent := record.SpendStoreTime(first)
		time.Sleep(whole - time.Millisecond)
		spent()
		for _, ctx := range []context.Context{first, second} {
			go func() { get[record.Session](t)(memory.Recall(ctx, time.Now(), "", hash("a"), false, memory.Get)) }()
			synctest.Wait()
		}
		time.Sleep(time.Second)
		synctest.Wait()
		wantEqual(t, "the time of the shared call", store.may, time.Minute)
		wantEqual(t, "the time that is left of the first", left(first), time.Millisecond-time.Second)
		wantEqual(t, "the time that is left of the second", left(second), whole-time.Second)
		must(t, memory.Touch(second, time.Now(), hash("a"), farAway.Add(time.Minute)))
		memory.Wait()
		wantEqual(t, "the time of a touch", store.may, time.Minute)
		wantEqual(t, "the time that is left behind the touch", left(second), whole-time.Second)
	})
}

var recalled = flag.String("recalled", "1000,100000,1000000", "the numbers of sessions that BenchmarkRecall remembers")

// BenchmarkRecall looks up random sessions among few and many remembered ones.
func BenchmarkRecall(b *testing.B) {
	for field := range strings.SplitSeq(*recalled, ",") {
		n, err := strconv.Atoi(field)
		if err != nil || n < 1 {
			b.Fatalf("-recalled %s: %q is not a number of sessions", *recalled, field)
		}
		b.Run(field, func(b *testing.B) { benchmarkRecall(b, n) })
	}
}

func token(i int) record.TokenHash {
	return sha256.Sum256(binary.LittleEndian.AppendUint64(nil, uint64(i)))
}

// remembering returns a Memory that has recalled n sessions.
func remembering(b *testing.B, n int) *Memory {
	memory := newLeasedMemory(newMadeSessions(), n*5/4+10_000)
	for i := range n {
		if _, err := memory.Recall(b.Context(), time.Now(), "", token(i), false, memory.Get); err != nil {
			b.Fatal(err)
		}
	}
	return memory
}

func benchmarkRecall(b *testing.B, n int) {
	before := heap()
	memory := remembering(b, n)
	perSession := float64(heap()-before) / float64(n)
	asked := make([]record.TokenHash, 1<<16)
	for i := range asked {
		asked[i] = token(rand.IntN(n))
	}
	now, began, stopped := time.Now(), time.Now(), gcTime()
	for i := 0; b.Loop(); i++ {
		if _, err := memory.Recall(b.Context(), now, "", asked[i%len(asked)], false, memory.Get); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(perSession, "B/session")
	b.ReportMetric((gcTime()-stopped)/time.Since(began).Seconds(), "gc-CPUs")
	if _, misses := memory.Asked(); misses != uint64(n) {
		b.Errorf("%d were not remembered", misses-uint64(n))
	}
}

// BenchmarkCollect lets the garbage collector look at a million sessions: those of a Memory,
// and the same in maps.
func BenchmarkCollect(b *testing.B) {
	const n, shards = 1_000_000, 64
	for name, fill := range map[string]func() any{
		"memory": func() any { return remembering(b, n) },
		"maps": func() any {
			made, maps := newMadeSessions(), make([]map[record.TokenHash]record.Session, shards)
			for i := range maps {
				maps[i] = map[record.TokenHash]record.Session{}
			}
			for i := range n {
				session, err := made.Get(b.Context(), token(i))
				must(b, err)
				maps[token(i)[0]%shards][token(i)] = session
			}
			return maps
		},
	} {
		b.Run(name, func(b *testing.B) {
			before := heap()
			sessions := fill()
			perSession := float64(heap()-before) / n
			began := gcTime()
			for b.Loop() {
				runtime.GC()
			}
			b.ReportMetric((gcTime()-began)*1000/float64(b.N), "CPU-ms/gc")
			b.ReportMetric(perSession, "B/session")
			runtime.KeepAlive(sessions)
		})
	}
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// gcTime returns the CPU time of garbage collections, in seconds.
func gcTime() float64 {
	sample := []metrics.Sample{{Name: "/cpu/classes/gc/total:cpu-seconds"}}
	metrics.Read(sample)
	return sample[0].Value.Float64()
}

// If another process writes to the same file, the memory is flushed again and again.
func TestForgettingAllTakesNoMemory(t *testing.T) {
	memory := New(nil, 250_000)
	if n := testing.AllocsPerRun(10, memory.Flush); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
