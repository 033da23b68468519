package storetest

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// A Redis is a redis-server in a directory of its own. It stores nothing on disk, unless
// its arguments say otherwise.
type Redis struct {
	directory
	Port   int // 0 if it listens only on a socket
	args   []string
	cmd    *exec.Cmd
	output *bytes.Buffer // complete once exited is closed
	exited chan struct{}
}

// StartRedis starts a server for one test. It listens only on a socket.
func StartRedis(t testing.TB, args ...string) *Redis {
	t.Helper()
	s := NewRedis(t, 0, args...)
	Must(t, s.Start())
	return s
}

var theRedis *Redis

// SharedRedis returns an empty server. Tests use it one after another.
func SharedRedis(t testing.TB) *Redis {
	t.Helper()
	if theRedis == nil {
		theRedis = newRedis(t, 0)
		atExit = append(atExit, theRedis.remove)
		Must(t, theRedis.Start())
	}
	theRedis.Ask(t, "flushall")
	return theRedis
}

// NewRedis prepares a server for one test, which must start it.
func NewRedis(t testing.TB, port int, args ...string) *Redis {
	t.Helper()
	s := newRedis(t, port, args...)
	t.Cleanup(s.remove)
	return s
}

func newRedis(t testing.TB, port int, args ...string) *Redis {
	t.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil {
		SkipOrFail(t, "redis-server is not installed")
	}
	dir, err := newDirectory("redis")
	Must(t, err)
	s := &Redis{directory: dir, Port: port}
	s.args = append([]string{"--port", strconv.Itoa(port), "--bind", "127.0.0.1", "--unixsocket", s.Socket(),
		"--save", "", "--appendonly", "no", "--dir", s.path, "--repl-diskless-sync-delay", "0"}, args...)
	return s
}

// Socket returns the socket's file name, for NewProxy.
func (s *Redis) Socket() string { return filepath.Join(s.path, "s") }

// Addr returns the server's address as host:port.
func (s *Redis) Addr() string { return fmt.Sprintf("127.0.0.1:%d", s.Port) }

// URL returns the server's URL, with its port if it has one.
func (s *Redis) URL() string {
	if s.Port != 0 {
		return "redis://" + s.Addr()
	}
	return "unix://" + s.Socket()
}

// Start starts the server, also after it was stopped, and waits until it answers.
func (s *Redis) Start() (err error) {
	os.Remove(s.Socket())
	s.output = &bytes.Buffer{}
	s.cmd = s.command("redis-server", s.args...)
	s.cmd.Stdout, s.cmd.Stderr = s.output, s.output
	if s.exited, err = Start(s.cmd); err != nil {
		return err
	}
	for w := StartWatch(); !w.Over(10 * time.Second); time.Sleep(time.Millisecond) {
		select {
		case <-s.exited:
			return errors.New("redis-server ended: " + s.output.String())
		default:
		}
		if conn, err := net.Dial("unix", s.Socket()); err == nil {
			return conn.Close()
		}
	}
	return errors.New("redis-server is not there after 10 s")
}

// Kill kills the server, as a crash would.
func (s *Redis) Kill() {
	s.cmd.Process.Kill()
	<-s.exited
}

// Freeze suspends the server until Thaw.
func (s *Redis) Freeze() { Freeze(s.cmd.Process) }

// Thaw resumes the server after Freeze.
func (s *Redis) Thaw() { Thaw(s.cmd.Process) }

func (s *Redis) remove() {
	if s.cmd != nil && s.cmd.Process != nil {
		s.Kill()
	}
	os.RemoveAll(s.path)
}

// Client returns a plain client of the server. It is closed when the test ends.
func (s *Redis) Client(t testing.TB) *redis.Client {
	c := redis.NewClient(&redis.Options{Network: "unix", Addr: s.Socket()})
	t.Cleanup(func() { c.Close() })
	return c
}

// Ask sends one command and returns the answer as text.
func (s *Redis) Ask(t testing.TB, command ...any) string {
	t.Helper()
	c := redis.NewClient(&redis.Options{Network: "unix", Addr: s.Socket()})
	defer c.Close()
	answer, err := c.Do(bg, command...).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		t.Fatalf("%v: %v", command, err)
	}
	return fmt.Sprint(answer)
}

// A Cluster is a Redis Cluster of masters without replicas.
type Cluster []*Redis

var theCluster Cluster

// SharedCluster returns an empty Cluster of three nodes. Tests use it one after
// another.
func SharedCluster(t testing.TB) Cluster {
	t.Helper()
	if theCluster == nil {
		theCluster = newCluster(t, 3)
		atExit = append(atExit, theCluster.remove)
	}
	for _, s := range theCluster {
		s.Ask(t, "flushall")
	}
	return theCluster
}

// NewCluster starts a Cluster of n nodes for one test.
func NewCluster(t testing.TB, n int) Cluster {
	t.Helper()
	c := newCluster(t, n)
	t.Cleanup(c.remove)
	return c
}

