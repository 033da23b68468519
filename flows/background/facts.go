package background

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/tokens"
)

// A Fact is what an Outgoing tells of an account, in the words of the accounts
// API.
type Fact struct {
	Kind      string         `json:"-"` // the Type of the Outgoing
	Company   string         `json:"company_code"`
	Mnemocode string         `json:"profile_mnemocode"`
	Previous  string         `json:"previous_mnemocode,omitempty"` // if it was changed
	Fields    []string       `json:"fields,omitempty"`
	Accepted  []factAccepted `json:"accepted,omitempty"`
	Lock      string         `json:"lock,omitempty"`
	Until     *time.Time     `json:"locked_until,omitempty"` // none: until someone ends it
	Provider  int            `json:"provider_id,omitempty"`
}

// A factAccepted is a disclaimer that was accepted.
type factAccepted struct {
	Code    string `json:"code"`
	Version string `json:"version"`
}

// Tell is how a change is told of, once it was made: nil, at no cost, where the
// company tells nobody.
func Tell(company *tenant.Company, now func() time.Time, of func() []Fact) []record.Tell {
	if company.Events.Receiver == nil {
		return nil
	}
	return []record.Tell{func() (all []record.Outgoing) {
		for _, f := range of() {
			if company.Events.Wants(f.Kind) {
				all = append(all, f.Outgoing(company.Code, now()))
			}
		}
		return all
	}}
}

// Outgoing is what a company's receiver is told of the fact.
func (f Fact) Outgoing(company string, now time.Time) record.Outgoing {
	f.Company = company
	at := now.UTC().Truncate(time.Microsecond)
	body, err := json.Marshal(struct {
		Type      string    `json:"type"`
		Timestamp time.Time `json:"timestamp"`
		Data      Fact      `json:"data"`
	}{f.Kind, at, f})
	if err != nil {
		panic(err) // strings and times always can be
	}
	return record.Outgoing{ID: tokens.NewID(), Type: f.Kind, At: at, Body: body, Queue: cmp.Or(f.Previous, f.Mnemocode)}
}

// ChangeFacts tell of a change by an operator: of a set password alone, and of
// the other fields.
func ChangeFacts(before, after record.Account, fields []string) (facts []Fact) {
	others := slices.DeleteFunc(slices.Clone(fields), func(f string) bool { return f == "password" })
	if len(others) > 0 {
		f := Fact{Kind: record.TellChanged, Mnemocode: after.Mnemocode, Fields: others}
		if before.Mnemocode != after.Mnemocode {
			f.Previous = before.Mnemocode
		}
		facts = append(facts, f)
	}
	if len(others) < len(fields) {
		facts = append(facts, Fact{Kind: record.TellPassword, Mnemocode: after.Mnemocode})
	}
	return facts
}

// AcceptedFact tells of accepted disclaimers.
func AcceptedFact(mnemocode string, accepted []record.Acceptance) Fact {
	f := Fact{Kind: record.TellDisclaimers, Mnemocode: mnemocode}
	for _, a := range accepted {
		f.Accepted = append(f.Accepted, factAccepted{a.Code, a.Version})
	}
	return f
}

// LockFact tells of an account's lock, which is named as its event is.
func LockFact(mnemocode, lock string, t record.Tally) Fact {
	f := Fact{Kind: record.TellLocked, Mnemocode: mnemocode, Lock: strings.TrimPrefix(lock, record.LockPrefix)}
	if lock != record.LockDisabled {
		f.Until = new(t.Until.UTC())
	}
	return f
}
