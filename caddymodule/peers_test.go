package caddymodule

import (
	"bufio"
	"bytes"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/oauth2"

	"github.com/mnemogate/mnemogate/caddymodule/guest/guesttest"
	"github.com/mnemogate/mnemogate/flows"
	"github.com/mnemogate/mnemogate/store/storetest"
)

const peersDir = "testdata/peers"

// A peer is a server in Node that somebody else wrote.
type peer struct {
	t      *testing.T
	cmd    *exec.Cmd
	stdin  io.Closer
	exited chan struct{}
	stderr bytes.Buffer // to be read once it has exited
}

// startPeer runs a script with config as its argument until the test ends.
// What the script says of itself, its first line of JSON, is read into said.
func startPeer(t *testing.T, script string, config, said any) *peer {
	t.Helper()
	storetest.NeedPeers(t, peersDir)
	argument, err := json.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	p := &peer{t: t, cmd: exec.Command("node", script, string(argument)), exited: make(chan struct{})}
	p.cmd.Dir = peersDir
	p.cmd.Env = append(os.Environ(), "DEBUG=", "NODE_ENV=production")
	p.cmd.Stderr = &p.stderr
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ready := make(chan []byte, 1)
	go func() {
		defer close(p.exited)
		for lines := bufio.NewScanner(stdout); lines.Scan(); {
			if bytes.HasPrefix(lines.Bytes(), []byte("{")) && len(ready) == 0 {
				ready <- bytes.Clone(lines.Bytes())
			}
		}
		_ = p.cmd.Wait()
	}()
	t.Cleanup(p.stop)
	select {
	case line := <-ready:
		if err := json.Unmarshal(line, said); err != nil {
			t.Fatalf("%s says %s: %v", script, line, err)
		}
	case <-p.exited:
		t.Fatalf("%s ended at its start:\n%s", script, &p.stderr)
	case <-time.After(30 * time.Second):
		t.Fatalf("%s does not come up", script)
	}
	return p
}

// stop ends the peer as the end of its parent would: by its standard input.
func (p *peer) stop() {
	p.signal(syscall.SIGCONT)
	_ = p.stdin.Close()
	select {
	case <-p.exited:
	case <-time.After(10 * time.Second):
		p.kill()
		p.t.Error("the peer did not end with its standard input")
	}
}

func (p *peer) kill() {
	p.signal(syscall.SIGKILL)
	<-p.exited
}

func (p *peer) signal(s os.Signal) { _ = p.cmd.Process.Signal(s) }

// frozen runs f while the peer takes connections but says nothing.
func (p *peer) frozen(f func()) {
	p.signal(syscall.SIGSTOP)
	defer p.signal(syscall.SIGCONT)
	f()
}

// getJSON asks a peer what it has seen.
func getJSON(t *testing.T, address string, v any) {
	t.Helper()
	response, err := client.Get(address)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if err := json.NewDecoder(response.Body).Decode(v); err != nil {
		t.Fatal(err)
	}
}

// wantUnavailable checks that a gateway's outage is told in time.
func wantUnavailable(t *testing.T, ask func() answer) {
	t.Helper()
	watch := storetest.StartWatch()
	a := ask().want(flows.ErrUnavailable)
	if a.Header.Get("Retry-After") == "" {
		t.Error("service.unavailable without Retry-After")
	}
	if took := watch.Took(); took > 5*time.Second+time.Second {
		t.Errorf("the answer took %v, want 5 s at most", took)
	}
}

// wantProfile checks that a login ended authorized, up to the application.
func (s *site) wantProfile(a answer, mnemocode string) {
	s.t.Helper()
	a.wantState(flows.Authorized)
	if a.str("profile_mnemocode") != mnemocode {
		s.t.Errorf("profile_mnemocode is %q, want %q", a.str("profile_mnemocode"), mnemocode)
	}
	got := s.get("/profile", a.token())
	if got.Status != http.StatusOK || !strings.Contains(string(got.Body), "\r\nX-Profile-Mnemocode: "+mnemocode+"\r\n") {
		s.t.Errorf("the application got %d %q", got.Status, got.Body)
	}
}

const (
	peerCallback = "https://app.example.com/peerCallback"
	// What RFC 6749 2.3.1 has encoded before it is sent.
	peerSecret = "se cret:100%+/=&?~\""
)

