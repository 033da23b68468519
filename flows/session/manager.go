// Package session is the life of a session: how a step of a login begins one, how a
// request with its token finds it, goes on to the next step, or passes on the protected
// path, and how it is revoked or expires. One-time codes, mailed links and the other
// proofs that lead from one step to the next are part of it.
//
// Start with Call, which is one request of a client, then read Call.Enter for the steps
// of a login and Manager.Authorize for the protected path. The package knows no route:
// package flows says which step follows which.
package session

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mnemogate/mnemogate/flows/background"
	"github.com/mnemogate/mnemogate/flows/limits"
	"github.com/mnemogate/mnemogate/flows/password"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/tokens"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// A Manager has the sessions of all companies. Its exported fields are set
// before the first call and not changed after; its methods may then be called
// concurrently.
type Manager struct {
	Accounts  record.Accounts
	Outbox    record.Outbox // the Accounts, if they are one; nil tells nobody
	Sessions  record.Sessions
	Companies map[string]*tenant.Company // by code
	Hasher    *password.Hasher
	Log       *slog.Logger
	// Forwarded is what the Profile of a session has that becomes authorized.
	Forwarded []record.ProfileField
	Now       func() time.Time
	After     func(time.Duration) <-chan time.Time // nil is time.After
	// Observe is told of each Event; nil for nobody. It must not block.
	Observe func(context.Context, record.Event)
	// Dropped is told of the company of each message that no request waited for and
	// that was dropped. nil for nobody. It must not block.
	Dropped func(company string)
	// History is the Accounts, if they are one; nil keeps none. AuditKeep is for
	// how long events are kept there.
	History   record.History
	AuditKeep time.Duration

	recorder background.Recorder
	told     limits.Told // of full counters
	traffic  limits.Traffic
	warnings background.Warnings
	backlogs atomic.Pointer[[]record.Backlog] // nil until they are known
	derived  atomic.Pointer[tokens.Keys]      // nil until it is needed
	tagging  sync.Once
	byTag    map[tokens.CompanyTag]*tenant.Company // of stateless tokens
	tasks    background.Tasks
}

// Keys returns the keys that are derived from the store's secret. It asks the store once.
func (s *Manager) Keys(ctx context.Context) (*tokens.Keys, error) {
	if known := s.derived.Load(); known != nil {
		return known, nil
	}
	secret, err := s.Accounts.Secret(ctx)
	if err != nil {
		return nil, wire.Unavailable("loading the store's secret", err)
	}
	keys, err := tokens.NewKeys(secret)
	if err != nil {
		return nil, err
	}
	s.derived.Store(keys)
	return keys, nil
}

// Warn logs what may happen to every request at once: a few lines a second.
func (s *Manager) Warn(message string, args ...any) { s.warnings.Warn(s.Log, message, args...) }

// WarnUnanswered is Warn for an error that says that a store or gateway did not answer.
// Any other error it ignores.
func (s *Manager) WarnUnanswered(err error, args ...any) {
	s.warnings.Unanswered(s.Log, err, args...)
}
