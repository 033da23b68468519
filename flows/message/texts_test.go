package message

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

var textTime = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// textMessages returns one message for each built-in text, with the longest possible
// values.
func textMessages() []Message {
	company := strings.Repeat("W", 64)
	expires := textTime.Add(10 * time.Minute)
	return []Message{
		{Type: OTPLogin, Company: company, To: "+37060000034", Code: "1234567890", Expires: expires},
		{Type: OTPRecovery, Company: company, To: "+37060000034", Code: "1234567890", Expires: expires},
		{Type: NoticePasswordChanged, Company: company, To: "+37060000034"},
		{Type: NoticePasswordChanged, Company: company, To: "a@example.com"},
		{Type: NoticeIdentityBound, Company: company, To: "+37060000034"},
		{Type: NoticeIdentityBound, Company: company, To: "a@example.com"},
		{Type: RecoveryLink, Company: company, To: "a@example.com", Link: "https://a.example/#mgl_x", Expires: expires},
		{Type: WelcomeLink, Company: company, To: "a@example.com", Link: "https://a.example/#mgw_x", Expires: expires},
	}
}

func TestBuiltinTextsFitAndSayWhatTheyMust(t *testing.T) {
	for locale := range DefaultTexts().directories[0].locales {
		for _, m := range textMessages() {
			t.Run(locale+" "+m.Type+" "+m.To, func(t *testing.T) {
				if err := DefaultTexts().Render(&m, textTime, locale); err != nil {
					t.Fatal(err)
				}
				mail := strings.Contains(m.To, "@")
				if mail == (m.Subject == "") {
					t.Errorf("subject is %q", m.Subject)
				}
				if n := parts(m.Text); !mail && n != 1 {
					t.Errorf("it takes %d SMS: %s", n, m.Text)
				}
				if m.Code != "" && strings.Fields(m.Text)[0] != m.Code {
					t.Errorf("the code does not stand on its own: %s", m.Text)
				}
				if !strings.Contains(m.Text, m.Company) || !strings.Contains(m.Text, m.Link) {
					t.Errorf("no company or no link: %s", m.Text)
				}
				secret := m.Code != "" || m.Link != ""
				if valid := strings.Contains(m.Text, "10 ") || strings.Contains(m.Text, "2026-01-02 03:14 UTC"); secret && !valid {
					t.Errorf("it does not say how long it is valid: %s", m.Text)
				}
			})
		}
	}
}

// In every language there is a text for every message.
func TestEveryTextIsBuiltIn(t *testing.T) {
	builtin := DefaultTexts().directories[0]
	if got := slices.Sorted(maps.Keys(builtin.locales)); !slices.Equal(got, []string{"de", "en", "es", "fr", "lt"}) {
		t.Errorf("the languages are %v", got)
	}
	for locale, texts := range builtin.locales {
		for _, name := range textNames {
			if texts[name] == nil && !IsNotice(name) {
				t.Errorf("%s has no %s", locale, name)
			}
		}
	}
}

// A company's text for all languages goes before a built-in one of the reader's.
func TestOwnTextsGoFirst(t *testing.T) {
	own, err := LoadTexts(writeTexts(t, map[string]string{"otp.login.sms.txt": "own {{.Code}}"}))
	if err != nil {
		t.Fatal(err)
	}
	for kind, want := range map[string]string{OTPLogin: "own 424242", OTPRecovery: "424242 ist Ihr Wiederherstellungscode für Acme. Er gilt 5 Min. Geben Sie ihn nicht weiter."} {
		m := Message{Type: kind, To: "+1", Code: "424242", Company: "acme", Name: "Acme", Expires: textTime.Add(5 * time.Minute)}
		if err := own.Render(&m, textTime, "", "de-AT"); err != nil || m.Text != want {
			t.Errorf("got %q, %v", m.Text, err)
		}
	}
}

func TestMinutesAreRoundedUp(t *testing.T) {
	for left, want := range map[time.Duration]int{5 * time.Minute: 5, 4*time.Minute + 1: 5, time.Second: 1, -time.Hour: 1} {
		if got := minutesUntil(textTime.Add(left), textTime); got != want {
			t.Errorf("%v: got %d, want %d", left, got, want)
		}
	}
	if got := minutesUntil(time.Time{}, textTime); got != 0 {
		t.Errorf("no expiry: got %d, want 0", got)
	}
}

func TestRenderRefusesAMessageWithoutText(t *testing.T) {
	m := Message{Type: OTPLogin, To: "a@example.com"}
	if err := DefaultTexts().Render(&m, textTime); err == nil {
		t.Error("a mail with a login code was worded")
	}
}

func TestLoadTextsReplacesByName(t *testing.T) {
	dir := writeTexts(t, map[string]string{
		"otp.login.sms.txt":      "\ufeff{{.Code}} yra jūsų kodas\r\n",
		"recovery.link.mail.txt": "Subject: Labas, {{.Company}}\r\n\r\n{{.Link}}\r\n",
		"README.md":              "not a text",
	})
	texts, err := LoadTexts(dir)
	if err != nil {
		t.Fatal(err)
	}
	sms := Message{Type: OTPLogin, To: "+1", Code: "424242"}
	mail := Message{Type: RecoveryLink, To: "a@b", Company: "acme", Link: "https://x/#y"}
	other := Message{Type: OTPRecovery, To: "+1", Code: "424242"}
	for _, m := range []*Message{&sms, &mail, &other} {
		if err := texts.Render(m, textTime); err != nil {
			t.Fatal(err)
		}
	}
	if sms.Text != "424242 yra jūsų kodas" || sms.Subject != "" {
		t.Errorf("sms: %q %q", sms.Subject, sms.Text)
	}
	if mail.Subject != "Labas, acme" || mail.Text != "https://x/#y" {
		t.Errorf("mail: %q %q", mail.Subject, mail.Text)
	}
	if !strings.HasPrefix(other.Text, "424242 is your") {
		t.Errorf("the text that was not replaced: %q", other.Text)
	}
}

func TestLoadTextsNamesTheFileAndWhatToDo(t *testing.T) {
	const otp, link = "otp.login.sms.txt", "recovery.link.mail.txt"
	for _, c := range []struct{ name, file, text, want string }{
		{"unknown name", "otp.signin.sms.txt", "x", otp},
		{"a mail that is none", "otp.login.mail.txt", "x", otp},
		{"no template", otp, "{{.Code", "no template"},
		{"unknown field", otp, "{{.Code}} {{.Phone}}", "use only"},
		{"no code", otp, "hello", "{{.Code}}"},
		{"no link", link, "Subject: x\n\nhello", "{{.Link}}"},
		{"empty", "notice.password_changed.sms.txt", " \n", "empty"},
		{"no subject", link, "{{.Link}}", "Subject"},
		{"empty subject", link, "Subject:\n\n{{.Link}}", "Subject"},
		{"no empty line", link, "Subject: x\n{{.Link}}", "Subject"},
		{"line break from an expression", link, "Subject: x{{print \"\\nBcc: e@x\"}}\n\n{{.Link}}", "Subject"},
		{"carriage return", link, "Subject: x{{print \"\\rBcc: e@x\"}}\n\n{{.Link}}", "Subject"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := LoadTexts(writeTexts(t, map[string]string{c.file: c.text}))
			if err == nil || !strings.Contains(err.Error(), c.file) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want one with %s and %q", err, c.file, c.want)
			}
		})
	}
	if _, err := LoadTexts(filepath.Join(t.TempDir(), "absent")); err == nil {
		t.Error("a directory that does not exist was read")
	}
}

func writeTexts(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}
