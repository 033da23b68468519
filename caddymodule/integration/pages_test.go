package integration

import (
	"encoding/json"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/mnemogate/mnemogate/caddymodule/app"
	"github.com/mnemogate/mnemogate/caddymodule/gate"
	"github.com/mnemogate/mnemogate/caddymodule/guest/guesttest"
	"github.com/mnemogate/mnemogate/caddymodule/policy"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/wire"
	"github.com/mnemogate/mnemogate/store/storetest"
)

// pages returns the documentation pages by their paths in the repository.
func pages(t *testing.T) map[string]string {
	t.Helper()
	docs, err := filepath.Glob("../../docs/*.md")
	if err != nil || len(docs) == 0 {
		t.Fatalf("no pages: %v", err)
	}
	pages := map[string]string{}
	for _, file := range append(docs, "../../docs/deploy/README.md", "../../docs/examples/README.md", "../../README.md", "../../CONTRIBUTING.md", "../../SECURITY.md", "../../CHANGELOG.md") {
		text := get(os.ReadFile(file))(t)
		pages[strings.TrimPrefix(file, "../../")] = string(text)
	}
	return pages
}

func TestREADMEIsShort(t *testing.T) {
	const most = 12 << 10
	if n := len(pages(t)["README.md"]); n > most {
		t.Errorf("README.md has %d bytes; move what is more than %d to docs/", n, most)
	}
}

var (
	marker = regexp.MustCompile("(?ms)^```(\\w*)\n(.*?)^```$")
	link   = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	code   = regexp.MustCompile("`([^`\n]+)`")
)

func TestPagesLinkToWhatIsThere(t *testing.T) {
	pages := pages(t)
	for page, text := range pages {
		for _, found := range link.FindAllStringSubmatch(marker.ReplaceAllString(text, ""), -1) {
			target, anchor, _ := strings.Cut(found[1], "#")
			if strings.Contains(target, ":") {
				continue // on another site
			}
			file := page
			if target != "" {
				file = filepath.Join(filepath.Dir(page), target)
			}
			if _, err := os.Stat(filepath.Join("../..", file)); err != nil {
				t.Errorf("%s links to %s: %v", page, found[1], err)
			} else if anchor != "" && !slices.Contains(anchors(pages[file]), anchor) {
				t.Errorf("%s links to %s, which has no such heading", page, found[1])
			}
		}
	}
}

// docs/configuration.md and the complete Caddyfile have a line for each option of a company,
// the page with the default of those in a block.
func TestPagesShowEachOption(t *testing.T) {
	for syntax := range new(policy.Policy).Parsers() {
		name, _, _ := strings.Cut(syntax, " ")
		for _, file := range []string{"../../docs/configuration.md", "testdata/complete.caddyfiletest"} {
			if !regexp.MustCompile(`(?m)^\t\t+` + name + `\b`).Match(get(os.ReadFile(file))(t)) {
				t.Errorf("%s lacks %s", file, name)
			}
		}
	}
	d := tenant.DefaultPolicy()
	defaults := &policy.Policy{Session: d.Session, OTP: d.OTP, Password: policy.Passwords{Passwords: d.Password}, Recovery: d.Recovery, Limits: d.Limits, IssuedTokens: &tenant.DefaultIssuedTokens}
	for _, o := range policy.Options {
		if o.Syntax == "" {
			continue
		}
		value := strings.Trim(string(get(json.Marshal(o.Of(defaults)))(t)), `"`)
		if d, ok := o.Of(defaults).(*tenant.Duration); ok {
			value = d.String()
		}
		for file, line := range map[string]string{"../../docs/configuration.md": o.Name() + " " + value, "testdata/complete.caddyfiletest": o.Name()} {
			if !regexp.MustCompile(`\s` + o.Block + ` \{\n(\s+[^\s}].*\n)*?\s+` + line + `\s`).Match(get(os.ReadFile(file))(t)) {
				t.Errorf("%s lacks %s; write it into the block %s", file, line, o.Block)
			}
		}
	}
}

