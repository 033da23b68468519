package storetest

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// A Postgres is a PostgreSQL server in a directory of its own. It listens on a Unix
// socket, so that it can't conflict with other servers.
type Postgres struct {
	directory
	Port     int      // part of the socket's name; a TCP port too if listen_addresses is set
	bin      string   // directory of initdb and postgres
	settings []string // passed at every start
	cmd      *exec.Cmd
	exited   chan struct{}
}

// sharedPostgres is the server of all tests that do not disturb it. Each of them has
// its own schema there.
var sharedPostgres = sync.OnceValues(func() (*Postgres, error) {
	s, err := newPostgres()
	if err == nil {
		atExit = append(atExit, s.remove)
	}
	return s, err
})

// SharedPostgres returns a server that other tests use too. Each test must use a
// schema of its own (see NewSchema) and must not stop the server.
func SharedPostgres(t testing.TB) *Postgres {
	t.Helper()
	return usable(t)(sharedPostgres())
}

// durable are the settings with which acknowledged changes survive when the server's
// processes are killed. They are PostgreSQL's defaults. They need no fsync, because the
// kernel goes on running.
var durable = []string{"synchronous_commit=on", "full_page_writes=on"}

// OwnPostgres starts a server for one test, which may stop it. Acknowledged changes
// are still there after a restart. The settings are passed at every start.
func OwnPostgres(t testing.TB, settings ...string) *Postgres {
	t.Helper()
	s := usable(t)(newPostgres(slices.Concat(durable, settings)...))
	t.Cleanup(s.remove)
	return s
}

var errNoPostgres = errors.New("PostgreSQL is not installed: there is no initdb in the PATH or /usr/lib/postgresql")

func usable(t testing.TB) func(*Postgres, error) *Postgres {
	return func(s *Postgres, err error) *Postgres {
		t.Helper()
		if errors.Is(err, errNoPostgres) {
			SkipOrFail(t, err.Error())
		}
		Must(t, err)
		return s
	}
}

func newPostgres(settings ...string) (*Postgres, error) {
	bin, err := postgresBin()
	if err != nil {
		return nil, err
	}
	s, err := newPostgresDir(bin)
	if err != nil {
		return nil, err
	}
	s.settings = settings
	if err := s.init(); err != nil {
		s.remove()
		return nil, err
	}
	return s, nil
}

func newPostgresDir(bin string) (*Postgres, error) {
	dir, err := newDirectory("postgres")
	return &Postgres{directory: dir, bin: bin, Port: 5432}, err
}

func postgresBin() (string, error) {
	if runtime.GOOS == "windows" {
		return "", fmt.Errorf("%w, and the tests reach it by a Unix socket", errNoPostgres)
	}
	if initdb, err := exec.LookPath("initdb"); err == nil {
		initdb, err = filepath.EvalSymlinks(initdb)
		return filepath.Dir(initdb), err
	}
	if all, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb"); len(all) > 0 {
		return filepath.Dir(all[len(all)-1]), nil
	}
	return "", errNoPostgres
}

func (s *Postgres) init() error {
	initdb := s.command("initdb", "-D", s.data(), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C",
		"--no-sync", "--no-instructions")
	if out, err := initdb.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w: %s", err, out)
	}
	return s.Start()
}

func (s *Postgres) data() string { return filepath.Join(s.path, "data") }

func (s *Postgres) logFile() string { return filepath.Join(s.path, "log") }

// Log returns the server's log.
func (s *Postgres) Log(t testing.TB) string {
	t.Helper()
	log, err := os.ReadFile(s.logFile())
	Must(t, err)
	return string(log)
}

// command returns a command that runs a program of PostgreSQL. PostgreSQL refuses to
// run as root.
func (s *Postgres) command(name string, args ...string) *exec.Cmd {
	return s.directory.command(filepath.Join(s.bin, name), args...)
}

