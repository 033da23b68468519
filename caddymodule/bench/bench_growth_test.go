package bench

import (
	"context"
	crand "crypto/rand"
	"encoding/base64"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/mnemogate/mnemogate/flows"
	"github.com/mnemogate/mnemogate/flows/message"
	"github.com/mnemogate/mnemogate/flows/password"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/session"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/wire"
	"github.com/mnemogate/mnemogate/store"
	"github.com/mnemogate/mnemogate/store/storetest"
)

var benchGrowth = flag.String("growth", "1000,100000,1000000", "the numbers of accounts and sessions that BenchmarkGrowth is made with")

// BenchmarkGrowth tells what each step takes with few and with many accounts
// and sessions in the stores. The sizes take turns. Passwords are not hashed:
// that takes the same anyway, and would hide the rest.
func BenchmarkGrowth(b *testing.B) {
	counts := countsOf(b, "growth", *benchGrowth)
	for name, grow := range map[string]func(testing.TB, *seed) (record.Accounts, record.Sessions){
		"embedded": growEmbedded, "shared": growShared,
	} {
		t := &figuresTable{head: []string{name + ", µs"}}
		b.Run(name, func(b *testing.B) {
			var sizes []*grown
			for _, n := range counts {
				t.head = append(t.head, countName(n))
				seed := seeded(b, n, n)
				accounts, sessions := grow(b, seed)
				sizes = append(sizes, newGrown(b, seed, accounts, sessions))
			}
			t.head = append(t.head, "last/first")
			for range b.N {
				for range *benchRounds {
					for _, g := range sizes {
						for range 100 {
							g.journey(b)
						}
					}
				}
			}
			for _, step := range sizes[0].steps {
				row := []any{step}
				for _, g := range sizes {
					row = append(row, micros(g.median(step)))
				}
				t.add(append(row, ratio(sizes[len(sizes)-1].median(step), sizes[0].median(step)))...)
			}
			b.ReportMetric(0, "ns/op") // of no meaning here
		})
		t.print()
	}
}

func growEmbedded(b testing.TB, seed *seed) (record.Accounts, record.Sessions) {
	b.Helper()
	file := b.TempDir() + "/mnemogate.db"
	copyFile(b, seed.file, file)
	db := store.OpenSQLite(file)
	if err := db.Start(b.Context()); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = db.Close() })
	return db.Accounts(), db.Sessions()
}

// growShared has a schema and a Redis of their own for each size.
func growShared(b testing.TB, seed *seed) (record.Accounts, record.Sessions) {
	b.Helper()
	server := storetest.SharedPostgres(b)
	schema := server.NewSchema(b)
	accounts, err := store.OpenPostgres(server.DSN(schema), store.PostgresOptions{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = accounts.Close() })
	if err := accounts.Start(b.Context()); err != nil {
		b.Fatal(err)
	}
	if _, err := accounts.Accounts().Create(b.Context(), time.Now(), templateAccount()); err != nil {
		b.Fatal(err)
	}
	const same = "role, email, status, second_factor, must_set_password, password_hash, question, answer_hash, epoch, created, updated"
	server.Exec(b,
		fmt.Sprintf(`INSERT INTO %[1]s.accounts (company, mnemocode, login_name, phone, %[2]s)
			SELECT company, 'user-' || i, 'user' || i, '+370' || lpad(i::text, 8, '0'), %[2]s
			FROM %[1]s.accounts, generate_series(2, %[3]d) i WHERE id = 1 ORDER BY i`, schema, same, seed.accounts),
		fmt.Sprintf(`INSERT INTO %[1]s.login_ids (company, login_id, account)
			SELECT company, login_name, id FROM %[1]s.accounts WHERE id > 1 UNION ALL SELECT company, phone, id FROM %[1]s.accounts WHERE id > 1`, schema),
		fmt.Sprintf(`VACUUM ANALYZE %[1]s.accounts`, schema), fmt.Sprintf(`VACUUM ANALYZE %[1]s.login_ids`, schema),
	)
	own := storetest.StartRedis(b)
	sessions, err := store.OpenRedis(store.RedisOptions{URLs: []string{own.URL()}})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = sessions.Close() })
	if err := sessions.Start(b.Context()); err != nil {
		b.Fatal(err)
	}
	copySessions(b, own.Client(b), sessions.Sessions(), seed.draw())
	return accounts.Accounts(), sessions.Sessions()
}

