package admin

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/mnemogate/mnemogate/caddymodule/accounts"
	"github.com/mnemogate/mnemogate/caddymodule/accounts/api"
	"github.com/mnemogate/mnemogate/caddymodule/app"
	"github.com/mnemogate/mnemogate/caddymodule/guest"
	"github.com/mnemogate/mnemogate/flows/background"
	"github.com/mnemogate/mnemogate/flows/manage"
	"github.com/mnemogate/mnemogate/flows/message"
	"github.com/mnemogate/mnemogate/flows/panics"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/store/causes"
)

// trialTimeout is longer than the longest timeout of a gateway.
const trialTimeout = 65 * time.Second

// try sends one test message through a company's gateway and answers with the
// result. The message counts towards no limit and no metric.
func try(c *accounts.Call) error {
	given, err := c.Texts("channel", "to?")
	if err != nil {
		return err
	}
	channel := given["channel"]
	t, err := newTrial(c, channel, given["to"])
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(c.Context(), trialTimeout)
	defer cancel()
	f := t.run(ctx, c.App)
	c.App.Log().Info("a test was sent", "company", f.Company, "channel", channel, "result", f.Result, "address", c.Address)
	return c.Reply(http.StatusOK, f, nil)
}

// A trial is a test message for a gateway.
type trial struct {
	company *tenant.Company
	check   string
	what    string // a description for people
	send    func(context.Context) error
	doubt   string // why a real message like this would not be sent
}

// newTrial returns a trial, or an error that says why it is not possible.
func newTrial(c *accounts.Call, channel, to string) (*trial, error) {
	t := &trial{company: c.Admin.Company, check: channel}
	switch channel {
	case "sms", "mail":
		m, err := manage.NewTrial(t.company, to, channel == "mail")
		if err != nil {
			return nil, err
		}
		t.what = "a test to " + m.To
		sender := t.company.Mail
		if channel == "sms" {
			sender = t.company.SMS
			if _, listed := t.company.Limits.Country(m.To); !listed {
				t.doubt = "codes are not sent to this phone, because sms_countries does not include its country: add it if they should be"
			} else if !t.company.SendsTo(m.To) {
				t.doubt = "codes are not sent to this phone, because no gateway has its country in countries: add it if they should be"
			}
		}
		if gateways, _ := sender.(message.Gateways); len(gateways) > 0 {
			t.send = func(ctx context.Context) error { return sendThroughAll(ctx, gateways, m) }
		}
	case "events":
		if to != "" {
			return nil, &manage.FieldError{Field: "to", Message: "events have one receiver: leave it out"}
		}
		t.what = "a test event"
		for _, g := range c.App.Companies[t.company.Code].Guests() { // those of t.company count what they deliver
			if receiver, ok := g.Module.(tenant.EventReceiver); ok {
				e := background.TrialEvent(t.company, c.Service.Now())
				t.send = func(ctx context.Context) error { return receiver.Deliver(ctx, e) }
			}
		}
	default:
		return nil, &manage.FieldError{Field: "channel", Message: "it must be sms, mail or events"}
	}
	if t.send == nil {
		return nil, &accounts.Error{Status: http.StatusBadRequest, Field: "channel", Message: "company " + t.company.Code + " has no " + channel + " in its configuration: there is nothing to test"}
	}
	return t, nil
}

// sendThroughAll sends a test through each gateway, and returns all their errors. The answer
// of the trial is that of each gateway.
func sendThroughAll(ctx context.Context, gateways message.Gateways, m message.Message) (err error) {
	var answers []string
	for _, g := range gateways {
		came := new(guest.Trial)
		failed := g.Send(came.In(ctx), m)
		if err != nil && failed != nil {
			failed = fmt.Errorf("%w; %v", failed, err)
		}
		err = cmp.Or(failed, err)
		answers = append(answers, came.Answer)
	}
	guest.TrialOf(ctx).Answer = strings.Join(answers, "; ")
	return err
}

func (t *trial) run(ctx context.Context, a *app.App) api.Finding {
	f := api.Finding{Check: t.check, Company: t.company.Code, Result: api.OK}
	came := new(guest.Trial)
	began := time.Now()
	err := panics.ContainLogged(a.Log(), "sending a test", func() error { return t.send(came.In(ctx)) })
	f.Took = time.Since(began).Round(10 * time.Microsecond).String()
	switch {
	case err != nil:
		what, step := causes.Split(err)
		f.Result, f.Advice = api.Failed, cmp.Or(step, unexplained)
		f.Message = t.what + " was not accepted: " + what
	case t.doubt != "":
		f.Result, f.Advice = api.Warning, t.doubt
		fallthrough
	default:
		f.Message = t.what + " was accepted: " + cmp.Or(came.Answer, "the gateway gave no details")
	}
	return f
}
