package flows

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/mnemogate/mnemogate/flows/limits"
	"github.com/mnemogate/mnemogate/flows/panics"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// A Repeatable is a request that its client may send again if the answer is lost
// (contract, section 20).
type Repeatable struct {
	Key         string        // see IdempotencyKey
	Route       string        // which API, and the method and path with query
	Credentials []string      // what came in headers, in an order that says what is what
	Body        []byte        // as sent
	KeepFor     time.Duration // how long the answer is kept
	// Address is the client's, or empty for a client that has proved who it is. Of an address
	// at most 60 requests a minute without a token are kept, and 600 with one, which strangers
	// can get or make up. The others are answered as without a Key.
	Address string
	Token   bool // the route takes a token
	// Later runs a function that the answer need not wait for.
	Later func(func())
}

// IdempotencyKeyHeader is the header with the key of a Repeatable.
const IdempotencyKeyHeader = "Idempotency-Key"

// IdempotencyKey returns the key of a request with these header lines. It is not ok unless
// there is one line, of 1 to 255 visible ASCII characters.
func IdempotencyKey(lines []string) (key string, ok bool) {
	if len(lines) != 1 || len(lines[0]) == 0 || len(lines[0]) > 255 || strings.ContainsFunc(lines[0], func(c rune) bool { return c <= ' ' || c > '~' }) {
		return "", false
	}
	return lines[0], true
}

const (
	retryLease = 10 * time.Second // how long a node that died holds a key
	retryRenew = 3 * time.Second
	keepAgain  = time.Second     // after the store did not answer
	retryWait  = 5 * time.Second // how long a request waits for the answer to the first

	firstPoll, lastPoll = 10 * time.Millisecond, 250 * time.Millisecond
)

var (
	keptPerAddress = tenant.Rate{N: 60, Per: time.Minute}
	keptWithToken  = tenant.Rate{N: 600, Per: time.Minute}
)

// Once calls work, unless another request with the same Route, Credentials and Key was
// answered before, on any node: then it returns that answer, and replayed. While another is
// at work, Once waits. work gets a context that does not end when the client hangs up, and
// returns the answer to keep, or nil to keep none: a later request then does the work.
// The errors are wire.ErrOtherBody and wire.ErrUnavailable; work was not called then.
//
// The claim is one call of the store, which ends before work begins. The answer is stored
// after work, without the client waiting. So a node that dies during work holds the key
// until its lease ends. Then the work is done again, as if the client had sent no key:
// usually its token is spent by then.
func (s *Service) Once(ctx context.Context, r Repeatable, work func(context.Context) []byte) (answer []byte, replayed bool, err error) {
	keys, err := s.Keys(ctx)
	if err != nil {
		return nil, false, err
	}
	parts := slices.Concat([]string{r.Route, r.Key, string(r.Body)}, r.Credentials)
	var counters []record.Counter
	switch {
	case r.Address == "":
	case r.Token:
		counters = limits.PerAddress(keys, "", "retries-with-token", r.Address, keptWithToken)
	default:
		counters = limits.PerAddress(keys, "", "retries", r.Address, keptPerAddress)
	}
	c := claim{s, keys.RetryName(slices.Concat([]string{r.Route, r.Key}, r.Credentials)...), rand.Text()}
	kept, err := c.wait(ctx, counters, r.Later)
	ctx = context.WithoutCancel(ctx)
	switch _, full := errors.AsType[*record.FullError](err); {
	case full:
		return work(ctx), false, nil
	case err != nil:
		return nil, false, err
	case kept != nil:
		if answer, err = keys.OpenAnswer(kept, parts...); err != nil {
			return nil, false, wire.ErrOtherBody
		}
		return answer, true, nil
	}
	done := make(chan struct{})
	go c.renew(ctx, done)
	defer func() { // even if work panics
		close(done)
		toKeep := answer // Later may run while Once returns
		r.Later(func() {
			sealed, until, err := []byte(nil), s.Now(), error(nil)
			if toKeep != nil {
				sealed, err = keys.SealAnswer(toKeep, parts...)
				until = until.Add(r.KeepFor)
			}
			if err == nil {
				err = c.keepPatiently(ctx, sealed, until)
			}
			if err != nil && !errors.Is(err, record.ErrConflict) {
				s.Warn("an answer could not be kept: a client that sends its request again does not get it", "error", err)
			}
		})
	}()
	answer = work(ctx)
	return answer, false, nil
}

// A claim is a request's hold on its key.
type claim struct {
	*Service
	name, holder string
}

// wait claims the key, or returns the answer that was kept under it. While another request
// holds the key, it waits. Its errors are wire.ErrUnavailable and *record.FullError.
func (c claim) wait(ctx context.Context, counters []record.Counter, later func(func())) (kept []byte, err error) {
	for pause, until := firstPoll, time.Now().Add(retryWait); ; pause = min(2*pause, lastPoll) {
		now := c.Now()
		kept, err = c.Sessions.Claim(ctx, now, c.name, c.holder, now.Add(retryLease), counters...)
		if _, full := errors.AsType[*record.FullError](err); err == nil || full {
			return kept, err
		}
		if !errors.Is(err, record.ErrConflict) {
			later(func() { _ = c.keep(context.WithoutCancel(ctx), nil, c.Now()) }) // it may be the answer alone that was lost
			return nil, wire.Unavailable("claiming a request", err)
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil, wire.Unavailable("waiting for another request", ctx.Err())
		}
		if time.Now().After(until) {
			return nil, wire.Unavailable("waiting for another request", context.DeadlineExceeded)
		}
	}
}

// renew extends the claim until done is closed.
func (c claim) renew(ctx context.Context, done <-chan struct{}) {
	for pause := retryRenew; ; {
		select {
		case <-done:
			return
		case <-time.After(pause):
		}
		pause = retryRenew
		if panics.Contain(func() error { return c.keep(ctx, nil, c.Now().Add(retryLease)) }) != nil {
			pause = keepAgain
		}
	}
}

func (c claim) keep(ctx context.Context, answer []byte, until time.Time) error {
	return c.Sessions.Keep(ctx, c.Now(), c.name, c.holder, answer, until)
}

// keepPatiently is keep, and tries again while the lease can last: a failover of the store
// takes some seconds.
func (c claim) keepPatiently(ctx context.Context, answer []byte, until time.Time) error {
	for began := time.Now(); ; time.Sleep(keepAgain) {
		err := c.keep(ctx, answer, until)
		if err == nil || errors.Is(err, record.ErrConflict) || time.Since(began) > retryLease {
			return err
		}
	}
}
