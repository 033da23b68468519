package storetest

import (
	"bytes"
	"context"
	"net"
	"strconv"
	"sync"
	"testing"
)

// NeedMiniredis skips a test where miniredis does not work: it reads the lifetimes of keys, in
// milliseconds, as int, which is too short on 32 bits. Redis itself works there.
func NeedMiniredis(t *testing.T) {
	t.Helper()
	if strconv.IntSize < 64 {
		t.Skip("miniredis needs 64 bits")
	}
}

// DialMiniredis returns a function that dials a Redis that is written in Go, over a pipe. It
// answers the PING that store/redis sends first, which miniredis does not know in that form.
func DialMiniredis(dial func() (net.Conn, error)) func(context.Context, string, string) (net.Conn, error) {
	return func(context.Context, string, string) (net.Conn, error) {
		conn, err := dial()
		if err != nil {
			return nil, err
		}
		p := &patient{Conn: conn, sent: make(chan []byte, 1000), first: []byte("+PONG\r\n")}
		go func() {
			for data := range p.sent {
				_, _ = conn.Write(data) // if it fails, Read does too
			}
		}()
		return p, nil
	}
}

// A patient is a connection whose Write does not wait until the server reads: otherwise the
// client and the server, with many commands and answers, would wait for each other.
type patient struct {
	net.Conn
	sent   chan []byte
	mu     sync.Mutex // guards the fields below
	pinged bool
	first  []byte // what Read returns first
	closed bool
}

func (p *patient) Write(data []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.closed:
		return 0, net.ErrClosed
	case p.pinged:
		p.sent <- bytes.Clone(data)
	}
	p.pinged = true
	return len(data), nil
}

func (p *patient) Read(data []byte) (int, error) {
	p.mu.Lock()
	n := copy(data, p.first)
	p.first = p.first[n:]
	p.mu.Unlock()
	if n > 0 {
		return n, nil
	}
	return p.Conn.Read(data)
}

func (p *patient) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		close(p.sent)
	}
	p.closed = true
	return p.Conn.Close()
}
