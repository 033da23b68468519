// Package session manages sessions from login until they are revoked or expire. It
// creates a session, finds it by its token, takes it to the next step and authorizes
// requests for the protected path. It also checks one-time codes, mailed links and the
// other proofs that lead from one step to the next.
//
// Start with Call, which is one request of a client. Then read Call.Enter for the steps
// of a login and Manager.Authorize for the protected path. The package does not know
// the routes: package flows decides which step follows which.
package session

import (
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

// A Manager manages the sessions of all companies. Set its exported fields before the
// first call and do not change them afterwards. Its methods may be called concurrently.
type Manager struct {
	Accounts  record.Accounts
	Outbox    record.Outbox // the Accounts, if they implement it; nil delivers no outbox events
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
	Dropped   func(company string)
	History   record.History // the Accounts, if they implement it; nil keeps no history
	AuditKeep time.Duration  // how long History keeps events

	recorder background.Recorder
	reported limits.ReportedLimits // which full counters were reported
	traffic  limits.Traffic
	warnings background.Warnings
	backlogs atomic.Pointer[[]record.Backlog] // nil until the relay reports them
	known    atomic.Pointer[knownKeys]        // nil until the first use
	reading  sync.Mutex                       // held while the secrets are read
	tagging  sync.Once
	byTag    map[tokens.CompanyTag]*tenant.Company // of stateless tokens
	tasks    background.Tasks
	noting   atomic.Int64 // how many uses of tokens are being stored
}

func (m *Manager) after(d time.Duration) <-chan time.Time {
	if m.After != nil {
		return m.After(d)
	}
	return time.After(d)
}

// Warn logs a warning that many requests may cause at once. It logs at most a few lines
// a second.
func (m *Manager) Warn(message string, args ...any) { m.warnings.Warn(m.Log, message, args...) }

// WarnUnanswered is Warn for an error which says that a store or gateway did not answer.
// It ignores other errors.
func (m *Manager) WarnUnanswered(err error, args ...any) {
	m.warnings.Unanswered(m.Log, err, args...)
}
