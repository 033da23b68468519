package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/mnemogate/mnemogate/flows"
)

// redisSessions is a Redis's flows.Sessions. A session is expired at the moment
// it expires. Redis forgets by itself what has expired flows.Keep ago.
//
// The keys, each with its tag before it:
//
//	s<hash>               a session, a Redis hash (see encodeRedisSession)
//	i<company>/<account>  the account's sessions, a sorted set of hashes by when they expire
//	f<company>/<account>  the fence: sessions with a lower epoch are refused
//	l<company>/<account>  the hash of the account's mailed link
//	c<key>                a counter: n, its count, and u, until when
//	h                     a name that the bucket's data got when they were empty (see Run)
//
// Of decoys there is only the session.
type redisSessions struct{ *Redis }

func bucketTag(bucket int) string { return "{mg:" + strconv.Itoa(bucket) + "}" }

// bucketTags returns the tag of each bucket there can be.
func bucketTags() []string {
	var tags []string
	for i := range 256 {
		if tag := bucketTag(flows.TokenHash{byte(i)}.Bucket()); !slices.Contains(tags, tag) {
			tags = append(tags, tag)
		}
	}
	return tags
}

func sessionKey(hash flows.TokenHash) string { return bucketTag(hash.Bucket()) + "s" + string(hash[:]) }

// accountKey makes a key of kind i, f or l.
func accountKey(kind, company string, account int64) string {
	return bucketTag(flows.AccountBucket(company, account)) + kind + company + "/" + strconv.FormatInt(account, 10)
}

// A counter's tag is its company's, so that one Charge of any of them is one
// script: exact, at the price that all counters of a company are on one node of
// a Cluster. That bears some 100,000 a second; the passwords that are hashed
// meanwhile keep thousands of CPUs busy.
func counterTag(key string) string {
	for i := range len(key) {
		if key[i] == '/' {
			return "{mg:" + key[:i] + "}"
		}
	}
	return "{mg:}"
}

// channel is what is told on when sessions end: "d" and the hashes, or "a" and
// the account (see encodeEnding). Redis tells it to clients of every database.
func (r *Redis) channel() string { return "mnemogate:" + strconv.Itoa(r.db) }

// ttl is how long a session is kept in Redis, in milliseconds. It depends on no
// clock but the caller's.
func ttl(now, expires time.Time) int64 {
	return (max(expires.Sub(now), 0) + flows.Keep + time.Millisecond).Milliseconds()
}

// stale is when what is forgotten now has expired.
func stale(now time.Time) int64 { return micros(now.Add(-flows.Keep)) }

var (
	createScript = newScript("create")
	linkScript   = newScript("link")
)

func (s redisSessions) Create(ctx context.Context, now time.Time, sess flows.Session, counters ...flows.Counter) error {
	return s.call(ctx, "creating session", func(ctx context.Context) error {
		fields, err := encodeRedisSession(sess)
		if err != nil {
			return err
		}
		if counters, err = s.chargeElsewhere(ctx, now, counters); err != nil {
			return err
		}
		if sess.State == flows.MailedLink && sess.Account != 0 {
			return s.createLink(ctx, now, sess, fields, counters)
		}
		keys := append([]string{sessionKey(sess.Hash)}, owner(sess, "f", "i")...)
		args := append([]any{sess.Epoch, sess.Hash[:], micros(sess.Expires), ttl(now, sess.Expires), stale(now)}, fields...)
		return s.charges(ctx, now, counters, createScript, keys, args)
	})
}

// chargeElsewhere charges counters that may lie on another server of a Cluster
// than a session, and returns those which are left for the session's script.
func (s redisSessions) chargeElsewhere(ctx context.Context, now time.Time, counters []flows.Counter) ([]flows.Counter, error) {
	if s.cluster == nil {
		return counters, nil
	}
	return nil, s.count(ctx, now, counters)
}

// charges runs a script that stores a session and charges counters. One that
// changes nothing has met either a full counter or a conflict.
func (s redisSessions) charges(ctx context.Context, now time.Time, counters []flows.Counter, script *script, keys []string, args []any) error {
	keys, args = addCounters(keys, args, now, counters)
	changed, answer, err := s.run(ctx, script, keys, args...)
	if err == nil && !changed {
		err = cmp.Or(asFull(counters, answer), flows.ErrConflict)
	}
	return err
}

