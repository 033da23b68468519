package senders

import (
	"context"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/mnemogate/mnemogate/caddymodule/captured"
	"github.com/mnemogate/mnemogate/caddymodule/guest"
	"github.com/mnemogate/mnemogate/flows/message"
)

func init() {
	caddy.RegisterModule(capture{"mnemogate.sms.capture"})
	caddy.RegisterModule(capture{"mnemogate.mail.capture"})
}

// A capture sends nothing: it keeps the last 1,000 messages of each company in the memory
// of this node, where `GET /mnemogate/{company}/messages` and `caddy mnemogate messages`
// show them with their codes and links. Use it only for tests: whoever can read them can log
// in as any user. Each start logs a warning.
type capture struct{ id caddy.ModuleID }

// CaddyModule returns the Caddy module information.
func (c capture) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: c.id, New: func() caddy.Module { return new(c) }}
}

// UnmarshalCaddyfile takes no arguments. Syntax:
//
//	capture
func (*capture) UnmarshalCaddyfile(d *caddyfile.Dispenser) error { return guest.NoArguments(d, nil) }

// Weaknesses implements guest.Weak.
func (*capture) Weaknesses() []guest.Weakness {
	return []guest.Weakness{{Message: "messages are captured, and reach nobody", Advice: "use this for tests only; otherwise configure a gateway, such as webhook"}}
}

// Captures implements captured.Sender.
func (*capture) Captures() {}

// Send implements message.Sender.
func (*capture) Send(ctx context.Context, m message.Message) error {
	if trial := guest.TrialOf(ctx); trial != nil {
		trial.Answer = "it is among the captured messages, and nowhere else"
	}
	captured.Keep(m)
	return nil
}

// Interface guards
var (
	_ captured.Sender       = (*capture)(nil)
	_ message.Sender        = (*capture)(nil)
	_ caddyfile.Unmarshaler = (*capture)(nil)
	_ guest.Weak            = (*capture)(nil)
)
