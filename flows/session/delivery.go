package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/mnemogate/mnemogate/flows/background"
	"github.com/mnemogate/mnemogate/flows/message"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/tokens"
)

// How long a message waits that an answer must not tell of.
const (
	minPause = 50 * time.Millisecond
	maxPause = 250 * time.Millisecond
)

// later sends a message to an account's owner, and no request waits for it. A message
// that is dropped is counted and logged. Its request does not fail: notices never fail
// one, and the recoveries of a hardened company must not tell that there is an account.
func (s *Manager) later(company *tenant.Company, a record.Account, kind string, send func(context.Context) error) {
	task := background.Task{Company: company.Code, Mnemocode: a.Mnemocode, Type: kind, Send: send}
	err := s.tasks.Do(s.Log, task)
	if err == nil || a.ID == 0 { // a decoy's task sends nothing
		return
	}
	s.Log.Warn("a message was dropped", "company", company.Code, "account", a.Mnemocode, "type", kind, "error", err)
	if s.Dropped != nil {
		s.Dropped(company.Code)
	}
}

// unseen is later for what an answer must not tell of. It begins a while after
// the answer, at a moment that nobody can foresee: begun at once it would take
// its part of the machine from the answer, and so show in the time that takes.
func (s *Manager) unseen(company *tenant.Company, a record.Account, kind string, send func(context.Context) error) {
	after := s.After
	if after == nil {
		after = time.After
	}
	s.later(company, a, kind, func(ctx context.Context) error {
		select {
		case <-after(minPause + rand.N(maxPause-minPause)):
			return send(ctx)
		case <-ctx.Done():
			return ctx.Err()
		}
	})
}

// send fills in a message's text and hands it to the gateway.
func (s *Manager) send(ctx context.Context, company *tenant.Company, sender message.Sender, a record.Account, m message.Message) error {
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
func (s *Manager) Notify(company *tenant.Company, a record.Account, what string) {
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
func (s *Manager) chargeNotice(ctx context.Context, company *tenant.Company, a record.Account) error {
	at, err := s.Attempt(ctx, company, "")
	if err != nil {
		return err
	}
	c := &Call{Attempt: at, s: s}
	c.aboutSMS(a.Phone)
	counters := append(c.PhoneSMS(a.Phone+"/notices"), c.CompanySMS()...)
	country, _ := c.CountrySMS(a.Phone) // Notify has seen to it that it is allowed
	return c.chargePrivate(ctx, a, append(counters, country...)...)
}
