package background

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

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

// While the disk is full, on which the log may be, too, its lines are few. They tell how many
// were omitted.
func TestAStoreThatTakesNothingWritesFewLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r Recorder
		var log bytes.Buffer
		h := &pickyHistory{down: true}
		for range 5 {
			r.Add(record.Event{Name: "a login"}, h, slog.New(slog.DiscardHandler))
		}
		go r.Run(h, slog.New(slog.NewTextHandler(&log, nil)))
		time.Sleep(time.Minute)
		synctest.Wait()
		if text := log.String(); strings.Count(text, "\n") > 7 || !strings.Contains(text, `doing="recording account history" omitted=`) {
			t.Errorf("the log says %s", text)
		}
		r.Close(h, slog.New(slog.DiscardHandler))
	})
}

// What is lost at the end is told.
func TestARecorderThatEndsTellsWhatItLoses(t *testing.T) {
	var r Recorder
	var log bytes.Buffer
	h := &pickyHistory{down: true}
	r.Add(record.Event{Name: "a logout"}, h, slog.New(slog.DiscardHandler))
	r.Close(h, slog.New(slog.NewTextHandler(&log, nil)))
	if !strings.Contains(log.String(), "account history is incomplete") {
		t.Errorf("the log says %s", log.String())
	}
}

// A slowHistory takes a while for each call.
type slowHistory struct {
	record.History
	mu    sync.Mutex
	calls int
	kept  map[string]bool
}

func (h *slowHistory) Record(_ context.Context, events []record.Event) error {
	time.Sleep(10 * time.Millisecond)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.calls++
	for _, e := range events {
		h.kept[e.Name] = true
	}
	return nil
}

// Each request waits for its own event, even if it comes while others are stored. Requests
// at once share a write.
func TestRequestsAtOnceShareAWriteOfTheHistory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r Recorder
		h := &slowHistory{kept: map[string]bool{}}
		log := slog.New(slog.DiscardHandler)
		go r.Run(h, log)
		defer r.Close(h, log)
		var requests sync.WaitGroup
		for i := range 200 {
			requests.Go(func() {
				time.Sleep(time.Duration(i/50) * 7 * time.Millisecond)
				name := fmt.Sprint("event ", i)
				r.Add(record.Event{Name: name}, h, log)
				began := time.Now()
				r.Wait()
				h.mu.Lock()
				defer h.mu.Unlock()
				if took := time.Since(began); !h.kept[name] || took > 20*time.Millisecond {
					t.Errorf("request %d: stored: %v, after %v", i, h.kept[name], took)
				}
			})
		}
		requests.Wait()
		if h.calls > 10 {
			t.Errorf("it took %d writes", h.calls)
		}
	})
}

// A loop of refusals cannot push the events of others out of the queue, even while the store
// takes none. Its newest event is kept.
func TestALoopTakesNoPlacesOfOthers(t *testing.T) {
	var r Recorder
	h := &pickyHistory{most: 1000, down: true}
	log := slog.New(slog.DiscardHandler)
	for i := range 3 * maxUnrecorded {
		r.Add(record.Event{Name: "refused", Account: 1, Apart: true, Ref: fmt.Sprint(i)}, h, log)
		r.Add(record.Event{Name: "wrong", Account: 1, Noise: true, Ref: fmt.Sprint(i)}, h, log)
		if i%maxUnrecorded == 0 {
			r.Add(record.Event{Name: "changed", Account: 1}, h, log)
			r.Add(record.Event{Name: "refused", Account: 2, Apart: true}, h, log)
			r.flush(h, log)
		}
	}
	count, newest := map[string]int{}, map[string]string{}
	for _, e := range r.events {
		name := fmt.Sprint(e.Account, " ", e.Name)
		count[name]++
		newest[name] = e.Ref
	}
	if last := fmt.Sprint(3*maxUnrecorded - 1); r.lost > 0 || newest["1 refused"] != last || newest["1 wrong"] != last ||
		fmt.Sprint(count) != fmt.Sprintf("map[1 changed:3 1 refused:%d 1 wrong:%d 2 refused:3]", record.HistoryKeptApart, record.HistoryKept) {
		t.Errorf("%d are lost; the queue has %v with %v", r.lost, count, newest)
	}
}
