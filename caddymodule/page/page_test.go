package page

import (
	"encoding/json"
	"io/fs"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/text/language"

	"github.com/mnemogate/mnemogate/flows"
	"github.com/mnemogate/mnemogate/flows/message"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/wire"
	"github.com/mnemogate/mnemogate/store/storetest"
)

var must = storetest.Must

// A login on a slow line waits for all of it: the page with its texts and configuration,
// and what it loads. Images and a style sheet are the operator's own.
func TestThePageIsSmall(t *testing.T) {
	p := mustNew(t, Options{})
	const most = 40_000
	loads := 0
	for _, name := range append(scripts("login"), "page.css", "icon.svg") {
		w := httptest.NewRecorder()
		p.ServeFile(w, accepting(), p.version+"/"+name)
		t.Logf("%s: %d bytes gzipped", name, w.Body.Len())
		loads += w.Body.Len()
	}
	config, err := os.ReadFile("../../docs/api.md") // an example
	must(t, err)
	_, example, _ := strings.Cut(string(config), "```json\n{\"status\":\"success\",\n \"password\"")
	example, _, found := strings.Cut(example, "```")
	if !found {
		t.Fatal("docs/api.md has no example of client.json")
	}
	for _, tag := range p.languages {
		w := httptest.NewRecorder()
		p.Serve(w, accepting(), View{Kind: "login", Company: "acme", Language: tag, Config: json.RawMessage(`{"password"` + example)})
		if sum := loads + w.Body.Len(); sum > most || strings.Contains(w.Body.String(), "security.") {
			t.Errorf("%s: the page and all that it loads has %d bytes gzipped; more than %d take too long", tag, sum, most)
		} else {
			t.Logf("%s: %d bytes gzipped, with all that it loads %d", tag, w.Body.Len(), sum)
		}
	}
}

// A Caddy may have hundreds of pages: with texts of its own, each would take half a megabyte.
func TestPagesShareWhatIsBuiltIn(t *testing.T) {
	plain, own := mustNew(t, Options{}), mustNew(t, Options{Color: "#123456"})
	for name, file := range plain.files {
		if shared := own.files[name] == file; shared != (name != "page.css") {
			t.Errorf("%s: shared %t", name, shared)
		}
	}
	if reflect.ValueOf(plain.texts).Pointer() != reflect.ValueOf(own.texts).Pointer() {
		t.Error("each page has texts of its own")
	}
}

func accepting() *http.Request {
	r := httptest.NewRequest("GET", "/acme/login", nil)
	r.Header.Set("Accept-Encoding", "gzip")
	return r
}

// Safari 16.0 to 16.3 refuse a whole regular expression with lookbehind.
func TestScriptsNeedNoLookbehind(t *testing.T) {
	files, err := fs.Glob(assets, "assets/*.js")
	if err != nil || len(files) == 0 {
		t.Fatal(err)
	}
	for _, file := range files {
		if b, err := assets.ReadFile(file); err != nil || strings.Contains(string(b), "(?<!") || strings.Contains(string(b), "(?<=") {
			t.Errorf("%s has a lookbehind: %v", file, err)
		}
	}
}

// First paint needs one round trip after the page: a browser learns of all modules from
// the page, not from other modules.
func TestThePageNamesAllItsModules(t *testing.T) {
	imported := regexp.MustCompile(`(?m)^import .* from '\./([a-z]+\.js)';$`)
	for _, kind := range []string{"login", "logout", "security"} {
		var needed []string
		var visit func(name string)
		visit = func(name string) {
			if slices.Contains(needed, name) {
				return
			}
			needed = append(needed, name)
			content, err := assets.ReadFile("assets/" + name)
			must(t, err)
			for _, found := range imported.FindAllSubmatch(content, -1) {
				visit(string(found[1]))
			}
		}
		named := slices.Clone(scripts(kind))
		visit(named[0])
		slices.Sort(named)
		slices.Sort(needed)
		if !slices.Equal(named, needed) {
			t.Errorf("%s names %q and needs %q", kind, named, needed)
		}
	}
}

