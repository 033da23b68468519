package store

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"log/slog"
	"math"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/flows"
	"github.com/mnemogate/mnemogate/flows/manage"
	"github.com/mnemogate/mnemogate/flows/message"
	"github.com/mnemogate/mnemogate/flows/password"
	"github.com/mnemogate/mnemogate/flows/record"
	flowsession "github.com/mnemogate/mnemogate/flows/session"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/tokens"
	"github.com/mnemogate/mnemogate/flows/wire"
	"github.com/mnemogate/mnemogate/store/postgres"
	"github.com/mnemogate/mnemogate/store/redis"
	"github.com/mnemogate/mnemogate/store/storetest"
)

// A tripService is a Service that reaches its stores through proxies that count
// round trips.
type tripService struct {
	*flows.Service
	t               *testing.T
	company         *tenant.Company
	postgres, redis *storetest.Proxy
	sms             chan message.Message
	behind          chan time.Time // each value lets one background task run
	address         string         // the client's address
	now             time.Time
}

// Send implements message.Sender.
func (s *tripService) Send(_ context.Context, m message.Message) error {
	s.sms <- m
	return nil
}

func newTripService(t *testing.T) *tripService {
	pg, rd := storetest.SharedPostgres(t), storetest.StartRedis(t)
	s := &tripService{
		t:        t,
		postgres: storetest.NewProxy(t, "unix", pg.Socket()),
		redis:    storetest.NewProxy(t, "unix", rd.Socket()),
		sms:      make(chan message.Message, 1),
		behind:   make(chan time.Time),
		address:  "192.0.2.1",
		now:      t0,
	}
	// One connection, so that no statement is prepared twice.
	p := startPostgres(t, pg.DSNThrough(s.postgres, pg.NewSchema(t)), postgres.Options{MaxConns: 1})
	r := patientRedis(t, redis.Options{URLs: []string{"redis://" + s.redis.Addr()}})
	policy := tenant.DefaultPolicy()
	policy.Password.Argon2id = password.Argon2id{MemoryKiB: 64, Iterations: 1, Parallelism: 1}
	policy.Recovery.Methods = []tenant.Method{tenant.ByPhone}
	s.company = &tenant.Company{Code: "acme", NoAPIKey: true, SMS: s, Texts: message.DefaultTexts(), Policy: policy}
	s.Service = &flows.Service{Manager: flowsession.New(&flowsession.Config{
		Accounts:  p.Accounts(),
		Sessions:  r.Sessions(),
		Companies: map[string]*tenant.Company{"acme": s.company},
		Hasher:    password.NewHasher(1),
		Log:       slog.New(slog.DiscardHandler),
		Now:       func() time.Time { return s.now },
		After:     func(time.Duration) <-chan time.Time { return s.behind },
	})}
	t.Cleanup(s.Close)
	return s
}

func (s *tripService) seed(seed manage.Seed) {
	s.t.Helper()
	seed.Status = record.StatusActive
	must(s.t, (&manage.Admin{Manager: s.Manager, Company: s.company}).Seed(bg, seed))
}

// serve makes a request, with the token if it is not empty.
func (s *tripService) serve(path, token string, body map[string]string) (flows.Reply, error) {
	raw, _ := json.Marshal(body)
	r := &flows.Request{Company: "acme", Route: flows.RouteByPath(path), Client: flowsession.Client{Address: s.address}, Body: func() ([]byte, error) { return raw, nil }}
	if token != "" {
		r.Authorization = []string{"Bearer " + token}
	}
	return s.Serve(bg, r)
}

func (s *tripService) must(path, token string, body map[string]string) flows.Reply {
	s.t.Helper()
	return get[flows.Reply](s.t)(s.serve(path, token, body))
}

// trips returns the number of round trips that f makes, without those of background
// tasks and of reading the secrets. It takes the minimum of several runs, because a run may have to open or
// check a connection.
func (s *tripService) trips(f func()) int {
	least := math.MaxInt
	for range 5 {
		s.now = s.now.Add(48 * time.Hour)      // resets all budgets
		_ = get[*tokens.Keys](s.t)(s.Keys(bg)) // a node reads the secrets every few seconds
		before := s.postgres.Trips() + s.redis.Trips()
		f()
		least = min(least, s.postgres.Trips()+s.redis.Trips()-before)
		s.finish()
	}
	return least
}

// finish lets all background tasks run.
func (s *tripService) finish() {
	for s.Waiting() > 0 {
		select {
		case s.behind <- s.now:
		case <-s.sms:
		case <-time.After(time.Millisecond): // there may be no more of either
		}
	}
}

func TestASMSLoginTakesSixRoundTrips(t *testing.T) {
	s := newTripService(t)
	s.seed(manage.Seed{Account: record.Account{Mnemocode: "m1", Phone: "+37060012345"}})
	login := s.trips(func() {
		s.must("auth/login", "", map[string]string{"login_id": "+37060012345"})
		<-s.sms
	})
	wantEqual(t, "auth/login", login, 2)
	whole := s.trips(func() {
		token := s.must("auth/login", "", map[string]string{"login_id": "+37060012345"}).SessionToken
		reply := s.must("auth/checkotp", token, map[string]string{"otp": (<-s.sms).Code})
		wantEqual(t, "state", reply.SessionState, record.Authorized)
	})
	wantEqual(t, "the whole login", whole, 6)
}

