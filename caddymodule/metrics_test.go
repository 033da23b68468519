package caddymodule

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/mnemogate/mnemogate/flows"
	"github.com/mnemogate/mnemogate/store"
)

// scrape returns the samples of ours at the admin endpoint, and those of Go's
// runtime left out.
func (s *site) scrape() map[string]float64 {
	s.t.Helper()
	samples := map[string]float64{}
	lines := bufio.NewScanner(strings.NewReader(s.fromAdmin("/metrics")))
	for lines.Scan() {
		name, value, ok := strings.Cut(lines.Text(), "} ")
		if ok {
			name += "}"
		} else {
			name, value, _ = strings.Cut(lines.Text(), " ")
		}
		if strings.HasPrefix(name, "mnemogate_") {
			n, err := strconv.ParseFloat(value, 64)
			if err != nil {
				s.t.Fatalf("%q is no sample: %v", lines.Text(), err)
			}
			samples[name] = n
		}
	}
	return samples
}

// fromAdmin reads from Caddy's admin endpoint.
func (s *site) fromAdmin(path string) string {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, "http://localhost"+path, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", s.dir+"/admin.sock")
	}
	response, err := (&http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}).Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		s.t.Fatalf("%s: %s, %v: %s", path, response.Status, err, body)
	}
	return string(body)
}

func TestMetricsCountAndGoOnOverReloads(t *testing.T) {
	c := siteConfig{company: people, global: "limits {\nlock_after 2\n}"}
	s := startSite(t, c)
	if s.scrape()[`mnemogate_locks_total{company="acme",lock="sms_per_company"}`] != 0 {
		t.Error("a lock that was never reached is not 0")
	}
	token := s.login("alice@example.com")
	for range 3 {
		s.get("/", token)
	}
	s.get("/", "")
	s.get("/", "mgs_nonsense").want(flows.ErrTokenInvalid)
	s.post("auth/login", "", fields{"login_id": "+37060000002"}).wantState(flows.CheckOTP)
	s.sms.answer(500)
	s.post("auth/login", "", fields{"login_id": "+37060000002"}).want(flows.ErrUnavailable)
	s.sms.answer(0)
	for range 2 {
		s.post("auth/checkcredentials", "", fields{"login_id": "frank", "password": "wrong"})
	}
	s.postTo("nobody", testKey, "auth/login", "", fields{"login_id": "frank"}).want(flows.ErrAPIKeyInvalid)
	s.post("auth/nothing", "", nil).want(flows.ErrNoRoute)
	s.post("auth/logout", s.login("alice@example.com"), nil).wantState(flows.None)

	want := map[string]float64{
		`mnemogate_requests_total{company="acme",result="success",route="checkcredentials"}`:                  2,
		`mnemogate_requests_total{company="acme",result="auth.credentials.invalid",route="checkcredentials"}`: 2,
		`mnemogate_requests_total{company="acme",result="success",route="login"}`:                             1,
		`mnemogate_requests_total{company="acme",result="service.unavailable",route="login"}`:                 1,
		`mnemogate_requests_total{company="unknown",result="auth.apikey.invalid",route="login"}`:              1,
		`mnemogate_requests_total{company="acme",result="request.validation.failed",route="none"}`:            1,
		`mnemogate_protected_requests_total{result="pass"}`:                                                   3,
		`mnemogate_protected_requests_total{result="auth.header.missing"}`:                                    1,
		`mnemogate_protected_requests_total{result="auth.token.invalid"}`:                                     1,
		`mnemogate_locks_total{company="acme",lock="password"}`:                                               1,
		`mnemogate_locks_total{company="acme",lock="sms_per_company"}`:                                        0,
		`mnemogate_sessions_begun_total{company="acme",state="authorized"}`:                                   2,
		`mnemogate_sessions_begun_total{company="acme",state="checkotp"}`:                                     1,
		`mnemogate_sessions_ended_total{company="acme",reason="logout"}`:                                      1,
		`mnemogate_account_changes_total{change="created",company="acme"}`:                                    6,
		`mnemogate_messages_total{channel="sms",company="acme",result="accepted",type="otp.login"}`:           1,
		`mnemogate_messages_total{channel="sms",company="acme",result="failed",type="otp.login"}`:             1,
		`mnemogate_memory_hits_total`:    2,
		`mnemogate_memory_misses_total`:  1,
		`mnemogate_memory_sessions`:      1,
		`mnemogate_memory_trusted`:       1,
		`mnemogate_up`:                   1,
		`mnemogate_hash_queue`:           0,
		`mnemogate_background_messages`:  0,
		`mnemogate_defects_total`:        0,
		`mnemogate_events_dropped_total`: 0,
	}
	check := func(when string) {
		t.Helper()
		got := s.scrape()
		for name, n := range want {
			if value, ok := got[name]; !ok || value != n {
				t.Errorf("%s: %s is %v (there: %v), want %v", when, name, value, ok, n)
			}
		}
		for _, name := range []string{
			`mnemogate_store_seconds_count{method="by_login_id",result="ok",store="accounts"}`,
			`mnemogate_store_seconds_count{method="get",result="ok",store="sessions"}`,
			`mnemogate_hash_wait_seconds_count{result="turn"}`,
			`mnemogate_hash_queue_limit`,
		} {
			if got[name] == 0 {
				t.Errorf("%s: %s is 0", when, name)
			}
		}
		for name := range got {
			if strings.Contains(name, `store_seconds_count`) && strings.Contains(name, `result="error"`) {
				t.Errorf("%s: %s: no store failed", when, name)
			}
		}
	}
	check("at first")
	if err := s.reload(c); err != nil {
		t.Fatal(err)
	}
	check("after a reload")
	s.config = strings.Replace(s.config, "captcha off", "captcha off\nsms_nonsense", 1)
	if s.load() == nil {
		t.Fatal("a broken config was taken")
	}
	s.config = strings.Replace(s.config, "captcha off\nsms_nonsense", "captcha off", 1)
	s.config = strings.Replace(s.config, "reverse_proxy ", "bind_nonsense ", 1)
	if s.load() == nil {
		t.Fatal("a broken config was taken")
	}
	check("after a failed reload")
	s.get("/", token)
	if n := s.scrape()[`mnemogate_protected_requests_total{result="pass"}`]; n != 4 {
		t.Errorf("passes after the reloads: %v", n)
	}
}

