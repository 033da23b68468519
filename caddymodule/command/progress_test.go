package command

import (
	"io"
	"os"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/caddymodule/accounts/api"
	"github.com/mnemogate/mnemogate/store/storetest"
)

func TestProgressTellsRateAndTimeLeft(t *testing.T) {
	file, err := os.Create(t.TempDir() + "/users.jsonl")
	storetest.Must(t, err)
	defer file.Close()
	storetest.Must(t, file.Truncate(100))
	if _, err := file.Seek(25, io.SeekStart); err != nil {
		t.Fatal(err)
	}
	if got, want := progress(api.Counts{Created: 40_000, Failed: 2}, 20*time.Second, file), "40,002 accounts, 2,000 a second, 2 failed, 25 %, 1m0s left"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := progress(api.Counts{Skipped: 1500}, time.Second, nil), "1,500 accounts, 1,500 a second"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestNotAllRangesOfLinesAreShown(t *testing.T) {
	var odd []int
	for n := 1; n < 10; n += 2 {
		odd = append(odd, n)
	}
	if got, want := ranges(odd, 3), "1, 3, 5 and 2 more"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
