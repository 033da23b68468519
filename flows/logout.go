package flows

import (
	"context"
	"errors"
)

type emptyRequest struct{}

// logout ends the token, whatever its state (interface, Endpoints 9).
func (s *Service) logout(ctx context.Context, c *call, _ *emptyRequest) (Reply, error) {
	if err := s.take(ctx, c); err != nil {
		return Reply{}, err
	}
	c.happened(SessionEnded, EndedByLogout)
	return Reply{}, nil
}

// take ends the call's session. Of many callers, one succeeds.
func (s *Service) take(ctx context.Context, c *call) error {
	err := s.Sessions.Delete(ctx, c.session.Hash)
	if errors.Is(err, ErrNotFound) {
		return ErrTokenInvalid // ended by another request meanwhile
	}
	if err != nil {
		return unavailable("ending the session", err)
	}
	c.ended = true
	return nil
}
