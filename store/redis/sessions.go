package redis

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/mnemogate/mnemogate/flows/record"
)

// sessions implements record.Sessions for Redis. A session counts as expired
// from the time Expires on. Redis deletes it when it has been expired for
// record.KeepExpired.
//
// Each key begins with its tag. The keys are:
//
//	s<hash>                       a session, a Redis hash (see encodeSession)
//	r<hash>                       what Revoked returns of a session
//	i<state>/<company>/<account>  the account's sessions in a state, a sorted set of hashes, oldest first
//	f<company>/<account>          the account's revocation marker: sessions of a lower generation are refused
//	f<company>/0                  the company's marker, in each bucket: sessions of a lower company generation
//	                              count as revoked
//	l<company>/<account>          the hash of the account's mailed link
//	c<key>                        a counter: n is its count, u the time when its window ends
//	o<name>                       an answer that clients may ask for again: h is who claimed it, u until when it
//	                              is kept, a the answer itself
//	h                             a random name that the bucket's data got when they were empty (see Run)
//
// A decoy has only the session key.
type sessions struct{ *Store }

// bucketTags returns the tag of each bucket, by its number.
func bucketTags(deployment string) []string {
	var tags []string
	for bucket := range record.Buckets {
		tags = append(tags, "{mg:"+deployment+strconv.Itoa(bucket)+"}")
	}
	return tags
}

func (r *Store) sessionKey(hash record.TokenHash) string {
	return r.tags[hash.Bucket()] + "s" + string(hash[:])
}

// accountKey returns a key of kind f or l, or of kind i with a state.
func (r *Store) accountKey(kind, company string, account int64) string {
	return r.tags[record.AccountBucket(company, account)] + kind + company + "/" + strconv.FormatInt(account, 10)
}

// companyMarker returns the key of a company's revocation marker in a bucket.
func (r *Store) companyMarker(bucket int, company string) string {
	return r.tags[bucket] + "f" + company + "/0"
}

func indexKind(state record.State) string { return "i" + string(state) + "/" }

// counterTag returns the tag of a counter: that of its company, or an empty one for
// counters that all companies share. With one tag, one script can charge several
// counters exactly. The price is that all counters of a company are on one node of a
// Cluster. A node can charge some 100,000 a second; to hash that many passwords
// would take thousands of CPUs.
func (r *Store) counterTag(key string) string {
	return "{mg:" + r.deployment + key[:max(0, strings.IndexByte(key, '/'))] + "}"
}

// channel returns the channel on which revocations are published. A message is "d"
// and the hash of a session, or "a" and a revocation (see encodeRevocation).
// Clients of every database receive it.
func (r *Store) channel() string {
	return strings.TrimSuffix("mnemogate:"+strconv.Itoa(r.db)+":"+r.deployment, ":")
}

// ttl returns how long Redis keeps a session, in milliseconds. It uses only the
// caller's clock.
func ttl(now, expires time.Time) int64 {
	return (max(expires.Sub(now), 0) + record.KeepExpired + time.Millisecond).Milliseconds()
}

var createScript = newScript("create")

func (s sessions) Create(ctx context.Context, now time.Time, sess record.Session, counters ...record.Counter) error {
	return s.call(ctx, "sessions.create: creating session", func(ctx context.Context) error {
		counters, err := s.chargeOnOtherServers(ctx, now, counters)
		if err != nil {
			return err
		}
		kinds := []string{"f", indexKind(sess.State)}
		if sess.State == record.MailedLink {
			kinds = append(kinds, "l")
		}
		keys := append([]string{s.sessionKey(sess.Hash), s.companyMarker(sess.Hash.Bucket(), sess.Company)}, s.owner(sess, kinds...)...)
		args := append([]any{sess.Generation, sess.CompanyGeneration, sess.Hash[:], record.Micros(sess.Created), ttl(now, sess.Expires), sess.AtMost,
			record.Micros(now), s.channel()}, encodeSession(sess)...)
		return s.store(ctx, now, sess, counters, createScript, keys, args)
	})
}

