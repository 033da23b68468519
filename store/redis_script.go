package store

import (
	"context"
	"embed"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"
)

//go:embed lua/*.lua
var luaFiles embed.FS

// A script changes something in one step.
type script struct {
	source string
	sha    string
	// loose: not worth waiting for replicas.
	loose bool
}

func newScript(name string) *script {
	var source strings.Builder
	for _, file := range []string{"common", name} {
		text, err := luaFiles.ReadFile("lua/" + file + ".lua")
		if err != nil {
			panic(err) // the binary was built without it
		}
		source.Write(text)
	}
	return &script{source: source.String(), sha: redis.NewScript(source.String()).Hash()}
}

func newLooseScript(name string) *script {
	s := newScript(name)
	s.loose = true
	return s
}

// run runs a script and returns whether it changed something and what else it
// answered. It is never run twice: an error may mean that the change was made
// and only its answer lost.
func (r *Redis) run(ctx context.Context, s *script, keys []string, args ...any) (changed bool, answer []any, err error) {
	err = r.at(ctx, keys[0], func(p redisPlace) error {
		changed, answer, err = r.runAt(ctx, p, s, keys, args)
		return err
	})
	return changed, answer, err
}

func (r *Redis) runAt(ctx context.Context, p redisPlace, s *script, keys []string, args []any) (bool, []any, error) {
	changed, answer, err := r.eval(ctx, p, s, append([]any{"evalsha", s.sha, len(keys)}, scriptArgs(keys, args)...))
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		return r.eval(ctx, p, s, append([]any{"eval", s.source, len(keys)}, scriptArgs(keys, args)...))
	}
	return changed, answer, err
}

func scriptArgs(keys []string, args []any) []any {
	all := make([]any, 0, len(keys)+len(args))
	for _, k := range keys {
		all = append(all, k)
	}
	return append(all, args...)
}

// eval sends the command that runs a script, and waits for the replicas to have
// what it changed.
func (r *Redis) eval(ctx context.Context, p redisPlace, s *script, command []any) (bool, []any, error) {
	if r.wait == 0 || s.loose {
		eval := redis.NewSliceCmd(ctx, command...)
		if err := p.do(ctx, eval); err != nil {
			return false, nil, err
		}
		return scriptAnswer(eval)
	}
	conn := p.Conn() // a server waits for the changes of the connection that asks it to
	defer conn.Close()
	eval := redis.NewSliceCmd(ctx, command...)
	if err := p.doOn(ctx, conn, eval); err != nil {
		return false, nil, err
	}
	changed, answer, err := scriptAnswer(eval)
	if err != nil || !changed {
		return false, answer, err
	}
	// Not conn.Wait, which would wait for ten seconds more than asked.
	wait := redis.NewIntCmd(ctx, "wait", r.wait, redisWait.Milliseconds())
	if err := conn.Process(ctx, wait); err != nil {
		return false, nil, fmt.Errorf("waiting for replicas: %w", err)
	}
	if wait.Val() < int64(r.wait) {
		return false, nil, errRedisReplicas
	}
	return true, answer, nil
}

func scriptAnswer(eval *redis.SliceCmd) (changed bool, answer []any, err error) {
	if len(eval.Val()) == 0 {
		return false, nil, errRedisSilent
	}
	return eval.Val()[0] == int64(1), eval.Val()[1:], nil
}
