package flows_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mnemogate/mnemogate/flows"
	"github.com/mnemogate/mnemogate/flows/session"
	"github.com/mnemogate/mnemogate/flows/wire"
	"github.com/mnemogate/mnemogate/store/fake"
)

// repeatable returns a request with a key.
func repeatable(key string) flows.Repeatable {
	return flows.Repeatable{
		Key: key, Route: "POST /acme/v2/auth/login", Credentials: []string{"api key"}, Body: []byte("{}"),
		KeepFor: time.Minute, Later: func(f func()) { f() },
	}
}

// inBubble runs a test in a bubble, with a service on stores in memory.
func inBubble(t *testing.T, test func(t *testing.T, s *flows.Service)) {
	inBubbleThrough(t, fake.Direct, test)
}

// inBubbleThrough is inBubble with this way to the sessions.
func inBubbleThrough(t *testing.T, link fake.Link, test func(t *testing.T, s *flows.Service)) {
	synctest.Test(t, func(t *testing.T) {
		var accounts fake.Accounts
		var sessions fake.Sessions
		test(t, &flows.Service{Manager: session.New(&session.Config{
			Accounts: accounts.Through(fake.Direct), Sessions: sessions.Through(link), Log: slog.New(slog.DiscardHandler), Now: time.Now,
		})})
	})
}

// Contract, section 20: a request that comes while the first is at work waits for its
// answer. A client that hangs up does not stop the work.
func TestTheSecondRequestWaits(t *testing.T) {
	inBubble(t, func(t *testing.T, s *flows.Service) {
		begun, finish := make(chan struct{}), make(chan struct{})
		ctx, hangUp := context.WithCancel(t.Context())
		go s.Once(ctx, repeatable("k"), func(ctx context.Context) []byte {
			close(begun)
			<-finish
			return fmt.Append(nil, ctx.Err())
		})
		<-begun
		hangUp()
		again := func(ctx context.Context) (string, bool, error) {
			answer, replayed, err := s.Once(ctx, repeatable("k"), func(context.Context) []byte {
				t.Error("the work is done twice")
				return nil
			})
			return string(answer), replayed, err
		}
		asked := time.Now()
		if _, _, err := again(t.Context()); wire.CodeOf(err) != wire.ErrUnavailable || time.Since(asked) < 5*time.Second {
			t.Errorf("after %s it gets %v, want service.unavailable after 5 s", time.Since(asked), err)
		}
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		if _, _, err := again(gone); wire.CodeOf(err) != wire.ErrUnavailable {
			t.Errorf("one that hangs up gets %v", err)
		}
		time.AfterFunc(100*time.Millisecond, func() { close(finish) })
		if answer, replayed, err := again(t.Context()); answer != "<nil>" || !replayed || err != nil {
			t.Errorf("it gets %q, %t, %v; want the answer of the first, whose context did not end", answer, replayed, err)
		}
	})
}

// Contract, section 20: a node that died holds a key for at most 10 s, and one that works
// longer holds it as long as it works.
func TestALeaseIsRenewed(t *testing.T) {
	inBubble(t, func(t *testing.T, s *flows.Service) {
		work := func(answer string) func(context.Context) []byte {
			return func(context.Context) []byte {
				time.Sleep(16 * time.Second)
				return []byte(answer)
			}
		}
		go s.Once(t.Context(), repeatable("k"), work("first"))
		time.Sleep(14 * time.Second)
		if answer, replayed, err := s.Once(t.Context(), repeatable("k"), work("second")); string(answer) != "first" || !replayed || err != nil {
			t.Errorf("got %q, %t, %v", answer, replayed, err)
		}
		time.Sleep(time.Minute)
		if answer, replayed, err := s.Once(t.Context(), repeatable("k"), func(context.Context) []byte { return nil }); answer != nil || replayed || err != nil {
			t.Errorf("after a minute: %q, %t, %v", answer, replayed, err)
		}
	})
}

// A store that does not answer for some seconds, or whose answer is lost, costs no answer.
func TestAFailoverLosesNoAnswer(t *testing.T) {
	var loses atomic.Value // the call whose answer is lost
	var down atomic.Pointer[time.Time]
	down.Store(new(time.Time))
	link := func(ctx context.Context, what string, call func() error) error {
		if time.Now().Before(*down.Load()) {
			return errDown
		}
		err := call()
		if loses.CompareAndSwap(what, "") {
			err = errDown
		}
		return err
	}
	inBubbleThrough(t, link, func(t *testing.T, s *flows.Service) {
		background := repeatable("k")
		background.Later = func(f func()) { go f() }
		for i, lost := range []string{"", "sessions.keep", "sessions.claim"} {
			background.Key = fmt.Sprint(i)
			loses.Store(lost)
			work := func(context.Context) []byte {
				if lost == "" {
					down.Store(new(time.Now().Add(5 * time.Second)))
				}
				return []byte("answer")
			}
			_, _, err := s.Once(t.Context(), background, work)
			if begun := lost != "sessions.claim"; begun != (err == nil) {
				t.Fatalf("lost %q: %v", lost, err)
			}
			time.Sleep(time.Until(*down.Load()))
			asked := time.Now()
			answer, replayed, err := s.Once(t.Context(), background, work)
			if string(answer) != "answer" || replayed != (lost != "sessions.claim") || err != nil || time.Since(asked) > 3*time.Second {
				t.Errorf("lost %q: got %q, %t, %v after %s", lost, answer, replayed, err, time.Since(asked))
			}
		}
		time.Sleep(time.Minute) // all that goes on in the background has ended
	})
}

