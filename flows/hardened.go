package flows

import (
	"context"
	"strings"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/session"
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

// loginHardened begins a login of anyone. Only accounts without a password, which
// log in by a code, answer otherwise than an unknown login id.
func (s *Service) loginHardened(ctx context.Context, c *session.Call, a record.Account, loginIDHash string) (Reply, error) {
	_, failures, err := c.PublicFailures(ctx, a, loginIDHash)
	if err != nil {
		return Reply{}, c.AddressFirst(ctx, err)
	}
	passwords := failures[record.WrongPasswords]
	byCode := a.ID != 0 && a.PasswordHash == ""
	if byCode && (a.Phone == "" || tenant.Admitted(a) != nil) {
		a, byCode = record.Account{CompanyGeneration: a.CompanyGeneration}, false // it can't log in at all
	}
	st := session.Step{Account: a, DecoyOf: loginIDHash, State: record.CheckPassword, Counters: c.AddressLook()}
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
	reply, err := issued(c.Enter(ctx, st))
	reply.DisclaimersRequired = c.Pending(record.Account{}, nil) // all of them
	reply.CaptchaRequired = !byCode && c.CaptchaDue(passwords)
	return reply, err
}

// recoverHardened answers alike whether or not there is an account that can be
// recovered: where there is none, a decoy is, and what there is to send is sent
// after the answer.
func (s *Service) recoverHardened(ctx context.Context, c *session.Call, req *recoverRequest, a record.Account, loginIDHash string) (Reply, error) {
	a, method, methodErr := c.Company.HardenedMethod(req.Method, a)
	_, failures, err := c.PublicFailures(ctx, a, loginIDHash)
	if err != nil {
		return Reply{}, err
	}
	if err := checkRecovery(c, failures, method); err != nil {
		return Reply{}, err
	}
	if err := s.checkCaptcha(ctx, c, req.CaptchaResponse); err != nil {
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
	reply.Verification, reply.UserPhone = tenant.ByPhone, shownPhone(req.LoginID)
	return reply, nil
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
