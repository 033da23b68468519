package session

import (
	"context"
	"errors"
	"time"

	"github.com/mnemogate/mnemogate/flows/limits"
	"github.com/mnemogate/mnemogate/flows/panics"
)

// AskLimit is how long a captcha or provider may take that does not give up by itself.
const AskLimit = time.Minute

// Ask asks a plugin for an attempt, for at most limit, even if the client hangs up. A panic is
// an error.
func Ask[T any](ctx context.Context, at *limits.Attempt, limit time.Duration, ask func(context.Context) (T, error)) (answer T, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	defer cancel()
	err = panics.Contain(func() (err error) {
		answer, err = ask(ctx)
		return err
	})
	if err != nil {
		at.NotAnswered()
	}
	return answer, notByClient(err)
}

// notByClient returns the error of what goes on when the client hangs up. If it was canceled
// all the same, the plugin did that, so the error is logged like any other.
func notByClient(err error) error {
	if errors.Is(err, context.Canceled) {
		return errors.New(err.Error())
	}
	return err
}
