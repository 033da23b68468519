//go:build !race

package caddymodule

const raceFactor = 1
