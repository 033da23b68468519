package manage

import (
	"cmp"
	"context"
	"errors"

	"github.com/mnemogate/mnemogate/flows/background"
	"github.com/mnemogate/mnemogate/flows/limits"
	"github.com/mnemogate/mnemogate/flows/message"
	"github.com/mnemogate/mnemogate/flows/password"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/session"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// This file checks and changes a user's own password for a backend. The backend must
// check the user's session. The limits and locks of a login prevent guessing of the
// password; they count attempts here and attempts to log in together.

// CheckPassword checks a user's current password. Its effects are those of a login, such
// as counting attempts and setting locks. The limits of the user's address apply. If
// address is empty, only those of the account apply.
func (ad *Admin) CheckPassword(ctx context.Context, mnemocode, current, address string) error {
	a, err := ad.ByMnemocode(ctx, mnemocode)
	if err != nil {
		return err
	}
	at, err := ad.attemptOf(ctx, a, address)
	if err != nil {
		return err
	}
	return ad.checkOwnPassword(ctx, at, a, current)
}

// attemptOf returns an attempt of the account's user. The address may be empty.
func (ad *Admin) attemptOf(ctx context.Context, a record.Account, address string) (*limits.Attempt, error) {
	at, err := ad.Attempt(ctx, ad.Company, address)
	at.NoAddress = address == ""
	at.Mnemocode = a.Mnemocode
	return &at, err
}

// checkOwnPassword checks a password like a login, but requires no captcha.
func (ad *Admin) checkOwnPassword(ctx context.Context, at *limits.Attempt, a record.Account, current string) error {
	if a.Status != record.StatusActive {
		return ErrNotActive
	}
	counts, err := ad.passwordCounts(ctx, at, a)
	if err != nil {
		return err
	}
	err = ad.TryPassword(ctx, at, a, counts, current)
	at.GiveBack(ctx, err)
	if !errors.Is(err, wire.ErrRestricted) {
		at.RecordTraffic(a.ID, false)
	}
	ad.emitLocks(ctx, at, a)
	if errors.Is(err, wire.ErrPasswordInvalid) {
		err = wire.WithRef(ErrPasswordWrong)
		e := ad.eventOfUser(record.AccountPasswordWrong, at, a)
		e.Ref = wire.RefOf(err)
		ad.emit(ctx, e)
	}
	return err
}

// passwordCounts says where an attempt with a password counts. A user's known device has
// counts of its own, as in a login.
func (ad *Admin) passwordCounts(ctx context.Context, at *limits.Attempt, a record.Account) (session.Counts, error) {
	c, err := ad.CallOf(ctx, ad.Company, "", session.Client{Device: ad.user.device})
	if err != nil {
		return session.Counts{}, err
	}
	if err := c.FindDevice(ctx, a, ""); err != nil || c.Device == "" {
		return session.Counts{Key: at.FailureKey(a, ""), Now: a.FailureCounts}, err
	}
	at.Device = c.Device
	return c.PasswordCounts(ctx, a, "")
}

// emitLocks reports the locks that an attempt has reached since the last call.
func (ad *Admin) emitLocks(ctx context.Context, at *limits.Attempt, a record.Account) {
	for _, lock := range at.Events {
		e := ad.eventOfUser(lock.Name, at, a)
		e.Reason, e.Traffic = lock.Reason, lock.Traffic
		ad.emit(ctx, e)
	}
	at.Events = nil
}

// eventOfUser returns an event with the address of the user who made the attempt. If the
// backend did not send that address, the event has the backend's.
func (ad *Admin) eventOfUser(name string, at *limits.Attempt, a record.Account) record.Event {
	e := ad.event(name, a)
	if !at.NoAddress {
		e.Address = at.Address
	}
	return e
}

// A PasswordChange is a password change by the user.
type PasswordChange struct {
	Current, New string
	Address      string // the user's, as for CheckPassword
	Keep         string // the Session.ID of the session to keep; empty for none
}

// ChangePassword changes a user's password. It first checks the current password like
// CheckPassword, then applies the rules for users to the new one. It revokes all of the
// account's sessions except the one to keep, which stays valid throughout. Users without
// a password may set their first one themselves: their login was another proof.
func (ad *Admin) ChangePassword(ctx context.Context, mnemocode string, ch PasswordChange) error {
	if !sendable(ch.New, len(ch.New)) { // the rules limit the length
		return &FieldError{"new_password", "it must be in UTF-8 and without NUL"}
	}
	a, keep, err := ad.findKeeping(ctx, mnemocode, ch.Keep)
	if err != nil {
		return err
	}
	at, err := ad.attemptOf(ctx, a, ch.Address)
	if err != nil {
		return err
	}
	if first := ad.isUser() && a.PasswordHash == "" && ch.Current == ""; !first {
		if err := ad.checkOwnPassword(ctx, at, a, ch.Current); err != nil {
			return err
		}
	}
	wanted := password.Normalize(ch.New)
	if err := ad.Company.CheckPassword("new_password", ch.New, a); err != nil {
		return err
	}
	if wanted == password.Normalize(ch.Current) { // a has no hash if the password was just checked elsewhere
		return wire.ErrPasswordSame
	}
	if err := ad.CheckNotSame(ctx, at, a, ch.New); err != nil {
		return err
	}
	if err := ad.RefuseBreached(ctx, ad.Company, "new_password", ch.New); err != nil {
		return err
	}
	hash, err := ad.Hasher.Hash(ctx, at.Turn(), ad.Company.Password.Argon2id, wanted)
	if err != nil {
		return wire.Unavailable("hashing the password", err)
	}
	if _, err := ad.sessionToKeep(ctx, a, ch.Keep); err != nil { // it may have been revoked meanwhile
		return err
	}
	if err := ad.EnablePassword(ctx, ad.Company, a); err != nil {
		return err
	}
	changed := ad.event(record.AccountChanged, a)
	changed.Fields, changed.Reason = []string{"password"}, "password"
	changed.Address = cmp.Or(ch.Address, changed.Address) // where the user is
	err = ad.Accounts.SetPassword(ctx, at.Now, a, hash, keep, background.OutboxEvents(ctx, ad.Company, changed)...)
	if errors.Is(err, record.ErrConflict) {
		return ErrChanged
	}
	if err != nil {
		return wire.Unavailable("storing the password", err)
	}
	ctx = context.WithoutCancel(ctx) // the change is stored; finish it
	revokeErr := ad.revoke(ctx, record.Revocation{Company: a.Company, Account: a.ID, Generation: a.Generation + 1, Keep: keep}, record.EndedByPassword)
	notice := ad.notice(message.NoticePasswordChanged)
	notice.Address = ch.Address
	ad.Notify(ctx, ad.Company, a, notice)
	ad.emit(ctx, changed)
	return revokeErr
}

// findKeeping finds an account, and the session with this ID that a change of it spares.
func (ad *Admin) findKeeping(ctx context.Context, mnemocode, id string) (a record.Account, keep record.TokenHash, err error) {
	if a, err = ad.ByMnemocode(ctx, mnemocode); err == nil {
		keep, err = ad.sessionToKeep(ctx, a, id)
	}
	return a, keep, err
}

// sessionToKeep finds one of the account's sessions by its ID.
func (ad *Admin) sessionToKeep(ctx context.Context, a record.Account, id string) (record.TokenHash, error) {
	if id == "" {
		return record.TokenHash{}, nil
	}
	sessions, err := ad.Sessions.List(ctx, ad.Now(), a.Company, a.ID)
	if err != nil {
		return record.TokenHash{}, wire.Unavailable("listing the sessions", err)
	}
	for _, session := range sessions {
		if session.ID == id && session.State == record.Authorized && session.Generation == a.Generation && session.CompanyGeneration == a.CompanyGeneration {
			return session.Hash, nil
		}
	}
	return record.TokenHash{}, ErrNoSessionToKeep
}
