package flows

import (
	"context"
	"errors"
	"strconv"
	"strings"

	"github.com/mnemogate/mnemogate/flows/limits"
	"github.com/mnemogate/mnemogate/flows/message"
	"github.com/mnemogate/mnemogate/flows/panics"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/tenant"
)

// A hardened company tells strangers nothing of its accounts (contract, 4,
// hardened). To an unknown login id it answers as to a known one, with a decoy:
// a session of account 0 that nothing lets pass.
//
// Strangers can lock things and use up budgets, and so see what is counted. What
// they see are the counts of the login id that they sent, under its alias: of
// every login id, known or not. What is counted for the account itself, whichever
// of its login ids was sent, holds too, and shows only behind its secret.

// hides reports whether the call's session is one that strangers can have of
// anyone.
func (c *call) hides() bool { return c.Company.Hardened && c.session.State == record.RecoveryOTP }

// loginHardened begins a login of anyone. Only accounts without a password, which
// log in by a code, answer otherwise than an unknown login id.
func (s *Service) loginHardened(ctx context.Context, c *call, a record.Account, alias string) (Reply, error) {
	_, tallies, err := c.Shown(ctx, a, alias)
	if err != nil {
		return Reply{}, c.AddressFirst(ctx, err)
	}
	passwords := tallies[record.WrongPasswords]
	byCode := a.ID != 0 && a.PasswordHash == ""
	if byCode && (a.Phone == "" || tenant.Admitted(a) != nil) {
		a, byCode = record.Account{Era: a.Era}, false // it can't log in at all
	}
	st := step{account: a, decoyOf: alias, counters: c.AddressLook()}
	begin := s.enterSealed
	if byCode {
		passwords.Count = 0
		st.decoyOf, begin = "", s.awaitCode
	}
	refusal := c.CheckPasswords(passwords)
	if byCode && refusal == nil {
		refusal = c.CheckCodes(a)
	}
	if refusal != nil {
		return Reply{}, c.AddressFirst(ctx, refusal)
	}
	reply, err := begin(ctx, c, st)
	reply.DisclaimersRequired = c.pending(record.Account{}, nil) // all of them
	reply.CaptchaRequired = !byCode && c.CaptchaDue(passwords)
	return reply, err
}

// recoverHardened answers alike whether or not there is an account that can be
// recovered: where there is none, a decoy is, and what there is to send is sent
// after the answer.
func (s *Service) recoverHardened(ctx context.Context, c *call, req *recoverRequest, a record.Account, alias string) (Reply, error) {
	a, method, methodErr := c.Company.HardenedMethod(req.Method, a)
	_, tallies, err := c.Shown(ctx, a, alias)
	if err != nil {
		return Reply{}, err
	}
	if err := c.checkRecovery(tallies, method); err != nil {
		return Reply{}, err
	}
	if err := s.checkCaptcha(ctx, c, req.CaptchaResponse); err != nil {
		return Reply{}, err
	}
	if methodErr != nil {
		return Reply{}, methodErr
	}
	if method == tenant.ByMail {
		if err := c.Charge(ctx, c.mailBudget(limits.DecoyBudget(alias))...); err != nil {
			return Reply{}, err
		}
		if a.ID != 0 {
			s.mailLinkLater(c, a)
		}
		return Reply{Verification: tenant.ByMail, UserEmail: shownEmail(req.LoginID)}, nil
	}
	reply, err := s.enter(ctx, c, step{account: a, decoyOf: alias, state: record.RecoveryOTP})
	if err != nil {
		return Reply{}, err
	}
	reply.Verification, reply.UserPhone = tenant.ByPhone, shownPhone(req.LoginID)
	return reply, nil
}

// mailLinkLater mails a link after the answer, if the account's budget allows it.
func (s *Service) mailLinkLater(c *call, a record.Account) {
	s.unseen(c.Company, a, message.RecoveryLink, func(ctx context.Context) error {
		err := s.chargeHidden(ctx, c, a, c.mailBudget(strconv.FormatInt(a.ID, 10))...)
		if errors.Is(err, errBudgetSpent) {
			return nil
		}
		if err != nil {
			return err
		}
		link, message := c.newLink(a, message.RecoveryLink)
		if err := s.store(ctx, c, link); err != nil {
			return err
		}
		err = panics.Contain(func() error { return s.send(ctx, c.Company, c.Company.Mail, a, message) })
		if err != nil {
			s.abandon(ctx, link.Hash)
		}
		return err
	})
}

// withinHidden is send if the account's own budgets and locks allow it.
func (s *Service) withinHidden(c *call, a record.Account, send func(context.Context) error) func(context.Context) error {
	budgets := append(c.AccountSMS(strconv.FormatInt(a.ID, 10), a.Phone), c.CompanySMS()...)
	country, full := c.CountrySMS(a.Phone)
	budgets = append(budgets, country...)
	locked := c.CheckCodes(a) != nil
	return func(ctx context.Context) error {
		if locked {
			return errBudgetSpent
		}
		if full != nil {
			return s.spentHidden(ctx, c, a, full)
		}
		if err := s.chargeHidden(ctx, c, a, budgets...); err != nil {
			return err
		}
		return send(ctx)
	}
}

// errBudgetSpent is why something was not sent. That is no failure.
var errBudgetSpent = errors.New("a budget is used up")

// chargeHidden charges budgets behind an answer that does not tell of them. It
// tells the operator.
func (s *Service) chargeHidden(ctx context.Context, c *call, a record.Account, counters ...record.Counter) error {
	return s.spentHidden(ctx, c, a, s.Sessions.Charge(ctx, s.Now(), counters...))
}

// spentHidden makes errBudgetSpent of a counter that is full.
func (s *Service) spentHidden(ctx context.Context, c *call, a record.Account, err error) error {
	if full, ok := errors.AsType[*record.Full](err); ok {
		if s.told.First(s.Now(), full) {
			e := c.by("")
			e.Name, e.Company, e.Account, e.Mnemocode, e.Country = limits.LockOf(full.Key), c.Company.Code, a.ID, a.Mnemocode, c.country
			s.Emit(ctx, e)
		}
		return errBudgetSpent
	}
	return err
}

// shownEmail is masked unless the caller knows it already.
func shownEmail(loginID string) string {
	if strings.Contains(record.NormalizeLoginID(loginID), "@") {
		return strings.TrimSpace(loginID)
	}
	return "***@***"
}

// shownPhone is the login id that was sent, masked, if it is a phone; else empty: no
// other could be made up that a real one looks like, of the country that the
// company's users live in.
func shownPhone(loginID string) string { return record.MaskPhone(record.NormalizePhone(loginID)) }
