package caddymodule

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/mnemogate/mnemogate/flows"
)

// A finding is what the doctor has to say of one thing.
type finding struct {
	Check   string `json:"check"`
	Company string `json:"company,omitempty"` // none: it is everybody's
	Result  string `json:"result"`            // ok, warning or failed
	Took    string `json:"took,omitempty"`
	Message string `json:"message"`
	Advice  string `json:"advice,omitempty"` // what to do
}

// Results of a finding.
const (
	findingOK      = "ok"
	findingWarning = "warning"
	findingFailed  = "failed"
)

const (
	// doctorTimeout bounds each check.
	doctorTimeout = 5 * time.Second
	// slowStore is when a round trip is worth a warning: the protected path
	// makes one for each session that is not remembered.
	slowStore = 100 * time.Millisecond
	// maxSkew is when clocks that differ begin to hurt: times that one node
	// stores are read by others.
	maxSkew = 2 * time.Second
)

// A clockStore is a Store whose server has a clock of its own.
type clockStore interface {
	// Clock returns the server's time.
	Clock(context.Context) (time.Time, error)
}

// A reachingModule is a gateway or provider that is somewhere else.
type reachingModule interface {
	// endpoint is the host:port that it speaks to.
	endpoint() string
}

// doctor answers with what is right and wrong with the running configuration.
// It asks the stores and knocks at the gateways; no message is sent.
func (c *adminCall) doctor() error {
	service, err := c.running()
	if err != nil {
		return err
	}
	d := &doctor{app: c.app, service: service}
	d.run(c.Context())
	writeJSON(c.w, http.StatusOK, map[string]any{"time": time.Now().UTC(), "findings": d.findings})
	return nil
}

type doctor struct {
	app     *App
	service *flows.Service

	mu       sync.Mutex
	findings []finding
}

// run makes all checks at once and orders what they found.
func (d *doctor) run(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, doctorTimeout)
	defer cancel()
	var checks sync.WaitGroup
	check := func(name string, f func()) {
		checks.Go(func() {
			if err := d.contained(f); err != nil {
				d.found(finding{Check: name, Result: findingFailed, Message: err.Error(), Advice: "report it, with the log"})
			}
		})
	}
	check("accounts store", func() { d.accounts(ctx) })
	check("sessions store", func() { d.sessions(ctx) })
	check("clock", func() { d.clocks(ctx) })
	for code, company := range d.app.sorted() {
		check("gateways", func() { d.gateways(ctx, code, &company.effective) })
		check("settings", func() { d.settings(code, company) })
	}
	checks.Wait()
	slices.SortStableFunc(d.findings, func(a, b finding) int {
		order := func(f finding) string { return f.Company + "\x00" + f.Check + "\x00" + f.Message }
		return strings.Compare(order(a), order(b))
	})
}

// contained is f whose panic ends only f.
func (d *doctor) contained(f func()) error {
	err := flows.Contain(func() error { f(); return nil })
	if p, ok := errors.AsType[*flows.Panic](err); ok {
		p.Log(d.app.log)
		return errors.New("a defect: " + p.Error())
	}
	return nil
}

func (d *doctor) found(f finding) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.findings = append(d.findings, f)
}

// timed tells of a round trip to a store.
func (d *doctor) timed(check, advice string, trip func() error) {
	began := time.Now()
	err := trip()
	took := time.Since(began)
	f := finding{Check: check, Result: findingOK, Took: took.Round(10 * time.Microsecond).String(), Message: "it reads and writes"}
	switch {
	case err != nil:
		f.Result, f.Message, f.Advice = findingFailed, err.Error(), advice
	case took > slowStore:
		f.Result, f.Message = findingWarning, "a read and a write take more than "+slowStore.String()
		f.Advice = "look at the load of its server or disk, and at the way there: every login waits several times as long"
	}
	d.found(f)
}

const storeAdvice = "see that the server runs, is reached from here and has room on its disk; until it answers, so do the routes with service.unavailable"

// accounts counts a wrong attempt of a login id that no one can have, and
// forgets it.
func (d *doctor) accounts(ctx context.Context) {
	d.timed("accounts store", storeAdvice, func() error {
		subject := flows.Subject{Company: "/doctor", LoginID: "doctor"}
		for _, count := range []int{1, 0} {
			err := d.service.Accounts.Tally(ctx, time.Now(), subject, flows.WrongPasswords, func(t *flows.Tally) error {
				*t = flows.Tally{Count: count}
				return nil
			})
			if err != nil {
				return err
			}
		}
		_, err := d.service.Accounts.Tallies(ctx, subject)
		return err
	})
}

// sessions asks for a session that is not there, and counts.
func (d *doctor) sessions(ctx context.Context) {
	d.timed("sessions store", storeAdvice, func() error {
		var hash flows.TokenHash
		rand.Read(hash[:]) // never fails: it ends the process instead
		if _, err := d.service.Sessions.Get(ctx, hash); !errors.Is(err, flows.ErrNotFound) {
			return err
		}
		counter := flows.Counter{Key: "/doctor", Limit: 1 << 30, Window: time.Second}
		return d.service.Sessions.Charge(ctx, time.Now(), counter)
	})
}

