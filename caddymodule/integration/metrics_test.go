package integration

import (
	"bufio"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/mnemogate/mnemogate/caddymodule/app"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/wire"
	"github.com/mnemogate/mnemogate/store/storetest"
)

// scrape returns mnemogate's metrics from the admin endpoint, without those of the
// Go runtime.
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

// fromAdmin sends a GET to Caddy's admin endpoint and returns the body.
func (s *site) fromAdmin(path string) string {
	s.t.Helper()
	a := s.askAdmin(func() *http.Request {
		return get(http.NewRequestWithContext(s.t.Context(), http.MethodGet, "http://127.0.0.1"+path, nil))(s.t)
	})
	return string(a.wantStatus(http.StatusOK).Body)
}

func TestMetricsCountAndGoOnOverReloads(t *testing.T) {
	t.Parallel()
	c := siteConfig{company: people, global: "limits {\nlock_after 2\n}"}
	s := startSite(t, c)
	if s.scrape()[`mnemogate_locks_total{company="acme",reason="limit.sms_company"}`] != 0 {
		t.Error("a lock that was never reached is not 0")
	}
	token := s.login("alice@example.com")
	for range 3 {
		s.get("/", token)
	}
	s.get("/", "")
	s.get("/", "mgs_nonsense").want(wire.ErrTokenInvalid)
	pending := s.post("auth/login", "", fields{"login_id": "+37060000002"}).wantState(record.CheckOTP).token()
	s.post("auth/checkotp", pending, fields{"otp": s.sms.last("otp.login", "code")}).wantState(record.Authorized)
	s.sms.answer(500)
	s.post("auth/login", "", fields{"login_id": "+37060000002"}).want(wire.ErrUnavailable)
	s.sms.answer(0)
	for range 2 {
		s.post("auth/checkcredentials", "", fields{"login_id": "frank", "password": "wrong"})
	}
	s.postTo("nobody", testKey, "auth/login", "", fields{"login_id": "frank"}).want(wire.ErrAPIKeyInvalid)
	s.post("auth/nothing", "", nil).want(wire.ErrNoRoute)
	s.post("auth/logout", s.login("alice@example.com"), nil).wantState(record.None)

	want := map[string]float64{
		`mnemogate_requests_total{company="acme",result="success",route="checkcredentials"}`:                                           2,
		`mnemogate_requests_total{company="acme",result="auth.credentials.invalid",route="checkcredentials"}`:                          2,
		`mnemogate_requests_total{company="acme",result="success",route="login"}`:                                                      1,
		`mnemogate_requests_total{company="acme",result="service.unavailable",route="login"}`:                                          1,
		`mnemogate_requests_total{company="unknown",result="auth.apikey.invalid",route="login"}`:                                       1,
		`mnemogate_requests_total{company="acme",result="request.validation.failed",route="none"}`:                                     1,
		`mnemogate_protected_requests_total{reason="",result="pass"}`:                                                                  3,
		`mnemogate_protected_requests_total{reason="",result="auth.header.missing"}`:                                                   1,
		`mnemogate_protected_requests_total{reason="",result="auth.token.invalid"}`:                                                    1,
		`mnemogate_locks_total{company="acme",reason="lock.password"}`:                                                                 1,
		`mnemogate_locks_total{company="acme",reason="limit.sms_company"}`:                                                             0,
		`mnemogate_sessions_begun_total{company="acme",state="authorized"}`:                                                            3,
		`mnemogate_sessions_begun_total{company="acme",state="checkotp"}`:                                                              1,
		`mnemogate_sessions_ended_total{company="acme",reason="logout"}`:                                                               1,
		`mnemogate_account_changes_total{change="created",company="acme"}`:                                                             6,
		`mnemogate_messages_total{channel="sms",company="acme",country="+370",gateway="127.0.0.1",result="accepted",type="otp.login"}`: 1,
		`mnemogate_messages_total{channel="sms",company="acme",country="+370",gateway="127.0.0.1",result="failed",type="otp.login"}`:   1,
		`mnemogate_codes_used_total{company="acme",country="+370"}`:                                                                    1,
		`mnemogate_messages_dropped_total{company="acme"}`:                                                                             0,
		`mnemogate_memory_hits_total`:                                 2,
		`mnemogate_memory_misses_total`:                               1,
		`mnemogate_memory_sessions`:                                   1,
		`mnemogate_memory_trusted`:                                    1,
		`mnemogate_build_info{version="` + changelogVersion(t) + `"}`: 1,
		`mnemogate_up`:                                                1,
		`mnemogate_hash_queue`:                                        0,
		`mnemogate_background_messages`:                               0,
		`mnemogate_defects_total`:                                     0,
		`mnemogate_events_dropped_total`:                              0,
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
			`mnemogate_request_seconds_count{route="none"}`,
			`mnemogate_request_seconds_bucket{route="login",le="10"}`,
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
	must(t, s.reload(c))
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
	if n := s.scrape()[`mnemogate_protected_requests_total{reason="",result="pass"}`]; n != 4 {
		t.Errorf("passes after the reloads: %v", n)
	}
	s.wantTable(t)
}

// The answers of captcha and OAuth providers are counted, and their failures, too.
// If the admin endpoint can't be reached, a site can serve the metrics.
func TestMetricsOfProvidersOnASite(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	s := startSite(t, siteConfig{
		company: "captcha siteverify " + g.URL + "/captcha secret\n" + g.provider(2, "") + account("alice", "question Cat? Whiskers\nidentity 2 alice"),
		site:    "handle /metrics {\nmetrics\n}\nhandle {\nmnemogate\nreverse_proxy BACKEND\n}",
	})
	recover := func(response string) answer {
		return s.post("auth/recovery/recover", "", fields{"login_id": "alice", "method": "QUESTION", "captcha_response": response})
	}
	oauth := func(code string) answer {
		return s.post("auth/oauth", "", fields{"provider_id": 2, "code": code, "redirect_uri": callback})
	}
	for _, never := range []string{`captchas_total{company="acme",result="failed"}`, `provider_logins_total{company="acme",provider="2",result="failed"}`} {
		if metrics := string(s.get("/metrics", "").Body); !strings.Contains(metrics, "mnemogate_"+never+" 0\n") {
			t.Errorf("no %s that is 0 in\n%s", never, metrics)
		}
	}
	recover("good").wantState(record.RecoveryQuestion)
	recover("bad").want(wire.ErrCaptchaInvalid)
	oauth(codeOf("alice")).wantState(record.Authorized)
	oauth("made-up").want(wire.ErrOAuthFailed)
	g.behave(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) })
	recover("any").want(wire.ErrUnavailable)
	g.behave(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) })
	oauth(codeOf("alice")).want(wire.ErrOAuthFailed)
	s.tells("a provider can't confirm logins")
	told := func(reason string) bool { // in the line that has the client's ref, too
		return slices.ContainsFunc(strings.Split(s.log(), "\n"), func(line string) bool {
			return strings.Contains(line, `"msg":"mnemogate.oauth.failure"`) && strings.Contains(line, `"ref":"`) && strings.Contains(line, reason)
		})
	}
	storetest.Eventually(t, 10*time.Second, "reasons in the audit log", func() bool { return told("invalid_grant") && told("answered 401") })
	metrics := string(s.get("/metrics", "").Body)
	for metric, results := range map[string][]string{
		`captchas_total{company="acme"`: {"right", "wrong", "failed"}, `provider_logins_total{company="acme",provider="2"`: {"accepted", "refused", "failed"},
	} {
		for _, result := range results {
			if want := "mnemogate_" + metric + `,result="` + result + `"} 1`; !strings.Contains(metrics, want+"\n") {
				t.Errorf("no %s in\n%s", want, metrics)
			}
		}
	}
}

