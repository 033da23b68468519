// Package guest is the package to import if you write a plugin: a gateway, captcha,
// provider or store of your own. It defines what a plugin must implement, and has
// helpers.
//
// A plugin is a Caddy module in one of these namespaces:
//   - mnemogate.accounts and mnemogate.sessions: a StoreModule
//   - mnemogate.events: an EventsModule
//   - mnemogate.oauth: an OAuthModule
//   - mnemogate.sms and mnemogate.mail: a Sender of package message. In its block, name and
//     countries are options of mnemogate.
//   - mnemogate.captcha and mnemogate.migrate: a Captcha and a PasswordVerifier of package
//     tenant
//
// Any plugin may also be Weak, Remote or Checked, for doctor. To be measured, a store embeds
// record.Observed, and its methods call Called at their end. To test it, add a row to backends
// of store/conformance_test.go in a fork.
//
// Options parses a plugin's block in a Caddyfile, ResolveInto resolves placeholders, and Client
// calls other servers, whose errors Cause describes without secrets. Package guesttest tests a
// plugin, and its example_test.go is one.
//
// A plugin is used for up to ten minutes after Caddy has called its Cleanup and ended the
// context of Provision, because requests and messages of an old configuration go on. What they
// need must outlive both, as Outbound does. Use the context of each call. One instance may
// serve several companies.
package guest

import (
	"context"

	"github.com/mnemogate/mnemogate/flows/tenant"
)

// Interfaces that a plugin may implement in addition to those of its namespace. The
// app finds them by type assertion.

// A Weak is a plugin whose configuration can be insecure or fit only for tests.
type Weak interface {
	// Weaknesses lists what is weak. It is called after the module is validated.
	// Each start logs the weaknesses as warnings, and caddy mnemogate doctor also
	// shows the advice.
	Weaknesses() []Weakness
}

// A Weakness is one weak point of a configuration.
type Weakness struct {
	Message string // what may happen, as in "codes go to the log instead of a phone"
	Advice  string // what to do about it
}

// A Remote is a gateway or provider on another server.
type Remote interface {
	// Endpoint returns the host:port that the module calls. It is called after the module is
	// validated: its host is the default name of a gateway in metrics, in the audit log and
	// in caddy mnemogate doctor, which checks that the address accepts connections. If it is
	// empty, the name is the module's.
	Endpoint() string
}

// A Checked module is a Remote whose server can be asked for what users will need of it.
type Checked interface {
	// Check returns what there is to check, such as an address, and a function that
	// checks it. caddy mnemogate doctor calls it once for all modules that return the
	// same. Its error must not contain a secret. If what is the Endpoint, the check says only
	// whether the server can be reached, as that of CheckReach does.
	Check() (what string, check func(context.Context) error)
}

// A Widget is a captcha that users solve in a provider's widget. The built-in login page shows
// only the widgets of the built-in captchas, so others need a page of the operator's own.
type Widget interface {
	// WidgetKey returns the site key that pages pass to the widget, or "" if it is
	// not configured. It is not secret.
	WidgetKey() string
}

// An EventsModule is a module in the namespace mnemogate.events.
type EventsModule interface {
	tenant.EventReceiver
	// Settings returns the configuration of this receiver, which must have a Timeout and a
	// Retry, and may have Types. The field Receiver is not set.
	Settings() tenant.Events
}

// An OAuthModule is a module in the namespace mnemogate.oauth.
type OAuthModule interface {
	tenant.OAuthProvider
	// Settings returns the company's configuration of this provider. The fields
	// Provider and Authorizer are not set. The module may also be a
	// tenant.OAuthAuthorizer.
	Settings() tenant.OAuth
}
