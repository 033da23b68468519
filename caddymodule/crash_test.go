package caddymodule

import (
	"bytes"
	"database/sql"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/flows"
	"github.com/mnemogate/mnemogate/store/storetest"
)

var kills = flag.Int("kills", 6, "how often TestCrashesLoseNothing kills a process of each deployment; 200 for a thorough run")

// Whatever is killed, and at whichever moment: what was acknowledged is there
// after, and what was not is either done or not.
//
//	go test ./caddymodule -run CrashesLoseNothing -v -kills 200 -timeout 2h
func TestCrashesLoseNothing(t *testing.T) {
	t.Parallel()
	for _, d := range []struct {
		name    string
		start   func(*testing.T, siteConfig) *site
		victims []string // one after another
	}{
		{"embedded", startSite, []string{"node"}},
		{"shared", startDurable, []string{"node", "redis", "node", "postgres", "node", "all"}},
	} {
		t.Run(d.name, func(t *testing.T) {
			s := d.start(t, siteConfig{company: roomy + disclaimers + "session {\nidle 2m\n}\n"})
			c := newCrash(s)
			killed := map[string]int{}
			for round := range *kills {
				victim := d.victims[round%len(d.victims)]
				c.round = round
				c.loadUntilKilled(victim)
				killed[victim]++
				c.check(false)
				if t.Failed() {
					t.Fatalf("after kill %d, of %s", round+1, victim)
				}
				if round%10 == 9 {
					t.Logf("%d kills", round+1)
				}
			}
			c.check(true)
			t.Logf("killed: %v; acknowledged: %v; under way when killed: %v, of which were done: %v", killed, c.acknowledged, c.broken, c.done)
			for _, operation := range crashOperations {
				if *kills >= 50 && c.acknowledged[operation.name] == 0 {
					t.Errorf("%s was never acknowledged", operation.name)
				}
			}
		})
	}
}

// startDurable starts two nodes on servers that keep what they have answered,
// and may be killed.
func startDurable(t *testing.T, c siteConfig) *site {
	t.Helper()
	shared := &servers{
		t: t, postgres: storetest.OwnPostgres(t), schema: "public",
		redis: storetest.StartRedis(t, "--appendonly", "yes", "--appendfsync", "always"),
	}
	shared.postgres.Stop()
	restarted(t, shared.postgres.Start(durablePostgres...))
	s := shared.start(c, shared.direct(), shared.direct())
	s.shared = shared
	return s
}

// durablePostgres are PostgreSQL's own defaults, which tests else do without.
// fsync is still left out: what the kernel was given outlives a process.
var durablePostgres = []string{"synchronous_commit=on", "full_page_writes=on"}

// A crash is what clients know of a site that is killed again and again.
type crash struct {
	s       *site
	nodes   []*site
	workers []*crashWorker
	stop    atomic.Bool
	round   int

	mu                         sync.Mutex
	acknowledged, broken, done map[string]int // by operation
}

const crashWorkers = 8

func newCrash(s *site) *crash {
	c := &crash{s: s, nodes: s.nodes, acknowledged: map[string]int{}, broken: map[string]int{}, done: map[string]int{}}
	if c.nodes == nil {
		c.nodes = []*site{s}
	}
	for i := range crashWorkers {
		c.workers = append(c.workers, &crashWorker{crash: c, number: i})
	}
	return c
}

func (c *crash) count(in map[string]int, operation string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	in[operation]++
}

// loadUntilKilled has all workers work, kills the victim at a random moment,
// and starts it again. Workers that were answered go on for a while.
func (c *crash) loadUntilKilled(victim string) {
	c.stop.Store(false)
	var load sync.WaitGroup
	for _, w := range c.workers {
		load.Go(w.work)
	}
	time.Sleep(time.Duration(rand.IntN(800)) * time.Millisecond)
	restart := c.kill(victim)
	if victim != "all" {
		time.Sleep(time.Duration(rand.IntN(100)) * time.Millisecond)
	}
	c.stop.Store(true)
	restart()
	load.Wait()
}

