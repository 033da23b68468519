package command

import (
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/caddymodule/accounts/api"
)

func TestProgressTellsRateAndTimeLeft(t *testing.T) {
	p := &progress{read: &countingReader{n: 25}, size: 100}
	if got, want := p.line(api.Counts{Created: 40_000, Failed: 2}, 20*time.Second), "40,002 accounts, 2,000 a second, 2 failed, 25 %, 1m0s left"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	p.size = 0
	if got, want := p.line(api.Counts{Skipped: 1500}, time.Second), "1,500 accounts, 1,500 a second"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