// An openID is oidc-provider with one client, and all that a browser and a
// client were told by it.
type openID struct {
	*peer
	Issuer  string `json:"issuer"`
	config  fields
	secrets []string
}

func startOpenID(t *testing.T, redirectURIs ...string) *openID {
	t.Helper()
	p := &openID{config: fields{
		"port": 0,
		"client": fields{
			"client_id":     "mnemogate",
			"client_secret": peerSecret,
			"redirect_uris": append(redirectURIs, peerCallback, peerCallback+"/2", peerCallback+"/unlisted"),
		},
		"users": fields{
			"carol-at-provider":    fields{"email": "Carol@EXAMPLE.com", "email_verified": true},
			"impostor-at-provider": fields{"email": "carol@example.com", "email_verified": true},
			"dave-at-provider":     fields{"email": "dave@example.com", "email_verified": false},
			"erin-at-provider":     fields{"email": "erin@example.com"},
			"nobody-at-provider":   fields{"email": "nobody@example.com", "email_verified": true},
		},
	}}
	p.peer = startPeer(t, "oidc.mjs", p.config, p)
	return p
}

// restart starts it again where it was, with other keys and no memory.
func (p *openID) restart() {
	p.t.Helper()
	u, err := url.Parse(p.Issuer)
	if err != nil {
		p.t.Fatal(err)
	}
	if p.config["port"], err = strconv.Atoi(u.Port()); err != nil {
		p.t.Fatal(err)
	}
	p.peer = startPeer(p.t, "oidc.mjs", p.config, p)
}

// calls counts the requests to a path.
func (p *openID) calls(t *testing.T, call string) int {
	t.Helper()
	var all []string
	getJSON(t, p.Issuer+"/calls", &all)
	return len(slices.DeleteFunc(all, func(c string) bool { return c != call }))
}

// A peerGrant is what a client sends to auth/oauth.
type peerGrant struct {
	code, verifier, nonce string
}

func (g peerGrant) fields(provider int) fields {
	f := fields{"provider_id": provider, "code": g.code, "redirect_uri": peerCallback}
	if g.verifier != "" {
		f["code_verifier"] = g.verifier
	}
	if g.nonce != "" {
		f["nonce"] = g.nonce
	}
	return f
}

var formAction = regexp.MustCompile(`<form[^>]* action="([^"]+)" method="post">`)

// login is the user's browser: from the authorization request over the login
// form to the client's redirect URI.
func (p *openID) login(t *testing.T, user string) peerGrant {
	t.Helper()
	g := peerGrant{verifier: oauth2.GenerateVerifier(), nonce: oauth2.GenerateVerifier()}
	g.code = p.authorize(t, user, url.Values{
		"nonce":                 {g.nonce},
		"code_challenge":        {oauth2.S256ChallengeFromVerifier(g.verifier)},
		"code_challenge_method": {"S256"},
	})
	p.secrets = append(p.secrets, g.verifier, g.nonce)
	return g
}

func (p *openID) authorize(t *testing.T, user string, params url.Values) string {
	t.Helper()
	state := oauth2.GenerateVerifier()
	for name, value := range map[string]string{"client_id": "mnemogate", "response_type": "code",
		"scope": "openid email", "redirect_uri": peerCallback, "state": state} {
		params.Set(name, value)
	}
	at := p.visit(t, user, p.Issuer+"/auth?"+params.Encode())
	code := at.Query().Get("code")
	if code == "" || at.Query().Get("state") != state {
		t.Fatalf("the browser was sent to %s", at)
	}
	p.secrets = append(p.secrets, code)
	return code
}

// visit goes from an address of the provider over its login form to the client's
// redirect URI, which it returns.
func (p *openID) visit(t *testing.T, user, address string) *url.URL {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	browser := &http.Client{Jar: jar, Timeout: 20 * time.Second, CheckRedirect: func(r *http.Request, _ []*http.Request) error {
		if strings.HasPrefix(r.URL.String(), peerCallback) {
			return http.ErrUseLastResponse
		}
		return nil
	}}
	form, err := browser.Get(address)
	if err != nil {
		t.Fatal(err)
	}
	defer form.Body.Close()
	page, err := io.ReadAll(form.Body)
	if err != nil {
		t.Fatal(err)
	}
	action := formAction.FindSubmatch(page)
	if action == nil {
		t.Fatalf("%d, and no login form:\n%s", form.StatusCode, page)
	}
	to, err := form.Request.URL.Parse(string(action[1]))
	if err != nil {
		t.Fatal(err)
	}
	back, err := browser.PostForm(to.String(), url.Values{"prompt": {"login"}, "login": {user}, "password": {"any"}})
	if err != nil {
		t.Fatal(err)
	}
	defer back.Body.Close()
	at, err := back.Location()
	if err != nil {
		t.Fatalf("%d: %v", back.StatusCode, err)
	}
	return at
}

