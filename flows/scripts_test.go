package flows_test

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/flows"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/session"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/wire"
	"github.com/mnemogate/mnemogate/store/storetest"
)

// The files in testdata are conversations of clients with the API. Of each, people write the
// requests, and what happens besides (see conversation.happen). This writes the answers and
// the messages that are sent: go test ./flows -run Scripts -update
//
// Secrets have names, such as <token 2> and <code 1>, by the order in which they appear.
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	must(t, err)
	seen := &strings.Builder{}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			script, err := os.ReadFile(file)
			must(t, err)
			held := hold(t, string(script))
			seen.WriteString(held)
			if *storetest.Update {
				must(t, os.WriteFile(file, []byte(held), 0o600))
			} else if held != string(script) {
				t.Errorf("%s is not what is said; it is:\n%s", file, held)
			}
		})
	}
	for _, s := range record.States[1:] {
		if !strings.Contains(seen.String(), `"session_state":"`+string(s)+`"`) {
			t.Errorf("no conversation comes to the state %s; write one that does in testdata", s)
		}
	}
	expected := slices.Concat(flows.Common, flows.TokenErrors)
	for _, route := range flows.Routes {
		expected = append(expected, route.Fails...)
	}
	for _, e := range expected {
		said := regexp.MustCompile(`(?m)^\d+ ` + regexp.QuoteMeta(e.Code) + `\b`)
		if e != wire.ErrService && !said.MatchString(seen.String()) { // that one is a defect of the server
			t.Errorf("no conversation has the error %s; write one that has it in testdata, and run go test ./flows -run Scripts -update", e.Code)
		}
	}
}

// A conversation is a script that is being held.
type conversation struct {
	*harness
	said      strings.Builder
	answer    string            // to the last request
	names     map[string]string // of secrets
	count     map[string]int    // of names of a kind
	key       []string
	sms, mail int // messages that were told of
	device    *device
}

// hold holds a conversation. It returns the script with the answers of now.
func hold(t *testing.T, script string) string {
	c := &conversation{harness: newHarness(t), names: map[string]string{}, count: map[string]int{}}
	said := regexp.MustCompile(`^(\d{3} |SMS |Mail )`)
	for line := range strings.Lines(script) {
		line = strings.TrimSuffix(line, "\n")
		if said.MatchString(line) {
			continue
		}
		c.said.WriteString(line + "\n")
		switch times, request, ok := strings.Cut(line, "POST "); {
		case ok:
			n, _ := strconv.Atoi(strings.TrimSuffix(times, " times "))
			for range max(n, 1) {
				c.ask(request)
			}
			c.said.WriteString(c.answer)
			c.tell("SMS", c.harness.sms, &c.sms)
			c.tell("Mail", c.harness.mail, &c.mail)
		case line != "" && line[0] != '#':
			c.happen(line)
		}
	}
	return c.said.String()
}

var secret = regexp.MustCompile(`<[a-z ]+\d*>`)

// ask sends a request.
func (c *conversation) ask(line string) {
	c.t.Helper()
	line = secret.ReplaceAllStringFunc(line, func(name string) string {
		for value, known := range c.names {
			if known == name {
				return value
			}
		}
		if name == "<grant>" {
			return newGrant("alice")
		}
		c.t.Fatalf("%s: there is no %s", line, name)
		return ""
	})
	path, rest, _ := strings.Cut(line, " ")
	token, body, _ := strings.Cut(rest, " ")
	if strings.HasPrefix(rest, "{") {
		token, body = "", rest
	}
	r := flows.Request{Company: code, Client: session.Client{Address: home}, Route: flows.RouteByPath(path), APIKeys: c.key, Body: func() ([]byte, error) { return []byte(body), nil }}
	if token == "Basic" {
		r.Authorization = []string{"Basic YTpi"}
	} else if token != "" {
		r.Authorization = []string{"Bearer " + token}
	}
	reply, err := c.Serve(c.t.Context(), &r)
	settle(c.Service)
	if err != nil {
		c.answer = c.named(fmt.Sprint(wire.CodeOf(err).Status, " ", wire.CodeOf(err).Code), detailsOf(err))
	} else {
		answer, err := json.Marshal(reply)
		must(c.t, err)
		c.name("token", reply.SessionToken)
		c.name("raise", reply.StepUpToken)
		c.name("challenge", reply.ChallengeToken)
		if reply.PublicKey != nil {
			c.name("public key", string(reply.PublicKey))
			signed, err := json.Marshal(c.device.sign(reply.PublicKey))
			must(c.t, err)
			c.name("passkey", string(signed))
		}
		c.answer = c.named("200", string(answer))
	}
}

