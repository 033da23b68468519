package flows

import (
	"context"
	"slices"

	"github.com/mnemogate/mnemogate/flows/message"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/session"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/wire"
)

type recoverRequest struct {
	LoginID         string        `json:"login_id" max:"254" need:"y"`
	CaptchaResponse string        `json:"captcha_response" max:"4096" need:"y"`
	Method          tenant.Method `json:"method"`
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
	a, loginIDHash, err := c.FindAccount(ctx, req.LoginID)
	if err != nil {
		return Reply{}, err
	}
	if c.Company.Hardened {
		return s.recoverHardened(ctx, c, req, a, loginIDHash)
	}
	method, methodErr := c.Company.RecoveryMethod(req.Method, a)
	if err := checkRecovery(c, a.FailureCounts, method); err != nil {
		return Reply{}, err
	}
	if err := s.solveCaptcha(ctx, c, req.CaptchaResponse); err != nil {
		return Reply{}, err
	}
	if a.ID == 0 {
		if err := c.CountAddressFailure(ctx); err != nil {
			return Reply{}, err
		}
		return Reply{}, wire.ErrLoginIDNotFound
	}
	if err := tenant.CheckStatus(a); err != nil {
		return Reply{}, err
	}
	if methodErr != nil {
		return Reply{}, methodErr
	}
	return recoverBy(ctx, c, a, method)
}

func recoverBy(ctx context.Context, c *session.Call, a record.Account, method tenant.Method) (reply Reply, err error) {
	switch method {
	case tenant.ByPhone:
		reply, err = issued(c.Enter(ctx, session.Step{Account: a, State: record.RecoveryOTP}))
	case tenant.ByQuestion:
		reply, err = issued(c.Enter(ctx, session.Step{Account: a, State: record.RecoveryQuestion}))
		reply.ControlQuestion = a.Question
	case tenant.ByMail:
		err = c.MailLink(ctx, a, message.RecoveryLink)
		reply.UserEmail = a.Email
	}
	reply.Verification = method
	return reply, err
}

// checkRecovery fails while the codes or answers that the method needs are locked.
func checkRecovery(c *session.Call, failures map[record.FailureKind]record.FailureCount, method tenant.Method) error {
	switch method {
	case tenant.ByPhone:
		return c.CheckCodes(record.Account{FailureCounts: failures})
	case tenant.ByQuestion:
		return c.CheckAnswers(record.Account{FailureCounts: failures})
	default:
		return nil
	}
}