// The company's name is the title of a page without one.
func TestTheTitleIsTheCompanysName(t *testing.T) {
	for title, want := range map[string]string{"": "<title>Söhne &amp; Co</title>", "Acme": "<title>Acme</title>"} {
		w := httptest.NewRecorder()
		v := View{Kind: "login", Company: "acme", Name: "Söhne & Co", Language: language.English}
		mustNew(t, Options{Title: title}).Serve(w, httptest.NewRequest("GET", "/acme/login", nil), v)
		if !strings.Contains(w.Body.String(), want) {
			t.Errorf("title %q: no %s in\n%s", title, want, w.Body)
		}
	}
}

func mustNew(t *testing.T, o Options) *Page {
	t.Helper()
	p, err := New(o)
	must(t, err)
	return p
}

// builtIn are the texts as they are in the files, nothing filled up.
func builtIn(t *testing.T) map[string]map[string]string {
	t.Helper()
	files, err := fs.Glob(assets, "assets/texts/*.json")
	must(t, err)
	languages := map[string]map[string]string{}
	for _, file := range files {
		content, err := assets.ReadFile(file)
		must(t, err)
		texts := map[string]string{}
		if err := json.Unmarshal(content, &texts); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		languages[strings.TrimSuffix(strings.TrimPrefix(file, "assets/texts/"), ".json")] = texts
	}
	return languages
}

func TestEachLanguageHasAllTexts(t *testing.T) {
	languages := builtIn(t)
	for tag, texts := range languages {
		for key, text := range languages[fallback] {
			held := func(text string) []string { return slices.Sorted(slices.Values(placeholder.FindAllString(text, -1))) }
			if texts[key] == "" {
				t.Errorf("%s has no text %s", tag, key)
			} else if !slices.Equal(held(texts[key]), held(text)) {
				t.Errorf("%s: %s has the placeholders %v, want %v", tag, key, held(texts[key]), held(text))
			}
		}
		for key := range texts {
			if languages[fallback][key] == "" {
				t.Errorf("%s has %s, which no other has", tag, key)
			}
		}
	}
}

// French puts a space before some marks. They must not begin a line.
func TestFrenchMarksStayOnTheirLine(t *testing.T) {
	for key, text := range builtIn(t)["fr"] {
		if regexp.MustCompile(` [?!;:»]|« `).MatchString(text) {
			t.Errorf("%s: %q needs a no-break space", key, text)
		}
	}
}

// A user whose first link has expired finds the button that the mail names.
func TestTheWelcomeMailNamesTheButton(t *testing.T) {
	for tag, texts := range builtIn(t) {
		mail := message.Message{Type: message.WelcomeLink, Company: "acme", To: "a@example.com", Link: "https://acme.example/#x"}
		must(t, message.DefaultTexts().Render(&mail, time.Now(), tag))
		if !strings.Contains(mail.Text, texts["recover.offer"]) {
			t.Errorf("%s: no %q in %s", tag, texts["recover.offer"], mail.Text)
		}
	}
}

// A change that revokes all other sessions says so, in the words of the button for that alone.
func TestChangesSayThatOtherDevicesAreLoggedOut(t *testing.T) {
	for tag, texts := range builtIn(t) {
		for _, change := range []string{"password.done", "email.changed", "email.removed", "phone.changed", "phone.removed", "passkeys.removed", "twostep.on.done", "twostep.off.done", "app.done", "app.removed"} {
			if text := texts["security."+change]; !strings.HasSuffix(text, ". "+texts["security.sessions.ended.all"]) {
				t.Errorf("%s: security.%s is only %q", tag, change, text)
			}
		}
	}
}

