package password

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

var acme = Turn{Company: "acme", Address: "192.0.2.1"}

// occupy fills all slots of h until release is called.
func occupy(h *Hasher) (release func()) {
	done := make(chan struct{})
	for range h.Slots() {
		go h.do(context.Background(), acme, 0, func() error { <-done; return nil })
	}
	synctest.Wait()
	return func() { close(done); synctest.Wait() }
}

func TestHasherRunsNoMoreThanItsSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := NewHasher(3)
		var mu sync.Mutex
		running, most, done := 0, 0, 0
		for range 20 {
			go func() {
				err := h.do(t.Context(), acme, 0, func() error {
					mu.Lock()
					running++
					most = max(most, running)
					mu.Unlock()
					time.Sleep(100 * time.Millisecond)
					mu.Lock()
					running--
					done++
					mu.Unlock()
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			}()
		}
		time.Sleep(maxWait)
		synctest.Wait()
		if most != 3 || done != 20 {
			t.Errorf("%d at once, %d done; want 3, 20", most, done)
		}
	})
}

func TestHasherIsBusyBeforeTwoSecondsAreOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := NewHasher(2)
		release := occupy(h)
		start := time.Now()
		_, err := h.Hash(t.Context(), acme, quick, "secret")
		if waited := time.Since(start); !errors.Is(err, ErrBusy) || waited != 1800*time.Millisecond {
			t.Errorf("%v after %v, want ErrBusy after 1.8s", err, waited)
		}
		release()
		if _, err := h.Hash(t.Context(), acme, quick, "secret"); err != nil {
			t.Error("once there is a slot again:", err)
		}
	})
}

// The hashes of one request wait no longer together than one.
func TestTheHashesOfARequestShareTheirTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := NewHasher(1)
		turn := acme
		turn.Waited = new(time.Duration)
		go h.do(t.Context(), acme, 0, func() error { time.Sleep(time.Second); return nil })
		synctest.Wait()
		start := time.Now()
		if _, _, err := h.Verify(t.Context(), turn, quick, "", "secret"); err != nil {
			t.Fatal(err)
		}
		release := occupy(h)
		for range 2 { // the second time there is nothing left to wait
			if _, err := h.Hash(t.Context(), turn, quick, "secret"); !errors.Is(err, ErrBusy) || time.Since(start) != maxWait {
				t.Errorf("%v after %v, want ErrBusy after 1.8s", err, time.Since(start))
			}
		}
		release()
		if _, err := h.Hash(t.Context(), turn, quick, "secret"); err != nil {
			t.Error("once there is a slot again:", err)
		}
	})
}

func TestHasherRefusesAtOnceWhoWouldWaitInVain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := NewHasher(1)
		release := occupy(h)
		results := make(chan error, waitersPerSlot)
		for range waitersPerSlot {
			go func() { results <- h.do(t.Context(), acme, 0, func() error { return nil }) }()
		}
		synctest.Wait()
		start := time.Now()
		if _, _, err := h.Verify(t.Context(), acme, quick, "", "secret"); !errors.Is(err, ErrBusy) || time.Since(start) != 0 {
			t.Errorf("%v after %v, want ErrBusy at once", err, time.Since(start))
		}
		release()
		for range waitersPerSlot {
			if err := <-results; err != nil {
				t.Error("one of those that waited:", err)
			}
		}
		wantEmpty(t, h)
	})
}

func TestHasherEndsWaitingWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := NewHasher(1)
		release := occupy(h)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		_, err := h.Match(ctx, acme, quick, nil, "secret")
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != time.Second {
			t.Errorf("%v after %v", err, time.Since(start))
		}
		release()
		if _, err := h.HashSet(ctx, acme, quick, []string{"secret"}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("with a context that has ended: %v", err)
		}
		wantEmpty(t, h)
	})
}

// A panic during a turn, of the work or of Waited, releases the slot.
func TestHasherSurvivesAPanic(t *testing.T) {
	h := NewHasher(1)
	for _, waited := range []func(time.Duration, bool){nil, func(time.Duration, bool) { panic("a defect") }} {
		h.Waited = waited
		func() {
			defer func() { recover() }()
			h.do(t.Context(), acme, 0, func() error { panic("a defect") })
		}()
		wantEmpty(t, h)
	}
}

