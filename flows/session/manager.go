// Package session manages sessions from login until they are revoked or expire. It
// creates a session, finds it by its token, takes it to the next step and authorizes
// requests for the protected path. It also checks one-time codes, mailed links and the
// other proofs that lead from one step to the next.
//
// Start with Call, which is one request of a client. Then read Call.Enter for the steps
// of a login and Manager.Authorize for the protected path. Manager lists its parts. The
// package does not know the routes: package flows decides which step follows which.
package session

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mnemogate/mnemogate/flows/background"
	"github.com/mnemogate/mnemogate/flows/limits"
	"github.com/mnemogate/mnemogate/flows/message"
	"github.com/mnemogate/mnemogate/flows/password"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/tokens"
)

// A Config is what all parts of a Manager share. Set its fields before the first call of the
// Manager and do not change them afterwards.
type Config struct {
	Accounts  record.Accounts
	Sessions  record.Sessions
	Companies map[string]*tenant.Company // by code
	Hasher    *password.Hasher
	Log       *slog.Logger
	// Forwarded lists the fields in the Profile of an authorized session, in addition to
	// the role.
	Forwarded []record.ProfileField
	Now       func() time.Time
	Clock     func(context.Context) (time.Time, error) // of the server that has the Accounts; nil if it has none of its own
	After     func(time.Duration) <-chan time.Time     // nil: time.After
	// Observe, if not nil, is called for each Event. It must not block.
	Observe func(context.Context, record.Event)
	// Sent, if not nil, is called after each gateway that was asked to send a message, with
	// the gateway's error. It must not block.
	Sent func(m message.Message, gateway string, err error)
	// Dropped, if not nil, is called for each background message that is dropped, with
	// the code of its company. It must not block.
	Dropped func(company string)
	// Running, if not nil, returns a company of the configuration that runs now, or nil. It is
	// for messages that outlast their own configuration.
	Running   func(code string) *tenant.Company
	History   record.History // the Accounts, or nil to keep no history
	AuditKeep time.Duration  // how long History keeps events

	// Node is what this node knows of the stores, for the next Config with the same. New sets
	// it if it is nil.
	Node *Node

	warnings background.Warnings
}

// A Node is what a node remembers of its stores. Managers with the same Accounts may share it:
// an outage of a store outlasts a reload, and so do full counters. The zero value is ready to
// use.
type Node struct {
	secrets  knownSecrets
	reported limits.ReportedLimits
	traffic  limits.Traffic
}

// A Manager manages the sessions of all companies. It has a part for each job. Its methods
// and theirs may be called concurrently.
type Manager struct {
	*Config
	*Authorizer // may this request pass?
	*Attempts   // may this client try again?
	*Passwords  // is this password right, and may it be set?
	*Locks      // ends what wrong attempts have locked
	*Revoker    // ends sessions
	*Messenger  // sends codes, links and notices
	*Journal    // tells what happened
	*Secrets    // the keys of the store

	backlogs atomic.Pointer[[]record.Backlog] // nil until the relay reports them
	tagging  sync.Once
	byTag    map[tokens.Tag]*tenant.Company // of stateless tokens
}

// New returns the Manager of a Config, which it keeps.
func New(c *Config) *Manager {
	c.Node = cmp.Or(c.Node, new(Node))
	journal := &Journal{Config: c}
	secrets := &Secrets{Config: c, journal: journal}
	attempts := &Attempts{Config: c, secrets: secrets, journal: journal}
	return &Manager{
		Config: c, Authorizer: &Authorizer{Config: c}, Attempts: attempts, Passwords: &Passwords{c}, Locks: &Locks{c, secrets},
		Revoker: &Revoker{c, journal}, Messenger: &Messenger{Config: c, attempts: attempts}, Journal: journal, Secrets: secrets,
	}
}

func (c *Config) after(d time.Duration) <-chan time.Time {
	if c.After != nil {
		return c.After(d)
	}
	return time.After(d)
}

// Warn logs a warning that many requests may cause at once: see background.Warnings.
func (c *Config) Warn(message string, args ...any) { c.warnings.Warn(c.Log, message, args...) }

// WarnUnanswered is Warn for an error which says that a store or gateway did not answer. It
// also logs panics, and ignores other errors.
func (c *Config) WarnUnanswered(ctx context.Context, err error, args ...any) {
	c.warnings.Unanswered(ctx, c.Log, err, args...)
}
