package bench

import (
	"cmp"
	"crypto/tls"
	"errors"
	"math/bits"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// A load is a number of clients, each with a connection of its own and one
// request under way at a time. They cost as little as they can, since they
// share the machine with what is measured.
type load struct {
	template
	clients []*loadClient
}

// A template is what all requests of a load have in common.
type template struct {
	addr   string
	method string
	path   string
	key    string // X-Api-Key
	header string // what stands before a token, other than that of Bearer
	http2  bool
	http3  *tls.Config // nil: no HTTP/3
	want   int         // the status of an answer that is none of the failures
}

// A shot is what is special to a request.
type shot struct{ token, body, path string } // the path is behind the template's

// A magazine hands each client what it sends. What it returns is called by that
// client alone, until it says that there is no more.
type magazine func(client int) func() (shot, bool)

type loadClient struct {
	template *template
	next     func() (shot, bool)
	conn     speaker
}

func newLoad(t template, clients int, shots magazine) *load {
	l := &load{template: t}
	for i := range clients {
		l.clients = append(l.clients, &loadClient{template: &l.template, next: shots(i)})
	}
	return l
}

func (l *load) close() {
	for _, c := range l.clients {
		c.hangUp()
	}
}

func (c *loadClient) hangUp() {
	if c.conn != nil {
		_ = c.conn.Close()
		c.conn = nil
	}
}

// shoot sends a request and returns the status of its answer. After an error
// the next one goes over a new connection.
func (c *loadClient) shoot(s shot) (int, error) {
	if c.conn == nil {
		conn, err := c.template.dial()
		if err != nil {
			return 0, err
		}
		c.conn = conn
	}
	status, err := c.conn.exchange(c.template, s)
	if err != nil {
		c.hangUp()
	}
	return status, err
}

func (t *template) dial() (speaker, error) {
	if t.http3 != nil {
		return newWire3(t.addr, t.http3)
	}
	conn, err := net.Dial("tcp", t.addr)
	if err != nil {
		return nil, err
	}
	if !t.http2 {
		return &wire1{Conn: conn, in: make([]byte, 16<<10)}, nil
	}
	w, err := newWire2(conn)
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return w, nil
}

const bearer = "Authorization: Bearer "

// credentials returns the header that brings a token.
func (t *template) credentials(s shot) (name, value string) {
	name, before, _ := strings.Cut(cmp.Or(t.header, bearer), ": ")
	return name, before + s.token
}

// Results of a run

// A tally is what came of the requests of a run. Its times are those of the
// answers that were wanted.
type tally struct {
	times
	late     times // by how much the clients themselves were late, in open loop
	requests int   // answered as wanted
	statuses map[int]int
	errors   int
	err      error // one of them
	elapsed  time.Duration
}

func (t *tally) add(status, want int, err error, took time.Duration) {
	switch {
	case err != nil:
		t.errors++
		t.err = err
		return
	case status == want:
		t.requests++
		t.times.add(took)
	}
	if t.statuses == nil {
		t.statuses = map[int]int{}
	}
	t.statuses[status]++
}

func (t *tally) merge(other *tally) {
	t.times.merge(&other.times)
	t.late.merge(&other.late)
	t.requests += other.requests
	t.errors += other.errors
	t.err = errors.Join(t.err, other.err)
	for status, n := range other.statuses {
		if t.statuses == nil {
			t.statuses = map[int]int{}
		}
		t.statuses[status] += n
	}
}

// failed returns how many requests were not answered as wanted.
func (t *tally) failed() int {
	n := t.errors - t.requests
	for _, count := range t.statuses {
		n += count
	}
	return n
}

func (t *tally) rate() float64 { return float64(t.requests) / t.elapsed.Seconds() }

// busy returns how many requests were answered service.unavailable: on a
// machine that is too slow for them, which is no fault of a benchmark's.
func (t *tally) busy() int { return t.statuses[http.StatusServiceUnavailable] }

// must ends a benchmark that measures something else than it should.
func (t *tally) must(b testing.TB) {
	b.Helper()
	if t.failed() > t.busy() || t.requests == 0 {
		b.Fatalf("of %d requests %d failed: statuses %v, %v", t.requests+t.failed(), t.failed(), t.statuses, t.err)
	}
}

// times is a histogram of durations, whose buckets are 3 % wide.
type times struct {
	buckets [32 * 28]uint32
	n       int
}

const subBits = 5

func (h *times) add(d time.Duration) {
	h.buckets[bucketOf(d)]++
	h.n++
}

// bucketOf returns d's power of two from 1 µs (nearly: 1024 ns) on, and the next
// bits of d within that.
func bucketOf(d time.Duration) int {
	v := max(uint64(max(d, 0))>>subBits, 1<<subBits)
	power := bits.Len64(v) - 1 - subBits
	return min(power<<subBits+int(v>>power)&(1<<subBits-1), len(times{}.buckets)-1)
}

// bucketTop is the longest duration of a bucket.
func bucketTop(i int) time.Duration {
	power, sub := i>>subBits, i&(1<<subBits-1)
	return time.Duration((1<<subBits+uint64(sub)+1)<<power<<subBits - 1)
}

func (h *times) merge(other *times) {
	for i, n := range other.buckets {
		h.buckets[i] += n
	}
	h.n += other.n
}

// quantile returns what a share of the durations, 0 to 1, did not exceed.
func (h *times) quantile(share float64) time.Duration {
	rank := int(share*float64(h.n-1)) + 1
	for i, n := range h.buckets {
		if rank -= int(n); rank <= 0 && h.n > 0 {
			return bucketTop(i)
		}
	}
	return 0
}

// Running

// run has each client send one request after another (closed loop).
func (l *load) run(d time.Duration) *tally {
	return l.each(d, func(_ int, c *loadClient, t *tally, start time.Time) {
		for before := time.Now(); before.Sub(start) < d; {
			s, ok := c.next()
			if !ok {
				return
			}
			status, err := c.shoot(s)
			after := time.Now()
			t.add(status, l.want, err, after.Sub(before))
			before = after
			if err != nil {
				time.Sleep(10 * time.Millisecond)
			}
		}
	})
}

// runAt has the clients send so many requests a second in all, each at its
// time (open loop). A request's time counts from when it should have been sent:
// that of one which waits for the answer before it is longer by the wait.
func (l *load) runAt(rate float64, d time.Duration) *tally {
	interval := time.Duration(float64(time.Second) * float64(len(l.clients)) / rate)
	return l.each(d, func(i int, c *loadClient, t *tally, start time.Time) {
		for due := start.Add(interval * time.Duration(i) / time.Duration(len(l.clients))); due.Sub(start) < d; due = due.Add(interval) {
			if wait := time.Until(due); wait > 0 {
				time.Sleep(wait)
				t.late.add(time.Since(due))
			}
			s, ok := c.next()
			if !ok {
				return
			}
			status, err := c.shoot(s)
			t.add(status, l.want, err, time.Since(due))
		}
	})
}

// each runs all clients and adds up what they counted. The last answer ends the
// time, so that none is counted in half.
func (l *load) each(d time.Duration, client func(i int, c *loadClient, t *tally, start time.Time)) *tally {
	var mu sync.Mutex
	var all sync.WaitGroup
	var sum tally
	start := time.Now()
	for i, c := range l.clients {
		all.Go(func() {
			if c.conn != nil {
				_ = c.conn.SetDeadline(start.Add(d + 30*time.Second))
			}
			var t tally
			client(i, c, &t, start)
			mu.Lock()
			defer mu.Unlock()
			sum.merge(&t)
		})
	}
	all.Wait()
	sum.elapsed = time.Since(start)
	return &sum
}

// What the percentiles are read from must be right to a bucket.
func TestLoadTimes(t *testing.T) {
	var h times
	for i := range 1000 {
		h.add(time.Duration(i+1) * 10 * time.Microsecond)
	}
	for share, want := range map[float64]time.Duration{0: 10 * time.Microsecond, .5: 5 * time.Millisecond, .99: 9900 * time.Microsecond, 1: 10 * time.Millisecond} {
		if got := h.quantile(share); got < want || float64(got) > 1.04*float64(want) {
			t.Errorf("of 10 µs to 10 ms the %v quantile is %v, want %v", share, got, want)
		}
	}
	h.add(time.Hour)
	if got := h.quantile(1); got < 2*time.Minute {
		t.Errorf("an hour is counted as %v", got)
	}
}
