package flows

import (
	"context"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/session"
)

// logout revokes the session, in any state (interface, Endpoints 9).
func (s *Service) logout(ctx context.Context, c *session.Call, _ *emptyRequest) (Reply, error) {
	if err := c.Revoke(ctx); err != nil {
		return Reply{}, err
	}
	c.Events = append(c.Events, record.Event{Name: record.SessionEnded, Reason: record.EndedByLogout})
	return Reply{}, nil
}