func newCluster(t testing.TB, n int) Cluster {
	t.Helper()
	var c Cluster
	for _, port := range FreePorts(t, n) {
		s := newRedis(t, port, clusterNode...)
		Must(t, s.Start())
		c = append(c, s)
	}
	const slots = 16384
	for i, s := range c {
		s.Ask(t, "cluster", "set-config-epoch", i+1)
		s.Ask(t, "cluster", "addslotsrange", i*slots/n, (i+1)*slots/n-1)
	}
	for _, s := range c[1:] {
		c[0].Ask(t, "cluster", "meet", "127.0.0.1", s.Port)
	}
	for _, s := range c {
		Eventually(t, 20*time.Second, "Cluster that is well", func() bool {
			info := s.Ask(t, "cluster", "info")
			return strings.Contains(info, "cluster_state:ok\r\n") && strings.Contains(info, fmt.Sprintf("cluster_known_nodes:%d\r\n", n))
		})
	}
	return c
}

var clusterNode = []string{"--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf", "--cluster-node-timeout", "2000"}

// NewClusterNode prepares a node for one test, which must add it to a Cluster.
func NewClusterNode(t testing.TB) *Redis {
	t.Helper()
	return NewRedis(t, FreePorts(t, 1)[0], clusterNode...)
}

func (c Cluster) remove() {
	for _, s := range c {
		s.remove()
	}
}

// URLs returns the URLs of all nodes.
func (c Cluster) URLs() []string {
	var urls []string
	for _, s := range c {
		urls = append(urls, s.URL())
	}
	return urls
}

// A Failover is a master with a replica, and a sentinel that watches them under
// the name MasterName.
type Failover struct{ Master, Replica, Sentinel *Redis }

var theFailover *Failover

// SharedFailover returns a Failover that other tests use too, with an empty master.
// Tests must not stop any part of it.
func SharedFailover(t testing.TB) *Failover {
	t.Helper()
	if theFailover == nil {
		theFailover = newFailover(t)
		atExit = append(atExit, theFailover.remove)
	}
	theFailover.Master.Ask(t, "flushall")
	return theFailover
}

// MasterName is the name of the master for the sentinels.
const MasterName = "main"

// NewFailover starts a Failover for one test.
func NewFailover(t testing.TB) *Failover {
	t.Helper()
	f := newFailover(t)
	t.Cleanup(f.remove)
	return f
}

func newFailover(t testing.TB) *Failover {
	t.Helper()
	ports := FreePorts(t, 3)
	f := &Failover{
		Master:   newRedis(t, ports[0]),
		Replica:  newRedis(t, ports[1], "--replicaof", "127.0.0.1 "+strconv.Itoa(ports[0])),
		Sentinel: newSentinel(t, ports[2], ports[0]),
	}
	Must(t, f.Master.Start())
	Must(t, f.Replica.Start())
	conn := f.Master.Client(t).Conn()
	defer conn.Close()
	Eventually(t, 20*time.Second, "replica that follows", func() bool {
		if !strings.Contains(f.Replica.Ask(t, "info", "replication"), "master_link_status:up\r\n") {
			return false // it may still lack earlier writes
		}
		conn.Set(bg, "followed", 1, 0)
		return conn.Wait(bg, 1, 100*time.Millisecond).Val() == 1
	})
	Must(t, f.Sentinel.Start()) // after the others: it asks the master for replicas at once, and then not for ten seconds
	Eventually(t, 20*time.Second, "sentinel that knows the replica", func() bool {
		return strings.Contains(f.Sentinel.Ask(t, "info", "sentinel"), "status=ok,address="+f.Master.Addr()+",slaves=1")
	})
	return f
}

// NewSentinel prepares a sentinel for one test, which must start it. The settings are
// lines of its configuration file.
func NewSentinel(t testing.TB, port, master int, settings ...string) *Redis {
	t.Helper()
	s := newSentinel(t, port, master, settings...)
	t.Cleanup(s.remove)
	return s
}

// newSentinel writes the configuration file, which a sentinel needs.
func newSentinel(t testing.TB, port, master int, settings ...string) *Redis {
	t.Helper()
	s := newRedis(t, port)
	file := filepath.Join(s.path, "sentinel.conf")
	text := fmt.Sprintf("port %d\nbind 127.0.0.1\nunixsocket %s\ndir %s\n%s\nsentinel monitor %s 127.0.0.1 %d 1\n"+
		"sentinel down-after-milliseconds %[5]s 500\nsentinel failover-timeout %[5]s 3000\n",
		port, s.Socket(), s.path, strings.Join(settings, "\n"), MasterName, master)
	Must(t, os.WriteFile(file, []byte(text), 0o600))
	Must(t, s.give(file))
	s.args = []string{file, "--sentinel"}
	return s
}

func (f *Failover) remove() {
	for _, s := range []*Redis{f.Sentinel, f.Replica, f.Master} {
		s.remove()
	}
}
