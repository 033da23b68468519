package flows

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"

	"github.com/mnemogate/mnemogate/flows/message"
	"github.com/mnemogate/mnemogate/flows/panics"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/tokens"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// send fills in a message's text and hands it to the gateway.
func (s *Service) send(ctx context.Context, company *tenant.Company, sender message.Sender, a record.Account, m message.Message) error {
	if sender == nil {
		return errors.New("the company has no sender for it: configure sms or mail")
	}
	m.ID, m.Company, m.Mnemocode = tokens.NewID(), company.Code, a.Mnemocode
	m.Locale = cmp.Or(a.Locale, company.Locale)
	if err := company.Texts.Render(&m, s.Now(), a.Locale, company.Locale); err != nil {
		return fmt.Errorf("filling in the text of %s: %w", m.Type, err)
	}
	return sender.Send(ctx, m)
}

// Notify tells the account's owner what happened to it, by mail or else by SMS.
// It is never waited for.
func (s *Service) Notify(company *tenant.Company, a record.Account, what string) {
	sender, to := company.Mail, a.Email
	bySMS := sender == nil || to == ""
	if bySMS {
		sender, to = company.SMS, a.Phone
		if !company.Limits.SendsTo(a.Phone) {
			return
		}
	}
	if sender == nil || to == "" {
		return
	}
	s.later(company, a, what, func(ctx context.Context) error {
		if bySMS {
			if err := s.chargeNotice(ctx, company, a); err != nil {
				return err
			}
		}
		return s.send(ctx, company, sender, a, message.Message{Type: what, To: to})
	})
}

// chargeNotice charges the budgets that an SMS with a notice uses up. Notices to
// a phone have one of their own: else a thief could use up that of codes first,
// and so keep the owner from being told.
func (s *Service) chargeNotice(ctx context.Context, company *tenant.Company, a record.Account) error {
	at, err := s.Attempt(ctx, company, "")
	if err != nil {
		return err
	}
	c := &call{Attempt: at}
	c.aboutSMS(a.Phone)
	counters := append(c.PhoneSMS(a.Phone+"/notices"), c.CompanySMS()...)
	country, _ := c.CountrySMS(a.Phone) // Notify has seen to it that it is allowed
	return s.chargeHidden(ctx, c, a, append(counters, country...)...)
}

// A moment is when a step's code is sent.
type moment int

const (
	onceStored   moment = iota // of the session, which is ended again if the code can't be sent
	beforeStored               // so that the session which is replaced stays good if the code can't be sent
	behindAnswer               // which must not tell of it
)

// whenSent tells when the code of a step to state is sent.
func (c *call) whenSent(state record.State) moment {
	switch {
	case c.Company.Hardened && state == record.RecoveryOTP:
		return behindAnswer
	case c.first():
		return onceStored
	default:
		return beforeStored
	}
}

// deliver sends a code while its caller waits.
func (s *Service) deliver(ctx context.Context, code newCode) error {
	if err := code.send(ctx); err != nil {
		return wire.Unavailable("sending the code", err)
	}
	return nil
}

// sendLater sends the code of a recovery behind the answer; if that fails, the
// code is void.
func (s *Service) sendLater(company *tenant.Company, a record.Account, session record.TokenHash, code newCode) {
	s.unseen(company, a, message.OTPRecovery, func(ctx context.Context) error {
		err := panics.Contain(func() error { return code.send(ctx) })
		if err == nil {
			return nil
		}
		void := s.voidCode(ctx, company, session, code.stored)
		if errors.Is(err, errBudgetSpent) {
			return void
		}
		return errors.Join(err, void)
	})
}

// voidCode puts one that nothing equals in the place of a code that was not sent,
// unless that was spent: so guesses count as at a decoy's.
func (s *Service) voidCode(ctx context.Context, company *tenant.Company, hash record.TokenHash, unsent *record.Code) error {
	session, err := s.Sessions.SpendCode(ctx, s.Now(), company.Code, hash, record.RecoveryOTP)
	if errors.Is(err, record.ErrNotFound) {
		return nil
	}
	if err != nil || session.Code == nil {
		return err
	}
	code := *session.Code
	if code.Hash == unsent.Hash { // else a renewal's, which goes back
		rand.Read(code.Hash[:]) // never fails: it ends the process instead
	}
	number, err := s.Sessions.OpenCode(ctx, s.Now(), hash, record.RecoveryOTP)
	if err == nil {
		err = s.Sessions.SetCode(ctx, hash, number, code)
	}
	if errors.Is(err, record.ErrConflict) { // the session has ended, or a later renewal's counts
		return nil
	}
	return err
}
