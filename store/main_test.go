package store

import (
	"os"
	"testing"
	"time"
)

// atExit is what a test leaves for the tests after it, and the last one has to
// stop: servers.
var atExit []func()

func TestMain(m *testing.M) {
	code := m.Run()
	for _, stop := range atExit {
		stop()
	}
	os.Exit(code)
}

// skipOrFail ends a test whose server is not installed. Where nothing may be
// left out, that is a failure.
func skipOrFail(t testing.TB, why string) {
	t.Helper()
	if os.Getenv("MNEMOGATE_TEST_REQUIRE") == "1" {
		t.Fatal(why)
	}
	t.Skip(why)
}

// watchStalls measures until stop is called how long this machine, if it is
// busy, held up the tests themselves at worst.
func watchStalls() (stop func() time.Duration) {
	const tick = 5 * time.Millisecond
	quit, worst := make(chan bool), make(chan time.Duration)
	go func() {
		var longest time.Duration
		for {
			before := time.Now()
			select {
			case <-quit:
				worst <- longest
				return
			case <-time.After(tick):
				longest = max(longest, time.Since(before)-tick)
			}
		}
	}()
	return func() time.Duration {
		quit <- true
		return <-worst
	}
}