// owner returns keys of a session's account, none for a decoy.
func owner(s flows.Session, kinds ...string) []string {
	if s.Account == 0 {
		return nil
	}
	var keys []string
	for _, kind := range kinds {
		keys = append(keys, accountKey(kind, s.Company, s.Account))
	}
	return keys
}

// changes runs a script; one that changes nothing is answered by otherwise.
func (s redisSessions) changes(ctx context.Context, otherwise error, script *script, keys []string, args ...any) error {
	changed, _, err := s.run(ctx, script, keys, args...)
	if err == nil && !changed {
		return otherwise
	}
	return err
}

// createLink knows the account's last link from reading; if another came
// meanwhile, it goes on with that.
func (s redisSessions) createLink(ctx context.Context, now time.Time, sess flows.Session, fields []any, counters []flows.Counter) error {
	keys := append([]string{sessionKey(sess.Hash)}, owner(sess, "f", "i", "l")...)
	link, err := s.readString(ctx, keys[3])
	for err == nil {
		all := keys
		if link != "" {
			all = append(slices.Clip(keys), bucketTag(sess.Hash.Bucket())+"s"+link)
		}
		args := append([]any{sess.Epoch, sess.Hash[:], micros(sess.Expires), ttl(now, sess.Expires), stale(now), s.channel(), link}, fields...)
		all, args = addCounters(all, args, now, counters)
		changed, answer, runErr := s.run(ctx, linkScript, all, args...)
		if runErr != nil || changed {
			return runErr
		}
		if full := asFull(counters, answer); full != nil {
			return full
		}
		if len(answer) == 0 {
			return flows.ErrConflict
		}
		link, err = answer[0].(string), ctx.Err()
	}
	return err
}

// readString returns the string under a key, empty if there is none.
func (s redisSessions) readString(ctx context.Context, key string) (string, error) {
	get := redis.NewStringCmd(ctx, "get", key)
	err := s.at(ctx, key, func(p redisPlace) error { return p.do(ctx, get) })
	if errors.Is(err, redis.Nil) {
		return "", nil
	}
	return get.Val(), err
}

func (s redisSessions) Get(ctx context.Context, hash flows.TokenHash) (flows.Session, error) {
	var sess flows.Session
	err := s.call(ctx, "loading session", func(ctx context.Context) error {
		fields, err := s.readTwice(ctx, sessionKey(hash))
		if err != nil {
			return err
		}
		sess, err = decodeRedisSession(hash, fields)
		return err
	})
	return sess, err
}

// readTwice reads a Redis hash, with a second try where the first was not
// answered: reading changes nothing.
func (s redisSessions) readTwice(ctx context.Context, key string) (map[string]string, error) {
	read := func() (map[string]string, error) {
		get := redis.NewMapStringStringCmd(ctx, "hgetall", key)
		err := s.at(ctx, key, func(p redisPlace) error { return p.do(ctx, get) })
		return get.Val(), err
	}
	fields, err := read()
	if _, answered := errors.AsType[redis.Error](err); err == nil || answered {
		return fields, err
	}
	return read()
}

var replaceScript = newScript("replace")

func (s redisSessions) Replace(
	ctx context.Context, now time.Time, old flows.TokenHash, from flows.State, next flows.Session, counters ...flows.Counter,
) error {
	return s.call(ctx, "replacing session", func(ctx context.Context) error {
		fields, err := encodeRedisSession(next)
		if err != nil {
			return err
		}
		if counters, err = s.chargeElsewhere(ctx, now, counters); err != nil {
			return err
		}
		keys := append([]string{sessionKey(old), sessionKey(next.Hash)}, owner(next, "f", "i")...)
		args := append([]any{micros(now), string(from), old[:], s.channel(),
			next.Epoch, next.Hash[:], micros(next.Expires), ttl(now, next.Expires), stale(now)}, fields...)
		return s.charges(ctx, now, counters, replaceScript, keys, args)
	})
}

var deleteScript = newScript("delete")

func (s redisSessions) Delete(ctx context.Context, hash flows.TokenHash) error {
	return s.call(ctx, "ending session", func(ctx context.Context) error {
		keys, err := s.locate(ctx, hash)
		if err != nil {
			return err
		}
		return s.changes(ctx, flows.ErrNotFound, deleteScript, keys, hash[:], s.channel())
	})
}

