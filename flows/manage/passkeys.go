package manage

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/mnemogate/mnemogate/flows/background"
	"github.com/mnemogate/mnemogate/flows/message"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/tokens"
)

// This file manages the passkeys of accounts. The caller of NewPasskey and AddPasskey must
// check that the user has just logged in.

// NewPasskey is what a client needs to create a passkey, ready to be marshalled.
type NewPasskey struct {
	// Send it with the new passkey to me/passkeys, within five minutes.
	ChallengeToken string `json:"challenge_token"`
	// WebAuthn's PublicKeyCredentialCreationOptionsJSON.
	PublicKey jsontext.Value `json:"public_key"`
}

// NewPasskey begins the creation of a passkey. It stores nothing.
func (ad *Admin) NewPasskey(ctx context.Context, mnemocode string) (NewPasskey, error) {
	a, owner, has, err := ad.passkeyOwner(ctx, mnemocode)
	if err != nil {
		return NewPasskey{}, err
	}
	if len(has) >= record.MaxPasskeys { // before the authenticator stores one
		return NewPasskey{}, ErrTooManyPasskeys
	}
	keys, err := ad.Keys(ctx)
	if err != nil {
		return NewPasskey{}, err
	}
	challenge := keys.NewPasskeyChallenge(a.Company, a.ID, owner.Handle, ad.Now().Add(tenant.PasskeyLife))
	options, err := ad.Company.Passkeys.CreationOptions(challenge, owner, has)
	return NewPasskey{tokens.FormatPasskeyChallenge(challenge), options}, err
}

// AddPasskey verifies and stores a passkey that a client has created with NewPasskey's
// options, silently if the browser did not ask the user. credential is the
// RegistrationResponseJSON. Without a name, the passkey is called like the provider that
// keeps it, or else like the device. The owner gets a notice. No session is revoked. A
// revocation that comes meanwhile leaves no passkey. Each call counts as a login of the
// Admin's Address, because it stores a spent challenge.
func (ad *Admin) AddPasskey(ctx context.Context, mnemocode, challengeToken string, credential []byte, name string, silent bool) (record.Passkey, error) {
	a, owner, _, err := ad.passkeyOwner(ctx, mnemocode)
	if err != nil {
		return record.Passkey{}, err
	}
	if err := ad.stillIn(ctx, a); err != nil {
		return record.Passkey{}, err
	}
	if name, err = passkeyName(name); err != nil {
		return record.Passkey{}, err
	}
	at, err := ad.attemptOf(ctx, a, ad.Address)
	if err != nil {
		return record.Passkey{}, err
	}
	challenge, ok := at.Keys.OpenPasskeyChallenge(a.Company, a.ID, owner.Handle, challengeToken, at.Now)
	if !ok {
		return record.Passkey{}, ErrPasskeyRefused
	}
	p, err := ad.Company.Passkeys.Register(challenge, owner, credential, silent)
	if errors.Is(err, tenant.ErrPasskeyJSON) {
		return record.Passkey{}, &FieldError{"credential", "it must be a RegistrationResponseJSON, as PublicKeyCredential.toJSON() returns"}
	}
	if err != nil {
		ad.Log.Info("a new passkey does not verify", "company", a.Company, "mnemocode", a.Mnemocode, "error", err)
		return record.Passkey{}, ErrPasskeyRefused
	}
	fresh, err := at.Spend(ctx, "passkey", challenge)
	if err != nil {
		ad.emitLocks(ctx, at, a)
		return record.Passkey{}, err
	}
	if !fresh {
		return record.Passkey{}, ErrPasskeyRefused
	}
	p.Account, p.UserHandle, p.Created = a.ID, owner.Handle, at.Now.UTC()
	p.Name = cmp.Or(name, p.Name, message.Device(ad.user.agent), passkeyDefault)
	added := ad.event(record.AccountPasskeyAdded, a)
	added.Reason = p.ID()
	err = ad.Accounts.AddPasskey(ctx, at.Now, a, p, background.OutboxEvents(ctx, ad.Company, added)...)
	if _, taken := errors.AsType[*record.TakenError](err); taken {
		return record.Passkey{}, ErrPasskeyTaken
	}
	if errors.Is(err, record.ErrConflict) {
		return record.Passkey{}, ErrTooManyPasskeys
	}
	if err != nil {
		err = adminError("storing the passkey", orChanged(err))
		at.GiveBack(ctx, err)
		return record.Passkey{}, err
	}
	ad.tell(ctx, a, message.NoticePasskeyAdded)
	ad.emit(ctx, added)
	return p, nil
}

