package bench

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync/atomic"
	"testing"
)

// The accounts API, embedded: creating accounts with a ready hash, and reading
// any of those:
//
//	go test ./caddymodule/bench -run '^$' -bench Accounts -benchtime 1x
func BenchmarkAccounts(b *testing.B) {
	const key = "a-key-of-a-backend"
	const hash = "$argon2id$v=19$m=19456,t=2,p=1$c2FsdHNhbHRzYWx0c2FsdA$RrQZqv2jJ3+vQVV0o3bTSrPyT6JrV0Dc0VZ1q8yYb0o"
	c := guarded("store sqlite DIR/mnemogate.db", 1000, "")
	c.guard = "mnemogate_accounts {\nkey bench " + key + " {\nmay read write\n}\n}"
	s := startSubject(b, c, "127.0.0.1:1")
	t := &figuresTable{head: []string{"", "requests/s", "p50", "p99"}}
	defer t.print()
	var created atomic.Int64
	run := func(name string, clients int, to template, shots magazine) {
		b.Run(name, func(b *testing.B) {
			to.addr = s.addr
			l := newLoad(to, clients, shots)
			defer l.close()
			l.run(*benchRound / 10).must(b)
			var rounds []*tally
			for range *benchRounds {
				rounds = append(rounds, l.run(*benchRound))
				rounds[len(rounds)-1].must(b)
			}
			rate := medianOf(rounds, (*tally).rate)
			b.ReportMetric(rate, "req/s")
			b.ReportMetric(0, "ns/op")
			t.add(name, rate, p(rounds, .5), p(rounds, .99))
		})
	}
	run("create", 64, template{method: "POST", path: "/acme/accounts", want: http.StatusCreated}, func(int) func() (shot, bool) {
		return func() (shot, bool) {
			n := created.Add(1)
			return shot{token: key, body: fmt.Sprintf(
				`{"profile_mnemocode":"user-%[1]d","primary_phone":"+3706%07[1]d","primary_email":"user%[1]d@example.com","login_name":"user%[1]d","password_hash":%[2]q}`, n, hash)}, true
		}
	})
	run("read", 32, template{method: "GET", path: "/acme/accounts/user-", want: http.StatusOK}, func(client int) func() (shot, bool) {
		random := rand.New(rand.NewPCG(rand.Uint64(), uint64(client)))
		return func() (shot, bool) {
			return shot{token: key, path: fmt.Sprint(1 + random.Int64N(created.Load()))}, true
		}
	})
}
