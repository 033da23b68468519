package flows

import (
	"context"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/session"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/typed"
	"github.com/mnemogate/mnemogate/flows/wire"
)

type checkQuestionRequest struct {
	// The answer to the control question.
	ControlAnswer string `json:"control_answer" max:"256" need:"y"`
}

// checkQuestion checks the answer to the control question (interface, Endpoints 13).
func (s *Service) checkQuestion(ctx context.Context, c *session.Call, req *checkQuestionRequest) (Reply, error) {
	a, err := c.LoadAccount(ctx)
	if err != nil {
		return Reply{}, err
	}
	if err := c.CheckAddress(ctx); err != nil {
		return Reply{}, err
	}
	if err := c.CheckAnswers(a.FailureCounts); err != nil {
		return Reply{}, err
	}
	if err := tenant.CheckStatus(a); err != nil {
		return Reply{}, err
	}
	ok, _, err := s.Hasher.Verify(ctx, c.Turn(), c.Company.Password.Argon2id, a.AnswerHash, typed.Answer(req.ControlAnswer))
	if err != nil {
		return Reply{}, wire.Unavailable("checking the control answer", err)
	}
	if err := c.RecordWindow(ctx, c.FailureKey(a, ""), record.WrongAnswers, ok); err != nil {
		return Reply{}, err
	}
	if !ok {
		return Reply{}, wire.ErrAnswerInvalid
	}
	return c.Enter(ctx, session.Step{Account: a, State: record.RecoveryPassword})
}