// provider is the part of a Caddyfile.
func (p *openID) provider(number int, more string) string {
	return fmt.Sprintf(`
		oauth %d oidc %s {
			client_id mnemogate
			client_secret {env.MNEMOGATE_PEER_SECRET}
			redirect_uri %s %s/2
			%s
		}`, number, p.Issuer, peerCallback, peerCallback, more)
}

func TestPeersOpenIDProvider(t *testing.T) {
	t.Parallel()
	p := startOpenID(t)
	config := siteConfig{
		company: people + p.provider(1, "") + p.provider(2, "link_verified_email") + p.provider(3, "require_pkce") +
			strings.Replace(p.provider(4, ""), "{env.MNEMOGATE_PEER_SECRET}", "another-secret", 1),
		more: `company strict {
			api_key ` + testKey + `
			captcha off
			account sam {
				login sam
				identity 1 sam-at-provider
			}` + disclaimers + p.provider(1, "") + `
		}`,
		env: []string{"MNEMOGATE_PEER_SECRET=" + peerSecret},
	}
	s := startSite(t, config)
	oauth := func(provider int, g peerGrant) answer {
		s.t.Helper()
		return s.post("auth/oauth", "", g.fields(provider))
	}

	s.run("a code is a login, once", func(t *testing.T) {
		g := p.login(t, "alice-at-provider")
		a := oauth(1, g)
		s.wantProfile(a, "alice")
		oauth(1, g).want(flows.ErrOAuthFailed)
		s.wantProfile(a, "alice") // the login still stands
	})
	s.run("the interface's fields suffice", func(t *testing.T) {
		code := p.authorize(t, "alice-at-provider", url.Values{})
		s.wantProfile(s.post("auth/oauth", "not looked at", peerGrant{code: code}.fields(1)), "alice")
	})
	s.run("the provider is asked no more than it must be", func(t *testing.T) {
		before := p.calls(t, "POST /token")
		for range 3 {
			s.wantProfile(oauth(1, p.login(t, "alice-at-provider")), "alice")
		}
		for call, want := range map[string]int{"GET /.well-known/openid-configuration": 1, "GET /jwks": 1, "POST /token": before + 3} {
			if got := p.calls(t, call); got != want {
				t.Errorf("%d times %s, want %d", got, call, want)
			}
		}
	})
	s.run("redirect_uri", func(t *testing.T) {
		g := p.login(t, "alice-at-provider")
		before := p.calls(t, "POST /token")
		for _, uri := range []string{peerCallback + "/unlisted", peerCallback + "/", strings.ToUpper(peerCallback)} {
			body := g.fields(1)
			body["redirect_uri"] = uri
			s.post("auth/oauth", "", body).want(flows.ErrOAuthFailed)
		}
		if got := p.calls(t, "POST /token"); got != before {
			t.Errorf("%d calls went out for a redirect_uri that is not configured", got-before)
		}
		body := g.fields(1)
		body["redirect_uri"] = peerCallback + "/2" // configured, but not where the code came
		s.post("auth/oauth", "", body).want(flows.ErrOAuthFailed)
		if got := p.calls(t, "POST /token"); got != before+1 {
			t.Errorf("%d calls went out, want 1", got-before)
		}
	})
	s.run("what does not belong together fails", func(t *testing.T) {
		other := oauth2.GenerateVerifier()
		for name, change := range map[string]func(*peerGrant){
			"wrong code":          func(g *peerGrant) { g.code = other },
			"wrong nonce":         func(g *peerGrant) { g.nonce = other },
			"wrong code_verifier": func(g *peerGrant) { g.verifier = other },
			"no code_verifier":    func(g *peerGrant) { g.verifier = "" },
			"a nonce the provider was not given": func(g *peerGrant) {
				g.code, g.verifier = p.authorize(t, "alice-at-provider", url.Values{}), ""
			},
			"a code_verifier the provider was given no challenge for": func(g *peerGrant) {
				g.code = p.authorize(t, "alice-at-provider", url.Values{"nonce": {g.nonce}})
			},
		} {
			s.run(name, func(t *testing.T) {
				g := p.login(t, "alice-at-provider")
				change(&g)
				oauth(1, g).want(flows.ErrOAuthFailed)
			})
		}
	})
	s.run("PKCE where it is required", func(t *testing.T) {
		g := p.login(t, "nobody-at-provider")
		oauth(3, peerGrant{code: g.code, nonce: g.nonce}).want(flows.ErrValidation)
		oauth(3, g).want(flows.ErrOAuthNotFound) // the code was not spent
	})
	s.run("wrong client_secret", func(t *testing.T) {
		oauth(4, p.login(t, "alice-at-provider")).want(flows.ErrOAuthFailed)
	})
	s.run("a user without an account", func(t *testing.T) {
		oauth(1, p.login(t, "somebody-else")).want(flows.ErrOAuthNotFound)
		oauth(1, p.login(t, "carol-at-provider")).want(flows.ErrOAuthNotFound) // no link_verified_email
		oauth(2, p.login(t, "nobody-at-provider")).want(flows.ErrOAuthNotFound)
		oauth(2, p.login(t, "alice-at-provider")).want(flows.ErrOAuthNotFound) // known to provider 1
	})
	s.run("a verified email binds on first use", func(t *testing.T) {
		s.wantProfile(oauth(2, p.login(t, "carol-at-provider")), "carol") // no second factor
		a, err := s.accounts().ByMnemocode(t.Context(), "acme", "carol")
		if want := (flows.Identity{Provider: 2, Subject: "carol-at-provider"}); err != nil || !slices.Contains(a.Identities, want) {
			t.Errorf("carol's identities are %v, %v; want %v", a.Identities, err, want)
		}
		s.update("carol", false, func(a *flows.Account) { a.Email = "caroline@example.com" })
		s.wantProfile(oauth(2, p.login(t, "carol-at-provider")), "carol") // by the subject alone
		s.update("carol", false, func(a *flows.Account) { a.Email = "carol@example.com" })
		oauth(2, p.login(t, "impostor-at-provider")).want(flows.ErrOAuthNotFound)
	})
	s.run("an email that is not verified does not", func(t *testing.T) {
		for _, name := range []string{"dave", "erin"} {
			oauth(2, p.login(t, name+"-at-provider")).want(flows.ErrOAuthNotFound)
			a, err := s.accounts().ByMnemocode(t.Context(), "acme", name)
			if err != nil || len(a.Identities) != 0 {
				t.Errorf("%s's identities are %v, %v", name, a.Identities, err)
			}
		}
	})
	s.run("disclaimers come before authorized", func(t *testing.T) {
		strict := func(route, token string, body fields) answer { return s.postTo("strict", testKey, route, token, body) }
		a := strict("auth/oauth", "", p.login(t, "sam-at-provider").fields(1)).wantState(flows.AcceptDisclaimers)
		if list, _ := a.JSON["disclaimers_required"].([]any); len(list) != 2 {
			t.Errorf("disclaimers_required is %v, want both", a.JSON["disclaimers_required"])
		}
		if _, ok := a.JSON["profile_mnemocode"]; ok {
			t.Error("profile_mnemocode before authorized")
		}
		s.get("/profile", a.token()).want(flows.ErrSessionInvalid)
		strict("auth/acceptdisclaimers", a.token(), fields{"accept_disclaimers": []string{"terms"}}).want(flows.ErrDisclaimerInvalid)
		s.wantProfile(strict("auth/acceptdisclaimers", a.token(), fields{"accept_disclaimers": []string{"terms", "privacy"}}), "sam")
		s.wantProfile(strict("auth/oauth", "", p.login(t, "sam-at-provider").fields(1)), "sam")
	})
	s.run("a provider that says nothing", func(t *testing.T) {
		g := p.login(t, "alice-at-provider")
		p.frozen(func() { wantUnavailable(t, func() answer { return oauth(1, g) }) })
		s.wantProfile(oauth(1, p.login(t, "alice-at-provider")), "alice")
	})
	s.run("a provider that is down, and comes back with other keys", func(t *testing.T) {
		g := p.login(t, "alice-at-provider")
		p.kill()
		wantUnavailable(t, func() answer { return oauth(1, g) })
		p.restart()
		oauth(1, g).want(flows.ErrOAuthFailed) // it has forgotten the code
		s.wantProfile(oauth(1, p.login(t, "alice-at-provider")), "alice")
	})
	s.run("a provider that is down when it is first asked", func(t *testing.T) {
		g := p.login(t, "alice-at-provider")
		p.kill()
		if err := s.reload(config); err != nil {
			t.Fatal(err)
		}
		wantUnavailable(t, func() answer { return oauth(1, g) })
		p.restart()
		s.wantProfile(oauth(1, p.login(t, "alice-at-provider")), "alice")
	})
	s.stop(syscall.SIGTERM) // the log is whole now
	if !strings.Contains(s.log(), "invalid_client") {
		t.Error("the log does not tell of the wrong client_secret")
	}
	s.wantNoneLogged(append(p.secrets, peerSecret, url.QueryEscape(peerSecret), "another-secret")...)
}

