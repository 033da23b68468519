// Package bench measures whole Caddy processes with clients of the standard library.
// docs/performance.md has the commands and their figures.
//
// Each benchmark runs once and takes its own time:
//
//	go test ./caddymodule/bench -run '^$' -bench Protected -benchtime 1x -timeout 0
//
// The subjects of a comparison take turns, round by round. Each figure is the median
// of its rounds.
package bench

import (
	"flag"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	_ "github.com/caddyserver/caddy/v2/modules/standard"

	_ "github.com/mnemogate/mnemogate/caddymodule"
	"github.com/mnemogate/mnemogate/store/storetest"
)

var (
	rounds       = flag.Int("rounds", 7, "number of rounds")
	round        = flag.Duration("round", 3*time.Second, "length of a round")
	sessionsFlag = flag.String("sessions", "100000,1000000", "numbers of sessions, for Protected; other benchmarks take the first")
)

// TestMain lets the test binary also be the Caddy that is measured.
func TestMain(m *testing.M) {
	if os.Getenv("MNEMOGATE_TEST_CADDY") != "" {
		caddycmd.Main()
		return
	}
	os.Exit(storetest.Run(m))
}

// numbers reads a flag that lists numbers.
func numbers(b testing.TB, list string) (all []int) {
	b.Helper()
	for field := range strings.SplitSeq(list, ",") {
		n, err := strconv.Atoi(field)
		if err != nil || n < 1 {
			b.Fatalf("%q in a flag is not a positive number", field)
		}
		all = append(all, n)
	}
	return all
}

var must = storetest.Must

// quantile returns the value that a share of the values, 0 to 1, does not exceed.
func quantile[T ~int64 | ~float64](values []T, share float64) T {
	if len(values) == 0 {
		return 0
	}
	return slices.Sorted(slices.Values(values))[int(share*float64(len(values)-1))]
}

// median returns the median of a value of each round.
func median[R any, T ~int64 | ~float64](rounds []R, of func(R) T) T {
	var values []T
	for _, r := range rounds {
		values = append(values, of(r))
	}
	return quantile(values, .5)
}

func milliseconds(d time.Duration) float64 { return float64(d) / 1e6 }