// Bulk work of backends waits long, and is no sign that users do.
func TestPatientTurnsAreNotReported(t *testing.T) {
	h := NewHasher(1)
	reported := 0
	h.Waited = func(time.Duration, bool) { reported++ }
	for _, turn := range []Turn{{Company: "acme", Patient: true}, acme} {
		must(t, h.do(t.Context(), turn, 0, func() error { return nil }))
	}
	if reported != 1 {
		t.Errorf("%d turns are reported, want 1", reported)
	}
}

func TestNewHasherLeavesACPU(t *testing.T) {
	if n := NewHasher(0).Slots(); n < 1 {
		t.Error(n)
	}
	if n := NewHasher(5).Slots(); n != 5 {
		t.Error(n)
	}
}

// wantEmpty checks that nobody waits or is at work, and that h keeps nothing of
// earlier callers.
func wantEmpty(t *testing.T, h *Hasher) {
	t.Helper()
	if n, _ := h.Queue(); n != 0 || len(h.turns.all.lines) != 0 {
		t.Errorf("%d still wait or are at work, of %d companies", n, len(h.turns.all.lines))
	}
}

func TestHasherLetsCompaniesAndAddressesTakeTurns(t *testing.T) {
	for name, c := range map[string]struct{ come, served string }{
		"one address":        {"a1x a1y a1z", "a1x a1y a1z"},
		"companies":          {"a1 a1 a1 b1 b1 c1", "a1 b1 c1 a1 b1 a1"},
		"addresses":          {"a1 a1 a1 a2 a2 a3", "a1 a2 a3 a1 a2 a1"},
		"companies first":    {"a1 a2 a3 a4 b1 b1 b1", "a1 b1 a2 b1 a3 b1 a4"},
		"addresses of each":  {"a1 a1 a2 b1 b1 b2", "a1 b1 a2 b2 a1 b1"},
		"one that was empty": {"a1 b1 a1", "a1 b1 a1"},
		"known devices":      {"a1 a2 a3 b1 b2 a4! a5! b3!", "a1 b1 a4! b3! a2 b2 a5! a3"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := NewHasher(1)
				release := occupy(h)
				var served []string
				for _, who := range strings.Fields(c.come) {
					go h.do(t.Context(), Turn{Company: who[:1], Address: who[1:2], Known: who[2:] == "!"}, 0, func() error { served = append(served, who); return nil })
					synctest.Wait()
				}
				release()
				if got := strings.Join(served, " "); got != c.served {
					t.Errorf("got %s, want %s", got, c.served)
				}
				wantEmpty(t, h)
			})
		})
	}
}

// A storm of requests may take all places, but gives them up to other companies and
// to other addresses of its own company.
func TestHasherStormLeavesOthersTheirPlace(t *testing.T) {
	for name, other := range map[string]func(i int) Turn{
		"companies": func(i int) Turn { return Turn{Company: fmt.Sprint(i % 3), Address: acme.Address} },
		"addresses": func(i int) Turn { return Turn{Company: acme.Company, Address: fmt.Sprint(i % 3)} },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := NewHasher(2)
				release := occupy(h)
				_, limit := h.Queue()
				storm := make(chan error, limit)
				for range limit {
					go func() { storm <- h.do(t.Context(), acme, 0, func() error { return nil }) }()
				}
				synctest.Wait()
				others := make(chan error, 10)
				for i := range 10 {
					go func() { others <- h.do(t.Context(), other(i), 0, func() error { return nil }) }()
					synctest.Wait()
				}
				if n, _ := h.Queue(); n != limit {
					t.Errorf("%d wait or are at work, want the limit %d", n, limit)
				}
				release()
				for range 10 {
					if err := <-others; err != nil {
						t.Error("one of the others:", err)
					}
				}
				served := 0
				for range limit {
					if err := <-storm; err == nil {
						served++
					} else if err != ErrBusy {
						t.Error(err)
					}
				}
				if want := limit - h.Slots() - 10; served != want {
					t.Errorf("%d of the storm were served, want %d", served, want)
				}
				wantEmpty(t, h)
			})
		})
	}
}

