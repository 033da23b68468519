package flows

import (
	"context"

	"github.com/mnemogate/mnemogate/flows/record"
)

type emptyRequest struct{}

// logout ends the token, whatever its state (interface, Endpoints 9).
func (s *Service) logout(ctx context.Context, c *call, _ *emptyRequest) (Reply, error) {
	if err := s.endOwn(ctx, c); err != nil {
		return Reply{}, err
	}
	c.Events = append(c.Events, record.Event{Name: record.SessionEnded, Reason: record.EndedByLogout})
	return Reply{}, nil
}
