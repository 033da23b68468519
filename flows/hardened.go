package flows

import (
	"context"
	"strings"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/session"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/typed"
)

// A hardened company does not reveal to strangers which accounts exist (contract,
// section 4, hardened). It answers an unknown login id like a known one, with a decoy: a
// session of account 0 that cannot succeed.
//
// Strangers can cause locks and use up budgets, so they can observe counts. Therefore
// each login id, known or not, has public counts, which are kept under its login id hash.
// The private counts of an account include attempts with any of its login ids. They also
// apply, but show only to users who prove a secret of the account.

// loginHardened begins a login with any login id. The answer differs from that for an
// unknown login id only if the account has no password and logs in by a code.
func (s *Service) loginHardened(ctx context.Context, c *session.Call, a record.Account, loginIDHash string) (Reply, error) {
	_, failures, err := c.PublicFailures(ctx, a, loginIDHash)
	if err != nil {
		return Reply{}, c.AddressFirst(ctx, err)
	}
	passwords := failures[record.WrongPasswords]
	byCode := a.ID != 0 && a.PasswordHash == ""
	noCode := a.Phone == "" || !c.Company.DeliversTo(a.Phone) && a.BackupCodes == 0
	if byCode && (noCode || tenant.CheckStatus(a) != nil) {
		a, byCode = record.Account{CompanyGeneration: a.CompanyGeneration}, false // the account can't log in at all
	}
	st := session.Step{Account: a, DecoyOf: loginIDHash, State: record.CheckPassword, Counters: c.AddressCounters()}
	if byCode {
		passwords.Count = 0
		st.DecoyOf, st.State = "", record.CheckOTP
	}
	refusal := c.CheckPasswords(passwords)
	if byCode && refusal == nil {
		refusal = c.CheckCodes(a)
	}
	if refusal != nil {
		return Reply{}, c.AddressFirst(ctx, refusal)
	}
	st.Lists = c.Pending(record.Account{}, nil) // all of them
	reply, err := issued(c.Enter(ctx, st))
	reply.DisclaimersRequired = st.Lists
	reply.CaptchaRequired = !byCode && c.CaptchaDue(passwords)
	return reply, err
}

// recoverHardened gives the same answer whether or not there is an account that can be
// recovered. If there is none, it issues a decoy. Messages are sent after the answer.
func (s *Service) recoverHardened(ctx context.Context, c *session.Call, req *recoverRequest, a record.Account, loginIDHash string) (Reply, error) {
	a, method, methodErr := c.Company.HardenedMethod(req.Method, a)
	_, failures, err := c.PublicFailures(ctx, a, loginIDHash)
	if err != nil {
		return Reply{}, err
	}
	if err := checkRecovery(c, failures, method); err != nil {
		return Reply{}, err
	}
	if err := s.solveCaptcha(ctx, c, req.CaptchaResponse); err != nil {
		return Reply{}, err
	}
	if methodErr != nil {
		return Reply{}, methodErr
	}
	if method == tenant.ByMail {
		if err := c.MailLinkLater(ctx, a, loginIDHash); err != nil {
			return Reply{}, err
		}
		return Reply{Verification: tenant.ByMail, UserEmail: shownEmail(req.LoginID)}, nil
	}
	reply, err := issued(c.Enter(ctx, session.Step{Account: a, DecoyOf: loginIDHash, State: record.RecoveryOTP}))
	if err != nil {
		return Reply{}, err
	}
	reply.Verification, reply.UserPhone = tenant.ByPhone, shownPhone(c.Company, req.LoginID)
	return reply, nil
}

// shownEmail returns the login id that was sent if it is an email address, otherwise a
// mask.
func shownEmail(loginID string) string {
	if strings.Contains(typed.LoginID(loginID, ""), "@") {
		return strings.TrimSpace(loginID)
	}
	return "***@***"
}

// shownPhone returns the login id that was sent, masked, if it is a phone, otherwise "".
// It invents no phone, because an invented one could be told from those of the company's
// users, for example by its country.
func shownPhone(company *tenant.Company, loginID string) string {
	return record.MaskPhone(company.ReadPhone(loginID))
}
