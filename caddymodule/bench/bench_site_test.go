package bench

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/crypto/argon2"

	"github.com/mnemogate/mnemogate/caddymodule/guest/guesttest"
	"github.com/mnemogate/mnemogate/flows/password"
	"github.com/mnemogate/mnemogate/store/storetest"
)

// The processes of the benchmarks: Caddys, bare and with mnemogate, the
// application behind them, and what they are compared with. All are this test
// binary.

// A subject is a Caddy that is measured.
type subject struct {
	b      testing.TB
	addr   string
	warmUp string // the address of a site that does all but proxy
	udp    string // the address of the first site for HTTP/3
	tls    *tls.Config
	dir    string
	admin  *http.Client
	cmd    *exec.Cmd
	files  []*os.File // fd/3, fd/4 and fdgram/5
	exited chan struct{}
	log    logBuffer
}

// A subjectConfig is what differs between subjects: lines of Caddyfile. DIR is
// the subject's own directory.
type subjectConfig struct {
	global string // in the global options
	guard  string // before reverse_proxy
	more   string // in the site
	db     string // a file to begin with, copied to DIR/mnemogate.db
	http3  bool   // the site listens for it, too
}

func (c subjectConfig) caddyfile(dir, upstream string) []byte {
	https := ""
	if c.http3 {
		https = fmt.Sprintf("https:// {\nbind fdgram/5 {\nprotocols h3\n}\ntls DIR/cert.pem DIR/key.pem\n%s\n%s\n%s\n}\n", c.guard, c.more, c.proxy(upstream))
	}
	return []byte(strings.ReplaceAll(fmt.Sprintf(`{
	admin unix/DIR/admin.sock
	persist_config off
	auto_https off
	servers {
		protocols h1 h2c
	}
	%s
}
http:// {
	bind fd/3
	%s
	%s
	%s
}
http:// {
	bind fd/4
	%[2]s
	respond 204
}
%[5]s`, c.global, c.guard, c.more, c.proxy(upstream), https), "DIR", dir))
}

func (subjectConfig) proxy(upstream string) string {
	return "reverse_proxy " + upstream + " {\ntransport http {\nkeepalive_idle_conns_per_host 512\n}\n}"
}

func startSubject(b testing.TB, c subjectConfig, upstream string) *subject {
	b.Helper()
	s := newSubject(b, c, upstream)
	s.start()
	s.awaitLog("serving initial configuration")
	return s
}

// newSubject prepares a Caddy without starting it.
func newSubject(b testing.TB, c subjectConfig, upstream string) *subject {
	b.Helper()
	dir, err := os.MkdirTemp("", "mg")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = os.RemoveAll(dir) })
	s := &subject{b: b, dir: dir}
	s.admin = &http.Client{Transport: &http.Transport{
		DialContext: func(context.Context, string, string) (net.Conn, error) { return net.Dial("unix", dir+"/admin.sock") },
	}}
	for _, addr := range []*string{&s.addr, &s.warmUp} {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			b.Fatal(err)
		}
		file, err := ln.(*net.TCPListener).File()
		if err != nil {
			b.Fatal(err)
		}
		*addr = ln.Addr().String()
		_ = ln.Close()
		b.Cleanup(func() { _ = file.Close() })
		s.files = append(s.files, file)
	}
	if c.http3 {
		s.listenHTTP3()
	}
	if c.db != "" {
		copyFile(b, c.db, dir+"/mnemogate.db")
	}
	if err := os.WriteFile(dir+"/Caddyfile", c.caddyfile(dir, upstream), 0o600); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(s.kill)
	return s
}

// listenHTTP3 makes a socket and a certificate, of localhost.
func (s *subject) listenHTTP3() {
	s.b.Helper()
	conn, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		s.b.Fatal(err)
	}
	defer conn.Close()
	file, err := conn.File()
	if err != nil {
		s.b.Fatal(err)
	}
	s.b.Cleanup(func() { _ = file.Close() })
	s.files, s.udp = append(s.files, file), conn.LocalAddr().String()
	config, roots := guesttest.Certificate(s.b, "localhost")
	s.tls = &tls.Config{RootCAs: roots, ServerName: "localhost"}
	private, err := x509.MarshalPKCS8PrivateKey(config.Certificates[0].PrivateKey)
	if err != nil {
		s.b.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{
		"cert.pem": {Type: "CERTIFICATE", Bytes: config.Certificates[0].Certificate[0]},
		"key.pem":  {Type: "PRIVATE KEY", Bytes: private},
	} {
		if err := os.WriteFile(filepath.Join(s.dir, name), pem.EncodeToMemory(block), 0o600); err != nil {
			s.b.Fatal(err)
		}
	}
}

func copyFile(b testing.TB, from, to string) {
	b.Helper()
	source, err := os.Open(from)
	if err != nil {
		b.Fatal(err)
	}
	defer source.Close()
	target, err := os.Create(to)
	if err != nil {
		b.Fatal(err)
	}
	defer target.Close()
	if _, err := io.Copy(target, source); err != nil {
		b.Fatal(err)
	}
}

// child is this test binary as another program.
func child(as string, args ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), as)
	return cmd
}

