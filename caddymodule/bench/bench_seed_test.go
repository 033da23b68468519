package bench

import (
	"bytes"
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/crypto/argon2"
	"golang.org/x/sync/errgroup"

	"github.com/mnemogate/mnemogate/flows/password"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/store"
)

var keepSeeds = flag.String("keep", "", "a directory for the stores that the benchmarks fill, so that the next run need not")

// A seed is a stores.SQLite file with accounts user1, user2 and so on of the company
// acme, whose password is testPassword, and with authorized sessions.
type seed struct {
	file               string
	accounts, sessions int
	tokens             string // one after another
}

const tokenLen = len("mgs_") + 43

func (s *seed) token(i int) string { return s.tokens[i*tokenLen : (i+1)*tokenLen] }

var seeds struct {
	dir  string
	made map[[2]int]*seed
}

// forgetSeeds removes the files that are not to be kept.
func forgetSeeds() {
	if seeds.dir != "" && seeds.dir != *keepSeeds {
		_ = os.RemoveAll(seeds.dir)
	}
}

// seedLife is how long the sessions live. A request does not prolong one that
// ends later than it could be prolonged to.
const seedLife = 30 * 24 * time.Hour

// seeded returns a seed, made once for all benchmarks of a run. The file is to
// be copied, not used.
func seeded(b testing.TB, accounts, sessions int) *seed {
	b.Helper()
	if s := seeds.made[[2]int{accounts, sessions}]; s != nil {
		return s
	}
	if seeds.made == nil {
		seeds.made = map[[2]int]*seed{}
		if seeds.dir = *keepSeeds; seeds.dir == "" {
			dir, err := os.MkdirTemp("", "mnemogate-seeds")
			if err != nil {
				b.Fatal(err)
			}
			seeds.dir = dir
		}
	}
	began := time.Now()
	s := &seed{file: filepath.Join(seeds.dir, fmt.Sprintf("%d-%d.db", accounts, sessions)), accounts: accounts, sessions: sessions}
	all := s.draw()
	if info, err := os.Stat(s.file); err != nil || time.Since(info.ModTime()) > seedLife/2 {
		if err := errors.Join(os.MkdirAll(seeds.dir, 0o700), s.write(all)); err != nil {
			b.Fatal(err)
		}
		b.Logf("%d accounts and %d sessions stored in %v", accounts, sessions, time.Since(began).Round(time.Millisecond))
	}
	seeds.made[[2]int{accounts, sessions}] = s
	return s
}

// A drawnSession is what is special to a session.
type drawnSession struct {
	hash    record.TokenHash
	account int
}

func (d drawnSession) mnemocode() string { return fmt.Sprint("user-", d.account) }

// id is made of the hash, which is as good as random.
func (d drawnSession) id() string { return hex.EncodeToString(d.hash[:16]) }

func (d drawnSession) session(now time.Time) record.Session {
	return record.Session{
		Hash: d.hash, ID: d.id(), Company: "acme", Account: int64(d.account), Mnemocode: d.mnemocode(), Epoch: 1,
		State: record.Authorized, Created: now, Expires: now.Add(seedLife), Ends: now.Add(seedLife),
	}
}

// draw draws the tokens, the same ones each time, and an account for each, in
// whose bucket it is.
func (s *seed) draw() []drawnSession {
	byBucket := map[int][]int{}
	for id := 1; id <= s.accounts; id++ {
		bucket := record.AccountBucket("acme", int64(id))
		byBucket[bucket] = append(byBucket[bucket], id)
	}
	source := rand.NewChaCha8([32]byte{})
	var tokens strings.Builder
	tokens.Grow(s.sessions * tokenLen)
	all := make([]drawnSession, 0, s.sessions)
	for len(all) < s.sessions {
		token := drawToken(source)
		hash := record.TokenHash(sha256.Sum256([]byte(token)))
		accounts := byBucket[hash.Bucket()]
		if len(accounts) == 0 {
			continue
		}
		byBucket[hash.Bucket()] = append(accounts[1:], accounts[0])
		tokens.WriteString(token)
		all = append(all, drawnSession{hash, accounts[0]})
	}
	s.tokens = tokens.String()
	return all
}

func drawToken(source *rand.ChaCha8) string {
	var secret [32]byte
	_, _ = source.Read(secret[:])
	return "mgs_" + base64.RawURLEncoding.EncodeToString(secret[:])
}

// template is the account that all others are copies of.
func templateAccount() record.Account {
	p, salt := password.DefaultArgon2id, []byte("a salt, 16 bytes")
	key := argon2.IDKey([]byte(testPassword), salt, p.Iterations, p.MemoryKiB, p.Parallelism, 32)
	return record.Account{
		Company: "acme", Mnemocode: "user-1", LoginName: "user1", Phone: phoneOf(1), Status: record.StatusActive,
		PasswordHash: fmt.Sprintf("$argon2id$v=%d$m=%d,t=%d,p=%d$%s$%s", argon2.Version, p.MemoryKiB, p.Iterations, p.Parallelism,
			base64.RawStdEncoding.EncodeToString(salt), base64.RawStdEncoding.EncodeToString(key)),
	}
}

func phoneOf(account int) string { return fmt.Sprintf("+370%08d", account) }

