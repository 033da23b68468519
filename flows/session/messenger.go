package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mnemogate/mnemogate/flows/background"
	"github.com/mnemogate/mnemogate/flows/message"
	"github.com/mnemogate/mnemogate/flows/panics"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/tokens"
	"github.com/mnemogate/mnemogate/flows/typed"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// A Messenger sends messages to the owners of accounts.
type Messenger struct {
	*Config
	attempts *Attempts

	tasks background.Tasks
}

// Waiting returns the number of messages that are being sent in the background.
func (m *Messenger) Waiting() int { return m.tasks.Waiting() }

// Bounds of the random delay of a message that an answer must not reveal.
const (
	minPause = 50 * time.Millisecond
	maxPause = 250 * time.Millisecond
)

// inBackground sends a message to an account's owner in the background. If the message is
// dropped, inBackground counts and logs that, and the request still succeeds. Notices never
// fail a request, and a recovery in a hardened company must not reveal that there is
// an account.
func (m *Messenger) inBackground(ctx context.Context, company *tenant.Company, a record.Account, kind string, send func(context.Context) error) {
	task := background.Task{Company: company.Code, Mnemocode: a.Mnemocode, Type: kind, Send: send}
	err := m.tasks.Do(ctx, m.Log, task)
	if err == nil || a.ID == 0 { // a decoy's task sends nothing
		return
	}
	m.Log.Warn("a message was dropped", "company", company.Code, "mnemocode", a.Mnemocode, "type", kind, "error", err)
	if m.Dropped != nil {
		m.Dropped(company.Code)
	}
}

// sendDelayed is inBackground for messages that an answer must not reveal. It begins after
// a random delay. If it began at once, it would compete with the answer for the CPU, and
// the response time would reveal the message.
func (m *Messenger) sendDelayed(ctx context.Context, company *tenant.Company, a record.Account, kind string, send func(context.Context) error) {
	m.inBackground(ctx, company, a, kind, func(ctx context.Context) error {
		select {
		case <-m.after(minPause + rand.N(maxPause-minPause)):
			return send(ctx)
		case <-ctx.Done():
			return ctx.Err()
		}
	})
}

// send fills in the text of a message and passes it to the gateway. Nobody waits for a
// notice, so a gateway that did not take it gets the same message again.
func (m *Messenger) send(ctx context.Context, company *tenant.Company, a record.Account, msg message.Message) error {
	sender := company.Sender(msg.To)
	if sender == nil {
		return errors.New("the company has no sender for it: configure sms or mail")
	}
	msg.ID, msg.Company, msg.Name, msg.Color, msg.Mnemocode = tokens.NewID(), company.Code, company.Name, company.MailColor, a.Mnemocode
	msg.Locale, msg.Support = cmp.Or(a.Locale, company.Locale), company.Support
	if message.ByMail(msg.To) {
		msg.To = typed.Sendable(msg.To)
	}
	if err := company.Texts.Render(&msg, m.Now(), a.Locale, company.Locale); err != nil {
		return fmt.Errorf("filling in the text of %s: %w", msg.Type, err)
	}
	var panicked *panics.Error
	var failed []func() // warn of failures that no error tells if the message is sent
	ctx = message.WhenAsked(ctx, func(gateway string, err error) {
		if p, ok := errors.AsType[*panics.Error](err); ok {
			panicked = p
		} else if err != nil {
			failed = append(failed, func() {
				m.Warn("a gateway failed before a message was sent", "company", company.Code, "type", msg.Type, "gateway", gateway, "error", hush(err, msg))
			})
		}
		if m.Sent != nil {
			m.Sent(msg, gateway, err)
		}
	})
	wait := firstRetry
	for more := message.IsNotice(msg.Type); ; wait = min(2*wait, lastRetry) {
		err := hush(sender.Send(ctx, msg), msg)
		if _, told := errors.AsType[*panics.Error](err); panicked != nil && !told { // another gateway was asked after it
			panicked.Log(m.Log, "doing", "sending a message", "company", company.Code, "mnemocode", a.Mnemocode, "type", msg.Type)
			panicked = nil
		}
		if err == nil {
			for _, warn := range failed {
				warn()
			}
		}
		later, ok := errors.AsType[*message.LaterError](err)
		if !ok || !more || ctx.Err() != nil {
			return err
		}
		if more = m.tasks.Pause(ctx, m.after(max(later.Wait, wait/2+rand.N(wait)))); ctx.Err() != nil {
			return err // its time is up
		}
		sender = m.present(company, sender, msg.To)
	}
}

// A hushed error is one whose text must not be logged.
type hushed struct{ error }

func (hushed) Error() string {
	return "the gateway's error is not shown, because it contains the code or link"
}

func (h hushed) Unwrap() error { return h.error }

// hush hides the text of a gateway's error if it contains the message's code or the token of
// its link, which no encoding changes.
func hush(err error, m message.Message) error {
	for _, secret := range []string{m.Code, linkToken.FindString(m.Link)} {
		if err != nil && secret != "" && strings.Contains(err.Error(), secret) {
			return hushed{err}
		}
	}
	return err
}

var linkToken = regexp.MustCompile(`mg[a-z]_[\w-]+`)

// present returns the sender that now sends to this phone or address: a gateway that is down
// may have been replaced meanwhile.
func (m *Messenger) present(company *tenant.Company, sender message.Sender, to string) message.Sender {
	if m.Running == nil {
		return sender
	}
	now := m.Running(company.Code)
	if now == nil {
		return sender
	}
	return cmp.Or(now.Sender(to), sender)
}

// The first and the longest pause, on average, before a notice is sent again.
const (
	firstRetry = 2 * time.Second
	lastRetry  = time.Minute
)