// wantNoneLogged checks that nothing secret is in the log, not even at DEBUG.
func (s *site) wantNoneLogged(secrets ...string) {
	s.t.Helper()
	log := s.log()
	for i, secret := range secrets {
		if at := strings.Index(log, secret); at >= 0 {
			s.t.Errorf("secret %d is in the log: …%s", i, log[max(0, at-200):min(len(log), at+200)])
		}
	}
}

// A mailServer is smtp-server, with the mails as postal-mime reads them.
type mailServer struct {
	*peer
	SMTP  int `json:"smtp"`
	SMTPS int `json:"smtps"`
	HTTP  int `json:"http"`
}

type mailAddress struct{ Address, Name string }

type receivedMail struct {
	Method     string
	Sender     string
	Recipients []string
	From       mailAddress
	To         []mailAddress
	Subject    string
	MessageID  string `json:"messageId"`
	Date       time.Time
	Text       string
	Headers    []struct{ Key, Value string }
}

func (m receivedMail) header(key string) string {
	for _, h := range m.Headers {
		if h.Key == key {
			return h.Value
		}
	}
	return ""
}

// linkToken is the token in the mail's link.
func (m receivedMail) linkToken(t *testing.T) string {
	t.Helper()
	_, after, found := strings.Cut(m.Text, "\nhttps://app.example.com/recover#")
	token, _, _ := strings.Cut(after, "\n")
	if !found || token == "" {
		t.Fatalf("no link in a line of its own:\n%s", m.Text)
	}
	return token
}