// copySessions stores one session of each bucket by way of the store and the
// others as copies of them, each in the index of its own account, although all
// say that they are the same one's: that makes no difference to looking them up.
func copySessions(b testing.TB, server *redis.Client, sessions record.Sessions, all []drawnSession) {
	b.Helper()
	ctx := context.Background()
	type original struct{ key, prefix string }
	originals := map[int]original{}
	pipe := server.Pipeline()
	for i, d := range all {
		from, ok := originals[d.hash.Bucket()]
		if !ok {
			if err := sessions.Create(ctx, time.Now(), d.session(time.Now())); err != nil {
				b.Fatal(err)
			}
			keys, err := server.Keys(ctx, "*s"+escapeGlob(string(d.hash[:]))).Result()
			if err != nil || len(keys) != 1 {
				b.Fatalf("%d keys of a session, %v", len(keys), err)
			}
			originals[d.hash.Bucket()] = original{keys[0], strings.TrimSuffix(keys[0], string(d.hash[:]))}
			continue
		}
		index := strings.TrimSuffix(from.prefix, "s") + "i" + string(record.Authorized) + "/acme/" + strconv.Itoa(d.account)
		pipe.Copy(ctx, from.key, from.prefix+string(d.hash[:]), server.Options().DB, false)
		pipe.ZAdd(ctx, index, redis.Z{Score: float64(time.Now().UnixMicro()), Member: d.hash[:]})
		pipe.PExpire(ctx, index, seedLife+record.Keep)
		if pipe.Len() >= 1000 || i == len(all)-1 {
			if _, err := pipe.Exec(ctx); err != nil {
				b.Fatal(err)
			}
		}
	}
	if _, err := pipe.Exec(ctx); err != nil && pipe.Len() > 0 {
		b.Fatal(err)
	}
}

func escapeGlob(s string) string {
	var escaped strings.Builder
	for i := range len(s) {
		if strings.IndexByte(`*?[]\^-`, s[i]) >= 0 {
			escaped.WriteByte('\\')
		}
		escaped.WriteByte(s[i])
	}
	return escaped.String()
}

// A grown is a service on stores of one size.
type grown struct {
	seed      *seed
	service   *flows.Service // that remembers all sessions of the seed
	forgetful *flows.Service // that remembers none
	code      string         // the last that was sent
	steps     []string
	times     map[string][]time.Duration
}

func newGrown(b testing.TB, seed *seed, accounts record.Accounts, sessions record.Sessions) *grown {
	b.Helper()
	g := &grown{seed: seed, times: map[string][]time.Duration{}}
	policy := tenant.DefaultPolicy()
	policy.SecondFactor = tenant.SecondFactorRequired
	policy.Methods = []tenant.Method{tenant.ByPhone}
	policy.Limits = tenant.Limits{CaptchaAfter: 1 << 30, LockAfter: 1 << 30, DisableAfter: 1 << 30}
	many := tenant.Rate{N: 1 << 30, Per: time.Hour}
	l := &policy.Limits
	l.FailuresPerAddress, l.LoginsPerAddress, l.WrongCodes, l.WrongAnswers = many, many, many, many
	l.SMSPerAccount, l.SMSPerPhone, l.SMSPerAddress, l.MailsPerAccount = many, many, many, many
	service := func(sessions record.Sessions) *flows.Service {
		hasher := password.NewHasher(0)
		hasher.Derive = func(hash, secret string) ([]byte, error) {
			if secret != testPassword {
				return []byte(crand.Text()), nil
			}
			return base64.RawStdEncoding.DecodeString(hash[strings.LastIndexByte(hash, '$')+1:])
		}
		return &flows.Service{Manager: &session.Manager{
			Accounts: accounts,
			Sessions: sessions,
			Companies: map[string]*tenant.Company{"acme": {
				Code: "acme", NoAPIKey: true, SMS: g, Texts: message.DefaultTexts(), Policy: policy,
			}},
			Hasher: hasher,
			Log:    slog.New(slog.DiscardHandler),
			Now:    time.Now,
		}}
	}
	memory := store.NewMemory(sessions, seed.sessions*5/4+10_000)
	memory.Trust(time.Now().Add(24 * time.Hour))
	g.service, g.forgetful = service(memory), service(sessions)
	recoverer := templateAccount() // whose sessions end again and again
	recoverer.Mnemocode, recoverer.LoginName, recoverer.Phone = "recoverer", "recoverer", phoneOf(0)
	if _, err := accounts.Create(b.Context(), time.Now(), recoverer); err != nil {
		b.Fatal(err)
	}
	for i := range seed.sessions {
		if _, err := g.service.Authorize(b.Context(), session.Demand{}, []string{"Bearer " + seed.token(i)}); err != nil {
			b.Fatal(err)
		}
	}
	return g
}

