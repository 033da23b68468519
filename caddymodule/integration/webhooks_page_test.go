package integration

import (
	"bufio"
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/mnemogate/mnemogate/caddymodule/guest/guesttest"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/store/storetest"
)

// A sentHook is the request of a webhook, as received or as shown on the page.
type sentHook struct {
	method, host, path string
	header             http.Header
	body               string
}

func readHook(r *http.Request) sentHook {
	body, _ := io.ReadAll(r.Body)
	return sentHook{r.Method, r.Host, r.URL.Path, r.Header, string(body)}
}

func (h sentHook) sign(secret string) string { return signature(secret, h.header, h.body) }

// signature returns the signature that Standard Webhooks requires.
func signature(secret string, header http.Header, body string) string {
	key, _ := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
	mac := hmac.New(sha256.New, key)
	fmt.Fprintf(mac, "%s.%s.%s", header.Get("Webhook-Id"), header.Get("Webhook-Timestamp"), body)
	return "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

// ofTime are the members of bodies that differ each time.
var ofTime = []string{"code", "link", "expires_at", "timestamp"}

// as returns the received hook as the page would show it: with the page's receiver,
// time and other values that differ each time, long values cut as there, and a new
// signature.
func (h sentHook) as(t *testing.T, page sentHook, secret string) sentHook {
	t.Helper()
	var ours, theirs map[string]any
	if err := json.Unmarshal([]byte(h.body), &ours); err != nil {
		t.Fatalf("%s: %v", h.body, err)
	}
	if err := json.Unmarshal([]byte(page.body), &theirs); err != nil {
		t.Fatalf("docs/webhooks.md: %s: %v", page.body, err)
	}
	for name, shown := range theirs {
		start, cut := strings.CutSuffix(fmt.Sprint(shown), "…")
		if whole, ok := ours[name].(string); ok && cut && strings.HasPrefix(whole, start) {
			here := get(json.Marshal(whole))(t)
			h.body = strings.Replace(h.body, string(here), string(get(json.Marshal(shown))(t)), 1)
		}
	}
	for _, name := range ofTime {
		here := get(json.Marshal(ours[name]))(t)
		there := get(json.Marshal(theirs[name]))(t)
		if ours[name] != nil && theirs[name] != nil {
			h.body = strings.ReplaceAll(h.body, string(here[1:len(here)-1]), string(there[1:len(there)-1]))
		}
	}
	h.host, h.header = page.host, maps.Clone(h.header)
	for _, name := range []string{"Webhook-Id", "Webhook-Timestamp"} {
		h.header[name] = page.header[name]
	}
	h.header.Set("Webhook-Signature", h.sign(secret))
	h.header.Set("Content-Length", fmt.Sprint(len(h.body)))
	return h
}

func (h sentHook) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s HTTP/1.1\nHost: %s\n", h.method, h.path, h.host)
	for _, name := range []string{"User-Agent", "Content-Length", "Content-Type", "Webhook-Id", "Webhook-Signature", "Webhook-Timestamp", "Accept-Encoding"} {
		for _, value := range h.header[name] {
			fmt.Fprintf(&b, "%s: %s\n", name, value)
		}
	}
	for name := range h.header {
		if !strings.Contains(b.String(), name+": ") {
			fmt.Fprintf(&b, "%s: %s\n", name, h.header[name])
		}
	}
	return b.String() + "\n" + h.body + "\n"
}

