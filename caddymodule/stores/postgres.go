package stores

import (
	"errors"
	"fmt"
	"os"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/mnemogate/mnemogate/caddymodule/guest"
	"github.com/mnemogate/mnemogate/store/postgres"
)

func init() {
	caddy.RegisterModule(Postgres{})
	guest.Belong("store postgres <dsn> { ... }", new(Postgres).syntax())
}

// Postgres keeps accounts in a PostgreSQL database that any number of nodes can
// share. It keeps no sessions: configure a store for them with `sessions`.
type Postgres struct {
	// The database, as a URL or in the keyword=value form of libpq. Write it as
	// `{env.NAME}` or `{file.PATH}`, since it contains the password. Unless the
	// server is on this machine, it must set sslmode, for example to verify-full,
	// with sslrootcert for your own CA. The modes prefer and allow are refused,
	// since they fall back to plaintext.
	DSN string `json:"dsn"`

	// The maximum number of connections of this node, 1 to 10000. Default: 8.
	MaxConns int `json:"max_conns,omitempty"`

	unverified string // see postgres.Store.Unverified
}

// CaddyModule returns the Caddy module information.
func (Postgres) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "mnemogate.accounts.postgres", New: func() caddy.Module { return new(Postgres) }}
}

// UnmarshalCaddyfile takes the database.
func (p *Postgres) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	return guest.Parse(d, "<dsn>", guest.Text(&p.DSN), p.syntax())
}

func (p *Postgres) syntax() guest.Parsers {
	return guest.Parsers{"max_conns <n>": guest.OneValue(guest.Int(&p.MaxConns))}
}

// Provision parses the DSN. It does not connect.
func (p *Postgres) Provision(caddy.Context) error {
	if p.MaxConns < 0 || p.MaxConns > 10_000 {
		return errors.New("store postgres: max_conns: choose 1 to 10000")
	}
	if err := guest.ResolveInto("store postgres", &p.DSN); err != nil {
		return err
	}
	made, err := p.open()
	if err != nil {
		return fmt.Errorf("store postgres: %w", err)
	}
	p.unverified = made.Unverified()
	return made.Close()
}

func (p *Postgres) open() (*postgres.Store, error) {
	return postgres.Open(p.DSN, postgres.Options{MaxConns: int32(p.MaxConns)})
}

// Weaknesses implements guest.Weak.
func (p *Postgres) Weaknesses() []guest.Weakness {
	if p.unverified != "" {
		return []guest.Weakness{{Message: p.unverified, Advice: "write sslmode=verify-full in the DSN, with sslrootcert=<file> for a CA of your own"}}
	}
	return nil
}

// Key implements guest.StoreModule. It also changes with the files that libpq reads if the DSN
// names no others.
func (p *Postgres) Key() string {
	config := []any{p.MaxConns}
	home, _ := os.UserHomeDir()
	for _, name := range [...]string{
		os.Getenv("PGPASSFILE"), home + "/.pgpass",
		os.Getenv("PGSERVICEFILE"), home + "/.pg_service.conf",
		os.Getenv("PGSSLROOTCERT"), home + "/.postgresql/root.crt",
		os.Getenv("PGSSLCERT"), home + "/.postgresql/postgresql.crt",
		os.Getenv("PGSSLKEY"), home + "/.postgresql/postgresql.key",
	} {
		content, _ := os.ReadFile(name) // most are not there
		config = append(config, string(content))
	}
	return storeKey("postgres", p.DSN, config...)
}

// Store implements guest.StoreModule.
func (p *Postgres) Store() (guest.Store, error) { return p.open() }

// Interface guards
var (
	_ guest.StoreModule     = (*Postgres)(nil)
	_ caddy.Provisioner     = (*Postgres)(nil)
	_ caddyfile.Unmarshaler = (*Postgres)(nil)

	_ guest.Weak          = (*Postgres)(nil)
	_ guest.AccountsStore = (*postgres.Store)(nil)
	_ guest.PlacedStore   = (*postgres.Store)(nil)
	_ guest.FaultyStore   = (*postgres.Store)(nil)
)
