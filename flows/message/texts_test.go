package message

import (
	"html/template"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/store/storetest"
)

var must = storetest.Must

var textTime = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// textMessages returns messages for each built-in text, with the longest possible values.
// In a notice with a contact, the company's name leaves room for it.
func textMessages() []Message {
	company := strings.Repeat("W", 64)
	expires := textTime.Add(10 * time.Minute)
	messages := []Message{
		{Type: OTPLogin, Company: company, To: "+37060000034", Code: "1234567890", Expires: expires},
		{Type: OTPRecovery, Company: company, To: "+37060000034", Code: "1234567890", Expires: expires},
		{Type: OTPStepUp, Company: company, To: "+37060000034", Code: "1234567890", Expires: expires},
		{Type: ContactCode, Company: company, To: "+37060000034", Code: "1234567890", Expires: expires},
		{Type: ContactCode, Company: company, To: "a@example.com", Code: "12345678", Expires: expires},
		{Type: RecoveryLink, Company: company, To: "a@example.com", Link: "https://a.example/#mgl_x", Expires: expires},
		{Type: WelcomeLink, Company: company, To: "a@example.com", Link: "https://a.example/#mgw_x", Expires: expires},
		{Type: WelcomeLink, Company: company, To: "a@example.com", Link: "https://a.example/#mgw_x", Expires: expires, Support: "support@company.example"},
	}
	for _, kind := range Notices {
		from := Notice{Type: kind, Address: "2001:db8:1111:2222:3333:4444:5555:6666", UserAgent: "SamsungBrowser/1 Android"}
		for _, to := range []string{"+37060000034", "a@example.com"} {
			messages = append(messages,
				Message{Type: kind, Company: company, To: to, Time: textTime, Notice: from},
				Message{Type: kind, Company: company[:32], To: to, Time: textTime, Notice: from, Support: "support@company.example"})
		}
	}
	return messages
}

func TestBuiltinTextsFitAndSayWhatTheyMust(t *testing.T) {
	for locale := range DefaultTexts().directories[0].locales {
		for _, m := range textMessages() {
			t.Run(locale+" "+m.Type+" "+m.To, func(t *testing.T) {
				must(t, DefaultTexts().Render(&m, textTime, locale))
				mail := strings.Contains(m.To, "@")
				if mail == (m.Subject == "") {
					t.Errorf("subject is %q", m.Subject)
				}
				most := 1
				if IsNotice(m.Type) {
					most = 2
				}
				if n := parts(m.Text); !mail && n > most {
					t.Errorf("it takes %d SMS: %s", n, m.Text)
				}
				if m.Code != "" && strings.Fields(m.Text)[0] != m.Code && !slices.Contains(strings.Split(m.Text, "\n"), m.Code) {
					t.Errorf("the code does not stand on its own: %s", m.Text)
				}
				if mail {
					checkHTML(t, locale, m)
				} else if m.HTML != "" {
					t.Errorf("an SMS has HTML: %s", m.HTML)
				}
				if !strings.Contains(m.Text, m.Company) || !strings.Contains(m.Text, m.Link) {
					t.Errorf("no company or no link: %s", m.Text)
				}
				if !strings.Contains(m.Text, m.Support) {
					t.Errorf("it does not say who helps: %s", m.Text)
				}
				if regexp.MustCompile(` [?!;:»]|« `).MatchString(m.Subject+m.Text) && mail && locale == "fr" {
					t.Errorf("the text needs a no-break space: %s", m.Text)
				}
				if details := "2026-01-02 03:04 UTC, Samsung Internet (Android), 2001:db8:1111:2222:3333:4444:5555:6666"; IsNotice(m.Type) && !strings.Contains(m.Text, details) {
					t.Errorf("it does not say when and from where: %s", m.Text)
				}
				secret := m.Code != "" || m.Link != ""
				if valid := strings.Contains(m.Text, "10 ") || strings.Contains(m.Text, "2026-01-02 03:14 UTC"); secret && !valid {
					t.Errorf("it does not say how long it is valid: %s", m.Text)
				}
			})
		}
	}
}