// Where English has "it" and "send", other languages could say that the app is required, or
// that the user must send us a code.
func TestTextsNameWhatTheyMean(t *testing.T) {
	for tag, texts := range builtIn(t) {
		if text := texts["security.twostep.required"]; !strings.Contains(strings.ToLower(text), strings.ToLower(texts["security.twostep"])) {
			t.Errorf("%s: %q does not say what is required", tag, text)
		}
		_, ask, _ := strings.Cut(texts["code.over"], ".")
		if text := texts["security.contact.wrong"]; !strings.HasSuffix(text, ask) {
			t.Errorf("%s: %q does not end with %q, as code.over does", tag, text, ask)
		}
	}
}

// madeKeys are those of texts that the page puts together, and that the markup has.
func madeKeys() []string {
	keys := []string{"language", "language.choose", "noscript", "loading.slow", "login.heading", "logout.heading", "security.heading", "error.auth.password.invalid.same", "error.cookies", "error.insecure", "error.passkey", "link.text", "welcome.text", "security.twostep.on.app", "security.twostep.on.none"}
	for _, method := range []tenant.Method{tenant.ByPhone, tenant.ByMail, tenant.ByQuestion} {
		keys = append(keys, "recover."+string(method))
	}
	for _, made := range []string{"mfa", "fresh", "use.passkey", "use.otp", "use.sms", "use.backup", "use.pwd"} {
		keys = append(keys, "stepup."+made)
	}
	for _, own := range []string{"network", "superseded", "oauth.state", "oauth.denied"} { // OwnCode in client.d.ts
		keys = append(keys, "error."+own)
	}
	for _, contact := range record.Contacts {
		for _, text := range []string{"none", "add", "change", "label", "changed", "remove.text", "removed"} {
			keys = append(keys, "security."+contact.Name+"."+text)
		}
	}
	for _, code := range codes() {
		keys = append(keys, "error."+code)
	}
	types, _ := assets.ReadFile("assets/client.d.ts")
	_, notices, _ := strings.Cut(string(types), "export type Notice =")
	notices, _, _ = strings.Cut(notices, ";")
	for _, found := range regexp.MustCompile(`\| '([^']+)'`).FindAllStringSubmatch(notices, -1) {
		keys = append(keys, "notice."+found[1])
	}
	return keys
}

// codes are all that a route can fail with.
func codes() (codes []string) {
	for _, e := range slices.Concat(flows.Common, flows.TokenErrors) {
		codes = append(codes, e.Code)
	}
	for _, route := range flows.Routes {
		for _, e := range route.Fails {
			codes = append(codes, e.Code)
		}
	}
	return codes
}

// Every error has a text, whatever its code. A reason may have one.
func TestEachTextIsUsed(t *testing.T) {
	used := map[string]bool{}
	for _, key := range madeKeys() {
		used[key] = true
	}
	quoted := regexp.MustCompile(`'([a-z]+\.[a-z.]+)'`)
	for _, name := range slices.Concat(scripts("login"), scripts("security")) {
		if name == "client.js" { // says nothing to users
			continue
		}
		content, err := assets.ReadFile("assets/" + name)
		must(t, err)
		for _, found := range quoted.FindAllSubmatch(content, -1) {
			used[string(found[1])] = true
		}
	}
	texts := builtIn(t)[fallback]
	for key := range maps.Clone(used) { // notices and reasons of the page itself
		for _, made := range []string{"notice." + key, "reason." + key} {
			if texts[made] != "" {
				used[made] = true
			}
		}
	}
	may := slices.Sorted(maps.Keys(used))
	for _, reasons := range wire.Reasons {
		for _, reason := range reasons {
			may = append(may, "reason."+string(reason))
		}
	}
	for key := range texts {
		if !slices.Contains(may, key) {
			t.Errorf("nothing says %s", key)
		}
	}
	for key := range used {
		if texts[key] == "" && texts["notice."+key] == "" && texts["reason."+key] == "" && texts["error."+key] == "" {
			t.Errorf("there is no text %s", key)
		}
	}
}