// When all places are taken, they are shared evenly between companies and between
// the addresses of each, in whatever order the requests arrive.
func TestHasherSharesPlacesEvenly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := NewHasher(1)
		release := occupy(h)
		for _, turn := range []Turn{{Company: "a", Address: "1"}, {Company: "a", Address: "2"}, {Company: "a", Address: "3"}, {Company: "a", Address: "4"}, {Company: "b", Address: "1"}, {Company: "b", Address: "1"}} {
			for range 2 * waitersPerSlot {
				go h.do(t.Context(), turn, 0, func() error { return nil })
			}
			synctest.Wait()
		}
		waiting := func(l *line, path ...string) int {
			for _, name := range path {
				l = l.find(name)
			}
			return l.length
		}
		all := &h.turns.all
		if a, b := waiting(all, "a"), waiting(all, "b"); a+b != waitersPerSlot || a < b || a > b+1 {
			t.Errorf("%d and %d wait of two companies", a, b)
		}
		for _, address := range []string{"1", "2", "3", "4"} {
			if n := waiting(all, "a", "false", address); n != waitersPerSlot/8 {
				t.Errorf("%d wait of address %s, want %d", n, address, waitersPerSlot/8)
			}
		}
		release()
		wantEmpty(t, h)
	})
}

// A slot is not lost if its turn comes at the moment when the caller gives up.
func TestHasherLosesNoSlot(t *testing.T) {
	h := NewHasher(2)
	var all sync.WaitGroup
	for i := range 2000 {
		all.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i%20)*time.Millisecond)
			defer cancel()
			h.do(ctx, Turn{Company: fmt.Sprint(i % 3), Address: fmt.Sprint(i % 7)}, 0, func() error { time.Sleep(time.Millisecond); return nil })
		})
	}
	all.Wait()
	wantEmpty(t, h)
}

// timed makes a hash of pbkdf2-sha256 take a second for each 3,000,000 iterations,
// by the clock of synctest.
func timed(h *Hasher) *Hasher {
	h.Derive = func(hash, _ string) ([]byte, error) {
		d, err := parseHash(hash)
		time.Sleep(d.cost)
		return nil, err
	}
	return h
}

// hashOf returns a hash that takes this long, with a different salt for each i.
func hashOf(took time.Duration, i int) string {
	return fmt.Sprintf("$pbkdf2-sha256$%d$MDEyMzQ1N%03d$%043d", took*3_000_000/time.Second, i, 0)
}

// verify returns how long it took until a wrong secret was compared.
func verify(t *testing.T, h *Hasher, turn Turn, hash string) (time.Duration, error) {
	start := time.Now()
	_, _, err := h.Verify(t.Context(), turn, quick, hash, "wrong")
	return time.Since(start), err
}

// A company with expensive hashes delays others by one hash at most: before its
// second one, all waiting hashes of others get their turn.
func TestExpensiveHashesHoldOthersUpForOneOfThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := timed(NewHasher(1))
		for range 6 {
			go verify(t, h, acme, hashOf(time.Second, 0))
		}
		synctest.Wait()
		var others sync.WaitGroup
		for range 8 {
			others.Go(func() {
				took, err := verify(t, h, Turn{Company: "calm"}, hashOf(20*time.Millisecond, 0))
				if most := time.Second + 8*20*time.Millisecond; err != nil || took > most {
					t.Errorf("another company's login: %v after %v, want at most %v", err, took, most)
				}
			})
		}
		others.Wait()
		time.Sleep(6 * time.Second)
		wantEmpty(t, h)
	})
}

