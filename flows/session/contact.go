package session

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/mnemogate/mnemogate/flows/background"
	"github.com/mnemogate/mnemogate/flows/message"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/tokens"
	"github.com/mnemogate/mnemogate/flows/typed"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// mailedDigits is the length of a code by mail, which may be guessed several times
// (contract, section 22).
const mailedDigits = 8

// SendContact sends a code to a contact that may belong to no account yet. Its token is for
// tokens.OpenContact with the same owner. Of the account, which may be empty, it uses the
// budgets and the language.
func (c *Call) SendContact(ctx context.Context, owner string, contact record.Contact, value string, a record.Account) (token string, expiresIn int, err error) {
	m := message.Message{Type: message.ContactCode, To: value, Code: tokens.NewDigits(mailedDigits), Expires: c.Now.Add(time.Duration(c.Company.OTP.TTL))}
	fixed := false
	var budgets []record.Counter
	switch {
	case contact.Name == record.Phone.Name:
		m.Origin = c.Company.SMSOrigin
		if m.Code, fixed = c.Company.FixedCode(value); fixed {
			break
		}
		m.Code = tokens.NewDigits(c.Company.OTP.Length)
		c.country = smsCountry(c.Company, value)
		budgets, err = c.smsBudgets(a, value)
	case a.ID != 0:
		budgets = append(c.AccountMails(strconv.FormatInt(a.ID, 10), m.Type), c.MailsTo(typed.LoginID(value, ""))...)
	default:
		budgets = c.ContactMails(typed.LoginID(value, ""))
	}
	if err == nil {
		err = c.Charge(ctx, budgets...)
	}
	if err != nil {
		return "", 0, err
	}
	if !fixed {
		err = c.handOver(ctx, "sending the code", budgets, func(ctx context.Context) error { return c.m.send(ctx, c.Company, a, m) })
	}
	sent := tokens.Contact{ID: tokens.NewID(), Name: contact.Name, Value: value, Code: m.Code, Expires: m.Expires}
	return c.Keys.SealContact(owner, sent), c.SecondsUntil(m.Expires), err
}

// UseLink records that the owner of an account has opened the mailed link that FindLink has
// found. Call it before the step that uses up the link: then nothing that proves the email is
// lost, even if the node dies in between.
func (c *Call) UseLink(ctx context.Context, a record.Account) error {
	err := c.recordUse(ctx, a, record.Email)
	if err != nil {
		err = wire.Unavailable("recording the use of the link", err)
	}
	return err
}

// recordCode records that a step was taken with a code by SMS. The code is used up already, so
// the step does not fail with a store that does not answer: the next login proves the phone as
// well.
func (c *Call) recordCode(ctx context.Context, st Step) {
	if st.By != record.BySMS || st.Account.ID == 0 {
		return
	}
	if err := c.recordUse(ctx, st.Account, record.Phone); err != nil {
		c.m.WarnUnanswered(ctx, err, "company", c.Company.Code)
	}
}

// recordUse records that a code or link was used that proves a contact of the account, if
// it was not proven before, and the first use of a welcome link.
func (c *Call) recordUse(ctx context.Context, account record.Account, contact record.Contact) error {
	value := *contact.Value(&account)
	if !c.welcomed && !contact.Verified(&account).IsZero() {
		return nil
	}
	var used []record.Event
	_, err := c.m.Accounts.Update(context.WithoutCancel(ctx), c.Company.Code, account.ID, func(a *record.Account) (ends bool, err error) {
		used = nil
		note := func(e record.Event) {
			e.Time, e.Mnemocode = c.Now, a.Mnemocode
			used = append(used, e)
			a.Outbox = append(a.Outbox, background.OutboxEvents(ctx, c.Company, e)...)
		}
		if c.welcomed {
			note(record.Event{Name: record.WelcomeUsed})
			a.Spends = []record.Spend{{Hash: c.session.Hash, Until: c.session.Expires.Add(record.KeepExpired)}}
		}
		if *contact.Value(a) == value && contact.Verified(a).IsZero() {
			a.Updated = c.Now.UTC().Truncate(time.Microsecond)
			*contact.Verified(a) = a.Updated
			note(contact.VerifiedEvent())
		}
		if used == nil {
			return false, record.ErrConflict // another login was faster
		}
		return false, nil
	})
	_, again := errors.AsType[*record.SpentError](err) // an earlier request with the link came to nothing
	if again || errors.Is(err, record.ErrConflict) || errors.Is(err, record.ErrNotFound) {
		return nil
	}
	if err == nil {
		c.Events = append(c.Events, used...)
	}
	return err
}