// A user who sets the first password has changed none, and an operator may have removed it.
func TestANoticeOfAPasswordIsTrueOfTheFirstOneAndOfNone(t *testing.T) {
	for locale, words := range map[string]string{"en": "set, changed or removed", "de": "festgelegt, geändert oder entfernt", "fr": "défini, modifié ou supprimé", "es": "establecido, cambiado o eliminado", "lt": "sukurtas, pakeistas arba pašalintas"} {
		m := Message{Type: NoticePasswordChanged, Company: "Acme", To: "a@example.com", Time: textTime}
		must(t, DefaultTexts().Render(&m, textTime, locale))
		if !strings.Contains(m.Text, words) {
			t.Errorf("%s: %q", locale, m.Text)
		}
		m = Message{Type: NoticePasswordChanged, Company: "Acme", To: "+1", Time: textTime, Notice: Notice{Address: "192.0.2.100", UserAgent: "Firefox/1 Windows"}}
		must(t, DefaultTexts().Render(&m, textTime, locale))
		if parts(m.Text) != 1 {
			t.Errorf("%s: it takes two SMS: %s", locale, m.Text)
		}
	}
}

// A phone shows the first 45 letters of a subject or less. They say what happened.
func TestSubjectsBeginWithWhatHappened(t *testing.T) {
	for kind, words := range map[string]map[string]string{
		NoticeSecondFactorOff: {"en": "turned off", "de": "Ausgeschaltet", "fr": "désactivée", "es": "desactivado", "lt": "Išjungtas"},
		NoticeIdentityBound:   {"en": "linked", "de": "Verknüpft", "fr": "associé", "es": "vinculado", "lt": "susieta"},
		NoticeIdentityRemoved: {"en": "unlinked", "de": "Getrennt", "fr": "dissocié", "es": "desvinculado", "lt": "atsieta"},
		NoticeBackupCodesMade: {"en": "backup codes", "de": "Backup-Codes", "fr": "codes de secours", "es": "códigos de respaldo", "lt": "nauji atsarg"},
		NoticeTokenIssued:     {"en": "API token", "de": "API-Token", "fr": "jeton d’API", "es": "token de API", "lt": "API žetonas"},
	} {
		for locale, word := range words {
			m := Message{Type: kind, Company: "Acme", To: "a@example.com", Time: textTime}
			must(t, DefaultTexts().Render(&m, textTime, locale))
			if shown := []rune(m.Subject); !strings.Contains(string(shown[:min(45, len(shown))]), word) {
				t.Errorf("%s: %q is late in %q", locale, word, m.Subject)
			}
		}
	}
}

// checkHTML checks that the HTML of a mail says the same as its text, loads nothing, and
// has a button with words of its own for the link.
func checkHTML(t *testing.T, locale string, m Message) {
	t.Helper()
	html := m.HTML
	for _, line := range strings.Split(m.Text, "\n") {
		if !strings.Contains(html, template.HTMLEscapeString(line)) {
			t.Errorf("the HTML lacks %q:\n%s", line, html)
		}
	}
	if !strings.Contains(html, `<html lang="`+locale+`">`) || !strings.Contains(html, "<h1") {
		t.Errorf("the HTML has no language or heading:\n%s", html)
	}
	buttons := regexp.MustCompile(`<a href="([^"]+)"[^>]*>([^<]+)</a>`).FindAllStringSubmatch(html, -1)
	switch {
	case m.Link == "" && len(buttons) != 0, m.Link != "" && len(buttons) != 2:
		t.Errorf("got the links %q", buttons)
	case m.Link != "" && (buttons[0][1] != m.Link || buttons[1][1] != m.Link || buttons[0][2] == m.Subject || buttons[1][2] != m.Link):
		t.Errorf("got the links %q, want %s", buttons, m.Link)
	}
	for _, tag := range regexp.MustCompile(`<[^>]*[^-]padding: [1-9][^>]*>`).FindAllString(html, -1) {
		// Outlook for Windows has padding only in cells, and mso-padding-alt is for its button.
		if !strings.HasPrefix(tag, "<td") && !strings.HasPrefix(tag, "<a href") || m.Link != "" && !strings.Contains(html, "mso-padding-alt: 12px 24px") {
			t.Errorf("Outlook shows no padding of %s", tag)
		}
	}
	if loads := regexp.MustCompile(`<(img|script|link|iframe)|url\(|@import|src=`).FindString(html); loads != "" {
		t.Errorf("the HTML has %s:\n%s", loads, html)
	}
}

