package record

import (
	"context"
	"time"
)

// An OutboxEvent notifies a company's receiver of a change to an account. It names what
// changed and holds no values, so the receiver does not depend on the order of events
// of different accounts.
type OutboxEvent struct {
	Number int64  // given by the store
	ID     string // unique, and the same in each attempt to deliver
	Type   string
	At     time.Time
	Body   []byte // the JSON that is sent
	// Queue is the mnemocode by which the receiver knows the account before the
	// event. A store keeps the events of one account in order. It also keeps those
	// of one mnemocode in order, unless an account was renamed to it.
	Queue string
	// Traceparent names the trace of the request that caused the event, as in W3C
	// Trace Context. It is empty if the request was not traced.
	Traceparent string
}

// An Outbox stores events in the same step as the change that caused them: it stores both or
// neither. It keeps events until they are delivered.
//
// Events wait in queues. A node that has claimed a queue delivers its events in order
// and then calls Acknowledge. If it never does, others can claim the queue after the
// claim has expired.
type Outbox interface {
	// Due returns the companies that have queues due at now.
	Due(ctx context.Context, now time.Time) ([]string, error)
	// Claim claims up to limit of the company's due queues until the time until.
	// It starts with the queue that was due first. A queue becomes due when its
	// first event is stored, or at the time that Acknowledge set. Of several
	// callers, one gets a queue.
	Claim(ctx context.Context, now, until time.Time, company string, limit int) ([]OutboxQueue, error)
	// Acknowledge removes delivered events, given by Number, from a claimed queue
	// and releases the queue. If events are left, the queue is due again at the time
	// due, with this number of tries. If the claim has expired and another caller has
	// claimed the queue, that claim stays; the events are still removed.
	Acknowledge(ctx context.Context, q OutboxQueue, delivered []int64, due time.Time, tries int) error
	// Backlogs returns the backlogs of the companies that have events, ordered by their codes
	// byte by byte.
	Backlogs(ctx context.Context) ([]Backlog, error)
}

// ClaimedEvents is the maximum number of events of a queue that Claim returns.
const ClaimedEvents = 20

// MaxDue is how long a queue waits at most until it is due: an hour if its receiver asks for
// it, and a bit more for clocks that differ. Only a clock that was ahead puts it off for longer.
const MaxDue = time.Hour + 5*time.Minute

// An OutboxQueue is a claimed queue.
type OutboxQueue struct {
	Company string
	Name    string
	Claim   string // opaque; only the store uses it
	Until   time.Time
	Tries   int // failed attempts to deliver the first event
	Events  []OutboxEvent
}

// A Backlog describes the events that wait for a company's receiver.
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
	TypeContactVerified     = "contact.verified"
	TypeWelcomeUsed         = "welcome.used"
)

// OutboxTypes lists every type of OutboxEvent.
var OutboxTypes = []string{
	TypeAccountCreated, TypeAccountChanged, TypeAccountDeleted, TypeAccountLocked, TypeAccountUnlocked,
	TypePasswordChanged, TypeDisclaimersAccepted, TypeRecoveryCompleted, TypeIdentityBound, TypeContactVerified, TypeWelcomeUsed,
}
