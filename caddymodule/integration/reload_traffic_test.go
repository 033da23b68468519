package integration

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/flows/wire"
	"github.com/mnemogate/mnemogate/store/storetest"
)

// A traffic is the load on a site: logins, requests for the backend, logouts and
// admin calls, over new and over kept connections. Plain Caddy gets the same
// requests, and its backend answers them.
type traffic struct {
	loading
	plain bool
	kept  *http.Client
	fresh *http.Client

	asked, dropped           atomic.Int64 // requests, and those whose connection ended without an answer
	adminAsked, adminDropped atomic.Int64
}

// A loading runs workers that send requests to a site all the time.
type loading struct {
	*site
	stopped     chan struct{}
	workers     sync.WaitGroup
	hashing     sync.Mutex   // one hash at a time, since waiting for others may take too long
	unavailable atomic.Int64 // answers of service.unavailable; see stopWorkers
	stalls      func() time.Duration
}

func (l *loading) startWorkers() {
	l.stopped, l.stalls = make(chan struct{}), storetest.WatchStalls()
}

func (l *loading) over() bool {
	select {
	case <-l.stopped:
		return true
	default:
		return l.t.Failed()
	}
}

// stopWorkers allows for answers of service.unavailable if the machine has stalled this
// process, and so perhaps a store or a hash. A worker is told so after it has waited for
// 900 ms or more, so only as many are possible as fit into the stall.
func (l *loading) stopWorkers() {
	l.t.Helper()
	close(l.stopped)
	l.workers.Wait()
	stall := l.stalls()
	n, possible := l.unavailable.Swap(0), 2*rollers*(1+int64(stall/(900*time.Millisecond)))
	if n > 0 && stall < 100*time.Millisecond || n > possible {
		l.t.Errorf("%d requests were told service.unavailable, on a machine that stalls for %v: %s", n, stall, l.refusals())
	} else if n > 0 {
		l.t.Logf("%d requests were told service.unavailable, on a machine that stalls for %v", n, stall)
	}
}

// good reports whether an answer is a success. It must be one, or service.unavailable.
func (l *loading) good(a answer, what string) bool {
	if a.Status == http.StatusServiceUnavailable {
		l.unavailable.Add(1)
	} else if a.Status != http.StatusOK {
		l.t.Errorf("%s: %d %s", what, a.Status, a.Body)
	}
	return a.Status == http.StatusOK
}

// pace waits between two requests of a worker, to leave CPU to other tests.
func pace() { time.Sleep(5 * time.Millisecond) }

const trafficWorkers = 4 // and one for the admin API

// newTraffic puts load on a site until it is stopped. The site has accounts load-0
// and so on.
func newTraffic(s *site, plain bool) *traffic {
	load := &traffic{loading: loading{site: s}, plain: plain}
	load.kept = &http.Client{Timeout: client.Timeout, Transport: &http.Transport{MaxIdleConnsPerHost: 2 * trafficWorkers}}
	load.fresh = &http.Client{Timeout: client.Timeout, Transport: &http.Transport{DisableKeepAlives: true}}
	return load
}

func trafficAccounts() string {
	var accounts strings.Builder
	for i := range trafficWorkers {
		accounts.WriteString(account(fmt.Sprint("load-", i), ""))
	}
	return accounts.String()
}

func (l *traffic) begin() {
	l.startWorkers()
	for i := range trafficWorkers {
		c := l.kept
		if i%2 == 0 {
			c = l.fresh
		}
		l.workers.Go(func() {
			for n := 0; !l.over(); n++ {
				l.round(c, fmt.Sprint("load-", i), n)
			}
		})
	}
	l.workers.Go(func() {
		for n := 0; !l.over(); n++ {
			l.administer(n)
		}
	})
}

// end stops the load and closes the connections.
func (l *traffic) end() {
	l.stopWorkers()
	l.kept.CloseIdleConnections()
}

// whileAsking waits until n more requests were answered.
func (l *traffic) whileAsking(n int64) {
	until := l.asked.Load() + n
	storetest.Eventually(l.t, time.Minute, "further answers", func() bool { return l.asked.Load() >= until || l.t.Failed() })
}