// locate returns the keys of a session and its account's index. Whose session a
// hash is never changes.
func (s redisSessions) locate(ctx context.Context, hash flows.TokenHash) ([]string, error) {
	key := sessionKey(hash)
	get := redis.NewSliceCmd(ctx, "hmget", key, "c", "a")
	if err := s.at(ctx, key, func(p redisPlace) error { return p.do(ctx, get) }); err != nil {
		return nil, err
	}
	company, ok := get.Val()[0].(string)
	if !ok {
		return nil, flows.ErrNotFound
	}
	account, _ := get.Val()[1].(string)
	id, err := strconv.ParseInt(account, 10, 64)
	if err != nil {
		return nil, fmt.Errorf("decoding account: %w", err)
	}
	return append([]string{key}, owner(flows.Session{Company: company, Account: id}, "i")...), nil
}

var endScript = newScript("end")

// End ends the sessions it has read from the index. Those that came meanwhile
// are ended by a second script: the first one's fence lets no more come.
func (s redisSessions) End(ctx context.Context, now time.Time, e flows.Ending) error {
	if e.Account == 0 { // decoys are nobody's
		return nil
	}
	return s.call(ctx, "ending sessions", func(ctx context.Context) error {
		hashes, err := s.readIndex(ctx, e.Company, e.Account)
		for tries := 0; err == nil && tries < 2; tries++ {
			hashes, err = s.endThese(ctx, e, hashes)
			if len(hashes) == 0 {
				break
			}
		}
		return err
	})
}

func (s redisSessions) endThese(ctx context.Context, e flows.Ending, hashes []string) (others []string, err error) {
	keys := []string{accountKey("f", e.Company, e.Account), accountKey("i", e.Company, e.Account)}
	args := []any{e.Epoch, fenceLife.Milliseconds(), s.channel(), encodeEnding(e)}
	tag := bucketTag(flows.AccountBucket(e.Company, e.Account))
	for _, hash := range hashes {
		keys, args = append(keys, tag+"s"+hash), append(args, hash)
	}
	_, answer, err := s.run(ctx, endScript, keys, args...)
	for _, hash := range answer {
		others = append(others, hash.(string))
	}
	return others, err
}

func (s redisSessions) readIndex(ctx context.Context, company string, account int64) ([]string, error) {
	key := accountKey("i", company, account)
	index := redis.NewStringSliceCmd(ctx, "zrange", key, 0, -1)
	err := s.at(ctx, key, func(p redisPlace) error { return p.do(ctx, index) })
	return index.Val(), err
}

// A lost Touch ends a session early, no more.
var touchScript = newLooseScript("touch")

func (s redisSessions) Touch(ctx context.Context, now time.Time, hash flows.TokenHash, expires time.Time) error {
	return s.call(ctx, "touching session", func(ctx context.Context) error {
		keys, err := s.locate(ctx, hash)
		if err != nil {
			return err
		}
		return s.changes(ctx, flows.ErrNotFound, touchScript, keys,
			micros(now), micros(expires), flows.Keep.Milliseconds(), hash[:])
	})
}

func (s redisSessions) List(ctx context.Context, now time.Time, company string, account int64) ([]flows.Session, error) {
	var all []flows.Session
	err := s.call(ctx, "listing sessions", func(ctx context.Context) error {
		hashes, err := s.readIndex(ctx, company, account)
		// One that is replaced meanwhile is gone and its successor not yet
		// known; then the index, read again at last, has one more.
		for tries := 0; err == nil && tries < 3; tries++ {
			var after []string
			all, after, err = s.loadThese(ctx, company, account, hashes)
			if !slices.ContainsFunc(after, func(h string) bool { return !slices.Contains(hashes, h) }) {
				break
			}
			hashes = after
		}
		all = slices.DeleteFunc(all, func(s flows.Session) bool { return !s.Expires.After(now) })
		slices.SortFunc(all, func(a, b flows.Session) int {
			return cmp.Or(a.Created.Compare(b.Created), strings.Compare(a.ID, b.ID))
		})
		return err
	})
	return all, err
}

// loadThese returns the sessions under hashes that are there, and the index
// after they were read.
func (s redisSessions) loadThese(ctx context.Context, company string, account int64, hashes []string) ([]flows.Session, []string, error) {
	tag := bucketTag(flows.AccountBucket(company, account))
	var commands []redis.Cmder
	for _, hash := range hashes {
		commands = append(commands, redis.NewMapStringStringCmd(ctx, "hgetall", tag+"s"+hash))
	}
	index := redis.NewStringSliceCmd(ctx, "zrange", accountKey("i", company, account), 0, -1)
	commands = append(commands, index)
	if err := s.at(ctx, tag, func(p redisPlace) error { return p.do(ctx, commands...) }); err != nil {
		return nil, nil, err
	}
	var all []flows.Session
	for i, hash := range hashes {
		read := commands[i].(*redis.MapStringStringCmd)
		sess, err := decodeRedisSession(flows.TokenHash([]byte(hash)), read.Val())
		switch err := cmp.Or(read.Err(), err); {
		case err == nil:
			all = append(all, sess)
		case !errors.Is(err, flows.ErrNotFound):
			return nil, nil, err
		}
	}
	return all, index.Val(), index.Err()
}

