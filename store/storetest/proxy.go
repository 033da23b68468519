package storetest

import (
	"bytes"
	"net"
	"sync"
	"testing"
	"time"
)

// A Proxy is a TCP proxy between a store and its server that simulates network faults.
// At first it has no fault. Its methods may be called concurrently.
type Proxy struct {
	listener net.Listener
	network  string // the server's network

	mu      sync.Mutex
	address string
	fault   fault
	changed chan struct{} // closed when fault changes
	links   map[*link]bool
	trips   int
}

type fault struct {
	refuse  bool
	hole    bool
	delay   time.Duration
	cutting []byte // see CutAnswerTo; nil for nothing
}

// NewProxy returns a proxy to a server. The proxy listens on TCP and is closed when
// the test ends.
func NewProxy(t testing.TB, network, address string) *Proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	Must(t, err)
	p := &Proxy{
		listener: listener, network: network, address: address,
		changed: make(chan struct{}), links: map[*link]bool{},
	}
	go p.accept()
	t.Cleanup(func() {
		listener.Close()
		p.Refuse()
	})
	return p
}

// Addr returns the proxy's address as host:port.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// LeadTo connects new connections to another server of the same network. Existing
// connections stay.
func (p *Proxy) LeadTo(address string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.address = address
}

// Refuse resets all connections, and each new one at once.
func (p *Proxy) Refuse() {
	p.set(func(f *fault) { f.refuse = true })
	p.Cut()
}

// Blackhole lets nothing through in either direction until Heal, and reports no
// error. It accepts new connections, but they do not reach the server.
func (p *Proxy) Blackhole() { p.set(func(f *fault) { f.hole = true }) }

// Forget makes the existing connections a black hole for ever, like a firewall that
// has lost their state.
func (p *Proxy) Forget() { p.each(func(l *link) { l.forgotten = true }) }

// Delay delays everything by d in each direction, so that an answer takes 2d longer.
func (p *Proxy) Delay(d time.Duration) { p.set(func(f *fault) { f.delay = d }) }

// Cut resets the existing connections. New connections work.
func (p *Proxy) Cut() { p.each(func(l *link) { l.close() }) }

// CutAnswerTo lets requests through, but after a request that contains these bytes
// it resets the connection when the server answers.
func (p *Proxy) CutAnswerTo(request string) {
	p.set(func(f *fault) { f.cutting = append([]byte{}, request...) })
}

// Heal removes all faults. It delivers what a black hole has held back, as TCP does,
// except on forgotten connections.
func (p *Proxy) Heal() { p.set(func(f *fault) { *f = fault{} }) }

// Trips returns the number of round trips on all connections. A round trip begins
// when a client sends something after the server has answered what was sent before.
func (p *Proxy) Trips() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.trips
}

func (p *Proxy) set(change func(*fault)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change(&p.fault)
	close(p.changed)
	p.changed = make(chan struct{})
}

func (p *Proxy) each(do func(*link)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		do(l)
	}
}

func (p *Proxy) state() (fault, chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.fault, p.changed
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		go p.serve(client)
	}
}

// A link is a connection through the proxy. The proxy's mu guards forgotten, cut and
// asked.
type link struct {
	proxy     *Proxy
	client    net.Conn
	once      sync.Once
	closed    chan struct{}
	forgotten bool
	cut       bool // reset the connection when the server answers
	asked     bool // the last data came from the client
}

func (p *Proxy) serve(client net.Conn) {
	l := &link{proxy: p, client: client, closed: make(chan struct{})}
	p.mu.Lock()
	p.links[l] = true
	address := p.address
	p.mu.Unlock()
	defer func() {
		l.close()
		p.mu.Lock()
		delete(p.links, l)
		p.mu.Unlock()
	}()
	if !l.open() {
		return
	}
	server, err := net.Dial(p.network, address)
	if err != nil {
		return
	}
	defer server.Close()
	go func() {
		l.pump(client, server, true)
		server.Close()
	}()
	l.pump(server, client, false)
}

// close resets the client's connection. The other goroutines of the link then end.
func (l *link) close() {
	l.once.Do(func() {
		l.client.(*net.TCPConn).SetLinger(0)
		l.client.Close()
		close(l.closed)
	})
}

// open waits until the link lets data through. It returns false if it never will.
func (l *link) open() bool {
	for {
		f, changed := l.proxy.state()
		switch {
		case f.refuse:
			return false
		case !f.hole && !l.isForgotten():
			return true
		}
		select {
		case <-changed:
		case <-l.closed:
			return false
		}
	}
}

func (l *link) isForgotten() bool {
	l.proxy.mu.Lock()
	defer l.proxy.mu.Unlock()
	return l.forgotten
}

// pump copies data from one side to the other, subject to the current fault.
func (l *link) pump(from, to net.Conn, request bool) {
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if err == nil {
			l.count(request)
		}
		if err != nil || !l.wait() || l.cuts(buf[:n], request) {
			return
		}
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}

// count counts a request that follows an answer.
func (l *link) count(request bool) {
	l.proxy.mu.Lock()
	defer l.proxy.mu.Unlock()
	if request && !l.asked {
		l.proxy.trips++
	}
	l.asked = request
}

// wait holds data back for as long as the fault says.
func (l *link) wait() bool {
	f, _ := l.proxy.state()
	if f.delay > 0 {
		select {
		case <-time.After(f.delay):
		case <-l.closed:
			return false
		}
	}
	return l.open()
}

// cuts records a request whose answer must be cut. It reports whether data is that
// answer.
func (l *link) cuts(data []byte, request bool) bool {
	l.proxy.mu.Lock()
	defer l.proxy.mu.Unlock()
	if cutting := l.proxy.fault.cutting; request && cutting != nil && bytes.Contains(data, cutting) {
		l.cut = true
	}
	return l.cut && !request
}
