package store

import (
	"context"
	"time"
)

const postgresClock = `SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint`

// Clock returns the server's time.
func (p *Postgres) Clock(ctx context.Context) (time.Time, error) {
	now, err := queryOne(ctx, p, "asking for the time", scanValue[int64], postgresClock)
	return fromMicros(now), err
}

// Clock returns the server's time. If there are several servers, it returns the time
// that differs most from this machine's.
func (r *Redis) Clock(ctx context.Context) (time.Time, error) {
	var worst time.Time
	err := r.call(ctx, "asking for the time", func(ctx context.Context) error {
		servers, err := r.servers(ctx)
		if err != nil {
			return err
		}
		var most time.Duration
		for _, server := range servers {
			now, err := server.Time(ctx).Result()
			if err != nil {
				return err
			}
			if off := time.Until(now).Abs(); worst.IsZero() || off > most {
				worst, most = now, off
			}
		}
		return nil
	})
	return worst, err
}
