// Package hashing hashes passwords in child processes of low priority. A hash takes
// a CPU and 19 MiB for tens of milliseconds. Neither that nor the garbage collection
// afterwards should slow down requests that need no hash. A child is the same
// program under another name, and runs until its standard input is closed. Start at
// Processes.
package hashing

import (
	"errors"
	"fmt"
	"io"
	"net/rpc"
	"os"
	"os/exec"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/caddyserver/caddy/v2"
	"go.uber.org/zap"

	"github.com/mnemogate/mnemogate/flows/password"
)

// childName is the name in the process list, by which a child recognizes itself.
const childName = "mnemogate-hashing"

func init() {
	if os.Args[0] == childName {
		signal.Ignore(os.Interrupt, syscall.SIGTERM) // meant for Caddy, which may still finish logins
		server := rpc.NewServer()
		server.RegisterName("child", service{})
		server.ServeConn(conn{os.Stdin, os.Stdout})
		os.Exit(0)
	}
}

// A conn is a pair of pipes.
type conn struct {
	io.Reader
	io.WriteCloser
}

// A Task asks a child to derive a key.
type Task struct{ Hash, Secret string }

// service is the RPC service of a child.
type service struct{}

func (service) Derive(task Task, key *[]byte) (err error) {
	*key, err = password.DeriveKey(task.Hash, task.Secret)
	return err
}

// Processes are the child processes. There is one for each concurrent call, started
// when it is first needed, so that no call waits for the garbage collection of
// another.
type Processes struct {
	idle     chan *child
	mu       sync.Mutex
	failedAt time.Time // when a child last failed to start
}

// New returns Processes for up to n concurrent calls.
func New(n int) *Processes { return &Processes{idle: make(chan *child, n)} }

// Derive is password.DeriveKey in a child process. If the child dies, for example
// because memory ran out, Derive tries once more with a new child, since the idle
// ones may have died too. If no child can be started, for example in a sandbox, this
// process derives the key.
func (p *Processes) Derive(hash, secret string) (key []byte, err error) {
	for try := range 2 {
		c := p.take(try > 0)
		if c == nil {
			return password.DeriveKey(hash, secret)
		}
		err = c.client.Call("child.Derive", Task{hash, secret}, &key)
		if _, answered := errors.AsType[rpc.ServerError](err); err == nil || answered {
			p.idle <- c
			return key, err
		}
		c.kill()
	}
	return nil, fmt.Errorf("the process that hashes passwords died: %w", err)
}

// take returns an idle child, or a new one if none is idle or anew is set. It
// returns nil if a child failed to start within the last minute.
func (p *Processes) take(anew bool) *child {
	if !anew {
		select {
		case c := <-p.idle:
			return c
		default:
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if time.Since(p.failedAt) < time.Minute {
		return nil
	}
	c, err := start()
	if err != nil {
		p.failedAt = time.Now()
		caddy.Log().Named("mnemogate").Warn("passwords are hashed in this process, where logins slow other requests down,"+
			" since no other can be started; let it start itself", zap.Error(err))
	}
	return c
}

type child struct {
	cmd    *exec.Cmd
	client *rpc.Client
}

func start() (*child, error) {
	program, err := ownProgram()
	if err != nil {
		return nil, err
	}
	// A child needs neither the environment, which contains secrets, nor the
	// directory.
	cmd := &exec.Cmd{Path: program, Args: []string{childName}, Env: []string{}, Dir: os.TempDir()}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := startLow(cmd); err != nil {
		return nil, err
	}
	return &child{cmd, rpc.NewClient(conn{stdout, stdin})}, nil
}

func (c *child) kill() {
	c.cmd.Process.Kill()
	c.cmd.Wait()
}
