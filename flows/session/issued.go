package session

import (
	"context"
	"time"

	"github.com/mnemogate/mnemogate/flows/panics"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/tokens"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// An issued token stands for an authorized session that no store of sessions has (contract,
// section 24). The accounts store has the token. The memory keeps it as it keeps sessions,
// and forgets it when sessions of the account are revoked.

// forwardable are all fields of an account that a configuration can forward. The memory
// outlives configurations.
var forwardable = []record.ProfileField{record.ProfileRole, record.ProfileEmail, record.ProfilePhone}

// loadIssued loads a token, then its account. The session's Generation is 0, so that any
// revocation makes the memory forget it: one that comes between the two is not overlooked.
func (auth *Authorizer) loadIssued(ctx context.Context, hash record.TokenHash) (record.Session, error) {
	t, err := auth.Accounts.Token(ctx, hash)
	if err != nil {
		return record.Session{}, err
	}
	a, err := auth.Accounts.ByID(ctx, t.Company, t.Account)
	if err == nil && a.Status != record.StatusActive {
		err = record.ErrNotFound
	}
	if err != nil {
		return record.Session{}, err
	}
	return record.Session{
		Hash: hash, Company: a.Company, Account: a.ID, Mnemocode: a.Mnemocode, State: record.Authorized,
		Created: t.Created, Expires: t.Expires, Ends: t.Expires,
		Profile: record.NewProfile(a, forwardable, time.Time{}, record.ByToken), Issued: t,
	}, nil
}

// errScope is for a path or method that an issued token does not cover, errTokenFactor for a
// path of mfa, which no issued token opens.
var (
	errScope       = &wire.Refusal{Err: wire.ErrSessionInvalid, Reason: wire.OutOfScope, Message: "The token does not cover this path and method. Issue one with paths and methods that do."}
	errTokenFactor = &wire.Refusal{Err: wire.ErrSessionInvalid, Reason: wire.OneFactor, Message: "This path needs a user with two factors. No issued token opens it."}
)

// authorizeIssued is Authorize for an issued token.
func (auth *Authorizer) authorizeIssued(ctx context.Context, want Requirement, token string, now time.Time) (record.Session, error) {
	session, err := auth.findIssued(ctx, want, token, now)
	switch {
	case err != nil:
		return record.Session{}, err
	case want.Covers == nil:
		return record.Session{}, wire.ErrSessionInvalid
	case !want.Covers(session.Issued):
		return session, errScope
	case want.RoleAllowed != nil && !want.RoleAllowed(session.Profile.Value(record.ProfileRole)):
		return session, errRole
	case want.TwoFactors != nil && want.TwoFactors():
		return session, errTokenFactor
	case want.Fresh > 0:
		return session, &wire.Refusal{Err: wire.ErrSessionInvalid, Reason: wire.TooOld, Message: "This path needs a user who has just logged in. No issued token opens it.", MaxAge: want.Fresh}
	}
	if session.Issued.Use(now) {
		auth.noteUse(ctx, session, now.Truncate(time.Minute))
	}
	return session, nil
}

// findIssued returns the session that a valid token stands for. Its company must meet want.
func (auth *Authorizer) findIssued(ctx context.Context, want Requirement, token string, now time.Time) (record.Session, error) {
	session, err := auth.lookup(ctx, tokens.IssuedPrefix, token, want, now, auth.recall(want.Company, false, auth.loadIssued))
	if err != nil {
		return record.Session{}, err
	}
	if owner := auth.Companies[session.Company]; owner == nil || owner.IssuedTokens.Lifetime == 0 {
		return record.Session{}, wire.ErrTokenInvalid // its company is no longer in the configuration, or wants none
	}
	return session, nil
}

// maxNoting bounds how many uses are being stored at once.
const maxNoting = 256

// noteUse stores in the background when a token was used, so that the request does not wait
// for a disk. If that fails or there is too much to store, the next minute's request tries
// again.
func (auth *Authorizer) noteUse(ctx context.Context, session record.Session, at time.Time) {
	if auth.noting.Add(1) > maxNoting {
		auth.noting.Add(-1)
		return
	}
	ctx = record.Detached(ctx)
	go func() {
		defer auth.noting.Add(-1)
		if err := panics.Contain(func() error { return auth.Accounts.UseToken(ctx, session.Hash, at) }); err != nil {
			auth.Warn("the use of a token could not be noted", "company", session.Company, "error", err)
		}
	}()
}
