package integration

import (
	"cmp"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/flows/password"
	"github.com/mnemogate/mnemogate/flows/record"
)

const fewSamples = 8

var samples = flag.Int("samples", fewSamples, "how many requests of each kind TestTiming measures")

// Pairs of requests whose answers must be indistinguishable, sent in random order.
// The test checks that the answers are equal. It only reports how long they took,
// because the times on a busy machine vary:
//
//	go test ./caddymodule/integration -run Timing -v -samples 1000
//
// Hashing is very cheap here, so that other differences show. An effect of 0.5 means
// that a request of the first kind is as often slower than one of the second as it
// is faster. With 1,000 samples of each kind, chance rarely moves it by more
// than 0.03.
func TestTiming(t *testing.T) {
	t.Parallel()
	if *samples == fewSamples { // the stores have no part in what is equal
		timing(t, startSite)
		return
	}
	onEachDeployment(t, timing)
}

func timing(t *testing.T, start starter) {
	const policy = `
		captcha off
		limits {
			failures_per_address 1000000/5m
			logins_per_address 1000000/1m
			sms_per_address 1000000/1h
			sms_per_account 1000/10m
			sms_per_phone 1000/24h
			mails_per_account 1000/1h
		}
	`
	const otherKey = "another-key"
	s := start(t, siteConfig{global: policy, company: "devices 90d", more: `
		company hard {
			api_key ` + testKey + `
			hardened
		}
		company other {
			api_key ` + otherKey + `
			` + account("alice", "") + `
		}`})
	node := s.all()[0]
	pool := (*samples + 3) / 4 // each account is used a few times and never locked
	for _, company := range []string{"acme", "hard"} {
		s.createKinds(company, pool)
	}
	post := func(company, key, route string, body func(i int) fields) func(int) *http.Request {
		return func(i int) *http.Request { return node.postRequest(company, key, route, "", body(i%pool)) }
	}
	credentials := func(company, who string) func(int) *http.Request {
		return post(company, testKey, "auth/checkcredentials", func(i int) fields {
			return fields{"login_id": fmt.Sprintf("%s-%d@example.com", who, i), "password": "a wrong password"}
		})
	}
	device := func(who string) func(int) *http.Request {
		return post("acme", testKey, "auth/checkcredentials", func(i int) fields {
			return fields{
				"login_id": fmt.Sprintf("%s-%d@example.com", who, i), "password": "a wrong password",
				"device_token": "mgd_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
			}
		})
	}
	recovery := func(who, method string) func(int) *http.Request {
		return post("hard", testKey, "auth/recovery/recover", func(i int) fields {
			return fields{"login_id": fmt.Sprintf("%s-%d@example.com", who, i), "captcha_response": "any", "method": method}
		})
	}
	login := func(who string) func(int) *http.Request {
		return post("hard", testKey, "auth/login", func(i int) fields {
			return fields{"login_id": fmt.Sprintf("%s-%d@example.com", who, i)}
		})
	}
	key := func(company, key string) func(int) *http.Request {
		return post(company, key, "auth/login", func(int) fields { return nil })
	}
	token := func(route bool, token string) func(int) *http.Request {
		return func(int) *http.Request {
			if route {
				return node.postRequest("acme", testKey, "auth/checkpassword", token, nil)
			}
			return node.getRequest("/acme/", token)
		}
	}
	unknown := "mgs_" + "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
	pending := node.postTo("other", otherKey, "auth/login", "", fields{"login_id": "alice"}).token()
	authorized := node.postTo("other", otherKey, "auth/checkcredentials", "", fields{"login_id": "alice", "password": testPassword}).token()

	pairs := []*timingPair{
		{name: "checkcredentials: known, unknown", ask: kinds{credentials("acme", "open"), credentials("acme", "nobody")}},
		{name: "checkcredentials, with a device's token: known, unknown", ask: kinds{device("open4"), device("nobody4")}},
		{name: "checkcredentials: open, closed", ask: kinds{credentials("acme", "open2"), credentials("acme", "closed")}},
		{name: "checkcredentials: with, without password", ask: kinds{credentials("acme", "open3"), credentials("acme", "bare")}},
		{name: "checkcredentials, hardened: known, unknown", ask: kinds{credentials("hard", "open"), credentials("hard", "nobody")}},
		{name: "login, hardened: known, unknown", ask: kinds{login("open2"), login("nobody2")}},
		{name: "recover by PHONE, hardened: known, unknown", ask: kinds{recovery("open3", "PHONE"), recovery("nobody3", "PHONE")}},
		{name: "recover by MAIL, hardened: known, unknown", ask: kinds{recovery("open4", "MAIL"), recovery("nobody4", "MAIL")}},
		{name: "API key: wrong, of an unknown company", ask: kinds{key("acme", "wrong-api-key"), key("none", "wrong-api-key")}},
		{name: "API key: wrong, another company's", ask: kinds{key("acme", "another-kez"), key("acme", otherKey)}},
		{name: "API key: nearly right, wrong", ask: kinds{key("acme", testKey[:len(testKey)-1]+"z"), key("acme", "zest-api-key")}},
		{name: "token on a route: unknown, another company's", ask: kinds{token(true, unknown), token(true, pending)}},
		{name: "token on a protected path: unknown, another company's", ask: kinds{token(false, unknown), token(false, authorized)}},
	}
	var order []func()
	for _, p := range pairs {
		for kind := range p.ask {
			for i := range *samples {
				order = append(order, func() { p.measure(node, kind, i) })
			}
		}
	}
	rand.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	for _, measure := range order {
		measure()
	}
	for _, p := range pairs {
		if len(p.took[0]) == 0 || len(p.took[1]) == 0 {
			t.Fatalf("%s: nothing was answered", p.name)
		}
		one, other := median(p.took[0]), median(p.took[1])
		t.Logf("%-54s %d and %d samples, medians %8v %8v, difference %8v, effect %.3f", p.name,
			len(p.took[0]), len(p.took[1]), one.Round(time.Microsecond), other.Round(time.Microsecond), (one - other).Round(time.Microsecond), effectOf(p.took[0], p.took[1]))
	}
}