// importPasskeys adds the passkeys that the account does not have.
func (ad *Admin) importPasskeys(ctx context.Context, a record.Account, passkeys []record.Passkey) (added bool, err error) {
	if len(passkeys) == 0 {
		return false, nil
	}
	has, err := ad.Accounts.Passkeys(ctx, a.Company, a.ID)
	if err != nil {
		return false, adminError("listing the passkeys", err)
	}
	for _, p := range passkeys {
		if slices.ContainsFunc(has, func(h record.Passkey) bool { return bytes.Equal(h.Credential, p.Credential) }) {
			continue
		}
		e := ad.event(record.AccountPasskeyAdded, a)
		switch err := ad.Accounts.AddPasskey(ctx, e.Time, a, p, background.OutboxEvents(ctx, ad.Company, e)...); {
		case errors.Is(err, record.ErrConflict):
			return added, ErrTooManyPasskeys
		case err != nil:
			return added, adminError("storing the passkey", orChanged(err))
		}
		added = true
	}
	return added, nil
}

const (
	maxPasskeyName = 64 // in characters
	passkeyDefault = "Passkey"
)

// passkeyName returns what the user has written as the name to store, or "".
func passkeyName(name string) (string, error) {
	name = strings.TrimSpace(name)
	if !utf8.ValidString(name) || utf8.RuneCountInString(name) > maxPasskeyName || strings.ContainsFunc(name, unicode.IsControl) {
		return "", &FieldError{"name", fmt.Sprintf("it must have at most %d characters, in UTF-8 and without control characters", maxPasskeyName)}
	}
	return name, nil
}

// passkeyOwner returns an account, how authenticators keep its user, and its passkeys.
func (ad *Admin) passkeyOwner(ctx context.Context, mnemocode string) (a record.Account, owner tenant.PasskeyOwner, has []record.Passkey, err error) {
	if ad.Company.Passkeys == nil {
		return a, owner, nil, tenant.ErrNoPasskeys
	}
	if a, err = ad.ByMnemocode(ctx, mnemocode); err != nil {
		return a, owner, nil, err
	}
	if a.Status != record.StatusActive {
		return a, owner, nil, ErrNotActive
	}
	if has, err = ad.passkeysOf(ctx, a); err != nil {
		return a, owner, nil, err
	}
	keys, err := ad.Keys(ctx)
	if err != nil {
		return a, owner, nil, err
	}
	owner = tenant.PasskeyOwner{Handle: keys.PasskeyHandle(a.Company, a.ID), Name: knownAs(a)}
	if len(has) > 0 {
		owner.Handle = has[0].UserHandle
	}
	return a, owner, has, nil
}

// Passkeys returns an account's passkeys, oldest first.
func (ad *Admin) Passkeys(ctx context.Context, mnemocode string) ([]record.Passkey, error) {
	a, err := ad.ByMnemocode(ctx, mnemocode)
	if err != nil {
		return nil, err
	}
	return ad.passkeysOf(ctx, a)
}

// PasskeysSignal is what WebAuthn's signalAllAcceptedCredentials and signalCurrentUserDetails
// take, as JSON.
type PasskeysSignal struct {
	// The domain that the passkeys belong to.
	RPID string `json:"rpId"`
	// The user handle, in base64url.
	UserID string `json:"userId"`
	// The ids of the passkeys.
	Credentials []string `json:"allAcceptedCredentialIds"`
	// A login id that the user knows.
	Name string `json:"name"`
	// The same.
	DisplayName string `json:"displayName"`
}

