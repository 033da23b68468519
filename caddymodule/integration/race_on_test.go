//go:build race

package integration

// What the race detector takes more, at most: memory, and CPU.
const (
	raceFactor = 10
	raceSlows  = 4
)
