package command

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"time"

	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/mnemogate/mnemogate/caddymodule/accounts/api"
	"github.com/mnemogate/mnemogate/caddymodule/guest"
	"github.com/mnemogate/mnemogate/store/sqlite"
)

func (c *cli) backupCommand() *cobra.Command {
	var output string
	var force bool
	cmd := c.adminCommand("backup [--output <file>] [--force]", "Copies the store of the running server", `Copies the SQLite store, while it is in use, to a file that only you can read:
by default mnemogate-<time in UTC>.db in this directory. The file appears only
once the copy is complete and on the disk. Protect it like the store. It is a
SQLite file that ends with a checksum, so that 'restore' can refuse a file that
was changed.

Back up accounts in PostgreSQL with its own tools.`,
		cobra.NoArgs, func([]string) error {
			if output == "" {
				output = "mnemogate-" + time.Now().UTC().Format("20060102T150405Z") + ".db"
			}
			size, err := c.save(output, force, api.Root+"backup", "the backup was interrupted, and there is no file")
			if err != nil {
				return err
			}
			return c.report(map[string]any{"file": output, "bytes": size}, fmt.Sprintf("%s: %s bytes", output, humanize.Comma(size)))
		})
	cmd.Flags().StringVarP(&output, "output", "o", "", "The file to write")
	cmd.Flags().BoolVar(&force, "force", false, "Replace an existing file")
	_ = cmd.MarkFlagFilename("output")
	return cmd
}

func (c *cli) restoreCommand() *cobra.Command {
	var r sqlite.Restore
	cmd := c.command("restore <file> (--config <Caddyfile> | --to <file>) [--force] [--keep-sessions] [--unverified]", "Restores a backup of the store", `Verifies a file that 'backup' made, and copies it to the store's place: 'store
sqlite <file>' in the configuration, or --to. Stop Caddy first. An existing file
is replaced only with --force.

A backup ends with a checksum, and 'restore' refuses a file that does not match
it. A copy that another program made has no checksum: restore it with
--unverified. A backup that has lost its checksum was changed: take another.

All accounts are then as they were at the moment of the backup, also passwords
and backup codes that were changed or used since. 'restore' revokes all
sessions, issued tokens, pending logins, one-time codes and links, and forgets
known devices, because those that were revoked or used since would be valid
again. --keep-sessions keeps them: use it only if nobody could log in after the
backup, as in a move to another machine.`,
		cobra.ExactArgs(1), func(args []string) (err error) {
			if c.api != "" || c.address != "" {
				return errors.New("restore needs no server: leave --api and --address out")
			}
			r.From = args[0]
			if r.To == "" {
				if r.To, err = c.configuredFile(); err != nil {
					return err
				}
			}
			defer c.interruptible()()
			done, err := r.Run(c.cmd.Context())
			if err != nil {
				return c.orInterrupted(err)
			}
			ended := fmt.Sprintf("sessions and links revoked: %s", humanize.Comma(done.SessionsEnded))
			if r.KeepSessions {
				ended = "sessions kept"
			}
			return c.report(map[string]any{"file": r.To, "accounts": done.Accounts, "sessions_ended": done.SessionsEnded},
				fmt.Sprintf("%s: accounts restored: %s, %s", r.To, humanize.Comma(done.Accounts), ended))
		})
	cmd.ValidArgsFunction = nil // complete files
	cmd.Flags().StringVar(&r.To, "to", "", "The file of the store")
	cmd.Flags().BoolVar(&r.Replace, "force", false, "Replace an existing file")
	cmd.Flags().BoolVar(&r.Unverified, "unverified", false, "Restore a file without a checksum")
	cmd.Flags().BoolVar(&r.KeepSessions, "keep-sessions", false, "Keep sessions, codes and links")
	_ = cmd.MarkFlagFilename("to")
	return cmd
}

func (c *cli) rekeyCommand() *cobra.Command {
	return c.adminCommand("rekey", "Gives the store a new secret", `Gives the accounts store a new secret, after the database or a backup has
leaked. All nodes use it within a minute, without a restart, and the command
waits for that. Sessions, passkeys, passwords and logins that have begun stay as
they are. You can repeat an interrupted command: within an hour, it continues
with the same secret, and says so.

The secrets of authenticator apps are sealed again, but a thief knows them: see
"The database, a backup or an export has leaked" in the runbook. New keys sign
assertions after 20 minutes, and the old ones are withdrawn within 40. Counts of
addresses, phones and unknown login ids begin anew.`,
		cobra.NoArgs, func([]string) error {
			defer c.interruptible()()
			return show(c, http.MethodPost, api.Root+"rekey", nil, func(done api.Rekeyed) error {
				which := "the new secret"
				if !done.Continued.IsZero() {
					which = fmt.Sprintf("the secret of %s, which an earlier rekey made; another can be made from %s", done.Continued.Format(time.RFC3339), done.Next.Format(time.RFC3339))
				}
				_, err := fmt.Fprintf(c.cmd.OutOrStdout(), "all nodes use %s; secrets of apps that were sealed again: %s\n", which, comma(done.Apps))
				return err
			})
		})
}

// configuredFile returns the file of the SQLite store in the configuration.
func (c *cli) configuredFile() (string, error) {
	if c.config == "" {
		return "", errors.New("name the configuration with --config, or the file of the store with --to")
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
		return "", fmt.Errorf("%s keeps accounts in %s: restore them with its own tools, or name a file of SQLite with --to", c.config, kept.Module)
	}
	if err := guest.ResolveInto("store sqlite", &kept.File); err != nil {
		return "", err
	}
	if !filepath.IsAbs(kept.File) { // the service may run in another environment and directory
		return "", fmt.Errorf("%s names no absolute path for the store's file, so its place depends on the environment of Caddy: "+
			"name the file with --to, or write 'store sqlite <absolute path>' into the configuration", c.config)
	}
	return kept.File, nil
}
