// Package storetest runs the real servers that tests of the shared deployment
// need, PostgreSQL and Redis, alone, as a Cluster and behind Sentinel, and a
// Proxy that does to connections what networks do.
//
// The servers are the test binary's own, in directories of their own, and end
// with it. They are started as another user where the tests are root's. Call Run
// in TestMain, SharedPostgres or StartRedis in a test. It is for tests alone,
// and knows nothing of the stores.
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

// atExit is what a test leaves for the tests after it, and the last one has to
// stop: servers.
var atExit []func()

// Run runs the tests and then stops the servers that they share. It returns
// what to exit with. Of those in parallel two run at a time, unless -parallel says
// how many: more of them keep one another from answering in time.
func Run(m *testing.M) int {
	sweepDirs()
	_ = flag.Set("test.parallel", strconv.Itoa(sideBySide))
	code := m.Run()
	for _, stop := range atExit {
		stop()
	}
	return code
}

const sideBySide = 2

// SkipOrFail ends a test that lacks something on this machine. Where nothing
// may be left out, that is a failure.
func SkipOrFail(t testing.TB, why string) {
	t.Helper()
	if os.Getenv("MNEMOGATE_TEST_REQUIRE") == "1" {
		t.Fatal(why)
	}
	t.Skip(why)
}

// NeedLinux skips the test elsewhere.
func NeedLinux(t testing.TB, why string) {
	t.Helper()
	if runtime.GOOS != "linux" {
		SkipOrFail(t, "only on Linux: "+why)
	}
}

// NeedPeers skips the test where Node, or the packages in the directory peers,
// are missing, unless nothing may be skipped.
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

// Eventually waits until something is so, and fails the test where it is not
// within the limit.
func Eventually(t testing.TB, limit time.Duration, what string, is func() bool) {
	t.Helper()
	for w := StartWatch(); !is(); {
		if w.Took() > limit {
			t.Fatalf("no %s within %v", what, limit)
		}
		time.Sleep(time.Millisecond)
	}
}

// Started starts a store, which on a busy machine may take several tries.
func Started(t testing.TB, start func(context.Context) error) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if err := start(t.Context()); err == nil {
			return
		} else if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

// WatchStalls measures until stop is called how long this machine, if it is busy,
// held up the tests or what they wait for: for how long some process had no CPU,
// or, where Linux does not tell, all that held up the tests themselves.
func WatchStalls() (stop func() time.Duration) {
	const tick = 5 * time.Millisecond
	pressed := cpuPressure()
	quit, sum := make(chan bool), make(chan time.Duration)
	go func() {
		var held time.Duration
		for {
			before := time.Now()
			select {
			case <-quit:
				sum <- held
				return
			case <-time.After(tick):
				if late := time.Since(before) - tick; late > tick {
					held += late
				}
			}
		}
	}()
	return func() time.Duration {
		quit <- true
		return max(<-sum, cpuPressure()-pressed)
	}
}

// A Watch measures how long something takes on a machine that may be busy.
type Watch struct {
	began   time.Time
	pressed time.Duration
}

func StartWatch() Watch { return Watch{time.Now(), cpuPressure()} }

// Took is the time since the start, less that in which some process had no CPU.
func (w Watch) Took() time.Duration {
	return time.Since(w.began) - (cpuPressure() - w.pressed)
}

// cpuPressure is for how long, since Linux began to count, some process was ready
// and had no CPU (https://docs.kernel.org/accounting/psi.html); 0 if that is unknown.
func cpuPressure() time.Duration {
	text, _ := os.ReadFile("/proc/pressure/cpu") // some avg10=0.00 avg60=0.00 avg300=0.00 total=0
	line, _, _ := strings.Cut(string(text), "\n")
	_, total, _ := strings.Cut(line, "total=")
	us, _ := strconv.ParseInt(total, 10, 64)
	return time.Duration(us) * time.Microsecond
}

// FreePorts returns n ports that are free, as are those 10,000 above them, which
// a Cluster's nodes use. Both are below what is given out to clients. No port is
// returned twice.
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
	nextPort = 20000 + mathrand.IntN(2000) // not where another test binary looks
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

// A directory is a server's own, and its user's.
type directory struct {
	path string
	as   *owner // nil for the user who runs the tests
}

type owner struct{ uid, gid int }

// newDirectory is not in t.TempDir: a socket's path has 107 bytes at most, and
// the parents of that are closed to another user. Its name tells whose it is.
func newDirectory(user string) (d directory, err error) {
	d.as = ownerNamed(user)
	if d.path, err = os.MkdirTemp("/tmp", fmt.Sprint(dirPrefix, os.Getpid(), "-")); err != nil {
		return d, err
	}
	return d, d.give(d.path)
}

// ownerNamed is as whom to run a server: where the tests are run by root, as
// its usual user, else nil.
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

// Dir is the server's directory.
func (d directory) Dir() string { return d.path }

// give makes a file the server's.
func (d directory) give(file string) error {
	if d.as == nil {
		return nil
	}
	return os.Chown(file, d.as.uid, d.as.gid)
}

// command is a program that is run in the directory by its user.
func (d directory) command(program string, args ...string) *exec.Cmd {
	cmd := exec.Command(program, args...)
	cmd.Dir = d.path
	cmd.Env = []string{"LC_ALL=C", "PATH=" + os.Getenv("PATH")}
	cmd.SysProcAttr = runAs(d.as)
	return cmd
}

// Start starts a program that ends with the tests. What it returns is closed once
// it has ended.
func Start(cmd *exec.Cmd) (exited chan struct{}, err error) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	endWithParent(cmd.SysProcAttr)
	started := make(chan error)
	exited = make(chan struct{})
	go func() {
		// The death that endWithParent waits for is this thread's. Unlocked it lives on:
		// it may have started others before.
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

// sweepDirs removes what test runs left that were killed.
func sweepDirs() {
	dirs, _ := filepath.Glob("/tmp/" + dirPrefix + "*")
	for _, dir := range dirs {
		pid, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(dir), dirPrefix), "-")
		if n, err := strconv.Atoi(pid); err == nil && isGone(n) {
			os.RemoveAll(dir)
		}
	}
}

// Certificate makes a certificate for 127.0.0.1 that is its own authority, and
// its key: <name>.crt and <name>.key in the server's directory.
func (d directory) Certificate(t testing.TB, name string) (certificate, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	signed, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	must(t, err)
	encoded, err := x509.MarshalPKCS8PrivateKey(private)
	must(t, err)
	write := func(file, kind string, data []byte) string {
		t.Helper()
		file = filepath.Join(d.path, file)
		must(t, os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: data}), 0o600))
		must(t, d.give(file))
		return file
	}
	return write(name+".crt", "CERTIFICATE", signed), write(name+".key", "PRIVATE KEY", encoded)
}

var bg = context.Background()

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("unexpected error: %v", err)
	}
}
