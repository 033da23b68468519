package guesttest_test

import (
	"errors"
	"testing"

	"github.com/caddyserver/caddy/v2"

	"github.com/mnemogate/mnemogate/caddymodule/guest/guesttest"
)

// As in Caddy, what a module has started ends with its config, or if it does not start.
func TestStartCleansUp(t *testing.T) {
	m := new(cleaned)
	t.Run("good", func(t *testing.T) {
		if guesttest.MustStart(t, m); m.times != 0 {
			t.Error("it was cleaned up before the end")
		}
	})
	bad := &cleaned{invalid: errors.New("invalid")}
	if err := guesttest.Start(t, bad); err != bad.invalid || bad.times != 1 || m.times != 1 {
		t.Errorf("got %v, and cleaned up %d and %d times", err, m.times, bad.times)
	}
}

type cleaned struct {
	ctx     caddy.Context
	invalid error
	times   int
}

func (c *cleaned) Provision(ctx caddy.Context) error { c.ctx = ctx; return nil }

func (c *cleaned) Validate() error { return c.invalid }

func (c *cleaned) Cleanup() error {
	if c.times++; c.ctx.Err() == nil {
		return errors.New("its context has not ended")
	}
	return nil
}
