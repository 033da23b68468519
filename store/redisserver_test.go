package store

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// A redisServer is a redis-server of the tests' own, in a directory of its own.
type redisServer struct {
	dir    string
	port   int // 0: it has a socket only
	args   []string
	cmd    *exec.Cmd
	output *bytes.Buffer // complete once exited is closed
	exited chan struct{}
}

// startRedis starts a server that only a socket leads to, for one test. Without
// persistence, unless the arguments say otherwise.
func startRedis(t testing.TB, args ...string) *redisServer {
	t.Helper()
	s := newRedisServer(t, 0, args...)
	t.Cleanup(s.remove)
	must(t, s.start())
	return s
}

// newRedisServer prepares a server. It is removed with the last test, if nobody
// does so before.
func newRedisServer(t testing.TB, port int, args ...string) *redisServer {
	t.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil {
		skipOrFail(t, "redis-server is not installed")
	}
	// Not t.TempDir: a socket's path has 107 bytes at most, and the parents of
	// that are closed to another user.
	dir, err := os.MkdirTemp("/tmp", fmt.Sprint("mgrd-", os.Getpid(), "-"))
	must(t, err)
	s := &redisServer{dir: dir, port: port}
	atExit = append(atExit, s.remove)
	s.args = append([]string{"--port", strconv.Itoa(port), "--bind", "127.0.0.1", "--unixsocket", s.socket(),
		"--save", "", "--appendonly", "no", "--dir", dir, "--repl-diskless-sync-delay", "0"}, args...)
	if as := serverCredential("redis"); as != nil {
		must(t, os.Chown(dir, int(as.Uid), int(as.Gid)))
	}
	return s
}

func (s *redisServer) socket() string { return filepath.Join(s.dir, "s") }
func (s *redisServer) addr() string   { return fmt.Sprintf("127.0.0.1:%d", s.port) }

// url leads to the server, by its port if it has one.
func (s *redisServer) url() string {
	if s.port != 0 {
		return "redis://" + s.addr()
	}
	return "unix://" + s.socket()
}

// start starts the server, or a stopped one again, and waits until it answers.
func (s *redisServer) start() error {
	os.Remove(s.socket())
	s.output, s.exited = &bytes.Buffer{}, make(chan struct{})
	s.cmd = exec.Command("redis-server", s.args...)
	s.cmd.Dir, s.cmd.Env = s.dir, append(os.Environ(), "LC_ALL=C")
	s.cmd.Stdout, s.cmd.Stderr = s.output, s.output
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Credential: serverCredential("redis"), Pdeathsig: syscall.SIGKILL}
	if err := s.cmd.Start(); err != nil {
		return err
	}
	go func() {
		s.cmd.Wait()
		close(s.exited)
	}()
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		select {
		case <-s.exited:
			return errors.New("redis-server ended: " + s.output.String())
		default:
		}
		if conn, err := net.Dial("unix", s.socket()); err == nil {
			return conn.Close()
		}
	}
	return errors.New("redis-server is not there after 10 s")
}

// kill ends the server at once, as a crash does.
func (s *redisServer) kill() {
	s.cmd.Process.Kill()
	<-s.exited
}

// freeze stops the server in its tracks until it is thawed.
func (s *redisServer) freeze() { s.cmd.Process.Signal(syscall.SIGSTOP) }
func (s *redisServer) thaw()   { s.cmd.Process.Signal(syscall.SIGCONT) }

// remove may be called again.
func (s *redisServer) remove() {
	if s.cmd != nil && s.cmd.Process != nil {
		s.kill()
	}
	os.RemoveAll(s.dir)
}

// client returns a plain client of the server, closed with the test.
func (s *redisServer) client(t testing.TB) *redis.Client {
	c := redis.NewClient(&redis.Options{Network: "unix", Addr: s.socket()})
	t.Cleanup(func() { c.Close() })
	return c
}

// ask sends one command and returns the answer as text.
func (s *redisServer) ask(t testing.TB, command ...any) string {
	t.Helper()
	c := redis.NewClient(&redis.Options{Network: "unix", Addr: s.socket()})
	defer c.Close()
	answer, err := c.Do(bg, command...).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		t.Fatalf("%v: %v", command, err)
	}
	return fmt.Sprint(answer)
}

// freePorts returns n ports that are free, as are those 10,000 above them, which
// a Cluster's nodes use. Both are below what is given out to clients.
func freePorts(t testing.TB, n int) []int {
	t.Helper()
	var ports []int
	for port := 20000 + rand.IntN(2000); len(ports) < n && port < 22768; port++ {
		if isFree(port) && isFree(port+10000) {
			ports = append(ports, port)
		}
	}
	if len(ports) < n {
		t.Fatal("no free ports")
	}
	return ports
}

