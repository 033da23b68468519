package store

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// A pgServer is a PostgreSQL server of the tests, in a directory of its own. It
// listens on a Unix socket, so that it is in nobody's way.
type pgServer struct {
	bin    string // where initdb and postgres are
	dir    string
	port   string
	cmd    *exec.Cmd
	exited chan struct{}
}

const pgDirPrefix = "mgpg-"

// sharedPG is the server that all tests use which leave it in peace. Each has a
// schema of its own there.
var sharedPG = sync.OnceValues(func() (*pgServer, error) {
	sweepPGDirs()
	s, err := newPGServer()
	if err == nil {
		atExit = append(atExit, s.remove)
	}
	return s, err
})

func usePG(t testing.TB) *pgServer {
	t.Helper()
	s, err := sharedPG()
	if errors.Is(err, errNoPostgres) {
		skipOrFail(t, err.Error())
	}
	must(t, err)
	return s
}

var errNoPostgres = errors.New("PostgreSQL is not installed: there is no initdb in the PATH or /usr/lib/postgresql")

// ownPG starts a server for one test.
func ownPG(t testing.TB) *pgServer {
	t.Helper()
	s, err := newPGServer()
	if errors.Is(err, errNoPostgres) {
		skipOrFail(t, err.Error())
	}
	must(t, err)
	t.Cleanup(s.remove)
	return s
}

func newPGServer() (*pgServer, error) {
	bin, err := pgBin()
	if err != nil {
		return nil, err
	}
	s, err := newPGDir(bin)
	if err != nil {
		return nil, err
	}
	if err := s.init(); err != nil {
		s.remove()
		return nil, err
	}
	return s, nil
}

// newPGDir makes the directory of a server. It is not in t.TempDir, whose name
// is too long for a socket and whose parents are closed to the server's user.
// Its name tells whose it is.
func newPGDir(bin string) (*pgServer, error) {
	dir, err := os.MkdirTemp("", fmt.Sprint(pgDirPrefix, os.Getpid(), "-"))
	if err != nil {
		return nil, err
	}
	if credential := serverCredential("postgres"); credential != nil {
		err = os.Chown(dir, int(credential.Uid), int(credential.Gid))
	}
	return &pgServer{bin: bin, dir: dir, port: "5432"}, err
}

func pgBin() (string, error) {
	if initdb, err := exec.LookPath("initdb"); err == nil {
		initdb, err = filepath.EvalSymlinks(initdb)
		return filepath.Dir(initdb), err
	}
	if all, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb"); len(all) > 0 {
		return filepath.Dir(all[len(all)-1]), nil
	}
	return "", errNoPostgres
}

// sweepPGDirs removes what test runs left that were killed.
func sweepPGDirs() {
	dirs, _ := filepath.Glob(filepath.Join(os.TempDir(), pgDirPrefix+"*"))
	for _, dir := range dirs {
		pid, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(dir), pgDirPrefix), "-")
		if n, err := strconv.Atoi(pid); err == nil && syscall.Kill(n, 0) == syscall.ESRCH {
			os.RemoveAll(dir)
		}
	}
}

func (s *pgServer) init() error {
	initdb := s.command("initdb", "-D", s.data(), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C",
		"--no-sync", "--no-instructions")
	if out, err := initdb.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w: %s", err, out)
	}
	return s.start()
}

func (s *pgServer) data() string { return filepath.Join(s.dir, "data") }

func (s *pgServer) logFile() string { return filepath.Join(s.dir, "log") }

// log is what the server has logged.
func (s *pgServer) log(t testing.TB) string {
	t.Helper()
	log, err := os.ReadFile(s.logFile())
	must(t, err)
	return string(log)
}

// command is a program of PostgreSQL, which refuses to be run by root.
func (s *pgServer) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(s.bin, name), args...)
	cmd.Dir = s.dir
	cmd.Env = []string{"LC_ALL=C", "PATH=" + os.Getenv("PATH")}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: serverCredential("postgres"), Pdeathsig: syscall.SIGKILL}
	return cmd
}

// serverCredential is as whom to run a server: where the tests are run by root,
// as its usual user, else nil.
func serverCredential(name string) *syscall.Credential {
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
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid), Groups: []uint32{}}
}

