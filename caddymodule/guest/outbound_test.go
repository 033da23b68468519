package guest

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"golang.org/x/net/dns/dnsmessage"

	"github.com/mnemogate/mnemogate/store/storetest"
)

// A connection that no longer carries anything, because a firewall has forgotten it, is given
// up. HTTP/2 alone would use it again.
func TestADeadConnectionIsGivenUp(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	transport := newTransport()
	defer transport.CloseIdleConnections()
	transport.TLSClientConfig = server.Client().Transport.(*http.Transport).TLSClientConfig
	if pings := transport.HTTP2; pings.SendPingTimeout == 0 || pings.SendPingTimeout+pings.PingTimeout > 30*time.Second {
		t.Errorf("it takes too long: %+v", pings)
	}
	transport.HTTP2.SendPingTimeout, transport.HTTP2.PingTimeout = 100*time.Millisecond, 100*time.Millisecond
	var first *deafConn
	transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, address)
		if first == nil {
			first = &deafConn{Conn: conn}
			conn = first
		}
		return conn, err
	}
	get := func(timeout time.Duration) error {
		answer, err := (&http.Client{Transport: transport, Timeout: timeout}).Get(server.URL)
		if err == nil && answer.ProtoMajor != 2 {
			t.Error("it is not HTTP/2")
		}
		return err
	}
	if err := get(20 * time.Second); err != nil {
		t.Fatal(err)
	}
	first.deaf.Store(true)
	storetest.Eventually(t, 20*time.Second, "answer", func() bool { return get(time.Second) == nil })
}

// If one of a name's two addresses is dead, requests with the usual timeout reach the other.
func TestADeadAddressLeavesTimeForTheNext(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer server.Close()
	d := *dialer
	d.Resolver = resolving(netip.MustParseAddr("127.0.0.2"), netip.MustParseAddr("127.0.0.1"))
	dead := false
	d.ControlContext = func(ctx context.Context, _, address string, _ syscall.RawConn) error {
		if !strings.HasPrefix(address, "127.0.0.2:") {
			return nil
		}
		dead = true
		<-ctx.Done()
		return ctx.Err()
	}
	storetest.InQuiet(t, time.Second, func() error {
		transport := newTransport()
		defer transport.CloseIdleConnections()
		transport.DialContext = d.DialContext
		answer, err := Client(transport, caddy.Duration(5*time.Second)).Get(strings.Replace(server.URL, "127.0.0.1", "two.example", 1))
		if err != nil || !dead {
			return fmt.Errorf("got %v; the dead address was tried: %v", err, dead)
		}
		return answer.Body.Close()
	})
}

// resolving returns a resolver for which each name has these IPv4 addresses.
func resolving(addresses ...netip.Addr) *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		ours, theirs := net.Pipe() // as over TCP, so the length goes before a message
		go func() {
			defer theirs.Close()
			var length [2]byte
			var m dnsmessage.Message
			if _, err := io.ReadFull(theirs, length[:]); err != nil {
				return
			}
			asked := make([]byte, binary.BigEndian.Uint16(length[:]))
			if _, err := io.ReadFull(theirs, asked); err != nil || m.Unpack(asked) != nil {
				return
			}
			m.Response, m.Additionals = true, nil
			if m.Questions[0].Type == dnsmessage.TypeA {
				for _, a := range addresses {
					header := dnsmessage.ResourceHeader{Name: m.Questions[0].Name, Class: dnsmessage.ClassINET}
					m.Answers = append(m.Answers, dnsmessage.Resource{Header: header, Body: &dnsmessage.AResource{A: a.As4()}})
				}
			}
			if said, err := m.Pack(); err == nil {
				theirs.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(said))), said...))
			}
		}()
		return ours, nil
	}}
}

// Nobody asks for another protocol. Go would let a server that switches hold the request for
// ever, whatever its timeout is.
func TestAServerMayNotSwitchProtocols(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Connection", "Upgrade")
		w.Header().Set("Upgrade", "x")
		w.WriteHeader(http.StatusSwitchingProtocols)
	}))
	defer server.Close()
	for _, transport := range []http.RoundTripper{Outbound, Transport{MaxAnswer: 100}} {
		answer, err := Client(transport, caddy.Duration(time.Minute)).Get(server.URL)
		if err == nil {
			answer.Body.Close()
			t.Fatalf("%T: it answers %s", transport, answer.Status)
		}
		if got := Cause(err).Error(); !strings.HasPrefix(got, "its answer is not valid HTTP; check that it speaks HTTP") {
			t.Errorf("%T: %s", transport, got)
		}
	}
}

// Caddy starts beside a module that has replaced Go's default transport.
func TestTheTransportIsOurOwn(t *testing.T) {
	before := http.DefaultTransport
	defer func() { http.DefaultTransport = before }()
	http.DefaultTransport = struct{ http.RoundTripper }{before}
	if newTransport().Proxy == nil {
		t.Error("the proxy of the environment is not used")
	}
}

// A deafConn loses what is sent, once it is deaf.
type deafConn struct {
	net.Conn
	deaf atomic.Bool
}

func (c *deafConn) Write(p []byte) (int, error) {
	if c.deaf.Load() {
		return len(p), nil
	}
	return c.Conn.Write(p)
}

// What a proxy of the environment refuses has not reached the server behind it, whose fault it
// is not.
func TestAProxyThatRefusesIsNamed(t *testing.T) {
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusProxyAuthRequired) }))
	defer proxy.Close()
	gone := httptest.NewServer(nil)
	gone.Close()
	for address, want := range map[string]string{
		proxy.URL: "proxyconnect tcp: the proxy answered 407; check the proxy that HTTPS_PROXY names, with its user and password: its log may say why",
		gone.URL:  "proxyconnect tcp: dial tcp " + gone.Listener.Addr().String() + ": connect: connection refused; nothing listens there: check that the address and port are right, and that it runs",
	} {
		transport := newTransport()
		transport.Proxy = func(*http.Request) (*url.URL, error) { return url.Parse(address) }
		_, err := (&http.Client{Transport: transport}).Get("https://gateway.example")
		if got := Cause(err); got == nil || got.Error() != want || !MaySendAgain(got) {
			t.Errorf("%v, and it may be sent again: %v; want %s", got, MaySendAgain(got), want)
		}
	}
}
