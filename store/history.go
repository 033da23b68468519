package store

import (
	"cmp"
	"encoding/json"
	"slices"

	"github.com/mnemogate/mnemogate/flows/record"
)

// scanEvent reads an event of an account from its time and the rest.
func scanEvent(company string, account int64) func(scanner) (record.Event, error) {
	return func(row scanner) (e record.Event, err error) {
		var at int64
		var data []byte
		if err := row.Scan(&at, &data); err != nil {
			return e, err
		}
		err = json.Unmarshal(data, &e)
		e.Time, e.Company, e.Account = fromMicros(at), company, account
		return e, err
	}
}

// byAccount orders events so that two who store some never wait for one another.
// Those of an account stay in order.
func byAccount(events []record.Event) []record.Event {
	events = slices.Clone(events)
	slices.SortStableFunc(events, func(a, b record.Event) int { return cmp.Compare(a.Account, b.Account) })
	return events
}
