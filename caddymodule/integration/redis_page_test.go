package integration

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/mnemogate/mnemogate/flows/wire"
	"github.com/mnemogate/mnemogate/store/storetest"
)

// With docs/examples/two-nodes/redis.conf, a session that was revoked after a
// rewrite of the append-only file stays revoked after Redis is killed and restarted.
// If the default user has no permissions, Redis 7.0 replays nothing after the
// rewrite.
func TestThePagesRedisKeepsWhatWasEnded(t *testing.T) {
	t.Parallel()
	var settings []string
	for line := range strings.Lines(string(get(os.ReadFile("../../docs/examples/two-nodes/redis.conf"))(t))) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			settings = append(settings, "--"+line)
		}
	}
	servers := sharedServers(t)
	servers.redis = storetest.StartRedis(t, settings...)
	admin := redis.NewClient(&redis.Options{Network: "unix", Addr: servers.redis.Socket(), Username: "admin", Password: "admin-password"})
	t.Cleanup(func() { _ = admin.Close() })
	url := "unix://mnemogate:mnemogate-password@" + servers.redis.Socket()
	s := servers.start(siteConfig{company: roomy + account("alice", "")}, strings.Replace(servers.direct(), servers.redis.URL(), url, 1))
	node := s.nodes[0]
	node.doctor(0, "does not let this user ask for the rights of the default user")

	token, kept := s.login("alice"), s.login("alice")
	must(t, admin.BgRewriteAOF(t.Context()).Err())
	storetest.Eventually(t, 20*time.Second, "a rewrite", func() bool {
		info := admin.Info(t.Context(), "persistence").Val()
		return strings.Contains(info, "aof_rewrites:1\r\n") && strings.Contains(info, "aof_rewrite_in_progress:0\r\n")
	})
	s.post("auth/logout", token, nil).wantStatus(200)
	servers.redis.Kill()
	must(t, servers.redis.Start())
	storetest.Eventually(t, 20*time.Second, "an answer of Redis", func() bool { return s.get("/", kept).Status == 200 })
	s.get("/", token).want(wire.ErrTokenInvalid)
}

// While Redis has no more memory, users can log out, and operators can revoke, as docs/many-nodes.md says.
func TestAFullRedisRevokes(t *testing.T) {
	t.Parallel()
	servers := sharedServers(t)
	s := servers.start(siteConfig{company: roomy + account("alice", "") + account("bob", "") + account("carol", "")}, servers.direct(), servers.direct())
	alice, bob, carol := s.login("alice"), s.login("bob"), s.login("carol")
	servers.redis.Ask(t, "config", "set", "maxmemory", "1")
	for _, token := range []string{alice, bob, carol} {
		s.get("/", token).wantStatus(200)
	}
	s.post("auth/logout", alice, nil).wantStatus(200)
	s.gone(alice)
	node := s.nodes[0]
	node.cli("", "account", "set", "bob", "--status", "closed").want(0)
	s.gone(bob)
	s.get("/", carol).wantStatus(200)
	node.cli("", "sessions", "end", "--all", "--company", "acme").want(0)
	s.gone(carol)
}

// The steps in "To restore" delete the keys of one deployment, whose prefix doctor
// shows, and no others.
func TestThePagesStepsEmptyRedis(t *testing.T) {
	t.Parallel()
	need(t, "redis-cli")
	page := section(t, "docs/many-nodes.md", "Backup and restore")
	page = regexp.MustCompile(`(?m)^   `).ReplaceAllString(page, "") // remove the indentation of list items
	steps, lines := consoleSteps(page), blocks(page, "sh")
	if len(steps) != 1 || len(lines) != 2 {
		t.Fatalf("the page shows %d consoles and %d lines", len(steps), len(lines))
	}
	prefix := regexp.MustCompile(`\{mg:[0-9a-f]{16}:`)

	ours := sharedServers(t)
	ours.redis = storetest.StartRedis(t, "--appendonly", "yes", "--maxmemory-policy", "noeviction") // a Redis without warnings
	other := &servers{t: t, postgres: ours.postgres, redis: ours.redis, schema: ours.postgres.NewSchema(t)}
	config := siteConfig{company: roomy + account("alice", "")}
	s, beside := ours.start(config, ours.direct()), other.start(config, other.direct())
	var before []string
	for range 50 { // some keys contain line breaks and quotes
		before = append(before, s.login("alice"))
	}
	kept := beside.login("alice")

	node := s.nodes[0]
	out := output(t, node.shell(steps[0].command))
	steps[0].compare(t, out, prefix)
	run := func(line string) string {
		t.Helper()
		line = prefix.ReplaceAllString(line, prefix.FindString(out))
		return output(t, exec.Command("sh", "-c", strings.ReplaceAll(line, "redis-cli", "redis-cli -s "+ours.redis.Socket())))
	}
	own := prefix.FindString(out)
	if listed := run(lines[0]); strings.Count(listed, "\n") != 2 || !strings.Contains(listed, own) {
		t.Errorf("the deployments are %s", listed)
	}
	node.stop(syscall.SIGTERM)
	run(lines[1])
	if listed := run(lines[0]); strings.Count(listed, "\n") != 1 || strings.Contains(listed, own) {
		t.Errorf("left behind: %s", listed)
	}
	node.start()
	for _, token := range before {
		s.get("/", token).want(wire.ErrTokenInvalid)
	}
	s.login("alice")
	beside.get("/", kept).wantStatus(200)
}