// start starts the server and waits until it answers. More settings may be
// given as name=value.
func (s *pgServer) start(settings ...string) error {
	args := []string{"-D", s.data(), "-k", s.dir, "-p", s.port}
	for _, setting := range append([]string{"listen_addresses=", "fsync=off", "full_page_writes=off",
		"synchronous_commit=off", "shared_buffers=64MB", "wal_level=minimal", "max_wal_senders=0", "autovacuum=off",
		"max_wal_size=2GB"}, settings...) {
		args = append(args, "-c", setting)
	}
	s.cmd = s.command("postgres", args...)
	log, err := os.OpenFile(s.logFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	s.cmd.Stdout, s.cmd.Stderr = log, log
	// The death that Pdeathsig waits for is this thread's.
	started := make(chan error)
	s.exited = make(chan struct{})
	go func() {
		runtime.LockOSThread()
		err := s.cmd.Start()
		started <- err
		if err == nil {
			s.cmd.Wait()
		}
		close(s.exited)
	}()
	if err := <-started; err != nil {
		return err
	}
	return s.waitUntilUp()
}

func (s *pgServer) waitUntilUp() error {
	for range 1000 {
		conn, err := pgx.Connect(context.Background(), s.dsn(""))
		if err == nil {
			return conn.Close(context.Background())
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

// stop ends the server at once, as if it had crashed.
func (s *pgServer) stop() {
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

func (s *pgServer) remove() {
	s.stop()
	os.RemoveAll(s.dir)
}

func (s *pgServer) socket() string { return filepath.Join(s.dir, ".s.PGSQL."+s.port) }

// dsn is for tables in a schema.
func (s *pgServer) dsn(schema string) string {
	return fmt.Sprintf("host=%s port=%s user=postgres dbname=postgres sslmode=disable search_path=%s", s.dir, s.port, schema)
}

// dsnThrough is dsn through a proxy.
func (s *pgServer) dsnThrough(p *faultProxy, schema string) string {
	host, port, _ := net.SplitHostPort(p.Addr())
	return fmt.Sprintf("host=%s port=%s user=postgres password=hunter2 dbname=postgres sslmode=disable search_path=%s", host, port, schema)
}

var pgSchemas atomic.Int64

// newSchema makes an empty schema and drops it after the test.
func (s *pgServer) newSchema(t testing.TB) string {
	t.Helper()
	schema := fmt.Sprint("test", pgSchemas.Add(1))
	s.exec(t, "CREATE SCHEMA "+schema)
	t.Cleanup(func() {
		select {
		case <-s.exited: // with all that was in it
		default:
			s.exec(t, "DROP SCHEMA "+schema+" CASCADE")
		}
	})
	return schema
}

// exec runs statements behind a store's back.
func (s *pgServer) exec(t testing.TB, statements ...string) {
	t.Helper()
	conn, err := pgx.Connect(bg, s.dsn(""))
	must(t, err)
	defer conn.Close(bg)
	for _, statement := range statements {
		_, err := conn.Exec(bg, statement)
		must(t, err)
	}
}

// replica starts a server that follows this one.
func (s *pgServer) replica(t testing.TB) *pgServer {
	t.Helper()
	r, err := newPGDir(s.bin)
	must(t, err)
	t.Cleanup(r.remove)
	out, err := r.command("pg_basebackup", "-D", r.data(), "-h", s.dir, "-U", "postgres", "-R", "-c", "fast", "--no-sync").CombinedOutput()
	if err != nil {
		t.Fatalf("pg_basebackup: %v: %s", err, out)
	}
	must(t, r.start("wal_level=replica", "max_wal_senders=3"))
	return r
}

// waitFor waits until the replica has all of its primary.
func (s *pgServer) waitFor(t testing.TB, primary *pgServer) {
	t.Helper()
	ask := func(s *pgServer, query string, args ...any) (answer string) {
		conn, err := pgx.Connect(bg, s.dsn(""))
		must(t, err)
		defer conn.Close(bg)
		must(t, conn.QueryRow(bg, query, args...).Scan(&answer))
		return answer
	}
	position := ask(primary, "SELECT pg_current_wal_lsn()::text")
	for range 500 {
		if ask(s, "SELECT (pg_last_wal_replay_lsn() >= $1::text::pg_lsn)::text", position) == "true" {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatal("the replica does not follow")
}
