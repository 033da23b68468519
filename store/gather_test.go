package store

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mnemogate/mnemogate/flows/panics"
)

func TestGather(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var trips []int // how many calls each took
		g := gather[*int]{few: 2, atOnce: 2, most: 5, send: func(calls []*int) error {
			time.Sleep(time.Second)
			mu.Lock()
			defer mu.Unlock()
			trips = append(trips, len(calls))
			for _, c := range calls {
				*c *= 2
			}
			return nil
		}}
		var wg sync.WaitGroup
		began := time.Now()
		for i := range 10 {
			wg.Go(func() {
				call := i
				must(t, g.do(t.Context(), &call))
				if call != 2*i {
					t.Errorf("%d was answered %d", i, call)
				}
			})
			synctest.Wait()
		}
		gone, cancel := context.WithTimeout(t.Context(), time.Second/2)
		defer cancel()
		if err := g.do(gone, new(int)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("one that waited no longer: %v", err)
		}
		wg.Wait()
		slices.Sort(trips) // two at once
		if want := []int{1, 1, 4, 5}; !slices.Equal(trips, want) || time.Since(began) != 2*time.Second {
			t.Errorf("round trips with %v calls in %v, want %v in 2s", trips, time.Since(began), want)
		}
		must(t, g.do(t.Context(), new(int))) // and it begins anew
		if err := g.do(gone, new(int)); !errors.Is(err, context.DeadlineExceeded) || len(trips) != 5 {
			t.Errorf("one that was over before: %v, after %d round trips", err, len(trips))
		}
	})
}

// Where one is slow to come back, those who wait need not wait for it.
func TestGatherLeavesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := gather[*time.Duration]{few: 1, atOnce: 2, most: 5, patience: time.Second, send: func(calls []*time.Duration) error {
			time.Sleep(*calls[0])
			return nil
		}}
		began := time.Now()
		var wg sync.WaitGroup
		for _, c := range []struct{ at, takes, answered time.Duration }{
			{0, time.Hour, time.Hour},
			{time.Second / 2, time.Minute, time.Second + time.Minute},
			{time.Second * 3 / 4, time.Second, time.Second + time.Minute}, // goes with the one before,
			{2 * time.Second, time.Second, 2*time.Second + time.Minute},   // and this one behind them
		} {
			wg.Go(func() {
				time.Sleep(c.at)
				must(t, g.do(t.Context(), &c.takes))
				if took := time.Since(began); took != c.answered {
					t.Errorf("a call at %v was answered after %v, want %v", c.at, took, c.answered)
				}
			})
		}
		wg.Wait()
	})
}

// A panic is the error of those who travelled, and others go on.
func TestGatherSurvivesAPanic(t *testing.T) {
	g := gather[bool]{few: 1, atOnce: 1, most: 1, send: func(calls []bool) error {
		if calls[0] {
			panic("hunter2")
		}
		return nil
	}}
	if _, ok := errors.AsType[*panics.Error](g.do(t.Context(), true)); !ok {
		t.Error("the caller was not told")
	}
	must(t, g.do(t.Context(), false))
}

func TestGatherAnswersEachOnce(t *testing.T) {
	var answered, trips atomic.Int64
	g := gather[*atomic.Int64]{few: 3, atOnce: 3, most: 4, send: func(calls []*atomic.Int64) error {
		trips.Add(1)
		if len(calls) > 4 {
			t.Errorf("%d calls in a round trip", len(calls))
		}
		for _, c := range calls {
			c.Add(1)
			answered.Add(1)
		}
		return nil
	}}
	const callers, each = 16, 200
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			for range each {
				var call atomic.Int64
				must(t, g.do(t.Context(), &call))
				if n := call.Load(); n != 1 {
					t.Errorf("a call was made %d times", n)
				}
			}
		})
	}
	wg.Wait()
	if n := answered.Load(); n != callers*each || trips.Load() > n {
		t.Errorf("%d answers in %d round trips, want %d", n, trips.Load(), callers*each)
	}
}
