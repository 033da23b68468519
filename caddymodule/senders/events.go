package senders

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/mnemogate/mnemogate/caddymodule/guest"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/tenant"
)

func init() {
	caddy.RegisterModule(EventsWebhook{})
	caddy.RegisterModule(EventsOff{})
}

// EventsWebhook posts what happens to accounts to a backend, as Standard
// Webhooks requests: the headers webhook-id (the same in each try),
// webhook-timestamp and webhook-signature, and a JSON object with type,
// timestamp (RFC 3339) and data: company_code, profile_mnemocode, and of
// account.changed fields, of disclaimers.accepted what was accepted, of
// account.locked lock and locked_until, of identity.bound provider_id. Any 2xx
// answer means that the event was taken.
//
// An event is stored with the change that it tells of, and delivered at least
// once, to an account's events in order. One that is not taken is tried again
// after pauses that double, up to 10m, for three days.
type EventsWebhook struct {
	webhook

	// What to tell of: account.created, account.changed, account.deleted,
	// account.locked, account.unlocked, password.changed, disclaimers.accepted,
	// recovery.completed, identity.bound. Default: all of them.
	Types []string `json:"types,omitempty"`

	// How long to wait before an event is tried again for the first time, 100ms
	// to 10m. Default: 5s.
	Retry caddy.Duration `json:"retry,omitempty"`
}

// CaddyModule returns the Caddy module information.
func (EventsWebhook) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "mnemogate.events.webhook", New: func() caddy.Module { return new(EventsWebhook) }}
}

const (
	defaultRetry = caddy.Duration(5 * time.Second)
	minRetry     = caddy.Duration(100 * time.Millisecond)
	maxRetry     = caddy.Duration(10 * time.Minute)
)

// UnmarshalCaddyfile sets up the receiver from Caddyfile tokens. Syntax:
//
//	webhook <url> [insecure] {
//		secret <key>...
//		types <type>...
//		retry <duration>
//		timeout <duration>
//		header <name> <value>
//	}
//
// header may be repeated, with another name.
func (w *EventsWebhook) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	return w.parse(d, map[string]func() error{
		"types": func() error {
			if err := guest.List(d, &w.Types)(); err != nil {
				return err
			}
			if err := w.checkTypes(); err != nil {
				return d.WrapErr(err)
			}
			return nil
		},
		"retry": guest.OneValue(d, guest.Duration(&w.Retry)),
	})
}

// Provision resolves the placeholders.
func (w *EventsWebhook) Provision(caddy.Context) error {
	w.Retry = cmp.Or(w.Retry, defaultRetry)
	return w.provision("events webhook")
}

// Validate refuses what can't be sent or verified, and types that there are not.
func (w *EventsWebhook) Validate() error {
	if err := w.webhook.Validate(); err != nil {
		return err
	}
	if err := w.checkTypes(); err != nil {
		return fmt.Errorf("%s: types: %w", w.what, err)
	}
	if w.Retry < minRetry || w.Retry > maxRetry {
		return fmt.Errorf("%s: retry: choose 100ms to 10m", w.what)
	}
	return nil
}

func (w *EventsWebhook) checkTypes() error {
	for i, kind := range w.Types {
		switch {
		case !slices.Contains(record.OutboxTypes, kind):
			return fmt.Errorf("there is no event %q; choose from %s", kind, strings.Join(record.OutboxTypes, ", "))
		case slices.Contains(w.Types[:i], kind):
			return fmt.Errorf("%s already specified", kind)
		}
	}
	return nil
}

// Deliver implements tenant.EventReceiver.
func (w *EventsWebhook) Deliver(ctx context.Context, e record.OutboxEvent) error {
	return w.post(ctx, e.ID, e.Body)
}

// Settings implements guest.EventsModule.
func (w *EventsWebhook) Settings() tenant.Events {
	return tenant.Events{Types: w.Types, Timeout: time.Duration(w.Timeout), Retry: time.Duration(w.Retry)}
}

// EventsOff tells nobody, for a company whose app has a receiver.
type EventsOff struct{}

// CaddyModule returns the Caddy module information.
func (EventsOff) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "mnemogate.events.off", New: func() caddy.Module { return new(EventsOff) }}
}

// UnmarshalCaddyfile sets up the module from Caddyfile tokens. Syntax:
//
//	off
func (EventsOff) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next()
	if d.NextArg() {
		return d.ArgErr()
	}
	return guest.Options(d, nil)
}

// Deliver implements tenant.EventReceiver; it is not called.
func (EventsOff) Deliver(context.Context, record.OutboxEvent) error { return nil }

// Settings implements guest.EventsModule.
func (EventsOff) Settings() tenant.Events { return tenant.Events{} }

// Absent implements guest.Absent.
func (EventsOff) Absent() {}

// Interface guards
var (
	_ guest.EventsModule    = (*EventsWebhook)(nil)
	_ guest.Remote          = (*EventsWebhook)(nil)
	_ guest.Weak            = (*EventsWebhook)(nil)
	_ caddy.Provisioner     = (*EventsWebhook)(nil)
	_ caddy.Validator       = (*EventsWebhook)(nil)
	_ caddyfile.Unmarshaler = (*EventsWebhook)(nil)
	_ guest.EventsModule    = EventsOff{}
	_ guest.Absent          = EventsOff{}
	_ caddyfile.Unmarshaler = EventsOff{}
)
