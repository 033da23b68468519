package flows

import (
	"context"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/session"
	"github.com/mnemogate/mnemogate/flows/wire"
)

type acceptDisclaimersRequest struct {
	AcceptDisclaimers wire.Codes `json:"accept_disclaimers" max:"129"`
	RememberDevice    bool       `json:"remember_device"`
}

// acceptDisclaimers completes a login by OAuth or passkey (interface, Endpoints 8).
func (s *Service) acceptDisclaimers(ctx context.Context, c *session.Call, req *acceptDisclaimersRequest) (Reply, error) {
	a, err := c.ActiveAccount(ctx)
	if err != nil {
		return Reply{}, err
	}
	accepted, err := c.Accept(ctx, a, req.AcceptDisclaimers)
	if err != nil {
		return Reply{}, err
	}
	c.Remember(req.RememberDevice)
	return c.Enter(ctx, session.Step{Account: a, State: record.Authorized, Accepted: accepted})
}