// Codes

var openCodeScript = newScript("opencode")

func (s redisSessions) OpenCode(ctx context.Context, now time.Time, hash flows.TokenHash, state flows.State) (int64, error) {
	var number int64
	err := s.call(ctx, "opening code", func(ctx context.Context) error {
		changed, answer, err := s.run(ctx, openCodeScript, []string{sessionKey(hash)}, micros(now), string(state))
		if err != nil {
			return err
		}
		if !changed {
			return flows.ErrConflict
		}
		number = answer[0].(int64)
		return nil
	})
	return number, err
}

var setCodeScript = newScript("setcode")

func (s redisSessions) SetCode(ctx context.Context, hash flows.TokenHash, number int64, code flows.Code) error {
	return s.call(ctx, "setting code", func(ctx context.Context) error {
		return s.changes(ctx, flows.ErrConflict, setCodeScript, []string{sessionKey(hash)},
			append([]any{number}, encodeRedisCode(code)...)...)
	})
}

var spendCodeScript = newScript("spendcode")

func (s redisSessions) SpendCode(
	ctx context.Context, now time.Time, company string, hash flows.TokenHash, state flows.State, counters ...flows.Counter,
) (flows.Session, error) {
	var sess flows.Session
	err := s.call(ctx, "spending code", func(ctx context.Context) (err error) {
		counters = looks(counters)
		var full error
		if s.cluster != nil {
			full, counters = s.count(ctx, now, counters), nil
			if full != nil && !isAnswer(full) {
				return full
			}
		}
		sess, err = s.spendCode(ctx, now, company, hash, state, full == nil, counters)
		if err == nil && full != nil && spendable(sess, now, company, state) {
			err = full
		}
		return err
	})
	return sess, err
}

// spendable reports whether a session's code may be spent.
func spendable(s flows.Session, now time.Time, company string, state flows.State) bool {
	return s.Company == company && s.State == state && s.Expires.After(now)
}

// spendCode loads a session and, if it may, takes the code.
func (s redisSessions) spendCode(
	ctx context.Context, now time.Time, company string, hash flows.TokenHash, state flows.State, may bool, counters []flows.Counter,
) (flows.Session, error) {
	take := 0
	if may {
		take = 1
	}
	keys, args := addCounters([]string{sessionKey(hash)}, []any{micros(now), company, string(state), take}, now, counters)
	taken, answer, err := s.run(ctx, spendCodeScript, keys, args...)
	if err != nil {
		return flows.Session{}, err
	}
	fields := map[string]string{}
	list := answer[0].([]any)
	for i := 0; i+1 < len(list); i += 2 {
		fields[list[i].(string)] = list[i+1].(string)
	}
	sess, err := decodeRedisSession(hash, fields)
	if err != nil {
		return flows.Session{}, err
	}
	if !taken {
		sess.Code = nil
	}
	return sess, asFull(counters, answer[1:])
}

// Counters

var (
	chargeScript = newScript("count")
	// To look waits for no replicas.
	peekScript = newLooseScript("count")
)

func (s redisSessions) Charge(ctx context.Context, now time.Time, counters ...flows.Counter) error {
	return s.call(ctx, "charging counters", func(ctx context.Context) error {
		return s.count(ctx, now, counters)
	})
}

func (s redisSessions) Peek(ctx context.Context, now time.Time, counters ...flows.Counter) error {
	return s.call(ctx, "reading counters", func(ctx context.Context) error {
		return s.count(ctx, now, looks(counters))
	})
}

// looks are the counters, all of them only to be looked at.
func looks(counters []flows.Counter) []flows.Counter {
	counters = slices.Clone(counters)
	for i := range counters {
		counters[i].Look = true
	}
	return counters
}

