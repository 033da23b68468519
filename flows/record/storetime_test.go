package record

import (
	"context"
	"testing"
	"time"
)

func TestCallsOfARequestShareTheTimeForStores(t *testing.T) {
	remaining := func(ctx context.Context, limit time.Duration) (time.Duration, func()) {
		call, done := StoreContext(ctx, limit)
		deadline, _ := call.Deadline()
		return time.Until(deadline), done
	}
	ctx := WithStoreTime(t.Context())
	if left, done := remaining(ctx, time.Second); left > time.Second || left < 900*time.Millisecond {
		t.Errorf("the first call has %v, want its limit", left)
	} else {
		time.Sleep(50 * time.Millisecond)
		done()
	}
	left, done := remaining(WithStoreTime(context.WithoutCancel(ctx)), time.Minute)
	if left > storeTime-50*time.Millisecond {
		t.Errorf("the second call has %v, want what the first has left of %v", left, storeTime)
	}
	done()
	if left, done := remaining(t.Context(), time.Minute); left < 59*time.Second {
		t.Errorf("what is no request's has %v, want its limit", left)
	} else {
		done()
	}
}
