package flows_test

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"runtime/metrics"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mnemogate/mnemogate/flows/manage"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/session"
	"github.com/mnemogate/mnemogate/flows/wire"
	"github.com/mnemogate/mnemogate/store"
)

// A countingSessions counts what the store is asked.
type countingSessions struct {
	record.Sessions
	gets   atomic.Int64
	during func() // called between the store's answer and its return
}

func (c *countingSessions) Get(ctx context.Context, hash record.TokenHash) (record.Session, error) {
	c.gets.Add(1)
	s, err := c.Sessions.Get(ctx, hash)
	if c.during != nil {
		c.during()
	}
	return s, err
}

// remembering gives the bench a memory, which trusts at first.
func (b *bench) remembering(limit int) (*store.Memory, *countingSessions) {
	counting := &countingSessions{Sessions: b.Sessions}
	memory := store.NewMemory(counting, limit)
	memory.Trust(time.Now().Add(time.Hour))
	b.Service.Sessions = memory
	return memory, counting
}

func (b *bench) authorize(token string) (record.Session, error) {
	return b.Authorize(b.t.Context(), session.Demand{}, []string{"Bearer " + token})
}

func TestARememberedSessionIsNotAskedForAgain(t *testing.T) {
	b := newBench(t)
	token := b.sessionIn(record.Authorized)
	want, err := b.authorize(token)
	if err != nil {
		t.Fatal(err)
	}
	memory, held := b.remembering(1000)
	for range 10 {
		got, err := b.authorize(token)
		if err != nil {
			t.Fatal(err)
		}
		got.ID, got.Created, got.Accepted = want.ID, want.Created, want.Accepted // of no use there
		if fmt.Sprint(got.Hash, got.ID, got.Company, got.Account, got.Mnemocode, got.Epoch, got.State, got.Expires.UTC(), got.Ends.UTC()) !=
			fmt.Sprint(want.Hash, want.ID, want.Company, want.Account, want.Mnemocode, want.Epoch, want.State, want.Expires, want.Ends) {
			t.Fatalf("got %+v, want %+v", got, want)
		}
	}
	if n := held.gets.Load(); n != 1 {
		t.Errorf("the store was asked %d times, want once", n)
	}
	if memory.Len() != 1 {
		t.Errorf("%d sessions are remembered, want 1", memory.Len())
	}
}

func TestWhatEndsIsForgottenBeforeTheCallReturns(t *testing.T) {
	for name, end := range map[string]func(b *bench, token string){
		"logout": func(b *bench, token string) { b.must("auth/logout", token, nil) },
		"a new password": func(b *bench, _ string) {
			b.must("auth/setpassword", b.sessionIn(record.RecoveryPassword), object{"new_password": "another fine secret"})
		},
		"a closed account": func(b *bench, _ string) {
			b.update(true, func(a *record.Account) { a.Status = record.StatusClosed })
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.remembering(1000)
			token := b.sessionIn(record.Authorized)
			if _, err := b.authorize(token); err != nil {
				t.Fatal(err)
			}
			end(b, token)
			_, err := b.authorize(token)
			wantError(t, err, wire.ErrTokenInvalid)
		})
	}
}

func TestAReadUnderWayDuringAnEndingBringsNothingBack(t *testing.T) {
	for name, end := range map[string]func(m *store.Memory, s record.Session){
		"of the session": func(m *store.Memory, s record.Session) { m.Ended(s.Hash) },
		"of the account": func(m *store.Memory, s record.Session) {
			m.EndedAll(record.Ending{Company: s.Company, Account: s.Account, Epoch: s.Epoch + 1})
		},
		"of the feed": func(m *store.Memory, _ record.Session) { m.Flush() },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			token := b.sessionIn(record.Authorized)
			session, err := b.authorize(token)
			if err != nil {
				t.Fatal(err)
			}
			memory, held := b.remembering(1000)
			held.during = func() { end(memory, session) }
			if _, err := b.authorize(token); err != nil {
				t.Fatal(err) // the held had said yes
			}
			if memory.Len() != 0 {
				t.Error("a session that ended meanwhile is remembered")
			}
		})
	}
}

func TestWithoutTrustNothingIsBelieved(t *testing.T) {
	b := newBench(t)
	token := b.sessionIn(record.Authorized)
	memory, held := b.remembering(1000)
	ask := func() int64 {
		before := held.gets.Load()
		if _, err := b.authorize(token); err != nil {
			t.Fatal(err)
		}
		return held.gets.Load() - before
	}
	ask()
	if ask() != 0 {
		t.Error("a remembered session was asked for")
	}
	memory.Trust(time.Time{})
	for range 2 {
		if ask() != 1 {
			t.Error("a session was believed without trust")
		}
	}
	memory.Flush()
	memory.Trust(time.Now().Add(time.Hour))
	if ask() != 1 || ask() != 0 {
		t.Error("after the trust's return the memory must begin empty and then remember")
	}
}

