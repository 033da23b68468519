package storetest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"testing"
	"time"
)

// Time in which the tests stood still is not measured, whether a Watch or a sum of stalls.
func TestAWatchLeavesOutStalls(t *testing.T) {
	NeedLinux(t, "it stops the process")
	for range 2 {
		watch, stalled, began := StartWatch(), WatchStalls(), time.Now()
		Must(t, exec.Command("sh", "-c", fmt.Sprintf("kill -STOP %d; sleep 1; kill -CONT %[1]d", os.Getpid())).Run())
		stall, took, whole := stalled(), watch.Took(), time.Since(began)
		t.Logf("%v of %v", stall, whole)
		if stall < 900*time.Millisecond || took > whole-900*time.Millisecond {
			t.Errorf("a stop of 1 s counts as %v, and %v of %v are left", stall, took, whole)
		}
	}
}

// Without a stall, the first failure counts, and no number of stalls hides what always fails.
func TestWhatFailsWithoutAStallFails(t *testing.T) {
	for pause, want := range map[time.Duration]int{time.Hour: 1, 0: 6} {
		checks, failed := 0, &failing{TB: t}
		done := make(chan bool)
		go func() {
			defer close(done)
			InQuiet(failed, pause, func() error { checks++; return errors.New("wrong") })
		}()
		<-done
		if !failed.failed || checks != want {
			t.Errorf("failed: %v, after %d checks", failed.failed, checks)
		}
	}
}

// A failing test ends its goroutine, as others do.
type failing struct {
	testing.TB
	failed bool
}

func (f *failing) Fatal(...any) { f.failed = true; runtime.Goexit() }
