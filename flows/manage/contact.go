package manage

import (
	"cmp"
	"context"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/mnemogate/mnemogate/flows/background"
	"github.com/mnemogate/mnemogate/flows/limits"
	"github.com/mnemogate/mnemogate/flows/message"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/session"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/tokens"
	"github.com/mnemogate/mnemogate/flows/typed"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// This file proves contacts with codes (contract, section 22). A code is in a token, which
// its owner alone can use: a user's session, or the company's backends. Of a right code,
// backends get a proof, which a Change spends. A user's right code is spent by the change
// itself. So each works once, and only if the change succeeds.

const (
	// ProofLife is how long a proof is valid.
	ProofLife = 15 * time.Minute
	// spentMemory is how long it is remembered that a code or proof was spent. It is longer
	// than the longest `otp ttl` with ProofLife.
	spentMemory = 25 * time.Hour

	// Guesses of a code by SMS, and of one by mail, which is longer.
	guessesBySMS  = 1
	guessesByMail = 5
)

// A SentContact is the token for a code that was sent.
type SentContact struct {
	// It goes back with the code.
	Token string `json:"contact_token"`
	// Whole seconds until the code expires.
	ExpiresIn int `json:"expires_in"`
}

func (ad *Admin) contactOwner() string { return "backend of " + ad.Company.Code }
func (ad *Admin) proofOwner() string   { return "proof of " + ad.Company.Code }
func (s *Self) contactOwner() string   { return "session " + s.Session.ID + " of " + s.Company.Code }

// SendContact sends a code to a phone or email as it was typed, which need not belong to an
// account. The address, which may be empty for the Admin's, is that of the person who gets
// it. The locale, which may be empty, is that of the text.
func (ad *Admin) SendContact(ctx context.Context, contact record.Contact, text, locale, address string) (SentContact, error) {
	if locale = message.Locale(locale); locale != "" && !message.IsLocale(locale) {
		return SentContact{}, &FieldError{"locale", message.ErrLocale.Error()}
	}
	value, err := ad.readContact(contact, text)
	if err != nil {
		return SentContact{}, err
	}
	return ad.sendContact(ctx, ad.contactOwner(), contact, value, cmp.Or(address, ad.Address), record.Account{Locale: locale})
}

// readContact returns a phone or email as it is stored.
func (ad *Admin) readContact(contact record.Contact, text string) (string, error) {
	value, wrong, sends := typed.Email(text), noEmail, ad.Company.Mail != nil
	if contact.Name == record.Phone.Name {
		value = ad.Company.ReadPhone(text)
		wrong, sends = noPhone, ad.Company.DeliversTo(value)
	}
	if value == "" {
		return "", &FieldError{contact.Name, wrong}
	}
	if !sends {
		return "", &Error{409, contact.Name, "", contact.Name + ": the company can send no codes there: configure sms and mail",
			&wire.Refusal{Err: wire.ErrConflict, Message: "This company can send no code there. Ask its support to change it."}}
	}
	return value, nil
}

func (ad *Admin) sendContact(ctx context.Context, owner string, contact record.Contact, value, address string, a record.Account) (SentContact, error) {
	c, err := ad.CallOf(ctx, ad.Company, "", session.Client{Address: address})
	if err != nil {
		return SentContact{}, err
	}
	token, seconds, err := c.SendContact(ctx, owner, contact, value, a)
	ad.emitLocks(ctx, &c.Attempt, a)
	if err == nil {
		sent := ad.contactEvent(record.ContactCodeSent, contact, value, a)
		sent.Address, sent.Gateway = c.Address, c.Event().Gateway
		ad.emit(ctx, sent)
	}
	return SentContact{token, seconds}, err
}

// contactEvent returns an event about a contact of an account, which may be empty.
func (ad *Admin) contactEvent(name string, contact record.Contact, value string, a record.Account) record.Event {
	e := ad.event(name, a)
	e.Reason, e.Fields = contact.Name, []string{contact.Field()}
	if _, fixed := ad.Company.FixedCode(value); contact.Name == record.Phone.Name && !fixed {
		e.Country = tenant.CallingCode(value)
	}
	return e
}

// ConfirmContact exchanges a code for a proof, which a Change takes within ProofLife.
func (ad *Admin) ConfirmContact(ctx context.Context, token, code string) (contact record.Contact, value, proof string, err error) {
	at, err := ad.Attempt(ctx, ad.Company, ad.Address)
	if err != nil {
		return contact, "", "", err
	}
	known, right, err := ad.tryContact(ctx, &at, ad.contactOwner(), token, code)
	if err == nil && !right {
		err = ErrContactCode
	}
	if err != nil {
		at.GiveBack(ctx, err)
		if err == ErrContactCode { // it may be a guess
			wrong := ad.event(record.AccountChangeFailed, record.Account{})
			wrong.Route, wrong.Result, wrong.Reason = "contacts/confirm", wire.ErrOTPInvalid.Code, known.Name
			ad.emit(ctx, wrong)
		}
		return contact, "", "", err
	}
	ad.emit(ctx, ad.contactEvent(record.ContactCodeUsed, contactOf(known), known.Value, record.Account{}))
	known.Code, known.Expires = "", at.Now.Add(ProofLife)
	return contactOf(known), known.Value, at.Keys.SealContact(ad.proofOwner(), known), nil
}

// contactOf returns the contact that a token is about.
func contactOf(known tokens.Contact) record.Contact {
	if known.Name == record.Phone.Name {
		return record.Phone
	}
	return record.Email
}

// tryContact reports whether a code is that of a token. Each comparison is a guess, of which
// all nodes together allow as many as the code has. A text that can't be a code is no guess.
func (ad *Admin) tryContact(ctx context.Context, at *limits.Attempt, owner, token, sent string) (known tokens.Contact, right bool, err error) {
	known, ok := at.Keys.OpenContact(owner, token, at.Now)
	if !ok {
		return known, false, ErrContactCode
	}
	code, ok := typed.OTP(sent, len(known.Code))
	if !ok {
		return known, false, &FieldError{"code", fmt.Sprintf("it must have the %d digits of the code", len(known.Code))}
	}
	rate := tenant.Rate{N: guessesByMail, Per: known.Expires.Sub(at.Now) + time.Hour} // a store's clock may be ahead
	if known.Name == record.Phone.Name {
		rate.N = guessesBySMS
	}
	guesses := at.Counter("contact", hex.EncodeToString([]byte(known.ID)), rate)
	left, err := at.MarkUsed(ctx, guesses)
	if err == nil && !left {
		err = ErrContactCode
	}
	if right = subtle.ConstantTimeCompare([]byte(code), []byte(known.Code)) == 1; right {
		at.Took(guesses) // if a store does not answer, the right code can be sent again
	}
	return known, right, err
}

// openProofs opens the proofs of a change.
func (ad *Admin) openProofs(ctx context.Context, ch *Change) error {
	for _, contact := range record.Contacts {
		proof, given := ch.Proofs[contact.Name]
		if !given {
			continue
		}
		keys, err := ad.Keys(ctx)
		if err != nil {
			return err
		}
		known, ok := keys.OpenContact(ad.proofOwner(), proof, ad.Now())
		if !ok || known.Name != contact.Name {
			return &FieldError{contact.ProofField(), "it is no proof, or has expired: prove the " + contact.Name + " again"}
		}
		ch.proven = append(ch.proven, known)
	}
	return nil
}

// prove sets when the contacts of the account were proven, and spends the proofs. A new
// value was not proven, unless the change says so.
func (ad *Admin) prove(ch Change, a *record.Account, before record.Account) error {
	for _, contact := range record.Contacts {
		value, verified := *contact.Value(a), contact.Verified(a)
		at, said := ch.Verified[contact.Name]
		switch {
		case said && !at.IsZero() && value == "":
			return &FieldError{contact.VerifiedField(), "the account has no " + contact.Name}
		case said:
			*verified = at
		case value != *contact.Value(&before):
			*verified = time.Time{}
		}
	}
	for _, known := range ch.proven {
		contact := contactOf(known)
		*contact.Verified(a) = ad.Now().UTC().Truncate(time.Microsecond)
		a.Spends = append(a.Spends, record.Spend{Field: contact.ProofField(), Hash: known.SpendHash(), Until: ad.Now().Add(spentMemory)})
	}
	return nil
}

// checkProofs refuses proofs of other contacts than the account has.
func (ch Change) checkProofs(a record.Account) error {
	for _, known := range ch.proven {
		if contact := contactOf(known); !record.SameEmail(*contact.Value(&a), known.Value) {
			return &FieldError{contact.ProofField(), "it proves another " + contact.Name + " than the account has"}
		}
	}
	return nil
}

// outbox returns the outbox events for events, in their order.
func (ad *Admin) outbox(ctx context.Context, events []record.Event) (all []record.OutboxEvent) {
	for _, e := range events {
		all = append(all, background.OutboxEvents(ctx, ad.Company, e)...)
	}
	return all
}

// withProven returns the event of a change, and those of the contacts that it proves.
func (ad *Admin) withProven(changed record.Event, ch Change, a record.Account) []record.Event {
	events := []record.Event{changed}
	for _, known := range ch.proven {
		events = append(events, ad.contactEvent(record.ContactVerified, contactOf(known), known.Value, a))
	}
	return events
}

// A user's own contacts

// SendOwnContact sends a code to a new phone or email of the user, or to the present one.
// Until ConfirmOwnContact, nothing changes.
func (s *Self) SendOwnContact(ctx context.Context, contact record.Contact, text string) (sent SentContact, value string, err error) {
	if value, err = s.readContact(contact, text); err != nil {
		return sent, "", err
	}
	if present := *contact.Value(&s.Account); record.SameEmail(present, value) {
		value = present
	}
	sent, err = s.sendContact(ctx, s.contactOwner(), contact, value, s.Address, s.Account)
	return sent, value, err
}

// ConfirmOwnContact makes the change for which SendOwnContact has sent a code. Wrong codes
// count like those of a login.
func (s *Self) ConfirmOwnContact(ctx context.Context, contact record.Contact, token, code string) error {
	at := s.attempt
	defer func() { s.emitLocks(ctx, at, s.Account) }()
	if err := at.CheckAddress(ctx); err != nil {
		return err
	}
	if err := at.CheckCodes(s.Account.FailureCounts); err != nil {
		return err
	}
	known, right, err := s.tryContact(ctx, at, s.contactOwner(), token, code)
	if err == nil {
		err = at.RecordWindow(ctx, at.FailureKey(s.Account, ""), record.WrongCodes, right)
	}
	if err == nil && (!right || known.Name != contact.Name) {
		err = ErrContactCode
	}
	if err != nil {
		return err
	}
	s.emit(ctx, s.contactEvent(record.ContactCodeUsed, contact, known.Value, s.Account))
	_, _, err = s.Change(ctx, s.Account.Mnemocode, Change{Keep: s.Session.ID, proven: []tokens.Contact{known}, Apply: func(a *record.Account) error {
		if present := contact.Value(a); !record.SameEmail(*present, known.Value) {
			*present = known.Value
		}
		return nil
	}})
	if _, spent := errors.AsType[*record.SpentError](err); !spent {
		return err
	}
	a, err := s.ByMnemocode(ctx, s.Account.Mnemocode)
	switch {
	case err != nil:
		return err
	case !record.SameEmail(*contact.Value(&a), known.Value):
		return ErrContactCode
	}
	return s.revokePending(ctx, a) // a repeat, perhaps of a change that was stored and answered with 503
}

// RemoveOwnContact removes the user's phone or email, unless the account could then no
// longer log in or be recovered.
func (s *Self) RemoveOwnContact(ctx context.Context, contact record.Contact) error {
	_, _, err := s.Change(ctx, s.Account.Mnemocode, Change{Keep: s.Session.ID, Apply: func(a *record.Account) error {
		if *contact.Value(a) == "" {
			return nil
		}
		*contact.Value(a) = ""
		if !s.canSpare(*a) {
			return errOnlyContact
		}
		return nil
	}})
	return err
}

// CanRemoveContact reports whether RemoveOwnContact would remove it.
func (s *Self) CanRemoveContact(contact record.Contact) bool {
	a := s.Account
	*contact.Value(&a) = ""
	return *contact.Value(&s.Account) != "" && s.canSpare(a)
}

// canSpare reports whether the owner of an account, without one of its contacts, has a way
// to log in that does not run out, and one to recover, which ends in a login with a password.
func (ad *Admin) canSpare(a record.Account) bool {
	hasCode := ad.Company.CanGive(a, record.ByApp) || ad.Company.CanGive(a, record.BySMS) || !ad.Company.NeedsSecondFactor(a)
	return a.HasLoginID() && ad.Company.CanRecover(a) && hasCode && (ad.needsNoPasskey(a) || ad.Company.CanGive(a, record.ByPasskey))
}
