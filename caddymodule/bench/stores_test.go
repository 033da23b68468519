package bench

import (
	"encoding/base64"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/argon2"
	"golang.org/x/sync/errgroup"

	"github.com/mnemogate/mnemogate/flows/password"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/tokens"
	"github.com/mnemogate/mnemogate/store"
	"github.com/mnemogate/mnemogate/store/postgres"
	"github.com/mnemogate/mnemogate/store/redis"
	"github.com/mnemogate/mnemogate/store/sqlite"
	"github.com/mnemogate/mnemogate/store/storetest"
)

const (
	testKey      = "test-api-key"
	testPassword = "correct horse battery"
)

// stores are empty stores of one kind.
type stores struct {
	accounts  record.Accounts
	sessions  record.Sessions
	caddyfile string // the options that name them
	file      string // of SQLite
	dsn       string // of PostgreSQL
	redis     *storetest.Redis
	close     func()
}

// deployments are embedded stores, shared stores, and shared stores with
// PostgreSQL's defaults: fsync, synchronous_commit and full_page_writes are on.
var deployments = []struct {
	name string
	open func(b testing.TB) *stores
}{
	{"embedded", embedded},
	{"shared", func(b testing.TB) *stores { return shared(b, storetest.SharedPostgres(b), storetest.StartRedis(b)) }},
	{"durable", func(b testing.TB) *stores {
		return shared(b, storetest.OwnPostgres(b, "fsync=on"), storetest.StartRedis(b))
	}},
}

func embedded(b testing.TB) *stores {
	b.Helper()
	file := b.TempDir() + "/mnemogate.db"
	db := sqlite.Open(file)
	storetest.Started(b, db.Start)
	return &stores{
		accounts: db.Accounts(), sessions: db.Sessions(), caddyfile: "store sqlite " + file, file: file,
		close: func() { _ = db.Close() },
	}
}

func shared(b testing.TB, database *storetest.Postgres, server *storetest.Redis) *stores {
	b.Helper()
	dsn := database.DSN(database.NewSchema(b))
	accounts, err := postgres.Open(dsn, postgres.Options{})
	must(b, err)
	storetest.Started(b, accounts.Start)
	name, err := store.Deployment(b.Context(), accounts.Accounts())
	must(b, err)
	sessions, err := redis.Open(redis.Options{URLs: []string{server.URL()}})
	must(b, err)
	sessions.SetDeployment(name)
	storetest.Started(b, sessions.Start)
	return &stores{
		accounts: accounts.Accounts(), sessions: sessions.Sessions(), dsn: dsn, redis: server,
		caddyfile: fmt.Sprintf("store postgres %q\nsessions redis %s", dsn, server.URL()),
		close: func() {
			_ = accounts.Close()
			_ = sessions.Close()
		},
	}
}

// mnemogate returns the global option with room for this many sessions in memory.
// Its limits are so high that the benchmarks do not reach them.
func (s *stores) mnemogate(sessions int, more string) string {
	return fmt.Sprintf(`mnemogate {
		%s
		cache %d
		company acme {
			api_key %s
			captcha off
			%s
			limits {
				captcha_after 100
				lock_after 100
				disable_after 100
				failures_per_address 1000000/1m
				logins_per_address 1000000/1m
				sms_per_account 1000000/10m
				sms_per_phone 1000000/24h
				sms_per_address 1000000/1h
			}
		}
	}`, s.caddyfile, sessions*5/4+10_000, testKey, more)
}

// A seed is the content of stores: authorized sessions, and accounts user1, user2
// and so on with the password testPassword.
type seed struct {
	accounts int
	ids      []int64  // of the accounts
	tokens   []string // of the sessions
}

// any returns the token of one of the sessions.
func (s *seed) any() string { return s.tokens[rand.IntN(len(s.tokens))] }

func accountOf(name string, number int) record.Account {
	return record.Account{
		Company: "acme", Mnemocode: name, LoginName: name, Phone: fmt.Sprintf("+370%08d", number),
		Status: record.StatusActive, PasswordHash: passwordHash,
	}
}

// passwordHash is the hash of testPassword with the default parameters.
var passwordHash = func() string {
	p, salt := password.DefaultArgon2id, []byte("a salt, 16 bytes")
	return fmt.Sprintf("$argon2id$v=%d$m=%d,t=%d,p=%d$%s$%s", argon2.Version, p.MemoryKiB, p.Iterations, p.Parallelism,
		base64.RawStdEncoding.EncodeToString(salt), base64.RawStdEncoding.EncodeToString(derive(testPassword, salt)))
}()