// wantTable checks that the scraped metrics are those in the table, and that all labels
// are bounded.
func (s *site) wantTable(t *testing.T) {
	t.Helper()
	kinds := map[string]app.MetricKind{}
	for _, k := range app.MetricKinds {
		if kinds[k.Name].Name != "" || !strings.HasPrefix(k.Name, "mnemogate_") || strings.HasSuffix(k.Name, "_total") != (k.Kind == "counter") {
			t.Errorf("%+v", k)
		}
		kinds[k.Name] = k
	}
	help := regexp.MustCompile(`(?m)^# (HELP|TYPE) (mnemogate_\w+) (.*)$`)
	for _, m := range help.FindAllStringSubmatch(s.fromAdmin("/metrics"), -1) {
		k, ok := kinds[m[2]]
		if !ok || m[1] == "HELP" && m[3] != k.Help || m[1] == "TYPE" && m[3] != k.Kind {
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
			if l[1] != "le" && !slices.Contains(kinds[family].Labels, l[1]) {
				t.Errorf("%s: the table has no label %s", name, l[1])
			}
		}
	}
}

// Each alert fires for the condition that it is meant for, and no alert fires on a
// busy day.
func TestAlertsAreRaised(t *testing.T) {
	t.Parallel()
	need(t, "promtool")
	output(t, exec.Command("promtool", "test", "rules", "../app/alerts_test.yaml", "../app/alerts_weeks_test.yaml"))
	raised := get(os.ReadFile("../app/alerts_test.yaml"))(t)
	rules := get(os.ReadFile("../app/alerts.yaml"))(t)
	for _, alert := range regexp.MustCompile(`alert: (\w+)`).FindAllStringSubmatch(string(rules), -1) {
		if !strings.Contains(string(raised), `alertname="`+alert[1]+`"`) {
			t.Errorf("alerts_test.yaml does not raise %s", alert[1])
		}
	}
}

