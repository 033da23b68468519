package redis

import (
	"context"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
)

var (
	claimScript = newScript("claim")
	keepScript  = newScript("keep")
)

// answerKey has the tag of the counters that all companies share, so that one script can
// charge them with a claim.
func (r *Store) answerKey(name string) string { return r.counterTag("") + "o" + name }

// untilArgs returns the arguments of a script that keeps something until a time.
func untilArgs(holder string, now, until time.Time) []any {
	return []any{holder, record.Micros(until), until.Sub(now).Milliseconds(), record.Micros(now)}
}

func (s sessions) Claim(
	ctx context.Context, now time.Time, name, holder string, until time.Time, counters ...record.Counter,
) (kept []byte, err error) {
	err = s.call(ctx, "sessions.claim: claiming a request", func(ctx context.Context) error {
		keys, args := s.addCounters([]string{s.answerKey(name)}, untilArgs(holder, now, until), now, counters)
		claimed, answer, err := s.run(ctx, claimScript, keys, args...)
		switch {
		case err != nil || claimed:
			return err
		case len(answer) == 0:
			return record.ErrConflict
		case len(answer) == 1:
			kept = []byte(answer[0].(string))
			return nil
		}
		return asFull(counters, answer)
	})
	return kept, err
}

func (s sessions) Keep(ctx context.Context, now time.Time, name, holder string, answer []byte, until time.Time) error {
	return s.change(ctx, "sessions.keep: keeping an answer", record.ErrConflict, keepScript, []string{s.answerKey(name)},
		append(untilArgs(holder, now, until), answer)...)
}
