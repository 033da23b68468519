package breached

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/caddyserver/caddy/v2"
	"golang.org/x/sync/semaphore"

	"github.com/mnemogate/mnemogate/caddymodule/guest"
)

const (
	timeout   = caddy.Duration(time.Second)
	maxAnswer = 1 << 20
	// maxAsked is how many passwords are looked up at once. Others wait within timeout.
	maxAsked = 16
)

// server is a server with the range API of Have I Been Pwned.
type server struct {
	url      *url.URL // of the ranges, without a slash at the end
	insecure bool
	client   *http.Client
	asked    *semaphore.Weighted
}

func newServer(address string, insecure bool) (*server, error) {
	u, err := guest.LiteralURL(address, insecure)
	if err != nil {
		return nil, err
	}
	if u.RawQuery != "" || u.Fragment != "" {
		return nil, errors.New("the range follows the URL, so it can have neither ? nor #")
	}
	return &server{u, insecure, guest.Client(guest.Transport{MaxAnswer: maxAnswer}, timeout), semaphore.NewWeighted(maxAsked)}, nil
}

// Has implements tenant.BreachedList.
func (s *server) Has(ctx context.Context, password string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(timeout))
	defer cancel()
	if s.asked.Acquire(ctx, 1) != nil {
		return false, fmt.Errorf("%d passwords are being looked up at %s already", maxAsked, s.url.Host)
	}
	defer s.asked.Release(1)
	prefix, suffix := split(password)
	listed, err := s.ask(ctx, prefix, suffix)
	return listed, guest.Inside("asking "+s.url.Host+" about a password", err)
}

func (s *server) ask(ctx context.Context, prefix, suffix string) (bool, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url.JoinPath(prefix).String(), nil)
	if err != nil {
		return false, errors.New("its URL is not valid")
	}
	r.Header.Set("Add-Padding", "true")
	r.Header.Set("User-Agent", "mnemogate") // Have I Been Pwned asks clients to say what they are
	resp, err := s.client.Do(r)
	if err != nil {
		return false, guest.Cause(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return false, fmt.Errorf("it answered %d", resp.StatusCode)
	}
	body, _ := io.ReadAll(resp.Body) // guest.Transport has read it
	return search(string(body), suffix)
}

// Endpoint implements guest.Remote.
func (s *server) Endpoint() string { return guest.HostPort(s.url) }

// Check implements guest.Checked.
func (s *server) Check() (string, func(context.Context) error) { return guest.CheckReach(s.url) }

// Weaknesses implements guest.Weak.
func (s *server) Weaknesses() []guest.Weakness {
	return guest.HTTPWeakness(s.insecure, s.url.String())
}
