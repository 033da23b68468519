package accounts

import (
	"net/http"

	"github.com/mnemogate/mnemogate/caddymodule/accounts/api"
	"github.com/mnemogate/mnemogate/flows/record"
)

// history lists the events of an account. Only requests with the right to list
// sessions see session ids in it.
func (c *Call) history() error {
	limit, err := limitOf(c.query)
	if err != nil {
		return err
	}
	var events []record.Event
	if c.query.Has("ref") {
		events, err = c.Admin.Referred(c.Context(), c.mnemocode(), c.query.Get("ref"))
	} else {
		events, err = c.Admin.History(c.Context(), c.mnemocode(), limit)
	}
	return c.Reply(http.StatusOK, api.History{Events: c.eventViews(events)}, err)
}

// referred finds the events with a ref, of any account.
func (c *Call) referred() error {
	events, err := c.Admin.Referred(c.Context(), "", c.query.Get("ref"))
	views := c.eventViews(events)
	for i, e := range events {
		views[i].Company, views[i].Mnemocode = c.Admin.Company.Code, e.Mnemocode
	}
	return c.Reply(http.StatusOK, api.History{Events: views}, err)
}

func (c *Call) eventViews(events []record.Event) []api.Event {
	views := make([]api.Event, len(events))
	named := c.May(Sessions)
	for i, e := range events {
		if !named {
			e.Session = ""
		}
		if e.State == record.MailedLink { // no response contains it
			e.State = record.None
		}
		views[i] = api.Event{
			Time: e.Time.UTC(), Name: e.Name, Session: e.Session, State: e.State, Address: e.Address, UserAgent: e.UserAgent,
			Actor: e.Actor, Result: e.Result, Reason: e.Reason, Factor: e.Factor, Ref: e.Ref,
		}
		if e.Count > 1 {
			views[i].Count = e.Count
		}
	}
	return views
}
