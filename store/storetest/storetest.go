// Package storetest runs real servers for tests of the shared deployment:
// PostgreSQL, and Redis as one server, as a Cluster and with Sentinel. It also has a
// Proxy that simulates network faults, and helpers such as Eventually and SkipOrFail.
//
// The servers belong to the test binary. They run in directories of their own and
// stop when it ends. If the tests run as root, the servers run as another user. Call
// Run in TestMain, and SharedPostgres or StartRedis in a test. The package is only
// for tests and does not depend on the stores.
package storetest

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"flag"
	"fmt"
	"math/big"
	mathrand "math/rand/v2"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// atExit stops the servers that tests share, after the last test.
var atExit []func()

// Run runs the tests, stops the servers that they share and returns the exit code.
// Eight parallel tests run at a time, unless -parallel sets another number: they wait
// for servers more than they compute.
func Run(m *testing.M) int {
	sweepDirs()
	pulse() // now, as no bubble of synctest must begin it
	_ = flag.Set("test.parallel", strconv.Itoa(sideBySide))
	code := m.Run()
	for _, stop := range atExit {
		stop()
	}
	return code
}

const sideBySide = 8

// SkipOrFail skips a test that needs something this machine lacks. If
// MNEMOGATE_TEST_REQUIRE is 1, it fails the test instead.
func SkipOrFail(t testing.TB, why string) {
	t.Helper()
	if os.Getenv("MNEMOGATE_TEST_REQUIRE") == "1" {
		t.Fatal(why)
	}
	t.Skip(why)
}

// NeedLinux skips the test on other systems.
func NeedLinux(t testing.TB, why string) {
	t.Helper()
	if runtime.GOOS != "linux" {
		SkipOrFail(t, "only on Linux: "+why)
	}
}

// NeedPeers skips the test if Node or the packages in the directory peers are
// missing. It fails the test if nothing may be skipped.
func NeedPeers(t testing.TB, peers string) {
	t.Helper()
	_, err := exec.LookPath("node")
	if err == nil {
		_, err = os.Stat(filepath.Join(peers, "node_modules"))
	}
	if err != nil {
		SkipOrFail(t, fmt.Sprintf("%v: install Node 20 or later and, in the module's root, run npm ci --prefix caddymodule/integration/testdata/peers", err))
	}
}

// Eventually waits until is returns true. It fails the test if that takes longer than limit,
// or far longer on a machine that is always busy. The longer it has waited, the less often it
// asks, because a question may cost a request or a process: the last pause is at most a
// twentieth of the whole.
func Eventually(t testing.TB, limit time.Duration, what string, is func() bool) {
	t.Helper()
	for w := StartWatch(); !is(); {
		if w.Over(limit) {
			t.Fatalf("no %s within %v", what, limit)
		}
		time.Sleep(min(max(time.Millisecond, w.Took()/20), 50*time.Millisecond))
	}
}

// Started starts a store. On a busy machine that may take several attempts.
func Started(t testing.TB, start func(context.Context) error) {
	t.Helper()
	for w := StartWatch(); ; time.Sleep(10 * time.Millisecond) {
		if err := start(t.Context()); err == nil {
			return
		} else if w.Over(time.Minute) {
			t.Fatal(err)
		}
	}
}

// InQuiet checks what a stall of pause or more can spoil. It repeats the check while it fails and
// the machine has stalled meanwhile. Any other failure fails the test.
func InQuiet(t testing.TB, pause time.Duration, check func() error) {
	t.Helper()
	for range 6 {
		stalled := WatchStalls()
		err := check()
		if err == nil {
			return
		}
		stall := stalled()
		if stall < pause {
			t.Fatal(err)
		}
		t.Logf("%v, while the machine stalled for %v", err, stall)
	}
	t.Fatal("it fails each time, and the machine always stalls")
}

// WatchStalls measures how long a busy machine has delayed the tests or what they wait for since
// the call. That is the time in which some process waited for a CPU, or in which the whole test
// binary was late, whichever is more.
func WatchStalls() (soFar func() time.Duration) { return StartWatch().stalled }

// A Watch measures durations on a machine that may be busy.
type Watch struct {
	began         time.Time
	pressed, late time.Duration
}

