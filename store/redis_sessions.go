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

	"github.com/mnemogate/mnemogate/flows/record"
)

// redisSessions is a Redis's record.Sessions. A session is expired at the moment
// it expires. Redis forgets by itself what has expired record.Keep ago.
//
// The keys, each with its tag before it:
//
//	s<hash>                       a session, a Redis hash (see encodeRedisSession)
//	r<hash>                       what Revoked returns of a session
//	i<state>/<company>/<account>  the account's sessions in a state, a sorted set of hashes, the oldest first
//	f<company>/<account>          the fence: sessions with a lower epoch are refused
//	f<company>/0                  the company's, in each bucket: those of a lower era are as good as gone
//	l<company>/<account>          the hash of the account's mailed link
//	c<key>                        a counter: n, its count, and u, until when
//	h                             a name that the bucket's data got when they were empty (see Run)
//
// Of decoys there is only the session.
type redisSessions struct{ *Redis }

// bucketTags returns the tag of each bucket, by its number.
func bucketTags(deployment string) []string {
	var tags []string
	for i := range 256 {
		if bucket := (record.TokenHash{byte(i)}).Bucket(); bucket == len(tags) {
			tags = append(tags, "{mg:"+deployment+strconv.Itoa(bucket)+"}")
		}
	}
	return tags
}

func (r *Redis) sessionKey(hash record.TokenHash) string {
	return r.tags[hash.Bucket()] + "s" + string(hash[:])
}

// accountKey makes a key of kind f or l, or i with a state.
func (r *Redis) accountKey(kind, company string, account int64) string {
	return r.tags[record.AccountBucket(company, account)] + kind + company + "/" + strconv.FormatInt(account, 10)
}

// companyFence is the key of a company's fence in a bucket.
func (r *Redis) companyMarker(bucket int, company string) string {
	return r.tags[bucket] + "f" + company + "/0"
}

func indexKind(state record.State) string { return "i" + string(state) + "/" }

// A counter's tag is its company's, empty for those that all share, so that one
// Charge of any of them is one script: exact, at the price that all counters of
// a company are on one node of a Cluster. That bears some 100,000 a second; the passwords that are hashed
// meanwhile keep thousands of CPUs busy.
func (r *Redis) counterTag(key string) string {
	return "{mg:" + r.deployment + key[:max(0, strings.IndexByte(key, '/'))] + "}"
}

// channel is what is told on when sessions end: "d" and the hashes, or "a" or
// "c" and whose (see encodeEnding). Redis tells it to clients of every database.
func (r *Redis) channel() string {
	return strings.TrimSuffix("mnemogate:"+strconv.Itoa(r.db)+":"+r.deployment, ":")
}

// ttl is how long a session is kept in Redis, in milliseconds. It depends on no
// clock but the caller's.
func ttl(now, expires time.Time) int64 {
	return (max(expires.Sub(now), 0) + record.Keep + time.Millisecond).Milliseconds()
}

var (
	createScript = newScript("create")
	linkScript   = newScript("link")
)

func (s redisSessions) Create(ctx context.Context, now time.Time, sess record.Session, counters ...record.Counter) error {
	return s.call(ctx, "creating session", func(ctx context.Context) error {
		fields, err := encodeRedisSession(sess)
		if err != nil {
			return err
		}
		if counters, err = s.chargeElsewhere(ctx, now, counters); err != nil {
			return err
		}
		script, kinds := createScript, []string{"f", indexKind(sess.State)}
		if sess.State == record.MailedLink && sess.Account != 0 {
			script, kinds = linkScript, append(kinds, "l")
		}
		keys := append([]string{s.sessionKey(sess.Hash), s.companyMarker(sess.Hash.Bucket(), sess.Company)}, s.owner(sess, kinds...)...)
		args := append([]any{sess.Generation, sess.CompanyGeneration, sess.Hash[:], micros(sess.Created), ttl(now, sess.Expires), sess.AtMost,
			micros(now), s.channel()}, fields...)
		return s.store(ctx, now, counters, script, keys, args)
	})
}

// chargeElsewhere charges counters that may lie on another server of a Cluster
// than a session, and returns those which are left for the session's script.
func (s redisSessions) chargeElsewhere(ctx context.Context, now time.Time, counters []record.Counter) ([]record.Counter, error) {
	if s.cluster == nil {
		return counters, nil
	}
	return nil, s.count(ctx, now, counters)
}