// kill ends processes as nothing else does, and returns what starts them again.
func (c *crash) kill(victim string) (restart func()) {
	shared := c.s.shared
	startRedis := func() { restarted(c.s.t, shared.redis.Start()) }
	startPostgres := func() { restarted(c.s.t, shared.postgres.Start(durablePostgres...)) }
	switch victim {
	case "redis":
		shared.redis.Kill()
		return startRedis
	case "postgres":
		shared.postgres.Kill()
		return startPostgres
	case "all":
		for _, node := range c.nodes {
			node.stop(syscall.SIGKILL)
		}
		shared.redis.Kill()
		shared.postgres.Kill()
		return func() {
			for _, node := range c.nodes { // before their servers
				node.clearLog()
				node.start()
			}
			startRedis()
			startPostgres()
		}
	default:
		node := c.nodes[rand.IntN(len(c.nodes))]
		node.stop(syscall.SIGKILL)
		return func() {
			node.clearLog()
			node.start()
		}
	}
}

func (s *site) clearLog() {
	s.logMu.Lock()
	defer s.logMu.Unlock()
	s.logs.Reset()
}

// A crashWorker does one thing after another with people of its own, so that it
// knows what must be.
type crashWorker struct {
	*crash
	number, born int
	people       []*person
}

// A person is an account, as its owner and the operator know it.
type person struct {
	name, phone string
	kind        string   // password, second (a code after it) or sms (no password)
	gone        int      // 1: deleted, 2: never was
	password    string   // that was set last
	maybe       string   // the setting of this one was not acknowledged
	old         []string // passwords that no longer work
	accepted    bool
	restricted  bool
	live        map[string]time.Time // authorized tokens, and when they were used last
	dead        map[string]ended     // tokens that were ended
	spent       map[string]string    // tokens of pending sessions whose code, this, was spent
	left, used  []string             // backup codes
	leftUnknown bool
	doubt       string // the operation that was not acknowledged
}

// ended tells by what, when, and in which round.
type ended struct {
	by    string
	at    time.Time
	round int
}

// A crashOperation returns false if it was not answered.
type crashOperation struct {
	name string
	run  func(*crashWorker, *person) bool
}

var crashOperations = []crashOperation{
	{"create", (*crashWorker).create},
	{"login", (*crashWorker).login},
	{"logout", (*crashWorker).logout},
	{"touch", (*crashWorker).touch},
	{"recovery", (*crashWorker).recovery},
	{"setpassword", (*crashWorker).mustSet},
	{"password by an admin", (*crashWorker).adminPassword},
	{"restrict", (*crashWorker).restrict},
	{"end sessions", (*crashWorker).endSessions},
	{"backup codes", (*crashWorker).newCodes},
	{"delete", (*crashWorker).remove},
}

// work does things until it is told to stop, or not answered.
func (w *crashWorker) work() {
	for !w.stop.Load() {
		operation, p := w.choose()
		p.doubt = operation.name
		if !operation.run(w, p) {
			w.count(w.broken, operation.name)
			return
		}
		p.doubt = ""
		w.count(w.acknowledged, operation.name)
	}
}

func (w *crashWorker) choose() (crashOperation, *person) {
	var there []*person
	for _, p := range w.people {
		if p.gone == 0 {
			there = append(there, p)
		}
	}
	if len(there) < 3 {
		if n := len(w.people); n > 0 && w.people[n-1].gone == 1 && rand.IntN(2) == 0 {
			return crashOperations[0], w.people[n-1] // the same names again
		}
		p := &person{
			name:  fmt.Sprintf("p%d-%d", w.number, w.born),
			phone: fmt.Sprintf("+37060%d%06d", w.number, w.born),
			kind:  []string{"password", "second", "sms"}[w.born%3],
			dead:  map[string]ended{},
		}
		w.born++
		w.people = append(w.people, p)
		return crashOperations[0], p
	}
	p := there[rand.IntN(len(there))]
	for {
		// Logging in is what happens most.
		operation := crashOperations[max(1, rand.IntN(len(crashOperations)+6)-6)]
		switch operation.name {
		case "recovery", "setpassword", "password by an admin":
			if p.kind == "sms" {
				continue
			}
		case "backup codes":
			if p.kind != "second" {
				continue
			}
		case "logout", "touch":
			if len(p.live) == 0 {
				continue
			}
		}
		return operation, p
	}
}