func isFree(port int) bool {
	l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return false
	}
	return l.Close() == nil
}

// A redisCluster is a Cluster of masters without replicas.
type redisCluster []*redisServer

// theCluster is one for all tests, which run one after another.
var theCluster redisCluster

// startCluster returns the Cluster, empty.
func startCluster(t *testing.T) redisCluster {
	t.Helper()
	if theCluster == nil {
		theCluster = newCluster(t, 3)
	}
	for _, s := range theCluster {
		s.ask(t, "flushall")
	}
	return theCluster
}

func newCluster(t *testing.T, n int) redisCluster {
	t.Helper()
	var c redisCluster
	for _, port := range freePorts(t, n) {
		s := newClusterNode(t, port)
		must(t, s.start())
		c = append(c, s)
	}
	const slots = 16384
	for i, s := range c {
		s.ask(t, "cluster", "set-config-epoch", i+1)
		s.ask(t, "cluster", "addslotsrange", i*slots/n, (i+1)*slots/n-1)
	}
	for _, s := range c[1:] {
		c[0].ask(t, "cluster", "meet", "127.0.0.1", s.port)
	}
	for _, s := range c {
		eventually(t, "a Cluster that is well", func() bool {
			info := s.ask(t, "cluster", "info")
			return infoField(info, "cluster_state") == "ok" && infoField(info, "cluster_known_nodes") == strconv.Itoa(n)
		})
	}
	return c
}

func newClusterNode(t *testing.T, port int) *redisServer {
	return newRedisServer(t, port, "--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf", "--cluster-node-timeout", "2000")
}

func (c redisCluster) remove() {
	for _, s := range c {
		s.remove()
	}
}

func (c redisCluster) urls() []string {
	var urls []string
	for _, s := range c {
		urls = append(urls, s.url())
	}
	return urls
}

// A redisFailover is a master with a replica, and a sentinel that watches them.
type redisFailover struct{ master, replica, sentinel *redisServer }

// theFailover is one for all tests that leave it as it is.
var theFailover *redisFailover

func startFailover(t *testing.T) *redisFailover {
	t.Helper()
	if theFailover == nil {
		theFailover = newFailover(t)
	}
	theFailover.master.ask(t, "flushall")
	return theFailover
}

const masterName = "main"

func newFailover(t *testing.T) *redisFailover {
	t.Helper()
	ports := freePorts(t, 3)
	f := &redisFailover{
		master:   newRedisServer(t, ports[0]),
		replica:  newRedisServer(t, ports[1], "--replicaof", "127.0.0.1 "+strconv.Itoa(ports[0])),
		sentinel: newRedisServer(t, ports[2]),
	}
	f.configure(t)
	must(t, f.master.start())
	must(t, f.replica.start())
	conn := f.master.client(t).Conn()
	defer conn.Close()
	eventuallyWithin(t, 20*time.Second, "replica that follows", func() bool {
		if infoField(f.replica.ask(t, "info", "replication"), "master_link_status") != "up" {
			return false // it need not have what was written before
		}
		conn.Set(bg, "followed", 1, 0)
		return conn.Wait(bg, 1, 100*time.Millisecond).Val() == 1
	})
	must(t, f.sentinel.start()) // the others first: it asks the master for replicas, and then not for ten seconds
	eventually(t, "a sentinel that knows the replica", func() bool {
		return strings.Contains(f.sentinel.ask(t, "info", "sentinel"), "status=ok,address="+f.master.addr()+",slaves=1")
	})
	return f
}

// configure writes the sentinel's file: it takes its options from nowhere else.
func (f *redisFailover) configure(t testing.TB) {
	t.Helper()
	file := filepath.Join(f.sentinel.dir, "sentinel.conf")
	text := fmt.Sprintf("port %d\nbind 127.0.0.1\nunixsocket %s\ndir %s\nsentinel monitor %s 127.0.0.1 %d 1\n"+
		"sentinel down-after-milliseconds %[4]s 500\nsentinel failover-timeout %[4]s 3000\n",
		f.sentinel.port, f.sentinel.socket(), f.sentinel.dir, masterName, f.master.port)
	must(t, os.WriteFile(file, []byte(text), 0o600))
	if as := serverCredential("redis"); as != nil {
		must(t, os.Chown(file, int(as.Uid), int(as.Gid)))
	}
	f.sentinel.args = []string{file, "--sentinel"}
}

func (f *redisFailover) remove() {
	for _, s := range []*redisServer{f.sentinel, f.replica, f.master} {
		s.remove()
	}
}