// Send implements message.Sender. Notices are sent behind the answer, beside the
// next steps: only the codes are kept.
func (g *grown) Send(_ context.Context, m message.Message) error {
	if m.Code != "" {
		g.code = m.Code
	}
	return nil
}

func (g *grown) took(step string, began time.Time) {
	took := time.Since(began)
	if _, ok := g.times[step]; !ok {
		g.steps = append(g.steps, step)
	}
	g.times[step] = append(g.times[step], took)
}

func (g *grown) median(step string) time.Duration {
	return median(g.times[step])
}

// journey takes one account through all that is measured.
func (g *grown) journey(b testing.TB) {
	b.Helper()
	authorize := func(step string, service *flows.Service, token string, want error) {
		b.Helper()
		header := []string{"Bearer " + token} // the CPU's caches have it, as that of a request that has just come
		began := time.Now()
		_, err := service.Authorize(b.Context(), session.Demand{Company: "acme"}, header)
		g.took(step, began)
		if err != want {
			b.Fatalf("%s: %v", step, err)
		}
	}
	serve := func(path, token, body string) string {
		b.Helper()
		began := time.Now()
		request := &flows.Request{
			Company: "acme", Route: flows.RouteByPath("auth/" + path), Address: "192.0.2.1",
			Body: func() ([]byte, error) { return []byte(body), nil },
		}
		if token != "" {
			request.Authorization = []string{"Bearer " + token}
		}
		reply, err := g.service.Serve(b.Context(), request)
		g.took(path, began)
		if err != nil {
			b.Fatalf("%s: %v", path, err)
		}
		return reply.SessionToken
	}
	token := func() string { return g.seed.token(rand.IntN(g.seed.sessions)) }
	authorize("a known session", g.service, token(), nil)
	authorize("an unknown session", g.forgetful, token(), nil)
	authorize("an unknown token", g.service, drawToken(rand.NewChaCha8([32]byte{byte(rand.Int()), byte(rand.Int()), byte(rand.Int())})), wire.ErrTokenInvalid)

	user := fmt.Sprint("user", rand.IntN(g.seed.accounts)+1)
	loginID := fmt.Sprintf(`{"login_id":"%s"}`, user)
	session := serve("login", "", loginID)
	session = serve("checkpassword", session, `{"password":"`+testPassword+`"}`)
	serve("renewotp", session, `{}`)
	session = serve("checkotp", session, `{"otp":"`+g.code+`"}`)
	serve("logout", session, `{}`)
	serve("checkcredentials", "", fmt.Sprintf(`{"login_id":"%s","password":"%s"}`, user, testPassword))
	session = serve("recovery/recover", "", `{"login_id":"recoverer","captcha_response":"none"}`)
	session = serve("recovery/checkotp", session, `{"otp":"`+g.code+`"}`)
	serve("setpassword", session, `{"new_password":"another fine secret"}`)
}
