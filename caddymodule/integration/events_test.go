package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/mnemogate/mnemogate/flows"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/wire"
	"github.com/mnemogate/mnemogate/store/storetest"
)

func init() {
	if os.Getenv("MNEMOGATE_TEST_CADDY") != "" { // only in the Caddy under test
		caddy.RegisterModule(new(eventFile))
	}
}

// eventFile is a handler of Caddy's events app. It appends each event to a file as a
// line of JSON. If it hangs, it then appends another line when its context ends, and
// never returns. Otherwise it makes the file FILE.ended when its context ends.
type eventFile struct {
	File string `json:"file"`
	Hang bool   `json:"hang,omitempty"`
	mu   sync.Mutex
}

func (*eventFile) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "events.handlers.mnemogate_test", New: func() caddy.Module { return new(eventFile) }}
}

func (e *eventFile) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next()
	if !d.Args(&e.File) {
		return d.ArgErr()
	}
	e.Hang = d.NextArg()
	return nil
}

func (e *eventFile) Handle(ctx context.Context, event caddy.Event) error {
	line, err := json.Marshal(event.CloudEvent())
	if err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	f, err := os.OpenFile(e.File, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = fmt.Fprintf(f, "%s\n", line)
	if e.Hang {
		<-ctx.Done()
		fmt.Fprintln(f, "{}")
		select {}
	}
	context.AfterFunc(ctx, func() { _ = os.WriteFile(e.File+".ended", nil, 0o600) })
	return err
}

// startCaddyfile is like startSite, but takes a whole Caddyfile. DIR, SINK and
// BACKEND in it are replaced with those of the site.
func startCaddyfile(t *testing.T, text string, env []string) *site {
	t.Helper()
	return startWith(t, &site{backend: newRawBackend(t), sms: newWebhookSink(t), env: env}, func(s *site) string { return s.inserted(text) })
}

func (s *site) inserted(text string) string {
	return strings.NewReplacer("DIR", s.dir, "SINK", s.sms.URL, "BACKEND", s.backend.addr).Replace(text)
}

// readLines reads a file of JSON lines once it has n of them.
func readLines(t *testing.T, file string, n int) []map[string]any {
	t.Helper()
	var lines []map[string]any
	storetest.Eventually(t, 10*time.Second, fmt.Sprintf("%d lines of %s", n, file), func() bool {
		content, err := os.ReadFile(file)
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		lines = nil
		for text := range strings.Lines(wholeLines(string(content))) {
			line := map[string]any{}
			if err := json.Unmarshal([]byte(text), &line); err != nil {
				t.Fatalf("%s is no JSON: %v", text, err)
			}
			lines = append(lines, line)
		}
		return len(lines) >= n
	})
	return lines
}

const eventSite = `{
	admin unix/DIR/admin.sock
	persist_config off
	auto_https off
	log default {
		output stderr
		level DEBUG
	}
	log audit {
		include mnemogate.audit
		output file DIR/audit.log
		format json
	}
	events {
		on mnemogate.checkcredentials.failure mnemogate_test DIR/failures.log
		on * mnemogate_test DIR/all.log
	}
	mnemogate {
		store sqlite DIR/mnemogate.db
		sms webhook SINK {
			secret ` + smsSecret + `
			timeout 30s
		}
		company acme {
			api_key ` + testKey + `
			` + people + `
		}
	}
}
http:// {
	bind fd/3
	mnemogate
	reverse_proxy BACKEND
}
`

// The audit log and the event handlers receive the same events, with the same names
// and fields. A session that a newer one displaces has its event, like any revoked session
// (contract, section 10).
func TestAuditLogAndEventHandlersTellTheSame(t *testing.T) {
	t.Parallel()
	s := startCaddyfile(t, strings.Replace(eventSite, people, strings.Replace(people, "limits {", "limits {\nsessions_per_account 1", 1), 1), nil)
	displaced, token := s.login("alice@example.com"), s.login("alice@example.com")
	s.get("/", displaced).want(wire.ErrTokenInvalid)
	s.get("/", token).wantStatus(200)
	for range 20 {
		s.get("/", token)
		s.get("/", "")
	}
	s.post("auth/checkcredentials", "", fields{"login_id": "hunter2", "password": "wrong"}).want(wire.ErrCredentialsInvalid)
	s.post("auth/checkcredentials", "", fields{"login_id": "alice@example.com", "password": "wrong"}).want(wire.ErrCredentialsInvalid)
	s.post("auth/logout", token, nil).wantState(record.None)
	want := []string{ // company mnemocode state result reason
		"mnemogate.account.created acme alice   configuration",
		"mnemogate.account.created acme bob   configuration",
		"mnemogate.account.created acme carol   configuration",
		"mnemogate.account.created acme dave   configuration",
		"mnemogate.account.created acme erin   configuration",
		"mnemogate.account.created acme frank   configuration",
		"mnemogate.checkcredentials.success acme alice authorized success ",
		"mnemogate.session.ended acme alice authorized  limit",
		"mnemogate.checkcredentials.success acme alice authorized success ",
		"mnemogate.checkcredentials.failure acme   auth.credentials.invalid ",
		"mnemogate.checkcredentials.failure acme alice  auth.credentials.invalid ",
		"mnemogate.session.ended acme alice authorized  logout",
		"mnemogate.logout.success acme alice authorized success ",
	}
	tell := func(name string, data map[string]any) string {
		part := func(field string) string { s, _ := data[field].(string); return s }
		return strings.Join([]string{name, part("company"), part("mnemocode"), part("state"), part("result"), part("reason")}, " ")
	}
	var audited, heard []string
	var sessions []any
	for _, line := range readLines(t, s.dir+"/audit.log", len(want)) {
		name, _ := line["msg"].(string)
		audited = append(audited, tell(name, line))
		if line["logger"] != "mnemogate.audit" || line["ts"] == nil {
			t.Errorf("the audit log has %v", line)
		}
		if line["route"] != nil && line["address"] != "127.0.0.1" {
			t.Errorf("no address: %v", line)
		}
		if line["session"] != nil {
			sessions = append(sessions, line["session"])
		}
		i := slices.IndexFunc(flows.EventKinds, func(k record.EventKind) bool { return k.Name == name })
		for field := range line {
			if !slices.Contains(append([]string{"level", "ts", "logger", "msg"}, flows.EventKinds[i].Fields...), field) {
				t.Errorf("%s has the field %s", name, field)
			}
		}
	}
	if len(sessions) != 5 || sessions[0] != sessions[1] || sessions[1] == sessions[2] || sessions[2] != sessions[3] || sessions[2] != sessions[4] {
		t.Errorf("the session is called %v", sessions)
	}
	ours := func(file string, n int) (events []string) {
		for _, line := range readLines(t, file, n) {
			name, _ := line["type"].(string)
			if data, ok := line["data"].(map[string]any); ok && strings.HasPrefix(name, "mnemogate.") {
				events = append(events, tell(name, data))
				if line["source"] != "mnemogate" || data["time"] == nil {
					t.Errorf("got %v", line)
				}
			}
		}
		return events
	}
	heard = ours(s.dir+"/all.log", len(want)+1) // including Caddy's own event started
	if !slices.Equal(audited, want) {
		t.Errorf("the audit log has\n%s\nwant\n%s", strings.Join(audited, "\n"), strings.Join(want, "\n"))
	}
	if !slices.Equal(heard, want) {
		t.Errorf("the handler of all got\n%s\nwant\n%s", strings.Join(heard, "\n"), strings.Join(want, "\n"))
	}
	if failures := ours(s.dir+"/failures.log", 2); !slices.Equal(failures, want[9:11]) {
		t.Errorf("the handler of failures got\n%s", strings.Join(failures, "\n"))
	}
	s.wantNoneLogged(`"mnemogate.audit"`) // it is in the audit log alone
}

// A handler that never returns holds up neither a reload nor the stop.
func TestAHangingEventHandlerHoldsUpNoReload(t *testing.T) {
	t.Parallel()
	s := startCaddyfile(t, strings.Replace(eventSite, "DIR/failures.log", "DIR/failures.log hangs", 1), nil)
	fail := func() {
		s.post("auth/checkcredentials", "", fields{"login_id": "x", "password": "wrong"}).want(wire.ErrCredentialsInvalid)
	}
	fail()
	readLines(t, s.dir+"/failures.log", 1)
	loaded := make(chan error, 1)
	go func() { loaded <- s.load() }()
	select {
	case err := <-loaded:
		must(t, err)
	case <-time.After(30 * time.Second):
		t.Fatal("the reload waits for the handler")
	}
	readLines(t, s.dir+"/failures.log", 2) // the handler's context has ended
	fail()
	readLines(t, s.dir+"/failures.log", 3)
}

// A reload replaces the handlers of events and the audit log.
func TestEventsAcrossReloads(t *testing.T) {
	t.Parallel()
	s := startCaddyfile(t, strings.NewReplacer("on mnemogate.checkcredentials.failure mnemogate_test DIR/failures.log", "",
		"on * mnemogate_test DIR/all.log", "", "include mnemogate.audit", "include nothing").Replace(eventSite), nil)
	fail := func() {
		s.post("auth/checkcredentials", "", fields{"login_id": "x", "password": "wrong"}).want(wire.ErrCredentialsInvalid)
	}
	fail()
	s.tells(`"mnemogate.audit","msg":"mnemogate.checkcredentials.failure"`) // by default part of Caddy's log
	s.config = s.inserted(eventSite)
	for i := range 2 {
		must(t, s.load())
		fail()
		readLines(t, s.dir+"/failures.log", i+1)
	}
	must(t, s.load())
	if _, err := os.Stat(s.dir + "/failures.log.ended"); err == nil {
		t.Error("a reload ends what a handler has started in the background")
	}

	// The handlers and the audit log of the next config receive the events of a request
	// that is in progress.
	s.sms.mu.Lock() // so the gateway does not answer
	answered := meanwhile(t, func() answer { return s.post("auth/login", "", fields{"login_id": "+37060000002"}) })
	time.Sleep(200 * time.Millisecond) // if it has not arrived by then, the next config serves it
	s.config = strings.NewReplacer("all.log", "all-later.log", "audit.log", "audit-later.log").Replace(s.config)
	err := s.load()
	s.sms.mu.Unlock()
	must(t, err)
	answered().wantState(record.CheckOTP)
	for _, file := range []string{"/all-later.log", "/audit-later.log"} {
		storetest.Eventually(t, 10*time.Second, "the event in "+file, func() bool {
			events, _ := os.ReadFile(s.dir + file)
			return strings.Contains(string(events), "mnemogate.login.success")
		})
	}
}
