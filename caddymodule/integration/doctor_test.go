package integration

import (
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"

	"github.com/mnemogate/mnemogate/caddymodule/guest"
	"github.com/mnemogate/mnemogate/caddymodule/guest/guesttest"
	"github.com/mnemogate/mnemogate/flows/message"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/wire"
	"github.com/mnemogate/mnemogate/store/storetest"
)

// failed returns the rows of failed checks, each with the advice below it.
func failed(out string) (rows []string) {
	lines := strings.Split(out, "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, "failed") {
			rows = append(rows, strings.Join(strings.Fields(line+lines[i+1]), " "))
		}
	}
	return rows
}

// doctorUntil runs the doctor until it says what is wanted, or 20 s have passed. On a busy
// machine a store may answer too late at first.
func (s *site) doctorUntil(is func(outcome) bool) outcome {
	s.t.Helper()
	for w := storetest.StartWatch(); ; {
		if o := s.cli("", "doctor"); is(o) || w.Took() > 20*time.Second {
			return o
		}
	}
}

// doctor checks that the doctor ends so, and says these parts.
func (s *site) doctor(exit int, parts ...string) outcome {
	s.t.Helper()
	return s.doctorUntil(func(o outcome) bool { return o.is(exit, parts...) }).want(exit, parts...)
}

// doctorBlames checks that one check of the doctor fails, with this beginning and part.
func (s *site) doctorBlames(check, part string) {
	s.t.Helper()
	is := func(o outcome) bool {
		rows := failed(o.out)
		return o.exit == 1 && len(rows) == 1 && strings.HasPrefix(rows[0], "failed "+check) && strings.Contains(rows[0], part)
	}
	if o := s.doctorUntil(is); !is(o) {
		s.t.Fatalf("doctor does not blame the %s alone, with %q:\n%s%s", check, part, o.out, o.errs)
	}
}

func TestDoctorTellsOneCauseOnce(t *testing.T) {
	t.Parallel()
	servers := sharedServers(t)
	between := servers.newWay()
	s := servers.start(siteConfig{company: "captcha off\n" + account("alice", ""), more: "company umbrella {\napi_key off\ncaptcha off\n}"}, servers.through(between)).nodes[0]
	s.doctor(0)
	servers.postgres.Exec(t, "ALTER TABLE "+servers.schema+".backup_codes RENAME TO away")
	s.doctor(0, "warning  second_factor ", " could not be counted: ")
	servers.postgres.Exec(t, "ALTER TABLE "+servers.schema+".away RENAME TO backup_codes")
	between.postgres.Refuse()
	s.doctorBlames("accounts store", "it closed the connection")
	between.postgres.Heal()
	storetest.Eventually(t, 10*time.Second, "PostgreSQL again", func() bool { return len(failed(s.cli("", "doctor").out)) == 0 })
	between.redis.Refuse()
	s.doctorBlames("sessions store", "it closed the connection")
}

// A Redis whose keys are in several shards looks like a single one, but nobody could log in.
func TestDoctorSeesThatRedisHasShards(t *testing.T) {
	t.Parallel()
	port := storetest.FreePorts(t, 1)[0]
	one := storetest.NewRedis(t, port)
	must(t, one.Start())
	s := startSite(t, siteConfig{company: "captcha off", stores: "store sqlite " + t.TempDir() + "/a.db\nsessions redis redis://" + one.Addr()})
	s.doctor(0)
	one.Kill()
	shards := storetest.NewRedis(t, port, "--cluster-enabled", "yes")
	must(t, shards.Start())
	shards.Ask(t, "cluster", "addslotsrange", 0, 16383)
	storetest.Eventually(t, 20*time.Second, "failure of the sessions store", func() bool {
		return strings.Contains(strings.Join(failed(s.cli("", "doctor").want(1).out), "\n"), "CROSSSLOT Keys in request don't hash to the same slot → it has several shards")
	})
}

