package bench

import (
	"context"
	"encoding/base64"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/flows"
	"github.com/mnemogate/mnemogate/flows/message"
	"github.com/mnemogate/mnemogate/flows/password"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/session"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/tokens"
	"github.com/mnemogate/mnemogate/flows/wire"
	"github.com/mnemogate/mnemogate/store/memory"
)

var growthFlag = flag.String("growth", "1000,100000,1000000", "numbers of accounts and sessions, for Growth")

// BenchmarkGrowth measures each step with few and with many accounts and sessions in
// the stores. The sizes take turns. Passwords are not hashed, because hashing takes
// the same time for any number of them.
func BenchmarkGrowth(b *testing.B) {
	for _, deployment := range deployments[:2] {
		b.Run(deployment.name, func(b *testing.B) {
			var sizes []*grown
			counts := numbers(b, *growthFlag)
			for _, n := range counts {
				s := deployment.open(b)
				b.Cleanup(s.close)
				sizes = append(sizes, newGrown(b, s, n))
			}
			for range *rounds {
				for _, g := range sizes {
					for range 100 {
						g.journey(b)
					}
				}
			}
			for _, step := range sizes[0].steps {
				b.Run(step, func(b *testing.B) {
					b.ReportMetric(0, "ns/op")
					first := float64(quantile(sizes[0].took[step], .5))
					for i, g := range sizes {
						took := float64(quantile(g.took[step], .5))
						b.ReportMetric(took/1e3, fmt.Sprint(counts[i], "-µs"))
						b.ReportMetric(took/first, "last/first")
					}
				})
			}
		})
	}
}

// A grown is a service on stores of one size.
type grown struct {
	*seed
	service   *flows.Service // remembers all sessions
	forgetful *flows.Service // remembers none
	code      string         // the last code that was sent
	steps     []string
	took      map[string][]time.Duration // by step
}

func newGrown(b testing.TB, s *stores, n int) *grown {
	b.Helper()
	g := &grown{seed: s.fill(b, n, n), took: map[string][]time.Duration{}}
	policy, many := tenant.DefaultPolicy(), tenant.Rate{N: 1 << 30, Per: time.Hour}
	policy.SecondFactor = tenant.SecondFactorRequired
	policy.Recovery.Methods = []tenant.Method{tenant.ByPhone}
	policy.Limits = tenant.Limits{
		CaptchaAfter: new(1 << 30), LockAfter: 1 << 30, DisableAfter: 1 << 30,
		FailuresPerAddress: many, LoginsPerAddress: many, WrongCodes: many, WrongAnswers: many,
		SMSPerAccount: many, SMSPerPhone: many, SMSPerAddress: many, MailsPerAccount: many,
		SMSPerCompany: tenant.Unlimited, SMSPerCountry: tenant.Unlimited,
	}
	hasher := password.NewHasher(0)
	hasher.Derive = func(hash, secret string) ([]byte, error) {
		if secret != testPassword {
			return []byte(tokens.NewID()), nil // a different hash each time
		}
		return base64.RawStdEncoding.DecodeString(hash[strings.LastIndexByte(hash, '$')+1:])
	}
	service := func(sessions record.Sessions) *flows.Service {
		return &flows.Service{Manager: session.New(&session.Config{
			Accounts:  s.accounts,
			Sessions:  sessions,
			Companies: map[string]*tenant.Company{"acme": {Code: "acme", NoAPIKey: true, SMS: g, Texts: message.DefaultTexts(), Policy: policy}},
			Hasher:    hasher,
			Log:       slog.New(slog.DiscardHandler),
			Now:       time.Now,
		})}
	}
	memory := memory.New(s.sessions, n*5/4+10_000)
	memory.SetLease(time.Now().Add(24 * time.Hour))
	g.service, g.forgetful = service(memory), service(s.sessions)
	// This account's sessions are revoked again and again.
	_, err := s.accounts.Create(b.Context(), time.Now(), accountOf("recoverer", 0))
	must(b, err)
	fillWith(b, n, func(i int) error {
		_, err := g.service.Authorize(b.Context(), session.Requirement{}, []string{"Bearer " + g.tokens[i]})
		return err
	})
	return g
}

// Send implements message.Sender. It ignores notices, which have no code and are
// sent while the next steps run.
func (g *grown) Send(_ context.Context, m message.Message) error {
	if m.Code != "" {
		g.code = m.Code
	}
	return nil
}

// step measures a step.
func (g *grown) step(name string, f func()) {
	began := time.Now()
	f()
	took := time.Since(began)
	if g.took[name] == nil {
		g.steps = append(g.steps, name)
	}
	g.took[name] = append(g.took[name], took)
}

// journey takes one account through all steps.
func (g *grown) journey(b testing.TB) {
	b.Helper()
	authorize := func(step string, service *flows.Service, token string, want error) {
		b.Helper()
		header := []string{"Bearer " + token}
		g.step(step, func() {
			if _, err := service.Authorize(b.Context(), session.Requirement{Company: "acme"}, header); err != want {
				b.Fatalf("%s: got %v, want %v", step, err, want)
			}
		})
	}
	serve := func(path, token, body string) (issued string) {
		b.Helper()
		r := &flows.Request{Company: "acme", Route: flows.RouteByPath("auth/" + path), Client: session.Client{Address: "192.0.2.1"}, Body: func() ([]byte, error) { return []byte(body), nil }}
		if token != "" {
			r.Authorization = []string{"Bearer " + token}
		}
		g.step(path, func() {
			reply, err := g.service.Serve(b.Context(), r)
			if err != nil {
				b.Fatalf("%s: %v", path, err)
			}
			issued = reply.SessionToken
		})
		return issued
	}
	authorize("known session", g.service, g.any(), nil)
	authorize("unknown session", g.forgetful, g.any(), nil)
	unknown, _ := tokens.New(tokens.Prefix, 0)
	authorize("unknown token", g.service, unknown, wire.ErrTokenInvalid)

	user := fmt.Sprint("user", rand.IntN(g.accounts)+1)
	session := serve("login", "", fmt.Sprintf(`{"login_id":%q}`, user))
	session = serve("checkpassword", session, fmt.Sprintf(`{"password":%q}`, testPassword))
	serve("renewotp", session, `{}`)
	session = serve("checkotp", session, fmt.Sprintf(`{"otp":%q}`, g.code))
	serve("logout", session, `{}`)
	serve("checkcredentials", "", fmt.Sprintf(`{"login_id":%q,"password":%q}`, user, testPassword))
	session = serve("recovery/recover", "", `{"login_id":"recoverer","captcha_response":"none"}`)
	session = serve("recovery/checkotp", session, fmt.Sprintf(`{"otp":%q}`, g.code))
	serve("setpassword", session, `{"new_password":"another fine secret"}`)
}
