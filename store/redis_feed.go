package store

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/mnemogate/mnemogate/flows/record"
)

const (
	// redisBeat is how often a node makes sure that it hears.
	redisHeartbeat = 250 * time.Millisecond
	// redisListenAgain is how long a lost subscription is not tried again.
	redisListenAgain = 50 * time.Millisecond
	redisNameTTL     = 24 * time.Hour
)

// Run tells feed what ends on any node, until ctx ends.
//
// A subscription can stay up and be deaf: after a failover it may be at a server
// that is no master any more. So a node sends beats to itself, by the way that
// changes take; feed is trusted for as long as one has come back that was sent
// less than a second ago, and, where changes wait for replicas, that replicas
// have. In a Cluster each master has a subscription and beats of its own. When a
// subscription begins, feed is flushed before it is trusted; so it is when the
// data have lost their name, and with it whatever else they held.
//
// That a session was touched or its code changed is not told.
func (r *Redis) Run(ctx context.Context, feed record.Feed) {
	r.feed.Store(&feed)
	ctx, cancel := context.WithCancel(ctx)
	l := &listener{redis: r, feed: feed, start: time.Now(), subscriptions: map[*redis.Client]*subscription{}}
	defer func() {
		cancel()
		l.running.Wait()
		feed.SetLease(time.Time{})
	}()
	tick := time.NewTicker(redisHeartbeat)
	defer tick.Stop()
	for {
		l.attend(ctx)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// A listener hears what ends, from each server that may tell it.
type listener struct {
	redis   *Redis
	feed    record.Feed
	start   time.Time // from which times are counted
	running sync.WaitGroup

	mu            sync.Mutex // guards what follows, and the order in which feed is told of trust
	subscriptions map[*redis.Client]*subscription
	stale         bool  // has been logged
	numbered      int64 // subscriptions so far
}

// An ear is a subscription at one server.
type subscription struct {
	server  *redis.Client
	channel string // on which its beats come back
	cancel  context.CancelFunc
	beating atomic.Bool

	// Guarded by the listener's mu. The beats are times of sending, zero until
	// there is one of this subscription.
	subscription int64         // its number; 0 while there is none
	began        time.Duration // it did
	heard        time.Duration // the last beat that came back
	written      time.Duration // the last beat that the server has acknowledged
	name         string        // of the server's data
}

// attend looks which servers there are, and sends each a beat.
func (l *listener) attend(ctx context.Context) {
	servers, err := l.redis.masters(ctx)
	if err != nil {
		l.report(fmt.Errorf("looking for the Redis Cluster's nodes: %w", err))
		return // the trust ends unless the next look is in time
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for server, e := range l.subscriptions {
		if _, ok := servers[server]; !ok {
			e.cancel()
			delete(l.subscriptions, server)
		}
	}
	for server, tag := range servers {
		e := l.subscriptions[server]
		if e == nil {
			e = l.listen(ctx, server)
		}
		if e.subscription != 0 && e.beating.CompareAndSwap(false, true) {
			number := e.subscription
			l.running.Go(func() {
				defer e.beating.Store(false)
				l.heartbeat(ctx, e, number, tag+"h")
			})
		}
	}
	l.lease()
}

// masters returns the servers that have buckets, with the tag of one of these.
func (r *Redis) masters(ctx context.Context) (map[*redis.Client]string, error) {
	if r.single != nil {
		return map[*redis.Client]string{r.single: r.tags[0]}, nil
	}
	masters := map[*redis.Client]string{}
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

// listen begins to listen to a server. The caller holds mu.
func (l *listener) listen(ctx context.Context, server *redis.Client) *subscription {
	ctx, cancel := context.WithCancel(ctx)
	e := &subscription{server: server, channel: l.redis.channel() + ":" + randomName(), cancel: cancel}
	l.subscriptions[server] = e
	l.running.Go(func() {
		defer cancel()
		for ctx.Err() == nil {
			err := l.hear(ctx, e)
			l.end(e)
			if ctx.Err() == nil {
				l.report(err)
			}
			select {
			case <-ctx.Done():
			case <-time.After(redisListenAgain):
			}
		}
	})
	return e
}

func randomName() string {
	var b [8]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

var errStale = errors.New("a beat has not come back")

// hear subscribes and listens until the subscription is lost or deaf.
func (l *listener) hear(ctx context.Context, e *subscription) error {
	channels := []string{l.redis.channel(), e.channel}
	subscription := e.server.Subscribe(ctx, channels...)
	defer subscription.Close()
	defer context.AfterFunc(ctx, func() { subscription.Close() })()
	for range channels {
		m, err := subscription.ReceiveTimeout(ctx, redisTimeout)
		if err != nil {
			return fmt.Errorf("subscribing: %w", err)
		}
		if _, ok := m.(*redis.Subscription); !ok {
			return fmt.Errorf("subscribing: a %T came", m)
		}
	}
	l.begin(e)
	for last := time.Now(); ; {
		left := feedLease - time.Since(last)
		if left <= 0 {
			return errStale
		}
		m, err := subscription.ReceiveTimeout(ctx, left)
		if err != nil {
			return err
		}
		message, ok := m.(*redis.Message)
		switch {
		case !ok:
			return fmt.Errorf("a %T came", m) // the client has subscribed anew
		case message.Channel == e.channel:
			l.heard(e, message.Payload)
			last = time.Now()
		default:
			tell(l.feed, message.Payload)
		}
	}
}

// begin takes note of a new subscription. What ended before it, nobody knows.
func (l *listener) begin(e *subscription) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.numbered++
	e.subscription, e.heard, e.written, e.name = l.numbered, 0, 0, ""
	e.began = time.Since(l.start)
	l.feed.Flush()
}

// end takes note of a lost subscription.
func (l *listener) end(e *subscription) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e.subscription, e.heard, e.written = 0, 0, 0
	l.lease()
}

var beatScript = newScript("beat")

// beat sends one, which waits for no calls. A server of a Cluster that has not got the
// key any more is not asked for another.
func (l *listener) heartbeat(ctx context.Context, e *subscription, subscription int64, key string) {
	sent := time.Since(l.start)
	text := fmt.Sprintf("%d %d ", subscription, sent)
	send := func(ctx context.Context) error {
		_, _, err := l.redis.runAt(ctx, redisPlace{Client: e.server, alone: true}, beatScript, []string{key},
			[]any{randomName(), redisNameTTL.Milliseconds(), e.channel, text})
		return err
	}
	err := l.redis.limited(ctx, send)
	// A master that was made a replica keeps its connections, and reads on them find what
	// has ended since. The library closes one that takes no write, so all that are idle
	// are made to write.
	for idle := e.server.PoolStats().IdleConns; idle > 0 && redis.HasErrorPrefix(err, "READONLY"); idle-- {
		err = l.redis.limited(ctx, send)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case e.subscription != subscription:
	case err == nil:
		e.written = max(e.written, sent)
		l.lease()
	case sent-max(e.began, e.written) > feedLease:
		l.warn(err) // a beat that comes back, though too few replicas have it, nobody else tells of
	}
}

// heard takes note of a beat that came back.
func (l *listener) heard(e *subscription, text string) {
	subscription, rest, _ := strings.Cut(text, " ")
	offset, name, _ := strings.Cut(rest, " ")
	sent, err := strconv.ParseInt(offset, 10, 64)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil || subscription != strconv.FormatInt(e.subscription, 10) {
		return
	}
	if e.name != "" && e.name != name {
		l.feed.Flush()
	}
	e.name = name
	e.heard = max(e.heard, time.Duration(sent))
	l.lease()
}

// trust tells feed how long it may be trusted, which is for as long as all
// servers are heard. The caller holds mu.
func (l *listener) lease() {
	until := time.Time{}
	for _, e := range l.subscriptions {
		sure := min(e.heard, e.written)
		if sure == 0 {
			l.feed.SetLease(time.Time{})
			return
		}
		if t := l.start.Add(sure + feedLease); until.IsZero() || t.Before(until) {
			until = t
		}
	}
	l.feed.SetLease(until)
	if l.stale && time.Now().Before(until) {
		l.stale = false
		l.redis.log.Info("the endings of sessions are heard again")
	}
}

// report logs the first error since all was heard.
func (l *listener) report(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.warn(err)
}

// warn is report for who holds mu.
func (l *listener) warn(err error) {
	if !l.stale {
		l.stale = true
		l.redis.log.Warn("the endings of sessions can't be heard; Redis is asked for each request until they can", "error", err)
	}
}

// encodeEnding makes the message of an ending. An account's and a company's are
// told apart for nodes that know none of companies, so that they flush.
func encodeRevocation(e record.Revocation) string {
	kind := 'a'
	if e.Account == 0 {
		kind = 'c'
	}
	return fmt.Sprintf("%c%d %d %s", kind, e.Generation, e.Account, e.Company)
}

// tell passes a message on. One that is not understood, as a later version's
// may be, could mean anything.
func tell(feed record.Feed, message string) {
	var e record.Revocation
	kind, rest := message[:min(1, len(message))], message[min(1, len(message)):]
	switch {
	case kind == "d" && len(rest) == len(record.TokenHash{}):
		feed.Ended(record.TokenHash([]byte(rest)))
	case (kind == "a" || kind == "c") && decodeRevocation(rest, &e):
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