// docs/webhooks.md shows what is sent, and the library of Standard Webhooks accepts
// it.
func TestSamplesOfTheWebhooksPage(t *testing.T) {
	t.Parallel()
	page := pages(t)["docs/webhooks.md"]
	secret := regexp.MustCompile("signed with `(whsec_[^`]+)`").FindStringSubmatch(page)[1]
	block := strings.TrimSuffix(blocks(page, "http")[0], "\n")
	sms := readHook(get(http.ReadRequest(bufio.NewReader(strings.NewReader(block))))(t))
	_, sms.body, _ = strings.Cut(block, "\n\n")
	samples := map[string]sentHook{sms.path: sms}
	for i, path := range []string{"/mails", "/events", "/passwords"} { // the page has only the bodies
		body := strings.TrimSpace(blocks(page, "json")[i])
		h := sentHook{sms.method, sms.host, path, maps.Clone(sms.header), body}
		h.header.Set("Content-Length", fmt.Sprint(len(body)))
		h.header.Set("Webhook-Signature", h.sign(secret))
		samples[path] = h
	}

	got := make(chan sentHook, 100)
	receiver := guesttest.Serve(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got <- readHook(r) }))
	hook := func(directive, path string) string {
		return fmt.Sprintf("%s webhook %s%s {\nsecret %s\n}\n", directive, receiver.URL, path, secret)
	}
	s := adminSite(t, siteConfig{company: hook("sms", "/sms") + hook("mail", "/mails") + hook("events", "/events") +
		"password {\n" + hook("migrate", "/passwords") + "}\n"})
	sent := func(what string, cause func()) sentHook {
		t.Helper()
		cause()
		h := <-got
		if h.header.Get("Webhook-Signature") != h.sign(secret) {
			t.Errorf("%s: the signature is wrong", what)
		}
		checkMessage(t, []byte(h.body))
		return h
	}
	created := func(account fields) {
		s.admin("POST", "accounts", account).wantStatus(201)
	}
	sent("created", func() {
		created(fields{"profile_mnemocode": "alice", "primary_phone": "+37060012345", "primary_email": "alice@example.com", "locale": "en"})
	})
	sent("created", func() {
		created(fields{"profile_mnemocode": "dave", "primary_email": "dave@example.com", "password_hash": "$webhook$"})
	})
	for path, cause := range map[string]func(){
		"/sms": func() { s.post("auth/login", "", fields{"login_id": "alice@example.com"}).wantState(record.CheckOTP) },
		"/mails": func() {
			s.post("auth/recovery/recover", "", fields{"login_id": "alice@example.com", "captcha_response": "any", "method": "MAIL"}).wantState(record.None)
		},
		"/events": func() { s.admin("PATCH", "accounts/alice", fields{"role": "editor"}).wantStatus(200) },
		"/passwords": func() {
			s.post("auth/checkcredentials", "", fields{"login_id": "dave@example.com", "password": testPassword}).wantState(record.Authorized)
		},
	} {
		h := sent(path, cause)
		shown := samples[path]
		if want := h.as(t, shown, secret); shown.String() != want.String() {
			t.Errorf("docs/webhooks.md shows\n%s\nwant\n%s", shown, want)
		}
	}
	for channel, want := range map[string]string{
		"sms:+37060012345": `{"type":"test","company_code":"acme","to":"+37060012345","text":"`,
		"events":           `"data":{"company_code":"acme","profile_mnemocode":""}}`,
	} {
		h := sent(channel, func() { s.cli("", "doctor", "--send-test", channel).want(0) })
		if !strings.Contains(h.body, want) {
			t.Errorf("got %s, want %s", h.body, want)
		}
	}
	verifySamples(t, secret, samples)
}

// verifySamples checks that the library of Standard Webhooks accepts the samples at
// their time, and refuses them with a changed body.
func verifySamples(t *testing.T, secret string, samples map[string]sentHook) {
	t.Helper()
	storetest.NeedPeers(t, peersDir)
	var all []fields
	for _, h := range samples {
		headers := map[string]string{}
		for name := range h.header {
			headers[strings.ToLower(name)] = h.header.Get(name)
		}
		all = append(all, fields{"headers": headers, "body": h.body})
	}
	argument := get(json.Marshal(fields{"secret": secret, "samples": all}))(t)
	cmd := exec.Command("node", "--input-type=module", "--eval", `
		import { Webhook } from 'standardwebhooks'
		const { secret, samples } = JSON.parse(process.argv[1])
		for (const { headers, body } of samples) {
			Date.now = () => headers['webhook-timestamp'] * 1000
			new Webhook(secret).verify(body, headers)
			try {
				new Webhook(secret).verify(body + ' ', headers)
			} catch {
				console.log('verified')
			}
		}`, string(argument))
	cmd.Dir = peersDir
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil || strings.Count(out.String(), "verified\n") != len(samples) || len(samples) == 0 {
		t.Errorf("%v: %s", err, &out)
	}
}