// isDropped reports whether the connection ended before an answer.
func isDropped(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) ||
		errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, os.ErrNotExist) ||
		err != nil && strings.HasSuffix(err.Error(), "http: server closed idle connection")
}

// ask sends a request. If its connection is dropped, its result is unknown.
func (l *traffic) ask(c *http.Client, r *http.Request) (a answer, ok bool) {
	l.asked.Add(1)
	pace()
	a, err := exchanged(l.t, c, r)
	if isDropped(err) {
		l.dropped.Add(1)
		return a, false
	}
	if err != nil {
		l.t.Errorf("%s %s: %v", r.Method, r.URL.Path, err)
		return a, false
	}
	return a, true
}

// exchanged is like try without the checks, which take longer than the request.
func exchanged(t *testing.T, c *http.Client, r *http.Request) (answer, error) {
	response, err := c.Do(r)
	if err != nil {
		return answer{}, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return answer{}, err
	}
	return newAnswer(t, response, body), nil
}

// round logs in, uses the session and, every second time, logs out.
func (l *traffic) round(c *http.Client, loginID string, n int) {
	l.hashing.Lock()
	a, ok := l.ask(c, l.postRequest("acme", testKey, "auth/checkcredentials", "", fields{"login_id": loginID, "password": testPassword}))
	l.hashing.Unlock()
	if !ok || !l.good(a, "login") {
		return
	}
	token := a.str("session_token")
	for i := range 6 {
		r := l.getRequest("/acme/orders", token)
		if i == 5 {
			r = l.request(http.MethodPost, "/acme/orders", `{"order":1}`)
			r.Header.Set("Authorization", "Bearer "+token)
		}
		if a, ok := l.ask(c, r); ok && !l.good(a, "request") {
			return
		}
	}
	if n%2 == 0 {
		return
	}
	a, ok = l.ask(c, l.postRequest("acme", testKey, "auth/logout", token, nil))
	if !ok || !l.good(a, "logout") || l.plain {
		return
	}
	for watch := storetest.StartWatch(); ; {
		a, ok := l.ask(c, l.getRequest("/acme/orders", token))
		if !ok || a.str("error_code") == wire.ErrTokenInvalid.Code || a.Status == http.StatusServiceUnavailable {
			return
		}
		if watch.Took() > 5*time.Second {
			l.t.Errorf("after a logout: %d %s", a.Status, a.Body)
			return
		}
	}
}

// refusals returns the lines of the log that say why the service did not answer.
func (s *site) refusals() string {
	var why strings.Builder
	for _, node := range s.all() {
		for line := range strings.Lines(node.log()) {
			if strings.Contains(line, "did not answer") || strings.Contains(line, "defect") {
				why.WriteString(line)
			}
		}
	}
	return why.String()
}

func (l *traffic) administer(n int) {
	node := l.all()[n%len(l.all())]
	method, path, body := http.MethodGet, "/mnemogate/acme/accounts/load-0", ""
	if n%2 == 1 {
		method, body = http.MethodPatch, fmt.Sprintf(`{"oauth_identities":[{"provider_id":1,"subject":"%d"}]}`, n) // this revokes no session
	}
	if l.plain {
		method, path, body = http.MethodGet, "/config/", ""
	}
	r, err := http.NewRequestWithContext(l.t.Context(), method, "http://127.0.0.1"+path, strings.NewReader(body))
	if err != nil {
		l.t.Error(err)
		return
	}
	c := node.adminClient()
	defer c.CloseIdleConnections()
	l.adminAsked.Add(1)
	pace()
	a, err := exchanged(l.t, c, r)
	switch {
	case isDropped(err):
		l.adminDropped.Add(1)
	case err == nil && a.Status == http.StatusServiceUnavailable:
		l.unavailable.Add(1)
	case err != nil || a.Status != http.StatusOK:
		l.t.Errorf("the admin API: %d %s, %v", a.Status, a.Body, err)
	}
}