func (m *mailServer) mails(t *testing.T) []receivedMail {
	t.Helper()
	var all []receivedMail
	getJSON(t, fmt.Sprintf("http://127.0.0.1:%d/", m.HTTP), &all)
	return all
}

// during returns the mails that came while f ran.
func (m *mailServer) during(t *testing.T, f func()) []receivedMail {
	t.Helper()
	before := len(m.mails(t))
	f()
	return m.mails(t)[before:]
}

// oneMail is the only mail that came while f ran.
func (m *mailServer) oneMail(t *testing.T, f func()) receivedMail {
	t.Helper()
	mails := m.during(t, f)
	if len(mails) != 1 {
		t.Fatalf("%d mails came, want 1", len(mails))
	}
	return mails[0]
}

// wait returns a mail with the subject, once it has come.
func (m *mailServer) wait(t *testing.T, subject string) receivedMail {
	t.Helper()
	for begun := time.Now(); time.Since(begun) < 10*time.Second; time.Sleep(10 * time.Millisecond) {
		for _, mail := range m.mails(t) {
			if mail.Subject == subject {
				return mail
			}
		}
	}
	t.Fatalf("no mail %q came", subject)
	return receivedMail{}
}

func TestPeersMailRecovery(t *testing.T) {
	t.Parallel()
	const password = "mail pass:word"
	config, _ := guesttest.Certificate(t)
	der, err := x509.MarshalPKCS8PrivateKey(config.Certificates[0].PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: config.Certificates[0].Certificate[0]})
	var m mailServer
	m.peer = startPeer(t, "smtp.mjs", fields{
		"cert":     string(certificate),
		"key":      string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})),
		"username": "mailer",
		"password": password,
	}, &m)
	roots := t.TempDir() + "/roots.pem"
	if err := os.WriteFile(roots, certificate, 0o600); err != nil {
		t.Fatal(err)
	}

	company := func(host string, port int, password, mode string) string {
		return fmt.Sprintf(`
			captcha off
			limits {
				mails_per_account 10/1h
			}
			mail smtp %s:%d {
				from "Acme Ünited <noreply@acme.example>"
				username mailer
				password %s
				tls %s
			}
			account alice {
				email alice@example.com
				password "%s"
			}
			account bob {
				email bob@example.com
				phone +37060000002
			}
			account late {
				email late@example.com
				phone +37060000003
			}
			account reject {
				email reject@example.com
				phone +37060000004
			}`, host, port, password, mode, testPassword)
	}
	const secret = "{env.MNEMOGATE_PEER_SECRET}"
	more := ""
	for name, lines := range map[string]string{
		"implicit":      company("127.0.0.1", m.SMTPS, secret, "implicit"),
		"wrongpassword": company("127.0.0.1", m.SMTP, "another-secret", "starttls"),
		"wrongname":     company("localhost", m.SMTP, secret, "starttls"), // the certificate names the address
	} {
		more += "company " + name + " {\napi_key " + testKey + lines + "\n}\n"
	}
	s := startSite(t, siteConfig{
		company: company("127.0.0.1", m.SMTP, secret, "starttls"),
		more:    more,
		env:     []string{"MNEMOGATE_PEER_SECRET=" + password, "SSL_CERT_FILE=" + roots},
	})
	in := func(company, loginID string) answer {
		return s.postTo(company, testKey, "auth/recovery/recover", "",
			fields{"login_id": loginID, "captcha_response": "a response", "method": "MAIL"})
	}
	mailTo := func(loginID string) answer { return in("acme", loginID) }
	secrets := []string{password, "another-secret"}
	checkLink := func(token string) answer {
		s.t.Helper()
		secrets = append(secrets, token)
		return s.post("auth/recovery/checklink", "", fields{"token": token})
	}
	credentials := func(password string) answer {
		return s.post("auth/checkcredentials", "", fields{"login_id": "alice@example.com", "password": password})
	}

	s.run("by the link to a new password", func(t *testing.T) {
		mail := m.oneMail(t, func() {
			a := mailTo("alice@example.com").wantState(flows.None)
			if a.str("verification") != "MAIL" || a.str("user_email") != "alice@example.com" || a.str("session_token") != "" {
				t.Errorf("got %s", a.Body)
			}
		})
		checkReceived(t, mail, "alice@example.com", "Recover your access to acme")
		link := mail.linkToken(t)
		a := checkLink(link).wantState(flows.RecoveryPassword)
		checkLink(link).want(flows.ErrTokenInvalid)
		secrets = append(secrets, a.token())
		s.post("auth/setpassword", a.token(), fields{"new_password": "a much better secret"}).wantState(flows.None)
		checkLink(link).want(flows.ErrTokenInvalid)
		s.wantProfile(credentials("a much better secret"), "alice")
		credentials(testPassword).want(flows.ErrCredentialsInvalid)

		notice := m.wait(t, "Your password for acme was changed")
		checkReceived(t, notice, "alice@example.com", notice.Subject)
		if notice.MessageID == mail.MessageID {
			t.Errorf("both mails have the Message-ID %s", mail.MessageID)
		}
		if strings.Contains(notice.Text, "http") || strings.Contains(notice.Text, "secret") {
			t.Errorf("the notice holds more than a notice:\n%s", notice.Text)
		}
	})
	s.run("a newer link ends the older", func(t *testing.T) {
		older := m.oneMail(t, func() { mailTo("alice@example.com").wantState(flows.None) })
		newer := m.oneMail(t, func() { mailTo("alice@example.com").wantState(flows.None) })
		checkLink(older.linkToken(t)).want(flows.ErrTokenInvalid)
		checkLink(newer.linkToken(t)).wantState(flows.RecoveryPassword)
	})
	s.run("implicit TLS", func(t *testing.T) {
		mail := m.oneMail(t, func() { in("implicit", "alice@example.com").wantState(flows.None) })
		checkReceived(t, mail, "alice@example.com", "Recover your access to implicit")
		checkLink(mail.linkToken(t)).want(flows.ErrTokenInvalid) // another company's
	})
	s.run("a recipient that is refused", func(t *testing.T) {
		mails := m.during(t, func() { wantUnavailable(t, func() answer { return mailTo("reject@example.com") }) })
		if len(mails) != 0 {
			t.Errorf("mails came: %v", mails)
		}
	})
	s.run("a mail that is refused once it was read", func(t *testing.T) {
		mail := m.oneMail(t, func() { wantUnavailable(t, func() answer { return mailTo("late@example.com") }) })
		checkLink(mail.linkToken(t)).want(flows.ErrTokenInvalid)
	})
	s.run("doctor sends a test", func(t *testing.T) {
		test := func(company, to string) outcome {
			return s.cli("", "doctor", "--send-test", "mail:"+to, "--company", company)
		}
		mail := m.oneMail(t, func() {
			test("acme", "ops@example.com").want(0, "ok  acme: mail  a test to ops@example.com was taken: ", " took it: ")
		})
		checkReceived(t, mail, "ops@example.com", "Test mail of acme")
		test("acme", "reject@example.com").want(1, "SMTP RCPT TO command failed: 550", "No such user", "→ it does not take this")
		test("acme", "late@example.com").want(1, "failed: 451", "Not now", "→ it says that it can't now")
		test("wrongpassword", "ops@example.com").want(1, "it answered 535", "Who are you?", "→ see that username and password are right")
		test("wrongname", "ops@example.com").want(1, "certificate", "→ ")
	})
	s.run("a server that can't be trusted or does not trust us", func(t *testing.T) {
		for _, company := range []string{"wrongpassword", "wrongname"} {
			mails := m.during(t, func() { wantUnavailable(t, func() answer { return in(company, "alice@example.com") }) })
			if len(mails) != 0 {
				t.Errorf("%s: mails came: %v", company, mails)
			}
		}
	})
	s.run("a server that says nothing", func(t *testing.T) {
		mail := m.oneMail(t, func() { mailTo("bob@example.com").wantState(flows.None) })
		token := checkLink(mail.linkToken(t)).wantState(flows.RecoveryPassword).token()
		m.frozen(func() {
			watch := storetest.StartWatch()
			s.post("auth/setpassword", token, fields{"new_password": "a much better secret"}).wantState(flows.None)
			if took := watch.Took(); took > 3*time.Second {
				t.Errorf("the notice held up setpassword for %v", took)
			}
			wantUnavailable(t, func() answer { return mailTo("late@example.com") })
			s.tells("sending notice.password_changed to")
		})
	})
	s.run("a server that is down", func(t *testing.T) {
		m.kill()
		wantUnavailable(t, func() answer { return mailTo("alice@example.com") })
	})
	s.stop(syscall.SIGTERM) // the log is whole now
	s.wantNoneLogged(secrets...)
}

