package command

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/mnemogate/mnemogate/caddymodule/accounts/api"
)

func (c *cli) historyCommand() *cobra.Command {
	var limit int
	cmd := c.command("history <account> [--limit <n>]", "Shows what happened to an account", `Shows the newest events of an account, the newest first: logins, wrong
passwords and codes, locks, changes and ended sessions, named as in the audit
log. They are kept for audit_keep, and of each account the newest hundred that
strangers can cause and a hundred others. ACTOR is who managed the account.`,
		cobra.ExactArgs(1), func(cmd *cobra.Command, args []string) error {
			path, _, err := c.account(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			data, err := c.ask(cmd.Context(), http.MethodGet, fmt.Sprintf("%s/history?limit=%d", path, limit), nil)
			if err != nil {
				return err
			}
			return c.showHistory(cmd.OutOrStdout(), data)
		})
	cmd.Flags().IntVar(&limit, "limit", api.DefaultPage, "How many events at most")
	return c.byFlag(cmd)
}

func (c *cli) showHistory(w io.Writer, data []byte) error {
	var answer api.History
	if err := json.Unmarshal(data, &answer); err != nil {
		return err
	}
	rows := [][]string{{"TIME", "EVENT", "RESULT", "ADDRESS", "USER AGENT", "ACTOR", "SESSION"}}
	for _, e := range answer.Events {
		if c.json {
			if err := api.WriteLine(w, e); err != nil {
				return err
			}
			continue
		}
		result := strings.Join(strings.Fields(e.Result+" "+e.Reason), " ")
		rows = append(rows, []string{
			e.Time.Format(time.RFC3339), strings.TrimPrefix(e.Name, "mnemogate."), cmp.Or(result, "-"), cmp.Or(e.Address, "-"),
			cmp.Or(printable(e.UserAgent), "-"), cmp.Or(e.Actor, "-"), cmp.Or(e.Session, "-"),
		})
	}
	if c.json {
		return nil
	}
	return table(w, rows...)
}
