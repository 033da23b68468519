package integration

import (
	"fmt"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/store/storetest"
)

// Contract, section 14: health answers 200 or 503, without a body and without
// requiring a token. It has a path of its own and one on the admin endpoint.
func TestHealthIsToldToAnybody(t *testing.T) {
	t.Parallel()
	s := startSite(t, siteConfig{company: roomy, handler: "health /health\nrequire_api_key"})
	s.wantHealth(t, http.StatusOK)
	for _, method := range []string{"HEAD", "POST"} {
		want := map[string]int{"HEAD": http.StatusOK, "POST": http.StatusMethodNotAllowed}[method]
		if a := s.ask(method, "/health", ""); a.Status != want {
			t.Errorf("%s: %d, want %d", method, a.Status, want)
		}
	}
	for _, uri := range []string{"/health/", "/he%61lth", "/Health"} {
		if a := s.ask("GET", uri, ""); a.Status != http.StatusUnauthorized {
			t.Errorf("%s: %d, want 401", uri, a.Status)
		}
	}
	asked := func() (sum float64) {
		for name, value := range s.scrape() {
			if strings.HasPrefix(name, "mnemogate_store_seconds_count") && strings.Contains(name, `"failure_counts"`) {
				sum += value
			}
		}
		return sum
	}
	before, began := asked(), time.Now()
	storetest.Together(100, func(int) answer { return s.ask("GET", "/health", "") })
	if n := asked() - before; n > 1+time.Since(began).Seconds() {
		t.Errorf("100 questions asked the store %v times in %v", n, time.Since(began))
	}
}

// A node that is shutting down and has shutdown_delay reports that it is unhealthy
// but serves requests, so that a balancer removes it before it stops.
func TestHealthTellsOfTheEnd(t *testing.T) {
	t.Parallel()
	config := siteConfig{company: people, handler: "health /health"}.caddyfile("DIR", "SINK", "BACKEND")
	s := startCaddyfile(t, strings.Replace(config, "auto_https off", "auto_https off\nshutdown_delay 1m", 1), nil)
	token := s.login("alice@example.com")
	must(t, s.load())
	s.wantHealth(t, http.StatusOK) // the listener stays open
	_ = s.cmd.Process.Signal(syscall.SIGTERM)
	for _, uri := range []string{"/health", "/health?ready"} {
		storetest.Eventually(t, 20*time.Second, "503", func() bool { return s.ask("GET", uri, "").Status == http.StatusServiceUnavailable })
	}
	s.get("/", token).wantStatus(http.StatusOK)
	s.stop(syscall.SIGKILL)
}

// wantHealth checks the health on the site and on the admin endpoint, both of which have no
// body. On a busy machine a store may not answer in time at first.
func (s *site) wantHealth(t *testing.T, status int) {
	t.Helper()
	storetest.Eventually(t, 20*time.Second, http.StatusText(status)+" as the health", func() bool {
		site, admin := s.ask("GET", "/health", ""), s.adminRaw("GET", "health", "")
		if len(site.Body)+len(admin.Body) != 0 {
			t.Fatalf("health has a body: %q, %q", site.Body, admin.Body)
		}
		return site.Status == status && admin.Status == status
	})
}

// changelogVersion returns the version according to the changelog: the topmost
// release or, if "Unreleased" is above it, the next minor version with -dev. The first is
// v0.1.0.
func changelogVersion(t *testing.T) string {
	t.Helper()
	text := get(os.ReadFile("../../CHANGELOG.md"))(t)
	top := regexp.MustCompile(`^# Changelog\n\n## (Unreleased\n(?s:.*?)\n## )?v(\d+)\.(\d+)\.(\d+) \(\d{4}-\d\d-\d\d\)\n`).FindStringSubmatch(string(text))
	if strings.HasPrefix(string(text), "# Changelog\n\n## Unreleased\n") && top == nil {
		return "v0.1.0-dev"
	}
	if top == nil {
		t.Fatal("CHANGELOG.md begins with neither a release nor Unreleased")
	}
	if top[1] == "" {
		return "v" + strings.Join(top[2:], ".")
	}
	minor := get(strconv.Atoi(top[3]))(t)
	return fmt.Sprintf("v%s.%d.0-dev", top[2], minor+1)
}