// The alerts on outcomes stay quiet from one Monday to the next, with busy and quiet hours,
// mornings on which users have forgotten their passwords, and now and then a failure. Then
// they see an attack.
func TestAlertsKnowWhatIsUsual(t *testing.T) {
	t.Parallel()
	need(t, "promtool")
	const (
		step    = 150 * time.Second
		quiet   = 8 * 24 * time.Hour
		attack  = quiet + 10*time.Minute
		restart = 3*24*time.Hour + 10*time.Hour // the counters begin at 0
	)
	random := rand.New(rand.NewPCG(1, 2))
	around := func(mean float64) float64 { // the number of independent requests
		return max(0, math.Round(mean+math.Sqrt(mean)*random.NormFloat64()))
	}
	series := map[string][]float64{}
	for at := time.Duration(0); at <= attack; at += step {
		hour := math.Mod(at.Hours(), 24)
		monday, weekend := int(at.Hours()/24)%7 == 0, int(at.Hours()/24)%7 >= 5
		add := func(name, labels string, n float64) {
			name += `{instance="one", ` + labels + `}`
			sum := 0.0
			if all := series[name]; len(all) > 0 && at != restart {
				sum = all[len(all)-1]
			}
			series[name] = append(series[name], sum+n)
		}
		count := func(company, result string, n float64) {
			add("mnemogate_requests_total", `company="`+company+`", route="checkcredentials", result="`+result+`"`, n)
		}
		// a shop with 1,000 logins in five minutes at noon, and 30 at midnight
		logins := 15 + 500*math.Pow(math.Sin(hour/24*math.Pi), 2)
		if weekend {
			logins /= 3
		}
		wrong := 0.1 * logins
		if monday && hour >= 7 && hour < 9 {
			wrong *= 2
		}
		if at > quiet {
			wrong += 700
		}
		count("shop", "success", around(logins))
		count("shop", "auth.credentials.invalid", around(wrong))
		count("shop", "auth.restricted", around(0.01*logins))
		count("shop", "auth.apikey.invalid", around(0.005*logins))
		// an office that begins at eight, and closes
		awake := 0.0
		if !weekend && hour >= 8 && hour < 17 {
			awake = 1
		}
		count("office", "success", around(5*awake))
		count("office", "auth.credentials.invalid", around(2*awake))
		// a club, one of whose members tries fifteen passwords in the evening
		tries := 0.0
		if hour == 20 {
			tries = 15
		}
		count("club", "success", around(0.2))
		count("club", "auth.credentials.invalid", tries)
		// the application, whose store fails over at night
		failed := 0.0
		if hour == 3 {
			failed = 5
		}
		add("mnemogate_protected_requests_total", `result="pass"`, around(100*logins))
		add("mnemogate_protected_requests_total", `result="service.unavailable"`, failed)
		// a gateway that is slow for every tenth request
		fast := around(logins)
		add("mnemogate_request_seconds_count", `route="login"`, fast+around(0.1*logins))
		add("mnemogate_request_seconds_bucket", `route="login", le="2.5"`, fast)
	}
	dir := t.TempDir()
	_, group, _ := strings.Cut(string(get(os.ReadFile("../app/alerts.yaml"))(t)), "\n  - name: mnemogate-outcomes\n") // the others would take most of the time
	writeFile(t, dir+"/rules.yaml", "groups:\n  - name: mnemogate-outcomes\n"+group)
	var file strings.Builder
	fmt.Fprintf(&file, "rule_files: [rules.yaml]\nevaluation_interval: 10m\ntests:\n- interval: %s\n  input_series:\n", step)
	for name, values := range series {
		fmt.Fprintf(&file, "  - {series: '%s', values: '%s'}\n", name, strings.Trim(fmt.Sprintf("%.0f", values), "[]"))
	}
	fmt.Fprintf(&file, `  promql_expr_test:
  - {expr: 'count by (alertname) (count_over_time(ALERTS[8d]))', eval_time: %s, exp_samples: []}
  - {expr: ALERTS, eval_time: %s, exp_samples: [{labels: 'ALERTS{alertname="MnemogateWrongPasswords", alertstate="firing", company="shop", outcome="password", severity="warning"}', value: 1}]}
`, quiet, attack)
	writeFile(t, dir+"/weeks.yaml", file.String())
	output(t, exec.Command("promtool", "test", "rules", dir+"/weeks.yaml"))
}

