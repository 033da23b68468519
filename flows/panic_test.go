package flows_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/flows/panics"
	pw "github.com/mnemogate/mnemogate/flows/password"
	"github.com/mnemogate/mnemogate/flows/record"
)

// A panic during a turn at hashing must release the slot.
func TestPanicLeavesNoSlotOfTheHasherTaken(t *testing.T) {
	h := pw.NewHasher(2)
	_, limit := h.Queue()
	var mu sync.Mutex
	broken := true
	h.Waited = func(_ time.Duration, got bool) {
		mu.Lock()
		defer mu.Unlock()
		if broken && got {
			panic("hunter2")
		}
	}
	var all sync.WaitGroup
	for range 2 * limit {
		all.Go(func() {
			err := panics.Contain(func() error {
				_, err := h.Hash(t.Context(), pw.Turn{Company: code}, cheap, "secret")
				return err
			})
			if err == nil {
				t.Error("it did not panic")
			}
		})
	}
	all.Wait()
	if n, _ := h.Queue(); n != 0 {
		t.Errorf("%d are still in the queue", n)
	}
	broken = false
	if _, err := h.Hash(t.Context(), pw.Turn{Company: code}, cheap, "secret"); err != nil {
		t.Error(err)
	}
}

// An observer that panics fails only the call that it observes.
func TestPanicOfTheObserverEndsOneCall(t *testing.T) {
	b := newBench(t)
	observe := b.Observe
	b.Observe = func(context.Context, record.Event) { panic("hunter2") }
	for range 100 {
		err := panics.Contain(func() error {
			_, err := b.serve("auth/login", "", object{"login_id": email})
			return err
		})
		if _, ok := errors.AsType[*panics.Error](err); !ok {
			t.Fatalf("got %v, want the observer's panic, which the HTTP layer answers", err)
		}
	}
	b.Observe = observe
	b.must("auth/login", "", object{"login_id": email})
}
