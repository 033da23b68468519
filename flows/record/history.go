package record

import (
	"context"
	"time"
)

// A History is an Accounts that keeps what happened to accounts. Not every
// Accounts is one.
type History interface {
	// Record keeps events, each of the account that its Company and Account name;
	// one of an account that is not there is forgotten. Of each account it keeps
	// no more than the newest HistoryKept that are Noise, and as many others. They
	// go with their account.
	Record(ctx context.Context, events []Event) error
	// Recorded returns up to limit of an account's events, the newest first.
	Recorded(ctx context.Context, company string, account int64, limit int) ([]Event, error)
	// Forget forgets the events from before a time. It holds no one up for long.
	Forget(ctx context.Context, before time.Time) error
}

// HistoryKept is how many events of an account are kept that strangers can cause,
// and how many others: whoever tries passwords pushes none of these out.
const HistoryKept = 100
