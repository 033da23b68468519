package hashing

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/flows/password"
	"github.com/mnemogate/mnemogate/store/storetest"
)

const someHash = "$argon2id$v=19$m=7168,t=5,p=1$MDEyMzQ1Njc4OWFiY2RlZg$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"

func TestAHashingProcessDerivesWhatThisOneWould(t *testing.T) {
	t.Setenv("SOME_SECRET", "not for it")
	before := nices(t, "self")
	p := New(1, nil)
	for _, hash := range []string{
		someHash,
		"$2b$04$abcdefghijklmnopqrstuuxLHvYRB9R2YcVyZW8kCq0OvFeXbHVsq", // of another secret
		"$pbkdf2-sha256$i=1000$MDEyMzQ1Njc4OWFiY2RlZg$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
		"no hash",
	} {
		want, wantErr := password.DeriveKey(hash, "päss\x00wörd")
		got, err := p.Derive(hash, "päss\x00wörd")
		if !bytes.Equal(got, want) || fmt.Sprint(err) != fmt.Sprint(wantErr) {
			t.Errorf("%v, want %v", err, wantErr)
		}
	}
	c := <-p.idle // one was enough
	t.Cleanup(c.kill)
	if runtime.GOOS != "linux" {
		return
	}
	pid := strconv.Itoa(c.cmd.Process.Pid)
	if env, err := os.ReadFile("/proc/" + pid + "/environ"); len(env) != 0 || err != nil {
		t.Errorf("it has an environment of %d bytes, %v", len(env), err)
	}
	want := min(slices.Min(before)+10, 19)
	if got := nices(t, pid); slices.Min(got) != want || slices.Max(got) != want {
		t.Errorf("its threads have nice %v, want %d", got, want)
	}
	if after := nices(t, "self"); slices.Min(after) != slices.Min(before) {
		t.Errorf("the threads of this process had nice %v before and %v after", before, after)
	}
}

// nices returns the nice values of a process's threads in Linux: the 19th field of
// proc_pid_stat(5), whose second field ends with the last parenthesis.
func nices(t *testing.T, pid string) (nices []int) {
	threads, _ := filepath.Glob("/proc/" + pid + "/task/*/stat")
	for _, thread := range threads {
		text, err := os.ReadFile(thread)
		if err != nil {
			continue // the thread has ended
		}
		nice, err := strconv.Atoi(strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))[16])
		storetest.Must(t, err)
		nices = append(nices, nice)
	}
	return nices
}

// A process may be killed at any time, for want of memory above all.
func TestAHashingProcessThatDiesIsReplaced(t *testing.T) {
	p := New(2, nil)
	want, err := password.DeriveKey(someHash, "secret")
	storetest.Must(t, err)
	var all sync.WaitGroup
	for range 2 {
		all.Go(func() {
			for range 5 {
				if got, err := p.Derive(someHash, "secret"); err != nil || !bytes.Equal(got, want) {
					t.Error(err)
				}
				c := p.take(false)
				c.cmd.Process.Kill()
				p.idle <- c
			}
		})
	}
	all.Wait()
	close(p.idle)
	for c := range p.idle {
		c.kill()
	}
}

// A process may be stopped at any time, too, and keeps its place of the few only for a while.
func TestAHashingProcessThatDoesNotAnswerIsReplaced(t *testing.T) {
	p := New(1, nil)
	c := p.take(false)
	t.Cleanup(c.kill)
	if err := storetest.Freeze(c.cmd.Process); err != nil {
		storetest.SkipOrFail(t, fmt.Sprint("a process can't be stopped here: ", err))
	}
	c.patience = 100 * time.Millisecond
	p.idle <- c
	done := make(chan error)
	go func() {
		_, err := p.Derive(someHash, "secret")
		done <- err
	}()
	select {
	case err := <-done:
		storetest.Must(t, err)
		(<-p.idle).kill()
	case <-time.After(30 * time.Second):
		t.Error("it waits for a process that was stopped")
	}
}

func TestPasswordsAreHashedHereIfNoProcessCanBeStarted(t *testing.T) {
	p := New(1, nil)
	p.failedAt = time.Now()
	want, _ := password.DeriveKey(someHash, "secret")
	if got, err := p.Derive(someHash, "secret"); err != nil || !bytes.Equal(got, want) {
		t.Error(err)
	}
}

// A child may start and die at once, for example because it can't have more threads.
func TestPasswordsAreHashedHereIfEachProcessDiesAtOnce(t *testing.T) {
	var warnings []error
	p := New(1, func(err error) { warnings = append(warnings, err) })
	p.program = func() (string, error) { return exec.LookPath("true") }
	want, _ := password.DeriveKey(someHash, "secret")
	for range 2 {
		if got, err := p.Derive(someHash, "secret"); err != nil || !bytes.Equal(got, want) {
			t.Error(err)
		}
	}
	if len(warnings) != 1 || !strings.Contains(warnings[0].Error(), "exit status 0") {
		t.Errorf("warned of %v, want one that says how it ended", warnings)
	}
}

func TestAHashingProcessEndsWithItsInput(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	child := exec.CommandContext(ctx, os.Args[0])
	child.Args = []string{childName}
	if err := child.Run(); err != nil {
		t.Error(err)
	}
}

// BenchmarkOthers has as many clients as CPUs that each compute for a moment and pause, as
// requests without a hash do, while passwords are hashed one after another, by a child and
// by this process.
func BenchmarkOthers(b *testing.B) {
	hash := strings.Replace(someHash, "m=7168,t=5", "m=19456,t=2", 1)
	children := New(1, nil)
	b.Cleanup(func() { (<-children.idle).kill() })
	for name, derive := range map[string]func(hash, secret string) ([]byte, error){"child": children.Derive, "process": password.DeriveKey} {
		b.Run(name, func(b *testing.B) {
			var others sync.WaitGroup
			stop, late := make(chan struct{}), make([][]time.Duration, runtime.NumCPU())
			for i := range late {
				others.Go(func() {
					for {
						select {
						case <-stop:
							return
						default:
						}
						began := time.Now()
						time.Sleep(time.Millisecond)
						for text := []byte(hash); cap(text) < 1<<16; text = bytes.Repeat(text, 2) {
						}
						late[i] = append(late[i], time.Since(began)-time.Millisecond)
					}
				})
			}
			for b.Loop() {
				if _, err := derive(hash, "secret"); err != nil {
					b.Fatal(err)
				}
			}
			close(stop)
			others.Wait()
			all := slices.Concat(late...)
			slices.Sort(all)
			b.ReportMetric(float64(all[len(all)*99/100].Microseconds())/1000, "p99-ms")
		})
	}
}
