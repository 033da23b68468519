package command

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/mnemogate/mnemogate/caddymodule/accounts/api"
)

func (c *cli) explainRequestCommand() *cobra.Command {
	var as string
	cmd := c.adminCommand("explain <METHOD> <url> [--as <account>] [--company <code>]", "Says whether a request would pass now", `Asks the running server what would become of a request to a protected site:
which rules of the site match, with their lines in the Caddyfile, and whether
the request passes, with the headers that mnemogate would add for the
application, or is refused, with the status, error_code and reason.

With --as, the request comes from that account, logged in now with all its
factors. Without, it has no token. If the site needs an API key, the request
has the key of --company. Write the URL as the client sends it. Nothing is sent
to the application, changed or counted.

'account explain' says whether the login itself would work. The exit status is
1 if the request would be refused.`,
		cobra.ExactArgs(2), func(args []string) error {
			if as != "" {
				_, a, err := c.account(as)
				if err != nil {
					return err
				}
				as = a.Mnemocode
			}
			answer, err := call[api.Explanation](c, http.MethodPost, api.Root+"explain", map[string]string{"method": args[0], "url": args[1], "as": as, "company": c.companyCode})
			if err != nil {
				return err
			}
			if c.json {
				err = api.WriteLine(c.cmd.OutOrStdout(), answer)
			} else {
				err = c.table(explained(answer)...)
			}
			if err == nil && !answer.Passes {
				err = &cliError{exit: exitFailed} // everything was printed
			}
			return err
		})
	cmd.Flags().StringVar(&as, "as", "", "The account, by its mnemocode or a login id")
	return c.byFlag(cmd)
}

// explained returns the rows of an explanation.
func explained(answer api.Explanation) [][]string {
	rows := [][]string{{"site", answer.Site}}
	for _, r := range answer.Rules {
		text := strings.TrimSpace(r.Rule + " " + r.Value)
		if r.Line > 0 {
			text += fmt.Sprintf(", at %s:%d", r.File, r.Line)
		}
		rows = append(rows, []string{"rule", text})
	}
	if !answer.Passes {
		return append(rows, []string{"refused", strings.TrimSpace(fmt.Sprint(answer.Status, " ", answer.Code, " ", answer.Reason))})
	}
	how := "with these headers"
	if len(answer.Headers) == 0 {
		how = "without a user"
	}
	rows = append(rows, []string{"passes", how})
	for _, name := range slices.Sorted(maps.Keys(answer.Headers)) {
		rows = append(rows, []string{"header", name + ": " + answer.Headers[name]})
	}
	return rows
}