// What is scraped is what the table lists, and no label is unbounded.
func TestMetricsAreThoseOfTheTable(t *testing.T) {
	s := startSite(t, siteConfig{company: people})
	s.login("alice@example.com")
	kinds := map[string]metricKind{}
	for _, k := range metricKinds {
		if kinds[k.name].name != "" || !strings.HasPrefix(k.name, "mnemogate_") || strings.HasSuffix(k.name, "_total") != (k.kind == "counter") {
			t.Errorf("%+v", k)
		}
		kinds[k.name] = k
	}
	help := regexp.MustCompile(`(?m)^# (HELP|TYPE) (mnemogate_\w+) (.*)$`)
	for _, m := range help.FindAllStringSubmatch(s.fromAdmin("/metrics"), -1) {
		k, ok := kinds[m[2]]
		if !ok || m[1] == "HELP" && m[3] != k.help || m[1] == "TYPE" && m[3] != k.kind {
			t.Errorf("%s is not as the table has it: %+v", m[0], k)
		}
	}
	label := regexp.MustCompile(`(\w+)="`)
	for name := range s.scrape() {
		family, labels, _ := strings.Cut(name, "{")
		for _, suffix := range []string{"_bucket", "_sum", "_count"} {
			family = strings.TrimSuffix(family, suffix)
		}
		for _, l := range label.FindAllStringSubmatch(labels, -1) {
			if l[1] != "le" && !slices.Contains(kinds[family].labels, l[1]) {
				t.Errorf("%s: the table has no label %s", name, l[1])
			}
		}
	}
}