// Notify tells the owner of an account what happened to it, by mail or, if that is
// not possible, by SMS. Pass former addresses and phones in also: they get the notice,
// too. Notify sends in the background.
func (m *Messenger) Notify(ctx context.Context, company *tenant.Company, a record.Account, n message.Notice, also ...string) {
	if !company.Sends(n.Type) {
		return
	}
	to := a.Email
	if company.Mail == nil || to == "" {
		to = a.Phone
	}
	now := m.Now()
	var told []string
	for _, to := range append([]string{to}, also...) {
		if to != "" && !slices.Contains(told, to) {
			told = append(told, to)
			m.notify(ctx, company, a, message.Message{Type: n.Type, To: to, Time: now, Notice: n})
		}
	}
}

// noticeMails is how many notices are mailed to the owner of an account.
var noticeMails = tenant.Rate{N: 20, Per: time.Hour}

// notify sends a notice to one address or phone.
func (m *Messenger) notify(ctx context.Context, company *tenant.Company, a record.Account, msg message.Message) {
	if company.Sender(msg.To) == nil || !message.ByMail(msg.To) && !company.SendsTo(msg.To) {
		return
	}
	m.inBackground(ctx, company, a, msg.Type, func(ctx context.Context) error {
		for more, wait := true, firstRetry; ; wait = min(2*wait, lastRetry) { // a store can be down, too
			err := m.chargeNotice(ctx, company, a, &msg)
			if err == nil {
				return m.send(ctx, company, a, msg)
			}
			if errors.Is(err, errBudgetSpent) || !more || ctx.Err() != nil {
				return err
			}
			more = m.tasks.Pause(ctx, m.after(wait/2+rand.N(wait)))
		}
	})
}

// chargeNotice charges the budgets of a notice. SMS with notices have a budget of their own
// for each phone, and mails one for each account: if they shared that of codes, a thief could
// use it up first. new_device and second_factor_failed, which anyone with the password can
// cause, have one each. The last mail of the budget says so.
func (m *Messenger) chargeNotice(ctx context.Context, company *tenant.Company, a record.Account, msg *message.Message) error {
	at, err := m.attempts.Attempt(ctx, company, "")
	if err != nil {
		return err
	}
	spent := record.Event{Company: company.Code, Account: a.ID, Mnemocode: a.Mnemocode}
	ofLogin := msg.Type == message.NoticeNewDevice || msg.Type == message.NoticeSecondFactorFailed
	if message.ByMail(msg.To) {
		id := strconv.FormatInt(a.ID, 10)
		counters := []record.Counter{at.Counter("limit.mails", id+"/all-notices", noticeMails)}
		last := record.CheckOnly(counters...)
		if ofLogin {
			counters = append(counters, at.AccountMails(id, msg.Type)...)
		}
		if err := m.attempts.chargePrivate(ctx, spent, counters...); err != nil {
			return err
		}
		_, msg.Last = errors.AsType[*record.FullError](m.Sessions.Charge(ctx, m.Now(), last...))
		return nil
	}
	spent.Country = smsCountry(company, msg.To)
	budget := "/notices"
	if ofLogin {
		budget = "/" + msg.Type
	}
	counters := append(at.PhoneSMS(msg.To+budget), at.CompanySMS()...)
	country, _ := at.CountrySMS(msg.To) // no error: notify has checked that the country is allowed
	return m.attempts.chargePrivate(ctx, spent, append(counters, country...)...)
}

// Notify tells the owner of an account what the call's client did.
func (c *Call) Notify(ctx context.Context, a record.Account, kind string) {
	c.m.Notify(ctx, c.Company, a, c.Notice(kind))
}

// Notice returns a notice of what the call's client did.
func (c *Call) Notice(kind string) message.Notice {
	return message.Notice{Type: kind, Address: c.Address, UserAgent: c.userAgent}
}

// smsBudgets returns what a code by SMS is charged to.
func (c *Call) smsBudgets(a record.Account, phone string) ([]record.Counter, error) {
	country, err := c.CountrySMS(phone)
	if err != nil {
		return nil, c.LimitError(err)
	}
	account := ""
	if a.ID != 0 {
		account = strconv.FormatInt(a.ID, 10)
	}
	return slices.Concat(c.CountSMS(account, phone), c.CompanySMS(), country), nil
}

// A notTaken is why a gateway did not take a message.
type notTaken struct{ error }

func (n notTaken) Unwrap() error { return n.error }

// handOver gives a message to a gateway, if there is one. A message that the gateway
// refuses, with a notTaken, counts, too, so Retry-After then says when the budgets allow the
// next one.
func (c *Call) handOver(ctx context.Context, doing string, budgets []record.Counter, send func(context.Context) error) error {
	c.Worked()
	if send == nil {
		return nil
	}
	ctx = message.WhenAsked(context.WithoutCancel(ctx), func(gateway string, _ error) { c.gateway = gateway })
	err := notByClient(send(ctx))
	if err == nil {
		return nil
	}
	err = wire.Unavailable(doing, notTaken{err})
	if errors.Is(err, wire.ErrService) {
		return err
	}
	refusal, _ := errors.AsType[*wire.Refusal](err)
	for _, budget := range record.CheckOnly(budgets...) { // one by one, since the last to open counts
		next := c.Counters.Charge(ctx, c.Now, budget)
		if full, ok := errors.AsType[*record.FullError](next); ok {
			refusal.RetryAfter = max(refusal.RetryAfter, full.Until.Sub(c.Now))
		}
	}
	return err
}

// IsUnsent reports whether no SMS could be sent, because of a budget or the gateway.
func IsUnsent(err error) bool {
	_, unsent := errors.AsType[notTaken](err)
	return unsent || strings.HasPrefix(string(wire.ReasonOf(err)), "limit.sms_")
}