type kinds [2]func(i int) *http.Request

// A timingPair is two kinds of requests that must get the same answer.
type timingPair struct {
	name  string
	ask   kinds
	took  [2][]time.Duration
	first string // the answer to the first request that was measured
}

func (p *timingPair) measure(s *site, kind, i int) {
	s.t.Helper()
	r := p.ask[kind](i)
	began := time.Now()
	a := s.do(r)
	took := time.Since(began)
	if a.Status == http.StatusServiceUnavailable {
		return // the machine is too busy for a sample
	}
	p.took[kind] = append(p.took[kind], took)
	got := fmt.Sprint(a.Status, a.str("error_code"), a.str("session_state"), a.str("verification"), len(a.JSON))
	if p.first = cmp.Or(p.first, got); got != p.first || a.Status >= 500 {
		s.t.Fatalf("%s: one is answered %s, another %d %s", p.name, p.first, a.Status, a.Body)
	}
}

// createKinds creates n accounts of each of several kinds in a company.
func (s *site) createKinds(company string, n int) {
	s.t.Helper()
	hash := get(password.NewHasher(1).Hash(s.t.Context(), password.Turn{Company: company}, password.Argon2id{MemoryKiB: 64, Iterations: 1, Parallelism: 1}, testPassword))(s.t)
	accounts := s.accounts()
	var all sync.WaitGroup
	several := make(chan struct{}, 8) // as many concurrent requests as a node has connections
	for k, sort := range []string{"open", "open2", "open3", "open4", "closed", "bare"} {
		for i := range n {
			a := record.Account{
				Company: company, Mnemocode: fmt.Sprintf("%s-%d", sort, i), Email: fmt.Sprintf("%s-%d@example.com", sort, i),
				Phone: fmt.Sprintf("+37061%d%05d", k, i), Status: record.StatusActive, PasswordHash: hash,
			}
			switch sort {
			case "closed":
				a.Status = record.StatusClosed
			case "bare":
				a.PasswordHash = ""
			}
			several <- struct{}{}
			all.Go(func() {
				defer func() { <-several }()
				if _, err := accounts.Create(s.t.Context(), time.Now(), a); err != nil {
					s.t.Error(err)
				}
			})
		}
	}
	all.Wait()
	if s.t.Failed() {
		s.t.FailNow() // a missing account would be measured as a known one
	}
}

// effectOf returns the probability that an element of a is greater than one of b,
// counting ties half.
func effectOf(a, b []time.Duration) float64 {
	greater := 0
	for _, x := range a {
		for _, y := range b {
			greater += cmp.Compare(x, y) + 1
		}
	}
	return float64(greater) / float64(2*len(a)*len(b))
}

func median(values []time.Duration) time.Duration {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}