// What templates insert into HTML is text, and only addresses are links.
func TestHTMLIsEscaped(t *testing.T) {
	const company = `A & B <script src="//x">`
	for support, href := range map[string]string{
		"https://acme.example/help?a=1&b=2": `<a href="https://acme.example/help?a=1&amp;b=2"`,
		"help@acme.example":                 "", // programs make it a link
		"+370 600 12345":                    "",
		"call https://acme.example":         "",
	} {
		m := Message{Type: NoticeEmailChanged, Company: "acme", Name: company, To: "a@example.com", Time: textTime, Support: support}
		must(t, DefaultTexts().Render(&m, textTime))
		if strings.Contains(m.HTML, "<script") || !strings.Contains(m.HTML, "A &amp; B &lt;script") || !strings.Contains(m.Subject, company) {
			t.Errorf("got the subject %q and\n%s", m.Subject, m.HTML)
		}
		if href == "" && strings.Contains(m.HTML, "<a ") || !strings.Contains(m.HTML, href) {
			t.Errorf("%s: want %q in\n%s", support, href, m.HTML)
		}
	}
	m := Message{Type: WelcomeLink, Company: "acme", To: "a@example.com", Link: "https://acme.example/help#mgw_x", Support: "https://acme.example/help"}
	must(t, DefaultTexts().Render(&m, textTime))
	for _, want := range []string{m.Link, m.Support} {
		if !strings.Contains(m.HTML, `<a href="`+want+`" style="color: inherit">`+want+`</a>`) {
			t.Errorf("want a link to %s in\n%s", want, m.HTML)
		}
	}
	m = Message{Type: RecoveryLink, Company: "acme", Color: "#FFEE00", To: "a@example.com", Link: "app://recover?a=1&t=x#y"}
	must(t, DefaultTexts().Render(&m, textTime))
	for _, want := range []string{`href="app://recover?a=1&amp;t=x#y"`, "background-color: #FFEE00", "color: #000000"} {
		if !strings.Contains(m.HTML, want) {
			t.Errorf("want %s in\n%s", want, m.HTML)
		}
	}
	must(t, DefaultTexts().RenderHTML(&Message{Text: "a\n\nb"}, "en")) // a test mail
}

// A longer address than that of the support leads elsewhere.
func TestOnlyTheWholeAddressIsALink(t *testing.T) {
	const address, link = "https://acme.example/help", `<a href="https://acme.example/help" style="color: inherit">https://acme.example/help</a>`
	for text, want := range map[string]string{
		address + ".": link + ".",
		"<" + address + ">\nHelp:" + address + " !": "&lt;" + link + "&gt;<br>\nHelp:" + link + " !",
		address + "/a&b " + address:                 address + "/a&amp;b " + link,
		address + ".html":                           address + ".html",
	} {
		if got := string(linked(text, "", address)); got != want {
			t.Errorf("%s: got %s, want %s", text, got, want)
		}
	}
}

func TestTextOnAColorCanBeRead(t *testing.T) {
	for color, want := range map[string]string{"#000000": "#ffffff", "#2f5fb3": "#ffffff", "#ffffff": "#000000", "#FFcc00": "#000000", "#d00000": "#ffffff"} {
		if got := onColor(color); got != want {
			t.Errorf("on %s: got %s, want %s", color, got, want)
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
			if texts[name] == nil && name != mailHTML { // one for all languages
				t.Errorf("%s has no %s", locale, name)
			}
		}
	}
}