// PasskeysSignal returns an account's passkeys, and what a browser should know of them: nil
// if the company has no passkeys.
func (ad *Admin) PasskeysSignal(ctx context.Context, mnemocode string) ([]record.Passkey, *PasskeysSignal, error) {
	if ad.Company.Passkeys == nil {
		has, err := ad.Passkeys(ctx, mnemocode)
		return has, nil, err
	}
	_, owner, has, err := ad.passkeyOwner(ctx, mnemocode)
	if err != nil {
		return nil, nil, err
	}
	signal := &PasskeysSignal{ad.Company.Passkeys.RPID(), base64.RawURLEncoding.EncodeToString(owner.Handle), []string{}, owner.Name, owner.Name}
	for _, p := range has {
		signal.Credentials = append(signal.Credentials, p.ID())
	}
	return has, signal, nil
}

func (ad *Admin) passkeysOf(ctx context.Context, a record.Account) ([]record.Passkey, error) {
	if a.Passkeys == 0 {
		return nil, nil
	}
	passkeys, err := ad.Accounts.Passkeys(ctx, a.Company, a.ID)
	return passkeys, adminError("loading the passkeys", err)
}

// RenamePasskey gives another name to the passkey with this Passkey.ID. An empty name
// becomes the default. The error is ErrNoPasskey if there is none.
func (ad *Admin) RenamePasskey(ctx context.Context, mnemocode, id, name string) error {
	a, err := ad.ByMnemocode(ctx, mnemocode)
	if err != nil {
		return err
	}
	if name, err = passkeyName(name); err != nil {
		return err
	}
	credential, ok := record.CredentialOf(id)
	if !ok {
		return ErrNoPasskey
	}
	err = ad.Accounts.RenamePasskey(ctx, a.Company, a.ID, credential, cmp.Or(name, passkeyDefault))
	if errors.Is(err, record.ErrNotFound) {
		return ErrNoPasskey
	}
	if err != nil {
		return adminError("renaming the passkey", err)
	}
	renamed := ad.event(record.AccountChanged, a)
	renamed.Reason = "passkeys"
	ad.emit(ctx, renamed)
	return nil
}

// RemovePasskey removes the passkey with this Passkey.ID. It may be on a lost device, so
// this revokes the account's sessions, but spares the one with the ID keep, if that is not
// empty. A user's removal, and one that spares a session, fails with ErrChanged if another
// change came first. Other errors are ErrNoPasskey, ErrLastPasskey and ErrNoSessionToKeep.
func (ad *Admin) RemovePasskey(ctx context.Context, mnemocode, id, keep string) error {
	a, kept, err := ad.findKeeping(ctx, mnemocode, keep)
	if err != nil {
		return err
	}
	credential, ok := record.CredentialOf(id)
	if !ok {
		return ErrNoPasskey
	}
	if ad.isUser() && a.Passkeys == 1 && !ad.needsNoPasskey(a) {
		return ErrLastPasskey
	}
	of := a
	if !ad.isUser() && keep == "" { // a lost device must go whatever else an operator or the user changes
		of.Generation = 0
	}
	removed := ad.event(record.AccountPasskeyRemoved, a)
	removed.Reason = id
	next, err := ad.Accounts.DeletePasskey(ctx, ad.Now(), of, credential, kept, background.OutboxEvents(ctx, ad.Company, removed)...)
	switch {
	case errors.Is(err, record.ErrNotFound):
		if err := ad.revokePending(ctx, a); err != nil { // an earlier request may have removed it
			return err
		}
		return ErrNoPasskey
	case errors.Is(err, record.ErrLastPasskey):
		return ErrLastPasskey
	case errors.Is(err, record.ErrConflict):
		return ErrChanged
	case err != nil:
		return adminError("removing the passkey", err)
	}
	ctx = context.WithoutCancel(ctx) // the change is stored; finish it
	revokeErr := ad.revoke(ctx, record.Revocation{Company: a.Company, Account: a.ID, Generation: next, Keep: kept}, record.EndedByChange)
	ad.tell(ctx, a, message.NoticePasskeyRemoved)
	ad.emit(ctx, removed)
	return revokeErr
}

// needsNoPasskey reports whether the owner of an account has another way to log in that
// does not run out, as backup codes do.
func (ad *Admin) needsNoPasskey(a record.Account) bool {
	byPassword := a.HasLoginID() && ad.Company.HasPassword(a) && (a.HasApp() || !ad.Company.NeedsSecondFactor(a))
	return byPassword || ad.Company.SendsCodesTo(a.Phone) || ad.Company.LogsInAtProvider(a)
}
