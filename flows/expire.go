package flows

import (
	"context"
	"time"
)

// expire sees to it that a session which was seen to have expired stays so,
// whatever happens to the clocks. Should the store fail, the next request with
// the token tries again; this one is refused in any case.
func (s *Service) expire(ctx context.Context, now time.Time, session Session) {
	if !session.Expires.IsZero() { // else it is done already
		_ = s.Sessions.Expire(ctx, now, session.Hash)
	}
}