// chargeOnOtherServers charges the counters if the store is a Cluster, where they may be
// on another server than the session. It returns the counters that are left for the
// session's script.
func (s sessions) chargeOnOtherServers(ctx context.Context, now time.Time, counters []record.Counter) ([]record.Counter, error) {
	if s.cluster == nil {
		return counters, nil
	}
	return nil, s.count(ctx, now, counters)
}

// store runs a script that stores a session and charges counters. If the script
// changes nothing, a counter was full or there was a conflict. It tells sess.Displaced
// which sessions were revoked to make room, and the feed also which had expired.
func (s sessions) store(
	ctx context.Context, now time.Time, sess record.Session, counters []record.Counter, script *script, keys []string, args []any,
) error {
	keys, args = s.addCounters(keys, args, now, counters)
	changed, answer, err := s.run(ctx, script, keys, args...)
	if err != nil {
		return err
	}
	if !changed {
		return cmp.Or(asFull(counters, answer), record.ErrConflict)
	}
	for gone := range slices.Chunk(answer, 2) { // see make_room in lua/common.lua
		if feed := s.feed.Load(); feed != nil {
			(*feed).Ended(record.TokenHash([]byte(gone[0].(string))))
		}
		if id := gone[1].(string); id != "" && sess.Displaced != nil {
			sess.Displaced(id)
		}
	}
	return nil
}

// owner returns keys of the session's account. A decoy has none.
func (r *Store) owner(s record.Session, kinds ...string) []string {
	if s.Account == 0 {
		return nil
	}
	var keys []string
	for _, kind := range kinds {
		keys = append(keys, r.accountKey(kind, s.Company, s.Account))
	}
	return keys
}

// change is a call that runs a script. It returns otherwise if the script changes nothing.
func (s sessions) change(ctx context.Context, what string, otherwise error, script *script, keys []string, args ...any) error {
	return s.call(ctx, what, func(ctx context.Context) error {
		changed, _, err := s.run(ctx, script, keys, args...)
		if err == nil && !changed {
			return otherwise
		}
		return err
	})
}

func (s sessions) Get(ctx context.Context, hash record.TokenHash) (record.Session, error) {
	return s.get(ctx, "sessions.get: loading session", hash, s.sessionKey(hash))
}

func (s sessions) Revoked(ctx context.Context, hash record.TokenHash) (record.Session, error) {
	return s.get(ctx, "sessions.revoked: loading revoked session", hash, s.tags[hash.Bucket()]+"r"+string(hash[:]))
}

func (s sessions) get(ctx context.Context, what string, hash record.TokenHash, key string) (record.Session, error) {
	var sess record.Session
	err := s.call(ctx, what, func(ctx context.Context) error {
		fields, err := s.readWithRetry(ctx, hash, key)
		if err != nil {
			return err
		}
		sess, err = decodeSession(hash, fields)
		return err
	})
	return sess, err
}

var getScript = newNoWaitScript("get")

// readWithRetry reads a session and tries again if the server did not answer. That is
// safe, because reading changes nothing.
func (s sessions) readWithRetry(ctx context.Context, hash record.TokenHash, key string) (map[string]string, error) {
	read := func() (map[string]string, error) {
		var get *goredis.MapStringStringCmd
		moving := false
		err := s.at(ctx, key, func(p location) error {
			get = goredis.NewMapStringStringCmd(ctx, "evalsha", getScript.sha, 1, key)
			err := p.do(ctx, get)
			if goredis.HasErrorPrefix(err, "NOSCRIPT") {
				get = goredis.NewMapStringStringCmd(ctx, "eval", getScript.source, 1, key)
				err = p.do(ctx, get)
			}
			moving = p.asking || goredis.HasErrorPrefix(err, "Script attempted to access a non local key")
			return err
		})
		if moving {
			return s.readMoving(ctx, hash, key)
		}
		if err != nil {
			return nil, err
		}
		if get.Val() == nil {
			return nil, errSilent
		}
		return get.Val(), nil
	}
	fields, err := read()
	if _, answered := errors.AsType[goredis.Error](err); err == nil || answered {
		return fields, err
	}
	return read()
}

