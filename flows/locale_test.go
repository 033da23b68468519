package flows_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/text/language"

	"github.com/mnemogate/mnemogate/flows"
	"github.com/mnemogate/mnemogate/flows/message"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/session"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// textsIn writes a directory of texts.
func textsIn(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		must(t, os.MkdirAll(filepath.Dir(path), 0o700))
		must(t, os.WriteFile(path, []byte(text), 0o600))
	}
	return dir
}

// Each text is looked up by itself, in this order: the account's locale, its wider
// locales, the company's locale, the texts for all.
func TestAMessageIsInTheLanguageOfItsAccount(t *testing.T) {
	const mail = "recovery.link.mail.txt"
	dir := textsIn(t, map[string]string{
		"otp.login.sms.txt":       "all {{.Code}}",
		"lt/otp.login.sms.txt":    "lt {{.Code}}",
		"lt-LT/" + mail:           "Subject: lt-LT\n\n{{.Link}}",
		"lt/" + mail:              "Subject: lt\n\n{{.Link}}",
		"de-at/otp.login.sms.txt": "de-AT {{.Code}}", // case does not matter
		"..data/x.txt":            "Kubernetes",
		"archive/notes.md":        "no text",
	})
	must(t, os.Symlink(filepath.Join(dir, "lt"), filepath.Join(dir, "fr")))
	texts, err := message.LoadTexts(dir)
	must(t, err)
	for _, c := range []struct{ account, company, sms, mail, told string }{
		{"", "", "all", "Recover", ""},
		{"", "lt", "lt", "lt", "lt"},
		{"lt-LT", "", "lt", "lt-LT", "lt-LT"},
		{"lt", "de-AT", "lt", "lt", "lt"},
		{"de-AT", "lt", "de-AT", "lt", "de-AT"},
		{"de", "lt-LT", "lt", "lt-LT", "de"}, // de does not match de-AT
		{"pl", "", "all", "Recover", "pl"},
		{"fr-CA", "", "lt", "lt", "fr-CA"},
	} {
		b := newHarness(t)
		b.company.Texts, b.company.Locale = texts, c.company
		b.update(true, func(a *record.Account) { a.PasswordHash, a.Locale = "", c.account })
		b.must("auth/login", "", object{"login_id": email})
		b.must("auth/recovery/recover", "", object{"login_id": email, "captcha_response": "x", "method": "MAIL"})
		sms, mail := b.sms.last(t), b.mail.last(t)
		if !strings.HasPrefix(sms.Text, c.sms+" ") && c.sms != "all" || sms.Locale != c.told {
			t.Errorf("%+v: got the SMS %q with the locale %q", c, sms.Text, sms.Locale)
		}
		if c.mail != "Recover" && mail.Subject != c.mail || mail.Subject == "" || mail.Locale != c.told {
			t.Errorf("%+v: got the mail %q with the locale %q", c, mail.Subject, mail.Locale)
		}
	}
}

// A disclaimer is in the account's language if the request names no language that
// the disclaimer has. A hardened company must not reveal the account's language
// before the secret.
func TestADisclaimerIsInTheLanguageOfItsAccount(t *testing.T) {
	b := newHarness(t)
	b.company.Disclaimers = []wire.Disclaimer{{Code: "terms", Title: "Terms", Titles: inLanguages(map[string]string{"lt": "Sąlygos", "de": "Bedingungen"})}}
	b.update(true, func(a *record.Account) { a.Locale = "lt-LT" })
	login := func(accept ...language.Tag) string {
		reply, err := b.ask(flows.Request{Client: session.Client{Languages: func() []language.Tag { return accept }}}, "auth/login", "", object{"login_id": email})
		must(t, err)
		return reply.DisclaimersRequired[0].Title
	}
	for _, c := range []struct{ got, want string }{
		{login(), "Sąlygos"}, {login(language.French), "Sąlygos"}, {login(language.German), "Bedingungen"},
	} {
		if c.got != c.want {
			t.Errorf("got %q, want %q", c.got, c.want)
		}
	}
	b.company.Hardened = true
	if got := login(); got != "Terms" {
		t.Errorf("hardened: got %q", got)
	}
	_, err := b.serve("auth/checkcredentials", "", object{"login_id": email, "password": password})
	wantError(t, err, wire.ErrDisclaimerInvalid)
	if got := refusal(err).Disclaimers[0].Title; got != "Sąlygos" {
		t.Errorf("hardened, behind the secret: got %q", got)
	}
}
