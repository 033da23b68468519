package flows

import (
	"context"
	"errors"
)

type emptyRequest struct{}

// logout ends the token, whatever its state (interface, Endpoints 9).
func (s *Service) logout(ctx context.Context, c *call, _ *emptyRequest) (Reply, error) {
	err := s.Sessions.Delete(ctx, c.session.Hash)
	if errors.Is(err, ErrNotFound) {
		return Reply{}, ErrTokenInvalid // ended by another request meanwhile
	}
	if err != nil {
		return Reply{}, unavailable("ending the session", err)
	}
	return Reply{}, nil
}