// ask sends a request to a node; to any, if it is nil. It returns false where no
// answer came, or one that does not tell what was done.
func (c *crash) ask(node *site, route, token string, body fields) (answer, bool) {
	if node == nil {
		node = c.nodes[rand.IntN(len(c.nodes))]
	}
	r := node.getRequest("/x", token)
	if route != "" {
		r = node.postRequest("acme", testKey, route, token, body)
	}
	a, err := node.try(client, r)
	return a, err == nil && a.Status != http.StatusServiceUnavailable
}

// operate is ask for the admin API.
func (c *crash) operate(method, path string, body any) (answer, bool) {
	node := c.nodes[rand.IntN(len(c.nodes))]
	raw, err := json.Marshal(body)
	if err != nil {
		c.s.t.Error(err)
	}
	r, err := http.NewRequest(method, "http://127.0.0.1/mnemogate/"+path, bytes.NewReader(raw))
	if err != nil {
		c.s.t.Error(err)
	}
	client := node.adminClient()
	defer client.CloseIdleConnections()
	response, err := client.Do(r)
	if err != nil {
		return answer{}, false
	}
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	if err != nil {
		return answer{}, false
	}
	return newAnswer(c.s.t, response, data), response.StatusCode != http.StatusServiceUnavailable
}

// fails tells whether an answer is an error; nil stands for a success.
func (a answer) fails(e *flows.Error) bool {
	if e == nil {
		return a.Status/100 == 2
	}
	return a.Status == e.Status && a.str("error_code") == e.Code
}

// expect fails the test unless the answer is the error, or with nil a success.
func (w *crashWorker) expect(p *person, what string, a answer, e *flows.Error) bool {
	if !a.fails(e) {
		w.s.t.Errorf("%s (%s, unacknowledged %q): %s: got %d %s, want %v", p.name, p.kind, p.doubt, what, a.Status, a.Body, e)
		return false
	}
	return true
}

// codeTo is the code that was last sent to a phone.
func (s *webhookSink) codeTo(phone string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range slices.Backward(s.messages) {
		if code, _ := m["code"].(string); m["to"] == phone && code != "" {
			return code
		}
	}
	return ""
}

// ends notes that a token was ended.
func (w *crashWorker) ends(p *person, token, by string) {
	p.dead[token] = ended{by, time.Now(), w.round}
}

// endsAll notes that all sessions of a person were.
func (w *crashWorker) endsAll(p *person, by string) {
	for token := range p.live {
		w.ends(p, token, by)
	}
	for token := range p.spent {
		w.ends(p, token, by)
	}
	p.live, p.spent = map[string]time.Time{}, map[string]string{}
}

func (w *crashWorker) create(p *person) bool {
	p.password, p.accepted, p.restricted, p.left, p.leftUnknown = "", false, false, nil, false
	p.live, p.spent = map[string]time.Time{}, map[string]string{}
	account := fields{"profile_mnemocode": p.name, "login_name": p.name, "primary_phone": p.phone, "second_factor": p.kind == "second"}
	if p.kind != "sms" {
		p.password = fmt.Sprintf("the password %d", rand.Int64())
		account["password"] = p.password
	}
	p.gone = 0
	a, ok := w.operate("POST", "acme/accounts", account)
	return ok && w.expect(p, "create", a, nil)
}

