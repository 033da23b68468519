//go:build race

package caddymodule

// raceFactor is how much more memory the race detector takes, at most.
const raceFactor = 10