// readMoving reads a session whose slot is moving between two servers of a Cluster. Each
// has only some of its keys, so a script may not find the company's marker. A command of
// its own does.
func (s sessions) readMoving(ctx context.Context, hash record.TokenHash, key string) (map[string]string, error) {
	var session *goredis.MapStringStringCmd
	err := s.at(ctx, key, func(p location) error {
		session = goredis.NewMapStringStringCmd(ctx, "hgetall", key)
		return p.do(ctx, session)
	})
	d := decoder{fields: session.Val()}
	if err != nil || len(d.fields) == 0 {
		return nil, err
	}
	marker := s.companyMarker(hash.Bucket(), d.fields["c"])
	var ended *goredis.StringCmd
	err = s.at(ctx, marker, func(p location) error {
		ended = goredis.NewStringCmd(ctx, "get", marker)
		return p.do(ctx, ended)
	})
	if errors.Is(err, goredis.Nil) {
		return d.fields, nil
	}
	generation, err := ended.Int64()
	if err != nil || generation > d.optional("y") {
		return nil, err
	}
	return d.fields, d.err
}

var replaceScript = newScript("replace")

func (s sessions) Replace(
	ctx context.Context, now time.Time, old record.TokenHash, from record.State, next record.Session, counters ...record.Counter,
) error {
	return s.call(ctx, "sessions.replace: replacing session", func(ctx context.Context) error {
		counters, err := s.chargeOnOtherServers(ctx, now, counters)
		if err != nil {
			return err
		}
		keys := append([]string{s.sessionKey(old), s.sessionKey(next.Hash), s.companyMarker(next.Hash.Bucket(), next.Company)},
			s.owner(next, "f", indexKind(next.State))...)
		args := append([]any{record.Micros(now), string(from), old[:], s.channel(),
			next.Generation, next.CompanyGeneration, next.Hash[:], record.Micros(next.Created), ttl(now, next.Expires), next.AtMost,
			string(next.Profile)}, encodeSession(next)...)
		return s.store(ctx, now, next, counters, replaceScript, keys, args)
	})
}

// indexes returns the keys of an account's sessions in these states.
func (s sessions) indexes(company string, account int64, states []record.State) []string {
	var keys []string
	for _, state := range states {
		keys = append(keys, s.accountKey(indexKind(state), company, account))
	}
	return keys
}

// If a Touch is lost, the session only expires earlier.
var touchScript = newNoWaitScript("touch")

func (s sessions) Touch(ctx context.Context, now time.Time, hash record.TokenHash, expires time.Time) error {
	return s.change(ctx, "sessions.touch: touching session", record.ErrNotFound, touchScript, []string{s.sessionKey(hash)},
		record.Micros(now), record.Micros(expires), record.KeepExpired.Milliseconds())
}

var raiseScript = newScript("raise")

func (s sessions) Raise(ctx context.Context, now time.Time, hash record.TokenHash, from, to record.Profile) error {
	args := []any{record.Micros(now), string(record.Authorized), string(from), hash[:], s.channel()}
	return s.change(ctx, "sessions.raise: raising session", record.ErrConflict, raiseScript, []string{s.sessionKey(hash)},
		appendLong(args, "f", string(to))...)
}

var listScript = newNoWaitScript("list")

func (s sessions) List(ctx context.Context, now time.Time, company string, account int64) ([]record.Session, error) {
	var all []record.Session
	err := s.call(ctx, "sessions.list: listing sessions", func(ctx context.Context) error {
		_, answer, err := s.run(ctx, listScript, s.indexes(company, account, record.StoredStates), record.Micros(now))
		if err == nil {
			all, err = decodeSessions(answer)
		}
		return err
	})
	record.SortByAge(all)
	return all, err
}

// decodeSessions returns the sessions of an answer: hash, fields, …
func decodeSessions(answer []any) (all []record.Session, err error) {
	for pair := range slices.Chunk(answer, 2) {
		sess, err := decodeSession(record.TokenHash([]byte(pair[0].(string))), fields(pair[1]))
		if err != nil {
			return nil, err
		}
		all = append(all, sess)
	}
	return all, nil
}

// fields returns the fields of a Redis hash from a script's answer.
func fields(answer any) map[string]string {
	fields := map[string]string{}
	list := answer.([]any)
	for i := 0; i+1 < len(list); i += 2 {
		fields[list[i].(string)] = list[i+1].(string)
	}
	return fields
}