func derive(secret string, salt []byte) []byte {
	p := password.DefaultArgon2id
	return argon2.IDKey([]byte(secret), salt, p.Iterations, p.MemoryKiB, p.Parallelism, 32)
}

// fill stores accounts, and sessions that are spread evenly over them.
func (s *stores) fill(b testing.TB, accounts, sessions int) *seed {
	b.Helper()
	began := time.Now()
	ids := make([]int64, accounts)
	fillWith(b, accounts, func(i int) (err error) {
		ids[i], err = s.accounts.Create(b.Context(), began, accountOf("user"+strconv.Itoa(i+1), i+1))
		return err
	})
	seed := &seed{accounts, ids, make([]string, sessions)}
	fillWith(b, sessions, func(i int) error {
		token, session := newSession(ids[i%accounts], i%accounts+1)
		seed.tokens[i] = token
		return s.sessions.Create(b.Context(), began, session)
	})
	b.Logf("%d accounts and %d sessions stored in %v", accounts, sessions, time.Since(began).Round(time.Millisecond))
	return seed
}

// remember gives each account a known device, and returns their tokens.
func (s *stores) remember(b testing.TB, seed *seed) []string {
	b.Helper()
	now := time.Now()
	devices := make([]string, seed.accounts)
	fillWith(b, seed.accounts, func(i int) error {
		token, hash := tokens.NewDevice()
		devices[i] = token
		return s.accounts.AddDevice(b.Context(), "acme", seed.ids[i], record.Device{
			Hash: hash, ID: tokens.NewID(), Generation: 1, Created: now, Expires: now.Add(24 * time.Hour),
		}, "")
	})
	return devices
}

// issue issues tokens that are spread evenly over the accounts.
func (s *stores) issue(b testing.TB, of *seed, n int) *seed {
	b.Helper()
	began := time.Now()
	issued := &seed{of.accounts, of.ids, make([]string, n)}
	fillWith(b, n, func(i int) error {
		id := of.ids[i%of.accounts]
		token, hash := tokens.New(tokens.IssuedPrefix, record.AccountBucket("acme", id))
		issued.tokens[i] = token
		a, err := s.accounts.ByID(b.Context(), "acme", id)
		if err != nil {
			return err
		}
		return s.accounts.AddToken(b.Context(), a, &record.IssuedToken{
			Hash: hash, ID: tokens.NewID(), Company: "acme", Account: id, Name: "nightly",
			Paths: []string{"/*"}, Methods: []string{"GET"}, Created: began, Expires: began.Add(24 * time.Hour),
		}, n)
	})
	b.Logf("%d tokens issued in %v", n, time.Since(began).Round(time.Millisecond))
	return issued
}

// newSession returns a session that no request extends.
func newSession(id int64, number int) (token string, s record.Session) {
	const life = 30 * 24 * time.Hour
	now := time.Now()
	token, hash := tokens.New(tokens.Prefix, record.AccountBucket("acme", id))
	return token, record.Session{
		Hash: hash, ID: tokens.NewID(), Company: "acme", Account: id, Mnemocode: "user" + strconv.Itoa(number), Generation: 1,
		State: record.Authorized, Created: now, Expires: now.Add(life), Ends: now.Add(life), Profile: "admin    pwd",
	}
}

// fillWith calls store for each number, many at a time. It retries, because on a
// busy machine Redis may not answer in time.
func fillWith(b testing.TB, n int, store func(i int) error) {
	b.Helper()
	var group errgroup.Group
	group.SetLimit(256)
	for i := range n {
		group.Go(func() (err error) {
			for try := range 10 {
				err = store(i)
				if err == nil || try > 0 && errors.Is(err, record.ErrConflict) { // an earlier try stored it after all
					return nil
				}
			}
			return err
		})
	}
	must(b, group.Wait())
}

// redisInfo returns a number from Redis's INFO.
func redisInfo(b testing.TB, server *storetest.Redis, section, field string) float64 {
	b.Helper()
	for line := range strings.Lines(server.Ask(b, "info", section)) {
		if value, ok := strings.CutPrefix(line, field+":"); ok {
			n, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			must(b, err)
			return n
		}
	}
	b.Fatalf("Redis does not tell %s", field)
	return 0
}
