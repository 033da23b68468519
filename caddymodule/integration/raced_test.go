package integration

import "os"

// racedCaddy is this test binary built with the race detector. If it is set, Caddy runs
// from it, while the tests and commands such as `caddy mnemogate account` run without
// the detector, which would make them several times as slow.
var racedCaddy = os.Getenv("MNEMOGATE_TEST_RACED")

var raced = raceDetector || racedCaddy != ""

// Upper bounds for how much more memory and CPU a Caddy with the race detector needs.
var raceFactor, raceSlows = slower(10), slower(4)

func slower(factor int) int {
	if raced {
		return factor
	}
	return 1
}

// fewer returns n/20: tests that send many requests of one kind send fewer of them to a
// Caddy with the race detector, and all to one without it.
func fewer(n int) int { return n / slower(20) }
