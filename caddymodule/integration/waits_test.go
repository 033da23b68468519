package integration

import "time"

// Promises of the packages that the tests of whole processes rely on.
const (
	bodyWithin     = 10 * time.Second
	keepAtLeast    = 5 * time.Second
	seedAgainAfter = 5 * time.Second
)