// A set of backup codes may have many salts. It releases its slot after each salt, and
// stops when the client is gone.
func TestEachSaltOfASetHasATurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := timed(NewHasher(1))
		var hashes []string
		for i := range 100 {
			hashes = append(hashes, hashOf(600*time.Millisecond, i))
		}
		ctx, cancel := context.WithCancel(t.Context())
		matched := make(chan error)
		go func() {
			_, err := h.Match(ctx, acme, quick, hashes, "wrong")
			matched <- err
		}()
		for range 8 {
			time.Sleep(time.Second)
			if took, err := verify(t, h, Turn{Company: "calm"}, hashOf(20*time.Millisecond, 0)); err != nil || took > 620*time.Millisecond {
				t.Errorf("another company's login: %v after %v", err, took)
			}
			if took, err := verify(t, h, Turn{Company: acme.Company, Address: "192.0.2.2"}, hashOf(20*time.Millisecond, 0)); err != nil || took > 620*time.Millisecond {
				t.Errorf("a login from another address: %v after %v", err, took)
			}
		}
		cancel()
		start := time.Now()
		if err := <-matched; err != context.Canceled || time.Since(start) > 600*time.Millisecond {
			t.Errorf("%v, %v after the client was gone", err, time.Since(start))
		}
		wantEmpty(t, h)

		start = time.Now()
		if match, err := h.Match(t.Context(), acme, quick, hashes, "wrong"); match != "" || err != nil || time.Since(start) != time.Minute {
			t.Errorf("alone: %q, %v after %v, want none after 1m", match, err, time.Since(start))
		}
	})
}

// A caller with several turns waits no longer in total than a caller with one.
func TestWaitingIsBoundedOverAllTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := timed(NewHasher(1))
		stop := time.Now().Add(10 * time.Second)
		var storm sync.WaitGroup
		for range 2 {
			storm.Go(func() {
				for time.Now().Before(stop) {
					verify(t, h, Turn{Company: "calm"}, hashOf(100*time.Millisecond, 0))
				}
			})
		}
		synctest.Wait()
		var hashes []string
		for i := range 100 {
			hashes = append(hashes, hashOf(100*time.Millisecond, i))
		}
		start := time.Now()
		_, err := h.Match(t.Context(), acme, quick, hashes, "wrong")
		if took := time.Since(start); err != ErrBusy || took < 3*time.Second || took > 4*time.Second {
			t.Errorf("%v after %v, want ErrBusy after 1.8s of waiting and as much work", err, took)
		}
		storm.Wait()
	})
}

// Sets of backup codes that are asked for at once are made one after the other. So all for
// which there is time are made, and those in vain cost nothing. No login waits for a set.
func TestSetsAtOnceAreFinished(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := NewHasher(1)
		hashed := 0
		h.Derive = func(string, string) ([]byte, error) {
			time.Sleep(25 * time.Millisecond)
			hashed++
			return nil, nil
		}
		secrets := strings.Fields("a b c d e f g h i j")
		var made atomic.Int32
		var all sync.WaitGroup
		for i := range 12 {
			all.Go(func() {
				_, err := h.HashSet(t.Context(), Turn{Company: acme.Company, Address: fmt.Sprint(i)}, quick, secrets)
				switch {
				case err == nil:
					made.Add(1)
				case err != ErrBusy:
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		for _, turn := range []Turn{acme, {Company: "calm"}} {
			if took, err := verify(t, h, turn, hashOf(25*time.Millisecond, 0)); err != nil || took > 75*time.Millisecond {
				t.Errorf("a login of %v: %v after %v", turn, err, took)
			}
		}
		if _, err := h.HashSet(t.Context(), Turn{Company: "calm"}, quick, secrets); err != nil {
			t.Error("a set of another company:", err)
		}
		all.Wait()
		if hashed -= 2 + len(secrets); made.Load() < 5 || hashed != int(made.Load())*len(secrets) {
			t.Errorf("%d sets are made with %d hashes", made.Load(), hashed)
		}
		wantEmpty(t, h)
	})
}

// Companies get the same amount of time, and so do the addresses of a company. This
// holds even for a caller that comes again only after its turn.
func TestTurnsAreFairByTime(t *testing.T) {
	for name, other := range map[string]Turn{"companies": {Company: "calm", Address: acme.Address}, "addresses": {Company: acme.Company, Address: "192.0.2.2"}} {
		for _, slots := range []int{1, 3} {
			t.Run(fmt.Sprint(name, slots), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					h := NewHasher(slots)
					begun := time.Now()
					used := map[Turn]time.Duration{}
					var mu sync.Mutex
					var all sync.WaitGroup
					for turn, takes := range map[Turn]time.Duration{acme: 500 * time.Millisecond, other: 20 * time.Millisecond} {
						clients := slots
						if turn == other {
							clients *= 3
						}
						for range clients {
							all.Go(func() {
								for time.Since(begun) < time.Minute {
									h.do(t.Context(), turn, takes, func() error {
										time.Sleep(takes)
										mu.Lock()
										defer mu.Unlock()
										used[turn] += takes
										return nil
									})
								}
							})
						}
					}
					all.Wait()
					if ratio := float64(used[acme]) / float64(used[other]); ratio < 0.9 || ratio > 1.1 {
						t.Errorf("used %v, want as much", used)
					}
					wantEmpty(t, h)
				})
			})
		}
	}
}

