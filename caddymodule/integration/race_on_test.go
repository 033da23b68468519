//go:build race

package integration

// Upper bounds for how much more memory and CPU the race detector needs.
const (
	raceFactor = 10
	raceSlows  = 4
)