// Start starts a stopped server and waits until it answers. Additional settings have
// the form name=value.
func (s *Postgres) Start(settings ...string) error {
	args := []string{"-D", s.data(), "-k", s.path, "-p", fmt.Sprint(s.Port)}
	for _, setting := range slices.Concat([]string{"listen_addresses=", "fsync=off", "full_page_writes=off",
		"synchronous_commit=off", "shared_buffers=512MB", "max_connections=400", "wal_level=minimal", "max_wal_senders=0", "autovacuum=off",
		"max_wal_size=2GB"}, s.settings, settings) {
		args = append(args, "-c", setting)
	}
	s.cmd = s.command("postgres", args...)
	log, err := os.OpenFile(s.logFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	s.cmd.Stdout, s.cmd.Stderr = log, log
	if s.exited, err = Start(s.cmd); err != nil {
		return err
	}
	return s.waitUntilUp()
}

func (s *Postgres) waitUntilUp() error {
	for w := StartWatch(); !w.Over(10 * time.Second); {
		conn, err := pgx.Connect(bg, s.DSN(""))
		if err == nil {
			return conn.Close(bg)
		}
		select {
		case <-s.exited:
			log, _ := os.ReadFile(s.logFile())
			return fmt.Errorf("PostgreSQL did not start: %s", log)
		case <-time.After(10 * time.Millisecond):
		}
	}
	return errors.New("PostgreSQL does not answer")
}

// Stop stops the server immediately, as if it had crashed.
func (s *Postgres) Stop() {
	if s.cmd == nil || s.cmd.Process == nil {
		return
	}
	s.cmd.Process.Signal(syscall.SIGQUIT)
	select {
	case <-s.exited:
	case <-time.After(10 * time.Second):
		s.cmd.Process.Kill()
		<-s.exited
	}
}

// Kill kills all processes of the server, so that they can't write anything more.
// What they have written to the kernel stays. It needs Linux.
func (s *Postgres) Kill() {
	Freeze(s.cmd.Process) // so that it starts no more children
	pid := s.cmd.Process.Pid
	children, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", pid))
	s.cmd.Process.Kill()
	for _, child := range strings.Fields(string(children)) {
		if n, err := strconv.Atoi(child); err == nil {
			if process, err := os.FindProcess(n); err == nil {
				process.Kill()
			}
		}
	}
	<-s.exited
	for _, child := range strings.Fields(string(children)) {
		for range 1000 { // the server can't start again while one lives
			stat, err := os.ReadFile("/proc/" + child + "/stat")
			if err != nil || strings.Contains(string(stat), ") Z ") {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
}

func (s *Postgres) remove() {
	s.Stop()
	os.RemoveAll(s.path)
}

// Socket returns the socket's file name, for NewProxy.
func (s *Postgres) Socket() string { return filepath.Join(s.path, fmt.Sprint(".s.PGSQL.", s.Port)) }

// DSN returns a DSN for the tables in a schema.
func (s *Postgres) DSN(schema string) string {
	return fmt.Sprintf("host=%s port=%d user=postgres dbname=postgres sslmode=disable search_path=%s", s.path, s.Port, schema)
}

// DSNThrough is DSN, but through a proxy.
func (s *Postgres) DSNThrough(p *Proxy, schema string) string {
	host, port, _ := net.SplitHostPort(p.Addr())
	return fmt.Sprintf("host=%s port=%s user=postgres password=hunter2 dbname=postgres sslmode=disable search_path=%s", host, port, schema)
}

var schemas atomic.Int64

// NewSchema creates an empty schema. It is gone with the server.
func (s *Postgres) NewSchema(t testing.TB) string {
	t.Helper()
	schema := fmt.Sprint("test", schemas.Add(1))
	s.Exec(t, "CREATE SCHEMA "+schema)
	return schema
}

// Exec runs statements without the store's knowledge.
func (s *Postgres) Exec(t testing.TB, statements ...string) {
	t.Helper()
	conn, err := pgx.Connect(bg, s.DSN(""))
	Must(t, err)
	defer conn.Close(bg)
	for _, statement := range statements {
		_, err := conn.Exec(bg, statement)
		Must(t, err)
	}
}

// Replica starts a server that replicates this one. Additional settings have the form
// name=value.
func (s *Postgres) Replica(t testing.TB, settings ...string) *Postgres {
	t.Helper()
	r, err := newPostgresDir(s.bin)
	Must(t, err)
	t.Cleanup(r.remove)
	out, err := r.command("pg_basebackup", "-D", r.data(), "-h", s.path, "-U", "postgres", "-R", "-c", "fast", "--no-sync").CombinedOutput()
	if err != nil {
		t.Fatalf("pg_basebackup: %v: %s", err, out)
	}
	Must(t, r.Start(append([]string{"wal_level=replica", "max_wal_senders=3"}, settings...)...))
	return r
}

// WaitFor waits until the replica has everything that its primary has.
func (s *Postgres) WaitFor(t testing.TB, primary *Postgres) {
	t.Helper()
	ask := func(s *Postgres, query string, args ...any) (answer string) {
		conn, err := pgx.Connect(bg, s.DSN(""))
		Must(t, err)
		defer conn.Close(bg)
		Must(t, conn.QueryRow(bg, query, args...).Scan(&answer))
		return answer
	}
	position := ask(primary, "SELECT pg_current_wal_lsn()::text")
	Eventually(t, 5*time.Second, "replica that follows", func() bool {
		return ask(s, "SELECT (pg_last_wal_replay_lsn() >= $1::text::pg_lsn)::text", position) == "true"
	})
}

// Dump returns a schema in the format of pg_dump.
func (s *Postgres) Dump(t testing.TB, schema string) []byte {
	t.Helper()
	dump, err := s.client("pg_dump", "-n", schema).Output()
	Must(t, err)
	return dump
}

// Restore restores a schema from a dump.
func (s *Postgres) Restore(t testing.TB, schema string, dump []byte) {
	t.Helper()
	s.Exec(t, "DROP SCHEMA "+schema+" CASCADE")
	psql := s.client("psql", "-q", "-v", "ON_ERROR_STOP=1")
	psql.Stdin = bytes.NewReader(dump)
	out, err := psql.CombinedOutput()
	if err != nil {
		t.Fatalf("psql: %v: %s", err, out)
	}
}

// Psql returns the shell's command that opens psql as an administrator.
func (s *Postgres) Psql() string { return strings.Join(s.client("psql").Args, " ") }

func (s *Postgres) client(name string, args ...string) *exec.Cmd {
	return s.command(name, append([]string{"-h", s.path, "-p", fmt.Sprint(s.Port), "-U", "postgres", "-d", "postgres"}, args...)...)
}
