package command

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/mnemogate/mnemogate/caddymodule/accounts/api"
)

func (c *cli) doctorCommand() *cobra.Command {
	var test string
	cmd := c.adminCommand("doctor [--send-test sms:<phone>|mail:<address>|events]", "Checks the running server", `Checks that the stores read and write, and how fast; that the clocks of the
stores, the server and this machine agree; that the server reaches each
company's gateways, captcha and OAuth providers, without sending anything; and
which settings are weak or for tests.

For each problem, it says what to do. The exit status is 1 if a check failed, 4
if the server did not answer, and 0 otherwise, also with warnings.

With --send-test, it instead sends one SMS to the phone, one mail to the
address, or one event to the receiver of events, through the running
configuration of the company (--company), and shows the answer. The message says
that it is a test, has the type "test", and has no code or link. It counts for
no limit, account or metric, but your gateway may charge for it. The exit status
is 1 if the gateway refused it.`,
		cobra.NoArgs, func([]string) error {
			if c.cmd.Flags().Changed("send-test") {
				return c.sendTest(test)
			}
			asked := time.Now()
			answer, err := get[struct {
				Time     time.Time
				Findings []api.Finding
			}](c, api.Root+"doctor")
			if err != nil {
				return err
			}
			here := api.Finding{Check: "admin endpoint", Result: api.OK, Message: c.server.address + " answers, and mnemogate is configured"}
			return c.printFindings(append([]api.Finding{here, clockFinding(asked, answer.Time)}, answer.Findings...)...)
		})
	cmd.Flags().StringVar(&test, "send-test", "", "Send a test: sms:<phone>, mail:<address> or events")
	return cmd
}

// sendTest makes the server test a gateway of the company.
func (c *cli) sendTest(test string) error {
	channel, to, given := strings.Cut(test, ":")
	if !slices.Contains([]string{"sms", "mail", "events"}, channel) || given == (channel == "events") {
		return errors.New("--send-test: write sms:<phone>, mail:<address> or events")
	}
	company, err := c.company()
	if err != nil {
		return err
	}
	f, err := call[api.Finding](c, http.MethodPost, company+"/send-test", map[string]string{"channel": channel, "to": to})
	if err != nil {
		return err
	}
	return c.printFindings(f)
}

// clockFinding compares this machine's clock with the server's. The server read its
// clock at some time after asked.
func clockFinding(asked, there time.Time) api.Finding {
	f := api.Finding{Check: "clock", Result: api.OK, Message: "the server's clock agrees with this machine's; if they are one, only timedatectl can say whether it is right"}
	if there.Before(asked.Add(-api.MaxSkew)) || there.After(time.Now().Add(api.MaxSkew)) {
		f.Result = api.Warning
		f.Message = fmt.Sprintf("the server's clock differs from this machine's by %s", there.Sub(asked).Abs().Round(time.Second))
		f.Advice = "let both machines take their time from NTP"
	}
	return f
}

func (c *cli) printFindings(findings ...api.Finding) error {
	var rows [][]string
	for _, f := range findings {
		if f.Company != "" {
			f.Check = f.Company + ": " + f.Check
		}
		if f.Took != "" {
			f.Message += " (" + f.Took + ")"
		}
		rows = append(rows, []string{f.Result, f.Check, f.Message})
		if f.Advice != "" {
			rows = append(rows, []string{"", "", "→ " + f.Advice})
		}
	}
	var err error
	if c.json {
		err = list(c, nil, findings, nil)
	} else {
		err = c.table(rows...)
	}
	failed := 0
	for _, f := range findings {
		if f.Result == api.Failed {
			failed++
		}
	}
	switch {
	case err != nil || failed == 0:
		return err
	case len(findings) == 1:
		return &cliError{exit: exitFailed} // everything was printed
	default:
		return &cliError{exit: exitFailed, message: fmt.Sprintf("%d of %d checks failed", failed, len(findings))}
	}
}
