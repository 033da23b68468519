package senders

import (
	"context"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"go.uber.org/zap"

	"github.com/mnemogate/mnemogate/caddymodule/guest"
	"github.com/mnemogate/mnemogate/caddymodule/logs"
	"github.com/mnemogate/mnemogate/flows/message"
)

func init() {
	caddy.RegisterModule(logSender{id: "mnemogate.sms.log", message: "codes go to the log instead of a phone", advice: "configure sms webhook"})
	caddy.RegisterModule(logSender{id: "mnemogate.mail.log", message: "links go to the log instead of a mailbox", advice: "configure mail smtp or mail webhook"})
}

// A logSender sends nothing: it writes every SMS or mail, with its code or link, to Caddy's
// log at level INFO. Use it only for tests: anyone who can read the log can log in as any
// user. Each start logs a warning.
type logSender struct {
	id              caddy.ModuleID
	message, advice string // of its weakness
	logger          *zap.Logger
}

// CaddyModule returns the Caddy module information.
func (l logSender) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: l.id, New: func() caddy.Module { return new(l) }}
}

// Weaknesses implements guest.Weak.
func (l *logSender) Weaknesses() []guest.Weakness {
	return []guest.Weakness{{Message: l.message, Advice: l.advice}}
}

// UnmarshalCaddyfile takes no arguments. Syntax:
//
//	log
func (*logSender) UnmarshalCaddyfile(d *caddyfile.Dispenser) error { return guest.NoArguments(d, nil) }

// Provision gets the logger.
func (l *logSender) Provision(ctx caddy.Context) error {
	l.logger = logs.Of(ctx)
	return nil
}

// Send implements message.Sender.
func (l *logSender) Send(ctx context.Context, m message.Message) error {
	if trial := guest.TrialOf(ctx); trial != nil {
		trial.Answer = "it is in Caddy's log, and nowhere else"
	}
	l.logger.Info("message not sent, but logged",
		zap.String("type", m.Type),
		zap.String("company", m.Company),
		zap.String("to", m.To),
		zap.String("subject", m.Subject),
		zap.String("text", m.Text))
	return nil
}

// Interface guards
var (
	_ message.Sender        = (*logSender)(nil)
	_ caddy.Provisioner     = (*logSender)(nil)
	_ caddyfile.Unmarshaler = (*logSender)(nil)
	_ guest.Weak            = (*logSender)(nil)
)
