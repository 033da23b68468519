package page

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func TestColorsOfCSS(t *testing.T) {
	for _, s := range []string{
		"#369", "#336699", "#ABCDEF", "RebeccaPurple", " teal ", "rgb(51, 102, 153)", "rgb(51 102 153)", "hsl(210, 50%, 40%)", "hsl(210deg 50% 40%)",
		"oklch(50% .1 250)", "lab(40 -10.5 20)",
	} {
		if sheet := string(mustNew(t, Options{Color: s, ColorDark: s}).files["page.css"].plain); strings.Count(sheet, "\n:root {\n\t--color: "+strings.TrimSpace(s)+";\n}\n") != 2 {
			t.Errorf("%s: the sheet ends with %q", s, sheet[len(sheet)-40:])
		}
	}
	for _, s := range []string{
		"#12", "#1234", "336699", "red;}body{display:none", "red}", "red/**/", "rgb(1,2)", "rgb(1.2.3, 1, 1)", "rgb(1, 2, 3", "rgb(1 2 3 / 50%)",
		"rgb(calc(1), 1, 1)", "url(//x)", "var(--x)", "rgb(1, 2, 3);", "red blue",
	} {
		if _, err := New(Options{Color: s}); err == nil || !strings.HasPrefix(err.Error(), "color: ") {
			t.Errorf("%s: got %v", s, err)
		}
	}
}

// writer returns a function that writes a file below dir and returns its path.
func writer(t *testing.T, dir string) func(name, content string) string {
	return func(name, content string) string {
		file := filepath.Join(dir, name)
		must(t, os.MkdirAll(filepath.Dir(file), 0o700))
		must(t, os.WriteFile(file, []byte(content), 0o600))
		return file
	}
}

func TestWhatNoPageCanBeMadeOf(t *testing.T) {
	dir := t.TempDir()
	write := writer(t, dir)
	texts := func(name, content string) Options {
		return Options{Texts: filepath.Dir(write(t.Name()+name+"/"+name, content))}
	}
	for _, c := range []struct {
		options Options
		want    string
	}{
		{Options{Logo: filepath.Join(dir, "none.svg")}, "logo: "},
		{Options{Logo: write("page.svg", "<html><script>alert(1)</script></html>")}, "logo: "},
		{Options{Logo: write("page.png", "<svg></svg>")}, "logo: "},
		{Options{Logo: write("big.svg", "<svg>"+strings.Repeat(" ", 512<<10))}, "has more than 512 kB"},
		{Options{Texts: t.TempDir()}, "there is no <language>.json"},
		{texts("klingon.json", "{}"), "is not a language tag"},
		{texts("PT-br.json", "{}"), "is not a language tag"},
		{texts("pt.json", "[]"), "an object of texts"},
		{texts("pt-BR.json", `{"login.headline": "Entrar"}`), `there is no text "login.headline"`},
		{texts("pt-PT.json", `{"code.sent": "Enviámos um código para {email}."}`), "there is no value for the placeholder {email}"},
	} {
		if _, err := New(c.options); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: got %v, want %s", c.options, err, c.want)
		}
	}
}

func TestOperatorsTexts(t *testing.T) {
	dir := t.TempDir()
	for name, content := range map[string]string{
		"ar.json":   `{"language": "العربية", "login.heading": "تسجيل الدخول"}`,
		"de.json":   `{"login.heading": "Hereinspaziert"}`,
		"nl.json":   `{"login.heading": "Inloggen"}`,
		"NOTES.txt": "not a language",
	} {
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
	}
	p := mustNew(t, Options{Texts: dir})
	for _, c := range []struct{ tag, key, want string }{
		{"de", "login.heading", "Hereinspaziert"}, // replaced
		{"de", "login.submit", "Weiter"},          // as it is built in
		{"ar", "login.heading", "تسجيل الدخول"},   // added
		{"ar", "login.submit", "Continue"},        // not told
		{"nl", "language", "nl"},                  // not told
	} {
		if got := p.texts[c.tag][c.key]; got != c.want {
			t.Errorf("%s: %s is %q, want %q", c.tag, c.key, got, c.want)
		}
	}
	// The page marks texts that a language lacks.
	for tag, want := range map[string]bool{"ar": true, "de": false} {
		var texts map[string]string
		must(t, json.Unmarshal(p.files["texts/"+tag+".json"].plain, &texts))
		foreign := strings.Fields(texts["foreign"])
		if slices.Contains(foreign, "login.submit") != want || slices.Contains(foreign, "login.heading") {
			t.Errorf("%s: in English are %q", tag, foreign)
		}
	}
	if mustNew(t, Options{}).version == p.version {
		t.Error("other texts have the version of the built-in ones: browsers would keep those")
	}
}

