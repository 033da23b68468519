package integration

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/wire"
	"github.com/mnemogate/mnemogate/store/storetest"
)

const eventsSecret = "whsec_dGhlIHNlY3JldCBvZiB0aGUgZXZlbnRz"

// A receiver is a backend that receives the events of accounts.
type receiver struct {
	*httptest.Server
	t          *testing.T
	retryAfter string // of its refusals; empty for none

	mu    sync.Mutex
	tries []told
	does  func(told) int // returns the status of its answer; nil for 204
}

// A told is one delivery attempt of an event.
type told struct {
	ID, Type, Company, Account string
	Body                       []byte
	Status                     int // of the answer
}

func newReceiver(t *testing.T) *receiver {
	r := &receiver{t: t}
	r.Server = httptest.NewServer(r)
	t.Cleanup(func() {
		r.CloseClientConnections()
		r.Close()
	})
	return r
}

// events returns the part of a Caddyfile for the receiver, with short pauses.
func (r *receiver) events(more string) string {
	return fmt.Sprintf("events webhook %s {\nsecret %s\nretry 100ms\ntimeout 500ms\n%s\n}\n", r.URL, eventsSecret, more)
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	body, err := io.ReadAll(q.Body)
	if err != nil {
		return
	}
	want := signature(eventsSecret, q.Header, string(body))
	if !slices.Contains(strings.Split(q.Header.Get("webhook-signature"), " "), want) {
		r.t.Errorf("webhook-signature is %q, want %q", q.Header.Get("webhook-signature"), want)
	}
	checkMessage(r.t, body)
	var event struct {
		Type string
		Data struct {
			Company string `json:"company_code"`
			Account string `json:"profile_mnemocode"`
		}
	}
	if err := json.Unmarshal(body, &event); err != nil {
		r.t.Errorf("the body %s: %v", body, err)
	}
	e := told{q.Header.Get("webhook-id"), event.Type, event.Data.Company, event.Data.Account, body, http.StatusNoContent}
	r.mu.Lock()
	does := r.does
	r.mu.Unlock()
	if does != nil {
		e.Status = does(e) // this may take a while
	}
	r.mu.Lock()
	r.tries = append(r.tries, e)
	r.mu.Unlock()
	if e.Status != http.StatusNoContent && r.retryAfter != "" {
		w.Header().Set("Retry-After", r.retryAfter)
	}
	w.WriteHeader(e.Status)
}

// behave sets how the receiver answers from now on; nil means correctly.
func (r *receiver) behave(does func(told) int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.does = does
}

func down(told) int { return http.StatusServiceUnavailable }

// all returns the delivery attempts so far.
func (r *receiver) all() []told {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.tries)
}

// taken returns the accepted events of an account, in the order of their first
// delivery.
func (r *receiver) taken(account string) []told {
	var taken []told
	for _, e := range r.all() {
		if e.Account == account && e.Status == http.StatusNoContent &&
			!slices.ContainsFunc(taken, func(other told) bool { return other.ID == e.ID }) {
			taken = append(taken, e)
		}
	}
	return taken
}

func (r *receiver) types(account string) string {
	var types []string
	for _, e := range r.taken(account) {
		types = append(types, e.Type)
	}
	return strings.Join(types, " ")
}

// hears waits until exactly these events of an account were accepted.
func (r *receiver) hears(account, types string) {
	r.t.Helper()
	defer func() {
		if r.t.Failed() {
			r.t.Logf("%s: %s", account, r.types(account))
		}
	}()
	storetest.Eventually(r.t, 10*time.Second, types+" of "+account, func() bool { return r.types(account) == types })
}

