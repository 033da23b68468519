// Package guest is what a guest module must be, a gateway, captcha, provider or
// store, and helpers to write one: the package that others import. What each
// kind must do is an interface of flows/message (Sender), of flows/tenant (Captcha and
// more) or is here
// (EventsModule, OAuthModule, StoreModule); any may also be Weak, Remote or Absent. Then
// options.go parses its block of a Caddyfile, secrets.go its placeholders, and
// outbound.go asks what is somewhere else. Package guesttest tests one. Read
// senders/webhook.go for an example.
package guest

import (
	"github.com/mnemogate/mnemogate/flows/tenant"
)

// What a guest module may be besides what its namespace asks for. The app finds
// each of these by a type assertion.

// A Weak is a guest module whose configuration can be for tests, or weaker
// than it should be.
type Weak interface {
	// Weaknesses lists what is weak, and is asked for once the module is
	// validated. Each start logs it as a warning; caddy mnemogate doctor tells
	// it with the advice.
	Weaknesses() []Weakness
}

// A Weakness is one thing that is weak about a configuration.
type Weakness struct {
	Message string // what may happen, as in "codes go to the log and to nobody's phone"
	Advice  string // what to do about it
}

// A Remote is a gateway or provider that is somewhere else.
type Remote interface {
	// Endpoint is the host:port that it speaks to, at which caddy mnemogate
	// doctor knocks.
	Endpoint() string
}

// An Absent stands for there being none, as captcha off does.
type Absent interface {
	Absent()
}

// A Widget is a captcha that users solve in a provider's widget.
type Widget interface {
	// WidgetKey is the key of the site that pages give to it, which is no secret;
	// empty if it was not configured.
	WidgetKey() string
}

// An EventsModule is what a module of the namespace mnemogate.events must be.
type EventsModule interface {
	tenant.EventReceiver
	// Settings returns what was decided for this receiver; the field Receiver is
	// not set.
	Settings() tenant.Events
}

// An OAuthModule is what a module of the namespace mnemogate.oauth must be.
type OAuthModule interface {
	tenant.OAuthProvider
	// Settings returns what the company decided for this provider; the fields
	// Provider and Authorizer are not set. The module may be a
	// tenant.OAuthAuthorizer as well.
	Settings() tenant.OAuth
}
