package guest

import "context"

// A Trial is one message by which caddy mnemogate doctor tries out a sender or a
// receiver of events. It says that it is a test, and has nothing secret in it.
type Trial struct {
	// Answer is what the gateway answered, as far as it can be told: 200 bytes of
	// it, and no secrets of the gateway.
	Answer string
	// Advice is what to do about it, if it failed.
	Advice string
}

type trialKey struct{}

// In returns a context to send it in.
func (t *Trial) In(ctx context.Context) context.Context {
	return context.WithValue(ctx, trialKey{}, t)
}

// TrialOf returns the trial that a message is sent for, or nil if it is a real one. A
// sender may fill it in before it returns; what it does not, doctor does without.
func TrialOf(ctx context.Context) *Trial {
	t, _ := ctx.Value(trialKey{}).(*Trial)
	return t
}
