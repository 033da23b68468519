package sqlite

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"fmt"
	"github.com/mnemogate/mnemogate/store/sqlstore"
	"io"
	"time"
)

// Once a backup has checked the file, it reads backupChunk pages of 4 KiB and then rests
// backupRest times as long as reading them took. So it uses at most an eighth of a CPU.
const (
	backupChunk = 64
	backupRest  = 7
)

// The last line of a backup is the SHA-256 of all bytes before it, in hex. SQLite
// does not read this line, because the header of the file says where the pages end.
// The first change makes the file longer, so that the line is no longer at its end.
const (
	checksumLine = "\nmnemogate backup sha256 %x\n"
	checksumSize = int64(len(checksumLine) - len("%x") + 2*sha256.Size)
)

// Backup writes a snapshot of the file, with the changes that are still in its log, and a
// checksum, to the writer that begin returns for that many bytes. It fails if the snapshot is
// damaged. Other calls can read and write meanwhile. The log can't shrink until Backup
// returns, so the writer must not block for long. After an error, what was written is useless.
func (s *Store) Backup(ctx context.Context, begin func(size int64) io.Writer) error {
	if err := s.beginCall(); err != nil {
		return err
	}
	s.endCall() // Close does not wait for a backup, whose writer may be slow
	s.holding.Add(1)
	defer s.holding.Add(-1)
	return sqlstore.Call(ctx, s, "reading the file for a backup", func() error { return s.copyPages(ctx, begin) })
}

func (s *Store) copyPages(ctx context.Context, begin func(size int64) io.Writer) error {
	db, err := s.another()
	if err != nil {
		return err
	}
	defer db.Close()
	// Interrupting a statement costs more than stopping between two pages.
	free := context.WithoutCancel(ctx)
	conn, err := db.Conn(free)
	if err != nil {
		return err
	}
	defer conn.Close()
	// Read everything in one transaction; its first statement fixes the snapshot.
	// BeginTx would block writers: see dsn.
	if _, err := conn.ExecContext(free, `BEGIN DEFERRED`); err != nil {
		return err
	}
	if err := check(ctx, conn); err != nil {
		return err
	}
	var pages, size int64
	if err := conn.QueryRowContext(free, `PRAGMA page_count`).Scan(&pages); err != nil {
		return err
	}
	if err := conn.QueryRowContext(free, `PRAGMA page_size`).Scan(&size); err != nil {
		return err
	}
	rows, err := conn.QueryContext(free, `SELECT data FROM sqlite_dbpage ORDER BY pgno`)
	if err != nil {
		return err
	}
	defer rows.Close()
	w := begin(pages*size + checksumSize)
	sum := sha256.New()
	chunk := make([]byte, 0, backupChunk*size)
	for n := int64(0); n < pages; {
		if err := ctx.Err(); err != nil {
			return err
		}
		began := time.Now()
		for chunk = chunk[:0]; len(chunk) < cap(chunk) && n < pages && rows.Next(); n++ {
			var page sql.RawBytes
			if err := rows.Scan(&page); err != nil {
				return err
			}
			chunk = append(chunk, page...)
		}
		rest := backupRest * time.Since(began)
		if err := rows.Err(); err != nil {
			return err
		}
		if len(chunk) == 0 {
			return fmt.Errorf("it has %d pages and should have %d", n, pages)
		}
		sum.Write(chunk)
		if _, err := w.Write(chunk); err != nil {
			return err
		}
		if n == pages {
			break
		}
		select {
		case <-time.After(rest):
		case <-ctx.Done():
			return ctx.Err()
		case <-s.quit:
			return errNotOpen
		}
	}
	_, err = fmt.Fprintf(w, checksumLine, sum.Sum(nil))
	return err
}
