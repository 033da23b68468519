package store

import (
	"context"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
)

// feedEvery is how often the file is looked at: what another process ended must
// be heard of within 100 ms (contract, section 3).
const feedEvery = 50 * time.Millisecond

const sqliteDataVersion = `PRAGMA data_version`

// Run tells feed what other processes do to the file, until ctx ends: SQLite
// counts, for each connection, the commits of others. What this process does
// its own Memory knows, but for the sessions that make room for others: of these
// feed is told, too.
func (s *SQLite) Run(ctx context.Context, feed record.Feed) {
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
			feed.SetLease(asked.Add(feedLease))
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// commits is the count that one connection has of others' commits.
type commits struct {
	on    *sqliteQueries
	count int64
}

func (s *SQLite) commits(ctx context.Context) (c commits, err error) {
	err = s.write(ctx, func(ctx context.Context, tx *sqliteQueries) error {
		c.on = tx
		return tx.row(ctx, sqliteDataVersion).Scan(&c.count)
	})
	return c, err
}