// anchors returns the anchors that GitHub creates for a page's headings.
func anchors(page string) []string {
	var anchors []string
	for line := range strings.Lines(marker.ReplaceAllString(page, "")) {
		marks, heading, ok := strings.Cut(line, " ")
		if !ok || strings.Trim(marks, "#") != "" {
			continue
		}
		anchors = append(anchors, strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
				return unicode.ToLower(r)
			}
			return -1
		}, strings.TrimSpace(heading)))
	}
	return anchors
}

// goFiles returns the Go files of the repository.
func goFiles(t *testing.T) map[string]string {
	t.Helper()
	files := map[string]string{}
	must(t, filepath.WalkDir("../..", func(path string, entry fs.DirEntry, err error) error {
		if entry != nil && entry.Name() == "node_modules" {
			return fs.SkipDir
		}
		if err == nil && filepath.Ext(path) == ".go" {
			files[strings.TrimPrefix(path, "../../")] = string(get(os.ReadFile(path))(t))
		}
		return err
	}))
	return files
}

// Comments name tests, and what is declared (if it has a capital letter) with the path of its
// file.
func TestCommentsNameWhatIsThere(t *testing.T) {
	files := goFiles(t)
	declared := map[string]bool{}
	for _, source := range files {
		for _, found := range regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)`).FindAllStringSubmatch(source, -1) {
			declared[found[1]] = true
		}
	}
	comment := regexp.MustCompile(`(?m)^\s*//(.*)\n`)
	test := regexp.MustCompile(`\b(?:Test|Fuzz)[A-Z]\w+`)
	of := regexp.MustCompile(`(\w*[A-Z]\w*) in ((?:caddymodule|flows|store)/[\w./]+\.go)`)
	for file, source := range files {
		var comments strings.Builder
		for _, found := range comment.FindAllStringSubmatch(source, -1) {
			comments.WriteString(strings.TrimRight(found[1], " ") + " ")
		}
		text := strings.Join(strings.Fields(comments.String()), " ")
		for _, name := range test.FindAllString(text, -1) {
			if !declared[name] {
				t.Errorf("%s: there is no test %s", file, name)
			}
		}
		for _, found := range of.FindAllStringSubmatch(text, -1) {
			wantDeclared(t, file, found[1], found[2])
		}
	}
}

// Pages name tests, files, and functions of files, and these must exist under these
// names. In a test's name, … matches any letters.
func TestPagesNameWhatIsThere(t *testing.T) {
	var tests strings.Builder
	for file, source := range goFiles(t) {
		if strings.HasSuffix(file, "_test.go") {
			tests.WriteString(source)
		}
	}
	path := regexp.MustCompile(`^(caddymodule|flows|store|docs|\.ci)/[\w./-]*$`)
	test := regexp.MustCompile(`^Test[\w…]+$`)
	for page, text := range pages(t) {
		for _, found := range code.FindAllStringSubmatch(marker.ReplaceAllString(text, ""), -1) {
			switch name := found[1]; {
			case path.MatchString(name):
				if _, err := os.Stat(filepath.Join("../..", name)); err != nil {
					t.Errorf("%s: %v", page, err)
				}
			case test.MatchString(name):
				declared := `\nfunc ` + strings.ReplaceAll(name, "…", `\w+`) + `\(`
				if !regexp.MustCompile(declared).MatchString(tests.String()) {
					t.Errorf("%s: there is no test %s", page, name)
				}
			}
		}
		for _, found := range regexp.MustCompile("`(\\w+)` in `([\\w./]+\\.go)`").FindAllStringSubmatch(text, -1) {
			wantDeclared(t, page, found[1], found[2])
		}
		for _, diagram := range blocks(text, "mermaid") {
			if strings.HasPrefix(diagram, "sequenceDiagram\n") {
				wantSequence(t, page, diagram)
			}
		}
	}
	commands := pages(t)
	commands[".ci/long"] = string(get(os.ReadFile("../../.ci/long"))(t))
	for file, text := range commands {
		for _, found := range regexp.MustCompile(`-run '?(\w+)`).FindAllStringSubmatch(text, -1) {
			if !regexp.MustCompile(`\nfunc \w*` + found[1]).MatchString(tests.String()) {
				t.Errorf("%s: %s runs no test", file, found[0])
			}
		}
	}
}