// A backend receives an event for each change, and no others.
func TestABackendHearsOfItsAccounts(t *testing.T) {
	t.Parallel()
	r, provider := newReceiver(t), newGateway(t)
	s := startNodes(t, siteConfig{
		company: roomy + disclaimers + r.events("") + provider.provider(1, "link_verified_email") +
			account("alice", "phone +37060000001\nemail alice@example.com"),
		more: "company quiet {\napi_key off\ncaptcha off\n}\n",
	})
	r.hears("alice", "account.created")
	s.post("auth/checkcredentials", "", fields{"login_id": "alice", "password": testPassword, "accept_disclaimers": []string{"terms", "privacy"}}).wantState(record.Authorized)
	s.login("alice") // sends no event
	r.hears("alice", "account.created disclaimers.accepted")
	s.admin("PATCH", "accounts/alice", fields{"role": "editor", "primary_phone": "+37060000002"}).wantStatus(200)
	s.admin("PATCH", "accounts/alice", fields{"role": "editor"}).wantStatus(200) // changes nothing
	s.admin("PATCH", "accounts/alice", fields{"password": testPassword + "!"}).wantStatus(200)
	s.admin("PATCH", "accounts/alice", fields{"must_set_password": true}).wantStatus(200)
	s.admin("PATCH", "accounts/alice", fields{"password": testPassword}).wantStatus(200) // clears must_set_password
	s.admin("PATCH", "accounts/alice", fields{"password": testPassword, "must_set_password": false, "role": ""}).wantStatus(200)
	for range 10 {
		s.post("auth/checkcredentials", "", fields{"login_id": "alice", "password": "wrong"}).want(wire.ErrCredentialsInvalid)
	}
	s.admin("POST", "accounts/alice/unlock", nil).wantStatus(200)
	s.post("auth/oauth", "", fields{"provider_id": 1, "code": codeOf("alice"), "redirect_uri": callback}).wantState(record.Authorized)
	recovery := s.post("auth/recovery/recover", "", fields{"login_id": "alice", "captcha_response": "any", "method": "PHONE"}).token()
	setting := s.post("auth/recovery/checkotp", recovery, fields{"otp": s.sms.last("otp.recovery", "code")}).token()
	s.post("auth/setpassword", setting, fields{"new_password": "a much better secret"}).wantState(record.None)
	s.admin("POST", "accounts/alice/backup-codes", nil).wantStatus(200)
	s.admin("DELETE", "accounts/alice", nil)
	s.admin("POST", "accounts", fields{"profile_mnemocode": "alice", "login_name": "alice"}).wantStatus(201)
	s.admin("PATCH", "accounts/alice", fields{"profile_mnemocode": "bob"}).wantStatus(200)
	s.audits(1, `"msg":"mnemogate.account.changed","company":"acme","mnemocode":"bob","actor":"admin endpoint","reason":"profile_mnemocode","previous_mnemocode":"alice"`)
	s.admin("POST", "accounts", fields{"profile_mnemocode": "alice", "login_name": "again"}).wantStatus(201)
	s.admin("POST", "accounts", fields{"profile_mnemocode": "alice"}).wantStatus(409)
	s.adminRaw("POST", "quiet/accounts", `{"profile_mnemocode":"nobody"}`).wantStatus(201)
	s.admin("POST", "accounts", fields{"profile_mnemocode": "carol", "primary_email": "carol@example.com"}).wantStatus(201)
	s.admin("POST", "accounts/carol/welcome", nil).wantStatus(202)
	_, link, _ := strings.Cut(s.sms.last("welcome.link", "link"), "#")
	welcomed := s.post("auth/recovery/checklink", "", fields{"token": link}).wantState(record.RecoveryPassword).token()
	s.post("auth/setpassword", welcomed, fields{"new_password": "a much better secret"}).wantStatus(200)
	r.hears("carol", "account.created welcome.used contact.verified password.changed recovery.completed")
	r.hears("alice", "account.created disclaimers.accepted account.changed password.changed "+
		"account.changed password.changed account.changed password.changed account.locked account.unlocked identity.bound "+
		"contact.verified password.changed recovery.completed account.changed account.deleted account.created account.created")
	r.hears("bob", "account.changed")
	r.hears("nobody", "")
	r.wantSamples(t)
	for _, e := range r.all() {
		for _, secret := range []string{testPassword, "better secret", "argon2id", "example.com", "+370"} {
			if strings.Contains(string(e.Body), secret) {
				t.Errorf("an event holds %s: %s", secret, e.Body)
			}
		}
	}
}

