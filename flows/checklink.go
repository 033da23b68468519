package flows

import (
	"context"
	"errors"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/session"
	"github.com/mnemogate/mnemogate/flows/typed"
	"github.com/mnemogate/mnemogate/flows/wire"
)

type checkLinkRequest struct {
	// The token in the mailed link.
	Token string `json:"token" max:"128" need:"y"`
}

// checkLink exchanges the token of a mailed link for a session token (contract, section
// 4; not settled in the interface).
func (s *Service) checkLink(ctx context.Context, c *session.Call, req *checkLinkRequest) (Reply, error) {
	if err := c.CheckAddress(ctx); err != nil {
		return Reply{}, err
	}
	err := c.FindLink(ctx, typed.Token(req.Token))
	if errors.Is(err, wire.ErrTokenInvalid) {
		if err := c.CountAddressFailure(ctx); err != nil {
			return Reply{}, err
		}
	}
	if err != nil {
		return Reply{}, err
	}
	a, err := c.LinkAccount(ctx)
	if err != nil {
		return Reply{}, err
	}
	if err := c.UseLink(ctx, a); err != nil {
		return Reply{}, err
	}
	reply, err := c.Enter(ctx, session.Step{Account: a, State: record.RecoveryPassword})
	reply.LoginID = a.Email // a change of it would have revoked the link
	return reply, err
}
