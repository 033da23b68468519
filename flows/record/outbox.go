package record

import (
	"context"
	"time"
)

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