// wantSequence checks a diagram of calls. A participant is a directory, perhaps with words
// after it, and an arrow to it names functions with their files in that directory.
func wantSequence(t *testing.T, page, diagram string) {
	t.Helper()
	dirs := map[string]string{}
	for _, found := range regexp.MustCompile(`(?m)^    participant (\w+) as (\S+)`).FindAllStringSubmatch(diagram, -1) {
		dirs[found[1]] = found[2]
	}
	arrow := regexp.MustCompile(`^    (\w+)-?->>(\w+): (.+)\n`)
	function := regexp.MustCompile(`(\w+) \(([\w./]+\.go)\)`)
	for line := range strings.Lines(diagram) {
		found := arrow.FindStringSubmatch(line)
		if found == nil {
			if strings.Contains(line, "->") {
				t.Errorf("%s: this is no arrow: %s", page, line)
			}
			continue
		}
		from, to := dirs[found[1]], dirs[found[2]]
		if to == "client" { // an answer
			to = from
		}
		calls := function.FindAllStringSubmatch(found[3], -1)
		if from == "" || to == "" || len(calls) == 0 {
			t.Errorf("%s: the arrow names no function: %s", page, line)
		}
		for _, call := range calls {
			wantDeclared(t, page, call[1], to+"/"+call[2])
		}
	}
}

// wantDeclared checks that the file declares the name.
func wantDeclared(t *testing.T, page, name, file string) {
	t.Helper()
	source, err := os.ReadFile(filepath.Join("../..", file))
	if err != nil || !regexp.MustCompile(`(?m)^(func( \(.*?\))?|var|const|type) `+name+`\b`).Match(source) {
		t.Errorf("%s: %s is not in %s: %v", page, name, file, err)
	}
}

// section returns the text below a heading of a page, up to the next heading of that
// level.
func section(t *testing.T, page, heading string) string {
	t.Helper()
	_, section, ok := strings.Cut(pages(t)[page], "\n## "+heading+"\n")
	if !ok {
		t.Fatalf("%s has no heading %s", page, heading)
	}
	section, _, _ = strings.Cut(section, "\n## ")
	return section
}

// blocks returns the code blocks of a page in a language.
func blocks(page, language string) []string {
	var blocks []string
	for _, found := range marker.FindAllStringSubmatch(page, -1) {
		if found[1] == language {
			blocks = append(blocks, found[2])
		}
	}
	return blocks
}

// The next test checks the listing of docs/configuration.md, which shows
// alternatives.
func TestCaddyfilesOfPagesAreValid(t *testing.T) {
	guesttest.Environment(t)
	for name, value := range map[string]string{
		"ACME_API_KEY": "key-of-acme", "UMBRA_API_KEY": "key-of-umbra", "SMS_SECRET": guesttest.Secret, "API_KEY": "key-of-all-clients", "TURNSTILE_SECRET": guesttest.Secret, "EVENTS_SECRET": guesttest.Secret, "MIGRATE_SECRET": guesttest.Secret, "SHOP_KEY": "key-of-the-shop",
	} {
		t.Setenv(name, value)
	}
	listing := pageListing(t)
	const company = "{\n\tmnemogate {\n\t\tcompany acme {\n\t\t\tapi_key off\n\t\t\tcaptcha off\n\t\t}\n\t}\n}\n"
	for page, text := range pages(t) {
		for _, block := range blocks(text, "caddyfile") {
			if block == listing {
				continue
			}
			if !strings.HasPrefix(block, "{") {
				block = company + block // it shows only a site
			}
			block = strings.ReplaceAll(block, "/var/log/mnemogate/", t.TempDir()+"/")
			block = strings.ReplaceAll(block, "file_server", "respond 404") // see harness_test.go
			block = strings.ReplaceAll(block, "try_files {path}", "rewrite")
			block = strings.ReplaceAll(block, "\ttracing\n", "") // package gate tests it
			if _, err := adaptAndValidate(block); err != nil {
				t.Errorf("%s: %v\n%s", page, err, block)
			}
		}
	}
}