// A session that is used on another node is prolonged there: here it only
// seems to expire.
func TestWhatSeemsExpiredIsAskedFor(t *testing.T) {
	b := newBench(t)
	token := b.sessionIn(record.Authorized)
	_, held := b.remembering(1000)
	session, err := b.authorize(token)
	if err != nil {
		t.Fatal(err)
	}
	later := b.clock.Now().Add(50 * time.Minute)
	if err := held.Touch(t.Context(), later, session.Hash, later.Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	b.clock.advance(70 * time.Minute)
	if _, err := b.authorize(token); err != nil {
		t.Errorf("got %v for a session that another node prolonged", err)
	}
}

func TestTheMemoryIsBounded(t *testing.T) {
	b := newBench(t)
	memory, held := b.remembering(64)
	token := b.sessionIn(record.Authorized)
	for i := range 20 {
		// The one in use stays; those that were asked for once make room.
		for range 2 {
			if _, err := b.authorize(token); err != nil {
				t.Fatal(err)
			}
		}
		b.seed(manage.Seed{Account: record.Account{Mnemocode: fmt.Sprintf("%0130d", i)[:40+i], LoginName: fmt.Sprintf("user%d", i)}, Password: password})
		other := b.must("auth/checkcredentials", "", object{"login_id": fmt.Sprintf("user%d", i), "password": password}).SessionToken
		got, err := b.authorize(other)
		if err != nil || len(got.Mnemocode) != 40+i {
			t.Fatalf("got %+v, %v", got, err)
		}
	}
	if n := memory.Len(); n > 64 {
		t.Errorf("%d sessions are remembered, want at most 64", n)
	}
	if _, err := b.authorize("mgs_" + strings.Repeat("A", 43)); err == nil {
		t.Error("an unknown token passed")
	}
	_ = held
}

// Asking, ending and flushing at once: what has ended before a question is
// never answered yes.
func TestMemoryUnderConcurrency(t *testing.T) {
	b := newBench(t)
	b.company.Limits.LoginsPerAddress.N = 1000
	memory, _ := b.remembering(256)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 30 {
				token := b.must("auth/checkcredentials", "", object{"login_id": email, "password": password}).SessionToken
				for range rand.IntN(4) {
					if _, err := b.authorize(token); err != nil {
						t.Errorf("a live session was refused: %v", err)
					}
				}
				b.must("auth/logout", token, nil)
				if _, err := b.authorize(token); err == nil {
					t.Error("an ended session passed")
				}
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

// A heldSessions holds back its answers until it is released.
type heldSessions struct {
	record.Sessions
	session record.Session
	gets    atomic.Int64
	touches atomic.Int64
	release chan struct{}
	refused error // by Touch
}

func (h *heldSessions) Get(ctx context.Context, _ record.TokenHash) (record.Session, error) {
	h.gets.Add(1)
	select {
	case <-h.release:
		return h.session, nil
	case <-ctx.Done():
		return record.Session{}, ctx.Err()
	}
}

func (h *heldSessions) Touch(ctx context.Context, _ time.Time, _ record.TokenHash, _ time.Time) error {
	h.touches.Add(1)
	<-h.release
	return h.refused
}

func TestARequestWaitsForNoDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		session := record.Session{
			Hash: record.TokenHash{1}, ID: strings.Repeat("0", 32), Company: "acme", Account: 7, State: record.Authorized,
			Expires: now.Add(time.Hour), Ends: now.Add(24 * time.Hour),
		}
		held := &heldSessions{session: session, release: make(chan struct{})}
		memory := store.NewMemory(held, 100)
		memory.Trust(now.Add(time.Hour))
		expires := func() time.Time {
			s, err := memory.Recall(t.Context(), now, "", session.Hash)
			if err != nil {
				t.Fatal(err)
			}
			return s.Expires
		}
		touched := make(chan error, 1)
		touch := func() {
			go func() { touched <- memory.Touch(t.Context(), now, session.Hash, now.Add(2*time.Hour)) }()
			synctest.Wait()
		}
		touch()
		select {
		case <-touched:
			t.Error("what is not remembered must be written first")
		default:
		}
		close(held.release)
		<-touched
		expires() // asks for it, so that it is remembered
		held.release = make(chan struct{})
		for range 256 {
			touch()
			if err := <-touched; err != nil {
				t.Fatal(err)
			}
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
		close(held.release)
		<-touched
		memory.Wait()
		if n := held.touches.Load(); n != 258 {
			t.Errorf("the held was told %d times, want 258", n)
		}

		held.refused = errors.New("the disk is full")
		touch()
		if err := <-touched; err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if got := expires(); !got.Equal(session.Expires) {
			t.Errorf("what could not be written is believed: it expires at %v", got)
		}
	})
}

func TestRequestsForOneUnknownSessionAskTheStoreOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		session := record.Session{
			Hash: record.TokenHash{1}, ID: strings.Repeat("0", 32), Company: "acme", Account: 7, State: record.Authorized,
			Expires: now.Add(time.Hour), Ends: now.Add(time.Hour),
		}
		held := &heldSessions{session: session, release: make(chan struct{})}
		memory := store.NewMemory(held, 100)
		memory.Trust(now.Add(time.Hour))
		recall := func(ctx context.Context, company string, n int) {
			for range n {
				go func() {
					if got, err := memory.Recall(ctx, now, company, session.Hash); err != nil || got.ID != session.ID {
						t.Errorf("%+v, %v", got, err)
					}
				}()
			}
			synctest.Wait()
		}
		want := func(gets int64, why string) {
			t.Helper()
			if n := held.gets.Load(); n != gets {
				t.Errorf("%s: the store was asked %d times, want %d", why, n, gets)
			}
		}
		ctx, hangUp := context.WithCancel(t.Context())
		recall(ctx, "", 1)
		hangUp() // which must not fail those that wait with it
		recall(t.Context(), "", 50)
		want(1, "at once")
		recall(t.Context(), "acme", 50)
		want(2, "where the token must be of one company")
		memory.Ended(record.TokenHash{1, 2})
		recall(t.Context(), "", 50)
		want(3, "after an ending that the first answer may not know of")
		memory.Trust(time.Time{})
		recall(t.Context(), "", 50)
		want(53, "while endings may be missed")
		close(held.release)
		synctest.Wait()
	})
}

