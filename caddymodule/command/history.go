package command

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/mnemogate/mnemogate/caddymodule/accounts/api"
)

func (c *cli) historyCommand() *cobra.Command {
	var limit int
	cmd := c.onAccount("history <account> [--limit <n>]", "Shows what happened to an account", `Shows the newest events of an account, the newest first: logins, wrong
passwords and codes, locks, changes and revoked sessions, named as in the audit
log. The store keeps them for audit_keep: at most a hundred that strangers can
cause, twenty of each kind that a user's session can repeat, and a hundred
others. ACTOR says who managed the account. COUNT is how often the event
happened in a row; TIME is then that of the last.`,
		func(path string, _ api.Account) error {
			answer, err := get[api.History](c, fmt.Sprintf("%s/history?limit=%d", path, limit))
			if err != nil {
				return err
			}
			header := []string{"TIME", "EVENT", "RESULT", "ADDRESS", "USER AGENT", "ACTOR", "SESSION", "COUNT"}
			return list(c, header, answer.Events, func(e api.Event) []string {
				result := strings.Join(strings.Fields(e.Result+" "+e.Reason), " ")
				return []string{
					e.Time.Format(time.RFC3339), strings.TrimPrefix(e.Name, "mnemogate."), cmp.Or(result, "-"), cmp.Or(e.Address, "-"),
					cmp.Or(e.UserAgent, "-"), cmp.Or(e.Actor, "-"), cmp.Or(e.Session, "-"), strconv.Itoa(max(1, e.Count)),
				}
			})
		})
	cmd.Flags().IntVar(&limit, "limit", api.DefaultPage, "How many events at most")
	return cmd
}
