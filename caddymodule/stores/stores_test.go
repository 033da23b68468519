package stores

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"

	"github.com/mnemogate/mnemogate/caddymodule/guest"
	"github.com/mnemogate/mnemogate/store/storetest"
)

// A store reads its certificates and passwords once. After they were renewed, a reload opens it anew; and
// otherwise it keeps the connections.
func TestAReloadReadsRenewedFiles(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a ca.pem")
	escaped := filepath.Join(filepath.Dir(file), "a%20ca.pem")
	for name, module := range map[string]guest.StoreModule{
		"redis":                      &Redis{URLs: []string{"rediss://a.example:6379?pool_size=5&ca=" + escaped, "rediss://b.example?ca=" + escaped}},
		"postgres":                   &Postgres{DSN: "postgres://mnemogate@db.example/mnemogate?sslmode=verify-full&sslrootcert=" + escaped},
		"postgres, in other words":   &Postgres{DSN: "host=db.example sslmode=verify-full sslrootcert='" + file + "' user=x"},
		"postgres, with its own key": &Postgres{DSN: "host=db.example sslmode=verify-full sslkey='" + file + "'"},
		"postgres, with a passfile":  &Postgres{DSN: "host=db.example passfile='" + file + "'"},
		"PGPASSFILE":                 &Postgres{DSN: "host=db.example"},
		"PGSSLROOTCERT":              &Postgres{DSN: "host=db.example"},
		"HOME":                       &Postgres{DSN: "host=db.example"},
	} {
		t.Run(name, func(t *testing.T) {
			file := file
			switch {
			case strings.HasPrefix(name, "PG"):
				t.Setenv(name, file)
			case name == "HOME":
				t.Setenv(name, filepath.Dir(file))
				file = filepath.Join(filepath.Dir(file), ".pgpass")
			}
			var keys []string
			for _, content := range []string{"old", "old", "new"} {
				storetest.Must(t, os.WriteFile(file, []byte(content), 0o600))
				keys = append(keys, module.Key())
			}
			if keys[0] != keys[1] || keys[1] == keys[2] {
				t.Errorf("got %s", keys)
			}
		})
	}
}

func TestPostgresToAnotherMachineWithoutItsCertificateIsWeak(t *testing.T) {
	for sslmode, want := range map[string]string{
		"host=db.example sslmode=disable":     "can read and change accounts",
		"host=db.example sslmode=require":     "can pose as db.example",
		"host=db.example sslmode=verify-full": "",
		"host=127.0.0.1 sslmode=disable":      "",
		"host=/run/postgresql":                "",
	} {
		p := &Postgres{DSN: sslmode + " user=mnemogate password=hidden"}
		storetest.Must(t, p.Provision(caddy.Context{}))
		weak := p.Weaknesses()
		if (len(weak) > 0) != (want != "") || want != "" && (!strings.Contains(weak[0].Message, want) || !strings.Contains(weak[0].Advice, "sslmode=verify-full")) {
			t.Errorf("%s: got %v", sslmode, weak)
		}
	}
	for _, fallsBack := range []string{"allow", "prefer"} {
		if err := (&Postgres{DSN: "host=db.example sslmode=" + fallsBack}).Provision(caddy.Context{}); err == nil || !strings.Contains(err.Error(), "fall back to plaintext") {
			t.Errorf("%s: got %v", fallsBack, err)
		}
	}
}

// Where neither HOME nor XDG_DATA_HOME is set, or the path is relative, the accounts depend on
// the directory that Caddy starts in. An operator is told.
func TestAHomelessFileIsWarnedOf(t *testing.T) {
	if runtime.GOOS == "windows" || runtime.GOOS == "darwin" {
		t.Skip("Caddy has another default there")
	}
	for _, c := range []struct {
		home, data, file string
		weak             bool
	}{
		{"", "", "", true},
		{"", "", "/var/lib/mnemogate.db", false},
		{"/home/caddy", "", "data/mnemogate.db", true},
		{"/home/caddy", "", "", false},
		{"", "/var/lib", "", false},
	} {
		t.Setenv("HOME", c.home)
		t.Setenv("XDG_DATA_HOME", c.data)
		s := &SQLite{File: c.file}
		storetest.Must(t, s.Provision(caddy.Context{}))
		if weak := s.Weaknesses(); (len(weak) == 1) != c.weak || c.weak && (!strings.Contains(weak[0].Message, s.File) || !strings.Contains(weak[0].Advice, "move the file")) {
			t.Errorf("%+v: got %v", c, weak)
		}
	}
}
