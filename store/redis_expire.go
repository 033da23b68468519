package store

import (
	"context"
	"time"

	"github.com/mnemogate/mnemogate/flows"
)

var expireScript = newScript("expire")

func (s redisSessions) Expire(ctx context.Context, now time.Time, hash flows.TokenHash) error {
	return s.call(ctx, "expiring session", func(ctx context.Context) error {
		return s.changes(ctx, flows.ErrNotFound, expireScript, []string{s.sessionKey(hash)}, micros(now), hash[:], s.channel())
	})
}