// clocks compares this machine's with those of the stores' servers.
func (d *doctor) clocks(ctx context.Context) {
	for _, s := range d.app.stores {
		server, ok := s.Store.(clockStore)
		if !ok {
			continue // it is on this machine, or does not tell
		}
		f := finding{Check: "clock", Result: findingOK}
		began := time.Now()
		there, err := server.Clock(ctx)
		if err != nil {
			continue // the store's own check says so
		}
		skew := there.Sub(began.Add(time.Since(began) / 2))
		f.Message = fmt.Sprintf("%T: its server's clock differs by %s", s.Store, skew.Abs().Round(time.Millisecond))
		f.Message = strings.Replace(f.Message, "*store.", "", 1)
		if skew.Abs() > maxSkew {
			f.Result, f.Advice = findingFailed, "let both machines take their time from NTP: sessions and codes expire too early or too late"
		}
		d.found(f)
	}
}

// gateways knocks at what a company sends to.
func (d *doctor) gateways(ctx context.Context, code string, company *flows.Company) {
	modules := map[string]any{"sms": uncounted(company.SMS), "mail": uncounted(company.Mail), "captcha": company.Captcha}
	for id, provider := range company.OAuth {
		modules[fmt.Sprintf("oauth %d", id)] = provider.Provider
	}
	var knocks sync.WaitGroup
	for _, name := range slices.Sorted(maps.Keys(modules)) {
		if module, ok := modules[name].(reachingModule); ok {
			endpoint := module.endpoint()
			knocks.Go(func() { d.knock(ctx, code, name, endpoint) })
		}
	}
	knocks.Wait()
}

// uncounted is the module behind what counts its messages.
func uncounted(sender flows.Sender) flows.Sender {
	if c, ok := sender.(countedSender); ok {
		return c.Sender
	}
	return sender
}

func (d *doctor) knock(ctx context.Context, code, name, endpoint string) {
	began := time.Now()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", endpoint)
	f := finding{Check: name, Company: code, Result: findingOK, Message: endpoint + " is reached"}
	if err != nil {
		f.Result = findingFailed
		f.Message = endpoint + " is not reached: " + netCause(err).Error()
		f.Advice = "see that the address is right, that names are resolved here and that no firewall is between"
	} else {
		_ = conn.Close()
		f.Took = time.Since(began).Round(10 * time.Microsecond).String()
	}
	d.found(f)
}

// settings tells of what is for tests, or weaker than it should be.
func (d *doctor) settings(code string, c *Company) {
	warn := func(check, message, advice string) {
		d.found(finding{Check: check, Company: code, Result: findingWarning, Message: message, Advice: advice})
	}
	e := &c.effective
	if e.NoAPIKey {
		warn("api_key", "it is off: anyone may call the auth routes", "set one, unless something in front of Caddy keeps strangers out")
	}
	switch e.Captcha.(type) {
	case nil:
		warn("captcha", "it is off: only rates and locks hold off programs that guess", "choose turnstile, hcaptcha, recaptcha or siteverify")
	case *StaticCaptcha:
		warn("captcha", "it is static, for tests: whoever knows the response passes", "choose turnstile, hcaptcha, recaptcha or siteverify")
	}
	if _, ok := uncounted(e.SMS).(*SMSLog); ok {
		warn("sms", "codes go to the log and to nobody's phone", "configure sms webhook")
	}
	if _, ok := uncounted(e.Mail).(*MailLog); ok {
		warn("mail", "links go to the log and to nobody's mailbox", "configure mail smtp or mail webhook")
	}
	if len(e.OTPFixed) > 0 {
		warn("otp fixed", fmt.Sprintf("%d phones have a code that never changes", len(e.OTPFixed)), "take them out when the review or test is over")
	}
	if len(e.Methods) == 0 {
		warn("recovery", "no method is possible: whoever forgets the password needs an operator", "configure sms, or mail and recovery link")
	}
	if u, err := parseLink(e.Link); err == nil && !strings.Contains(u.Fragment, linkToken) {
		warn("recovery link", "the token is not in the fragment, so the logs of servers hold it", "put {token} behind #")
	}
	if beyond := append(slices.Clone(d.app.Insecure), c.Insecure...); len(beyond) > 0 {
		slices.Sort(beyond)
		warn("insecure", "beyond what standards allow: "+strings.Join(slices.Compact(beyond), ", "), "take the word insecure out, and see what is refused")
	}
}

// Where gateways are

// hostPort returns the host:port of a URL, or of the proxy that the environment
// sets for it.
func hostPort(u *url.URL) string {
	if proxy, err := http.ProxyFromEnvironment(&http.Request{URL: u}); err == nil && proxy != nil {
		u = proxy
	}
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return net.JoinHostPort(u.Hostname(), port)
}

func endpointOf(s string) string {
	u, err := url.Parse(s)
	if err != nil {
		return ""
	}
	return hostPort(u)
}

func (w *webhook) endpoint() string    { return hostPort(w.target) }
func (s *SMTP) endpoint() string       { return s.Address }
func (s *siteverify) endpoint() string { return endpointOf(s.URL) }
func (p *OIDC) endpoint() string       { return endpointOf(p.Issuer) }
func (p *OAuth2) endpoint() string     { return endpointOf(p.TokenURL) }

// Interface guards
var (
	_ reachingModule = (*SMSWebhook)(nil)
	_ reachingModule = (*MailWebhook)(nil)
	_ reachingModule = (*SMTP)(nil)
	_ reachingModule = (*Turnstile)(nil)
	_ reachingModule = (*OIDC)(nil)
	_ reachingModule = (*OAuth2)(nil)
)