// A company's text for all languages goes before a built-in one of the reader's.
func TestOwnTextsGoFirst(t *testing.T) {
	own, err := LoadTexts(writeTexts(t, map[string]string{"otp.login.sms.txt": "own {{.Code}}"}))
	must(t, err)
	for kind, want := range map[string]string{OTPLogin: "own 424242", OTPRecovery: "424242 ist Ihr Wiederherstellungscode für Acme. Er gilt 5 Min. Geben Sie ihn nicht weiter."} {
		m := Message{Type: kind, To: "+1", Code: "424242", Company: "acme", Name: "Acme", Expires: textTime.Add(5 * time.Minute)}
		if err := own.Render(&m, textTime, "", "de-AT"); err != nil || m.Text != want || (m.Language == "de") != (kind == OTPRecovery) {
			t.Errorf("got %q in %q, %v", m.Text, m.Language, err)
		}
	}
}

// A link can be valid for a day, which nobody counts in minutes.
func TestALongTimeIsNotInMinutes(t *testing.T) {
	for _, locale := range []string{"de", "en", "es", "fr", "lt"} {
		for valid, want := range map[time.Duration]string{2 * time.Hour: "120 ", 24 * time.Hour: " 2026-01-03 03:04 UTC"} {
			m := Message{Type: RecoveryLink, To: "a@example.com", Link: "https://a.example/#mgl_x", Expires: textTime.Add(valid)}
			must(t, DefaultTexts().Render(&m, textTime, locale))
			if !strings.Contains(m.Text, want) || strings.Contains(m.Text, "1440") {
				t.Errorf("%s: want %q in %s", locale, want, m.Text)
			}
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
		"mail.html":              "<h1>{{.Company}}</h1>{{range .Paragraphs}}<p>{{.HTML}}</p>{{end}}{{.Link}}{{.Button}}",
		"README.md":              "not a text",
	})
	texts, err := LoadTexts(dir)
	must(t, err)
	sms := Message{Type: OTPLogin, To: "+1", Code: "424242"}
	mail := Message{Type: RecoveryLink, To: "a@b", Company: "acme", Link: "https://x/#y"}
	other := Message{Type: OTPRecovery, To: "+1", Code: "424242"}
	for _, m := range []*Message{&sms, &mail, &other} {
		must(t, texts.Render(m, textTime))
	}
	if sms.Text != "424242 yra jūsų kodas" || sms.Subject != "" {
		t.Errorf("sms: %q %q", sms.Subject, sms.Text)
	}
	if mail.Subject != "Labas, acme" || mail.Text != "https://x/#y" {
		t.Errorf("mail: %q %q", mail.Subject, mail.Text)
	}
	if want := `<h1>acme</h1><p><a href="https://x/#y" style="color: inherit">https://x/#y</a></p>https://x/#yLabas, acme`; mail.HTML != want {
		t.Errorf("mail: %s, want %s", mail.HTML, want)
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
		{"no template", otp, "{{.Code", "it is not a valid template"},
		{"unknown field", otp, "{{.Code}} {{.Phone}}", "use only"},
		{"no code", otp, "hello", "{{.Code}}"},
		{"no link", link, "Subject: x\n\nhello", "{{.Link}}"},
		{"empty", "notice.password_changed.sms.txt", " \n", "empty"},
		{"no subject", link, "{{.Link}}", "Subject"},
		{"empty subject", link, "Subject:\n\n{{.Link}}", "Subject"},
		{"no empty line", link, "Subject: x\n{{.Link}}", "Subject"},
		{"line break from an expression", link, "Subject: x{{print \"\\nBcc: e@x\"}}\n\n{{.Link}}", "Subject"},
		{"carriage return", link, "Subject: x{{print \"\\rBcc: e@x\"}}\n\n{{.Link}}", "Subject"},
		{"another second line", link, "Subject: x\nCc: e@x\n\n{{.Link}}", "Button"},
		{"third line", link, "Subject: x\nButton: y\nCc: e@x\n\n{{.Link}}", "Button"},
		{"unknown HTML", "mails.html", "x", mailHTML},
		{"no template of HTML", mailHTML, "{{.Link", "it is not a valid template"},
		{"unknown field in HTML", mailHTML, "{{.Phone}}", "use only .Company, .Code"},
		{"HTML without text", mailHTML, "{{.Link}}", "{{range .Paragraphs}}"},
		{"HTML without link", mailHTML, "{{range .Paragraphs}}{{if not .IsLink}}{{.HTML}}{{end}}{{end}}", "{{.Link}}"},
		{"HTML that can't be escaped", mailHTML, "<a href='{{if .Link}}x\">{{end}}", mailHTML},
		{"unknown name in a language", "lt/otp.txt", "x", otp},
		{"Windows-1252", otp, "{{.Code}} f\xfcr Sie", "save it as UTF-8"},
		{"UTF-16", otp, "{\x00{\x00.\x00C\x00", "save it as UTF-8"},
		{"HTML in Windows-1252", mailHTML, "\xfc", "save it as UTF-8"},
		{"a code in a link", link, "Subject: x\n\n{{.Link}} {{.Code}}", "use only .Company, .Support, .Link, .Minutes, .Until: "},
		{"details of a code", otp, "{{.Code}} {{.Details}}", "use only .Company, .Support, .Code, .Minutes, .Until: "},
		{"a link in a notice", "notice.email_changed.sms.txt", "x {{.Link}}", "use only .Company, .Support, .Time, .Device, .Address, .Details: "},
		{"no support", otp, "x{{with .Support}}{{$.Code}}{{end}}", "if .Support, and in a notice .Device and .Address, are empty: it does not show the code"},
		{"an unknown field after hours", link, "Subject: x\n\n{{.Link}}{{if gt .Minutes 120}}{{.Untill}}{{end}}", "with .Minutes above 120"},
		{"no address", "notice.email_changed.sms.txt", "{{slice .Address 0 4}}", "are empty: "},
		{"no device", "notice.email_changed.mail.txt", "Subject: {{.Device}}\n\nx", "are empty: begin it"},
		{"HTML of a code without device", mailHTML, "{{range .Paragraphs}}{{.HTML}}{{end}}{{.Link}}{{slice .Device 0 4}}", "use only"},
		{"no code in a language", "lt/" + otp, "x", "{{.Code}}"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := LoadTexts(writeTexts(t, map[string]string{c.file: c.text}))
			if err == nil || !strings.Contains(err.Error(), c.file) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want one with %s and %q", err, c.file, c.want)
			}
		})
	}
	for want, files := range map[string]map[string]string{
		"lt_LT: the directory's name is not a language tag": {"lt_LT/" + otp: "{{.Code}}"},
		"another directory has the same language":           {"pt-BR/" + otp: "{{.Code}}", "pt-br/" + otp: "{{.Code}}"},
	} {
		if _, err := LoadTexts(writeTexts(t, files)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	if _, err := LoadTexts(filepath.Join(t.TempDir(), "absent")); err == nil {
		t.Error("a directory that does not exist was read")
	}
}

func writeTexts(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		must(t, os.MkdirAll(filepath.Dir(path), 0o700))
		must(t, os.WriteFile(path, []byte(text), 0o600))
	}
	return dir
}

func TestDevicesAreNamedAsUsersKnowThem(t *testing.T) {
	for userAgent, want := range map[string]string{
		"Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/120.0.0.0 Safari/537.36 Edg/120.0.0.0":        "Edge (Windows)",
		"Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/17.1 Safari/605.1.15":                "Safari (Mac)",
		"Mozilla/5.0 (iPhone; CPU iPhone OS 17_1 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) CriOS/119.0 Mobile/15E148 Safari/604": "Chrome (iPhone)",
		"Mozilla/5.0 (Linux; Android 13; SM-S901B) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/112.0.0.0 Mobile Safari/537.36":               "Chrome (Android)",
		"Mozilla/5.0 (X11; Linux x86_64; rv:120.0) Gecko/20100101 Firefox/120.0":                                                               "Firefox (Linux)",
		"Dalvik/2.1.0 (Linux; U; Android 13; Pixel 6)":                                                                                         "Android",
		"curl/8.5.0": "",
		"call +37060000000 to keep your account Firefox/1": "Firefox",
		"": "",
	} {
		if got := Device(userAgent); got != want {
			t.Errorf("%s: got %q, want %q", userAgent, got, want)
		}
	}
}