// A store that panics while a request is at work does not end the process.
func TestAClaimThatCannotBeRenewed(t *testing.T) {
	link := func(ctx context.Context, what string, call func() error) error {
		if what == "sessions.keep" {
			panic("in the store")
		}
		return call()
	}
	inBubbleThrough(t, link, func(t *testing.T, s *flows.Service) {
		r := repeatable("k")
		r.Later = func(func()) {}
		answer, _, err := s.Once(t.Context(), r, func(context.Context) []byte {
			time.Sleep(7 * time.Second)
			return []byte("answer")
		})
		if string(answer) != "answer" || err != nil {
			t.Errorf("got %q, %v", answer, err)
		}
	})
}

// An answer that is not kept frees the key at once, and so does a panic.
func TestAKeyWithoutAnswerIsFree(t *testing.T) {
	h := newHarness(t)
	times := 0
	for range 3 {
		func() {
			defer func() { _ = recover() }()
			answer, replayed, err := h.Once(t.Context(), repeatable("k"), func(context.Context) []byte {
				if times++; times == 2 {
					panic("at work")
				}
				return nil
			})
			if answer != nil || replayed || err != nil {
				t.Errorf("got %q, %t, %v", answer, replayed, err)
			}
		}()
	}
	if times != 3 {
		t.Errorf("the work was done %d times, want 3", times)
	}
}

// Of many requests at once, one does the work. Whatever differs is another request; only a
// body that differs is refused.
func TestOneOfManyDoesTheWork(t *testing.T) {
	h := newHarness(t)
	var done atomic.Int32
	ask := func(change func(*flows.Repeatable)) (string, error) {
		r := repeatable("k")
		change(&r)
		answer, _, err := h.Once(t.Context(), r, func(context.Context) []byte { return fmt.Append(nil, done.Add(1)) })
		return string(answer), err
	}
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			if got, err := ask(func(*flows.Repeatable) {}); got != "1" || err != nil {
				t.Errorf("got %q, %v", got, err)
			}
		})
	}
	all.Wait()
	if _, err := ask(func(r *flows.Repeatable) { r.Body = []byte("{} ") }); err != wire.ErrOtherBody {
		t.Errorf("another body gets %v", err)
	}
	for i, change := range []func(*flows.Repeatable){
		func(r *flows.Repeatable) { r.Key = "K" },
		func(r *flows.Repeatable) { r.Route += "x" },
		func(r *flows.Repeatable) { r.Credentials = []string{"api", " key"} },
		func(r *flows.Repeatable) { r.Credentials = nil },
	} {
		if got, err := ask(change); got != fmt.Sprint(i+2) || err != nil {
			t.Errorf("another request gets %q, %v", got, err)
		}
	}
}

// Contract, section 20: of requests without a token at most 60 a minute are kept for an
// address. Nor can strangers fill the store with those that have one.
func TestFewAnswersAreKeptForAnAddress(t *testing.T) {
	h := newHarness(t)
	for token, most := range map[bool]int{false: 60, true: 600} {
		ask := func(key, address string) bool {
			r := repeatable(fmt.Sprint(key, token))
			r.Address, r.Token = address, token
			_, replayed, err := h.Once(t.Context(), r, func(context.Context) []byte { return []byte("x") })
			must(t, err)
			return replayed
		}
		for i := range most + 2 {
			ask(fmt.Sprint(i), home)
		}
		for i := range most + 2 {
			if got, want := ask(fmt.Sprint(i), home), i < most; got != want {
				t.Errorf("token %t, request %d: replayed is %t, want %t", token, i, got, want)
			}
		}
		if ask("other", "192.0.2.2"); !ask("other", "192.0.2.2") {
			t.Error("another address is affected")
		}
		h.clock.advance(time.Minute)
		if ask("later", home); !ask("later", home) {
			t.Error("a minute later nothing is kept")
		}
	}
}

func FuzzIdempotencyKey(f *testing.F) {
	for _, seed := range []string{"", "a", " a", "a\x7f", "ä", strings.Repeat("x", 256), "6f1c2d7e-9a0b-4c5d-8e7f-6a5b4c3d2e1f"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, line string) {
		key, ok := flows.IdempotencyKey([]string{line})
		visible := strings.IndexFunc(line, func(r rune) bool { return r < '!' || r > '~' }) < 0
		if want := visible && 1 <= len(line) && len(line) <= 255; ok != want || ok && key != line {
			t.Errorf("%q is %q, %t", line, key, ok)
		}
		if _, ok := flows.IdempotencyKey([]string{line, line}); ok {
			t.Error("two lines are one key")
		}
	})
}
