package gate

import (
	"sync"
	"time"
)

// streams holds the streams of all handlers, including those of configs that were
// replaced.
var streams = streamWatch{lists: map[time.Duration]*streamList{}}

// A streamWatch checks each of its streams when the check is due, with a precision
// of watchTick. Nearly all requests finish long before, so adding and removing must
// be cheap: a timer for each stream would cost more than the rest of the request's
// handling.
type streamWatch struct {
	mu      sync.Mutex // guards the fields below, and list, due, before and next of the streams in it
	lists   map[time.Duration]*streamList
	running bool
}

const watchTick = 10 * time.Millisecond

// A streamList holds the streams that were added with the same delay, so the first
// stream is due first.
type streamList struct{ first, last *stream }

// add schedules one check of a stream after a delay.
func (w *streamWatch) add(s *stream, now time.Time, delay time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.put(s, now, delay)
	if !w.running {
		w.running = true
		go w.run()
	}
}

// put appends a stream to the list of its delay. The caller holds the lock.
func (w *streamWatch) put(s *stream, now time.Time, delay time.Duration) {
	list := w.lists[delay]
	if list == nil {
		list = new(streamList)
		w.lists[delay] = list
	}
	s.list, s.due, s.before = list, now.Add(delay), list.last
	if list.last == nil {
		list.first = s
	} else {
		list.last.next = s
	}
	list.last = s
}

// remove cancels a stream's check, unless the check is already running.
func (w *streamWatch) remove(s *stream) {
	w.mu.Lock()
	w.take(s)
	unfollow := s.unfollow
	w.mu.Unlock()
	if unfollow != nil {
		unfollow()
	}
}

// take removes a stream from its list, if it is in one. The caller holds the lock.
func (*streamWatch) take(s *stream) {
	list := s.list
	if list == nil {
		return
	}
	if s.before == nil {
		list.first = s.next
	} else {
		s.before.next = s.next
	}
	if s.next == nil {
		list.last = s.before
	} else {
		s.next.before = s.before
	}
	s.list, s.before, s.next = nil, nil, nil
}

// run checks the streams until none are left.
func (w *streamWatch) run() {
	for {
		time.Sleep(watchTick)
		if !w.check(time.Now()) {
			return
		}
	}
}

// check starts the checks that are due, and reports whether streams are left. A
// stream that is due for the first time has outlived its first tick: from then on
// its context follows the client's.
func (w *streamWatch) check(now time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	others := false
	for _, list := range w.lists {
		for s := list.first; s != nil && !now.Before(s.due); s = list.first {
			w.take(s)
			if s.unfollow != nil {
				go s.check()
				continue
			}
			s.follow()
			w.put(s, now, s.recheck/2)
			others = true
		}
		others = others || list.first != nil
	}
	w.running = others
	return others
}
