package command

import (
	"cmp"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"github.com/mnemogate/mnemogate/caddymodule/accounts/api"
)

func (c *cli) messagesCommand() *cobra.Command {
	var to string
	var follow bool
	cmd := c.command("messages [<company>] [--to <address>] [--follow]", "Shows the messages that were captured", `Shows the last SMS and mails of a company with sms capture or mail capture,
the oldest first, with their codes and links. They are in the memory of the node
that was to send them.`,
		cobra.MaximumNArgs(1), func(args []string) error {
			if len(args) > 0 {
				c.companyCode = args[0]
			}
			return c.showMessages(to, follow)
		})
	cmd.Flags().StringVar(&to, "to", "", "Only messages to this phone or email")
	cmd.Flags().BoolVar(&follow, "follow", false, "Wait for more messages, and show them as they come")
	return cmd
}

// showMessages shows the messages of the company to an address, or to all, and with follow
// those that come until the command ends.
func (c *cli) showMessages(to string, follow bool) error {
	company, err := c.company()
	if err != nil {
		return err
	}
	header := []string{"TIME", "TYPE", "TO", "CODE OR LINK"}
	for query := (url.Values{"to": {to}}); ; query.Set("wait", "20s") {
		answer, err := get[api.Messages](c, company+"/messages"+api.Query(query))
		if err != nil {
			return err
		}
		err = list(c, header, answer.Messages, func(m api.Message) []string {
			return []string{m.Time.Format(time.RFC3339), m.Type, m.To, cmp.Or(m.Code, m.Link, "-")}
		})
		if err != nil || !follow {
			return err
		}
		header = nil
		query.Set("after", answer.Next)
	}
}
