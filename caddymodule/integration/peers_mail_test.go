package integration

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/caddymodule/guest/guesttest"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/wire"
	"github.com/mnemogate/mnemogate/store/storetest"
)

// A mailServer is smtp-server. It returns the mails as postal-mime parses them.
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
	Text, HTML string
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

// linkToken returns the token in the link of the mail.
func (m receivedMail) linkToken(t *testing.T) string {
	t.Helper()
	_, after, found := strings.Cut(m.Text, "\nhttps://app.example.com/recover#")
	token, _, _ := strings.Cut(after, "\n")
	if !found || token == "" {
		t.Fatalf("no link in a line of its own:\n%s", m.Text)
	}
	if !strings.Contains(m.HTML, `href="https://app.example.com/recover#`+token+`"`) {
		t.Errorf("the HTML has another link:\n%s", m.HTML)
	}
	return token
}

func (m *mailServer) mails(t *testing.T) []receivedMail {
	t.Helper()
	var all []receivedMail
	getJSON(t, fmt.Sprintf("http://127.0.0.1:%d/", m.HTTP), &all)
	return all
}

// during returns the mails that arrived while f ran.
func (m *mailServer) during(t *testing.T, f func()) []receivedMail {
	t.Helper()
	before := len(m.mails(t))
	f()
	return m.mails(t)[before:]
}

// oneMail returns the only mail that arrived while f ran.
func (m *mailServer) oneMail(t *testing.T, f func()) receivedMail {
	t.Helper()
	mails := m.during(t, f)
	if len(mails) != 1 {
		t.Fatalf("%d mails came, want 1", len(mails))
	}
	return mails[0]
}

// wait waits for a mail with the subject and returns it.
func (m *mailServer) wait(t *testing.T, subject string) receivedMail {
	t.Helper()
	var found receivedMail
	storetest.Eventually(t, 10*time.Second, fmt.Sprintf("mail %q", subject), func() bool {
		mails := m.mails(t)
		i := slices.IndexFunc(mails, func(mail receivedMail) bool { return mail.Subject == subject })
		if i >= 0 {
			found = mails[i]
		}
		return i >= 0
	})
	return found
}

func TestPeersMailRecovery(t *testing.T) {
	t.Parallel()
	const password = "mail pass:word"
	config, _ := guesttest.Certificate(t)
	der := get(x509.MarshalPKCS8PrivateKey(config.Certificates[0].PrivateKey))(t)
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: config.Certificates[0].Certificate[0]})
	var m mailServer
	m.peer = startPeer(t, "smtp.mjs", fields{
		"cert":     string(certificate),
		"key":      string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})),
		"username": "mailer",
		"password": password,
	}, &m)
	roots := t.TempDir() + "/roots.pem"
	must(t, os.WriteFile(roots, certificate, 0o600))

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
		"wrongname":     company("localhost", m.SMTP, secret, "starttls"), // the certificate is for the address
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
			mailTo("alice@example.com").wantState(record.None).wantField("verification", "MAIL").wantField("user_email", "alice@example.com").wantField("session_token", nil)
		})
		checkReceived(t, mail, "alice@example.com", "Recover your acme account")
		link := mail.linkToken(t)
		a := checkLink(link).wantState(record.RecoveryPassword)
		checkLink(link).want(wire.ErrTokenInvalid)
		secrets = append(secrets, a.token())
		s.post("auth/setpassword", a.token(), fields{"new_password": "a much better secret"}).wantState(record.None)
		checkLink(link).want(wire.ErrTokenInvalid)
		s.wantProfile(credentials("a much better secret"), "alice")
		credentials(testPassword).want(wire.ErrCredentialsInvalid)

		notice := m.wait(t, "Change to your acme password")
		checkReceived(t, notice, "alice@example.com", notice.Subject)
		if notice.MessageID == mail.MessageID {
			t.Errorf("both mails have the Message-ID %s", mail.MessageID)
		}
		if strings.Contains(notice.Text, "http") || strings.Contains(notice.Text, "secret") {
			t.Errorf("the notice holds more than a notice:\n%s", notice.Text)
		}
	})
	s.run("implicit TLS", func(t *testing.T) {
		mail := m.oneMail(t, func() { in("implicit", "alice@example.com").wantState(record.None) })
		checkReceived(t, mail, "alice@example.com", "Recover your implicit account")
		checkLink(mail.linkToken(t)).want(wire.ErrTokenInvalid) // a token of another company
	})
	s.run("a recipient that is refused", func(t *testing.T) {
		mails := m.during(t, func() { wantUnavailable(t, func() answer { return mailTo("reject@example.com") }) })
		if len(mails) != 0 {
			t.Errorf("mails came: %v", mails)
		}
	})
	s.run("a mail that is refused once it was read", func(t *testing.T) {
		mail := m.oneMail(t, func() { wantUnavailable(t, func() answer { return mailTo("late@example.com") }) })
		checkLink(mail.linkToken(t)).want(wire.ErrTokenInvalid)
	})
	s.run("doctor sends a test", func(t *testing.T) {
		test := func(company, to string) outcome {
			return s.cli("", "doctor", "--send-test", "mail:"+to, "--company", company)
		}
		mail := m.oneMail(t, func() {
			test("acme", "ops@example.com").want(0, "ok  acme: mail  a test to ops@example.com was accepted: ", " accepted it: ")
		})
		checkReceived(t, mail, "ops@example.com", "Test mail of acme")
		test("acme", "reject@example.com").want(1, "SMTP RCPT TO command failed: 550", "No such user", "→ it refused the recipient")
		test("acme", "late@example.com").want(1, "failed: 451", "Not now", "→ it says that it can't now")
		test("wrongpassword", "ops@example.com").want(1, "it answered 535", "Who are you?", "→ check the username and password")
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
		mail := m.oneMail(t, func() { mailTo("bob@example.com").wantState(record.None) })
		token := checkLink(mail.linkToken(t)).wantState(record.RecoveryPassword).token()
		m.frozen(func() {
			watch := storetest.StartWatch()
			s.post("auth/setpassword", token, fields{"new_password": "a much better secret"}).wantState(record.None)
			if took := watch.Took(); took > 3*time.Second {
				t.Errorf("the notice held up setpassword for %v", took)
			}
			wantUnavailable(t, func() answer { return mailTo("late@example.com") })
			s.tells(`"type":"notice.password_changed"`)
		})
	})
	s.run("a server that is down", func(t *testing.T) {
		m.kill()
		wantUnavailable(t, func() answer { return mailTo("alice@example.com") })
	})
	s.stop(syscall.SIGTERM) // now the log is complete
	s.wantNoneLogged(secrets...)
}

// checkReceived checks everything of a mail except its text.
func checkReceived(t *testing.T, m receivedMail, to, subject string) {
	t.Helper()
	if m.Method != "ESMTPSA" { // RFC 3848: with TLS and authentication
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
	if !strings.Contains(m.HTML, "acme</h1>") && !strings.Contains(m.HTML, "implicit</h1>") {
		t.Errorf("HTML is %q", m.HTML)
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