// begin does the first step of a login.
func (w *crashWorker) begin(p *person, password string) (answer, bool) {
	if p.kind == "sms" {
		return w.ask(nil, "auth/login", "", fields{"login_id": p.phone})
	}
	body := fields{"login_id": p.name, "password": password}
	if !p.accepted {
		body["accept_disclaimers"] = []string{"terms", "privacy"}
	}
	return w.ask(nil, "auth/checkcredentials", "", body)
}

// proof is what a person shows for the code that was sent.
func (w *crashWorker) proof(p *person, what, value string) fields {
	body := fields{what: value}
	if !p.accepted {
		body["accept_disclaimers"] = []string{"terms", "privacy"}
	}
	return body
}

func (w *crashWorker) login(p *person) bool {
	a, ok := w.begin(p, p.password)
	if !ok || !w.expect(p, "login", a, nil) {
		return false
	}
	if a.str("session_state") == string(flows.CheckOTP) {
		pending := a.str("session_token")
		code := w.s.sms.codeTo(p.phone)
		how := rand.IntN(4)
		switch {
		case how == 0:
			a, ok = w.ask(nil, "auth/checkotp", pending, w.proof(p, "otp", "wrong"))
			if ok && w.expect(p, "a wrong code", a, flows.ErrOTPInvalid) {
				p.spent[pending] = code
			}
			return ok
		case how == 1 && len(p.left) > 0:
			code := p.left[0]
			p.left = p.left[1:]
			p.leftUnknown = true
			a, ok = w.ask(nil, "auth/checkotp", pending, w.proof(p, "backup_code", code))
			if !ok || !w.expect(p, "a backup code", a, nil) {
				return false
			}
			p.used, p.leftUnknown = append(p.used, code), false
		default:
			a, ok = w.ask(nil, "auth/checkotp", pending, w.proof(p, "otp", code))
			if !ok || !w.expect(p, "a code", a, nil) {
				return false
			}
		}
		w.ends(p, pending, p.doubt)
	}
	p.accepted = true
	p.live[a.str("session_token")] = time.Now()
	return true
}

func (w *crashWorker) logout(p *person) bool {
	for token := range p.live {
		delete(p.live, token)
		a, ok := w.ask(nil, "auth/logout", token, nil)
		if ok && w.expect(p, "logout", a, nil) {
			w.ends(p, token, p.doubt)
		}
		return ok
	}
	return true
}

func (w *crashWorker) touch(p *person) bool {
	for token := range p.live {
		a, ok := w.ask(nil, "", token, nil)
		if ok && w.expect(p, "the protected path", a, nil) {
			p.live[token] = time.Now()
		}
		return ok
	}
	return true
}

// setNew sets a new password, by a call that does so.
func (w *crashWorker) setNew(p *person, call func(password string) (answer, bool)) (answer, bool) {
	p.maybe = fmt.Sprintf("the password %d", rand.Int64())
	a, ok := call(p.maybe)
	if !ok || !w.expect(p, "setting a password", a, nil) {
		return a, false
	}
	w.isSet(p)
	return a, true
}

// isSet notes that the password was changed.
func (w *crashWorker) isSet(p *person) {
	p.old = append(p.old, p.password)
	p.password, p.maybe = p.maybe, ""
	w.endsAll(p, p.doubt)
}

func (w *crashWorker) recovery(p *person) bool {
	a, ok := w.ask(nil, "auth/recovery/recover", "", fields{"login_id": p.name, "captcha_response": "any", "method": "PHONE"})
	if !ok || !w.expect(p, "recover", a, nil) {
		return false
	}
	pending := a.str("session_token")
	a, ok = w.ask(nil, "auth/recovery/checkotp", pending, fields{"otp": w.s.sms.codeTo(p.phone)})
	if !ok || !w.expect(p, "a recovery code", a, nil) {
		return false
	}
	setting := a.str("session_token")
	w.ends(p, pending, p.doubt)
	_, ok = w.setNew(p, func(password string) (answer, bool) {
		return w.ask(nil, "auth/setpassword", setting, fields{"new_password": password})
	})
	if ok {
		w.ends(p, setting, p.doubt)
	}
	return ok
}

