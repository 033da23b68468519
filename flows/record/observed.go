package record

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// An Observer is told of a call to a store when it has ended: the method, as in
// accounts.by_id, when the call began, and its error.
type Observer func(ctx context.Context, method string, began time.Time, err error)

// Observed is a part of a store that tells an observer of the store's calls.
type Observed struct{ observer Observer }

// Observe sets the observer. Call it before any other method of the store.
func (o *Observed) Observe(observer Observer) { o.observer = observer }

// Called ends a call. What it did is a text such as "accounts.by_id: loading account". The
// observer is told of calls whose text names a method. If err is no answer, the returned
// error says what the call did.
func (o *Observed) Called(ctx context.Context, what string, began time.Time, err error) error {
	method, doing, named := strings.Cut(what, ": ")
	if !named {
		doing = what
	} else if o.observer != nil {
		o.observer(ctx, method, began, err)
	}
	if err == nil || IsAnswer(err) {
		return err
	}
	return fmt.Errorf("%s: %w", doing, err)
}
