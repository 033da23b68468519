package bench

import (
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/quic-go/quic-go/http3"
)

// newClient returns a client with its own connections. It uses one version of HTTP:
// http1, http2 (without TLS) or http3.
func newClient(version string) *http.Client {
	const timeout = 30 * time.Second
	if version == "http3" { // Caddy has made the certificate itself
		return &http.Client{Timeout: timeout, Transport: &http3.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableCompression: true}}
	}
	var protocols http.Protocols
	protocols.SetHTTP1(version == "http1")
	protocols.SetUnencryptedHTTP2(version == "http2")
	return &http.Client{Timeout: timeout, Transport: &http.Transport{Protocols: &protocols, DisableCompression: true}}
}

// send sends a request and returns the status of its answer.
func send(c *http.Client, r *http.Request) (status int, err error) {
	response, err := c.Do(r)
	if err != nil {
		return 0, err
	}
	_, err = io.Copy(io.Discard, response.Body)
	return response.StatusCode, errors.Join(err, response.Body.Close())
}

// A load is a number of clients. Each has one connection and sends one request after
// another.
type load struct {
	b       testing.TB
	clients []*http.Client
	want    int                  // the status of the answers
	request func() *http.Request // nil: there are no more
}

func newLoad(b testing.TB, version string, clients, want int, request func() *http.Request) *load {
	l := &load{b: b, want: want, request: request}
	for range clients {
		c := newClient(version)
		b.Cleanup(c.CloseIdleConnections)
		l.clients = append(l.clients, c)
	}
	return l
}

// A result is the result of a load.
type result struct {
	took    []time.Duration // of each answer with the wanted status
	elapsed time.Duration
}

func (r result) rate() float64 { return float64(len(r.took)) / r.elapsed.Seconds() }

func (r result) p99() time.Duration { return quantile(r.took, .99) }

// run runs the load and fails the benchmark if it gets other answers. On a machine
// that is too slow for the load, it also allows 503.
func (l *load) run(d time.Duration) (sum result) {
	l.b.Helper()
	var mu sync.Mutex
	var all sync.WaitGroup
	busy := 0
	start := time.Now()
	for _, c := range l.clients {
		all.Go(func() {
			var took []time.Duration
			var refused int
			for began := start; began.Sub(start) < d; {
				request := l.request()
				if request == nil {
					break
				}
				status, err := send(c, request)
				ended := time.Now()
				switch {
				case status == l.want && err == nil:
					took = append(took, ended.Sub(began))
				case status == http.StatusServiceUnavailable:
					refused++
				default:
					l.b.Errorf("%s %s: got %d, %v, want %d", request.Method, request.URL, status, err, l.want)
					return
				}
				began = ended
			}
			mu.Lock()
			defer mu.Unlock()
			sum.took = append(sum.took, took...)
			busy += refused
		})
	}
	all.Wait()
	sum.elapsed = time.Since(start)
	if busy > 0 {
		l.b.Logf("%d answers 503 beside %d", busy, len(sum.took))
	}
	if l.b.Failed() || len(sum.took) == 0 {
		l.b.Fatal("the load failed")
	}
	return sum
}

// newRequest is http.NewRequest for valid URLs. It panics on errors.
func newRequest(method, url, header, value string, body io.Reader) *http.Request {
	r, err := http.NewRequest(method, url, body)
	if err != nil {
		panic(err)
	}
	r.Header.Set(header, value)
	return r
}
