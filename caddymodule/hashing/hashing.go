// Package hashing hashes passwords in child processes of low priority. A hash takes
// a CPU and 19 MiB for tens of milliseconds. Neither that nor the garbage collection
// afterwards should slow down requests that need no hash. A child is the same
// program under another name, and runs until its standard input is closed. Start at
// Processes.
//
// Go initializes packages in the order of their paths, as soon as what they import is
// initialized. So this package imports little, neither Caddy nor net/http: a child does
// not initialize most of the program.
package hashing

import (
	"encoding/gob"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"sync"
	"syscall"
	"time"

	"github.com/mnemogate/mnemogate/flows/password"
)

// childName is the name in the process list, by which a child recognizes itself.
const childName = "mnemogate-hashing"

func init() {
	if os.Args[0] == childName {
		signal.Ignore(os.Interrupt, syscall.SIGTERM) // meant for Caddy, which may still finish logins
		requests, answers := gob.NewDecoder(os.Stdin), gob.NewEncoder(os.Stdout)
		for {
			var r request
			if requests.Decode(&r) != nil {
				os.Exit(0)
			}
			var a answer
			var err error
			if a.Key, err = password.DeriveKey(r.Hash, r.Secret); err != nil {
				a.Error = err.Error()
			}
			answers.Encode(a)
			releaseMemory()
		}
	}
}

// releaseMemory frees the memory of a hash that needed much, for the next one. Otherwise
// children that compute hashes of 256 MiB would grow to 530 MB instead of 268. (The
// package runtime/debug would be initialized too late, see above.)
func releaseMemory() {
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	if stats.HeapAlloc > 64<<20 {
		runtime.GC()
	}
}

// A request asks a child to derive a key.
type request struct{ Hash, Secret string }

type answer struct {
	Key   []byte
	Error string
}

// Processes are the child processes. There is one for each concurrent call, started
// when it is first needed, so that no call waits for the garbage collection of
// another.
type Processes struct {
	idle     chan *child
	warn     func(error)
	program  func() (string, error)
	mu       sync.Mutex
	failedAt time.Time // when a child last failed to start, or died as soon as it had
}

// New returns Processes for up to n concurrent calls. It calls warn with the reason when
// no child can be started, at most once a minute.
func New(n int, warn func(error)) *Processes {
	return &Processes{idle: make(chan *child, n), warn: warn, program: ownProgram}
}

// Derive is password.DeriveKey in a child process. If the child dies, for example
// because memory ran out, or does not answer, Derive tries once more with a new child,
// since the idle ones may have died too. If no child can be started, for example in a
// sandbox, this process derives the key.
func (p *Processes) Derive(hash, secret string) ([]byte, error) {
	var err error
	for try := range 2 {
		c := p.take(try > 0)
		if c == nil {
			return password.DeriveKey(hash, secret)
		}
		var a answer
		if a, err = c.ask(request{hash, secret}); err == nil {
			p.idle <- c
			if a.Error != "" {
				return nil, errors.New(a.Error)
			}
			return a.Key, nil
		}
		c.kill()
		err = fmt.Errorf("%w (%v)", err, c.cmd.ProcessState)
	}
	return nil, fmt.Errorf("the process that hashes passwords died or hung: %w; perhaps the machine or container has too little memory for it", err)
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
	if p.isPaused() {
		return nil
	}
	c, err := p.start()
	if err != nil {
		p.pause(err)
	}
	return c
}

// isPaused reports whether a child failed to start within the last minute.
func (p *Processes) isPaused() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return time.Since(p.failedAt) < time.Minute
}

// pause begins such a minute, and warns of err, unless another child has begun one.
func (p *Processes) pause(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if time.Since(p.failedAt) >= time.Minute {
		p.failedAt = time.Now()
		p.warn(err)
	}
}

const (
	// patience is how long a child may take for an answer. The most expensive hash takes
	// about a second of a CPU, of which a child gets a tenth while the machine is busy.
	patience = time.Minute
	// startPatience is how long it may take for the first answer, which needs no hash.
	startPatience = 10 * time.Second
)

type child struct {
	cmd      *exec.Cmd
	requests *gob.Encoder
	answers  *gob.Decoder
	patience time.Duration
}

func (p *Processes) start() (*child, error) {
	program, err := p.program()
	if err != nil {
		return nil, err
	}
	// A child needs neither the environment, which contains secrets, nor the
	// directory.
	cmd := &exec.Cmd{Path: program, Args: []string{childName}, Env: []string{}, Dir: "/"}
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
	c := &child{cmd, gob.NewEncoder(stdin), gob.NewDecoder(stdout), startPatience}
	// A child that can't have threads, for example, starts and dies at once.
	if _, err := c.ask(request{}); err != nil {
		c.kill()
		return nil, fmt.Errorf("it did not answer: %v", cmd.ProcessState)
	}
	c.patience = patience
	return c, nil
}

// ask fails if the child dies. It kills a child that does not answer, for example because
// it was stopped.
func (c *child) ask(r request) (a answer, err error) {
	defer time.AfterFunc(c.patience, func() { c.cmd.Process.Kill() }).Stop()
	if err = c.requests.Encode(r); err == nil {
		err = c.answers.Decode(&a)
	}
	return a, err
}

func (c *child) kill() {
	c.cmd.Process.Kill()
	c.cmd.Wait()
}
