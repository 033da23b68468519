package background

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/mnemogate/mnemogate/flows/record"
)

// A pickyHistory refuses calls with a bad event, calls with too many, or all.
type pickyHistory struct {
	record.History
	most  int
	down  bool
	calls int
	kept  []string
}

func (h *pickyHistory) Record(_ context.Context, events []record.Event) error {
	h.calls++
	if h.down || len(events) > h.most {
		return errors.New("the disk takes no more")
	}
	var names []string
	for _, e := range events {
		if strings.HasPrefix(e.Name, "bad") {
			return errors.New("a bad event")
		}
		names = append(names, e.Name)
	}
	h.kept = append(h.kept, names...)
	return nil
}

// An event that can't be stored must not keep others out of the history, nor must a store
// that takes only small batches. While the store takes none, no event is lost.
func TestABadEventIsTheOnlyOneThatIsLost(t *testing.T) {
	const events = 600
	for name, c := range map[string]struct {
		bad  []int // numbers of bad events
		most int   // events in a call
	}{
		"none":          {nil, 1000},
		"the first":     {[]int{0}, 1000},
		"the last":      {[]int{events - 1}, 1000},
		"some":          {[]int{17, 18, 300, 599}, 1000},
		"small batches": {[]int{17}, 3},
	} {
		t.Run(name, func(t *testing.T) {
			var r Recorder
			h := &pickyHistory{most: c.most, down: true}
			log := slog.New(slog.DiscardHandler)
			want := map[string]bool{}
			for i := range events {
				e := record.Event{Name: fmt.Sprint("event ", i)}
				for _, bad := range c.bad {
					if i == bad {
						e.Name = fmt.Sprint("bad ", i)
					}
				}
				if !strings.HasPrefix(e.Name, "bad") {
					want[e.Name] = true
				}
				r.Add(e, h, log)
			}
			before := Failures.Load()
			for range 20 {
				r.flush(h, log)
			}
			if failed := int(Failures.Load() - before); failed != h.calls || h.calls > 80 {
				t.Errorf("the store failed %d times, and %d failures were counted", h.calls, failed)
			}
			h.down, h.calls = false, 0
			r.flush(h, log)
			r.Add(record.Event{Name: "later"}, h, log)
			want["later"] = true
			r.flush(h, log)
			for _, name := range h.kept {
				if !want[name] {
					t.Errorf("%s is there twice", name)
				}
				delete(want, name)
			}
			if len(want) > 0 {
				t.Errorf("%d are missing", len(want))
			}
			if h.calls > events/c.most+80*(1+len(c.bad)) && c.most > 3 {
				t.Errorf("it took %d calls", h.calls)
			}
		})
	}
}
