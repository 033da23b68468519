package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	sqlite3 "modernc.org/sqlite/lib"

	"github.com/mnemogate/mnemogate/flows/panics"
	"github.com/mnemogate/mnemogate/store/sqlstore"
)

// An op is a write that waits for its commit.
type op struct {
	run     func(context.Context, *queries) error
	claimed atomic.Bool // set by the writing goroutine, or by the caller when it gives up
	err     error       // result of run
	ran     chan struct{}
	done    chan error
}

// stall is how long a write waits for a disk that is stuck, and for the writes before
// it. Another process may hold the lock for busyTimeout.
var stall = 10 * time.Second

var errStalled = errors.New("the SQLite file does not answer")

// write runs f in a transaction and returns once that is durable. If f fails,
// nothing of it is stored and write returns its error. After any other error it may
// have been stored or not. If the caller's context ends, write gives up only if f
// has not begun, so that f never runs after write has returned. After stall it also
// gives up if only the commit is missing.
func (s *Store) write(ctx context.Context, f func(context.Context, *queries) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := s.beginCall(); err != nil {
		return err
	}
	defer s.endCall()
	o := &op{run: f, ran: make(chan struct{}), done: make(chan error, 1)}
	stalled := make(chan struct{})
	defer time.AfterFunc(stall, func() { close(stalled) }).Stop()
	select {
	case s.ops <- o:
	case <-ctx.Done():
		return ctx.Err()
	case <-stalled:
		return errStalled
	}
	select {
	case err := <-o.done:
		return err
	case <-ctx.Done():
		if o.claimed.CompareAndSwap(false, true) {
			return ctx.Err()
		}
	case <-stalled:
		if o.claimed.CompareAndSwap(false, true) {
			return errStalled
		}
	}
	select {
	case err := <-o.done:
		return err
	case <-stalled:
	}
	select {
	case err := <-o.done:
		return err
	case <-o.ran:
		return errStalled
	}
}

// call is sqlstore.Call for write.
func (s *Store) call(ctx context.Context, what string, f func(context.Context, *queries) error) error {
	return sqlstore.Call(ctx, s, what, func() error { return s.write(ctx, f) })
}

// emptyLog removes deleted data from the log: see writer.emptyLog.
func (s *Store) emptyLog(ctx context.Context) error {
	if err := s.beginCall(); err != nil {
		return err
	}
	defer s.endCall()
	done := make(chan error, 1)
	select {
	case s.empties <- done:
		return <-done
	case <-ctx.Done():
		return ctx.Err()
	}
}

// commitLoop commits waiting writes until Close.
func (s *Store) commitLoop() {
	defer close(s.stopped)
	var c writer
	defer c.discard()
	for {
		select {
		case o := <-s.ops:
			s.commit(&c, s.waiting(o))
		case done := <-s.empties:
			err := panics.Contain(func() error { return c.emptyLog(context.Background(), s.writers) })
			if err != nil && err != errRead {
				c.discard() // it may still have the short busy timeout
			}
			done <- err
		case <-s.quit:
			return
		}
	}
}

// waiting returns first and the writes that wait after it.
func (s *Store) waiting(first *op) []*op {
	batch := []*op{first}
	for len(batch) < maxBatch {
		select {
		case o := <-s.ops:
			batch = append(batch, o)
		default:
			return batch
		}
	}
	return batch
}

// commit runs a batch in one transaction and then answers all its ops. If the
// transaction fails, all ops fail, even those that succeeded, because they may have
// read what another op wrote. The state of the connection is then unknown, so commit
// closes it, which rolls back.
func (s *Store) commit(c *writer, batch []*op) {
	err := panics.Contain(func() error { return c.transact(context.Background(), s.writers, batch) })
	s.locked.Store(isLocked(err))
	if err != nil {
		c.discard()
	}
	for _, o := range batch {
		if err != nil {
			o.err = err
		}
		o.done <- o.err
	}
}

// A writer is the writing connection, if it is open, and its statements.
type writer struct {
	conn *sql.Conn
	*queries
}

func (c *writer) connect(ctx context.Context, db *sql.DB) error {
	if c.conn != nil {
		return nil
	}
	conn, err := db.Conn(ctx)
	if err != nil {
		return fmt.Errorf("connecting: %w", err)
	}
	c.conn, c.queries = conn, newQueries(conn)
	return nil
}

func (c *writer) transact(ctx context.Context, db *sql.DB, batch []*op) error {
	if err := c.connect(ctx, db); err != nil {
		return err
	}
	if _, err := c.Exec(ctx, `BEGIN IMMEDIATE`); err != nil {
		return fmt.Errorf("beginning: %w", err)
	}
	for _, o := range batch {
		if !o.claimed.CompareAndSwap(false, true) {
			continue
		}
		err := c.attempt(ctx, o)
		close(o.ran)
		if err != nil {
			return err
		}
	}
	if _, err := c.Exec(ctx, `COMMIT`); err != nil {
		return fmt.Errorf("committing: %w", err)
	}
	return nil
}

// attempt runs an op in a savepoint, so that its failure does not affect the others.
// The op's error is in o.err. The returned error is the transaction's.
func (c *writer) attempt(ctx context.Context, o *op) error {
	if _, err := c.Exec(ctx, `SAVEPOINT op`); err != nil {
		return fmt.Errorf("setting a savepoint: %w", err)
	}
	c.failed = nil
	if o.err = panics.Contain(func() error { return o.run(ctx, c.queries) }); c.failed != nil {
		o.err = c.failed
	}
	if o.err != nil {
		if _, err := c.Exec(ctx, `ROLLBACK TO op`); err != nil {
			// %v, not %w: this op's error must not become an answer to the other
			// callers.
			return fmt.Errorf("rolling back after %v: %w", o.err, err)
		}
		if code(o.err)&0xff == sqlite3.SQLITE_READONLY {
			// A connection that was opened while the file was read-only stays so.
			// Return an error to close it: a new connection may be able to write.
			return o.err
		}
	}
	if _, err := c.Exec(ctx, `RELEASE op`); err != nil {
		return fmt.Errorf("releasing a savepoint: %w", err)
	}
	return nil
}

// emptyLog moves the contents of the log into the file and truncates the log. In the
// file, secure_delete has overwritten deleted data; the log still has them until
// then. emptyLog waits for readers of an older state, but not for long, because no
// other write can run meanwhile.
func (c *writer) emptyLog(ctx context.Context, db *sql.DB) error {
	if err := c.connect(ctx, db); err != nil {
		return err
	}
	// Don't prepare it: SQLite applies this pragma while it compiles the statement.
	if _, err := c.conn.ExecContext(ctx, `PRAGMA busy_timeout = 100`); err != nil {
		return err
	}
	var busy, length, moved int
	if err := c.Row(ctx, `PRAGMA wal_checkpoint(TRUNCATE)`).Scan(&busy, &length, &moved); err != nil {
		return err
	}
	_, err := c.conn.ExecContext(ctx, `PRAGMA busy_timeout = `+busyTimeout)
	if err == nil && busy != 0 {
		return errRead
	}
	return err
}

var errRead = errors.New("another process reads or writes the file all the time, " +
	"so what was deleted can't be taken out of its log yet")

// discard closes the connection instead of returning it to the pool. It closes the
// statements first, because SQLite would otherwise keep the connection and its
// locks.
func (c *writer) discard() {
	if c.conn == nil {
		return
	}
	for _, stmt := range c.prepared {
		stmt.Close()
	}
	c.conn.Raw(func(any) error { return driver.ErrBadConn })
	*c = writer{}
}