func TestAPasswordLoginTakesSixRoundTrips(t *testing.T) {
	s := newTripService(t)
	s.seed(manage.Seed{Account: record.Account{Mnemocode: "m1", LoginName: "alice"}, Password: "correct horse battery"})
	for _, address := range []string{"192.0.2.1", "2001:db8::1"} {
		s.address = address
		trips := s.trips(func() {
			s.must("auth/checkcredentials", "", map[string]string{"login_id": "alice", "password": "correct horse battery"})
		})
		wantEqual(t, "auth/checkcredentials from "+address, trips, 6)
	}
}

// A key takes one round trip before the answer, and one after it, for which the client does not wait.
func TestAnIdempotencyKeyTakesOneRoundTrip(t *testing.T) {
	s := newTripService(t)
	s.seed(manage.Seed{Account: record.Account{Mnemocode: "m1", LoginName: "alice"}, Password: "correct horse battery"})
	login := func() {
		s.must("auth/checkcredentials", "", map[string]string{"login_id": "alice", "password": "correct horse battery"})
	}
	without := s.trips(login)
	var keep func()
	with := s.trips(func() {
		_, replayed, err := s.Once(bg, flows.Repeatable{
			Key: rand.Text(), Route: "r", Address: s.address, KeepFor: time.Minute, Later: func(f func()) { keep = f },
		}, func(context.Context) []byte { login(); return []byte("answer") })
		if must(t, err); replayed {
			t.Error("it was replayed")
		}
	})
	wantEqual(t, "the round trips of a login with a key", with, without+1)
	wantEqual(t, "the round trips after its answer", s.trips(func() { keep() }), 1)
}

// The time of an answer must not reveal whether an account exists either.
func TestWhatIsUnknownTakesAsManyRoundTrips(t *testing.T) {
	s := newTripService(t)
	s.seed(manage.Seed{Account: record.Account{Mnemocode: "m1", Phone: "+37060012345"}, Password: "correct horse battery"})
	s.seed(manage.Seed{Account: record.Account{Mnemocode: "m2", LoginName: "phoneless"}, Password: "correct horse battery"})
	known, phoneless, unknown := "+37060012345", "phoneless", "nobody"
	same := func(what string, loginIDs []string, f func(loginID string)) {
		t.Helper()
		want := s.trips(func() { f(loginIDs[0]) })
		for _, id := range loginIDs[1:] {
			wantEqual(t, what+" of "+id, s.trips(func() { f(id) }), want)
		}
	}
	login := func(id string) flows.Reply {
		reply, _ := s.serve("auth/login", "", map[string]string{"login_id": id})
		return reply
	}
	same("auth/login", []string{known, unknown}, func(id string) { login(id) })
	same("auth/checkcredentials", []string{known, unknown}, func(id string) {
		wantErr(t, id, second(s.serve("auth/checkcredentials", "", map[string]string{"login_id": id, "password": "wrong"})), wire.ErrCredentialsInvalid)
	})

	s.company.Hardened = true
	same("auth/checkpassword", []string{known, unknown}, func(id string) {
		wantErr(t, id, second(s.serve("auth/checkpassword", login(id).SessionToken, map[string]string{"password": "wrong"})), wire.ErrPasswordInvalid)
	})
	recovered := func(id string) string {
		return s.must("auth/recovery/recover", "", map[string]string{"login_id": id, "captcha_response": "x"}).SessionToken
	}
	same("auth/recovery/recover", []string{known, phoneless, unknown}, func(id string) { recovered(id) })
	same("auth/recovery/checkotp", []string{known, phoneless, unknown}, func(id string) {
		wantErr(t, id, second(s.serve("auth/recovery/checkotp", recovered(id), map[string]string{"otp": "000000"})), wire.ErrOTPInvalid)
	})
	same("auth/recovery/renewotp", []string{known, phoneless, unknown}, func(id string) {
		s.must("auth/recovery/renewotp", recovered(id), map[string]string{})
	})
}

// A change reads what it depends on in one round trip, and writes and commits in another,
// with whatever it has to write.
func TestAChangeOfAnAccountTakesTwoRoundTrips(t *testing.T) {
	s := newTripService(t)
	accounts, kind := s.Accounts, record.WrongCodes
	events := []record.OutboxEvent{note("m1", "1"), note("m1", "2")}
	var a record.Account
	changes := map[string]func() error{
		"SetPassword": func() error {
			return accounts.SetPassword(bg, t0, a, "hash", record.TokenHash{}, events...)
		},
		"Accept": func() error {
			return accounts.Accept(bg, "acme", a.ID, []record.Acceptance{{Code: "a"}, {Code: "b"}}, events...)
		},
		"SetBackupCodes": func() error { return accounts.SetBackupCodes(bg, a, []string{"1", "2", "3"}, events...) },
		"Delete":         func() error { return accounts.Delete(bg, "acme", a.ID, nil, events...) },
		"UpdateFailures": func() error {
			return accounts.UpdateFailures(bg, t0, record.FailureKey{Company: "acme", Account: a.ID}, kind, func(c *record.FailureCount) error {
				c.Count, c.Outbox = c.Count+1, events
				return nil
			})
		},
	}
	for name, change := range changes {
		least := math.MaxInt
		for i := range 5 {
			a = create(t, accounts, plain("acme", fmt.Sprint(name, i)))
			must(t, accounts.UpdateFailures(bg, t0, record.FailureKey{Company: "acme", Account: a.ID}, kind, add(1)))
			before := s.postgres.Trips()
			must(t, change())
			least = min(least, s.postgres.Trips()-before)
		}
		wantEqual(t, name, least, 2)
	}
}