// Each alert is a complete rule that links to a section of a page, and there is an alert for
// each failure that is counted.
func TestAlertsCoverWhatFails(t *testing.T) {
	raw := get(os.ReadFile("../app/alerts.yaml"))(t)
	var file struct {
		Groups []struct {
			Rules []struct {
				Record, Alert, Expr string
				Labels, Annotations map[string]string
			}
		}
	}
	must(t, yaml.Unmarshal(raw, &file))
	module := regexp.MustCompile(`(?m)^module (\S+)$`).FindSubmatch(get(os.ReadFile("../../go.mod"))(t))[1]
	pages := pages(t)
	var asked strings.Builder
	for _, group := range file.Groups {
		for _, rule := range group.Rules {
			asked.WriteString(rule.Expr + "\n")
			if rule.Record != "" {
				continue
			}
			if rule.Alert == "" || rule.Labels["severity"] == "" || rule.Annotations["summary"] == "" || rule.Annotations["description"] == "" {
				t.Errorf("a rule misses something: %+v", rule)
			}
			file, ours := strings.CutPrefix(rule.Annotations["runbook_url"], "https://"+string(module)+"/blob/main/")
			file, anchor, _ := strings.Cut(file, "#")
			if !ours || !slices.Contains(anchors(pages[file]), anchor) {
				t.Errorf("%s: no page of ours has the section %q", rule.Alert, rule.Annotations["runbook_url"])
			}
		}
	}
	for _, failure := range []string{
		`up{job="mnemogate"} == 0`, `absent(mnemogate_up)`, `mnemogate_up == 0`,
		`mnemogate_store_seconds_count{result="error"}`, `mnemogate_messages_total{result="failed"}`,
		`mnemogate_captchas_total{result="failed"}`, `mnemogate_breached_lookups_total{outcome="failed"}`, `mnemogate_provider_logins_total{result="failed"}`,
		`mnemogate_migrate_passwords_total{result="failed"}`,
		`mnemogate_hash_wait_seconds_count{result="busy"}`, `mnemogate_memory_trusted == 0`,
	} {
		if !strings.Contains(asked.String(), failure) {
			t.Errorf("no alert asks for %s", failure)
		}
	}
}

// wantAlerts checks which alerts on what users see fire a minute after Prometheus has
// scraped before. In this minute, the metrics become after.
func wantAlerts(t *testing.T, before, after map[string]float64, alerts ...string) {
	t.Helper()
	file := "rule_files: [" + get(filepath.Abs("../app/alerts.yaml"))(t) + "]\nevaluation_interval: 15s\ntests:\n- interval: 15s\n  input_series:\n"
	for name, n := range after {
		former, there := before[name]
		values := fmt.Sprintf("%fx120", former)
		if !there {
			values = "_x121"
		}
		if step := (n - former) / 4; step > 0 {
			values += fmt.Sprintf(" %f+%fx3", former+step, step)
		}
		file += fmt.Sprintf("  - {series: '%s', values: '%s'}\n", name, values)
	}
	expr := `{expr: 'count by (alertname) (ALERTS{alertstate="firing", alertname=~"MnemogateWrong.*|MnemogateLoginsRefused|MnemogateUsersLimited|MnemogateUnavailable|MnemogatePasswordsBreached"})'`
	file += "  promql_expr_test:\n  - " + expr + ", eval_time: 30m, exp_samples: []}\n  - " + expr + ", eval_time: 31m, exp_samples: ["
	for _, alert := range alerts {
		file += `{labels: '{alertname="` + alert + `"}', value: 1},`
	}
	name := filepath.Join(t.TempDir(), "rules.yaml")
	writeFile(t, name, file+"]}\n")
	output(t, exec.Command("promtool", "test", "rules", name))
}

