package integration

import "os"

// racedCaddy is this test binary built with the race detector. If it is set, Caddy runs
// from it, while the tests and commands such as `caddy mnemogate account` run without
// the detector, which would make them several times as slow.
var racedCaddy = os.Getenv("MNEMOGATE_TEST_RACED")

// Upper bounds for how much more memory and CPU a Caddy with the race detector needs.
var (
	raceFactor = int64(ifRaced(10))
	raceSlows  = ifRaced(4)
)

// fewer returns n/20: tests that send many requests of one kind send fewer of them to a
// Caddy with the race detector, and all to one without it.
func fewer(n int) int { return n / ifRaced(20) }

// ifRaced returns factor if Caddy has the race detector, and otherwise 1.
func ifRaced(factor int) int {
	if raceDetector || racedCaddy != "" {
		return factor
	}
	return 1
}
