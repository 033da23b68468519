package command

import (
	"fmt"
	"net/http"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/mnemogate/mnemogate/caddymodule/accounts/api"
)

func (c *cli) companyCommand() *cobra.Command {
	return parent("company", "Erases or renames a company, or gives it a new signing key", "Erases or renames a company, with all its accounts, or gives it a new key that\nsigns assertions.",
		c.emptyCommand("erase <code> [--yes]", "Erases a company that is no longer configured", `Deletes all accounts of the company, with their passwords, passkeys, devices,
codes and histories; its sessions, which end at once on all nodes; its signing
keys; and its events that were not delivered. Only a backup brings them back.

First remove the company from the configuration of each node, and reload them.

Logs, backups and exports keep what they have, and users' devices keep their
passkeys. Counts of limits, under keyed hashes, expire with their windows.`),
		c.emptyCommand("rename <code> <new code> [--yes] [--resume]", "Renames a company", `Moves all accounts of the company to the new code, with their passwords,
passkeys, authenticator apps, backup codes, histories and locks.

First remove its 'account' blocks from the Caddyfile, for good. With the old
code, or with a restored backup, they would create these accounts again.

These are lost: all sessions, issued tokens, pending logins, codes and mailed
links; known devices; the counts of limits and, with hardened, the locks of
login ids. Assertions get a new key, and name the new company.

Events that wait are delivered as soon as the new code is configured. They still
have the old code as company_code.

When the command returns, write the new code into the configuration of each node
and reload them; until then, nobody can log in. Apps need it in their paths, and
backends wherever they read the company. Keep the RP ID of the passkeys, which
work with no other. A rename that was interrupted goes on with --resume.`),
		c.adminCommand("rotate-key [--company <code>]", "Gives a company a new key that signs assertions", `This is for keys in the store, which rotate every 30 days by themselves. The new
key is published at once, and signs 20 minutes later. The old one stays
published until its last assertion has expired. If a key has leaked, use 'rekey'
instead, which withdraws it.`,
			cobra.NoArgs, func([]string) error {
				company, err := c.company()
				if err == nil {
					_, err = c.ask(http.MethodPost, company+"/signing-key", nil)
				}
				if err != nil {
					return err
				}
				return c.done("company", c.companyCode, "the new key signs in 20 minutes")
			}))
}

// emptyCommand returns the command that erases a company or, if use has a second argument,
// the one that renames it.
func (c *cli) emptyCommand(use, short, long string) *cobra.Command {
	var yes, resume bool
	cmd := c.adminCommand(use, short, long+"\n\nWithout --yes, the command says this, and asks for the code.",
		cobra.ExactArgs(argsOf(use)), func(args []string) error {
			body, result := map[string]string{"company": args[0]}, "erased"
			if len(args) == 2 {
				body["to"], result = args[1], "renamed to "+args[1]
			}
			if resume {
				body["resume"] = "true"
			}
			if !yes {
				fmt.Fprintln(c.cmd.ErrOrStderr(), long+"\n")
				if err := c.confirm("To go on, type the code "+args[0]+":", args[0]); err != nil {
					return err
				}
			}
			for accounts := int64(0); ; {
				part, err := call[api.Emptied](c, http.MethodPost, api.Root+"companies", body)
				if err != nil {
					return err
				}
				accounts += int64(part.Accounts)
				if part.Done {
					return c.done("company", args[0], result+", with accounts: "+humanize.Comma(accounts))
				}
				body["resume"] = "true"
				fmt.Fprintln(c.cmd.ErrOrStderr(), "accounts so far: "+humanize.Comma(accounts))
			}
		})
	cmd.Flags().BoolVar(&yes, "yes", false, "Do not ask")
	if argsOf(use) == 2 {
		cmd.Flags().BoolVar(&resume, "resume", false, "Go on with a rename that was interrupted")
	}
	return cmd
}