// Whatever is remembered and forgotten, in any order, what is remembered is
// found, and nothing else is. The hashes are such that their places collide.
func TestMemoryFindsWhatItHolds(t *testing.T) {
	t.Parallel()
	for _, near := range []uint32{0, 1<<32 - 5, 1<<10 - 5} { // the end of a table of any size, and its beginning
		memory := store.NewMemory(madeSessions{}, 1<<20)
		memory.Trust(farAway)
		hash := func(i int) (h record.TokenHash) {
			binary.LittleEndian.PutUint32(h[8:], near+uint32(i)%10)
			binary.LittleEndian.PutUint32(h[16:], uint32(i))
			return h
		}
		draw := rand.New(rand.NewPCG(1, uint64(near)))
		held := map[int]bool{}
		const all = 500
		for step := range 100_000 {
			i := draw.IntN(all)
			switch draw.IntN(2 + step/20_000%3) { // it fills, and it empties
			case 0:
				_, before := memory.Asked()
				s, err := memory.Recall(t.Context(), time.Now(), "", hash(i))
				if _, after := memory.Asked(); err != nil || s.Hash != hash(i) || (after == before) != held[i] {
					t.Fatalf("step %d: got the session of %x, %v, the store asked: %v, remembered: %v", step, s.Hash, err, after != before, held[i])
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
			if step%50 == 0 && memory.Len() != len(held) { // it adds up, which takes a while
				t.Fatalf("step %d: %d are remembered, want %d", step, memory.Len(), len(held))
			}
		}
	}
}

// A madeSessions makes up each session that it is asked for.
type madeSessions struct{ record.Sessions }

func (madeSessions) Get(_ context.Context, hash record.TokenHash) (record.Session, error) {
	return record.Session{
		Hash: hash, ID: fmt.Sprintf("%x", hash[:16]), Company: "acme", Account: 1, Mnemocode: "profile-0000001",
		State: record.Authorized, Expires: farAway, Ends: farAway,
	}, nil
}

var farAway = time.Now().Add(1000 * time.Hour)

// BenchmarkRecall looks for remembered sessions at random, of few and of many: what they
// take, and what the garbage collector has to do for them.
func BenchmarkRecall(b *testing.B) {
	hash := func(i int) record.TokenHash { return sha256.Sum256(binary.LittleEndian.AppendUint64(nil, uint64(i))) }
	for _, n := range []int{1000, 1_000_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			before := heap()
			memory := remembering(b, n, hash)
			perSession := float64(heap()-before) / float64(n)
			asked := make([]record.TokenHash, 1<<16)
			for i := range asked {
				asked[i] = hash(rand.IntN(n))
			}
			now, began, stopped := time.Now(), time.Now(), gcTime()
			for i := 0; b.Loop(); i++ {
				if _, err := memory.Recall(b.Context(), now, "", asked[i%len(asked)]); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(perSession, "B/session")
			b.ReportMetric((gcTime()-stopped)/time.Since(began).Seconds(), "gc-CPUs")
			if _, misses := memory.Asked(); misses != uint64(n) {
				b.Errorf("%d were not remembered", misses-uint64(n))
			}
		})
	}
}

func remembering(b *testing.B, n int, hash func(int) record.TokenHash) *store.Memory {
	b.Helper()
	memory := store.NewMemory(madeSessions{}, n*5/4+10_000)
	memory.Trust(farAway)
	for i := range n {
		if _, err := memory.Recall(b.Context(), time.Now(), "", hash(i)); err != nil {
			b.Fatal(err)
		}
	}
	return memory
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// gcTime is the CPU time that collections took, in seconds.
func gcTime() float64 {
	sample := []metrics.Sample{{Name: "/cpu/classes/gc/total:cpu-seconds"}}
	metrics.Read(sample)
	return sample[0].Value.Float64()
}

// Where another process writes to the same file, all is forgotten again and again.
func TestForgettingAllTakesNoMemory(t *testing.T) {
	memory := store.NewMemory(nil, 250_000)
	if n := testing.AllocsPerRun(10, memory.Flush); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
