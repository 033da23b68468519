package redis

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/mnemogate/mnemogate/flows/panics"
	"github.com/mnemogate/mnemogate/flows/record"
)

const (
	// heartbeat is the interval of heartbeats.
	heartbeat = 250 * time.Millisecond
	// listenAgain is the delay before a lost subscription is tried again.
	listenAgain = 50 * time.Millisecond
	nameTTL     = 24 * time.Hour
)

// Run reports revocations on all nodes to feed, until ctx ends.
//
// A subscription can stay up and receive nothing: after a failover its server may no
// longer be the master. So each node sends heartbeats to itself, by the same path as
// changes. The feed has its lease for as long as the last heartbeat that came back was
// sent less than a second ago. If changes wait for replicas, the replicas must have
// the heartbeat too. In a Cluster each master has its own subscription and heartbeats.
//
// Run flushes feed when a subscription begins, before it extends the lease. It also
// flushes when the name of the server's data changes, because then the server has
// lost its data.
//
// Run does not report that a session was touched or that its code changed.
func (r *Store) Run(ctx context.Context, feed record.Feed) {
	r.feed.Store(&feed)
	ctx, cancel := context.WithCancel(ctx)
	l := &listener{redis: r, feed: feed, start: time.Now(), subscriptions: map[*goredis.Client]*subscription{}}
	defer func() {
		cancel()
		l.running.Wait()
		feed.SetLease(time.Time{})
	}()
	tick := time.NewTicker(heartbeat)
	defer tick.Stop()
	for {
		l.sendHeartbeats(ctx)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// A listener receives revocations from each server that may publish them.
type listener struct {
	redis   *Store
	feed    record.Feed
	start   time.Time // origin of the times below
	running sync.WaitGroup

	mu            sync.Mutex // guards the fields below, and the order of calls to feed.SetLease
	subscriptions map[*goredis.Client]*subscription
	stale         bool  // the loss of a subscription has been logged
	numbered      int64 // number of subscriptions so far
}

// A subscription is the subscription at one server. It is renewed when it is lost.
type subscription struct {
	server           *goredis.Client
	channel          string // on which its heartbeats come back
	cancel           context.CancelFunc
	sendingHeartbeat atomic.Bool

	// The fields below are guarded by the listener's mu. A heartbeat is the time
	// when it was sent; zero if the current subscription has had none.
	number            int64         // of the current subscription; 0 if there is none now
	began             time.Duration // when it began
	heartbeatReturned time.Duration // the last heartbeat that came back
	written           time.Duration // the last heartbeat that the server acknowledged
	failed            error         // of the last heartbeat
	name              string        // name of the server's data
}

// sendHeartbeats updates the list of servers and sends a heartbeat to each.
func (l *listener) sendHeartbeats(ctx context.Context) {
	servers, err := l.redis.masters(ctx)
	if err != nil {
		l.report(fmt.Errorf("looking for the Redis Cluster's nodes: %w", err))
		return // the lease ends unless the next attempt succeeds in time
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for server, s := range l.subscriptions {
		if _, ok := servers[server]; !ok {
			s.cancel()
			delete(l.subscriptions, server)
		}
	}
	for server, tag := range servers {
		s := l.subscriptions[server]
		if s == nil {
			s = l.listen(ctx, server)
		}
		if s.number != 0 && s.sendingHeartbeat.CompareAndSwap(false, true) {
			number := s.number
			l.running.Go(func() {
				defer s.sendingHeartbeat.Store(false)
				err := panics.ContainLogged(l.redis.log, "sending a heartbeat", func() error {
					l.heartbeat(ctx, s, number, tag+"h")
					return nil
				})
				if err != nil {
					l.report(err)
				}
			})
		}
	}
	l.lease()
}

// masters returns the servers that have buckets, each with the tag of one bucket.
func (r *Store) masters(ctx context.Context) (map[*goredis.Client]string, error) {
	if r.single != nil {
		return map[*goredis.Client]string{r.single: r.tags[0]}, nil
	}
	masters := map[*goredis.Client]string{}
	for _, tag := range r.tags {
		server, err := r.cluster.MasterForKey(ctx, tag)
		if err != nil {
			return nil, err
		}
		if _, ok := masters[server]; !ok {
			masters[server] = tag
		}
	}
	return masters, nil
}

// listen starts to listen to a server. The caller holds mu.
func (l *listener) listen(ctx context.Context, server *goredis.Client) *subscription {
	ctx, cancel := context.WithCancel(ctx)
	s := &subscription{server: server, channel: l.redis.channel() + ":" + rand.Text(), cancel: cancel}
	l.subscriptions[server] = s
	l.running.Go(func() {
		defer cancel()
		for ctx.Err() == nil {
			err := panics.ContainLogged(l.redis.log, "receiving revocations", func() error {
				defer l.end(s)
				return l.receive(ctx, s)
			})
			if ctx.Err() == nil {
				l.lost(s, err)
			}
			select {
			case <-ctx.Done():
			case <-time.After(listenAgain):
			}
		}
	})
	return s
}

var errStale = errors.New("a heartbeat has not come back")

// receive subscribes and listens until the subscription is lost or stale.
func (l *listener) receive(ctx context.Context, s *subscription) error {
	channels := []string{l.redis.channel(), s.channel}
	pubsub := s.server.Subscribe(ctx, channels...)
	defer pubsub.Close()
	defer context.AfterFunc(ctx, func() { pubsub.Close() })()
	for range channels {
		m, err := pubsub.ReceiveTimeout(ctx, l.redis.limits.Attempt)
		if err != nil {
			return fmt.Errorf("subscribing: %w", err)
		}
		if _, ok := m.(*goredis.Subscription); !ok {
			return fmt.Errorf("subscribing: a %T came", m)
		}
	}
	l.begin(s)
	for last := time.Now(); ; {
		left := record.FeedLease - time.Since(last)
		if left <= 0 {
			return errStale
		}
		m, err := pubsub.ReceiveTimeout(ctx, left)
		if err != nil {
			return err
		}
		message, ok := m.(*goredis.Message)
		switch {
		case !ok:
			return fmt.Errorf("a %T came", m) // the client has subscribed again
		case message.Channel == s.channel:
			l.recordReturn(s, message.Payload)
			last = time.Now()
		default:
			deliverMessage(l.feed, message.Payload)
		}
	}
}

// begin records a new subscription. Revocations before it may have been missed.
func (l *listener) begin(s *subscription) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.numbered++
	s.number, s.heartbeatReturned, s.written, s.name = l.numbered, 0, 0, ""
	s.began = time.Since(l.start)
	l.feed.Flush()
}

// end records the loss of a subscription.
func (l *listener) end(s *subscription) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s.number, s.heartbeatReturned, s.written = 0, 0, 0
	l.lease()
}

var heartbeatScript = newScript("heartbeat")

// heartbeat sends a heartbeat, without waiting for other calls. If the server no
// longer has the key, it does not try another server.
func (l *listener) heartbeat(ctx context.Context, s *subscription, number int64, key string) {
	sent := time.Since(l.start)
	text := fmt.Sprintf("%d %d ", number, sent)
	send := func(ctx context.Context) error {
		_, _, err := l.redis.runAt(ctx, location{Client: s.server, alone: true}, heartbeatScript, []string{key},
			[]any{rand.Text(), nameTTL.Milliseconds(), s.channel, text})
		return err
	}
	err := l.redis.limited(ctx, send)
	// A master that was made a replica keeps its connections open, and reads on them
	// miss later revocations. The library closes a connection whose write is
	// refused, so write on all idle ones.
	for idle := s.server.PoolStats().IdleConns; idle > 0 && goredis.HasErrorPrefix(err, "READONLY"); idle-- {
		err = l.redis.limited(ctx, send)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case s.number != number:
	case err == nil:
		s.written = max(s.written, sent)
		s.failed = nil
		l.lease()
	case sent-max(s.began, s.written) > record.FeedLease:
		l.warn(err) // such as too few replicas; the heartbeat comes back, so nothing else reports it
	default:
		s.failed = err
	}
}

// recordReturn records a heartbeat that came back.
func (l *listener) recordReturn(s *subscription, text string) {
	number, rest, _ := strings.Cut(text, " ")
	offset, name, _ := strings.Cut(rest, " ")
	sent, err := strconv.ParseInt(offset, 10, 64)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil || number != strconv.FormatInt(s.number, 10) {
		return
	}
	if s.name != "" && s.name != name {
		l.feed.Flush()
	}
	s.name = name
	s.heartbeatReturned = max(s.heartbeatReturned, time.Duration(sent))
	l.lease()
}

// lease sets the feed's lease, which lasts as long as the heartbeats of all servers
// allow. The caller holds mu.
func (l *listener) lease() {
	until := time.Time{}
	for _, s := range l.subscriptions {
		sure := min(s.heartbeatReturned, s.written)
		if sure == 0 {
			l.feed.SetLease(time.Time{})
			return
		}
		if t := l.start.Add(sure + record.FeedLease); until.IsZero() || t.Before(until) {
			until = t
		}
	}
	l.feed.SetLease(until)
	if l.stale && time.Now().Before(until) {
		l.stale = false
		l.redis.deaf.Store(nil)
		l.redis.log.Info("revocations are received again")
	}
}

// lost reports why a subscription was lost. That no heartbeat came back means little if
// none was sent.
func (l *listener) lost(s *subscription, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.warn(cmp.Or(s.failed, err))
	s.failed = nil
}

// report logs the first error since all subscriptions worked.
func (l *listener) report(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.warn(err)
}

// warn is report for callers that hold mu.
func (l *listener) warn(err error) {
	err = explain(err)
	l.redis.deaf.Store(&err)
	if !l.stale {
		l.stale = true
		l.redis.log.Warn("no revocations are received; Redis is asked for every request until they are", "error", err)
	}
}

// encodeRevocation returns the message for a revocation.
func encodeRevocation(e record.Revocation) string {
	return fmt.Sprintf("a%d %d %s", e.Generation, e.Account, e.Company)
}

// deliverMessage passes a message on to feed. A message of a later version may not be
// understood and could mean anything, so deliverMessage flushes.
func deliverMessage(feed record.Feed, message string) {
	var e record.Revocation
	kind, rest := message[:min(1, len(message))], message[min(1, len(message)):]
	switch {
	case kind == "d" && len(rest) == len(record.TokenHash{}):
		feed.Ended(record.TokenHash([]byte(rest)))
	case kind == "a" && decodeRevocation(rest, &e):
		feed.EndedAll(e)
	default:
		feed.Flush()
	}
}

func decodeRevocation(text string, e *record.Revocation) bool {
	parts := strings.SplitN(text, " ", 3)
	if len(parts) != 3 {
		return false
	}
	var err, err2 error
	e.Generation, err = strconv.ParseInt(parts[0], 10, 64)
	e.Account, err2 = strconv.ParseInt(parts[1], 10, 64)
	e.Company = parts[2]
	return err == nil && err2 == nil
}