// wantSamples checks that the receiver got what docs/backends.md shows.
func (r *receiver) wantSamples(t *testing.T) {
	t.Helper()
	shown := section(t, "docs/backends.md", "Learning that an account changed")
	withoutTimes := func(text string) string {
		var event fields
		if err := json.Unmarshal([]byte(text), &event); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		at := func(in fields, field string) {
			if moment, ok := in[field].(string); ok {
				if _, err := time.Parse(time.RFC3339, moment); err != nil {
					t.Errorf("%s: %v", text, err)
				}
				in[field] = "a time"
			}
		}
		at(event, "timestamp")
		at(event["data"].(fields), "locked_until")
		plain, _ := json.Marshal(event)
		return string(plain)
	}
	received := map[string]bool{}
	for _, e := range r.all() {
		received[withoutTimes(string(e.Body))] = true
	}
	missing := slices.Clone(record.OutboxTypes)
	for _, block := range blocks(shown, "json") {
		for line := range strings.Lines(block) {
			if !received[withoutTimes(line)] {
				t.Errorf("docs/backends.md shows what was not received: %s", line)
			}
			missing = slices.DeleteFunc(missing, func(kind string) bool { return strings.Contains(line, `"`+kind+`"`) })
		}
	}
	if len(missing) > 0 {
		t.Errorf("docs/backends.md shows no %s", strings.Join(missing, ", "))
	}
}

// A receiver that is down, hangs or refuses the events of one account delays nothing
// else. It gets all events once it accepts them.
func TestAReceiverThatIsDownHoldsUpNothing(t *testing.T) {
	t.Parallel()
	bad, good := newReceiver(t), newReceiver(t)
	hanging := make(chan bool)
	bad.behave(func(e told) int {
		switch e.Account {
		case "poison":
			return http.StatusBadRequest
		case "slow":
			<-hanging
		}
		return http.StatusNoContent
	})
	s := startNodes(t, siteConfig{
		global: roomy + good.events(""), company: bad.events("") + account("alice", ""),
		more: "company other {\napi_key off\n}\ncompany third {\napi_key off\nevents off\n}\n",
	})
	one := s.nodes[0]
	for _, name := range []string{"poison", "slow", "fine"} {
		s.admin("POST", "accounts", fields{"profile_mnemocode": name}).wantStatus(201)
		s.admin("PATCH", "accounts/"+name, fields{"role": "editor"}).wantStatus(200)
		s.adminRaw("POST", "other/accounts", `{"profile_mnemocode":"`+name+`"}`).wantStatus(201)
		s.adminRaw("POST", "third/accounts", `{"profile_mnemocode":"`+name+`"}`).wantStatus(201)
	}
	bad.hears("fine", "account.created account.changed")
	good.hears("poison", "account.created")
	good.hears("slow", "account.created")
	s.timely(func() answer { return s.credentials("alice", testPassword) }).wantState(record.Authorized)
	for _, node := range s.nodes {
		storetest.Eventually(t, 15*time.Second, "backlog in the metrics", func() bool {
			return node.scrape()[`mnemogate_outbox_events{company="acme"}`] == 4
		})
		if age := node.scrape()[`mnemogate_outbox_oldest_seconds{company="acme"}`]; age <= 0 {
			t.Errorf("the oldest event is %v s old", age)
		}
		watch := storetest.StartWatch()
		if err := node.load(); err != nil {
			t.Error(err)
		}
		if took := watch.Took(); took > 3*time.Second {
			t.Errorf("a reload took %v", took)
		}
	}
	tells := func(o outcome) bool {
		return o.is(o.exit, "acme: events", "waiting events: 4", "its appendonly is off", "set appendonly yes")
	}
	if o := s.doctorUntil(tells); !tells(o) {
		t.Errorf("doctor does not tell of the events that wait and of what Redis may lose:\n%s", o.out)
	}
	watch := storetest.StartWatch()
	one.stop(syscall.SIGTERM)
	if took := watch.Took(); took > 3*time.Second {
		t.Errorf("to stop took %v", took)
	}
	one.start()
	bad.hears("poison", "")
	bad.behave(nil)
	close(hanging)
	bad.hears("poison", "account.created account.changed")
	bad.hears("slow", "account.created account.changed")
	bad.wantSameIDs(t)
	if strings.Contains(good.types("alice"), "a") {
		t.Error("a company's events went to the app's receiver, too")
	}
}

// wantSameIDs checks that all attempts of an event have the same id and body, and
// that no two events share them.
func (r *receiver) wantSameIDs(t *testing.T) (tries map[string]int) {
	t.Helper()
	ids, bodies := map[string]string{}, map[string]string{}
	tries = map[string]int{}
	for _, e := range r.all() {
		body := string(e.Body)
		if other, seen := bodies[e.ID]; seen && other != body {
			t.Errorf("%s is the id of %s and of %s", e.ID, other, body)
		}
		if other, seen := ids[body]; seen && other != e.ID {
			t.Errorf("%s was sent as %s and as %s", body, other, e.ID)
		}
		ids[body], bodies[e.ID] = e.ID, body
		tries[e.ID]++
	}
	return tries
}

