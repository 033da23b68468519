package store

import (
	"cmp"
	"encoding/json"
	"slices"

	"github.com/mnemogate/mnemogate/flows/record"
)

// scanEvent returns a function that scans an event of an account.
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

// byAccount sorts events by account, so that two concurrent calls that store some
// can't deadlock. The events of an account stay in order.
func byAccount(events []record.Event) []record.Event {
	events = slices.Clone(events)
	slices.SortStableFunc(events, func(a, b record.Event) int { return cmp.Compare(a.Account, b.Account) })
	return events
}
