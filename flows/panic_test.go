package flows_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/flows"
	pw "github.com/mnemogate/mnemogate/flows/password"
	"github.com/mnemogate/mnemogate/flows/record"
)

func TestPanicTellsNoValue(t *testing.T) {
	for name, c := range map[string]struct {
		f    func() error
		what string
	}{
		"a string":            {func() error { panic("hunter2") }, "a value of type string"},
		"an error":            {func() error { panic(errors.New("hunter2")) }, "a value of type *errors.errorString"},
		"the runtime's":       {func() error { return (map[string][]error{})["hunter2"][3] }, "index out of range [3] with length 0"},
		"nil":                 {func() error { panic(nil) }, "panic called with nil argument"},
		"an error, no panic":  {func() error { return context.Canceled }, ""},
		"nothing":             {func() error { return nil }, ""},
		"a nil pointer's use": {func() error { var s *flows.Service; s.Log.Info("hunter2"); return nil }, "nil pointer dereference"},
	} {
		err := flows.Contain(c.f)
		p, ok := errors.AsType[*flows.Panic](err)
		if ok != (c.what != "") {
			t.Errorf("%s: got %v", name, err)
			continue
		}
		if !ok {
			continue
		}
		if text := err.Error() + p.Stack; !strings.Contains(text, c.what) || strings.Contains(text, "hunter2") {
			t.Errorf("%s: %s", name, text)
		}
		if !strings.Contains(p.Where, "TestPanicTellsNoValue") {
			t.Errorf("%s: it was at %s", name, p.Where)
		}
	}
}

// Whatever panics while it has its turn at hashing gives the turn back.
func TestPanicLeavesNoSlotOfTheHasherTaken(t *testing.T) {
	h := pw.NewHasher(2)
	_, limit := h.Queue()
	var mu sync.Mutex
	panics := true
	h.Waited = func(_ time.Duration, got bool) {
		mu.Lock()
		defer mu.Unlock()
		if panics && got {
			panic("hunter2")
		}
	}
	var all sync.WaitGroup
	for range 2 * limit {
		all.Go(func() {
			err := flows.Contain(func() error {
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
	panics = false
	if _, err := h.Hash(t.Context(), pw.Turn{Company: code}, cheap, "secret"); err != nil {
		t.Error(err)
	}
}

// An observer that panics costs its call the answer, and nothing else.
func TestPanicOfTheObserverEndsOneCall(t *testing.T) {
	b := newBench(t)
	observe := b.Observe
	b.Observe = func(context.Context, record.Event) { panic("hunter2") }
	for range 100 {
		err := flows.Contain(func() error {
			_, err := b.serve("auth/login", "", object{"login_id": email})
			return err
		})
		if _, ok := errors.AsType[*flows.Panic](err); !ok {
			t.Fatalf("got %v, want the observer's panic, which the HTTP layer answers", err)
		}
	}
	b.Observe = observe
	b.must("auth/login", "", object{"login_id": email})
}