// StartWatch starts a Watch.
func StartWatch() Watch { return Watch{time.Now(), cpuPressure(), pulse().late()} }

// Over reports whether limit has passed, or far more on a machine that is always busy.
func (w Watch) Over(limit time.Duration) bool {
	return w.Took() > limit || time.Since(w.began) > 20*limit+time.Minute
}

// Took returns the time since the start, without that for which the machine is to blame.
func (w Watch) Took() time.Duration { return time.Since(w.began) - w.stalled() }

func (w Watch) stalled() time.Duration { return max(pulse().late()-w.late, cpuPressure()-w.pressed) }

// pulse shows how late each test binary is. Neither a stopped process nor a hypervisor that holds
// its CPUs counts as pressure. One goroutine may miss that one of several CPUs is held. A thread for
// each CPU would see it, but a CPU that is held would take a part of Go's scheduler with it.
//
// It beats only in processes that ask, since Caddy may run in the tests' program, too.
var pulse = sync.OnceValue(newHeart)

// A heart beats in short intervals, unless its process is held.
type heart struct {
	mu   sync.Mutex
	last time.Time     // beat
	sum  time.Duration // of the delays before it
}

func newHeart() *heart {
	h := &heart{last: time.Now()}
	go func() {
		for {
			time.Sleep(beat)
			late := h.late()
			h.mu.Lock()
			h.last, h.sum = time.Now(), late
			h.mu.Unlock()
		}
	}()
	return h
}

const beat = 5 * time.Millisecond

// late returns the sum of all delays, with one that has just ended.
func (h *heart) late() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	if late := time.Since(h.last) - beat; late > beat {
		return h.sum + late
	}
	return h.sum
}

// cpuPressure returns how long some process was ready but had no CPU, since Linux
// began to count (https://docs.kernel.org/accounting/psi.html). It returns 0 if that
// is unknown.
func cpuPressure() time.Duration {
	text, _ := os.ReadFile("/proc/pressure/cpu") // some avg10=0.00 avg60=0.00 avg300=0.00 total=0
	line, _, _ := strings.Cut(string(text), "\n")
	_, total, _ := strings.Cut(line, "total=")
	us, _ := strconv.ParseInt(total, 10, 64)
	return time.Duration(us) * time.Microsecond
}

// FreePorts returns n free ports. The ports 10,000 above them, which a Cluster's
// nodes use, are free too. Both are below the range of ephemeral ports. It returns
// no port twice.
func FreePorts(t testing.TB, n int) []int {
	t.Helper()
	portsMu.Lock()
	defer portsMu.Unlock()
	var ports []int
	for ; len(ports) < n && nextPort < 22768; nextPort++ {
		if isFree(nextPort) && isFree(nextPort+10000) {
			ports = append(ports, nextPort)
		}
	}
	if len(ports) < n {
		t.Fatal("no free ports")
	}
	return ports
}

var (
	portsMu  sync.Mutex
	nextPort = 20000 + mathrand.IntN(2000) // random, so that test binaries look in different places
)

func isFree(port int) bool {
	l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return false
	}
	return l.Close() == nil
}

// Directories

const dirPrefix = "mgtest-"

// A directory belongs to one server and its user.
type directory struct {
	path string
	as   *owner // nil for the user that runs the tests
}

type owner struct{ uid, gid int }

// newDirectory creates a directory outside of t.TempDir. A socket's path has at most
// 107 bytes, and another user can't enter the parents of t.TempDir. The name
// contains our process id.
func newDirectory(user string) (d directory, err error) {
	d.as = ownerNamed(user)
	if d.path, err = os.MkdirTemp(dirParent(), fmt.Sprint(dirPrefix, os.Getpid(), "-")); err != nil {
		return d, err
	}
	return d, d.give(d.path)
}

// dirParent returns TMPDIR if its path is short, as those are that all users may enter:
// /tmp, or /dev/shm, where the servers write to no disk.
func dirParent() string {
	if dir := os.TempDir(); len(dir) <= len("/dev/shm") {
		return dir
	}
	return "/tmp"
}

