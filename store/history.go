package store

import (
	"cmp"
	"encoding/json"
	"slices"

	"github.com/mnemogate/mnemogate/flows/record"
)

// A storedEvent is what an account's history keeps of an event, beside its time.
type storedEvent struct {
	Name      string       `json:"event"`
	Mnemocode string       `json:"mnemocode,omitempty"`
	Session   string       `json:"session,omitempty"`
	State     record.State `json:"state,omitempty"`
	Address   string       `json:"address,omitempty"`
	UserAgent string       `json:"user_agent,omitempty"`
	Actor     string       `json:"actor,omitempty"`
	Route     string       `json:"route,omitempty"`
	Result    string       `json:"result,omitempty"`
	Reason    string       `json:"reason,omitempty"`
}

func encodeEvent(e record.Event) (string, error) {
	data, err := json.Marshal(storedEvent{
		e.Name, e.Mnemocode, e.Session, e.State, e.Address, e.UserAgent, e.Actor, e.Route, e.Result, e.Reason,
	})
	return string(data), err
}

// scanEvent reads an event of an account from its time and the rest.
func scanEvent(company string, account int64) func(scanner) (record.Event, error) {
	return func(row scanner) (record.Event, error) {
		var at int64
		var data string
		var e storedEvent
		if err := row.Scan(&at, &data); err != nil {
			return record.Event{}, err
		}
		err := json.Unmarshal([]byte(data), &e)
		return record.Event{
			Name: e.Name, Time: fromMicros(at), Company: company, Account: account, Mnemocode: e.Mnemocode,
			Session: e.Session, State: e.State, Address: e.Address, UserAgent: e.UserAgent,
			Actor: e.Actor, Route: e.Route, Result: e.Result, Reason: e.Reason,
		}, err
	}
}

// byAccount orders events so that two who store some never wait for one another.
// Those of an account stay in order.
func byAccount(events []record.Event) []record.Event {
	events = slices.Clone(events)
	slices.SortStableFunc(events, func(a, b record.Event) int { return cmp.Compare(a.Account, b.Account) })
	return events
}
