// Package hashing derives keys of passwords in processes of their own, of low
// priority: a hash takes a CPU and 19 MiB for tens of milliseconds, and requests
// that need none must feel neither it nor the garbage collections after it. Such
// a process is this program again, under another name, and lives as long as its
// standard input. Start at Processes.
package hashing

import (
	"encoding/gob"
	"errors"
	"fmt"
	"io"
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

// Passwords are hashed in processes of their own, of low priority: a hash takes
// a CPU and 19 MiB for tens of milliseconds, and requests that need none must
// feel neither it nor the garbage collections after it. Such a process is this
// program again, under another name, and lives as long as its standard input.

// hashingName is what a process list shows, and what such a process knows
// itself by.
const hashingName = "mnemogate-hashing"

func init() {
	if os.Args[0] == hashingName {
		signal.Ignore(os.Interrupt, syscall.SIGTERM) // meant for Caddy, which may still let logins finish
		done := make(chan struct{})
		go func() { // init has a thread of its own, and waking it takes time
			defer close(done)
			serveHashing(os.Stdin, os.Stdout)
		}()
		<-done
		os.Exit(0)
	}
}

type hashingTask struct{ Hash, Secret string }

type hashingResult struct {
	Key   []byte
	Error string
}

// serveHashing answers tasks until there are no more.
func serveHashing(tasks io.Reader, results io.Writer) {
	in, out := gob.NewDecoder(tasks), gob.NewEncoder(results)
	for {
		var task hashingTask
		if err := in.Decode(&task); err != nil {
			return
		}
		var result hashingResult
		var err error
		if result.Key, err = password.DeriveKey(task.Hash, task.Secret); err != nil {
			result.Error = err.Error()
		}
		if err := out.Encode(result); err != nil {
			return
		}
	}
}

// Processes are the processes, of which as many are started as are at work at
// once.
type Processes struct {
	idle     chan *process
	mu       sync.Mutex
	failedAt time.Time // when one last failed to start
}

// New makes ready for up to n processes at work at once.
func New(n int) *Processes { return &Processes{idle: make(chan *process, n)} }

// Derive is password.DeriveKey, done by one of the processes. Where none can be
// started (a sandbox forbids it, say) it is done in this one; where one dies
// over it (for want of memory, say) a new one may try, but not this one: those
// that are idle may have died with it.
func (h *Processes) Derive(hash, secret string) (key []byte, err error) {
	for try := range 2 {
		p := h.take(try > 0)
		if p == nil {
			return password.DeriveKey(hash, secret)
		}
		var result hashingResult
		if result, err = p.do(hashingTask{hash, secret}); err != nil {
			p.kill()
			continue
		}
		h.give(p)
		if result.Error != "" {
			return nil, errors.New(result.Error)
		}
		return result.Key, nil
	}
	return nil, fmt.Errorf("the process that hashes passwords died: %w", err)
}

// take returns a process, a new one if none is idle or anew says so; nil if none
// could be started within the last minute.
func (h *Processes) take(anew bool) *process {
	if !anew {
		select {
		case p := <-h.idle:
			return p
		default:
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.failedAt.IsZero() && time.Since(h.failedAt) < time.Minute {
		return nil
	}
	p, err := startHashing()
	if err != nil {
		h.failedAt = time.Now()
		caddy.Log().Named("mnemogate").Warn("passwords are hashed in this process, where logins slow other requests down,"+
			" since no other can be started; let it start itself", zap.Error(err))
	}
	return p
}

func (h *Processes) give(p *process) {
	select {
	case h.idle <- p:
	default:
		p.kill()
	}
}

type process struct {
	cmd     *exec.Cmd
	tasks   *gob.Encoder
	results *gob.Decoder
	close   func() error // after which it ends
}

func startHashing() (*process, error) {
	program, err := ownProgram()
	if err != nil {
		return nil, err
	}
	// Neither the environment, with its secrets, nor the directory is needed.
	cmd := &exec.Cmd{Path: program, Args: []string{hashingName}, Env: []string{}, Dir: os.TempDir()}
	tasks, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	results, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := startLow(cmd); err != nil {
		return nil, err
	}
	return &process{cmd, gob.NewEncoder(tasks), gob.NewDecoder(results), tasks.Close}, nil
}

func (p *process) do(task hashingTask) (result hashingResult, err error) {
	if err := p.tasks.Encode(task); err != nil {
		return result, err
	}
	err = p.results.Decode(&result)
	return result, err
}

func (p *process) kill() {
	p.cmd.Process.Kill()
	p.cmd.Wait()
}