// What makes users fail is in the doctor while it does, and for some minutes afterwards: with
// the cause, and the next step.
func TestDoctorSeesWhatUsersSee(t *testing.T) {
	t.Parallel()
	servers := sharedServers(t)
	between := servers.newWay()
	servers.redis.Ask(t, "acl", "setuser", "mg", "on", ">pw", "~{mg:*", "&mnemogate:*", "+@all", "-@admin", "-@dangerous", "+info")
	s := servers.start(siteConfig{company: "captcha off\n" + account("alice", "")}, fmt.Sprintf("store postgres %q\nsessions redis redis://mg:pw@%s",
		servers.postgres.DSNThrough(between.postgres, servers.schema), between.redis.Addr())).nodes[0]
	place := fmt.Sprintf("accounts in database postgres at %s, which this start has created; sessions in database 0 of Redis at %s, with keys {mg:", between.postgres.Addr(), between.redis.Addr())
	s.tells("the stores answer: " + place)
	out := s.doctor(0, "ok       stores", place, ":*; accounts: 1",
		"its fsync is off", "its full_page_writes is off", "its synchronous_commit is off", "set fsync = on",
		"anybody who reaches Redis at "+between.redis.Addr()+" can read and change sessions").out
	if strings.Contains(out, " requests ") || strings.Contains(s.log()+out, "pw@") || strings.Contains(s.log()+out, "hunter2") {
		t.Errorf("it tells too much:\n%s", out)
	}
	s.tells(`"advice":"set fsync = on"`)
	for range 12 {
		s.postTo("acme", "of-another-app", "auth/checkcredentials", "", fields{"login_id": "alice", "password": "x"}).want(wire.ErrAPIKeyInvalid)
	}
	between.postgres.Refuse()
	for range 4 {
		s.credentials("alice", testPassword).want(wire.ErrUnavailable)
	}
	between.postgres.Heal()
	servers.redis.Ask(t, "acl", "setuser", "mg", "resetchannels") // which also ends its subscriptions
	storetest.Eventually(t, 20*time.Second, "failures in the doctor", func() bool {
		out = strings.Join(strings.Fields(s.cli("", "doctor").out), " ")
		return strings.Contains(out, "NOPERM")
	})
	for _, want := range []string{
		"4 of 16 requests got service.unavailable → see what else failed here",
		"12 of 16 requests had a wrong API key → find the app that has an old key",
		"failed revocations this node receives none, so it asks the store for each request: subscribing: NOPERM ",
		" → give this user the rights that docs/examples/two-nodes/redis.conf gives it",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("doctor does not say %q:\n%s", want, out)
		}
	}
}

// An empty store in the place of one that had accounts is noticed, and so is a file that
// was deleted.
func TestAnEmptyStoreIsNoticed(t *testing.T) {
	t.Parallel()
	s := startSite(t, siteConfig{company: "captcha off\n" + account("alice", "")})
	s.tells("; accounts: 1")
	s.doctor(0, ", which this start has created; accounts: 1")
	other := s.dir + "/other.db"
	must(t, s.reload(siteConfig{company: "captcha off", stores: "store sqlite " + other}))
	const warning = "/other.db has no accounts, and this Caddy has used a store that had some: "
	s.tells(warning)
	s.doctor(0, "ok       stores", "accounts in "+other+", which this start has created; accounts: 0", warning, "→ check the file or database")
	must(t, os.Remove(other))
	s.doctor(1, "failed   accounts store", "other.db was moved, removed or replaced while it was open", "→ put it back")
}

// Caddy's storage is not the accounts store: if it takes no writes, all that is found in the
// accounts is still told.
func TestAStorageOfCaddyThatTakesNoWrites(t *testing.T) {
	t.Parallel()
	c := siteConfig{company: "captcha off\n" + account("alice", ""), servers: "}\nstorage file_system {\nroot /dev/null/caddy"}
	c.more = "company umbrella {\napi_key " + testKey + "\ncaptcha off\n" + account("bob", "") + "\n}"
	s := startSite(t, c)
	s.doctor(0, "; accounts: 2")
	c.more = ""
	must(t, s.reload(c))
	s.tells("; accounts: 2")
	s.tells("it has accounts and is not configured")
}

