package record

import "context"

type yieldKey struct{}

// Yielding returns a context whose calls to stores yield to those of users: all of them
// together use at most half of a store's connections.
func Yielding(ctx context.Context) context.Context {
	return context.WithValue(ctx, yieldKey{}, true)
}

// IsYielding reports whether ctx comes from Yielding.
func IsYielding(ctx context.Context) bool { return ctx.Value(yieldKey{}) != nil }