// An optionLine is a line of a Caddyfile, with the first lines of the blocks around
// it.
type optionLine struct {
	blocks []string
	text   string
}

// optionLines reads the lines of a Caddyfile, which need not be valid as a whole.
func optionLines(caddyfile string) (lines []optionLine) {
	var open []string
	for text := range strings.Lines(caddyfile) {
		text, _, _ = strings.Cut(text, " # ")
		switch text = strings.TrimSpace(text); {
		case text == "" || strings.HasPrefix(text, "#"):
		case text == "}":
			open = open[:len(open)-1]
		case strings.HasSuffix(text, "{"):
			open = append(open, text)
		default:
			lines = append(lines, optionLine{slices.Clone(open), text})
		}
	}
	return lines
}

// pageListing returns the listing of all options in docs/configuration.md.
func pageListing(t *testing.T) string {
	t.Helper()
	_, section, _ := strings.Cut(pages(t)["docs/configuration.md"], "\n## Everything that can be set\n")
	listing := blocks(section, "caddyfile")
	if len(listing) == 0 {
		t.Fatal("docs/configuration.md does not show what can be set")
	}
	return listing[0]
}

// The listing of all options in docs/configuration.md is valid after its
// placeholders are replaced. It shows alternatives next to each other, such as the
// captchas; each alternative is part of one of the tested configurations.
func TestEveryOptionOfThePageIsOne(t *testing.T) {
	guesttest.Environment(t)
	key, _ := testP256Keys(t)
	certificate, _, _ := certificateFiles(t)
	fill := strings.NewReplacer(
		"<PEM>...", "{file."+key+"}", "ca <file>", "ca "+certificate,
		"# and client_id … as above", "client_id a\nclient_secret b\nredirect_uri https://a.example.com",
		"redis <url>...", "redis rediss://10.0.0.9", "<dsn>", "postgres://10.0.0.9/a?sslmode=require", "[<file>]", "a.db", "<n>", "1",
		"types <type>...", "types account.changed", "<code> <phone>...", "123456 +37060012345", `["<description>"]`, `"a"`, "blocklist <file>", "blocklist testdata/blocklist",
		"texts <dir>", "texts testdata/texts", "<host:port>", "mail.example.com:25", "<address>", "a@example.com",
		"<key>...", "a-key-of-a-test", "company <code>...", "company acme", "company <code>", "company acme", "login_page [<company>...]", "login_page", "logo <file>", "logo testdata/logo.svg", "logo_dark <file>", "logo_dark testdata/logo.svg", "favicon <file>", "favicon testdata/logo.svg", "icon <file>", "icon testdata/logo.svg", "style <file>", "style testdata/style.css", "[<language>]", "", "[support]", "", "<css color>", "blue", "<duration> <path>...", "5m /a", "<path>...", "/a", "health <path>", "health /a", "check <path>", "check /check", "<duration> [skip_second_factor]", "5m skip_second_factor", "<url>|<dir> [at_login] [require]", "https://a.example.com at_login require", "<code> [<version>]", "terms 2026-01", "<1-5> oauth2", "2 oauth2", "<1-5>", "1",
		"<issuer>", "https://a.example.com/{tenantid}", "<id>...", "any", "<url>", "https://a.example.com", "<uri>...", "https://a.example.com", "<scope>...", "openid", "<origin>...", "https://a.example.com",
		"<e164>", "+37060012345", "<prefix>...", "+370", "<verified json field>", "b", "<language>", "lt", "<tag>", "lt",
	)
	placeholder := regexp.MustCompile(`<[^>]*>(\.\.\.)?`)
	listing := pageListing(t)
	migrate := regexp.MustCompile(`\t\t\tmigrate [^}]*\}\n`)
	verified, tenants := regexp.MustCompile(`\t+link_verified_email[^\n]*\n`), regexp.MustCompile(`\t+tenants <id>[^\n]*\n`)
	for alternative := range 5 {
		tried := strings.Replace(listing, "\n\t\thardened", "\n\t\thardened off", 1)
		if alternative > 1 { // they exclude each other
			tried = verified.ReplaceAllString(tried, "")
		} else {
			tried = strings.Replace(tenants.ReplaceAllString(tried, ""), "<issuer>", "https://a.example.com", 1)
		}
		if alternative > 0 { // they exclude each other
			tried = migrate.ReplaceAllString(tried, "")
			tried = strings.Replace(tried, "\n\t\tdevices <duration> [skip_second_factor]", "\n\t\tdevices off", 1)
		}
		config := placeholder.ReplaceAllString(fill.Replace(oneOfEach(tried, alternative)), "a")
		if _, err := adaptAndValidate(config); err != nil {
			t.Errorf("%v\n%s", err, config)
		}
	}
}

