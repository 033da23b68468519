package store

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/flows"
	"github.com/mnemogate/mnemogate/flows/record"
	flowsession "github.com/mnemogate/mnemogate/flows/session"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/store/storetest"
)

// BenchmarkLogin is auth/login of accounts with a password, by 64 clients at
// once: all of it but HTTP.
func BenchmarkLogin(b *testing.B) {
	b.Run("embedded", func(b *testing.B) {
		s := OpenSQLite(filepath.Join(b.TempDir(), "bench.db"))
		must(b, s.Start(bg))
		defer s.Close()
		benchmarkLogin(b, s.Accounts(), s.Sessions())
	})
	b.Run("shared", func(b *testing.B) {
		pg := storetest.SharedPostgres(b)
		p := startPostgres(b, pg.DSN(pg.NewSchema(b)), PostgresOptions{})
		benchmarkLogin(b, p.Accounts(), openServer(b, storetest.StartRedis(b)).Sessions())
	})
}

func benchmarkLogin(b *testing.B, accounts record.Accounts, sessions record.Sessions) {
	company := &tenant.Company{Code: "acme", NoAPIKey: true, Policy: tenant.DefaultPolicy()}
	service := &flows.Service{Manager: &flowsession.Manager{
		Accounts:  accounts,
		Sessions:  sessions,
		Companies: map[string]*tenant.Company{"acme": company},
		Log:       slog.New(slog.DiscardHandler),
		Now:       time.Now,
	}}
	const n = 1000
	bodies := make([][]byte, n)
	for i := range n {
		name := fmt.Sprint("user", i)
		a := record.Account{Company: "acme", Mnemocode: name, LoginName: name, Status: record.StatusActive, PasswordHash: "of a password"}
		_, err := accounts.Create(bg, t0, a)
		must(b, err)
		bodies[i], err = json.Marshal(map[string]string{"login_id": name})
		must(b, err)
	}
	route := flows.RouteByPath("auth/login")
	var next atomic.Int64
	b.SetParallelism(32)
	b.ReportAllocs()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			body := bodies[next.Add(1)%n]
			r := &flows.Request{Company: "acme", Route: route, Address: "192.0.2.1", Body: func() ([]byte, error) { return body, nil }}
			if _, err := service.Serve(bg, r); err != nil {
				b.Error(err)
			}
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "logins/s")
}