// checkReceived checks all of a mail but its words.
func checkReceived(t *testing.T, m receivedMail, to, subject string) {
	t.Helper()
	if m.Method != "ESMTPSA" { // RFC 3848: with TLS and a login
		t.Errorf("it came by %s", m.Method)
	}
	if m.Sender != "noreply@acme.example" || !slices.Equal(m.Recipients, []string{to}) {
		t.Errorf("its envelope is from %s to %v", m.Sender, m.Recipients)
	}
	if want := (mailAddress{"noreply@acme.example", "Acme Ünited"}); m.From != want {
		t.Errorf("From is %v, want %v", m.From, want)
	}
	if want := (mailAddress{Address: to}); len(m.To) != 1 || m.To[0] != want {
		t.Errorf("To is %v, want %v", m.To, want)
	}
	if m.Subject != subject {
		t.Errorf("Subject is %q, want %q", m.Subject, subject)
	}
	if !regexp.MustCompile(`^<[^<>@\s]+@acme\.example>$`).MatchString(m.MessageID) {
		t.Errorf("Message-ID is %q", m.MessageID)
	}
	if m.header("auto-submitted") != "auto-generated" {
		t.Errorf("Auto-Submitted is %q", m.header("auto-submitted"))
	}
	if age := time.Since(m.Date); age < -time.Minute || age > time.Minute {
		t.Errorf("Date is %v", m.Date)
	}
}
