package sqlite

import (
	"context"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
)

// feedEvery is the interval at which Run checks the file. A revocation by another
// process must arrive within 100 ms (contract, section 3).
const feedEvery = 50 * time.Millisecond

const dataVersion = `PRAGMA data_version`

// Run flushes feed after commits of other processes, which SQLite counts
// (data_version), until ctx ends. The Memory of this process knows this process's
// revocations, except of sessions that were revoked to make room; the store reports
// these to feed too.
func (s *Store) Run(ctx context.Context, feed record.Feed) {
	s.feed.Store(&feed)
	tick := time.NewTicker(feedEvery)
	defer tick.Stop()
	defer feed.SetLease(time.Time{})
	var seen commits
	for {
		asked := time.Now()
		now, err := s.commits(ctx)
		if err != nil {
			feed.SetLease(time.Time{})
			seen = commits{}
		} else {
			if now != seen {
				feed.Flush()
			}
			seen = now
			feed.SetLease(asked.Add(record.FeedLease))
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// commits is a connection's count of commits by other connections.
type commits struct {
	on    *queries
	count int64
}

func (s *Store) commits(ctx context.Context) (c commits, err error) {
	err = s.write(ctx, func(ctx context.Context, tx *queries) error {
		c.on = tx
		return tx.Row(ctx, dataVersion).Scan(&c.count)
	})
	return c, err
}