// Of an OpenID provider, the doctor fetches what a login needs: a server that only accepts
// connections lets nobody in.
func TestDoctorFetchesWhatALoginNeeds(t *testing.T) {
	t.Parallel()
	p := startOpenID(t)
	second := strings.Replace(p.provider(2, ""), p.Issuer, p.Issuer+"/tenant", 1)
	s := startSite(t, siteConfig{
		company: people + p.provider(1, "") + second,
		more:    "company umbrella {\napi_key " + testKey + "\ncaptcha off" + p.provider(1, "") + "\n}",
		env:     []string{"MNEMOGATE_PEER_SECRET=" + peerSecret},
	})
	said, runs := []string{p.Issuer + " (of acme and 1 more) can be used", p.Issuer + "/tenant can't be used: instead of its discovery document it answered 404"}, 0
	s.doctorUntil(func(o outcome) bool {
		runs++
		return o.is(1, said...)
	}).want(1, said...)
	for _, what := range []string{"GET /.well-known/openid-configuration", "GET /jwks"} {
		if n := p.calls(t, what); n == 0 || n > runs {
			t.Errorf("%s: the provider was asked %d times by %d runs", what, n, runs)
		}
	}
}

// A server may accept connections, and fail at the TLS handshake of the first message. The
// doctor asks it for nothing else.
func TestDoctorShakesHands(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	far := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	far.Config.ErrorLog = log.New(io.Discard, "", 0)
	far.StartTLS()
	t.Cleanup(far.Close)
	plain := strings.Replace(guesttest.Serve(t, far.Config.Handler).URL, "http:", "https:", 1)
	silent := get(net.Listen("tcp", "127.0.0.1:0"))(t) // whose queue takes connections
	t.Cleanup(func() { silent.Close() })
	const secret = " {\nsecret whsec_aGlkZGVu\n}\n"
	s := startSite(t, siteConfig{company: "captcha siteverify " + far.URL + "/x secret\nsms webhook " + plain + secret + "mail webhook https://" + silent.Addr().String() + secret +
		"oauth 2 oauth2 {\ntoken_url " + far.URL + "/t\nuserinfo_url " + far.URL + "/u\nclient_id x\nclient_secret x\nsubject id\nredirect_uri " + callback + "\n}\n"})
	checks := map[string]string{
		"captcha " + far.Listener.Addr().String():      "→ this machine does not trust the authority of its certificate",
		"oauth 2 " + far.Listener.Addr().String():      "→ this machine does not trust the authority of its certificate",
		"sms " + strings.TrimPrefix(plain, "https://"): "its answer is not TLS → it answers without TLS: check the port",
		"mail " + silent.Addr().String():               "no answer in time → check that the address is right",
	}
	unsaid := func(o outcome) (missing []string) {
		for check, want := range checks {
			if !slices.ContainsFunc(failed(o.out), func(row string) bool {
				return strings.HasPrefix(row, "failed acme: "+check+" can't be reached: ") && strings.Contains(row, want)
			}) {
				missing = append(missing, check)
			}
		}
		return missing
	}
	if o := s.doctorUntil(func(o outcome) bool { return len(unsaid(o)) == 0 }).want(1); len(unsaid(o)) > 0 {
		t.Errorf("of %q it does not say what is wrong:\n%s", unsaid(o), o.out)
	}
	if n := asked.Load(); n != 0 {
		t.Errorf("the doctor sent %d requests", n)
	}
}

