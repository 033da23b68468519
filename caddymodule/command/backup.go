package command

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/mnemogate/mnemogate/caddymodule/accounts/api"
	"github.com/mnemogate/mnemogate/caddymodule/stores"
	"github.com/mnemogate/mnemogate/store"
)

func (c *cli) backupCommand() *cobra.Command {
	var output string
	var force bool
	cmd := c.command("backup [--output <file>] [--force]", "Copies the store of the running server", `Writes a copy of the SQLite store as it is at this moment, while it is in use,
to a file that only you can read: by default mnemogate-<time in UTC>.db in this
directory. The file is there once the copy is whole and on the disk, or not at
all. It holds all that the store does: keep it as you keep that. 'restore' puts
it back. It is a SQLite file that ends with a checksum, so that 'restore' can
refuse a file that was changed.

Accounts in PostgreSQL are backed up by its own means.`,
		cobra.NoArgs, func([]string) error {
			if output == "" {
				output = "mnemogate-" + time.Now().UTC().Format("20060102T150405Z") + ".db"
			}
			size, err := c.backup(output, force)
			if err != nil {
				return err
			}
			return c.report(map[string]any{"file": output, "bytes": size}, fmt.Sprintf("%s: %s bytes", output, humanize.Comma(size)))
		})
	cmd.Flags().StringVarP(&output, "output", "o", "", "The file to write")
	cmd.Flags().BoolVar(&force, "force", false, "Replace a file that is there")
	_ = cmd.MarkFlagFilename("output")
	return cmd
}

func (c *cli) backup(output string, force bool) (size int64, err error) {
	if c.api != "" {
		return 0, errors.New("backup asks the admin endpoint: leave --api out, and run it where that is reached")
	}
	if _, err := os.Lstat(output); err == nil && !force {
		return 0, fmt.Errorf("%s is there: name another file with --output, or replace it with --force", output)
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, err
	}
	defer c.interruptible(os.Interrupt, syscall.SIGTERM)()
	part, err := os.CreateTemp(filepath.Dir(output), "."+filepath.Base(output)+"-*") // mode 0600
	if err != nil {
		return 0, err
	}
	defer os.Remove(part.Name()) // no effect after the rename
	if size, err = c.save(part, api.Root+"backup", "the backup broke off, and there is no file"); err != nil {
		return 0, err
	}
	if err := os.Rename(part.Name(), output); err != nil {
		return 0, err
	}
	return size, store.SyncFile(filepath.Dir(output))
}

func (c *cli) restoreCommand() *cobra.Command {
	var r store.SQLiteRestore
	cmd := c.command("restore <file> (--config <Caddyfile> | --to <file>) [--force] [--keep-sessions] [--unverified]", "Puts a backup of the store back", `Checks a file that 'backup' made and puts it where the store is: at 'store
sqlite <file>' in the configuration, or at --to. Caddy must not run meanwhile. A
file that is there is replaced only with --force.

A backup ends with a checksum, and a file that does not match it is refused. A
file that has none was made by an older version, or was changed since: it is
restored with --unverified only.

All is then as it was when the backup was made, also passwords and backup codes
that were changed or used since. But sessions, pending logins, one-time codes
and links are all ended, since what was ended or used since would be good again:
--keep-sessions leaves them, for a backup that was made when nobody could log in
any more, as before a move to another machine.`,
		cobra.ExactArgs(1), func(args []string) (err error) {
			if c.api != "" || c.address != "" {
				return errors.New("restore asks no server: leave --api and --address out")
			}
			r.From = args[0]
			if r.To == "" {
				if r.To, err = c.configuredFile(); err != nil {
					return err
				}
			}
			defer c.interruptible(os.Interrupt, syscall.SIGTERM)()
			done, err := r.Run(c.cmd.Context())
			if err != nil {
				return c.orInterrupted(err)
			}
			ended := fmt.Sprintf("%s sessions and links ended", humanize.Comma(done.SessionsEnded))
			if r.KeepSessions {
				ended = "sessions kept"
			}
			return c.report(map[string]any{"file": r.To, "accounts": done.Accounts, "sessions_ended": done.SessionsEnded},
				fmt.Sprintf("%s: %s accounts restored, %s", r.To, humanize.Comma(done.Accounts), ended))
		})
	cmd.ValidArgsFunction = nil // complete files
	cmd.Flags().StringVar(&r.To, "to", "", "The file of the store")
	cmd.Flags().BoolVar(&r.Replace, "force", false, "Replace a file that is there")
	cmd.Flags().BoolVar(&r.Unverified, "unverified", false, "Restore a file without a checksum, from an older version")
	cmd.Flags().BoolVar(&r.KeepSessions, "keep-sessions", false, "End no sessions, codes and links")
	_ = cmd.MarkFlagFilename("to")
	return cmd
}

// configuredFile returns the file of the SQLite store in the configuration.
func (c *cli) configuredFile() (string, error) {
	if c.config == "" {
		return "", errors.New("restore needs to know where the store is: name the configuration with --config, or the file with --to")
	}
	config, _, _, err := caddycmd.LoadConfig(c.config, c.adapter)
	if err != nil {
		return "", err
	}
	var parsed struct {
		Apps struct {
			Mnemogate *struct {
				Store struct{ Module, File string }
			}
		}
	}
	if err := json.Unmarshal(config, &parsed); err != nil {
		return "", err
	}
	if parsed.Apps.Mnemogate == nil {
		return "", fmt.Errorf("%s has no mnemogate: name the file with --to", c.config)
	}
	kept := parsed.Apps.Mnemogate.Store
	if kept.Module != "" && kept.Module != "sqlite" {
		return "", fmt.Errorf("%s keeps accounts in %s, which is restored by its own means; name a file for the store sqlite with --to", c.config, kept.Module)
	}
	if kept.File == "" { // the service may run in another environment
		return "", fmt.Errorf("%s names no file for the store, and where Caddy keeps it then depends on the environment it runs in: "+
			"name the file with --to, or write 'store sqlite <file>' into the configuration", c.config)
	}
	sqlite := stores.SQLite{File: kept.File}
	err = sqlite.Resolve()
	return sqlite.File, err
}