func (s redisSessions) count(ctx context.Context, now time.Time, counters []flows.Counter) error {
	if len(counters) == 0 {
		return nil
	}
	script := peekScript
	if slices.ContainsFunc(counters, func(c flows.Counter) bool { return !c.Look }) {
		script = chargeScript
	}
	keys, args := addCounters(nil, nil, now, counters)
	changed, answer, err := s.run(ctx, script, keys, args...)
	if err == nil && !changed {
		err = asFull(counters, answer)
	}
	return err
}

// addCounters adds what the function counters in common.lua takes off again.
func addCounters(keys []string, args []any, now time.Time, counters []flows.Counter) ([]string, []any) {
	for _, c := range counters {
		add := 1
		if c.Look {
			add = 0
		}
		keys = append(keys, counterTag(c.Key)+"c"+c.Key)
		args = append(args, c.Limit, c.Window.Microseconds(), add)
	}
	return keys, append(args, micros(now), flows.Keep.Milliseconds(), len(counters))
}

// asFull makes a Full error of a script's answer, if it is one.
func asFull(counters []flows.Counter, answer []any) error {
	if len(answer) != 2 {
		return nil
	}
	full := counters[answer[0].(int64)-1]
	return &flows.Full{Key: full.Key, Until: fromMicros(answer[1].(int64))}
}

// Sweep has nothing to do: Redis clears away by itself.
func (s redisSessions) Sweep(ctx context.Context, _ time.Time) error { return ctx.Err() }

// Encoding

// encodeRedisSession returns a session as the fields of a Redis hash, whose
// names are one letter long: with short values too, all of it takes one small
// piece of memory. What is empty is left out. An older node ignores fields that
// it does not know, and leaves them as they are.
//
//	i id          c company   a account    m mnemocode   l login id   e epoch
//	s state       d disclaimers accepted   b begun       x expires    n ends
//	k code hash   p phone     t code expires             r how often OpenCode was called
func encodeRedisSession(s flows.Session) ([]any, error) {
	fields := []any{"c", s.Company, "a", s.Account, "e", s.Epoch, "s", string(s.State),
		"b", micros(s.Created), "x", micros(s.Expires), "n", micros(s.Ends)}
	for name, value := range map[string]string{"i": s.ID, "m": s.Mnemocode, "l": s.LoginID} {
		if value != "" {
			fields = append(fields, name, value)
		}
	}
	if len(s.Accepted) > 0 {
		accepted, err := encodeAcceptances(s.Accepted)
		if err != nil {
			return nil, err
		}
		fields = append(fields, "d", accepted)
	}
	if s.Code != nil {
		fields = append(fields, encodeRedisCode(*s.Code)...)
	}
	return fields, nil
}

func encodeRedisCode(c flows.Code) []any {
	return []any{"k", c.Hash[:], "p", c.Phone, "t", micros(c.Expires)}
}

// decodeRedisSession answers ErrNotFound where there are no fields.
func decodeRedisSession(hash flows.TokenHash, fields map[string]string) (flows.Session, error) {
	if len(fields) == 0 {
		return flows.Session{}, flows.ErrNotFound
	}
	d := redisDecoder{fields: fields}
	s := flows.Session{
		Hash: hash, ID: fields["i"], Company: fields["c"], Account: d.number("a"), Mnemocode: fields["m"],
		LoginID: fields["l"], Epoch: d.number("e"), State: flows.State(fields["s"]),
		Created: d.time("b"), Expires: d.time("x"), Ends: d.time("n"),
	}
	if accepted, ok := fields["d"]; ok && d.err == nil {
		s.Accepted, d.err = decodeAcceptances([]byte(accepted))
	}
	if code, ok := fields["k"]; ok && d.err == nil {
		s.Code, d.err = decodeRedisCode(code, fields["p"], fields["t"])
	}
	if d.err != nil {
		return flows.Session{}, fmt.Errorf("decoding session: %w", d.err)
	}
	return s, nil
}

func decodeRedisCode(hash, phone, expires string) (*flows.Code, error) {
	d := redisDecoder{fields: map[string]string{"t": expires}}
	code := &flows.Code{Phone: phone, Expires: d.time("t")}
	if copy(code.Hash[:], hash) != len(code.Hash) {
		return nil, errors.New("a code's hash is cut")
	}
	return code, d.err
}

// A redisDecoder reads fields and keeps the first error.
type redisDecoder struct {
	fields map[string]string
	err    error
}

func (d *redisDecoder) number(name string) int64 {
	n, err := strconv.ParseInt(d.fields[name], 10, 64)
	d.err = cmp.Or(d.err, err)
	return n
}

func (d *redisDecoder) time(name string) time.Time { return fromMicros(d.number(name)) }
