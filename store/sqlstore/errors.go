package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
)

// A refusal is the error of a function that the caller passed in.
type refusal struct{ error }

// ErrAgain means that a call must start again, because another call made the same
// change first.
var ErrAgain = errors.New("too many calls change the same")

// Call runs f as a call of the store: see record.Observed.Called. It turns the errors of
// the store's driver into those that the interfaces promise.
func Call(ctx context.Context, s Database, what string, f func() error) error {
	began := time.Now()
	err := f()
	if r, ok := errors.AsType[refusal](err); ok {
		_ = s.Called(ctx, what, began, nil) // the store has answered
		return r.error
	}
	switch {
	case err == nil:
	case errors.Is(err, sql.ErrNoRows):
		err = record.ErrNotFound
	default:
		err = s.Answer(err)
	}
	return s.Called(ctx, what, began, err)
}
