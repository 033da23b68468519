package guest

import "context"

// A Trial is one message with which caddy mnemogate doctor tests a sender or a
// receiver of events. The message says that it is a test and contains nothing
// secret.
type Trial struct {
	// Answer is the first 200 bytes of the gateway's answer, without secrets.
	Answer string
}

type trialKey struct{}

// In returns a context that marks a message as this trial.
func (t *Trial) In(ctx context.Context) context.Context {
	return context.WithValue(ctx, trialKey{}, t)
}

// TrialOf returns the trial that a message belongs to, or nil for a real message. A
// sender may set its Answer before it returns; doctor works without.
func TrialOf(ctx context.Context) *Trial {
	t, _ := ctx.Value(trialKey{}).(*Trial)
	return t
}
