package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/mnemogate/mnemogate/caddymodule/accounts/api"
)

func (c *cli) doctorCommand() *cobra.Command {
	var test string
	cmd := c.command("doctor [--send-test sms:<phone>|mail:<address>|events]", "Checks the running server", `Asks the server how it is: whether its stores read and write, and how fast;
whether their clocks agree with its own, and its own with this machine's;
whether the gateways for SMS and mail, the captcha and the OAuth providers of
each company are reached (nothing is sent); and which settings are for tests or
weaker than they should be.

What is wrong is told with what to do. The exit status is 1 if something failed,
4 if the server was not reached, 0 if there were warnings at most.

With --send-test it does something else: it sends one SMS to the phone, one mail
to the address, or one event to the receiver of events, by the gateway that the
running configuration has for the company (--company), and tells what that
answered. The message says that it is a test, is of the type "test", and has no
code or link. It counts for no limit, such as sms_per_phone, for no account and
for no metric; what the gateway asks for an SMS it costs. The exit status is 1
if the gateway did not take it.`,
		cobra.NoArgs, func(cmd *cobra.Command, _ []string) error {
			if c.api != "" {
				return errors.New("doctor asks the admin endpoint: leave --api out, and run it where that is reached")
			}
			if cmd.Flags().Changed("send-test") {
				return c.sendTest(cmd.Context(), cmd.OutOrStdout(), test)
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
	cmd.Flags().StringVar(&test, "send-test", "", "Send a test: sms:<phone>, mail:<address> or events")
	return cmd
}

// sendTest has the server try out a gateway of the company.
func (c *cli) sendTest(ctx context.Context, w io.Writer, test string) error {
	channel, to, given := strings.Cut(test, ":")
	if !slices.Contains([]string{"sms", "mail", "events"}, channel) || given == (channel == "events") {
		return errors.New("--send-test: write sms:<phone>, mail:<address> or events")
	}
	company, err := c.company(ctx)
	if err != nil {
		return err
	}
	data, err := c.ask(ctx, http.MethodPost, company+"/send-test", map[string]string{"channel": channel, "to": to})
	if err != nil {
		return err
	}
	var f api.Finding
	if err := json.Unmarshal(data, &f); err != nil {
		return err
	}
	return c.tellFindings(w, []api.Finding{f})
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
	switch {
	case failed > 0 && len(findings) == 1:
		return &cliError{exit: exitFailed} // all is said
	case failed > 0:
		return &cliError{exit: exitFailed, message: fmt.Sprintf("%d of %d checks failed", failed, len(findings))}
	}
	return nil
}
