package integration

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/mnemogate/mnemogate/caddymodule/gate"
	"github.com/mnemogate/mnemogate/caddymodule/guest/guesttest"
	"github.com/mnemogate/mnemogate/store/storetest"
)

var fontOfBrand = regexp.MustCompile(`url\((fonts/(.+-wght-normal\.woff2))\)`)

// brandFiles returns a directory like docs/brands, with the fonts that its style sheets
// use. Without node_modules the fonts are empty, and browsers use others.
func brandFiles(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	must(t, os.CopyFS(dir, os.DirFS("../../docs/brands")))
	sheets, err := fs.Glob(os.DirFS(dir), "*/style.css")
	if err != nil || len(sheets) != 2 {
		t.Fatalf("the style sheets are %q, %v", sheets, err)
	}
	for _, sheet := range sheets {
		of := filepath.Join(dir, filepath.Dir(sheet))
		content := get(os.ReadFile(filepath.Join(of, "style.css")))(t)
		_ = os.Mkdir(of+"/fonts", 0o755)
		for _, font := range fontOfBrand.FindAllSubmatch(content, -1) {
			var woff2 []byte
			if found, _ := filepath.Glob(peersDir + "/node_modules/@fontsource-variable/*/files/" + string(font[2])); found != nil {
				woff2, err = os.ReadFile(found[0])
			}
			if err == nil {
				err = os.WriteFile(filepath.Join(of, string(font[1])), woff2, 0o600)
			}
			must(t, err)
		}
	}
	return dir
}

// brandsCaddyfile is docs/brands/Caddyfile, which shows two brands.
func brandsCaddyfile(t *testing.T) string {
	t.Helper()
	storetest.NeedPeers(t, peersDir) // it has the fonts
	shown := string(get(os.ReadFile("../../docs/brands/Caddyfile"))(t))
	return strings.ReplaceAll(shown, " docs/brands/", " "+brandFiles(t)+"/")
}

// brands returns the login pages of the companies of brandsCaddyfile.
func brands(t *testing.T) map[string]*gate.LoginPage {
	t.Helper()
	guesttest.Environment(t)
	t.Setenv("ACME_API_KEY", "key-of-pomelo")
	t.Setenv("UMBRA_API_KEY", "key-of-nocturne")
	adapted := get(adaptAndValidate(brandsCaddyfile(t)))(t)
	found := map[string]*gate.LoginPage{}
	for _, handler := range bytes.Split(adapted, []byte(`{"companies":["`))[1:] {
		var p struct {
			LoginPages gate.LoginPages `json:"login_page"`
		}
		must(t, json.NewDecoder(strings.NewReader(`{"companies":["`+string(handler))).Decode(&p))
		company, _, _ := strings.Cut(string(handler), `"`)
		found[company] = p.LoginPages[0]
	}
	return found
}

// A company's own style sheet can look as it likes and stay readable: axe finds nothing
// in the two brands of docs/brands.
func TestBrowserSeesBrands(t *testing.T) {
	all := brands(t)
	for company, name := range map[string]string{"pomelo": "Pomelo", "nocturne": "NOCTURNE & VALE"} {
		login, ok := all[company]
		if !ok {
			t.Fatalf("the page shows only %v", all)
		}
		b := newBrowser(t)
		names, addresses := b.previews(login.Options, name, "en")
		for _, scene := range []string{"login", "login-locked", "code-wrong", "newpassword-typed", "disclaimers-missing"} {
			b.opens(addresses[slices.Index(names, scene)])
			b.judge(company + "-" + scene)
		}
	}
}

// A visitor is a browser that shows a site.
type visitor interface {
	open(address string)
	eval(script string) any
	waits(script string)
	picture(name string)
}

// Users of the two brands log in, with Firefox and with Chromium. The page has the brand's
// own fonts and links.
func TestBrowserLogsInToBrands(t *testing.T) {
	shown, app := brandsCaddyfile(t), newBrowserApp(t)
	c := siteConfig{global: "captcha pow", env: []string{"ACME_API_KEY=key-of-pomelo", "UMBRA_API_KEY=key-of-nocturne"}}
	for _, company := range regexp.MustCompile(`(?s)\t\tcompany (\w+) \{.*?\n\t\t\}`).FindAllStringSubmatch(shown, -1) {
		c.more += strings.TrimSuffix(company[0], "}") + "account alice {\nemail alice@example.com\npassword \"" + testPassword + "\"\n}\n}\n"
		_, site, _ := strings.Cut(shown, company[1]+".example {\n")
		site, _, _ = strings.Cut(site, "\n}\n")
		c.site += "handle /" + company[1] + "/* {\n" + strings.ReplaceAll(site, "localhost:9000", app.Listener.Addr().String()) + "\n}\n"
	}
	s := startSite(t, c)
	visit := func(v visitor, browser string) {
		for company, fonts := range map[string]string{"pomelo": "Nunito", "nocturne": "Cormorant Garamond,Jost"} {
			screen := func(name, selector string) {
				t.Helper()
				v.waits(`document.querySelector('#screen:not([aria-busy]) ` + selector + `') && !document.querySelector('.main.busy')`)
				v.picture(strings.Join([]string{company, name, browser}, "-"))
			}
			enter := func(field, text string) {
				t.Helper()
				v.eval(`void (document.querySelector('#` + field + `').value = ` + quote(text) + `, document.querySelector('#screen .main').click())`)
			}
			v.open(s.URL + "/" + company + "/boxes")
			screen("login", idField)
			if got := v.eval(`document.fonts.ready.then(() => [...new Set([...document.fonts].filter(({ status }) => status === 'loaded').map(({ family }) => family.replaceAll('"', '')))].sort().join())`); got != fonts {
				t.Errorf("%s, %s: the fonts are %v, want %s", browser, company, got, fonts)
			}
			if got := v.eval(`[...document.querySelectorAll('#links a')].map(({ textContent }) => textContent).join()`); !strings.Contains(got.(string), "Privacy") {
				t.Errorf("%s, %s: the links are %v", browser, company, got)
			}
			enter("login", "alice@example.com")
			screen("password", passwordField)
			enter("password", "wrong")
			v.waits(`document.activeElement.id === 'password' && document.querySelector('#password-error').textContent === ` + quote(pageTexts()["error.auth.password.invalid"]))
			screen("wrong", passwordField)
			enter("password", testPassword)
			v.waits(`document.querySelector('#user')?.textContent === 'alice' && location.pathname === '/` + company + `/boxes'`)
		}
	}
	s.run("Firefox", func(t *testing.T) { visit(newFirefox(t), "firefox") })
	s.run("Chromium", func(t *testing.T) { visit(newBrowser(t), "chromium") })
}