func (w *crashWorker) mustSet(p *person) bool {
	a, ok := w.operate("PATCH", "acme/accounts/"+p.name, fields{"must_set_password": true})
	if !ok || !w.expect(p, "must_set_password", a, nil) {
		return false
	}
	if a, ok = w.begin(p, p.password); !ok || !w.expect(p, "login", a, nil) {
		return false
	}
	if a.str("session_state") == string(flows.CheckOTP) {
		a, ok = w.ask(nil, "auth/checkotp", a.str("session_token"), w.proof(p, "otp", w.s.sms.codeTo(p.phone)))
		if !ok || !w.expect(p, "a code", a, nil) {
			return false
		}
	}
	setting := a.str("session_token")
	a, ok = w.setNew(p, func(password string) (answer, bool) {
		return w.ask(nil, "auth/setpassword", setting, fields{"new_password": password})
	})
	if ok {
		w.ends(p, setting, p.doubt)
		p.accepted = true
		p.live[a.str("session_token")] = time.Now()
	}
	return ok
}

func (w *crashWorker) adminPassword(p *person) bool {
	_, ok := w.setNew(p, func(password string) (answer, bool) {
		return w.operate("PATCH", "acme/accounts/"+p.name, fields{"password": password})
	})
	return ok
}

func (w *crashWorker) restrict(p *person) bool {
	a, ok := w.operate("PATCH", "acme/accounts/"+p.name, fields{"status": "restricted"})
	if !ok || !w.expect(p, "restrict", a, nil) {
		return false
	}
	w.endsAll(p, p.doubt)
	p.restricted = true
	a, ok = w.operate("PATCH", "acme/accounts/"+p.name, fields{"status": "active"})
	if !ok || !w.expect(p, "activate", a, nil) {
		return false
	}
	p.restricted = false
	return true
}

func (w *crashWorker) endSessions(p *person) bool {
	a, ok := w.operate("DELETE", "acme/accounts/"+p.name+"/sessions", nil)
	if !ok || !w.expect(p, "ending the sessions", a, nil) {
		return false
	}
	w.endsAll(p, p.doubt)
	return true
}

func (w *crashWorker) newCodes(p *person) bool {
	before := p.left
	p.left, p.leftUnknown = nil, true
	a, ok := w.operate("POST", "acme/accounts/"+p.name+"/backup-codes", nil)
	if !ok || !w.expect(p, "backup codes", a, nil) {
		return false
	}
	p.used, p.leftUnknown = append(p.used, before...), false
	list, _ := a.JSON["backup_codes"].([]any)
	for _, code := range list {
		p.left = append(p.left, code.(string))
	}
	return true
}

func (w *crashWorker) remove(p *person) bool {
	a, ok := w.operate("DELETE", "acme/accounts/"+p.name, nil)
	if !ok || !w.expect(p, "delete", a, nil) {
		return false
	}
	p.gone = 1
	w.endsAll(p, p.doubt)
	return true
}

// check looks whether all is as it must be: of this round or, with all, of all
// that ever was.
func (c *crash) check(all bool) {
	c.nothingOwed()
	if c.s.shared != nil {
		time.Sleep(heardWithin / 2) // by when each node must have heard of what was owed
	}
	var checks sync.WaitGroup
	for _, w := range c.workers {
		checks.Go(func() {
			for _, p := range w.people {
				if p.gone == 0 || all || p.doubt != "" {
					w.checkPerson(p)
				}
				w.checkDead(p, all)
				p.doubt = ""
			}
		})
	}
	checks.Wait()
	for range c.nodes {
		a := c.steady(func() (answer, bool) { // a busy machine may not answer it in time
			a, ok := c.operate("GET", "doctor", nil)
			return a, ok && !bytes.Contains(a.Body, []byte(`"failed"`))
		})
		if !a.fails(nil) || bytes.Contains(a.Body, []byte(`"failed"`)) {
			c.s.t.Errorf("doctor: %d %s", a.Status, a.Body)
		}
	}
	c.nothingOwed()
	if c.s.shared == nil {
		c.checkFile()
	}
}

