package accounts

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/caddymodule/accounts/api"
	"github.com/mnemogate/mnemogate/flows"
	"github.com/mnemogate/mnemogate/flows/manage"
	"github.com/mnemogate/mnemogate/flows/password"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/session"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/store"
)

// An account shows and exports each field that operators can write.
func TestWrittenFieldsAreShownAndExported(t *testing.T) {
	for _, f := range record.Fields {
		if f.Secret {
			continue
		}
		var a record.Account
		var want any = "given"
		if f.Flag != nil {
			want, *f.Flag(&a) = true, true
		} else {
			*f.Text(&a) = "given"
		}
		for _, view := range []any{api.AccountOf(a), api.ExportedAccountOf(a, nil)} {
			data, err := json.Marshal(view)
			if err != nil {
				t.Fatal(err)
			}
			var fields map[string]any
			if err := json.Unmarshal(data, &fields); err != nil {
				t.Fatal(err)
			}
			if fields[f.Name] != want {
				t.Errorf("%T shows %s as %v, want %v", view, f.Name, fields[f.Name], want)
			}
		}
	}
}

// BenchmarkImport stores accounts with ready hashes as an import of theirs does,
// with real fsyncs; 100,000 must take a minute or less:
//
//	go test ./caddymodule/accounts -run '^$' -bench Import -benchtime 100000x
func BenchmarkImport(b *testing.B) {
	db := store.OpenSQLite(b.TempDir() + "/bench.db")
	if err := db.Start(b.Context()); err != nil {
		b.Fatal(err)
	}
	defer db.Close()
	policy := tenant.DefaultPolicy()
	service := &flows.Service{Manager: &session.Manager{Accounts: db.Accounts(), Sessions: db.Sessions(), Hasher: password.NewHasher(1), Log: slog.Default(), Now: time.Now}}
	i := newImporter(&manage.Admin{Manager: service.Manager, Company: &tenant.Company{Code: "acme", Policy: policy}, Bulk: true}, false, false, io.Discard)
	r, w := io.Pipe()
	go func() {
		for n := range b.N {
			fmt.Fprintln(w, importLine(n))
		}
		_ = w.Close()
	}()
	counts := i.run(b.Context(), r)
	if counts.Created != b.N {
		b.Fatalf("%+v", counts)
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "accounts/s")
}
