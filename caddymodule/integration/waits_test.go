package integration

import "time"

// What the rooms promise, as the tests of whole processes rely on it.
const (
	bodyWithin     = 10 * time.Second
	keepAtLeast    = 5 * time.Second
	seedAgainAfter = 5 * time.Second
)
