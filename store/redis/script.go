package redis

import (
	"context"
	"crypto/fips140"
	"embed"
	"fmt"
	"strings"

	goredis "github.com/redis/go-redis/v9"
)

//go:embed lua/*.lua
var luaFiles embed.FS

// A script makes a change in one atomic step.
type script struct {
	source string
	sha    string
	// noWait scripts do not WAIT for replicas: they change nothing, or a change that may
	// be lost.
	noWait bool
}

func newScript(name string) *script {
	var source strings.Builder
	for _, file := range []string{"common", name} {
		text, err := luaFiles.ReadFile("lua/" + file + ".lua")
		if err != nil {
			panic(err) // the binary was built without the file
		}
		source.Write(text)
	}
	s := &script{source: source.String()}
	// Redis names a script by its SHA-1. Nothing relies on it for security.
	fips140.WithoutEnforcement(func() { s.sha = goredis.NewScript(s.source).Hash() })
	return s
}

func newNoWaitScript(name string) *script {
	s := newScript(name)
	s.noWait = true
	return s
}

// run runs a script. It returns whether the script changed something, and the rest
// of its answer. It never retries: after an error the change may have been made,
// with only the answer lost.
func (r *Store) run(ctx context.Context, s *script, keys []string, args ...any) (changed bool, answer []any, err error) {
	err = r.at(ctx, keys[0], func(p location) error {
		changed, answer, err = r.runAt(ctx, p, s, keys, args)
		return err
	})
	return changed, answer, err
}

func (r *Store) runAt(ctx context.Context, p location, s *script, keys []string, args []any) (bool, []any, error) {
	changed, answer, err := r.eval(ctx, p, s, append([]any{"evalsha", s.sha, len(keys)}, scriptArgs(keys, args)...))
	if goredis.HasErrorPrefix(err, "NOSCRIPT") {
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

// eval sends the command that runs a script, and waits until the replicas have the
// change.
func (r *Store) eval(ctx context.Context, p location, s *script, command []any) (bool, []any, error) {
	eval := goredis.NewSliceCmd(ctx, command...)
	if r.wait == 0 || s.noWait {
		if err := p.do(ctx, eval); err != nil {
			return false, nil, err
		}
		return scriptAnswer(eval)
	}
	conn := p.Conn() // WAIT covers only changes made on the same connection
	defer conn.Close()
	if err := p.doOn(ctx, conn, eval); err != nil {
		return false, nil, err
	}
	changed, answer, err := scriptAnswer(eval)
	if err != nil || !changed {
		return false, answer, err
	}
	// conn.Wait would wait ten seconds longer than asked.
	wait := goredis.NewIntCmd(ctx, "wait", r.wait, r.limits.Replicas.Milliseconds())
	if err := conn.Process(ctx, wait); err != nil {
		return false, nil, fmt.Errorf("%w: %w", errReplicas, err)
	}
	if wait.Val() < int64(r.wait) {
		return false, nil, errReplicas
	}
	return true, answer, nil
}

func scriptAnswer(eval *goredis.SliceCmd) (changed bool, answer []any, err error) {
	if len(eval.Val()) == 0 {
		return false, nil, errSilent
	}
	return eval.Val()[0] == int64(1), eval.Val()[1:], nil
}