// oneOfEach keeps, of each option that the block mnemogate has several times, only
// the one with that number, or the last.
func oneOfEach(listing string, number int) string {
	_, rest, _ := strings.Cut(listing, "\n\tmnemogate {\n")
	options, _, _ := strings.Cut(rest, "\n\t}\n")
	option := regexp.MustCompile(`(?m)^\t\t(\w+)\b.*\n((?:\t\t\t.*\n|\n)*\t\t\}\n)?`)
	all := map[string][]string{}
	for _, found := range option.FindAllStringSubmatch(options+"\n", -1) {
		all[found[1]] = append(all[found[1]], found[0])
	}
	for _, several := range all {
		for i, text := range several {
			if i != min(number, len(several)-1) {
				listing = strings.Replace(listing, text, "", 1)
			}
		}
	}
	return listing
}

// The valid examples set every field of the handler, the app and a company, and the page
// shows their options. For the policies, TestLeavesAreComplete of caddymodule/app says so.
func TestThePageShowsEveryOption(t *testing.T) {
	var configs, adapted string
	for _, file := range get(filepath.Glob("testdata/*.caddyfiletest"))(t) {
		config, expected, _ := strings.Cut(string(get(os.ReadFile(file))(t)), expects)
		configs, adapted = configs+config+"\n", adapted+expected
	}
	for _, module := range []any{gate.Handler{}, app.App{}, app.Company{}} {
		for _, f := range reflect.VisibleFields(reflect.TypeOf(module)) {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if name != "" && name != "-" && !strings.Contains(adapted, `"`+name+`":`) {
				t.Errorf("no example sets %s of %T", name, module)
			}
		}
	}
	names := func(lines []optionLine) map[string]bool {
		names := map[string]bool{}
		for _, o := range lines {
			block := ""
			for _, text := range append(o.blocks, o.text) {
				option := strings.Fields(text)[0]
				names[block+" "+option] = true
				if block = option; block == "company" {
					block = "mnemogate" // it can have the policies
				}
			}
		}
		return names
	}
	shown := names(optionLines(pageListing(t)))
	for name := range names(optionLines(configs)) {
		if !shown[name] {
			t.Errorf("docs/configuration.md does not show %q", name)
		}
	}
}

