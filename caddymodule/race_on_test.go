//go:build race

package caddymodule

// What the race detector takes more, at most: memory, and CPU.
const (
	raceFactor = 10
	raceSlows  = 4
)