// What makes users fail raises an alert, and the commands of the runbook find the cause.
func TestWhatMakesUsersFailRaisesAnAlert(t *testing.T) {
	t.Parallel()
	need(t, "promtool", "jq")
	const users = 20
	ranges, _ := rangesOf(t, testPassword)
	company := "captcha off\n" + account("alice", "")
	for i := range users {
		company += account(fmt.Sprint("user", i), "") + fmt.Sprintf("account phone%d {\nphone +370600001%02d\n}\n", i, i)
	}
	s := startSite(t, siteConfig{audit: true, company: company, servers: "trusted_proxies static 127.0.0.1/32",
		global: "password {\nargon2id 64 1 1 insecure\nbreached " + ranges.URL + "/range at_login\n}\n"})
	s.admin("PATCH", "accounts/alice", fields{"password": "another fine secret"}).wantStatus(200)
	address := 0
	request := func(key, token, agent, route string, body fields) answer {
		r := s.postRequest("acme", key, route, token, body)
		address++
		r.Header.Set("X-Forwarded-For", fmt.Sprintf("198.51.%d.%d", address/250, address%250))
		r.Header.Set("User-Agent", agent)
		return s.do(r)
	}
	post := func(key, agent, route string, body fields) answer { return request(key, "", agent, route, body) }
	last := s.scrape()
	raises := func(alerts ...string) {
		t.Helper()
		now := s.scrape()
		wantAlerts(t, last, now, alerts...)
		last = now
	}
	for i := range 59 {
		post(testKey, "curl/8.5.0", "auth/checkcredentials", fields{"login_id": fmt.Sprint("stranger", i), "password": "stolen"})
	}
	// A login id alone proves nothing.
	begun := post(testKey, "curl/8.5.0", "auth/login", fields{"login_id": "user0"}).wantState(record.CheckPassword)
	request(testKey, begun.token(), "curl/8.5.0", "auth/checkpassword", fields{"password": "stolen"}).want(wire.ErrPasswordInvalid)
	post(testKey, "curl/8.5.0", "auth/checkcredentials", fields{"login_id": "alice", "password": "another fine secret"}).wantState(record.Authorized)
	raises("MnemogateWrongPasswords")
	for i := range users {
		post("a-key-of-another-shop", "shop/3.0", "auth/login", fields{"login_id": fmt.Sprint("user", i)}).want(wire.ErrAPIKeyInvalid)
	}
	raises("MnemogateWrongKeys")
	s.sms.answer(500)
	for i := range users {
		post(testKey, "shop/2.9", "auth/login", fields{"login_id": fmt.Sprintf("+370600001%02d", i)}).want(wire.ErrUnavailable)
	}
	raises("MnemogateUnavailable")
	for i := range users {
		post(testKey, "shop/2.9", "auth/checkcredentials", fields{"login_id": fmt.Sprint("user", i), "password": testPassword}).wantState(record.SetPassword)
	}
	raises("MnemogatePasswordsBreached")
	for _, heading := range []string{manyWrongPasswords, waveOfBreached} {
		s.runConsoles(section(t, "docs/runbook.md", heading), regexp.MustCompile(`^$`))
	}
}

// Sections of the runbook whose commands need their situation.
const (
	manyWrongPasswords = "Many wrong passwords"
	waveOfBreached     = "A wave of breached passwords"
	refusedTogether    = "Users are refused together"
)

func TestCountingAPassCostsNoMemory(t *testing.T) {
	if n := testing.AllocsPerRun(1000, func() { app.CountProtected(t.Context(), nil, false) }); n != 0 {
		t.Errorf("a pass costs %v allocations", n)
	}
	refused := &wire.Refusal{Err: wire.ErrTokenInvalid}
	if n := testing.AllocsPerRun(1000, func() { app.CountProtected(t.Context(), refused, true) }); n > 1 {
		t.Errorf("a refusal costs %v allocations", n)
	}
}

// After a change, run: go test ./caddymodule/integration -run Pages -update
func TestPagesShowTheMetrics(t *testing.T) {
	var table strings.Builder
	table.WriteString("| Metric | |\n| --- | --- |\n")
	for _, k := range app.MetricKinds {
		labels := ""
		if len(k.Labels) > 0 {
			labels = "{" + strings.Join(k.Labels, ",") + "}"
		}
		fmt.Fprintf(&table, "| `%s%s` | %s |\n", k.Name, labels, k.Help)
	}
	storetest.Generated(t, "../../docs/monitoring.md", "metrics", table.String())
}