// ownerNamed returns the user to run a server as. It is nil unless the tests run as
// root.
func ownerNamed(name string) *owner {
	if os.Getuid() != 0 {
		return nil
	}
	u, err := user.Lookup(name)
	if err != nil {
		if u, err = user.Lookup("nobody"); err != nil {
			return nil
		}
	}
	uid, _ := strconv.Atoi(u.Uid)
	gid, _ := strconv.Atoi(u.Gid)
	return &owner{uid, gid}
}

// Dir returns the path of the server's directory.
func (d directory) Dir() string { return d.path }

// give makes the server's user the owner of a file.
func (d directory) give(file string) error {
	if d.as == nil {
		return nil
	}
	return os.Chown(file, d.as.uid, d.as.gid)
}

// command returns a command that runs in the directory as its user.
func (d directory) command(program string, args ...string) *exec.Cmd {
	cmd := exec.Command(program, args...)
	cmd.Dir = d.path
	cmd.Env = []string{"LC_ALL=C", "PATH=" + os.Getenv("PATH")}
	cmd.SysProcAttr = runAs(d.as)
	return cmd
}

// Start starts a program that is killed when the tests end. The returned channel is
// closed when the program has ended.
func Start(cmd *exec.Cmd) (exited chan struct{}, err error) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	endWithParent(cmd.SysProcAttr)
	started := make(chan error)
	exited = make(chan struct{})
	go func() {
		// endWithParent watches this thread, so keep it for this goroutine. Unlock it
		// afterwards, so that it lives on: it may have started other programs.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait()
		}
		close(exited)
	}()
	return exited, <-started
}

// sweepDirs removes the directories of test runs that were killed.
func sweepDirs() {
	dirs, _ := filepath.Glob(filepath.Join(dirParent(), dirPrefix+"*"))
	for _, dir := range dirs {
		pid, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(dir), dirPrefix), "-")
		if n, err := strconv.Atoi(pid); err == nil && isGone(n) {
			os.RemoveAll(dir)
		}
	}
}

// Certificate creates a self-signed certificate for 127.0.0.1 or, if given, for the host
// names, and its key. It writes them to <name>.crt and <name>.key in the server's directory.
func (d directory) Certificate(t testing.TB, name string, hosts ...string) (certificate, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	Must(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		DNSNames: hosts, IsCA: true, BasicConstraintsValid: true,
	}
	if len(hosts) == 0 {
		template.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
	}
	signed, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	Must(t, err)
	encoded, err := x509.MarshalPKCS8PrivateKey(private)
	Must(t, err)
	write := func(file, kind string, data []byte) string {
		t.Helper()
		file = filepath.Join(d.path, file)
		Must(t, os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: data}), 0o600))
		Must(t, d.give(file))
		return file
	}
	return write(name+".crt", "CERTIFICATE", signed), write(name+".key", "PRIVATE KEY", encoded)
}

var bg = context.Background()

// Must ends the test if there is an error.
func Must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("unexpected error: %v", err)
	}
}

// Together calls f n times at once and returns what the calls return.
func Together[T any](n int, f func(i int) T) []T {
	returned := make([]T, n)
	start := make(chan struct{})
	var ready, done sync.WaitGroup
	for i := range n {
		ready.Add(1)
		done.Go(func() {
			ready.Done()
			<-start
			returned[i] = f(i)
		})
	}
	ready.Wait()
	close(start)
	done.Wait()
	return returned
}

// Update says that tests write the generated parts of the pages.
var Update = flag.Bool("update", false, "write what is generated in the repository anew")

// Generated checks the part of a page between <!-- name --> and <!-- end of name -->. With
// -update it writes it.
func Generated(t testing.TB, page, name, want string) {
	t.Helper()
	raw, err := os.ReadFile(page)
	Must(t, err)
	begin, end := "<!-- "+name+" -->\n", "<!-- end of "+name+" -->"
	head, rest, begins := strings.Cut(string(raw), begin)
	got, tail, ends := strings.Cut(rest, end)
	switch {
	case !begins || !ends:
		t.Errorf("%s has no place %q", page, name)
	case *Update:
		Must(t, os.WriteFile(page, []byte(head+begin+want+end+tail), 0o644))
	case got != want:
		dir, _ := os.Getwd()
		t.Errorf("%s: %s is not what the code says; run go test %s -run '^%s$' -update", page, name, dir, t.Name())
	}
}
