package flows

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// occupy fills all slots of h until release is called.
func occupy(h *Hasher) (release func()) {
	done := make(chan struct{})
	for range h.Slots() {
		go h.do(context.Background(), "acme", func() error { <-done; return nil })
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
				err := h.do(t.Context(), "acme", func() error {
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
		_, err := h.Hash(t.Context(), "acme", quick, "secret")
		if waited := time.Since(start); !errors.Is(err, ErrBusy) || waited != 1800*time.Millisecond {
			t.Errorf("%v after %v, want ErrBusy after 1.8s", err, waited)
		}
		release()
		if _, err := h.Hash(t.Context(), "acme", quick, "secret"); err != nil {
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
			go func() { results <- h.do(t.Context(), "acme", func() error { return nil }) }()
		}
		synctest.Wait()
		start := time.Now()
		if _, _, err := h.Verify(t.Context(), "acme", quick, "", "secret"); !errors.Is(err, ErrBusy) || time.Since(start) != 0 {
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

func TestHasherServesInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := NewHasher(1)
		release := occupy(h)
		var got []int
		for i := range 10 {
			go h.do(t.Context(), "acme", func() error { got = append(got, i); return nil })
			synctest.Wait()
		}
		release()
		if !slices.IsSorted(got) || len(got) != 10 {
			t.Error(got)
		}
	})
}

func TestHasherEndsWaitingWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := NewHasher(1)
		release := occupy(h)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		_, err := h.Match(ctx, "acme", quick, nil, "secret")
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != time.Second {
			t.Errorf("%v after %v", err, time.Since(start))
		}
		release()
		if _, err := h.HashSet(ctx, "acme", quick, []string{"secret"}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("with a context that has ended: %v", err)
		}
		wantEmpty(t, h)
	})
}

func TestHasherSurvivesAPanic(t *testing.T) {
	h := NewHasher(1)
	func() {
		defer func() { recover() }()
		h.do(t.Context(), "acme", func() error { panic("a defect") })
	}()
	if _, err := h.Hash(t.Context(), "acme", quick, "secret"); err != nil {
		t.Error(err)
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

// wantEmpty: nobody waits or is at work, and nothing is kept of those that did.
func wantEmpty(t *testing.T, h *Hasher) {
	t.Helper()
	if n, _ := h.Queue(); n != 0 || len(h.turns.queues) != 0 || len(h.turns.next) != 0 {
		t.Errorf("%d still wait or are at work, of %d companies", n, len(h.turns.queues))
	}
}

func TestHasherLetsCompaniesTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := NewHasher(1)
		release := occupy(h)
		var got []string
		for _, company := range []string{"acme", "acme", "acme", "globex", "globex", "initech"} {
			go h.do(t.Context(), company, func() error { got = append(got, company); return nil })
			synctest.Wait()
		}
		release()
		if served := strings.Join(got, " "); served != "acme globex initech acme globex acme" {
			t.Error(served)
		}
		wantEmpty(t, h)
	})
}

func TestHasherStormLeavesOthersTheirPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := NewHasher(2)
		release := occupy(h)
		_, limit := h.Queue()
		storm := make(chan error, limit)
		for range limit {
			go func() { storm <- h.do(t.Context(), "acme", func() error { return nil }) }()
		}
		synctest.Wait()
		others := make(chan error, 10)
		for i := range 10 {
			go func() { others <- h.do(t.Context(), fmt.Sprint(i%3), func() error { return nil }) }()
			synctest.Wait()
		}
		if n, _ := h.Queue(); n != limit {
			t.Errorf("%d wait or are at work, want the limit %d", n, limit)
		}
		release()
		for range 10 {
			if err := <-others; err != nil {
				t.Error("of another company:", err)
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
}

// Turns that come at the moment when their waiter gives up are not lost.
func TestHasherLosesNoSlot(t *testing.T) {
	h := NewHasher(2)
	var all sync.WaitGroup
	for i := range 2000 {
		all.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i%20)*time.Millisecond)
			defer cancel()
			h.do(ctx, fmt.Sprint(i%7), func() error { time.Sleep(time.Millisecond); return nil })
		})
	}
	all.Wait()
	wantEmpty(t, h)
}
