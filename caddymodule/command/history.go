package command

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/mnemogate/mnemogate/caddymodule/accounts/api"
	"github.com/mnemogate/mnemogate/flows/record"
)

func (c *cli) historyCommand() *cobra.Command {
	var limit int
	var ref string
	cmd := c.byFlag(c.command("history [<account>] [--limit <n>] [--ref <ref>]", "Shows what happened to an account", `Shows the newest events of an account, the newest first: logins, wrong
passwords and codes, locks, changes and revoked sessions, named as in the audit
log. The store keeps them for audit_keep: at most a hundred that strangers can
cause, twenty of each kind that a user's session can repeat, and a hundred
others. RESULT is the next state of a step that succeeded, or why it did not.
FACTOR is what the user gave. ACTOR says who managed the account. COUNT is how
often the event happened in a row; TIME and REF are then those of the last. REF
names the answer that the user got. --ref shows only the event with this ref;
without an account it searches all of the company or, without --company, of all
companies, and says whose the event was. What is not in a history may be in the
audit log.`, cobra.MaximumNArgs(1), func(args []string) error {
		if len(args) == 0 && ref == "" {
			return errors.New("name an account, or an error with --ref")
		}
		var answer api.History
		several := false // companies were searched
		query := "?limit=" + strconv.Itoa(limit)
		if ref != "" {
			query = api.Query(url.Values{"ref": {ref}})
		}
		if len(args) == 0 {
			codes, err := c.companies()
			if err != nil {
				return err
			}
			several = len(codes) > 1
			for _, code := range codes {
				if answer, err = get[api.History](c, api.Root+api.PathEscape(code)+"/history"+query); err != nil {
					return err
				}
				if len(answer.Events) > 0 {
					break // a ref is of one answer
				}
			}
		} else {
			path, _, err := c.account(args[0])
			if err != nil {
				return err
			}
			if answer, err = get[api.History](c, path+"/history"+query); err != nil {
				return err
			}
		}
		if ref != "" && len(answer.Events) == 0 {
			return &cliError{exit: exitNotFound, message: fmt.Sprintf("no history has an event with the ref %q; search the audit log for it; of the refusals of a path, that has only the first in a minute", ref)}
		}
		header := []string{"TIME", "EVENT", "RESULT", "FACTOR", "ADDRESS", "USER AGENT", "ACTOR", "SESSION", "COUNT", "REF"}
		if len(args) == 0 {
			header = append(header, "ACCOUNT")
		}
		return list(c, header, answer.Events, func(e api.Event) []string {
			result := e.Result
			ends := strings.HasSuffix(e.Name, ".logout.success") || e.Name == "mnemogate.setpassword.success" && e.State != record.Authorized // after a recovery
			if result == record.Success && !ends {
				result = cmp.Or(string(e.State), result)
			}
			result = strings.Join(strings.Fields(result+" "+e.Reason), " ")
			row := []string{
				e.Time.Format(time.RFC3339), strings.TrimPrefix(e.Name, "mnemogate."), cmp.Or(result, "-"), cmp.Or(e.Factor, "-"), cmp.Or(e.Address, "-"),
				cmp.Or(e.UserAgent, "-"), cmp.Or(e.Actor, "-"), cmp.Or(e.Session, "-"), strconv.Itoa(max(1, e.Count)), cmp.Or(e.Ref, "-"),
			}
			switch {
			case several:
				row = append(row, e.Company+"/"+e.Mnemocode)
			case len(args) == 0:
				row = append(row, e.Mnemocode)
			}
			return row
		})
	}))
	cmd.Flags().IntVar(&limit, "limit", api.DefaultPage, "How many events at most")
	cmd.Flags().StringVar(&ref, "ref", "", "The ref of an error, as the user sees it")
	return cmd
}