// tell writes the messages that were sent.
func (c *conversation) tell(kind string, gateway *outbox, told *int) {
	gateway.mu.Lock()
	defer gateway.mu.Unlock()
	for ; *told < len(gateway.sent); *told++ {
		m := gateway.sent[*told]
		c.name("code", m.Code)
		c.name("link", strings.TrimPrefix(m.Link, linkURL))
		c.said.WriteString(c.named(fmt.Sprint(kind, " ", m.Type, " to ", m.To), m.Code+strings.TrimPrefix(m.Link, linkURL)))
	}
}

func detailsOf(err error) string {
	var details []string
	of := refusal(err)
	if of.Reason != "" {
		details = append(details, "reason "+string(of.Reason))
	}
	if of.RetryAfter > 0 {
		details = append(details, fmt.Sprintf("Retry-After %.0f", of.RetryAfter.Seconds()))
	}
	if of.Captcha {
		details = append(details, "captcha_required")
	}
	return strings.Join(details, ", ")
}

// name names a secret at its first appearance.
func (c *conversation) name(kind, secret string) {
	if secret != "" && c.names[secret] == "" {
		c.count[kind]++
		c.names[secret] = fmt.Sprintf("<%s %d>", kind, c.count[kind])
	}
}

// named returns a line with the names of secrets.
func (c *conversation) named(what, text string) string {
	for _, s := range slices.SortedFunc(maps.Keys(c.names), func(a, b string) int { return len(b) - len(a) }) {
		text = strings.ReplaceAll(text, s, c.names[s])
	}
	return strings.TrimSpace(what+" "+text) + "\n"
}

// happen does what a line says that is not a request.
func (c *conversation) happen(line string) {
	c.t.Helper()
	what, rest, _ := strings.Cut(line, " ")
	switch what {
	case "wait":
		d, err := time.ParseDuration(rest)
		must(c.t, err)
		c.clock.advance(d)
	case "company":
		c.configure(rest)
	case "account":
		c.change(rest)
	case "key":
		c.key = strings.Fields(rest)
	default:
		c.t.Fatalf("%q is neither a request nor anything that can happen", line)
	}
	settle(c.Service)
	c.sms, c.mail = c.harness.sms.count(), c.harness.mail.count()
}

func (c *conversation) configure(line string) {
	c.t.Helper()
	switch p := &c.company.Policy; line {
	case "needs an API key":
		c.company.NoAPIKey, c.company.APIKeys = false, [][sha256.Size]byte{sha256.Sum256([]byte("the-key-of-the-app"))}
	case "demands a code":
		p.SecondFactor = tenant.SecondFactorRequired
	case "demands a captcha":
		c.company.Captcha, p.Limits.CaptchaAfter = &captcha{}, new(0)
	case "has terms":
		c.company.Disclaimers = []wire.Disclaimer{{Code: "terms", Version: "2026"}}
	case "allows recovery by phone":
		p.Recovery.Methods = []tenant.Method{tenant.ByPhone}
	default:
		c.t.Fatalf("there is no company that %s", line)
	}
}

func (c *conversation) change(line string) {
	c.t.Helper()
	if status, ok := strings.CutPrefix(line, "is "); ok {
		c.update(true, func(a *record.Account) { a.Status = record.Status(status) })
		return
	}
	switch line {
	case "has backup codes":
		c.backupCodes("ABCDEFGHJK", "BCDEFGHJKL")
	case "has a passkey":
		c.device = c.harness.device("k", 0)
	case "has no password":
		c.withoutPassword()
	case "has no phone":
		c.update(true, func(a *record.Account) { a.Phone = "" })
	case "has no email":
		c.update(true, func(a *record.Account) { a.Email = "" })
	case "has no question":
		c.update(true, func(a *record.Account) { a.Question, a.AnswerHash = "", "" })
	case "must set a password":
		c.update(true, func(a *record.Account) { a.MustSetPassword = true })
	default:
		c.t.Fatalf("there is no account that %s", line)
	}
}
