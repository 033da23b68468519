package senders

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/mnemogate/mnemogate/caddymodule/guest"
	"github.com/mnemogate/mnemogate/flows/message"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/tenant"
)

func init() {
	caddy.RegisterModule(EventsWebhook{})
}

// EventsWebhook posts account events to a backend as Standard Webhooks requests.
// They have the headers webhook-id (the same in each attempt), webhook-timestamp and
// webhook-signature. Any 2xx answer acknowledges the event. See webhook for the other
// options. The body is a JSON object with type, timestamp (RFC 3339) and data. The data
// contain company_code, profile_mnemocode, and for these types:
//
//   - account.changed: fields, and previous_mnemocode if the mnemocode changed
//   - disclaimers.accepted: what was accepted
//   - account.locked: reason, and locked_until if waiting ends the lock
//   - identity.bound: provider_id
//   - contact.verified: fields, with primary_phone or primary_email
//
// Each event is stored with the change that it reports, and delivered at least once.
// The events of one account arrive in order. A failed delivery is retried for three
// days, after delays that double, up to 10m, or as long as Retry-After asks after 429 or
// 503, up to 1h. After 410, this node sends none until caddy reload --force.
type EventsWebhook struct {
	webhook

	// The types of events to send: account.created, account.changed,
	// account.deleted, account.locked, account.unlocked, password.changed,
	// disclaimers.accepted, recovery.completed, identity.bound, contact.verified,
	// welcome.used. Default: all of them.
	Types []string `json:"types,omitempty"`

	// The delay before the first retry of an event, from 100ms to 10m. Default: 5s.
	Retry caddy.Duration `json:"retry,omitempty"`
}

// CaddyModule returns the Caddy module information.
func (EventsWebhook) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "mnemogate.events.webhook", New: func() caddy.Module { return new(EventsWebhook) }}
}

const defaultRetry = caddy.Duration(5 * time.Second)

// UnmarshalCaddyfile sets up the receiver from Caddyfile tokens.
func (w *EventsWebhook) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	return w.parse(d, guest.Parsers{
		"types <type>...":  w.parseTypes,
		"retry <duration>": guest.OneValue(guest.Duration(&w.Retry)),
	})
}

func (w *EventsWebhook) parseTypes(d *caddyfile.Dispenser) error {
	return guest.Complete(d, guest.List(&w.Types)(d), func() error { return tenant.CheckEventTypes(w.Types) })
}

// Provision resolves the placeholders.
func (w *EventsWebhook) Provision(caddy.Context) error {
	w.Retry = cmp.Or(w.Retry, defaultRetry)
	return w.provision("events webhook")
}

// Deliver implements tenant.EventReceiver.
func (w *EventsWebhook) Deliver(ctx context.Context, e record.OutboxEvent) error {
	err := w.post(ctx, "", false, e.ID, e.Body) // an event does not name its company
	if refused, final := errors.AsType[*message.FinalError](err); final && refused.Gone {
		return fmt.Errorf("%w: %w", tenant.ErrReceiverGone, err)
	}
	return err
}

// Settings implements guest.EventsModule.
func (w *EventsWebhook) Settings() tenant.Events {
	return tenant.Events{Types: w.Types, Timeout: time.Duration(w.Timeout), Retry: time.Duration(w.Retry)}
}

// Interface guards
var (
	_ guest.EventsModule    = (*EventsWebhook)(nil)
	_ caddy.Provisioner     = (*EventsWebhook)(nil)
	_ caddy.Validator       = (*EventsWebhook)(nil)
	_ caddyfile.Unmarshaler = (*EventsWebhook)(nil)
)
