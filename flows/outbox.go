package flows

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
func (s *Service) tell(company *tenant.Company, of func() []fact) []record.Tell {
	if company.Events.Receiver == nil || s.Outbox == nil {
		return nil
	}
	return []record.Tell{func() (all []record.Outgoing) {
		for _, f := range of() {
			if company.Events.Wants(f.kind) {
				all = append(all, s.outgoing(company, f))
			}
		}
		return all
	}}
}

// tellOf is tell where it is known before what there is to tell.
func (s *Service) tellOf(company *tenant.Company, facts ...fact) []record.Tell {
	return s.tell(company, func() []fact { return facts })
}

func (s *Service) outgoing(company *tenant.Company, f fact) record.Outgoing {
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
	return record.Outgoing{ID: tokens.NewID(), Type: f.kind, At: at, Body: body, Queue: cmp.Or(f.Previous, f.Mnemocode)}
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
