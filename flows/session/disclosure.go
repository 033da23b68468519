package session

import (
	"context"

	"github.com/mnemogate/mnemogate/flows/message"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/typed"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// A Disclosure decides what a company tells strangers about its accounts. There are two: open
// tells users what helps them, and hardened tells strangers nothing. The flows ask that of
// their call, and do not know which it is.
type Disclosure interface {
	// StandIn returns the account with which a login goes on: the one that was found, or a
	// decoy in its place.
	StandIn(found record.Account) record.Account
	// Admit returns an error if the client may learn that there is no account, or what its
	// status is. It counts an unknown login id as a failure of the address.
	Admit(ctx context.Context, a record.Account) error
	// Status is Admit for a session, whose account exists.
	Status(a record.Account) error
	// Counts says where an attempt counts.
	Counts(ctx context.Context, a record.Account, loginIDHash string) (Counts, error)
	// Pending returns the disclaimers that a step to this state lists.
	Pending(a record.Account, state record.State) []wire.Disclaimer
	// RecoveryMethod chooses a method. It returns the account with which the recovery goes
	// on, as StandIn does.
	RecoveryMethod(wanted tenant.Method, found record.Account) (record.Account, tenant.Method, error)
	// MailLink mails a link that FindLink accepts to the account's owner.
	MailLink(ctx context.Context, a record.Account, loginIDHash string) error
	// Shown returns what an answer shows of an account. The login id is as the client has
	// sent it, or empty.
	Shown(loginID string, a record.Account) Shown

	// began reports whether a company that discloses this much has begun a session. A reload
	// may have switched `hardened` since.
	began(record.Session) bool
	// loginID returns the login id hash that a session of this state keeps, or "".
	loginID(state record.State, loginIDHash string) string
	// place makes a session ready for the store, and returns the bucket of its token.
	place(*record.Session) (bucket int)
	// prepare makes a new code ready for the store, and returns what it is charged to.
	prepare(code *record.Code, st Step, fixed bool) ([]record.Counter, error)
	// deliver sends the code of a step.
	deliver(ctx context.Context, st Step, session record.TokenHash, code newCode) error
	// replaceCode sends a new code for the call's session, which takes the place of the one before.
	replaceCode(ctx context.Context, st Step, code newCode) error
	// revoked returns the account with which the step of a revoked session continues, or an
	// error. status is why it was revoked, if that is known.
	revoked(state record.State, a record.Account, status error) (record.Account, error)
}

// Counts says where an attempt counts.
type Counts struct {
	Key     record.FailureKey // any client may learn of its locks
	Now     record.Failures   // of Key
	Private record.FailureKey // counts, too; only who proves a secret learns of its locks; empty for none
}

// HasPrivate reports whether an attempt has private counts.
func (c Counts) HasPrivate() bool { return c.Private != record.FailureKey{} }

// Shown is what an answer shows of an account.
type Shown struct {
	LoginID string // a phone as it was read, if it was written in another way
	Phone   string // masked
	Email   string
}

// open tells clients whether there is an account, and what stands in its way.
type open struct{ *Call }

func (c open) StandIn(found record.Account) record.Account { return found }

func (c open) Admit(ctx context.Context, a record.Account) error {
	if a.ID == 0 {
		if err := c.CountAddressFailure(ctx); err != nil {
			return err
		}
		return wire.ErrLoginIDNotFound
	}
	if err := c.Status(a); err != nil {
		return c.AddressFirst(ctx, err)
	}
	return nil
}

func (open) Status(a record.Account) error { return tenant.CheckStatus(a) }

func (c open) Counts(_ context.Context, a record.Account, loginIDHash string) (Counts, error) {
	return Counts{Key: c.FailureKey(a, loginIDHash), Now: a.FailureCounts}, nil
}

func (c open) Pending(a record.Account, _ record.State) []wire.Disclaimer {
	return c.Call.Pending(a, c.Session().Accepted)
}

func (c open) RecoveryMethod(wanted tenant.Method, found record.Account) (record.Account, tenant.Method, error) {
	method, err := c.Company.RecoveryMethod(wanted, found)
	return found, method, err
}

func (c open) MailLink(ctx context.Context, a record.Account, _ string) error {
	return c.Call.MailLink(ctx, a, message.RecoveryLink)
}

func (c open) Shown(loginID string, a record.Account) Shown {
	shown := Shown{Phone: record.MaskPhone(a.Phone), Email: a.Email}
	if phone := typed.Phone(loginID, c.Company.PhoneRegion); phone == a.Phone && phone != loginID {
		shown.LoginID = phone
	}
	return shown
}

func (open) began(s record.Session) bool { return !anyones(s.State) || s.LoginID == "" }

func (open) loginID(record.State, string) string { return "" }

func (open) place(s *record.Session) int { return record.AccountBucket(s.Company, s.Account) }

func (c open) prepare(_ *record.Code, st Step, fixed bool) ([]record.Counter, error) {
	if fixed {
		return nil, nil
	}
	return c.smsBudgets(st.Account, st.Account.Phone)
}

// deliver waits until the code is sent, even if the client hangs up: that is no failure of
// the gateway.
func (c open) deliver(ctx context.Context, _ Step, _ record.TokenHash, code newCode) error {
	return c.handOver(ctx, "sending the code", code.counters, code.send)
}

func (c open) replaceCode(ctx context.Context, st Step, code newCode) error {
	if err := c.deliver(ctx, st, c.session.Hash, code); err != nil {
		return err
	}
	return c.setCode(ctx, code.stored)
}

// revoked tells the status if the route reports it (contract, section 3).
func (c open) revoked(_ record.State, a record.Account, status error) (record.Account, error) {
	if status == nil || !c.SeesStatus {
		return record.Account{}, wire.ErrTokenInvalid
	}
	c.SetAccount(a)
	return record.Account{}, status
}
