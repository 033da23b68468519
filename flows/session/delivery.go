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

// Bounds of the random delay of a message that an answer must not reveal.
const (
	minPause = 50 * time.Millisecond
	maxPause = 250 * time.Millisecond
)

// later sends a message to an account's owner in the background. If the message is
// dropped, later counts and logs that, and the request still succeeds. Notices never
// fail a request, and a recovery in a hardened company must not reveal that there is
// an account.
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

// unseen is later for messages that an answer must not reveal. It begins after a random
// delay. If it began at once, it would compete with the answer for the machine, and the
// response time would reveal the message.
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

// send fills in the text of a message and passes it to the gateway.
func (s *Manager) send(ctx context.Context, company *tenant.Company, sender message.Sender, a record.Account, m message.Message) error {
	if sender == nil {
		return errors.New("the company has no sender for it: configure sms or mail")
	}
	m.ID, m.Company, m.Name, m.Mnemocode = tokens.NewID(), company.Code, company.Name, a.Mnemocode
	m.Locale = cmp.Or(a.Locale, company.Locale)
	if err := company.Texts.Render(&m, s.Now(), a.Locale, company.Locale); err != nil {
		return fmt.Errorf("filling in the text of %s: %w", m.Type, err)
	}
	return sender.Send(ctx, m)
}

// Notify tells the owner of an account what happened to it, by mail or, if that is not
// possible, by SMS. It sends in the background.
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

// chargeNotice charges the budgets of an SMS with a notice. Notices have a budget of
// their own for each phone. Otherwise a thief could first use up the budget for codes,
// and the owner would get no notice.
func (s *Manager) chargeNotice(ctx context.Context, company *tenant.Company, a record.Account) error {
	at, err := s.Attempt(ctx, company, "")
	if err != nil {
		return err
	}
	c := &Call{Attempt: at, s: s}
	c.aboutSMS(a.Phone)
	counters := append(c.PhoneSMS(a.Phone+"/notices"), c.CompanySMS()...)
	country, _ := c.CountrySMS(a.Phone) // no error: Notify has checked that the country is allowed
	return c.chargePrivate(ctx, a, append(counters, country...)...)
}
