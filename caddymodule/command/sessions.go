package command

import (
	"errors"
	"net/http"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/mnemogate/mnemogate/caddymodule/accounts/api"
)

func (c *cli) sessionsCommand() *cobra.Command {
	return parent("sessions", "Lists and revokes sessions", "Lists an account's sessions, and revokes one, all of them, or all of a company.",
		listCommand(c, "list <account>", "Lists the sessions of an account", `The list includes pending logins, with their state. It shows no tokens, because
they are stored only as hashes. ADDRESS and USER AGENT are those of the login.
LAST USED is usually less than a minute before the last request.`, "sessions",
			[]string{"SESSION", "STATE", "CREATED", "LAST USED", "EXPIRES", "ENDS", "ADDRESS", "USER AGENT"},
			func(s api.Session) []string {
				return []string{
					s.ID, string(s.State), s.Created.Format(time.RFC3339), s.LastUsed.Format(time.RFC3339),
					s.Expires.Format(time.RFC3339), s.Ends.Format(time.RFC3339), s.Address, s.UserAgent,
				}
			}), c.endSessionsCommand())
}

func (c *cli) endSessionsCommand() *cobra.Command {
	var all bool
	cmd := c.byFlag(c.command("end (<account> [<session>] | --all --company <code>)", "Revokes sessions", `Revokes all sessions of an account, with its pending logins, one-time codes,
recovery links, known devices and issued tokens. With the id of a session, as in
'sessions list', it revokes only that one; with --all, those of all users of the
company. They are revoked when the command returns, and on other nodes within
100 ms.`,
		cobra.MaximumNArgs(2), func(args []string) error {
			if all != (len(args) == 0) {
				return errors.New("name an account, or add --all for all of the company")
			}
			if all {
				return c.endCompany()
			}
			path, a, err := c.account(args[0])
			if err != nil {
				return err
			}
			if len(args) == 2 {
				return c.change(http.MethodDelete, path+"/sessions/"+api.PathEscape(args[1]), a, "session ended")
			}
			return c.change(http.MethodDelete, path+"/sessions", a, "all sessions ended")
		}))
	cmd.Flags().BoolVar(&all, "all", false, "All sessions of the company, which --company must name")
	cmd.Example = `  $ caddy mnemogate sessions end alice
  $ caddy mnemogate sessions end alice 5d0a6d0f0e2f4c1c9f0e5d1b7a3c2e11
  $ caddy mnemogate sessions end --all --company acme`
	return cmd
}

func (c *cli) endCompany() error {
	if c.companyCode == "" {
		return errors.New("--all logs out all users of a company: name it with --company")
	}
	if _, err := c.ask(http.MethodDelete, api.Root+api.PathEscape(c.companyCode)+"/sessions", nil); err != nil {
		return err
	}
	return c.done("company", c.companyCode, "all sessions ended")
}

// printable removes characters that a terminal might interpret from untrusted text.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return unicode.ReplacementChar
		}
		return r
	}, s)
}
