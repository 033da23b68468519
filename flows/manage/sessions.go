package manage

import (
	"context"
	"errors"
	"slices"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// LiveSessions returns the account's sessions that have not expired, oldest first. It
// does not include recovery links.
func (ad *Admin) LiveSessions(ctx context.Context, mnemocode string) ([]record.Session, error) {
	a, err := ad.ByMnemocode(ctx, mnemocode)
	if err != nil {
		return nil, err
	}
	sessions, err := ad.Sessions.List(ctx, ad.Now(), a.Company, a.ID)
	if err != nil {
		return nil, adminError("listing the sessions", err)
	}
	return slices.DeleteFunc(sessions, func(s record.Session) bool {
		return s.State == record.MailedLink || s.Generation < a.Generation || s.CompanyGeneration < a.CompanyGeneration
	}), nil
}

// EndSession revokes one of an account's sessions by its ID. It returns ErrNoSession if
// the account has no such session.
func (ad *Admin) EndSession(ctx context.Context, mnemocode, id string) error {
	a, err := ad.ByMnemocode(ctx, mnemocode)
	if err != nil {
		return err
	}
	session, err := ad.Sessions.DeleteID(context.WithoutCancel(ctx), ad.Now(), a.Company, a.ID, id)
	if errors.Is(err, record.ErrNotFound) {
		return ErrNoSession
	}
	if err != nil {
		return adminError("ending the session", err)
	}
	ad.Emit(ctx, session.Ended(ad.actorEvent(ad.revokeReason())))
	return nil
}

// EndSessions revokes the sessions of an account, including pending steps and recovery
// links.
func (ad *Admin) EndSessions(ctx context.Context, mnemocode string) error {
	a, err := ad.ByMnemocode(ctx, mnemocode)
	if err != nil {
		return err
	}
	a, err = ad.Accounts.Update(ctx, a.Company, a.ID, func(*record.Account) (ends bool, err error) { return true, nil })
	if err != nil {
		return adminError("ending the sessions", err)
	}
	return ad.revokeAll(ctx, record.Revocation{Company: a.Company, Account: a.ID, Generation: a.Generation}, ad.event(record.AccountSessionsEnded, a))
}

// EndAllSessions revokes all sessions of the company, including pending steps and
// recovery links. It takes as long for a million sessions as for one.
func (ad *Admin) EndAllSessions(ctx context.Context) error {
	e, err := ad.Accounts.NewCompanyGeneration(ctx, ad.Company.Code)
	if err != nil {
		return adminError("ending the company's sessions", err)
	}
	return ad.revokeAll(ctx, e, ad.event(record.AllSessionsEnded, record.Account{}))
}

// revokeAll revokes the sessions that the operator ends, of an account or of the company. The
// event ended also stands for what is no session, such as issued tokens, and for what a store does
// not revoke until later.
func (ad *Admin) revokeAll(ctx context.Context, e record.Revocation, ended record.Event) error {
	ctx = context.WithoutCancel(ctx) // the change is stored; finish it
	err := ad.revoke(ctx, e, record.EndedByAdmin)
	ended.Reason = record.EndedByAdmin
	ad.emit(ctx, ended)
	return err
}

// revoke revokes the sessions of a change that is stored. It returns
// ErrRevocationPending if that failed.
func (ad *Admin) revoke(ctx context.Context, e record.Revocation, reason string) error {
	if err := ad.RevokeAll(ctx, e, ad.actorEvent(reason)); err != nil {
		ad.Warn("sessions could not be revoked yet", "company", e.Company, "error", err)
		return ErrRevocationPending
	}
	return nil
}

// revokeReason returns the reason of sessions that the operator or the user revokes.
func (ad *Admin) revokeReason() string {
	if ad.isUser() {
		return record.EndedByUser
	}
	return record.EndedByAdmin
}

// actorEvent returns an event with the operator, or the user's session, and this reason.
func (ad *Admin) actorEvent(reason string) record.Event {
	return record.Event{Session: ad.user.session, Address: ad.Address, UserAgent: ad.user.agent, Actor: ad.Actor, Reason: reason}
}

// History returns the newest events of an account.
func (ad *Admin) History(ctx context.Context, mnemocode string, limit int) ([]record.Event, error) {
	a, err := ad.ByMnemocode(ctx, mnemocode)
	if err != nil || ad.Manager.History == nil {
		return nil, err
	}
	events, err := ad.Manager.History.Recorded(ctx, a.Company, a.ID, limit)
	return events, adminError("reading the history", err)
}

// Referred returns the events with the ref of an answer, as a person typed it. If mnemocode
// is empty, they may be of any account.
func (ad *Admin) Referred(ctx context.Context, mnemocode, typed string) ([]record.Event, error) {
	ref, ok := wire.ReadRef(typed)
	if !ok {
		return nil, &FieldError{"ref", "it is not the ref of an error, which has 10 letters and digits"}
	}
	if ad.Manager.History == nil {
		return nil, nil
	}
	events, err := ad.Manager.History.Referred(ctx, ad.Company.Code, ref)
	if mnemocode != "" && err == nil {
		if _, err := ad.ByMnemocode(ctx, mnemocode); err != nil {
			return nil, err
		}
		events = slices.DeleteFunc(events, func(e record.Event) bool { return e.Mnemocode != mnemocode })
	}
	return events, adminError("finding a ref", err)
}
