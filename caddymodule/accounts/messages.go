package accounts

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/mnemogate/mnemogate/caddymodule/accounts/api"
	"github.com/mnemogate/mnemogate/caddymodule/captured"
	"github.com/mnemogate/mnemogate/flows/manage"
	"github.com/mnemogate/mnemogate/flows/typed"
)

// maxWait is how long a request may wait for a message.
const maxWait = 30 * time.Second

func (c *Call) messages() error {
	if company := c.Admin.Company; !captured.Of(company.SMS) && !captured.Of(company.Mail) {
		return &Error{Status: http.StatusNotFound, Field: "company", Message: "the company captures no messages: configure sms capture or mail capture"}
	}
	after, err := int64(0), error(nil)
	if sent := c.query.Get("after"); sent != "" {
		if after, err = strconv.ParseInt(sent, 10, 64); err != nil {
			return &manage.FieldError{Field: "after", Message: "it must be the next of an answer"}
		}
	}
	wait := time.Duration(0)
	if sent := c.query.Get("wait"); sent != "" {
		if wait, err = parseWait(sent); err != nil || wait < 0 || wait > maxWait {
			return &manage.FieldError{Field: "wait", Message: "it must be a duration of at most 30s, such as 10s"}
		}
	}
	ctx, cancel := context.WithTimeout(c.Context(), wait)
	defer cancel()
	answer := api.Messages{Messages: []api.Message{}, Next: strconv.FormatInt(after, 10)}
	for _, m := range captured.List(ctx, c.Admin.Company.Code, typed.LoginID(c.LoginID("to"), c.Admin.Company.PhoneRegion), after) {
		answer.Next = strconv.FormatInt(m.Number, 10)
		answer.Messages = append(answer.Messages, api.Message{
			ID: m.ID, Time: m.Time.UTC(), Type: m.Type, To: m.To, Code: m.Code, Link: m.Link, Text: m.Text,
		})
	}
	return c.Reply(http.StatusOK, answer, nil)
}

// parseWait reads a duration, or a whole number of seconds.
func parseWait(s string) (time.Duration, error) {
	if seconds, err := strconv.ParseUint(s, 10, 8); err == nil {
		return time.Duration(seconds) * time.Second, nil
	}
	return time.ParseDuration(s)
}