// store runs a script that stores a session and charges counters. One that
// changes nothing has met either a full counter or a conflict. What remembers
// sessions is told which of them had to make room.
func (s redisSessions) store(ctx context.Context, now time.Time, counters []record.Counter, script *script, keys []string, args []any) error {
	keys, args = s.addCounters(keys, args, now, counters)
	changed, answer, err := s.run(ctx, script, keys, args...)
	if err != nil {
		return err
	}
	if !changed {
		return cmp.Or(asFull(counters, answer), record.ErrConflict)
	}
	if feed := s.feed.Load(); feed != nil {
		for _, hash := range answer {
			(*feed).Ended(record.TokenHash([]byte(hash.(string))))
		}
	}
	return nil
}

// owner returns keys of a session's account, none for a decoy.
func (r *Redis) owner(s record.Session, kinds ...string) []string {
	if s.Account == 0 {
		return nil
	}
	var keys []string
	for _, kind := range kinds {
		keys = append(keys, r.accountKey(kind, s.Company, s.Account))
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

func (s redisSessions) Get(ctx context.Context, hash record.TokenHash) (record.Session, error) {
	return s.get(ctx, "loading session", hash, s.sessionKey(hash))
}

func (s redisSessions) Revoked(ctx context.Context, hash record.TokenHash) (record.Session, error) {
	return s.get(ctx, "loading revoked session", hash, s.tags[hash.Bucket()]+"r"+string(hash[:]))
}

func (s redisSessions) get(ctx context.Context, doing string, hash record.TokenHash, key string) (record.Session, error) {
	var sess record.Session
	err := s.call(ctx, doing, func(ctx context.Context) error {
		fields, err := s.readTwice(ctx, key)
		if err != nil {
			return err
		}
		sess, err = decodeRedisSession(hash, fields)
		return err
	})
	return sess, err
}

// To read waits for no replicas.
var getScript = newLooseScript("get")

// readTwice reads a session, with a second try where the first was not
// answered: reading changes nothing.
func (s redisSessions) readTwice(ctx context.Context, key string) (map[string]string, error) {
	read := func() (map[string]string, error) {
		var get *redis.MapStringStringCmd
		err := s.at(ctx, key, func(p redisPlace) error {
			get = redis.NewMapStringStringCmd(ctx, "evalsha", getScript.sha, 1, key)
			err := p.do(ctx, get)
			if redis.HasErrorPrefix(err, "NOSCRIPT") {
				get = redis.NewMapStringStringCmd(ctx, "eval", getScript.source, 1, key)
				err = p.do(ctx, get)
			}
			return err
		})
		if err != nil {
			return nil, err
		}
		if get.Val() == nil {
			return nil, errRedisSilent
		}
		return get.Val(), nil
	}
	fields, err := read()
	if _, answered := errors.AsType[redis.Error](err); err == nil || answered {
		return fields, err
	}
	return read()
}

var replaceScript = newScript("replace")

func (s redisSessions) Replace(
	ctx context.Context, now time.Time, old record.TokenHash, from record.State, next record.Session, counters ...record.Counter,
) error {
	return s.call(ctx, "replacing session", func(ctx context.Context) error {
		fields, err := encodeRedisSession(next)
		if err != nil {
			return err
		}
		if counters, err = s.chargeElsewhere(ctx, now, counters); err != nil {
			return err
		}
		keys := append([]string{s.sessionKey(old), s.sessionKey(next.Hash), s.companyMarker(next.Hash.Bucket(), next.Company)},
			s.owner(next, "f", indexKind(next.State))...)
		args := append([]any{micros(now), string(from), old[:], s.channel(),
			next.Generation, next.CompanyGeneration, next.Hash[:], micros(next.Created), ttl(now, next.Expires), next.AtMost}, fields...)
		return s.store(ctx, now, counters, replaceScript, keys, args)
	})
}

// indexes are the keys of an account's sessions in each state.
func (s redisSessions) indexes(company string, account int64) []string {
	return s.indexesOf(company, account, storedStates)
}

func (s redisSessions) indexesOf(company string, account int64, states []record.State) []string {
	var keys []string
	for _, state := range states {
		keys = append(keys, s.accountKey(indexKind(state), company, account))
	}
	return keys
}

// A lost Touch ends a session early, no more.
var touchScript = newLooseScript("touch")

func (s redisSessions) Touch(ctx context.Context, now time.Time, hash record.TokenHash, expires time.Time) error {
	return s.call(ctx, "touching session", func(ctx context.Context) error {
		return s.changes(ctx, record.ErrNotFound, touchScript, []string{s.sessionKey(hash)},
			micros(now), micros(expires), record.Keep.Milliseconds())
	})
}

var listScript = newLooseScript("list")

func (s redisSessions) List(ctx context.Context, now time.Time, company string, account int64) ([]record.Session, error) {
	var all []record.Session
	err := s.call(ctx, "listing sessions", func(ctx context.Context) error {
		_, answer, err := s.run(ctx, listScript, s.indexes(company, account), micros(now))
		for i := 0; err == nil && i+1 < len(answer); i += 2 {
			var sess record.Session
			hash := record.TokenHash([]byte(answer[i].(string)))
			sess, err = decodeRedisSession(hash, redisFields(answer[i+1]))
			all = append(all, sess)
		}
		return err
	})
	sortByAge(all)
	return all, err
}

// redisFields are those of a Redis hash in a script's answer.
func redisFields(answer any) map[string]string {
	fields := map[string]string{}
	list := answer.([]any)
	for i := 0; i+1 < len(list); i += 2 {
		fields[list[i].(string)] = list[i+1].(string)
	}
	return fields
}

// Codes

var openCodeScript = newScript("opencode")

func (s redisSessions) OpenCode(ctx context.Context, now time.Time, hash record.TokenHash, state record.State) (int64, error) {
	var number int64
	err := s.call(ctx, "opening code", func(ctx context.Context) error {
		changed, answer, err := s.run(ctx, openCodeScript, []string{s.sessionKey(hash)}, micros(now), string(state))
		if err != nil {
			return err
		}
		if !changed {
			return record.ErrConflict
		}
		number = answer[0].(int64)
		return nil
	})
	return number, err
}

var setCodeScript = newScript("setcode")

func (s redisSessions) SetCode(ctx context.Context, hash record.TokenHash, number int64, code record.Code) error {
	return s.call(ctx, "setting code", func(ctx context.Context) error {
		return s.changes(ctx, record.ErrConflict, setCodeScript, []string{s.sessionKey(hash)},
			append([]any{number}, encodeRedisCode(code)...)...)
	})
}

var spendCodeScript = newScript("spendcode")

func (s redisSessions) SpendCode(
	ctx context.Context, now time.Time, company string, hash record.TokenHash, state record.State, counters ...record.Counter,
) (record.Session, error) {
	var sess record.Session
	err := s.call(ctx, "spending code", func(ctx context.Context) (err error) {
		counters = record.Look(counters...)
		var full error
		if s.cluster != nil {
			full, counters = s.count(ctx, now, counters), nil
			if full != nil && !record.IsAnswer(full) {
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
func spendable(s record.Session, now time.Time, company string, state record.State) bool {
	return s.Company == company && s.State == state && s.Expires.After(now)
}

// spendCode loads a session and, if it may, takes the code.
func (s redisSessions) spendCode(
	ctx context.Context, now time.Time, company string, hash record.TokenHash, state record.State, may bool, counters []record.Counter,
) (record.Session, error) {
	take := 0
	if may {
		take = 1
	}
	keys, args := s.addCounters([]string{s.sessionKey(hash)}, []any{micros(now), company, string(state), take}, now, counters)
	taken, answer, err := s.run(ctx, spendCodeScript, keys, args...)
	if err != nil {
		return record.Session{}, err
	}
	sess, err := decodeRedisSession(hash, redisFields(answer[0]))
	if err != nil {
		return record.Session{}, err
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
	lookScript = newLooseScript("count")
)

func (s redisSessions) Charge(ctx context.Context, now time.Time, counters ...record.Counter) error {
	return s.call(ctx, "charging counters", func(ctx context.Context) error {
		return s.count(ctx, now, counters)
	})
}

func (s redisSessions) count(ctx context.Context, now time.Time, counters []record.Counter) error {
	if len(counters) == 0 {
		return nil
	}
	script := lookScript
	if slices.ContainsFunc(counters, isCharged) {
		script = chargeScript
	}
	keys, args := s.addCounters(nil, nil, now, counters)
	changed, answer, err := s.run(ctx, script, keys, args...)
	if err == nil && !changed {
		err = asFull(counters, answer)
	}
	return err
}

// addCounters adds what the function counters in common.lua takes off again.
func (r *Redis) addCounters(keys []string, args []any, now time.Time, counters []record.Counter) ([]string, []any) {
	for _, c := range counters {
		add := 1
		if c.Look {
			add = 0
		}
		keys = append(keys, r.counterTag(c.Key)+"c"+c.Key)
		args = append(args, c.Limit, c.Window.Microseconds(), add)
	}
	return keys, append(args, micros(now), record.Keep.Milliseconds(), len(counters))
}

// asFull makes a Full error of a script's answer, if it is one.
func asFull(counters []record.Counter, answer []any) error {
	if len(answer) != 2 {
		return nil
	}
	full := counters[answer[0].(int64)-1]
	return &record.Full{Key: full.Key, Until: fromMicros(answer[1].(int64))}
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
//	o 1: the code is the app's              y era         v last used
//	w address     u user agent             f profile
func encodeRedisSession(s record.Session) ([]any, error) {
	fields := []any{"c", s.Company, "a", s.Account, "e", s.Generation, "s", string(s.State),
		"b", micros(s.Created), "x", micros(s.Expires), "n", micros(s.Ends)}
	if s.CompanyGeneration != 0 {
		fields = append(fields, "y", s.CompanyGeneration)
	}
	if !s.LastUsed.IsZero() {
		fields = append(fields, "v", micros(s.LastUsed))
	}
	for name, value := range map[string]string{"i": s.ID, "m": s.Mnemocode, "l": s.LoginID, "w": s.Address} {
		if value != "" {
			fields = append(fields, name, value)
		}
	}
	fields = appendLong(fields, "u", s.UserAgent)
	fields = appendLong(fields, "f", string(s.Profile))
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
	if s.ByApp {
		fields = append(fields, "o", 1)
	}
	return fields, nil
}

// redisShort is how long a value can be, in bytes, that does not make Redis keep
// a hash in the larger of its two ways (hash-max-listpack-value).
const redisShort = 64

// appendLong adds a text in pieces, which are named u, u1, u2 and so on.
func appendLong(fields []any, name, text string) []any {
	for i, next := 1, name; text != ""; i, next = i+1, name+strconv.Itoa(i) {
		piece := text[:min(redisShort, len(text))]
		fields = append(fields, next, piece)
		text = text[len(piece):]
	}
	return fields
}

func longField(fields map[string]string, name string) string {
	text := fields[name]
	for i := 1; ; i++ {
		piece, ok := fields[name+strconv.Itoa(i)]
		if !ok {
			return text
		}
		text += piece
	}
}

func encodeRedisCode(c record.Code) []any {
	return []any{"k", c.Hash[:], "p", c.Phone, "t", micros(c.Expires)}
}

// decodeRedisSession answers ErrNotFound where there are no fields.
func decodeRedisSession(hash record.TokenHash, fields map[string]string) (record.Session, error) {
	if len(fields) == 0 {
		return record.Session{}, record.ErrNotFound
	}
	d := redisDecoder{fields: fields}
	s := record.Session{
		Hash: hash, ID: fields["i"], Company: fields["c"], Account: d.number("a"), Mnemocode: fields["m"],
		LoginID: fields["l"], Generation: d.number("e"), State: record.State(fields["s"]),
		Created: d.time("b"), Expires: d.time("x"), Ends: d.time("n"),
		CompanyGeneration: d.optional("y"), LastUsed: fromMicros(d.optional("v")), Address: fields["w"],
		ByApp: fields["o"] == "1", UserAgent: longField(fields, "u"), Profile: record.Profile(longField(fields, "f")),
	}
	if accepted, ok := fields["d"]; ok && d.err == nil {
		s.Accepted, d.err = decodeAcceptances([]byte(accepted))
	}
	if code, ok := fields["k"]; ok && d.err == nil {
		s.Code, d.err = decodeRedisCode(code, fields["p"], fields["t"])
	}
	if d.err != nil {
		return record.Session{}, fmt.Errorf("decoding session: %w", d.err)
	}
	return s, nil
}

func decodeRedisCode(hash, phone, expires string) (*record.Code, error) {
	d := redisDecoder{fields: map[string]string{"t": expires}}
	code := &record.Code{Phone: phone, Expires: d.time("t")}
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

// optional is a number that older nodes did not store.
func (d *redisDecoder) optional(name string) int64 {
	if _, ok := d.fields[name]; !ok {
		return 0
	}
	return d.number(name)
}