// A company with expensive hashes uses no more than one slot while other companies
// use theirs and have hashes waiting.
func TestExpensiveHashesLeaveOthersASlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := timed(NewHasher(3))
		release := occupy(h)
		for range 20 {
			go verify(t, h, Turn{Company: "dear"}, hashOf(time.Second, 0))
		}
		synctest.Wait()
		stop := time.Now().Add(1500 * time.Millisecond)
		var all sync.WaitGroup
		for range 6 {
			all.Go(func() {
				for time.Now().Before(stop) {
					if took, err := verify(t, h, Turn{Company: "calm"}, hashOf(20*time.Millisecond, 0)); err != nil || took > 200*time.Millisecond {
						t.Errorf("%v after %v", err, took)
					}
				}
			})
		}
		synctest.Wait()
		release()
		all.Wait()
		time.Sleep(20 * time.Second)
		wantEmpty(t, h)
	})
}

// An address that had a turn gets another one, no matter how many new addresses
// arrive. Nothing is kept of addresses that are gone.
func TestNewAddressesKeepNobodyFromASecondTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := timed(NewHasher(1))
		var all sync.WaitGroup
		most := 0
		for i := range 520 { // as many as can be served, after 20 at once
			all.Go(func() {
				time.Sleep(time.Duration(max(0, i-20)) * 20 * time.Millisecond)
				if took, err := verify(t, h, Turn{Company: acme.Company, Address: fmt.Sprint(i)}, hashOf(20*time.Millisecond, 0)); err != nil {
					t.Errorf("a new address: %v after %v", err, took)
				}
				h.turns.mu.Lock()
				defer h.turns.mu.Unlock()
				if company := h.turns.all.find(acme.Company); company != nil {
					if clients := company.find("false"); clients != nil {
						most = max(most, len(clients.lines))
					}
				}
			})
		}
		for range 5 {
			if took, err := verify(t, h, acme, hashOf(20*time.Millisecond, 0)); err != nil || took > time.Second {
				t.Errorf("one that comes again: %v after %v", err, took)
			}
		}
		all.Wait()
		if most > 100 {
			t.Errorf("%d addresses were kept, of those that had come", most)
		}
		wantEmpty(t, h)
	})
}

// Work for which an operator or a backend waits comes behind the logins, and waits longer.
func TestThePatientWaitBehindTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := NewHasher(1)
		release := occupy(h)
		patient := Turn{Company: "acme", Patient: true}
		var order []string
		hash := func(turn Turn, name string) {
			go func() {
				if err := h.do(t.Context(), turn, 0, func() error { order = append(order, name); return nil }); err != nil {
					t.Error(name, err)
				}
			}()
			synctest.Wait()
		}
		hash(patient, "backup codes")
		time.Sleep(14 * time.Second)
		for i := range 3 {
			hash(acme, fmt.Sprint("login ", i))
		}
		release()
		if got := strings.Join(order, ", "); got != "login 0, login 1, login 2, backup codes" {
			t.Errorf("the order is %s", got)
		}
		release = occupy(h)
		began := time.Now()
		_, err := h.HashSet(t.Context(), patient, quick, []string{"a", "b"})
		if waited := time.Since(began); !errors.Is(err, ErrBusy) || waited != 15*time.Second {
			t.Errorf("%v after %v, want ErrBusy after 15s", err, waited)
		}
		release()
	})
}