var waitingEvents = flag.Int("events", fewer(10_000), "how many events wait in TestManyEventsWait")

// However many events wait, all arrive, and those of an account in order.
//
//	go test ./caddymodule/integration -run ManyEventsWait -v
func TestManyEventsWait(t *testing.T) {
	t.Parallel()
	onEachDeployment(t, func(t *testing.T, start starter) {
		t.Parallel()
		r := newReceiver(t)
		r.behave(down)
		s := start(t, siteConfig{company: roomy + r.events("") + account("alice", "")})
		const accounts = 100
		each := *waitingEvents / accounts
		began := time.Now()
		db := s.accounts()
		const writers = 4
		storetest.Together(writers, func(first int) (none bool) {
			for i := first; i < accounts; i += writers {
				name := fmt.Sprint("user", i)
				var all []record.OutboxEvent
				for n := range each {
					body := fmt.Sprintf(`{"type":"account.changed","timestamp":"2026-11-22T15:04:05Z","data":{"company_code":"acme","profile_mnemocode":%q,"fields":["%d"]}}`, name, n)
					all = append(all, record.OutboxEvent{ID: fmt.Sprint(name, "/", n), Type: "account.changed", At: time.Now(), Body: []byte(body), Queue: name})
				}
				a := record.Account{Company: "acme", Mnemocode: name, Status: record.StatusActive}
				id, err := db.Create(t.Context(), time.Now(), a)
				for some := range slices.Chunk(all, 20) {
					if err != nil {
						break
					}
					for range 5 { // a busy machine may not answer in time
						_, err = db.Update(t.Context(), "acme", id, func(a *record.Account) (bool, error) {
							a.Role += "x"
							a.Outbox = some
							return false, nil
						})
						if err == nil {
							break
						}
					}
				}
				if err != nil {
					t.Error(err)
				}
			}
			return none
		})
		written := time.Since(began)
		storetest.Eventually(t, 10*time.Second, "try of each queue", func() bool { return len(r.all()) >= accounts })
		s.credentials("alice", testPassword).wantState(record.Authorized)
		began = time.Now()
		r.behave(nil)
		storetest.Eventually(t, 60*time.Second, "end of the backlog", func() bool { return s.backlog() == 0 })
		t.Logf("%d events were written in %v and delivered in %v", each*accounts, written, time.Since(began))
		for i := range accounts {
			taken := r.taken(fmt.Sprint("user", i))
			if len(taken) != each {
				t.Fatalf("user%d: %d events came, want %d; %d came in all, and %d wait", i, len(taken), each, len(r.all()), s.backlog())
			}
			for n, e := range taken {
				if want := fmt.Sprint("user", i, "/", n); e.ID != want {
					t.Fatalf("user%d: event %d is %s, want %s", i, n, e.ID, want)
				}
			}
		}
		r.wantSameIDs(t)
	})
}

// backlog returns the number of acme's events that wait.
func (s *site) backlog() int {
	s.t.Helper()
	if s.outbox == nil {
		s.outbox = s.accounts()
	}
	all, err := s.outbox.Backlogs(s.t.Context())
	must(s.t, err)
	for _, b := range all {
		if b.Company == "acme" {
			return b.Events
		}
	}
	return 0
}

var eventKills = flag.Int("eventkills", 2, "how often TestKilledNodesLoseNoEvent kills a node of each deployment; 200 for a thorough run")

