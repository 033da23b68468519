package guest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// A company that fills the slots of a gateway does not make another wait for all that it has
// queued.
func TestSlotsGoToTheCompanyWithTheFewest(t *testing.T) {
	s, err := NewSlots(2)
	if err != nil {
		t.Fatal(err)
	}
	type call struct {
		company string
		end     chan struct{}
	}
	var all sync.WaitGroup
	begun := make(chan call, 8)
	for i, company := range []string{"a", "a", "a", "a", "b", "a", "b", "c"} {
		all.Go(func() {
			s.Do(t.Context(), company, false, func() error {
				c := call{company, make(chan struct{})}
				begun <- c
				<-c.end
				return nil
			})
		})
		for entered := 0; entered <= i; time.Sleep(time.Millisecond) {
			s.all.mu.Lock()
			entered = 2 - s.all.free + len(s.all.waiting)
			s.all.mu.Unlock()
		}
	}
	var got []string
	var open []call
	for range 8 {
		c := <-begun
		got, open = append(got, c.company), append(open, c)
		if len(open) == 2 {
			close(open[0].end)
			open = open[1:]
		}
	}
	close(open[0].end)
	all.Wait()
	if want := []string{"a", "a", "b", "a", "b", "a", "c", "a"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
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
	if done.Load() == 0 || s.all.free != n || len(s.all.waiting) != 0 || len(s.all.taken) != 0 {
		t.Errorf("%d were done, and the queue is %+v", done.Load(), s.all)
	}
}
