package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mnemogate/mnemogate/flows/background"
	"github.com/mnemogate/mnemogate/flows/message"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/tokens"
	"github.com/mnemogate/mnemogate/flows/typed"
)

// Bounds of the random delay of a message that an answer must not reveal.
const (
	minPause = 50 * time.Millisecond
	maxPause = 250 * time.Millisecond
)

// inBackground sends a message to an account's owner in the background. If the message is
// dropped, inBackground counts and logs that, and the request still succeeds. Notices never
// fail a request, and a recovery in a hardened company must not reveal that there is
// an account.
func (s *Manager) inBackground(ctx context.Context, company *tenant.Company, a record.Account, kind string, send func(context.Context) error) {
	task := background.Task{Company: company.Code, Mnemocode: a.Mnemocode, Type: kind, Send: send}
	err := s.tasks.Do(ctx, s.Log, task)
	if err == nil || a.ID == 0 { // a decoy's task sends nothing
		return
	}
	s.Log.Warn("a message was dropped", "company", company.Code, "account", a.Mnemocode, "type", kind, "error", err)
	if s.Dropped != nil {
		s.Dropped(company.Code)
	}
}

// sendDelayed is inBackground for messages that an answer must not reveal. It begins after
// a random delay. If it began at once, it would compete with the answer for the CPU, and
// the response time would reveal the message.
func (s *Manager) sendDelayed(ctx context.Context, company *tenant.Company, a record.Account, kind string, send func(context.Context) error) {
	s.inBackground(ctx, company, a, kind, func(ctx context.Context) error {
		select {
		case <-s.after(minPause + rand.N(maxPause-minPause)):
			return send(ctx)
		case <-ctx.Done():
			return ctx.Err()
		}
	})
}

// send fills in the text of a message and passes it to the gateway. Nobody waits for a
// notice, so a gateway that did not take it gets the same message again.
func (s *Manager) send(ctx context.Context, company *tenant.Company, sender message.Sender, a record.Account, m message.Message) error {
	if sender == nil {
		return errors.New("the company has no sender for it: configure sms or mail")
	}
	m.ID, m.Company, m.Name, m.Mnemocode = tokens.NewID(), company.Code, company.Name, a.Mnemocode
	m.Locale, m.Support = cmp.Or(a.Locale, company.Locale), company.Support
	if strings.Contains(m.To, "@") {
		m.To = typed.Sendable(m.To)
	}
	if err := company.Texts.Render(&m, s.Now(), a.Locale, company.Locale); err != nil {
		return fmt.Errorf("filling in the text of %s: %w", m.Type, err)
	}
	wait := firstRetry
	for more := message.IsNotice(m.Type); ; wait = min(2*wait, lastRetry) {
		err := sender.Send(ctx, m)
		later, ok := errors.AsType[*message.LaterError](err)
		if !ok || !more || ctx.Err() != nil {
			return err
		}
		more = s.tasks.Pause(ctx, s.after(max(later.Wait, wait/2+rand.N(wait))))
	}
}

// The first and the longest pause, on average, before a notice is sent again.
const (
	firstRetry = 2 * time.Second
	lastRetry  = time.Minute
)

// Notify tells the owner of an account what happened to it, by mail or, if that is
// not possible, by SMS. Pass former addresses and phones in also: they get the notice,
// too. Notify sends in the background.
func (s *Manager) Notify(ctx context.Context, company *tenant.Company, a record.Account, n message.Notice, also ...string) {
	if !company.Sends(n.Type) {
		return
	}
	to := a.Email
	if company.Mail == nil || to == "" {
		to = a.Phone
	}
	now := s.Now()
	var told []string
	for _, to := range append([]string{to}, also...) {
		if to != "" && !slices.Contains(told, to) {
			told = append(told, to)
			s.notify(ctx, company, a, message.Message{Type: n.Type, To: to, Time: now, Notice: n})
		}
	}
}

// noticeMails is how many notices are mailed to the owner of an account.
var noticeMails = tenant.Rate{N: 20, Per: time.Hour}

// notify sends a notice to one address or phone.
func (s *Manager) notify(ctx context.Context, company *tenant.Company, a record.Account, m message.Message) {
	sender, bySMS := company.Mail, !strings.Contains(m.To, "@")
	if bySMS {
		sender = company.SMS
	}
	if sender == nil || bySMS && !company.Limits.SendsTo(m.To) {
		return
	}
	s.inBackground(ctx, company, a, m.Type, func(ctx context.Context) error {
		if err := s.chargeNotice(ctx, company, a, &m); err != nil {
			return err
		}
		return s.send(ctx, company, sender, a, m)
	})
}

// chargeNotice charges the budgets of a notice. SMS with notices have a budget of their
// own for each phone. Otherwise a thief could first use up the budget for codes, and the
// owner would get no notice. Mails have a budget for each account, and those that a login
// causes, which changes nothing, a smaller one. The last mail of the budget says so.
func (s *Manager) chargeNotice(ctx context.Context, company *tenant.Company, a record.Account, m *message.Message) error {
	at, err := s.Attempt(ctx, company, "")
	if err != nil {
		return err
	}
	c := &Call{Attempt: at, s: s}
	if strings.Contains(m.To, "@") {
		id := strconv.FormatInt(a.ID, 10)
		counters := []record.Counter{c.Counter("limit.mails", id+"/all-notices", noticeMails)}
		last := record.CheckOnly(counters...)
		if m.Type == message.NoticeNewDevice {
			counters = append(counters, c.mailBudget(id+"/notices")...)
		}
		if err := c.chargePrivate(ctx, a, counters...); err != nil {
			return err
		}
		_, m.Last = errors.AsType[*record.FullError](s.Sessions.Charge(ctx, s.Now(), last...))
		return nil
	}
	c.aboutSMS(m.To)
	counters := append(c.PhoneSMS(m.To+"/notices"), c.CompanySMS()...)
	country, _ := c.CountrySMS(m.To) // no error: notify has checked that the country is allowed
	return c.chargePrivate(ctx, a, append(counters, country...)...)
}

// Notify tells the owner of an account what the call's client did.
func (c *Call) Notify(ctx context.Context, a record.Account, kind string) {
	c.s.Notify(ctx, c.Company, a, c.Notice(kind))
}

// Notice returns a notice of what the call's client did.
func (c *Call) Notice(kind string) message.Notice {
	return message.Notice{Type: kind, Address: c.Address, UserAgent: c.userAgent}
}