// Nodes are killed while accounts change and their events are delivered. The backend
// receives each acknowledged change, in order, possibly twice.
//
//	go test ./caddymodule/integration -run KilledNodesLoseNoEvent -v -eventkills 200 -timeout 1h
func TestKilledNodesLoseNoEvent(t *testing.T) {
	t.Parallel()
	onEachDeployment(t, func(t *testing.T, start starter) {
		t.Parallel()
		r := newReceiver(t)
		r.behave(func(told) int {
			if rand.IntN(10) == 0 {
				return http.StatusBadGateway
			}
			return http.StatusNoContent
		})
		s := start(t, siteConfig{company: roomy + r.events("")})
		nodes := s.all()
		const accounts = 8
		acknowledged := make([][]string, accounts) // mnemocodes of m0, m1, …, in order
		for i := range accounts {
			name := fmt.Sprint("m", i, "-0")
			nodes[0].admin("POST", "accounts", fields{"profile_mnemocode": name}).wantStatus(201)
			acknowledged[i] = []string{name}
		}
		for range *eventKills {
			victim := nodes[rand.IntN(len(nodes))]
			stop := make(chan struct{})
			var writers sync.WaitGroup
			for i := range accounts {
				writers.Go(func() {
					for {
						select {
						case <-stop:
							return
						default:
						}
						names := acknowledged[i]
						next := fmt.Sprint("m", i, "-", len(names))
						a, err := nodes[i%len(nodes)].tryAdmin("PATCH", "acme/accounts/"+names[len(names)-1], `{"profile_mnemocode":"`+next+`"}`)
						if err != nil || a.Status == http.StatusServiceUnavailable {
							return // the node was killed, or a store was late; what was done is checked below
						}
						if a.Status != http.StatusOK {
							t.Errorf("got %d %s", a.Status, a.Body)
							return
						}
						acknowledged[i] = append(names, next)
					}
				})
			}
			time.Sleep(time.Duration(100+rand.IntN(400)) * time.Millisecond)
			victim.stop(syscall.SIGKILL)
			close(stop)
			writers.Wait()
			victim.startAgain()
			for i, names := range acknowledged { // the last change may have been done
				next := fmt.Sprint("m", i, "-", len(names))
				storetest.Eventually(t, 20*time.Second, "answer about "+next, func() bool {
					a := nodes[0].admin("GET", "accounts/"+next, nil)
					if a.Status == http.StatusOK {
						acknowledged[i] = append(names, next)
					}
					return a.Status == http.StatusOK || a.Status == http.StatusNotFound
				})
			}
		}
		storetest.Eventually(t, 30*time.Second, "end of the backlog", func() bool { return s.backlog() == 0 })
		total, twice := 0, 0
		for i, names := range acknowledged {
			var got []string
			for _, e := range r.all() {
				if strings.HasPrefix(e.Account, fmt.Sprint("m", i, "-")) && e.Status == http.StatusNoContent && !slices.Contains(got, e.Account) {
					got = append(got, e.Account)
				}
			}
			if !slices.Equal(got, names) {
				t.Errorf("account %d: got %v, want %v", i, got, names)
			}
			total += len(names)
		}
		for _, n := range r.wantSameIDs(t) {
			if n > 1 {
				twice++
			}
		}
		t.Logf("%d kills: all of %d events came, %d of them in more than one try", *eventKills, total, twice)
	})
}

