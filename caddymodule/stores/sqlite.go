package stores

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/mnemogate/mnemogate/caddymodule/guest"
	"github.com/mnemogate/mnemogate/store/sqlite"
)

func init() { caddy.RegisterModule(SQLite{}) }

// SQLite keeps accounts in one file, and also sessions unless `sessions` configures
// another store. Use it for a single machine; nothing has to be installed. Several
// processes can use the file at once. Acknowledged changes survive a crash and a
// power loss. Deleted data is overwritten within two minutes, also in the two
// additional files.
type SQLite struct {
	// The path of the file. The file and its directory are created if they are
	// missing, with access for this user only. If other users can read an existing
	// file, mnemogate removes their access and logs it. SQLite keeps two more files
	// in the same directory. May contain placeholders like {env.NAME}. Default:
	// `mnemogate/mnemogate.db` in Caddy's data directory.
	File string `json:"file,omitempty"`

	relative string // why the place depends on the directory that Caddy starts in; empty if it does not
}

// CaddyModule returns the Caddy module information.
func (SQLite) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "mnemogate.accounts.sqlite", New: func() caddy.Module { return new(SQLite) }}
}

// UnmarshalCaddyfile takes the file.
func (s *SQLite) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	return guest.Parse(d, "[<file>]", guest.Optional(guest.Text(&s.File)), nil)
}

// Provision determines the file's path. It does not open the file.
func (s *SQLite) Provision(caddy.Context) (err error) {
	s.relative = "its path is relative"
	if s.File == "" {
		s.File = filepath.Join(caddy.AppDataDir(), "mnemogate", "mnemogate.db")
		s.relative = "neither HOME nor XDG_DATA_HOME is set"
	} else if err := guest.ResolveInto("store sqlite", &s.File); err != nil {
		return err
	}
	if strings.HasPrefix(s.File, "~") || strings.HasPrefix(s.File, "$") {
		return fmt.Errorf("store sqlite: %q: Caddy replaces neither ~ nor shell variables; write the whole path, or {env.NAME} for the value of NAME", s.File)
	}
	if s.File == ":memory:" || strings.HasPrefix(s.File, "file:") {
		return fmt.Errorf("store sqlite: %q is not the path of a file; accounts must survive a restart, so write a path such as /data/mnemogate.db", s.File)
	}
	given := s.File
	if filepath.IsAbs(given) {
		s.relative = ""
	}
	if s.File, err = filepath.Abs(given); err != nil {
		return err
	}
	if info, err := os.Stat(s.File); err == nil && info.IsDir() || strings.HasSuffix(given, "/") {
		return fmt.Errorf("store sqlite: %s is a directory; write the path of a file in it, such as %s", given, filepath.Join(s.File, "mnemogate.db"))
	}
	return nil
}

// Weaknesses implements guest.Weak.
func (s *SQLite) Weaknesses() []guest.Weakness {
	if s.relative == "" {
		return nil
	}
	return []guest.Weakness{{
		Message: s.relative + ", so the accounts are in " + s.File + ", which depends on the directory that Caddy starts in: started elsewhere, it has none",
		Advice:  "stop Caddy, move the file and any -wal file beside it, and name its new place, as in store sqlite /var/lib/mnemogate/mnemogate.db: otherwise all accounts stay behind",
	}}
}

// Key implements guest.StoreModule.
func (s *SQLite) Key() string { return "sqlite:" + s.File }

// Store implements guest.StoreModule.
func (s *SQLite) Store() (guest.Store, error) {
	made := sqlite.Open(s.File)
	made.Log = guest.StoreLog("mnemogate.accounts.sqlite")
	return made, nil
}

// Interface guards
var (
	_ guest.StoreModule     = (*SQLite)(nil)
	_ guest.Weak            = (*SQLite)(nil)
	_ caddy.Provisioner     = (*SQLite)(nil)
	_ caddyfile.Unmarshaler = (*SQLite)(nil)

	_ guest.AccountsStore = (*sqlite.Store)(nil)
	_ guest.FeedingStore  = (*sqlite.Store)(nil)
	_ guest.BackupStore   = (*sqlite.Store)(nil)
	_ guest.CheckedStore  = (*sqlite.Store)(nil)
	_ guest.PlacedStore   = (*sqlite.Store)(nil)
)
