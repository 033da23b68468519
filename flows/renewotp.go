package flows

import (
	"context"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/session"
)

type emptyRequest struct{}

// renewOTP sends another code (interface, Endpoints 4).
func (s *Service) renewOTP(ctx context.Context, c *session.Call, _ *emptyRequest) (Reply, error) {
	a, err := c.RenewCode(ctx)
	return Reply{UserPhone: record.MaskPhone(a.Phone)}, err
}

// recoveryRenewOTP sends another code (interface, Endpoints 12).
func (s *Service) recoveryRenewOTP(ctx context.Context, c *session.Call, _ *emptyRequest) (Reply, error) {
	_, err := c.RenewCode(ctx)
	return Reply{}, err
}
