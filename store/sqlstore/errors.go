package sqlstore

import (
	"database/sql"
	"errors"
	"fmt"

	"github.com/mnemogate/mnemogate/flows/record"
)

// A refusal is the error of a function that the caller passed in.
type refusal struct{ error }

// Refused returns the error of a function that the caller passed in, for Translate.
func Refused(err error) error { return refusal{err} }

// ErrAgain means that a call must start again, because another call made the same
// change first.
var ErrAgain = errors.New("too many calls change the same")

// Translate turns the errors of a store's driver into those that the interfaces promise.
// It adds doing to any other error.
func Translate(s Database, doing string, err error) error {
	if err == nil {
		return nil
	}
	if r, ok := errors.AsType[refusal](err); ok {
		return r.error
	}
	if errors.Is(err, sql.ErrNoRows) {
		return record.ErrNotFound
	}
	if err = s.Answer(err); record.IsAnswer(err) {
		return err
	}
	return fmt.Errorf("%s: %w", doing, err)
}
