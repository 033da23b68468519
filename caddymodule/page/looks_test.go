package page

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// WCAG 2.2, 1.4.3: 4.5 to 1, whatever color an operator takes.
func TestTextIsReadableWithEachColor(t *testing.T) {
	colors := map[string]rgb{"built in": builtInColor}
	for name := range colorNames {
		colors[name] = mustParse(t, name)
	}
	for name, c := range colors {
		on := white
		if contrast(c, black) > contrast(c, white) {
			on = black
		}
		for what, got := range map[string]float64{
			"text on it":       contrast(on, c),
			"a link":           contrast(towards(c, black, lightPaper), lightPaper),
			"a link, at night": contrast(towards(c, white, darkPaper), darkPaper),
		} {
			if got < 4.5 {
				t.Errorf("%s: %s has a contrast of %.2f", name, what, got)
			}
		}
	}
}

// The paper of page.css is what links are made readable on.
func TestThePaperIsThatOfTheSheet(t *testing.T) {
	sheet, err := assets.ReadFile("assets/page.css")
	if err != nil {
		t.Fatal(err)
	}
	for _, paper := range []rgb{lightPaper, darkPaper} {
		short := strings.Replace(paper.String(), "#ffffff", "#fff", 1)
		if !strings.Contains(string(sheet), "--paper: "+short+";") {
			t.Errorf("page.css has no --paper %s", short)
		}
	}
}

func mustParse(t *testing.T, s string) rgb {
	t.Helper()
	c, err := parseColor(s)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestColorsOfCSS(t *testing.T) {
	for s, want := range map[string]string{
		"#369": "#336699", "#336699": "#336699", "#ABCDEF": "#abcdef", "RebeccaPurple": "#663399", " teal ": "#008080",
		"rgb(51, 102, 153)": "#336699", "rgb(51 102 153)": "#336699", "hsl(210, 50%, 40%)": "#336699", "hsl(210deg 50% 40%)": "#336699",
		"hsl(360 100% 50%)": "#ff0000",
	} {
		if got := mustParse(t, s).String(); got != want {
			t.Errorf("%s: got %s, want %s", s, got, want)
		}
	}
	for _, s := range []string{
		"#12", "#1234", "336699", "none", "transparent", "red;}body{display:none", "rgb(256, 0, 0)", "rgb(1,2)", "rgb(1.2.3, 1, 1)", "hsl(1, 2, 3)",
		"hsl(361 1% 1%)", "rgb(50%, 1, 1)", "url(//x)", "var(--x)",
	} {
		if c, err := parseColor(s); err == nil {
			t.Errorf("%s is taken for %s", s, c)
		} else if !strings.HasPrefix(err.Error(), "color: ") {
			t.Errorf("%s: %v", s, err)
		}
	}
}

func TestWhatNoPageCanBeMadeOf(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string) string {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
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
		{Options{Logo: write("big.svg", "<svg>"+strings.Repeat(" ", maxLogo))}, "has more than 512 kB"},
		{Options{Color: "no color"}, "color: "},
		{Options{Texts: filepath.Join(dir, "none")}, "texts: "},
		{Options{Texts: t.TempDir()}, "there is no <language>.json"},
		{texts("klingon.json", "{}"), "no language tag"},
		{texts("PT-br.json", "{}"), "no language tag"},
		{texts("pt.json", "[]"), "an object of texts"},
		{texts("pt-BR.json", `{"login.headline": "Entrar"}`), `there is no text "login.headline"`},
		{texts("pt-PT.json", `{"code.sent": "Enviámos um código para {email}."}`), "nothing to put for {email}"},
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
		"NOTES.txt": "not a language",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	p := mustNew(t, Options{Texts: dir})
	for _, c := range []struct{ tag, key, want string }{
		{"de", "login.heading", "Hereinspaziert"}, // replaced
		{"de", "login.submit", "Weiter"},          // as it is built in
		{"ar", "login.heading", "تسجيل الدخول"},   // added
		{"ar", "login.submit", "Continue"},        // not told
	} {
		if got := p.texts[c.tag][c.key]; got != c.want {
			t.Errorf("%s: %s is %q, want %q", c.tag, c.key, got, c.want)
		}
	}
	if mustNew(t, Options{}).version == p.version {
		t.Error("other texts have the version of the built-in ones: browsers would keep those")
	}
}

// What docs/login-page.md shows of texts can be used as it is.
func TestTextsOfThePageForOperators(t *testing.T) {
	manual, err := os.ReadFile("../../docs/login-page.md")
	if err != nil {
		t.Fatal(err)
	}
	_, shown, _ := strings.Cut(string(manual), "```json\n")
	shown, _, _ = strings.Cut(shown, "```")
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "lv.json"), []byte(shown), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := mustNew(t, Options{Texts: dir}).texts["lv"]["login.heading"]; got != "Pieslēgties" {
		t.Errorf("got %q", got)
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
		directives := strings.Split(policy(c.captcha), "; ")
		has := func(directive string) bool {
			for _, d := range directives {
				if d == directive {
					return true
				}
			}
			return false
		}
		if !has(c.script) || c.frame != "" && !has(c.frame) || c.frame == "" && strings.Contains(policy(c.captcha), "frame-src") {
			t.Errorf("%s: %s", c.captcha, policy(c.captcha))
		}
		if strings.Contains(policy(c.captcha), "unsafe") || !has("default-src 'none'") || !has("frame-ancestors 'none'") || !has("base-uri 'none'") {
			t.Errorf("%s: %s", c.captcha, policy(c.captcha))
		}
	}
}
