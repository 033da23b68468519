//go:build !race

package caddymodule

const (
	raceFactor = 1
	raceSlows  = 1
)
