package caddymodule

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

	"github.com/mnemogate/mnemogate/flows"
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
		if result.Key, err = flows.DeriveKey(task.Hash, task.Secret); err != nil {
			result.Error = err.Error()
		}
		if err := out.Encode(result); err != nil {
			return
		}
	}
}

// hashers are the processes, of which as many are started as are at work at
// once.
type hashers struct {
	idle     chan *hashingProcess
	mu       sync.Mutex
	failedAt time.Time // when one last failed to start
}

// derive is flows.DeriveKey, done by one of the processes. Where none can be
// started (a sandbox forbids it, say) it is done in this one; where one dies
// over it (for want of memory, say) a second may try, but not this one.
func (h *hashers) derive(hash, secret string) (key []byte, err error) {
	for range 2 {
		p := h.take()
		if p == nil {
			return flows.DeriveKey(hash, secret)
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

// take returns a process, nil if none could be started within the last minute.
func (h *hashers) take() *hashingProcess {
	select {
	case p := <-h.idle:
		return p
	default:
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

func (h *hashers) give(p *hashingProcess) {
	select {
	case h.idle <- p:
	default:
		p.kill()
	}
}

type hashingProcess struct {
	cmd     *exec.Cmd
	tasks   *gob.Encoder
	results *gob.Decoder
	close   func() error // after which it ends
}

func startHashing() (*hashingProcess, error) {
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
	return &hashingProcess{cmd, gob.NewEncoder(tasks), gob.NewDecoder(results), tasks.Close}, nil
}

func (p *hashingProcess) do(task hashingTask) (result hashingResult, err error) {
	if err := p.tasks.Encode(task); err != nil {
		return result, err
	}
	err = p.results.Decode(&result)
	return result, err
}

func (p *hashingProcess) kill() {
	p.cmd.Process.Kill()
	p.cmd.Wait()
}
