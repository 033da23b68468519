package hashing

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/flows/password"
)

const someHash = "$argon2id$v=19$m=7168,t=5,p=1$MDEyMzQ1Njc4OWFiY2RlZg$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"

func TestAHashingProcessDerivesWhatThisOneWould(t *testing.T) {
	t.Setenv("SOME_SECRET", "not for it")
	before := 0
	if runtime.GOOS == "linux" {
		before = niceOf(t, "/proc/self/stat")
	}
	h := New(1)
	for _, hash := range []string{
		someHash,
		"$2b$04$abcdefghijklmnopqrstuuxLHvYRB9R2YcVyZW8kCq0OvFeXbHVsq", // of another secret
		"$pbkdf2-sha256$i=1000$MDEyMzQ1Njc4OWFiY2RlZg$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
		"no hash",
	} {
		want, wantErr := password.DeriveKey(hash, "päss\x00wörd")
		got, err := h.Derive(hash, "päss\x00wörd")
		if !bytes.Equal(got, want) || fmt.Sprint(err) != fmt.Sprint(wantErr) {
			t.Errorf("%v, want %v", err, wantErr)
		}
	}
	p := <-h.idle // one was enough
	t.Cleanup(p.kill)
	if runtime.GOOS != "linux" {
		return
	}
	of := fmt.Sprintf("/proc/%d/", p.cmd.Process.Pid)
	if env, err := os.ReadFile(of + "environ"); len(env) != 0 || err != nil {
		t.Errorf("it has an environment of %d bytes, %v", len(env), err)
	}
	threads, err := filepath.Glob(of + "task/*/stat")
	if len(threads) == 0 {
		t.Fatal(err)
	}
	for _, thread := range threads {
		if nice := niceOf(t, thread); nice != before+10 {
			t.Errorf("a thread of it has nice %d, want %d", nice, before+10)
		}
	}
	own, _ := filepath.Glob("/proc/self/task/*/stat")
	if !slices.ContainsFunc(own, func(thread string) bool { return niceOf(t, thread) == before }) {
		t.Error("this process has lowered its own priority")
	}
}

// niceOf reads proc_pid_stat(5), whose second field ends with the last
// parenthesis.
func niceOf(t *testing.T, stat string) int {
	text, err := os.ReadFile(stat)
	if err != nil {
		return 19 // a thread that is gone
	}
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	nice, err := strconv.Atoi(fields[16])
	if err != nil {
		t.Fatal(err)
	}
	return nice
}

// A process may be killed at any time, for want of memory above all.
func TestAHashingProcessThatDiesIsReplaced(t *testing.T) {
	h := New(2)
	want, err := password.DeriveKey(someHash, "secret")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for range 2 {
		all.Go(func() {
			for range 5 {
				if got, err := h.Derive(someHash, "secret"); err != nil || !bytes.Equal(got, want) {
					t.Error(err)
				}
				p := h.take(false)
				p.cmd.Process.Kill()
				h.give(p)
			}
		})
	}
	all.Wait()
	close(h.idle)
	for p := range h.idle {
		p.kill()
	}
}

func TestPasswordsAreHashedHereIfNoProcessCanBeStarted(t *testing.T) {
	h := New(1)
	h.failedAt = time.Now()
	want, _ := password.DeriveKey(someHash, "secret")
	if got, err := h.Derive(someHash, "secret"); err != nil || !bytes.Equal(got, want) {
		t.Error(err)
	}
}

func TestAHashingProcessEndsWithItsInput(t *testing.T) {
	h := New(1)
	p := h.take(false)
	if p == nil {
		t.Fatal("none was started")
	}
	p.close()
	ended := make(chan error, 1)
	go func() { ended <- p.cmd.Wait() }()
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(30 * time.Second):
		p.cmd.Process.Kill()
		t.Error("it is still there")
	}
}