// Codes

var setCodeScript = newScript("setcode")

func (s sessions) SetCode(ctx context.Context, now time.Time, hash record.TokenHash, state record.State, code record.Code, onlyIfNone bool) error {
	return s.change(ctx, "sessions.set_code: setting code", record.ErrConflict, setCodeScript, []string{s.sessionKey(hash)},
		append([]any{record.Micros(now), string(state), onlyIfNone}, encodeCode(code)...)...)
}

var spendCodeScript = newScript("spendcode")

func (s sessions) SpendCode(
	ctx context.Context, now time.Time, company string, hash record.TokenHash, state record.State, counters ...record.Counter,
) (sess record.Session, err error) {
	err = s.call(ctx, "sessions.spend_code: spending code", func(ctx context.Context) error {
		counters = record.CheckOnly(counters...)
		var full error
		if s.cluster != nil {
			full, counters = s.count(ctx, now, counters), nil
			if full != nil && !record.IsAnswer(full) {
				return full
			}
		}
		keys, args := s.addCounters([]string{s.sessionKey(hash)}, []any{record.Micros(now), company, string(state), full == nil}, now, counters)
		taken, answer, err := s.run(ctx, spendCodeScript, keys, args...)
		if err != nil {
			return err
		}
		if sess, err = decodeSession(hash, fields(answer[0])); err != nil {
			return err
		}
		if !taken {
			sess.Code = nil
		}
		err = asFull(counters, answer[1:])
		if err == nil && full != nil && sess.Company == company && sess.State == state && sess.Expires.After(now) {
			err = full // otherwise there is no code to spend
		}
		return err
	})
	return sess, err
}

// Counters

var (
	chargeScript = newScript("count")
	lookScript   = newNoWaitScript("count") // for counters that are only read
)

func (s sessions) Charge(ctx context.Context, now time.Time, counters ...record.Counter) error {
	return s.call(ctx, "sessions.charge: charging counters", func(ctx context.Context) error {
		return s.count(ctx, now, counters)
	})
}

func (s sessions) count(ctx context.Context, now time.Time, counters []record.Counter) error {
	if len(counters) == 0 {
		return nil
	}
	script := lookScript
	if record.Charges(counters) {
		script = chargeScript
	}
	keys, args := s.addCounters(nil, nil, now, counters)
	changed, answer, err := s.run(ctx, script, keys, args...)
	if err == nil && !changed {
		err = asFull(counters, answer)
	}
	return err
}

// If a Refund is lost, the counter is only full earlier.
var refundScript = newNoWaitScript("refund")

func (s sessions) Refund(ctx context.Context, now time.Time, counters ...record.Counter) error {
	if len(counters) == 0 {
		return ctx.Err()
	}
	var keys []string
	for _, c := range counters {
		keys = append(keys, s.counterTag(c.Key)+"c"+c.Key)
	}
	return s.change(ctx, "sessions.refund: refunding counters", nil, refundScript, keys, record.Micros(now))
}

// addCounters appends the arguments that the function counters in common.lua
// removes.
func (r *Store) addCounters(keys []string, args []any, now time.Time, counters []record.Counter) ([]string, []any) {
	for _, c := range counters {
		keys = append(keys, r.counterTag(c.Key)+"c"+c.Key)
		args = append(args, c.Limit, c.Window.Microseconds(), !c.CheckOnly)
	}
	return keys, append(args, record.Micros(now), record.KeepExpired.Milliseconds(), len(counters))
}

// asFull returns a FullError if a script's answer says that a counter is full, or
// nil.
func asFull(counters []record.Counter, answer []any) error {
	if len(answer) != 2 {
		return nil
	}
	full := counters[answer[0].(int64)-1]
	return &record.FullError{Key: full.Key, Limit: full.Limit, Until: record.FromMicros(answer[1].(int64))}
}

// Sweep does nothing but check ctx: Redis deletes expired keys itself.
func (s sessions) Sweep(ctx context.Context, _ time.Time) error { return ctx.Err() }

// Encoding

