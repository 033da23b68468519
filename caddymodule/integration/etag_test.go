package integration

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Two editors cannot lose each other's change: of many that name one version, one succeeds.
func TestAnAccountIsChangedInTheVersionThatWasRead(t *testing.T) {
	t.Parallel()
	onEachDeployment(t, func(t *testing.T, start starter) {
		key := "key-of-the-editors"
		s := accountsSite(t, start, "key editors "+key+" {\nmay read write\n}", siteConfig{company: account("alice", "")})
		send := func(method, etag string, body any) answer {
			r := s.apiRequest(key, method, "acme/accounts/alice", body)
			if etag != "" {
				r.Header.Set("If-Match", etag)
			}
			a := s.do(r)
			checkInDocument(t, r, a)
			return a
		}
		shown := send("GET", "", nil).wantStatus(200)
		read := shown.Header.Get("ETag")
		var won atomic.Int64
		var all sync.WaitGroup
		for i := range 20 {
			all.Go(func() {
				a := send("PATCH", read, fields{"role": fmt.Sprint("role-", i)})
				if a.Status == http.StatusOK && a.Header.Get("ETag") != read {
					won.Add(1)
				} else if a.Status != http.StatusPreconditionFailed {
					t.Errorf("got %d %s", a.Status, a.Body)
				}
			})
		}
		all.Wait()
		if won.Load() != 1 {
			t.Errorf("%d editors succeeded with one version", won.Load())
		}
		now := send("GET", "", nil).Header.Get("ETag")
		if again := send("PATCH", `"other", `+now, fields{"locale": "lt"}).wantStatus(200).Header.Get("ETag"); again == now || again != send("GET", "", nil).Header.Get("ETag") {
			t.Errorf("the ETag after the change is %s", again)
		}
		send("DELETE", now, nil).wantStatus(http.StatusPreconditionFailed)
		send("PATCH", "*", fields{"locale": "de"}).wantStatus(200)
		send("PATCH", "", fields{"locale": "fr"}).wantStatus(200)
		send("DELETE", send("GET", "", nil).Header.Get("ETag"), nil).wantStatus(204)
		send("PATCH", "*", fields{"locale": "de"}).wantStatus(http.StatusPreconditionFailed)
		send("DELETE", "*", nil).wantStatus(http.StatusPreconditionFailed)
		send("DELETE", "", nil).wantStatus(http.StatusNotFound)
		if created := s.api(key, "POST", "acme/accounts", fields{"profile_mnemocode": "bob"}).wantStatus(201); created.Header.Get("ETag") != s.api(key, "GET", "acme/accounts/bob", nil).Header.Get("ETag") {
			t.Error("a new account has another ETag")
		}
	})
}

// Filters find what was changed since a time, and who has a password.
func TestAccountsAreFoundByChangeAndPassword(t *testing.T) {
	t.Parallel()
	s := adminSite(t, siteConfig{company: account("alice", "")})
	s.admin("POST", "accounts", fields{"profile_mnemocode": "bob", "login_name": "bob"}).wantStatus(201)
	found := func(query string) (names []string) {
		for _, a := range s.admin("GET", "accounts?"+query, nil).wantStatus(200).JSON["accounts"].([]any) {
			names = append(names, a.(fields)["profile_mnemocode"].(string))
		}
		return names
	}
	since := time.Now()
	s.admin("PATCH", "accounts/alice", fields{"role": "editor"}).wantStatus(200)
	for query, want := range map[string][]string{
		"password_set=true":  {"alice"},
		"password_set=false": {"bob"},
		"updated_since=" + url.QueryEscape(since.Format(time.RFC3339Nano)): {"alice"},
	} {
		if got := found(query); !slices.Equal(got, want) {
			t.Errorf("%s: %v", query, got)
		}
	}
	s.admin("GET", "accounts?updated_since=yesterday", nil).wantRefused(400, "updated_since")
	s.admin("GET", "accounts?password_set=yes", nil).wantRefused(400, "password_set")
}

// A receiver that answers 410 gets no more events until a reload. They wait.
func TestAReceiverThatIsGone(t *testing.T) {
	t.Parallel()
	r := newReceiver(t)
	config := siteConfig{company: r.events("") + "captcha off"}
	s := startSite(t, config)
	r.behave(func(told) int { return http.StatusGone })
	s.admin("POST", "accounts", fields{"profile_mnemocode": "alice"}).wantStatus(201)
	s.eventually("the alert's metric", func() bool {
		return s.scrape()[`mnemogate_outbox_deliveries_total{company="acme",result="gone"}`] > 0
	})
	tries := len(r.all())
	r.behave(func(told) int { return http.StatusNoContent })
	s.admin("POST", "accounts", fields{"profile_mnemocode": "bob"}).wantStatus(201)
	time.Sleep(time.Second) // twice as long as the next look for due events takes
	if now := len(r.all()); now != tries {
		t.Errorf("it got %d more events", now-tries)
	}
	config.company += "\nlocale lt" // Caddy ignores a reload that changes nothing
	must(t, s.reload(config))
	r.hears("alice", "account.created")
	r.hears("bob", "account.created")
}

// A receiver that asks for time gets it, although the pauses are shorter.
func TestAReceiverAsksForTime(t *testing.T) {
	t.Parallel()
	r := newReceiver(t)
	r.retryAfter = "2"
	var tries []time.Time
	r.behave(func(told) int {
		if tries = append(tries, time.Now()); len(tries) == 1 {
			return http.StatusServiceUnavailable
		}
		return http.StatusNoContent
	})
	s := startSite(t, siteConfig{company: r.events("") + "captcha off"})
	s.admin("POST", "accounts", fields{"profile_mnemocode": "alice"}).wantStatus(201)
	r.hears("alice", "account.created")
	if len(tries) != 2 || tries[1].Sub(tries[0]) < 2*time.Second {
		t.Errorf("it was asked at %v", tries)
	}
}
