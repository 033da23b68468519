package command

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/mnemogate/mnemogate/caddymodule/accounts/api"
)

func (c *cli) sessionsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "sessions <command>",
		Short: "Lists and ends sessions",
		Long:  "Lists an account's sessions, and ends one, all of them, or all of a company.",
	}
	cmd.AddCommand(c.listSessionsCommand(), c.endSessionsCommand())
	return group(cmd)
}

func (c *cli) listSessionsCommand() *cobra.Command {
	return c.byFlag(c.command("list <account>", "Lists the sessions of an account", `Logins that are not complete are among them, in the state in which they wait.
No token is shown, nor kept anywhere. ADDRESS and USER AGENT are those of the
login. LAST USED is as a rule less than a minute before the last request.`,
		cobra.ExactArgs(1), func(cmd *cobra.Command, args []string) error {
			path, _, err := c.account(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			data, err := c.ask(cmd.Context(), http.MethodGet, path+"/sessions", nil)
			if err != nil {
				return err
			}
			return c.listSessions(cmd.OutOrStdout(), data)
		}))
}

func (c *cli) endSessionsCommand() *cobra.Command {
	var all bool
	cmd := c.command("end (<account> [<session>] | --all --company <code>)", "Ends sessions", `Ends all sessions of an account, with pending logins, one-time codes and
recovery links; with a session, as 'sessions list' shows it, that one. With
--all it ends those of every user of the company, however many these are. They
have ended on all nodes before the command returns.`,
		cobra.MaximumNArgs(2), func(cmd *cobra.Command, args []string) error {
			if all != (len(args) == 0) {
				return errors.New("name an account, or say --all for all of the company")
			}
			if all {
				return c.endCompany(cmd)
			}
			path, a, err := c.account(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			path, what := path+"/sessions", "all sessions ended"
			if len(args) == 2 {
				path, what = path+"/"+url.PathEscape(args[1]), "session ended"
			}
			if _, err := c.ask(cmd.Context(), http.MethodDelete, path, nil); err != nil {
				return err
			}
			return c.done(cmd.OutOrStdout(), a.Mnemocode, what)
		})
	cmd.Flags().BoolVar(&all, "all", false, "All sessions of the company, which --company must name")
	cmd.Example = `  $ caddy mnemogate sessions end alice
  $ caddy mnemogate sessions end alice 5d0a6d0f0e2f4c1c9f0e5d1b7a3c2e11
  $ caddy mnemogate sessions end --all --company acme`
	return c.byFlag(cmd)
}

func (c *cli) endCompany(cmd *cobra.Command) error {
	if c.companyCode == "" {
		return errors.New("name the company whose users are all to be logged out, with --company")
	}
	company, err := c.company(cmd.Context())
	if err != nil {
		return err
	}
	if _, err := c.ask(cmd.Context(), http.MethodDelete, company+"/sessions", nil); err != nil {
		return err
	}
	const what = "all sessions ended"
	if c.json {
		return api.WriteLine(cmd.OutOrStdout(), map[string]string{"company": c.companyCode, "result": what})
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s: %s\n", c.companyCode, what)
	return err
}

func (c *cli) listSessions(w io.Writer, data []byte) error {
	var answer struct{ Sessions []api.Session }
	if err := json.Unmarshal(data, &answer); err != nil {
		return err
	}
	rows := [][]string{{"SESSION", "STATE", "CREATED", "LAST USED", "EXPIRES", "ENDS", "ADDRESS", "USER AGENT"}}
	for _, s := range answer.Sessions {
		if c.json {
			if err := api.WriteLine(w, s); err != nil {
				return err
			}
			continue
		}
		rows = append(rows, []string{
			s.ID, string(s.State), s.Created.Format(time.RFC3339), s.LastUsed.Format(time.RFC3339),
			s.Expires.Format(time.RFC3339), s.Ends.Format(time.RFC3339), s.Address, printable(s.UserAgent),
		})
	}
	if c.json {
		return nil
	}
	return table(w, rows...)
}

// printable takes out of a stranger's text what a terminal might obey.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return unicode.ReplacementChar
		}
		return r
	}, s)
}