// A consoleStep is a command that a page shows, with its output.
type consoleStep struct{ command, shown string }

func consoleSteps(page string) (steps []consoleStep) {
	for _, step := range strings.Split("\n"+strings.Join(blocks(page, "console"), ""), "\n$ ")[1:] {
		command, shown, _ := strings.Cut(step, "\n")
		for strings.HasSuffix(command, `\`) || strings.Count(command, "'")%2 == 1 {
			next, rest, _ := strings.Cut(shown, "\n")
			command, shown = command+"\n"+next, rest
		}
		steps = append(steps, consoleStep{command, shown})
	}
	return steps
}

// compare fails the test if the output of the command differs from the page, except
// for what differs in each run.
func (c consoleStep) compare(t *testing.T, got string, anew *regexp.Regexp) {
	t.Helper()
	plain := func(s string) string {
		var lines []string
		for line := range strings.Lines(anew.ReplaceAllString(s, "~")) {
			lines = append(lines, strings.TrimSpace(line))
		}
		return strings.TrimSpace(strings.Join(lines, "\n"))
	}
	if plain(got) != plain(c.shown) {
		t.Errorf("%s\nanswered\n%s\nand the page shows\n%s", c.command, got, c.shown)
	}
}

// need skips the test if a program is missing.
func need(t *testing.T, programs ...string) {
	t.Helper()
	for _, program := range programs {
		if _, err := exec.LookPath(program); err != nil {
			storetest.SkipOrFail(t, "no "+program)
		}
	}
}

// In this test the admin endpoint is a socket, and standard input is not a terminal,
// so commands don't prompt.
func TestConsolesOfTheOperatorsPage(t *testing.T) {
	t.Parallel()
	need(t, "curl")
	address := strings.TrimPrefix(nobodyListens(t), "http://")
	gateway := guesttest.Serve(t, guesttest.Answering(http.StatusAccepted, "queued"))
	s := adminSite(t, siteConfig{audit: true, global: realHashing, company: "sms webhook " + gateway.URL + " {\nsecret " + smsSecret + "\n}\nmail smtp " + address + " {\nfrom noreply@example.com\ntls off\n}"})
	s.config = strings.Replace(s.config, "api_key "+testKey, "api_key "+testKey+" the-new-api-key", 1)
	must(t, s.load())
	socket := s.dir + "/admin.sock"
	writeFile(t, filepath.Join(s.dir, ".curlrc"), "unix-socket = "+socket)
	here := strings.NewReplacer("unix/"+socket, "unix//run/caddy/admin.sock", address, "127.0.0.1:2525", gateway.Listener.Addr().String(), "127.0.0.1:8025")
	anew := regexp.MustCompile(`\d{4}-\d\d-\d\dT[\d:.]+Z|\b[0-9A-HJKMNP-TV-Z]{10}\b|\([\d.]+(m|µ)?s\)|[\d,]+ bytes|in [\d.]+m?s|Go-http-client/[\d.]+`)
	prompts := regexp.MustCompile(`Password(, again)?: \n`)
	for _, step := range consoleSteps(pages(t)["docs/operators.md"]) {
		switch step.command {
		case "cat two.jsonl":
			writeFile(t, filepath.Join(s.dir, "two.jsonl"), step.shown)
		case "caddy mnemogate account history carol":
			s.post("auth/checkcredentials", "", fields{"login_id": "carol@example.com", "password": "wrong"}).want(wire.ErrCredentialsInvalid)
			s.history("carol", 2)
		}
		cmd := s.shell(step.command)
		cmd.Env = append(cmd.Env, "CURL_HOME="+s.dir)
		cmd.Stdin = strings.NewReader(testPassword + "\n")
		out, _ := cmd.CombinedOutput() // some commands fail, as the page shows
		step.shown = prompts.ReplaceAllString(step.shown, "")
		step.compare(t, here.Replace(string(out)), anew)
	}
}
