package gate

import (
	"sync"
	"time"
)

// streams are those of all handlers, also of configs that are gone.
var streams = streamWatch{lists: map[time.Duration]*streamList{}}

// A streamWatch has each stream in it checked when that is due, to watchTick.
// Nearly all are over long before, so it is made for adding and removing: a timer
// for each would cost a request more than all else here.
type streamWatch struct {
	mu      sync.Mutex // guards all below and, of the streams in it, list, due, before and next
	lists   map[time.Duration]*streamList
	running bool
}

const watchTick = 10 * time.Millisecond

// A streamList has the streams that were added with one delay, and so the first
// one is the first that is due.
type streamList struct{ first, last *stream }

// add has a stream checked once, after a delay.
func (w *streamWatch) add(s *stream, now time.Time, delay time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.put(s, now, delay)
	if !w.running {
		w.running = true
		go w.run()
	}
}

// put puts a stream in. The caller holds the lock.
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

// remove has a stream not checked, unless that is under way.
func (w *streamWatch) remove(s *stream) {
	w.mu.Lock()
	w.take(s)
	unfollow := s.unfollow
	w.mu.Unlock()
	if unfollow != nil {
		unfollow()
	}
}

// take takes a stream out, if it is in. The caller holds the lock.
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

// run goes on while there are streams.
func (w *streamWatch) run() {
	for {
		time.Sleep(watchTick)
		if !w.check(time.Now()) {
			return
		}
	}
}

// check has all checked that are due, and reports whether there are others. What is due
// for the first time has outlived its first tick.
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