// A receiver that answers 410 gets no more events until a reload. They wait.
func TestAReceiverThatIsGone(t *testing.T) {
	t.Parallel()
	r := newReceiver(t)
	patient := newReceiver(t)
	config := siteConfig{company: r.events("") + "captcha off", more: "company umbra {\napi_key other-key\ncaptcha off\n" + strings.Replace(patient.events(""), "500ms", "20s", 1) + "}\n"}
	s := startSite(t, config)
	s.run("one that asks for time", func(t *testing.T) { aReceiverAsksForTime(t, s, patient) })
	r.behave(func(told) int { return http.StatusGone })
	const gone = `mnemogate_outbox_deliveries_total{company="acme",result="gone"}`
	if n, ok := s.scrape()[gone]; n != 0 || !ok { // or the first would be no increase
		t.Errorf("before: %s is %v, %v", gone, n, ok)
	}
	s.admin("POST", "accounts", fields{"profile_mnemocode": "alice"}).wantStatus(201)
	s.eventually("the alert's metric", func() bool {
		return s.scrape()[gone] > 0
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
func aReceiverAsksForTime(t *testing.T, s *site, r *receiver) {
	r.retryAfter = "2"
	var tries []time.Time
	r.behave(func(told) int {
		if tries = append(tries, time.Now()); len(tries) == 1 {
			return http.StatusServiceUnavailable
		}
		return http.StatusNoContent
	})
	s.adminRaw("POST", "umbra/accounts", `{"profile_mnemocode":"alice"}`).wantStatus(201)
	r.hears("alice", "account.created")
	if len(tries) < 2 || tries[1].Sub(tries[0]) < 2*time.Second {
		t.Errorf("it was asked at %v", tries)
	}
}

// The receiver of docs/examples/events accepts the events. The library of Standard
// Webhooks verifies them with either of two secrets.
func TestTheExampleReceivesEvents(t *testing.T) {
	t.Parallel()
	storetest.NeedPeers(t, peersDir)
	program := string(get(os.ReadFile("../../docs/examples/events/receiver.mjs"))(t))
	const newerSecret = "whsec_YSBuZXdlciBzZWNyZXQgb2YgdGhlIGV2ZW50cw=="
	olderURL, older := runReceiver(t, program, "EVENTS_SECRET="+eventsSecret)
	newerURL, newer := runReceiver(t, program, "EVENTS_SECRET="+newerSecret)
	sends := func(url string) string {
		return roomy + account("alice", "") + fmt.Sprintf("events webhook %s {\nsecret %s %s\nretry 100ms\n}\n", url, newerSecret, eventsSecret)
	}
	s := startSite(t, siteConfig{company: sends(olderURL), more: "company umbra {\napi_key other-key\n" + sends(newerURL) + "}\n"})
	for _, c := range []struct {
		company, url, secret string
		out                  io.Reader
	}{{"acme", olderURL, eventsSecret, older}, {"umbra", newerURL, newerSecret, newer}} {
		s.adminRaw("PATCH", c.company+"/accounts/alice", `{"role":"editor"}`).wantStatus(200)
		s.adminRaw("DELETE", c.company+"/accounts/alice", "").wantStatus(204)
		lines := bufio.NewReader(c.out)
		for _, want := range []string{"account.created alice\n", "account.changed alice\n", "account.deleted alice\n"} {
			if got, err := lines.ReadString('\n'); got != want {
				t.Fatalf("the receiver got %q, want %q: %v", got, want, err)
			}
		}
		response := get(client.Post(c.url, "application/json", strings.NewReader(`{"type":"account.deleted","data":{}}`)))(t)
		_, _ = io.Copy(io.Discard, response.Body)
		_ = response.Body.Close()
		if response.StatusCode != 401 {
			t.Errorf("an event without a signature: got %s, want 401", response.Status)
		}
		survivesStrangers(t, c.url, c.secret)
		response = get(client.Do(signedRequest(t, c.url, c.secret, "later", `{"type":"account.created","data":{}}`)))(t)
		_ = response.Body.Close()
		if response.StatusCode != 204 {
			t.Errorf("a signed event after them: got %s, want 204", response.Status)
		}
	}
}

// signedRequest returns a request to a receiver with a right signature.
func signedRequest(t *testing.T, url, secret, id, body string) *http.Request {
	t.Helper()
	r := get(http.NewRequest("POST", url, strings.NewReader(body)))(t)
	r.Header.Set("Webhook-Id", id)
	r.Header.Set("Webhook-Timestamp", fmt.Sprint(time.Now().Unix()))
	r.Header.Set("Webhook-Signature", sentHook{header: r.Header, body: body}.sign(secret))
	return r
}

// survivesStrangers sends a receiver a body that ends too soon, and one that could be of
// any length. It reads neither.
func survivesStrangers(t *testing.T, url, secret string) {
	t.Helper()
	conn := get(net.Dial("tcp", strings.TrimSuffix(strings.TrimPrefix(url, "http://"), "/")))(t)
	defer conn.Close()
	get(io.WriteString(conn, "POST / HTTP/1.1\r\nHost: receiver\r\nContent-Length: 100\r\n\r\n{"))(t)
	must(t, conn.(*net.TCPConn).CloseWrite())
	_, _ = io.Copy(io.Discard, conn) // until it knows of the end
	unlimited := signedRequest(t, url, secret, "unlimited", "{}")
	unlimited.ContentLength = -1
	response, err := client.Do(unlimited)
	if err != nil {
		t.Fatalf("after a body that ended too soon: %v", err)
	}
	_ = response.Body.Close()
	if response.StatusCode != http.StatusUnauthorized {
		t.Errorf("a body without a length: got %s, want 401", response.Status)
	}
}

// runReceiver runs a receiver in Node and returns its URL and output.
func runReceiver(t *testing.T, script string, env ...string) (url string, out io.Reader) {
	t.Helper()
	port := storetest.FreePorts(t, 1)[0]
	cmd := exec.Command("node", "--input-type=module", "--eval", script)
	cmd.Dir = peersDir
	cmd.Env = append(append(os.Environ(), fmt.Sprint("PORT=", port)), env...)
	cmd.Stderr = t.Output() // and not ours, which Node would make non-blocking: it would cut reports off
	out = get(cmd.StdoutPipe())(t)
	exited := get(storetest.Start(cmd))(t)
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-exited
	})
	return fmt.Sprintf("http://127.0.0.1:%d/", port), out
}