// steady repeats what may be repeated until it is answered.
func (c *crash) steady(ask func() (answer, bool)) answer {
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		if a, ok := ask(); ok || time.Now().After(deadline) {
			return a
		}
	}
}

// nothingOwed waits until the endings that a crash left owed are done.
func (c *crash) nothingOwed() {
	accounts := c.s.accounts()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		owed, err := accounts.Endings(c.s.t.Context(), flows.Ending{}, 10)
		if err == nil && len(owed) == 0 {
			return
		}
		if time.Now().After(deadline) {
			for _, node := range c.nodes {
				c.s.t.Logf("log of a node: %s", node.warnings())
			}
			c.s.t.Fatalf("endings are owed after 30 s: %v, %v", owed, err)
		}
	}
}

// warnings are the last lines of the log that are more than usual.
func (s *site) warnings() string {
	var lines []string
	for line := range strings.Lines(s.log()) {
		if !strings.Contains(line, `"level":"info"`) && !strings.Contains(line, `"level":"debug"`) {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines[max(0, len(lines)-20):], "")
}

// checkFile looks for damage in the file, and for sessions of nobody's.
func (c *crash) checkFile() {
	db, err := sql.Open("sqlite", "file:"+c.s.dir+"/mnemogate.db?_pragma=busy_timeout(5000)")
	if err != nil {
		c.s.t.Fatal(err)
	}
	defer db.Close()
	for query, want := range map[string]string{
		"PRAGMA integrity_check":                          "ok",
		"SELECT count(*) FROM pragma_foreign_key_check()": "0",
		`SELECT count(*) FROM sessions LEFT JOIN accounts ON accounts.id = sessions.account
			WHERE accounts.id IS NULL OR accounts.epoch <> sessions.epoch`: "0",
	} {
		var got string
		if err := db.QueryRow(query).Scan(&got); err != nil || got != want {
			c.s.t.Errorf("%s: %s, %v; want %s", query, got, err, want)
		}
	}
}

// checkDead looks whether what was ended stays so, at each node.
func (w *crashWorker) checkDead(p *person, all bool) {
	for token, ended := range p.dead {
		if !all && ended.round < w.round {
			continue
		}
		for i, node := range w.nodes {
			a := w.steady(func() (answer, bool) {
				a, ok := w.ask(node, "", token, nil)
				return a, ok && (a.Status != http.StatusOK || time.Since(ended.at) > heardWithin) // the others hear of it soon
			})
			w.expect(p, fmt.Sprintf("a token that %s ended, at node %d", ended.by, i), a, flows.ErrTokenInvalid)
		}
	}
}

// checkPerson looks whether an account is as its owner knows it, and settles
// what was not acknowledged.
func (w *crashWorker) checkPerson(p *person) {
	a := w.steady(func() (answer, bool) { return w.operate("GET", "acme/accounts/"+p.name, nil) })
	if p.gone == 0 && a.Status == http.StatusNotFound {
		switch p.doubt {
		case "create":
			p.gone = 2
		case "delete":
			p.gone = 1
			w.endsAll(p, p.doubt)
			w.count(w.done, p.doubt)
		}
	}
	if p.gone != 0 {
		p.doubt = ""
		if a.Status != http.StatusNotFound {
			w.s.t.Errorf("%s was deleted: %d %s", p.name, a.Status, a.Body)
		}
		a = w.steady(func() (answer, bool) { return w.ask(nil, "auth/login", "", fields{"login_id": p.name}) })
		w.expect(p, "the login of a deleted account", a, flows.ErrLoginIDNotFound)
		return
	}
	if !w.expect(p, "its account", a, nil) {
		return
	}
	if p.doubt == "create" {
		w.count(w.done, p.doubt)
	}
	if p.accepted && strings.Count(string(a.Body), `"accepted_at"`) != 2 {
		w.s.t.Errorf("%s has accepted two disclaimers: %s", p.name, a.Body)
	}
	w.settleStatus(p, a)
	w.settlePassword(p)
	w.settleSessions(p)
	w.checkCodes(p, a)
	p.doubt = ""
	w.logsIn(p)
	a = w.steady(func() (answer, bool) { return w.operate("POST", "acme/accounts/"+p.name+"/unlock", nil) })
	w.expect(p, "unlock", a, nil)
	p.doubt = "the check"
	for len(p.live) > 3 {
		a := w.steady(func() (answer, bool) { return w.operate("DELETE", "acme/accounts/"+p.name+"/sessions", nil) })
		if !w.expect(p, "ending the sessions", a, nil) {
			return
		}
		w.endsAll(p, p.doubt)
	}
}

func (w *crashWorker) settleStatus(p *person, account answer) {
	restricted := account.str("status") == "restricted"
	if restricted != p.restricted {
		if p.doubt != "restrict" {
			w.s.t.Errorf("%s has status %s", p.name, account.str("status"))
		}
		if restricted {
			w.endsAll(p, p.doubt)
		}
		w.count(w.done, p.doubt)
	}
	p.restricted = false
	if restricted || account.JSON["must_set_password"] == true {
		if p.doubt != "restrict" && p.doubt != "setpassword" {
			w.s.t.Errorf("%s: after %q: %s", p.name, p.doubt, account.Body)
		}
		if restricted {
			a := w.steady(func() (answer, bool) { return w.begin(p, p.password) })
			w.expect(p, "the login of a restricted account", a, flows.ErrUserRestricted)
		}
		a := w.steady(func() (answer, bool) {
			return w.operate("PATCH", "acme/accounts/"+p.name, fields{"status": "active", "must_set_password": false})
		})
		w.expect(p, "activating", a, nil)
	}
}

// settlePassword finds out whether a password was set, and that another one
// does not work.
func (w *crashWorker) settlePassword(p *person) {
	works := func(password string) bool {
		a := w.steady(func() (answer, bool) { return w.begin(p, password) })
		return a.fails(nil) || !w.expect(p, "a password that does not work", a, flows.ErrCredentialsInvalid)
	}
	if p.maybe != "" {
		if works(p.maybe) {
			w.count(w.done, p.doubt)
			w.isSet(p)
		}
		p.maybe = ""
	}
	if n := len(p.old); n > 0 && works(p.old[n-1]) {
		w.s.t.Errorf("%s: the old password works, after %q", p.name, p.doubt)
	}
}

// settleSessions looks whether all sessions go on that were not ended.
func (w *crashWorker) settleSessions(p *person) {
	if p.doubt == "end sessions" && len(p.live) > 0 {
		for token := range p.live {
			a := w.steady(func() (answer, bool) { return w.ask(nil, "", token, nil) })
			if a.fails(flows.ErrTokenInvalid) { // then so are all
				w.endsAll(p, p.doubt)
				w.count(w.done, p.doubt)
			}
			break
		}
	}
	for token, used := range p.live {
		for _, node := range w.nodes {
			a := w.steady(func() (answer, bool) { return w.ask(node, "", token, nil) })
			if time.Since(used) > 100*time.Second && a.fails(flows.ErrTokenExpired) {
				delete(p.live, token)
				break
			}
			if w.expect(p, "a session that goes on", a, nil) {
				p.live[token] = time.Now()
			}
		}
	}
	for token, code := range p.spent {
		delete(p.spent, token)
		a := w.steady(func() (answer, bool) { return w.ask(nil, "auth/checkotp", token, w.proof(p, "otp", code)) })
		if p.doubt == "end sessions" && a.fails(flows.ErrTokenInvalid) {
			continue
		}
		if !w.expect(p, "a spent code", a, flows.ErrOTPInvalid) {
			continue
		}
		a = w.steady(func() (answer, bool) { return w.ask(nil, "auth/renewotp", token, nil) })
		if !w.expect(p, "another code", a, nil) {
			continue
		}
		a, ok := w.ask(nil, "auth/checkotp", token, w.proof(p, "otp", w.s.sms.codeTo(p.phone)))
		if ok && w.expect(p, "the code that was sent anew", a, nil) {
			w.ends(p, token, p.doubt)
			p.accepted = true
			p.live[a.str("session_token")] = time.Now()
		}
	}
}

// checkCodes looks whether used backup codes stay so, and how many are left.
func (w *crashWorker) checkCodes(p *person, account answer) {
	left, _ := account.JSON["backup_codes_left"].(float64)
	if p.leftUnknown {
		p.left = nil // either these or others
	} else if int(left) != len(p.left) {
		w.s.t.Errorf("%s has %v backup codes left, want %d", p.name, left, len(p.left))
	}
	if n := len(p.used); n > 0 && p.kind == "second" {
		a := w.steady(func() (answer, bool) { return w.begin(p, p.password) })
		if !w.expect(p, "login", a, nil) {
			return
		}
		token := a.str("session_token")
		a = w.steady(func() (answer, bool) {
			return w.ask(nil, "auth/checkotp", token, w.proof(p, "backup_code", p.used[rand.IntN(n)]))
		})
		w.expect(p, "a used backup code", a, flows.ErrBackupCodeInvalid)
	}
	if p.leftUnknown && p.kind == "second" {
		p.leftUnknown = false
		a := w.steady(func() (answer, bool) { return w.operate("POST", "acme/accounts/"+p.name+"/backup-codes", nil) })
		w.expect(p, "backup codes", a, nil)
		list, _ := a.JSON["backup_codes"].([]any)
		for _, code := range list {
			p.left = append(p.left, code.(string))
		}
	}
}

// logsIn looks whether a person still can, with no more than is known to be due.
func (w *crashWorker) logsIn(p *person) {
	a := w.steady(func() (answer, bool) {
		a, ok := w.begin(p, p.password)
		if !ok || a.str("session_state") != string(flows.CheckOTP) {
			return a, ok
		}
		return w.ask(nil, "auth/checkotp", a.str("session_token"), w.proof(p, "otp", w.s.sms.codeTo(p.phone)))
	})
	if w.expect(p, "logging in", a, nil) {
		p.accepted = true
		p.live[a.str("session_token")] = time.Now()
	}
}

// What a crash left owed is done once the servers are there, also if nobody
// asks for anything.
func TestOwedEndingsNeedNoRequest(t *testing.T) {
	t.Parallel()
	s := startDurable(t, siteConfig{company: roomy + account("alice", "")})
	s.login("alice")
	ctx, accounts := t.Context(), s.accounts()
	a, err := accounts.ByMnemocode(ctx, "acme", "alice")
	if err != nil {
		t.Fatal(err)
	}
	for _, node := range s.nodes {
		node.stop(syscall.SIGKILL)
	}
	// As far as a change comes that is cut off before it ends the sessions.
	if _, err := accounts.Update(ctx, "acme", a.ID, func(*flows.Account) (bool, error) { return true, nil }); err != nil {
		t.Fatal(err)
	}
	s.shared.postgres.Kill()
	s.nodes[0].clearLog()
	s.nodes[0].start()
	restarted(t, s.shared.postgres.Start(durablePostgres...))
	storetest.Eventually(t, 30*time.Second, "end of the sessions", func() bool {
		owed, err := accounts.Endings(ctx, flows.Ending{}, 1)
		return err == nil && len(owed) == 0
	})
	s.wantSessions("alice")
	s.nodes[1].clearLog()
	s.nodes[1].start() // which is stopped with the test
}