// encodeSession returns a session as the fields of a Redis hash. Field names
// have one letter and values are short, so that Redis keeps the hash in its compact
// form. Empty values are left out. A node of another version ignores fields that it does
// not know, and leaves them as they are.
//
//	i id          c company   a account    m mnemocode   l login id   e session generation
//	s state       d disclaimers accepted   b created     x expires    n ends
//	k code hash   p phone     t code expires
//	o 1: no code was sent                  y company generation       v last used
//	w address     u user agent             f profile     g device
func encodeSession(s record.Session) []any {
	fields := []any{"c", s.Company, "a", s.Account, "e", s.Generation, "s", string(s.State),
		"b", record.Micros(s.Created), "x", record.Micros(s.Expires), "n", record.Micros(s.Ends)}
	if s.CompanyGeneration != 0 {
		fields = append(fields, "y", s.CompanyGeneration)
	}
	if !s.LastUsed.IsZero() {
		fields = append(fields, "v", record.Micros(s.LastUsed))
	}
	for name, value := range map[string]string{"i": s.ID, "m": s.Mnemocode, "l": s.LoginID, "w": s.Address, "g": s.Device} {
		if value != "" {
			fields = append(fields, name, value)
		}
	}
	fields = appendLong(fields, "u", s.UserAgent)
	fields = appendLong(fields, "f", string(s.Profile))
	if len(s.Accepted) > 0 {
		fields = append(fields, "d", record.EncodeAcceptances(s.Accepted))
	}
	if s.Code != nil {
		fields = append(fields, encodeCode(*s.Code)...)
	}
	if s.NoCode {
		fields = append(fields, "o", 1)
	}
	return fields
}

// short is the length in bytes of the longest value with which Redis keeps a
// hash in its compact form (hash-max-listpack-value).
const short = 64

// appendLong appends a text in pieces. With the name u, they are u, u1, u2 and so on.
func appendLong(fields []any, name, text string) []any {
	for i, next := 1, name; text != ""; i, next = i+1, name+strconv.Itoa(i) {
		piece := text[:min(short, len(text))]
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

func encodeCode(c record.Code) []any {
	return []any{"k", c.Hash[:], "p", c.Phone, "t", record.Micros(c.Expires)}
}

// decodeSession returns ErrNotFound if there are no fields.
func decodeSession(hash record.TokenHash, fields map[string]string) (record.Session, error) {
	if len(fields) == 0 {
		return record.Session{}, record.ErrNotFound
	}
	d := decoder{fields: fields}
	s := record.Session{
		Hash: hash, ID: fields["i"], Company: fields["c"], Account: d.number("a"), Mnemocode: fields["m"],
		LoginID: fields["l"], Generation: d.number("e"), State: record.State(fields["s"]),
		Created: d.time("b"), Expires: d.time("x"), Ends: d.time("n"),
		CompanyGeneration: d.optional("y"), LastUsed: record.FromMicros(d.optional("v")), Address: fields["w"], Device: fields["g"],
		NoCode: fields["o"] == "1", UserAgent: longField(fields, "u"), Profile: record.Profile(longField(fields, "f")),
	}
	if accepted, ok := fields["d"]; ok && d.err == nil {
		s.Accepted, d.err = record.DecodeAcceptances([]byte(accepted))
	}
	if code, ok := fields["k"]; ok {
		s.Code = &record.Code{Phone: fields["p"], Expires: d.time("t")}
		if copy(s.Code.Hash[:], code) != len(s.Code.Hash) {
			d.err = cmp.Or(d.err, errors.New("a code's hash is cut"))
		}
	}
	if d.err != nil {
		return record.Session{}, fmt.Errorf("decoding session: %w", d.err)
	}
	return s, nil
}

// A decoder decodes fields and keeps the first error.
type decoder struct {
	fields map[string]string
	err    error
}

func (d *decoder) number(name string) int64 {
	n, err := strconv.ParseInt(d.fields[name], 10, 64)
	d.err = cmp.Or(d.err, err)
	return n
}

func (d *decoder) time(name string) time.Time { return record.FromMicros(d.number(name)) }

// optional returns a number that was left out if it is 0.
func (d *decoder) optional(name string) int64 {
	if _, ok := d.fields[name]; !ok {
		return 0
	}
	return d.number(name)
}
