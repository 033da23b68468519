package flows

import (
	"context"
	"slices"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/session"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/wire"
)

type recoverRequest struct {
	LoginID         string `json:"login_id" max:"254" need:"y"`
	CaptchaResponse string `json:"captcha_response" max:"4096" need:"y"`
	// How to recover.
	Method tenant.Method `json:"method"`
}

// recover begins a recovery (interface, Endpoints 10). It does not change the account.
func (s *Service) recover(ctx context.Context, c *session.Call, req *recoverRequest) (Reply, error) {
	if req.Method != "" && !slices.Contains([]tenant.Method{tenant.ByPhone, tenant.ByMail, tenant.ByQuestion}, req.Method) {
		return Reply{}, wire.Invalid("The field method must be PHONE, MAIL or QUESTION.")
	}
	// Each recovery may store counters: of its captcha, and of the mails to its login id.
	if err := c.BeginLogin(ctx); err != nil {
		return Reply{}, err
	}
	found, loginIDHash, err := c.FindAccount(ctx, req.LoginID)
	if err != nil {
		return Reply{}, err
	}
	a, method, methodErr := c.Tells.RecoveryMethod(req.Method, found)
	counts, err := c.Tells.Counts(ctx, a, loginIDHash)
	if err != nil {
		return Reply{}, err
	}
	if err := checkRecovery(c, counts.Now, method); err != nil {
		return Reply{}, err
	}
	if err := s.solveCaptcha(ctx, c, req.CaptchaResponse); err != nil {
		return Reply{}, err
	}
	if err := c.Tells.Admit(ctx, a); err != nil {
		return Reply{}, err
	}
	if methodErr != nil {
		return Reply{}, methodErr
	}
	shown := c.Tells.Shown(req.LoginID, a)
	st := session.Step{Account: a, LoginIDHash: loginIDHash}
	reply := Reply{}
	switch method {
	case tenant.ByPhone:
		st.State, st.Phone = record.RecoveryOTP, shown.Phone
		reply, err = c.Enter(ctx, st)
		reply.UserPhone = shown.Phone
	case tenant.ByQuestion:
		st.State = record.RecoveryQuestion
		reply, err = c.Enter(ctx, st)
		reply.ControlQuestion = a.Question
	case tenant.ByMail:
		err = c.Tells.MailLink(ctx, a, loginIDHash)
		reply.UserEmail = shown.Email
	}
	reply.Verification = method
	return reply, err
}

// checkRecovery fails while the codes or answers that the method needs are locked.
func checkRecovery(c *session.Call, now record.Failures, method tenant.Method) error {
	switch method {
	case tenant.ByPhone:
		return c.CheckCodes(now)
	case tenant.ByQuestion:
		return c.CheckAnswers(now)
	default:
		return nil
	}
}
