//go:build race

package integration

// Upper bounds for how much more memory and CPU the race detector needs.
const (
	raceFactor = 10
	raceSlows  = 4
)

// fewer returns n/20: tests that send many requests of one kind send fewer of them with
// the race detector, and all without it.
func fewer(n int) int { return n / 20 }
