package background_test

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mnemogate/mnemogate/flows/background"
	"github.com/mnemogate/mnemogate/flows/record"
)

// A sender may have a timeout of a minute.
func TestTasksHaveTimeForASlowSender(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tasks background.Tasks
		var ended, stuck error
		for wait, to := range map[time.Duration]*error{time.Minute: &ended, time.Hour: &stuck} {
			if err := tasks.Do(t.Context(), slog.New(slog.DiscardHandler), background.Task{Send: func(ctx context.Context) error {
				select {
				case <-time.After(wait):
				case <-ctx.Done():
				}
				*to = ctx.Err()
				return nil
			}}); err != nil {
				t.Error(err)
			}
		}
		tasks.Close()
		if ended != nil || stuck == nil {
			t.Errorf("after a minute: %v; after an hour: %v", ended, stuck)
		}
	})
}

// A task has its own time for stores, however much of it the request has used.
func TestTasksDoNotShareTheStoreTimeOfTheirRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := record.WithStoreTime(t.Context())
		_, done := record.StoreContext(ctx, time.Minute)
		time.Sleep(2 * time.Second)
		done()
		var tasks background.Tasks
		var failed error
		err := tasks.Do(ctx, slog.New(slog.DiscardHandler), background.Task{Send: func(ctx context.Context) error {
			call, done := record.StoreContext(ctx, time.Second)
			defer done()
			failed = call.Err()
			return nil
		}})
		tasks.Close()
		if err != nil || failed != nil {
			t.Errorf("got %v, and in the task %v", err, failed)
		}
	})
}