func (s *subject) start() {
	s.b.Helper()
	s.cmd = child("MNEMOGATE_TEST_CADDY=1", "run", "--config", s.dir+"/Caddyfile")
	s.cmd.Env = append(s.cmd.Env, "XDG_DATA_HOME="+s.dir+"/data", "XDG_CONFIG_HOME="+s.dir+"/config", "HOME="+s.dir)
	s.cmd.ExtraFiles = s.files
	s.cmd.Stdout, s.cmd.Stderr = &s.log, &s.log
	var err error
	if s.exited, err = storetest.Start(s.cmd); err != nil {
		s.b.Fatal(err)
	}
}

func (s *subject) awaitLog(line string) {
	s.b.Helper()
	for deadline := time.Now().Add(30 * time.Second); !strings.Contains(s.log.String(), line); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) || s.hasExited() {
			s.b.Fatalf("caddy does not come up:\n%s", s.log.String())
		}
	}
}

func (s *subject) hasExited() bool {
	select {
	case <-s.exited:
		return true
	default:
		return false
	}
}

func (s *subject) kill() {
	if s.cmd != nil {
		_ = s.cmd.Process.Kill()
		<-s.exited
	}
	s.admin.CloseIdleConnections()
}

// A logBuffer keeps what a process writes.
type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

func (l *logBuffer) reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.buf.Reset()
}

func (l *logBuffer) Len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Len()
}

// ask calls the admin endpoint.
func (s *subject) ask(method, path, contentType string, body []byte) []byte {
	s.b.Helper()
	r, err := http.NewRequestWithContext(s.b.Context(), method, "http://localhost"+path, bytes.NewReader(body))
	if err != nil {
		s.b.Fatal(err)
	}
	if contentType != "" {
		r.Header.Set("Content-Type", contentType)
	}
	response, err := s.admin.Do(r)
	if err != nil {
		s.b.Fatal(err)
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		s.b.Fatalf("%s %s: %d %s, %v", method, path, response.StatusCode, answer, err)
	}
	return answer
}

// metric is the value of a metric without labels.
func (s *subject) metric(name string) float64 {
	s.b.Helper()
	for line := range strings.Lines(string(s.ask("GET", "/metrics", "", nil))) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			number, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			if err != nil {
				s.b.Fatal(err)
			}
			return number
		}
	}
	s.b.Fatalf("there is no metric %s", name)
	return 0
}

// Helpers

// helpers are what the test binary can be besides a Caddy.
var helpers = map[string]func(){
	"upstream": serveUpstream,
	"argon2":   hashOnCommand,
}

// A helper is told by lines and answers by lines.
type helper struct {
	b      testing.TB
	stdin  io.Writer
	stdout *bufio.Reader
}

func startHelper(b testing.TB, name string) *helper {
	b.Helper()
	cmd := child("MNEMOGATE_TEST_HELPER=" + name)
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	exited, err := storetest.Start(cmd)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-exited
	})
	return &helper{b, stdin, bufio.NewReader(stdout)}
}

func (h *helper) ask(line string) string {
	h.b.Helper()
	if _, err := fmt.Fprintln(h.stdin, line); err != nil {
		h.b.Fatal(err)
	}
	return h.hear()
}

func (h *helper) hear() string {
	h.b.Helper()
	line, err := h.stdout.ReadString('\n')
	if err != nil {
		h.b.Fatal(err)
	}
	return strings.TrimSpace(line)
}

// startUpstream starts the application that all requests end at.
func startUpstream(b testing.TB) (addr string) {
	b.Helper()
	return startHelper(b, "upstream").hear()
}

// serveUpstream answers each request, which has no body, with the same few bytes.
func serveUpstream() {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	fmt.Println(ln.Addr())
	response := []byte("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 13\r\n\r\n{\"items\": []}")
	for {
		conn, err := ln.Accept()
		if err != nil {
			panic(err)
		}
		go func() {
			defer conn.Close()
			buf, n := make([]byte, 8<<10), 0
			for {
				more, err := conn.Read(buf[n:])
				if err != nil {
					return
				}
				if n += more; !bytes.HasSuffix(buf[:n], headerEnd) {
					continue
				}
				n = 0
				if _, err := conn.Write(response); err != nil {
					return
				}
			}
		}()
	}
}

// hashOnCommand computes argon2id hashes for as long as a line says, as many at
// once as logins may, and answers with how many it did in a second.
func hashOnCommand() {
	p := password.DefaultArgon2id
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		d, err := time.ParseDuration(lines.Text())
		if err != nil {
			panic(err)
		}
		var all sync.WaitGroup
		counts := make([]int, max(1, runtime.GOMAXPROCS(0)-1))
		began := time.Now()
		for i := range counts {
			all.Go(func() {
				for ; time.Since(began) < d; counts[i]++ {
					argon2.IDKey([]byte(testPassword), []byte("a salt, 16 bytes"), p.Iterations, p.MemoryKiB, p.Parallelism, 32)
				}
			})
		}
		all.Wait()
		sum := 0
		for _, n := range counts {
			sum += n
		}
		fmt.Println(float64(sum) / time.Since(began).Seconds())
	}
}