// What only users suffer from, and no server reports: sessions that another store has, captchas
// of another host, and a budget that is used up.
func TestDoctorSeesWhatNoServerReports(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	g.behave(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"success":true,"hostname":"www.example.com"}`)
	})
	s := startSite(t, siteConfig{company: "captcha siteverify " + g.URL + "/captcha secret {\nhostname example.com\n}\nlimits {\nsms_per_company 1/1h\ncaptcha_after 100\n}\n" +
		account("alice", "") + account("bob", "phone +37060000001\nsecond_factor") + account("carol", "phone +37060000002\nsecond_factor")})
	token := s.credentials("alice", testPassword).token()
	for range 30 {
		s.get("/", token).wantStatus(http.StatusOK)
	}
	for i := range 29 {
		s.get("/", fmt.Sprint("mgs_of_another_store", i)).want(wire.ErrTokenInvalid)
	}
	s.credentials("bob", testPassword).wantState(record.CheckOTP)
	if out := s.doctor(0).out; strings.Contains(out, "at random") {
		t.Errorf("a few requests without a session are nothing:\n%s", out)
	}
	s.get("/", "mgs_of_another_store").want(wire.ErrTokenInvalid)
	for range 10 {
		s.post("auth/recovery/recover", "", fields{"login_id": "alice", "method": "MAIL", "captcha_response": "x"}).want(wire.ErrCaptchaInvalid)
	}
	s.credentials("carol", testPassword).want(wire.ErrRestricted)
	out := strings.Join(strings.Fields(s.cli("", "doctor").want(1).out), " ")
	for _, want := range []string{
		"30 of 60 had a token of a session that is not in the store, which is unusual from a fifth on → if users are logged out at random, see the runbook",
		"10 of 10 captchas were wrong → compare hostname with the hosts of the pages",
		"limits sms_per_company the company's budget of SMS is used up: until 20",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("doctor does not say %q:\n%s", want, out)
		}
	}
	s.tells("a captcha was solved on another host")
	if n := strings.Count(s.log(), "a captcha was solved on another host"); n != 1 {
		t.Errorf("the log says %d times that captchas were solved elsewhere", n)
	}
	s.cli("", "account", "explain", "carol").want(1, "limit.sms_company", "others get none either", "raise the limit and reload")
}

// The doctor sends few queries to PostgreSQL and connects to each gateway once,
// however many companies there are and however slow the connection to PostgreSQL is.
func TestDoctorOfManyCompaniesFarFromPostgreSQL(t *testing.T) {
	t.Parallel()
	companies := 300 / ifRaced(3)
	var more strings.Builder
	for i := range companies {
		fmt.Fprintf(&more, "company c%d {\napi_key off\ncaptcha off\n%s}\n", i, account("stranded", "second_factor"))
	}
	servers := sharedServers(t)
	between := servers.newWay()
	s := servers.start(siteConfig{company: "captcha off", more: more.String()}, servers.through(between)).nodes[0]
	stranded := func(o outcome) bool { return strings.Count(o.out, "accounts that can't log in") == companies }
	storetest.Eventually(t, time.Minute, "all accounts", func() bool { return stranded(s.cli("", "doctor")) })
	knocked := func(o outcome) bool {
		return strings.Count(o.out, "can be reached") == 2 && o.is(0, fmt.Sprintf("(of acme and %d more) can be reached", companies))
	}
	if o := s.doctorUntil(knocked); !knocked(o) {
		t.Errorf("doctor does not knock at two gateways:\n%s", o.out)
	}
	between.postgres.Delay(100 * time.Millisecond) // in each direction
	if o := s.doctorUntil(stranded); !stranded(o) {
		t.Errorf("doctor does not tell of all companies:\n%s", o.out)
	}
	between.postgres.Heal()
	// Now the companies are in the store but not configured.
	must(t, s.reload(siteConfig{company: "captcha off", stores: servers.through(between)}))
	between.postgres.Delay(100 * time.Millisecond) // in each direction
	left := func(o outcome) bool {
		return strings.Count(o.out, "it has accounts and is not configured") == companies
	}
	if o := s.doctorUntil(left); !left(o) {
		t.Errorf("doctor does not tell of all companies that left:\n%s", o.out)
	}
}

// Gateways that take all turns until the end say nothing of others. Those that most companies
// use are asked first.
func TestDoctorBlamesNoGatewayThatItDidNotAsk(t *testing.T) {
	t.Parallel()
	silent := guesttest.Serve(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	p := startOpenID(t)
	var more strings.Builder
	for i := range 150 {
		provider := strings.Replace(p.provider(1, "timeout 10s"), p.Issuer, fmt.Sprint(silent.URL, "/", i), 1)
		fmt.Fprintf(&more, "company c%d {\napi_key off\ncaptcha off%s\n}\n", i, provider)
	}
	s := startSite(t, siteConfig{company: "captcha off", more: more.String(), env: []string{"MNEMOGATE_PEER_SECRET=" + peerSecret}})
	failed, out := 0, s.cli("", "doctor").out
	for line := range strings.Lines(out) {
		if strings.HasPrefix(line, "failed") && strings.Contains(line, "can't be used") {
			failed++
		}
	}
	unasked := 0
	if _, after, found := strings.Cut(strings.Join(strings.Fields(out), " "), "warning gateways "); found {
		_, _ = fmt.Sscanf(after, "%d were not asked", &unasked)
	}
	if failed > 100 || failed+unasked < 150 {
		t.Errorf("doctor says that %d gateways fail, and %d were not asked:\n%s", failed, unasked, out)
	}
	if n := strings.Count(out, "can be reached"); n != 2 {
		t.Errorf("doctor asked %d of two gateways that all companies use:\n%s", n, out)
	}
}

// A slowApp does not start until a file exists.
type slowApp struct {
	File string `json:"file"`
}

func init() {
	if os.Getenv("MNEMOGATE_TEST_CADDY") != "" { // only in the Caddy under test
		caddy.RegisterModule(new(slowApp))
		httpcaddyfile.RegisterGlobalOption("mnemogate_test_slow", func(d *caddyfile.Dispenser, _ any) (any, error) {
			app := new(slowApp)
			d.Next()
			if err := guest.Text(&app.File)(d); err != nil {
				return nil, err
			}
			return httpcaddyfile.App{Name: "mnemogate_test_slow", Value: caddyconfig.JSON(app, nil)}, nil
		})
	}
}

func (*slowApp) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "mnemogate_test_slow", New: func() caddy.Module { return new(slowApp) }}
}

func (a *slowApp) Start() error {
	for {
		if _, err := os.Stat(a.File); err == nil {
			return nil
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func (*slowApp) Stop() error { return nil }

// While Caddy starts, its admin endpoint answers but has no configuration yet.
func TestTheAdminAPIWaitsForCaddysStart(t *testing.T) {
	t.Parallel()
	s := &site{backend: newRawBackend(t), sms: newWebhookSink(t)}
	launchWith(t, s, func(s *site) string {
		return "{\nmnemogate_test_slow " + s.dir + "/go\n" + siteConfig{company: "captcha off"}.caddyfile(s.dir, s.sms.URL, s.backend.addr)[1:]
	})
	storetest.Eventually(t, time.Minute, "admin endpoint", func() bool {
		conn, err := net.Dial("unix", s.dir+"/admin.sock")
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	})
	begun := time.Now()
	a := s.admin("GET", "accounts", nil)
	if took := time.Since(begun); a.Status != http.StatusServiceUnavailable || !strings.Contains(string(a.Body), "Caddy is starting") || took < time.Second {
		t.Errorf("got %d %s after %s", a.Status, a.Body, took)
	}
	answered := meanwhile(t, func() answer { return s.admin("GET", "accounts", nil) })
	must(t, os.WriteFile(s.dir+"/go", nil, 0o600))
	answered().wantStatus(http.StatusOK)
}

// doctor sends a test message through the configured gateway and reports the result.
// The message says that it is a test and counts towards no limit.
func TestDoctorSendsATest(t *testing.T) {
	t.Parallel()
	r := newReceiver(t)
	var does atomic.Pointer[http.HandlerFunc]
	gateway := guesttest.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		(*does.Load())(w, r)
	}))
	s := startSite(t, siteConfig{
		company: "captcha off\n" + account("alice", "phone +37060000001\nsecond_factor") + r.events("types account.deleted") +
			"limits {\nsms_per_company 1/1h\nsms_per_phone 1/1h\nsms_per_account 1/1h\nmails_per_account 1/1h\nsms_countries +370\n}\n",
		more: "company bare {\napi_key off\ncaptcha off\nsms weak\nevents off\n}\ncompany logs {\napi_key off\ncaptcha off\nsms log\n}\n" +
			fmt.Sprintf("company failing {\napi_key off\ncaptcha off\nsms webhook %s/send?key=hiddenkey {\nsecret whsec_aGlkZGVu\nheader X-Key anotherhidden\ntimeout 4s\ncountries +370\n}\n", gateway.URL) +
			"mail webhook " + nobodyListens(t) + " {\nsecret whsec_aGlkZGVu\n}\n}\n",
	})
	test := func(what, company string) outcome {
		return s.cli("", "doctor", "--send-test", what, "--company", company)
	}
	for range 2 {
		test("sms:+370 600 00001", "acme").want(0, "ok  acme: sms  a test to +37060000001 was accepted: "+s.sms.Listener.Addr().String()+" answered 200: ")
		test("mail:alice@example.com", "acme").want(0, "ok  acme: mail  a test to alice@example.com was accepted: ")
		test("events", "acme").want(0, "ok  acme: events  a test event was accepted: ", " answered 204: ")
	}
	sent := s.sms.of(message.Trial)
	if len(sent) != 4 {
		t.Fatalf("got %v", sent)
	}
	for _, m := range sent {
		text, _ := m["text"].(string)
		if m["company_code"] != "acme" || m["profile_mnemocode"] != nil || m["code"] != nil || m["link"] != nil || !strings.Contains(text, "test") ||
			strings.ContainsAny(text, "0123456789") || m["subject"] == nil && m["to"] != "+37060000001" || m["subject"] != nil && m["to"] != "alice@example.com" {
			t.Errorf("got %v", m)
		}
	}
	tested := 0
	for _, e := range r.all() {
		if e.Type == message.Trial && e.Company == "acme" && e.Account == "" && e.ID != "" {
			tested++
		}
	}
	if tested != 2 {
		t.Errorf("the receiver got %v", r.all())
	}
	s.post("auth/checkcredentials", "", fields{"login_id": "alice", "password": testPassword}).wantState(record.CheckOTP) // the only SMS that its budget allows
	if metrics := s.fromAdmin("/metrics"); strings.Contains(metrics, `type="test"`) || strings.Contains(metrics, "mnemogate_outbox_deliveries_total{company=\"acme\",result=\"delivered\"}") {
		t.Error("a test is counted")
	}
	s.run("what else there is to say", func(t *testing.T) {
		test("sms:+12025550123", "acme").want(0, "warning  acme: sms  a test to +12025550123 was accepted", "sms_countries does not include its country")
		accepts := guesttest.Answering(204, "")
		does.Store(&accepts)
		test("sms:+12025550123", "failing").want(0, "warning  failing: sms  a test to +12025550123 was accepted", "no gateway has its country in countries")
		test("sms:+37060000001", "bare").want(0, "ok  bare: sms", "the gateway gave no details")
		test("sms:+37060000001", "logs").want(0, "it is in Caddy's log, and nowhere else")
		s.tells("This is a test: SMS of logs arrive here.")
		test("events", "bare").want(1, "company bare has no events in its configuration")
		test("mail:a@example.com", "nobody").want(2, "no such company")
		s.cli("", "doctor", "--send-test", "events").want(1, "choose one with --company: acme, bare, failing, logs")
		for _, wrong := range []string{"", "sms", "events:", "fax:+37060000001"} {
			if got := test(wrong, "acme"); got.exit != 1 || got.errs == "" || len(s.sms.of(message.Trial)) != 5 {
				t.Errorf("%s: %d %s%s", wrong, got.exit, got.out, got.errs)
			}
		}
		for _, body := range []string{``, `{}`, `{"channel":"captcha"}`, `{"channel":"oauth 1"}`, `{"channel":"events","to":"x"}`, `{"channel":"sms"}`, `{"channel":"sms","to":"112"}`, `{"channel":"mail"}`, `{"channel":"mail","to":"alice"}`, `{"channel":"sms","to":"+37060000001","x":"y"}`} {
			s.adminRaw("POST", "acme/send-test", body).wantStatus(400)
		}
	})
	// If a gateway refuses the message, doctor shows its answer and advice, but no keys. Words
	// of four letters could by chance be a part of the signature, and then be left out.
	s.run("why it was not taken", func(t *testing.T) {
		hang := http.HandlerFunc(guesttest.Hang)
		for name, c := range map[string]struct {
			does http.HandlerFunc
			want []string
		}{
			"refused":  {guesttest.Answering(422, `{"err":"no way to +37060000001"}`), []string{`answered 422: "{\"err\":\"no way to +37060000001\"}"`, "→ it refused this message"}},
			"keys":     {guesttest.Answering(401, "no key hiddenkey, anotherhidden or whsec_aGlkZGVu"), []string{`answered 401: "no key …, … or …"`, "→ check that it has the same secret"}},
			"path":     {guesttest.Answering(404, strings.Repeat("nothing ", 100)), []string{"answered 404", "→ check the path of the URL"}},
			"redirect": {func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/x", http.StatusFound) }, []string{"answered 302", "→ no redirect is followed"}},
			"many":     {guesttest.Answering(429, ""), []string{"answered 429", "→ it says that there were too many"}},
			"broken":   {guesttest.Answering(503, "off"), []string{`answered 503: "off"`, "→ it is at fault"}},
			"silent":   {hang, []string{"no answer in time", "→ check that the address is right, that it runs"}},
		} {
			s.run(name, func(t *testing.T) {
				does.Store(&c.does)
				got := test("sms:+37060000001", "failing")
				for range 2 { // four digits of the phone can by chance be a part of the signature, too
					if strings.Contains(got.out, c.want[0]) {
						break
					}
					got = test("sms:+37060000001", "failing")
				}
				got.want(1, append(c.want, "failed  failing: sms  a test to +37060000001 was not accepted: sms webhook: ")...)
				if len(got.out) > 700 || strings.Contains(got.out+got.errs, "hidden") || got.errs != "" {
					t.Errorf("got %s%s", got.out, got.errs)
				}
			})
		}
		got := s.cli("", "doctor", "--send-test", "mail:alice@example.com", "--company", "failing", "--json").want(1)
		var f map[string]string
		if err := json.Unmarshal([]byte(got.out), &f); err != nil || f["check"] != "mail" || f["company"] != "failing" || f["result"] != "failed" || f["took"] == "" ||
			!strings.Contains(f["message"], "connection refused") || !strings.Contains(f["advice"], "nothing listens there") {
			t.Errorf("got %s, %v", got.out, err)
		}
	})
}

// While a store can't be reached, doctor reports that, and everything that it can
// find out without the store.
func TestDoctorWithoutAStore(t *testing.T) {
	t.Parallel()
	nowhere := strings.TrimPrefix(nobodyListens(t), "http://")
	s := startSite(t, siteConfig{
		stores:  "store postgres postgres://u:hidden@" + nowhere + "/x?sslmode=disable\nsessions redis redis://" + nowhere,
		company: "captcha off",
		site:    "respond hello",
	})
	got := s.cli("", "doctor").want(1,
		"failed   stores", "connection refused", "→ nothing listens there",
		"ok       acme: sms", "warning  acme: captcha",
		"warning  mnemogate", "no site has the directive mnemogate", "1 of ")
	if strings.Contains(got.out+got.errs, "hidden") {
		t.Errorf("got %s%s", got.out, got.errs)
	}
	s.cli("", "doctor", "--send-test", "events").want(4, "a store can't be reached")
}
