package flows

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"
)

// An EventReceiver is told what happens to a company's accounts. Deliver
// returns nil once the receiver has taken the event, keeps to its own timeout,
// and may be called concurrently.
type EventReceiver interface {
	Deliver(ctx context.Context, o Outgoing) error
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

// An Outgoing is an event on its way to a receiver. It tells that something is
// new, and of it no more than names: no secret, and nothing that the receiver
// would have to keep in order.
type Outgoing struct {
	ID   string // unique, and the same in each try
	Type string
	At   time.Time
	Body []byte // the JSON that is sent
	// Queue is the mnemocode by which the receiver knows the account before the
	// event. A store keeps those of one mnemocode, and those of one account, in
	// order.
	Queue string
}

// A Tell returns what is to be told of a change. The store calls it once the
// change was made, within the step, so it may look at what came of that; it must
// be as quick as the change, and may be called more than once.
type Tell func() []Outgoing

// An Outbox is an Accounts that keeps what is to be told of its changes until
// it was delivered. What Tells return is stored in the same step as the change:
// both are, or neither.
//
// Its events wait in queues, which are delivered one by one. Who has claimed a
// queue delivers its events in order and settles it; if it never does, the queue
// can be claimed again once the claim has run out.
type Outbox interface {
	// Due returns the companies that have queues which are due at now.
	Due(ctx context.Context, now time.Time) ([]string, error)
	// Claim claims up to limit of the company's queues that are due, for until,
	// those first that were due earliest. A queue is due when its first event
	// is stored, or as Settle says. Of many callers, one gets a queue.
	Claim(ctx context.Context, now, until time.Time, company string, limit int) ([]OutQueue, error)
	// Settle takes delivered events out of a claimed queue, by their Number, and
	// gives it back: it is due at due, with the number of tries, unless it is
	// empty. If the claim has run out and the queue was claimed by another, that
	// stays so; the events are out all the same.
	Settle(ctx context.Context, q OutQueue, delivered []int64, due time.Time, tries int) error
	// Backlog tells what the first company, in the order of its bytes, behind
	// after has that has events. ErrNotFound if there is none.
	Backlog(ctx context.Context, after string) (Backlog, error)
}

// ClaimedEvents is how many events of a queue Claim returns at most.
const ClaimedEvents = 20

// An OutQueue is a claimed queue.
type OutQueue struct {
	Company string
	Name    string
	Claim   string // of no meaning but to the store
	Until   time.Time
	Tries   int // of the first event, in vain
	Events  []Waiting
}

// A Waiting event is in a queue.
type Waiting struct {
	Number int64 // the store's
	Outgoing
}

// A Backlog is what waits for a company's receiver.
type Backlog struct {
	Company string
	Events  int
	Oldest  time.Time
}

// The types of Outgoing.
const (
	TellCreated     = "account.created"
	TellChanged     = "account.changed"
	TellDeleted     = "account.deleted"
	TellLocked      = "account.locked"
	TellUnlocked    = "account.unlocked"
	TellPassword    = "password.changed"
	TellDisclaimers = "disclaimers.accepted"
	TellRecovery    = "recovery.completed"
	TellIdentity    = "identity.bound"
)

// OutgoingTypes lists all of them.
var OutgoingTypes = []string{
	TellCreated, TellChanged, TellDeleted, TellLocked, TellUnlocked,
	TellPassword, TellDisclaimers, TellRecovery, TellIdentity,
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
func (s *Service) tell(company *Company, of func() []fact) []Tell {
	if company.Events.Receiver == nil || s.Outbox == nil {
		return nil
	}
	return []Tell{func() (all []Outgoing) {
		for _, f := range of() {
			if company.Events.wants(f.kind) {
				all = append(all, s.outgoing(company, f))
			}
		}
		return all
	}}
}

// tellOf is tell where it is known before what there is to tell.
func (s *Service) tellOf(company *Company, facts ...fact) []Tell {
	return s.tell(company, func() []fact { return facts })
}

func (s *Service) outgoing(company *Company, f fact) Outgoing {
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
	return Outgoing{ID: newID(), Type: f.kind, At: at, Body: body, Queue: cmp.Or(f.Previous, f.Mnemocode)}
}

// changeFacts tell of a change by an operator: of a set password alone, and of
// the other fields.
func changeFacts(before, after Account, fields []string) (facts []fact) {
	others := slices.DeleteFunc(slices.Clone(fields), func(f string) bool { return f == "password" })
	if len(others) > 0 {
		f := fact{kind: TellChanged, Mnemocode: after.Mnemocode, Fields: others}
		if before.Mnemocode != after.Mnemocode {
			f.Previous = before.Mnemocode
		}
		facts = append(facts, f)
	}
	if len(others) < len(fields) {
		facts = append(facts, fact{kind: TellPassword, Mnemocode: after.Mnemocode})
	}
	return facts
}

func acceptedFact(mnemocode string, accepted []Acceptance) fact {
	f := fact{kind: TellDisclaimers, Mnemocode: mnemocode}
	for _, a := range accepted {
		f.Accepted = append(f.Accepted, factAccepted{a.Code, a.Version})
	}
	return f
}

// lockFact tells of an account's lock, which is named as its event is.
func lockFact(mnemocode, lock string, t Tally) fact {
	f := fact{kind: TellLocked, Mnemocode: mnemocode, Lock: strings.TrimPrefix(lock, LockPrefix)}
	if lock != LockDisabled {
		f.Until = new(t.Until.UTC())
	}
	return f
}
