package command

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/mnemogate/mnemogate/caddymodule/accounts/api"
)

func (c *cli) doctorCommand() *cobra.Command {
	return c.command("doctor", "Checks the running server", `Asks the server how it is: whether its stores read and write, and how fast;
whether their clocks agree with its own, and its own with this machine's;
whether the gateways for SMS and mail, the captcha and the OAuth providers of
each company are reached (nothing is sent); and which settings are for tests or
weaker than they should be.

What is wrong is told with what to do. The exit status is 1 if something failed,
4 if the server was not reached, 0 if there were warnings at most.`,
		cobra.NoArgs, func(cmd *cobra.Command, _ []string) error {
			if c.api != "" {
				return errors.New("doctor asks the admin endpoint: leave --api out, and run it where that is reached")
			}
			asked := time.Now()
			data, err := c.ask(cmd.Context(), http.MethodGet, api.Root+"doctor", nil)
			if err != nil {
				return err
			}
			var answer struct {
				Time     time.Time
				Findings []api.Finding
			}
			if err := json.Unmarshal(data, &answer); err != nil {
				return err
			}
			return c.tellFindings(cmd.OutOrStdout(), append(
				[]api.Finding{{Check: "admin endpoint", Result: api.OK, Message: c.address + " answers, and mnemogate is configured"}, clockFinding(asked, answer.Time)},
				answer.Findings...))
		})
}

// clockFinding compares this machine's clock with the server's, which answered
// at some moment since asked.
func clockFinding(asked, there time.Time) api.Finding {
	f := api.Finding{Check: "clock", Result: api.OK, Message: "the server's clock agrees with this machine's"}
	if there.Before(asked.Add(-api.MaxSkew)) || there.After(time.Now().Add(api.MaxSkew)) {
		f.Result = api.Warning
		f.Message = fmt.Sprintf("the server's clock differs from this machine's by %s", there.Sub(asked).Abs().Round(time.Second))
		f.Advice = "let both machines take their time from NTP"
	}
	return f
}

func (c *cli) tellFindings(w io.Writer, findings []api.Finding) error {
	failed := 0
	var rows [][]string
	for _, f := range findings {
		if f.Result == api.Failed {
			failed++
		}
		if c.json {
			if err := api.WriteLine(w, f); err != nil {
				return err
			}
			continue
		}
		check := f.Check
		if f.Company != "" {
			check = f.Company + ": " + check
		}
		message := f.Message
		if f.Took != "" {
			message += " (" + f.Took + ")"
		}
		rows = append(rows, []string{f.Result, check, message})
		if f.Advice != "" {
			rows = append(rows, []string{"", "", "→ " + f.Advice})
		}
	}
	if err := table(w, rows...); err != nil {
		return err
	}
	if failed > 0 {
		return &cliError{exit: exitFailed, message: fmt.Sprintf("%d of %d checks failed", failed, len(findings))}
	}
	return nil
}
