package guest

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// A company that fills the slots of a gateway does not make another wait for all that it has
// queued.
func TestSlotsGoToCompaniesInTurn(t *testing.T) {
	for _, c := range []struct {
		slots          int
		queued, served string // companies
	}{
		{1, "aaaab", "abaaa"},
		{1, "aabbcc", "abcabc"},
		{2, "aaaababc", "aabcabaa"},
		{3, "abdabdabdc", "abdcabdabd"},
	} {
		if got := served(t, c.slots, c.queued); got != c.served {
			t.Errorf("%d slots, %s: got %s, want %s", c.slots, c.queued, got, c.served)
		}
	}
}

// served returns the companies in the order of their turns. They queue in the given order, and
// who began first always ends first.
func served(t *testing.T, n int, queued string) (order string) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	s, err := NewSlots(n)
	if err != nil {
		t.Fatal(err)
	}
	type call struct {
		company string
		end     chan struct{}
	}
	var all sync.WaitGroup
	begun := make(chan call, len(queued))
	for i, company := range strings.Split(queued, "") {
		all.Go(func() {
			err := s.Do(ctx, company, false, func() error {
				c := call{company, make(chan struct{})}
				begun <- c
				<-c.end
				return nil
			})
			if err != nil {
				t.Error(err)
				close(begun)
			}
		})
		for entered := 0; entered <= i; time.Sleep(time.Millisecond) {
			s.all.mu.Lock()
			entered = n - s.all.free + len(s.all.waiting)
			s.all.mu.Unlock()
		}
	}
	var open []call
	for len(order) < len(queued) {
		c := <-begun
		if c.end == nil {
			t.FailNow()
		}
		order, open = order+c.company, append(open, c)
		if len(open) == n {
			close(open[0].end)
			open = open[1:]
		}
	}
	for _, c := range open {
		close(c.end)
	}
	all.Wait()
	return order
}

// No slot is lost or given twice, even if those who wait give up as their turn comes.
func TestSlotsAreNeverLost(t *testing.T) {
	const n = 3
	s, err := NewSlots(n)
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	var open, done atomic.Int64
	for i := range 300 {
		all.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i%7)*time.Millisecond)
			defer cancel()
			s.Do(ctx, string(rune('a'+i%5)), i%4 == 0, func() error {
				if open.Add(1) > n {
					t.Error("there are too many")
				}
				defer open.Add(-1)
				done.Add(1)
				time.Sleep(100 * time.Microsecond)
				return errors.New("whatever it returns")
			})
		})
	}
	all.Wait()
	for q, slots := range map[*queue]int{s.all: n, s.notices: n - 1} {
		if done.Load() == 0 || q.free != slots || len(q.waiting) != 0 {
			t.Errorf("%d were done, and the queue is %+v", done.Load(), q)
		}
	}
}
