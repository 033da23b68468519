package record

import (
	"context"
	"time"
)

// A History keeps the events of accounts.
type History interface {
	// Record keeps events. The Company and Account of each name its account; an
	// event of a missing account is dropped. Record keeps the newest HistoryKept
	// events of an account with Noise set, and as many without. Of those with Apart
	// set, it keeps the newest HistoryKeptApart of each name besides. An event that
	// happens again becomes one entry with the earlier one, if no other came between
	// them; for one with Apart set, no other of its name. The entry has the newest Ref.
	// Deleting the account deletes its events.
	Record(ctx context.Context, events []Event) error
	// Recorded returns up to limit of an account's events, newest first, with Count
	// and the time of the latest.
	Recorded(ctx context.Context, company string, account int64, limit int) ([]Event, error)
	// Referred returns the events of a company's accounts with this Ref, newest first, with
	// the present Mnemocode of each account.
	Referred(ctx context.Context, company, ref string) ([]Event, error)
	// Forget deletes events older than before. It must not block other calls for
	// long.
	Forget(ctx context.Context, before time.Time) error
}

// HistoryKept is how many events of an account are kept of each of two kinds: those
// that clients with only a login id can cause, and all others. So guessing passwords
// cannot push out the others.
const HistoryKept = 100

// HistoryKeptApart is how many events of a name are kept that a client can cause without
// end.
const HistoryKeptApart = 20