// What docs/login-page.md shows of texts can be used as it is.
func TestTextsOfThePageForOperators(t *testing.T) {
	manual, err := os.ReadFile("../../docs/login-page.md")
	must(t, err)
	_, shown, _ := strings.Cut(string(manual), "```json\n")
	shown, _, _ = strings.Cut(shown, "```")
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "lv.json"), []byte(shown), 0o600))
	if got := mustNew(t, Options{Texts: dir}).texts["lv"]["login.heading"]; got != "Pieslēgties" {
		t.Errorf("got %q", got)
	}
}

// Style sheets of operators can rely on what docs/login-page.md lists.
func TestStylesCanRelyOnWhatThePageLists(t *testing.T) {
	manual, err := os.ReadFile("../../docs/login-page.md")
	must(t, err)
	_, listed, _ := strings.Cut(string(manual), "You can rely on these properties")
	listed, _, _ = strings.Cut(listed, "### Two examples")
	var code strings.Builder
	for _, name := range []string{"page.css", "page.html", "screens.js", "security.js", "page.js", "ui.js"} {
		content, err := assets.ReadFile("assets/" + name)
		must(t, err)
		code.Write(content)
	}
	names := regexp.MustCompile("`(--|\\.|#)([a-z-]+)`").FindAllStringSubmatch(listed, -1)
	if len(names) < 33 {
		t.Errorf("the page lists only %q", names)
	}
	for _, name := range names {
		uses := map[string]string{"--": `\s--%s(: | \{)`, ".": `class(: |=)['"]([a-z-]+ )*%s\b|'%s'`, "#": `id="%s"`}[name[1]]
		if !regexp.MustCompile(strings.ReplaceAll(uses, "%s", name[2])).MatchString(code.String()) {
			t.Errorf("there is no %s%s", name[1], name[2])
		}
	}
}

func TestOnlyACaptchasPageNamesItsProvider(t *testing.T) {
	for _, c := range []struct{ captcha, script, frame string }{
		{"", "script-src 'self'", ""},
		{"off", "script-src 'self'", ""},
		{"pow", "script-src 'self'", ""},
		{"turnstile", "script-src 'self' https://challenges.cloudflare.com", "frame-src https://challenges.cloudflare.com"},
		{"hcaptcha", "script-src 'self' https://hcaptcha.com https://*.hcaptcha.com", "frame-src https://hcaptcha.com https://*.hcaptcha.com"},
		{"recaptcha", "script-src 'self' https://www.google.com/recaptcha/ https://www.gstatic.com/recaptcha/", "frame-src https://www.google.com/recaptcha/ https://recaptcha.google.com/recaptcha/"},
	} {
		got := policy(c.captcha, false)
		has := func(directive string) bool { return slices.Contains(strings.Split(got, "; "), directive) }
		if !has(c.script) || c.frame != "" && !has(c.frame) || c.frame == "" && strings.Contains(got, "frame-src") {
			t.Errorf("%s: %s", c.captcha, got)
		}
		if strings.Contains(got, "unsafe") || !has("default-src 'none'") || !has("frame-ancestors 'none'") || !has("base-uri 'none'") {
			t.Errorf("%s: %s", c.captcha, got)
		}
	}
}
