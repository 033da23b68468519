package record

import "context"

type yieldKey struct{}

// Yielding returns a context whose calls to stores yield to those of users. Together, they
// use at most half of the connections to PostgreSQL, or of those that read SQLite.
func Yielding(ctx context.Context) context.Context {
	return context.WithValue(ctx, yieldKey{}, true)
}

// NotYielding returns a context for a call that users may wait for, too.
func NotYielding(ctx context.Context) context.Context {
	return context.WithValue(ctx, yieldKey{}, nil)
}

// IsYielding reports whether ctx comes from Yielding.
func IsYielding(ctx context.Context) bool { return ctx.Value(yieldKey{}) != nil }
