package record

import (
	"context"
	"time"
)

// An OutboxEvent tells a company's receiver of a change to an account. It names what
// is new and holds no values, so the receiver needs no order across accounts.
type OutboxEvent struct {
	Number int64  // the store's, once it is stored
	ID     string // unique, and the same in each try
	Type   string
	At     time.Time
	Body   []byte // the JSON that is sent
	// Queue is the mnemocode by which the receiver knows the account before the
	// event. A store keeps those of one mnemocode, and those of one account, in
	// order.
	Queue string
}

// An Outbox is an Accounts that stores events in the same step as the change that they
// tell of: both are stored, or neither. It keeps them until they are delivered.
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
	Claim(ctx context.Context, now, until time.Time, company string, limit int) ([]OutboxQueue, error)
	// Settle takes delivered events out of a claimed queue, by their Number, and
	// gives it back: it is due at due, with the number of tries, unless it is
	// empty. If the claim has run out and the queue was claimed by another, that
	// stays so; the events are out all the same.
	Acknowledge(ctx context.Context, q OutboxQueue, delivered []int64, due time.Time, tries int) error
	// Backlog tells what the first company, in the order of its bytes, behind
	// after has that has events. ErrNotFound if there is none.
	Backlog(ctx context.Context, after string) (Backlog, error)
}

// ClaimedEvents is how many events of a queue Claim returns at most.
const ClaimedEvents = 20

// An OutboxQueue is a claimed queue.
type OutboxQueue struct {
	Company string
	Name    string
	Claim   string // of no meaning but to the store
	Until   time.Time
	Tries   int // of the first event, in vain
	Events  []OutboxEvent
}

// A Backlog is what waits for a company's receiver.
type Backlog struct {
	Company string
	Events  int
	Oldest  time.Time
}

// The types of OutboxEvent.
const (
	TypeAccountCreated      = "account.created"
	TypeAccountChanged      = "account.changed"
	TypeAccountDeleted      = "account.deleted"
	TypeAccountLocked       = "account.locked"
	TypeAccountUnlocked     = "account.unlocked"
	TypePasswordChanged     = "password.changed"
	TypeDisclaimersAccepted = "disclaimers.accepted"
	TypeRecoveryCompleted   = "recovery.completed"
	TypeIdentityBound       = "identity.bound"
)

// OutboxTypes lists all of them.
var OutboxTypes = []string{
	TypeAccountCreated, TypeAccountChanged, TypeAccountDeleted, TypeAccountLocked, TypeAccountUnlocked,
	TypePasswordChanged, TypeDisclaimersAccepted, TypeRecoveryCompleted, TypeIdentityBound,
}
