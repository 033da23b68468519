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
	caddy.RegisterModule(SMSLog{})
	caddy.RegisterModule(MailLog{})
}

// logSender is the common part of SMSLog and MailLog.
type logSender struct{ logger *zap.Logger }

// SMSLog sends nothing: it writes every SMS, with its code, to Caddy's log at level
// INFO. Use it only for tests: anyone who can read the log can log in as any user.
// Each start logs a warning.
type SMSLog struct{ logSender }

// CaddyModule returns the Caddy module information.
func (SMSLog) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "mnemogate.sms.log", New: func() caddy.Module { return new(SMSLog) }}
}

// Weaknesses implements guest.Weak.
func (*SMSLog) Weaknesses() []guest.Weakness {
	return []guest.Weakness{{Message: "codes go to the log instead of a phone", Advice: "configure sms webhook"}}
}

// MailLog sends nothing: it writes every mail, with its link, to Caddy's log at
// level INFO. Use it only for tests: anyone who can read the log can take over any
// account. Each start logs a warning.
type MailLog struct{ logSender }

// CaddyModule returns the Caddy module information.
func (MailLog) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "mnemogate.mail.log", New: func() caddy.Module { return new(MailLog) }}
}

// Weaknesses implements guest.Weak.
func (*MailLog) Weaknesses() []guest.Weakness {
	return []guest.Weakness{{Message: "links go to the log instead of a mailbox", Advice: "configure mail smtp or mail webhook"}}
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
	_ guest.Weak            = (*SMSLog)(nil)
	_ guest.Weak            = (*MailLog)(nil)
)
