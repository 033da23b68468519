package caddymodule

import (
	"fmt"
	"slices"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
)

// checkTimeout refuses what is no time to wait for somebody else.
func checkTimeout(what string, timeout caddy.Duration) error {
	if timeout < 0 || time.Duration(timeout) > time.Minute {
		return fmt.Errorf("%s: timeout: choose one of at most 1m", what)
	}
	return nil
}

// guestOptions parses the block, if there is one, that follows a guest
// module's name and arguments. Each option may be given once, unless it is
// among the repeatable ones.
func guestOptions(d *caddyfile.Dispenser, options map[string]func() error, repeatable ...string) error {
	given := map[string]bool{}
	for nesting := d.Nesting(); d.NextBlock(nesting); {
		name := d.Val()
		parse, known := options[name]
		if !known {
			return d.Errf("unrecognized subdirective '%s'", name)
		}
		if given[name] && !slices.Contains(repeatable, name) {
			return d.Errf("%s already specified", name)
		}
		given[name] = true
		if err := parse(); err != nil {
			return err
		}
	}
	return nil
}

// oneArg parses exactly one argument, which is not empty.
func oneArg(d *caddyfile.Dispenser, s *string) func() error {
	return func() error {
		if !d.AllArgs(s) || *s == "" {
			return d.ArgErr()
		}
		return nil
	}
}

// someArgs parses one or more arguments.
func someArgs(d *caddyfile.Dispenser, list *[]string) func() error {
	return func() error {
		if *list = d.RemainingArgs(); len(*list) == 0 {
			return d.ArgErr()
		}
		return nil
	}
}

// noArgs parses an option that is on if it is there.
func noArgs(d *caddyfile.Dispenser, on *bool) func() error {
	return func() error {
		if *on = true; d.NextArg() {
			return d.ArgErr()
		}
		return nil
	}
}

// durationArg parses a duration like 5s.
func durationArg(d *caddyfile.Dispenser, to *caddy.Duration) func() error {
	return func() error {
		name := d.Val()
		if !d.NextArg() {
			return d.ArgErr()
		}
		duration, err := caddy.ParseDuration(d.Val())
		if err != nil || duration <= 0 {
			return d.Errf("%s: '%s' is no duration like 5s", name, d.Val())
		}
		*to = caddy.Duration(duration)
		if d.NextArg() {
			return d.ArgErr()
		}
		return nil
	}
}