// The dashboard and the alerts ask only for metrics and labels that exist.
func TestDashboardAndAlertsUseOurMetrics(t *testing.T) {
	known := map[string][]string{}
	for _, k := range metricKinds {
		known[k.name] = append([]string{"instance"}, k.labels...)
		if k.kind == "histogram" {
			known[k.name+"_bucket"], known[k.name+"_count"], known[k.name+"_sum"] = append(known[k.name], "le"), known[k.name], known[k.name]
			delete(known, k.name)
		}
	}
	metric := regexp.MustCompile(`(mnemogate_\w+)(?:\{([^}]*)\})?`)
	label := regexp.MustCompile(`(\w+)(?:=|!=|=~|!~)"([^"]*)"`)
	locks := func(value string) bool {
		return slices.ContainsFunc(flows.EventKinds, func(k flows.EventKind) bool { return k.Name == lockEvents+value })
	}
	for _, file := range []string{"grafana.json", "alerts.yaml"} {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(file, ".json") && !json.Valid(content) {
			t.Errorf("%s is no JSON", file)
		}
		text := strings.ReplaceAll(string(content), `\"`, `"`)
		found := metric.FindAllStringSubmatch(text, -1)
		if len(found) < 10 {
			t.Errorf("%s: only %d metrics were found", file, len(found))
		}
		for _, m := range found {
			labels, ok := known[m[1]]
			if !ok {
				t.Errorf("%s: there is no metric %s", file, m[1])
			}
			for _, l := range label.FindAllStringSubmatch(m[2], -1) {
				if !slices.Contains(labels, l[1]) {
					t.Errorf("%s: %s has no label %s", file, m[1], l[1])
				}
				for value := range strings.SplitSeq(l[2], "|") {
					if l[1] == "lock" && !locks(value) {
						t.Errorf("%s: there is no lock %s", file, value)
					}
				}
			}
		}
	}
}

func TestCountingAPassCostsNoMemory(t *testing.T) {
	if n := testing.AllocsPerRun(1000, func() { countProtected(nil) }); n != 0 {
		t.Errorf("a pass costs %v allocations", n)
	}
	refused := &flows.Refusal{Err: flows.ErrTokenInvalid}
	if n := testing.AllocsPerRun(1000, func() { countProtected(refused) }); n > 1 {
		t.Errorf("a refusal costs %v allocations", n)
	}
}

func BenchmarkCountPass(b *testing.B) {
	b.ReportAllocs()
	b.RunParallel(func(p *testing.PB) {
		for p.Next() {
			countProtected(nil)
		}
	})
}

func BenchmarkCountRefusal(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		countProtected(flows.ErrTokenInvalid)
	}
}

// Only a store that did not answer counts as an error.
func TestStoreAnswersAreNoErrors(t *testing.T) {
	for err, want := range map[error]bool{
		flows.ErrNotFound: false,
		fmt.Errorf("loading: %w", flows.ErrConflict): false,
		&flows.Full{}:                                  false,
		&flows.TakenError{Field: "login_name"}:         false,
		context.Canceled:                               false,
		context.DeadlineExceeded:                       true,
		errors.New("connection refused"):               true,
		fmt.Errorf("dialing: %w", io.ErrUnexpectedEOF): true,
	} {
		if got := unanswered(err); got != want {
			t.Errorf("%v: got %v, want %v", err, got, want)
		}
	}
	if unanswered(nil) {
		t.Error("a success counts as an error")
	}
	db := store.OpenSQLite(t.TempDir() + "/a.db")
	if err := db.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	failures := storeSeconds.WithLabelValues("accounts", "tally", "error").(prometheus.Histogram)
	count := func() uint64 {
		m := new(dto.Metric)
		if err := failures.Write(m); err != nil {
			t.Fatal(err)
		}
		return m.GetHistogram().GetSampleCount()
	}
	before := count()
	refuse := func(*flows.Tally) error { return errors.New("not so") }
	if timed := (timedAccounts{db.Accounts()}); timed.Tally(t.Context(), time.Now(), flows.Subject{Company: "acme", Account: 1}, flows.WrongCodes, refuse) == nil {
		t.Error("the function's error is lost")
	}
	if count() != before {
		t.Error("the error of a function that the store was handed counts as its own")
	}
}

// After a change: go test ./caddymodule -run README -update
func TestREADMEShowsTheMetrics(t *testing.T) {
	const file, begin, end = "../README.md", "<!-- metrics -->\n", "<!-- end of metrics -->"
	var table strings.Builder
	table.WriteString("| Metric | Type | Labels | |\n| --- | --- | --- | --- |\n")
	for _, k := range metricKinds {
		fmt.Fprintf(&table, "| `%s` | %s | %s | %s |\n", k.name, k.kind, strings.Join(k.labels, ", "), k.help)
	}
	readme, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, ok1 := strings.Cut(string(readme), begin)
	got, tail, ok2 := strings.Cut(rest, end)
	switch {
	case !ok1 || !ok2:
		t.Error("README.md has no place for the metrics")
	case *update:
		if err := os.WriteFile(file, []byte(head+begin+table.String()+end+tail), 0o644); err != nil {
			t.Fatal(err)
		}
	case got != table.String():
		t.Error("README.md: the metrics are not those of the table; run go test ./caddymodule -run README -update")
	}
}