// write makes the file: one account and one session by way of the store, which
// also makes the tables, and the others as copies of their rows.
func (s *seed) write(all []drawnSession) error {
	making := s.file + ".making"
	for _, file := range []string{making, making + "-wal", making + "-shm"} {
		if err := os.Remove(file); err != nil && !os.IsNotExist(err) {
			return err
		}
	}
	ctx := context.Background()
	original := drawnSession{account: 1}
	db := store.OpenSQLite(making)
	if err := db.Start(ctx); err != nil {
		return err
	}
	_, err := db.Accounts().Create(ctx, time.Now(), templateAccount())
	if err == nil {
		err = db.Sessions().Create(ctx, time.Now(), original.session(time.Now()))
	}
	if err := errors.Join(err, db.Close()); err != nil {
		return err
	}
	raw, err := sql.Open("sqlite", making)
	if err != nil {
		return err
	}
	raw.SetMaxOpenConns(1)
	err = s.copyRows(ctx, raw, all, original)
	if err := errors.Join(err, raw.Close()); err != nil {
		return err
	}
	return os.Rename(making, s.file)
}

func (s *seed) copyRows(ctx context.Context, raw *sql.DB, all []drawnSession, original drawnSession) error {
	execute := func(query string, args ...any) error {
		_, err := raw.ExecContext(ctx, query, args...)
		if err != nil {
			return fmt.Errorf("%s: %w", query, err)
		}
		return nil
	}
	if err := execute(`PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF; PRAGMA cache_size=-1000000`); err != nil {
		return err
	}
	const numbers = `WITH RECURSIVE n (i) AS (SELECT 2 WHERE ?1 > 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?1) `
	copyAccounts, err := copying(ctx, raw, "accounts", map[string]string{
		"id": "n.i", "mnemocode": "'user-' || n.i", "login_name": "'user' || n.i", "phone": "printf('+370%08d', n.i)",
	})
	if err != nil {
		return err
	}
	if err := execute(numbers+copyAccounts+` JOIN n WHERE accounts.id = 1`, s.accounts); err != nil {
		return err
	}
	if err := execute(`INSERT INTO login_ids (company, login_id, account) SELECT company, login_name, id FROM accounts WHERE id > 1
		UNION ALL SELECT company, phone, id FROM accounts WHERE id > 1`); err != nil {
		return err
	}
	copySession, err := copying(ctx, raw, "sessions", map[string]string{"hash": "?1", "id": "?2", "account": "?3", "mnemocode": "?4"})
	if err != nil {
		return err
	}
	tx, err := raw.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	insert, err := tx.PrepareContext(ctx, copySession+` WHERE hash = ?5`)
	if err != nil {
		return err
	}
	sorted := slices.SortedFunc(slices.Values(all), func(a, b drawnSession) int { return bytes.Compare(a.hash[:], b.hash[:]) })
	for _, d := range sorted {
		if _, err := insert.ExecContext(ctx, d.hash[:], d.id(), d.account, d.mnemocode(), original.hash[:]); err != nil {
			return err
		}
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	return errors.Join(
		execute(`DELETE FROM sessions WHERE hash = ?`, original.hash[:]),
		execute(`PRAGMA journal_mode=WAL`),
	)
}

// expireIn has all sessions of a file that nobody uses expire so soon.
func expireIn(b testing.TB, file string, d time.Duration) {
	b.Helper()
	raw, err := sql.Open("sqlite", file)
	if err != nil {
		b.Fatal(err)
	}
	_, err = raw.ExecContext(b.Context(), `UPDATE sessions SET expires = ?`, time.Now().Add(d).UnixMicro())
	if err := errors.Join(err, raw.Close()); err != nil {
		b.Fatal(err)
	}
}

// copying is a statement that inserts into a table what it selects from it, with
// some columns made anew.
func copying(ctx context.Context, raw *sql.DB, table string, anew map[string]string) (string, error) {
	rows, err := raw.QueryContext(ctx, `SELECT name FROM pragma_table_info(?)`, table)
	if err != nil {
		return "", err
	}
	defer rows.Close()
	var names, values []string
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			return "", err
		}
		value := anew[name]
		if value == "" {
			value = table + "." + name
		}
		names, values = append(names, name), append(values, value)
	}
	return fmt.Sprintf("INSERT INTO %[1]s (%s) SELECT %s FROM %[1]s", table, strings.Join(names, ", "), strings.Join(values, ", ")), rows.Err()
}

// fill stores the same accounts and sessions in PostgreSQL and Redis, and the
// sessions again as the trial handler wants them.
func (s *seed) fill(b testing.TB, accounts *store.Postgres, sessions *store.Redis, trial *redis.Client) {
	b.Helper()
	began, now, original := time.Now(), time.Now(), templateAccount()
	group, ctx := errgroup.WithContext(b.Context())
	group.SetLimit(16)
	for i := range s.accounts {
		a := original
		a.Mnemocode, a.LoginName, a.Phone = fmt.Sprint("user-", i+1), fmt.Sprint("user", i+1), phoneOf(i+1)
		group.Go(func() error {
			_, err := accounts.Accounts().Create(ctx, now, a)
			return err
		})
	}
	for i, d := range s.draw() {
		group.Go(func() error {
			err := sessions.Sessions().Create(ctx, now, d.session(now))
			for tries := 0; err != nil && tries < 10; tries++ { // on a busy machine Redis may not answer in time
				err = sessions.Sessions().Create(ctx, now, d.session(now))
			}
			return errors.Join(err, trial.Set(ctx, "trial:"+s.token(i), d.mnemocode(), 0).Err())
		})
	}
	if err := group.Wait(); err != nil {
		b.Fatal(err)
	}
	b.Logf("%d accounts and %d sessions stored in PostgreSQL and Redis in %v", s.accounts, s.sessions, time.Since(began).Round(time.Millisecond))
}
