package flows

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
)

// An EventReceiver is told what happens to a company's accounts. Deliver
// returns nil once the receiver has taken the event, keeps to its own timeout,
// and may be called concurrently.
type EventReceiver interface {
	Deliver(ctx context.Context, o record.Outgoing) error
}

// Events is who is told of what happens to a company's accounts.
type Events struct {
	Receiver EventReceiver // nil for nobody
	Types    []string      // of OutgoingTypes; nil for all
	Timeout  time.Duration // the receiver's own
	Retry    time.Duration // until an event is tried again for the first time
}

func (e *Events) wants(kind string) bool {
	return e.Receiver != nil && (e.Types == nil || slices.Contains(e.Types, kind))
}

// A fact is what an Outgoing tells of an account, in the words of the accounts
// API.
type fact struct {
	kind      string
	Company   string         `json:"company_code"`
	Mnemocode string         `json:"profile_mnemocode"`
	Previous  string         `json:"previous_mnemocode,omitempty"` // if it was changed
	Fields    []string       `json:"fields,omitempty"`
	Accepted  []factAccepted `json:"accepted,omitempty"`
	Lock      string         `json:"lock,omitempty"`
	Until     *time.Time     `json:"locked_until,omitempty"` // none: until someone ends it
	Provider  int            `json:"provider_id,omitempty"`
}

type factAccepted struct {
	Code    string `json:"code"`
	Version string `json:"version"`
}

// tell is how a change is told of, once it was made: nil, at no cost, where the
// company tells nobody.
func (s *Service) tell(company *Company, of func() []fact) []record.Tell {
	if company.Events.Receiver == nil || s.Outbox == nil {
		return nil
	}
	return []record.Tell{func() (all []record.Outgoing) {
		for _, f := range of() {
			if company.Events.wants(f.kind) {
				all = append(all, s.outgoing(company, f))
			}
		}
		return all
	}}
}

// tellOf is tell where it is known before what there is to tell.
func (s *Service) tellOf(company *Company, facts ...fact) []record.Tell {
	return s.tell(company, func() []fact { return facts })
}

func (s *Service) outgoing(company *Company, f fact) record.Outgoing {
	f.Company = company.Code
	at := s.Now().UTC().Truncate(time.Microsecond)
	body, err := json.Marshal(struct {
		Type      string    `json:"type"`
		Timestamp time.Time `json:"timestamp"`
		Data      fact      `json:"data"`
	}{f.kind, at, f})
	if err != nil {
		panic(err) // strings and times always can be
	}
	return record.Outgoing{ID: newID(), Type: f.kind, At: at, Body: body, Queue: cmp.Or(f.Previous, f.Mnemocode)}
}

// changeFacts tell of a change by an operator: of a set password alone, and of
// the other fields.
func changeFacts(before, after record.Account, fields []string) (facts []fact) {
	others := slices.DeleteFunc(slices.Clone(fields), func(f string) bool { return f == "password" })
	if len(others) > 0 {
		f := fact{kind: record.TellChanged, Mnemocode: after.Mnemocode, Fields: others}
		if before.Mnemocode != after.Mnemocode {
			f.Previous = before.Mnemocode
		}
		facts = append(facts, f)
	}
	if len(others) < len(fields) {
		facts = append(facts, fact{kind: record.TellPassword, Mnemocode: after.Mnemocode})
	}
	return facts
}

func acceptedFact(mnemocode string, accepted []record.Acceptance) fact {
	f := fact{kind: record.TellDisclaimers, Mnemocode: mnemocode}
	for _, a := range accepted {
		f.Accepted = append(f.Accepted, factAccepted{a.Code, a.Version})
	}
	return f
}

// lockFact tells of an account's lock, which is named as its event is.
func lockFact(mnemocode, lock string, t record.Tally) fact {
	f := fact{kind: record.TellLocked, Mnemocode: mnemocode, Lock: strings.TrimPrefix(lock, record.LockPrefix)}
	if lock != record.LockDisabled {
		f.Until = new(t.Until.UTC())
	}
	return f
}
