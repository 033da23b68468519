package integration

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/google/go-cmp/cmp"

	"github.com/mnemogate/mnemogate/caddymodule/guest/guesttest"
	"github.com/mnemogate/mnemogate/store/storetest"
)

const (
	expects = "\n----------\n" // between a Caddyfile and the expected result
	another = "\n==========\n" // between such pairs
)

// TestCaddyfiles adapts and validates each Caddyfile in testdata. It expects the
// adapted JSON without lines (TestMistakesAreToldWithTheirLine is about these), or a part
// of the error.
func TestCaddyfiles(t *testing.T) {
	files, err := filepath.Glob("testdata/*.caddyfiletest")
	if err != nil || len(files) == 0 {
		t.Fatalf("no files: %v", err)
	}
	for _, file := range files {
		raw := get(os.ReadFile(file))(t)
		content := strings.ReplaceAll(string(raw), "\r\n", "\n")
		for i, pair := range strings.Split(content, another) {
			name := strings.TrimSuffix(filepath.Base(file), ".caddyfiletest")
			if strings.Contains(content, another) {
				name = fmt.Sprintf("%s/%d", name, i+1)
			}
			t.Run(name, func(t *testing.T) {
				config, want, ok := strings.Cut(pair, expects)
				if !ok {
					t.Fatalf("there is no line of ten dashes in\n%s", pair)
				}
				dir := guesttest.Environment(t)
				adapted, err := adaptAndValidate(config)
				if want = strings.TrimSpace(want); strings.HasPrefix(want, "{") || *storetest.Update && want == "" {
					checkAdapted(t, file, config, want, adapted, err)
				} else {
					checkRefused(t, want, err)
				}
				if entries, _ := os.ReadDir(dir); len(entries) > 0 {
					t.Errorf("validating created %s", entries[0].Name())
				}
			})
		}
	}
}

// lines matches positions. An option that is added would move all that follow.
var lines = regexp.MustCompile(`"Caddyfile:[0-9]+"`)

func checkAdapted(t *testing.T, file, config, want string, adapted []byte, err error) {
	must(t, err)
	got := lines.ReplaceAllString(indented(t, adapted), `"Caddyfile"`)
	if *storetest.Update {
		must(t, os.WriteFile(file, []byte(config+expects+got+"\n"), 0o644))
		return
	}
	if diff := cmp.Diff(indented(t, []byte(want)), got); diff != "" {
		t.Errorf("the JSON differs (-want +got):\n%s", diff)
	}
}

func checkRefused(t *testing.T, want string, err error) {
	if err == nil {
		t.Fatalf("no error, want %q", want)
	}
	if want == "" || !strings.Contains(err.Error(), want) {
		t.Errorf("got %q, want it to contain %q", err, want)
	}
	if strings.Count(err.Error(), ", at Caddyfile:") > 1 {
		t.Errorf("the error names several lines: %q", err)
	}
	if strings.Contains(err.Error(), guesttest.Secret) {
		t.Errorf("the error tells a secret: %q", err)
	}
}

// adaptAndValidate does what caddy validate does.
func adaptAndValidate(config string) ([]byte, error) {
	adapted, _, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(config+"\n"), nil)
	if err != nil {
		return nil, err
	}
	return adapted, validate(adapted)
}

// Caddy's cleanup of certificates panics if two validations end at the same moment.
var validating sync.Mutex

func validate(config []byte) error {
	var c caddy.Config
	if err := caddy.StrictUnmarshalJSON(config, &c); err != nil {
		return err
	}
	c.Logging = &caddy.Logging{Logs: map[string]*caddy.CustomLog{
		"default": {BaseLog: caddy.BaseLog{WriterRaw: json.RawMessage(`{"output":"discard"}`)}},
	}}
	validating.Lock()
	defer validating.Unlock()
	return caddy.Validate(&c)
}

func indented(t *testing.T, raw []byte) string {
	t.Helper()
	var out bytes.Buffer
	if err := json.Indent(&out, raw, "", "\t"); err != nil {
		t.Fatalf("%v in %s", err, raw)
	}
	return out.String()
}

// TestConfigKeepsPlaceholders checks that the config in the admin API and the
// autosaved config contain no secrets from the environment.
func TestConfigKeepsPlaceholders(t *testing.T) {
	guesttest.Environment(t)
	raw := get(os.ReadFile("testdata/complete.caddyfiletest"))(t)
	config, _, _ := strings.Cut(string(raw), expects)
	adapted := get(adaptAndValidate(config))(t)
	if n := bytes.Count(adapted, []byte("{env.MNEMOGATE_TEST_SECRET}")); n != strings.Count(config, "{env.MNEMOGATE_TEST_SECRET}") {
		t.Errorf("%d placeholders are left in the JSON", n)
	}
	if bytes.Contains(adapted, []byte(guesttest.Secret)) || bytes.Contains(adapted, []byte("key-of-acme")) {
		t.Error("the JSON holds a secret")
	}
}

// Errors name the line of the Caddyfile, also those that are found only after the
// placeholders are resolved.
func TestMistakesAreToldWithTheirLine(t *testing.T) {
	for mistake, want := range map[string]string{
		"session {\n\ntemporary 16m\n}":                                        "company acme: session temporary: 16m is against NIST SP 800-63B-4, section 3.1.3; choose at most 15m or, if you must, add the word insecure after it, at Caddyfile:8",
		"limits {\nwrong_codes 101/24h\n}":                                     "company acme: limits wrong_codes: 101 is against NIST SP 800-63B-4, section 3.2.2; choose at most 100 or, if you must, add the word insecure after it, at Caddyfile:7",
		"otp {\nfixed 123456 60012345\n}":                                      `company acme: otp fixed: "60012345" is not a possible phone; write it as an international number, as in +37060012345, at Caddyfile:7`,
		"password {\nregex (?=x)\n}":                                           "company acme: password regex: RE2 can't compile it; correct it: error parsing regexp: invalid or unsupported Perl syntax: `(?=`, at Caddyfile:7",
		"second_factor always":                                                 `company acme: second_factor: "always" is unknown; choose per_account, required or off, at Caddyfile:6`,
		"recovery {\nlink http://a.example/#{token}\n}":                        "company acme: recovery link: write an https URL without credentials; http is allowed only for this machine, at Caddyfile:7",
		"disclaimer terms {\nlink terms.html\n}":                               "company acme: disclaimer terms: link: write a URL like https://host/path, at Caddyfile:7",
		"account a {\nphone 60012345\n}":                                       "company acme: account a: phone: it is not a possible phone; write it as an international number, as in +37060012345, at Caddyfile:7",
		"sms webhook gateway {\nsecret x\n}":                                   "company acme: sms: write a URL like https://host/path, at Caddyfile:6",
		"sms log {\nname a\nname b\n}":                                         "company acme: sms: name already specified; remove one, at Caddyfile:8",
		"sms log {\ncountries\n}":                                              "company acme: sms: countries: <prefix> is missing; write countries <prefix>..., at Caddyfile:7",
		"sms log {\nname \"\"\n}":                                              "company acme: sms: name: the value is empty; write name <name>, at Caddyfile:7",
		"sms log {\ncountries 370\n}":                                          "company acme: sms: countries: '370' is not the beginning of an international number; write it as +370, at Caddyfile:7",
		"sms log\nsms log":                                                     "sms 2: two gateways have the name log; write name and another one into the block of one, at Caddyfile:7",
		"sms webhook https://gateway.example {\nsecret whsec_?\n}":             "company acme: sms: secret: what follows whsec_ must be base64, at Caddyfile:7",
		"sms webhook https://gateway.example {\ntimeout 2m\nsecret {env.X}\n}": "company acme: sms: timeout: '2m' is too long; choose at most 1m, at Caddyfile:7",
		"oauth 1 oidc https://id.example {\nclient_id us\n}":                   "company acme: oauth 1: client_secret is missing; a client without one needs require_pkce, at Caddyfile:8",
		"oauth 1 oidc https://id.example/.well-known/openid-configuration {\nclient_id us\nclient_secret x\nredirect_uri https://a.example\n}": "oauth oidc: issuer: leave out what begins with /.well-known, at Caddyfile:6",
		"oauth 1 oidc https://login.microsoftonline.com/{tenantid}/v2.0 {\nclient_id us\nclient_secret x\nredirect_uri https://a.example\n}":   "company acme: oauth 1: tenants is missing, since this issuer stands for many; name the ids of yours, write any, or write one tenant's id in the issuer, at Caddyfile:10",
	} {
		guesttest.Environment(t)
		_, err := adaptAndValidate("{\nmnemogate {\ncompany acme {\napi_key {env.MNEMOGATE_TEST_KEY}\ncaptcha off\n" + mistake + "\n}\n}\n}")
		if err == nil || !strings.HasSuffix(err.Error(), ": "+want) {
			t.Errorf("%s\n\tgot  %v\n\twant %s", mistake, err, want)
		}
	}
	for company, want := range map[string]string{
		"api_key off":                            "company acme: captcha is missing; choose one, or captcha off, at Caddyfile:4",
		"captcha off":                            "company acme: api_key is missing; add one, or api_key off, at Caddyfile:4",
		"captcha off\napi_key $ACME_API_KEY":     "company acme: api_key: it looks like a shell variable, which Caddy does not replace; write {env.NAME} for the value of NAME, at Caddyfile:6",
		"captcha off\napi_key ${ACME_API_KEY}":   "company acme: api_key: it looks like a shell variable, which Caddy does not replace; write {env.NAME} for the value of NAME, at Caddyfile:6",
		"captcha off\napi_key \"a b\"":           "company acme: api_key: it must be visible ASCII without spaces, because a header carries it, at Caddyfile:6",
		"captcha off\napi_key sha256:0":          "company acme: api_key: sha256: must be followed by 64 hex digits, at Caddyfile:6",
		"captcha turnstile $SECRET\napi_key off": "captcha turnstile: secret: it looks like a shell variable, which Caddy does not replace; write {env.NAME} for the value of NAME, at Caddyfile:5",
		"captcha off\napi_key {ACME_API_KEY}":    "company acme: api_key: a placeholder in it is unknown or is empty; write {env.NAME} or {file.PATH}, and \\{ for a brace, at Caddyfile:6",
	} {
		_, err := adaptAndValidate("{\nmnemogate {\nsecond_factor off\ncompany acme {\n" + company + "\n}\n}\n}")
		if err == nil || !strings.HasSuffix(err.Error(), ": "+want) {
			t.Errorf("%s\n\tgot  %v\n\twant %s", company, err, want)
		}
	}
}

// A placeholder where none is replaced is refused. Otherwise it would be the text that
// users read, or the version of a disclaimer, which then never changes.
func TestPlaceholdersAreReplacedOrRefused(t *testing.T) {
	guesttest.Environment(t)
	for _, option := range []string{
		"disclaimer {env.X} {\ntitle a\n}", "disclaimer terms {env.X} {\ntitle a\n}", "disclaimer terms {\ntitle {env.X}\n}",
		"disclaimer terms {\ntitle a\ntitle lt {env.X}\n}", "disclaimer terms {\ntitle a\ndescription {env.X}\n}",
		"account a {\nlogin {env.X}\n}", "account a {\nlogin a\nquestion {env.X} b\n}",
		"sms log {\nname {env.X}\n}", "mail log {\nname {env.X}\n}",
		"password {\nregex {env.X}\n}", "password {\nregex .* {file.X}\n}",
	} {
		_, err := adaptAndValidate("{\nmnemogate {\ncompany acme {\napi_key {env.MNEMOGATE_TEST_KEY}\ncaptcha off\n" + option + "\n}\n}\n}")
		if err == nil || !regexp.MustCompile(`: placeholders are not replaced here; write .*, at Caddyfile:\d+$`).MatchString(err.Error()) {
			t.Errorf("%s\n\tgot %v", option, err)
		}
	}
	if _, err := adaptAndValidate("{\nmnemogate {\ncompany acme {\napi_key off\ncaptcha off\npassword {\nregex .{8,} \"One of {}\"\n}\n}\n}\n}"); err != nil {
		t.Error(err)
	}
}

// Plain http to another machine requires the word insecure at each address.
func TestHTTPToAnotherMachineNeedsTheWordInsecure(t *testing.T) {
	const refused = "anyone on the network path can read http"
	oauth2 := func(token, userinfo string) string {
		return "oauth 1 oauth2 {\ntoken_url " + token + "\nuserinfo_url " + userinfo +
			"\nsubject id\nclient_id us\nclient_secret s\nredirect_uri https://app.example/\n}"
	}
	oidc := func(issuer string) string {
		return "oauth 1 oidc " + issuer + " {\nclient_id us\nclient_secret s\nredirect_uri https://app.example/\n}"
	}
	for config, want := range map[string]string{
		"sms webhook http://10.0.0.9/sms {\nsecret s\n}":                     "sms: " + refused,
		"sms webhook http://10.0.0.9/sms insecure {\nsecret s\n}":            "",
		"sms webhook http://127.0.0.1:8000/sms {\nsecret s\n}":               "",
		"sms webhook http://[::1]:8000/sms {\nsecret s\n}":                   "",
		"sms webhook https://gateway.example/sms insecure {\nsecret s\n}":    "",
		"sms webhook {env.MNEMOGATE_TEST_URL} {\nsecret s\n}":                "sms webhook: url: " + refused,
		"sms webhook {env.MNEMOGATE_TEST_URL} insecure {\nsecret s\n}":       "",
		"sms webhook http://10.0.0.9/sms INSECURE {\nsecret s\n}":            "wrong argument count",
		"mail smtp mail.example:25 {\nfrom a@b.example\ntls off insecure\n}": "",
		"mail smtp localhost:25 {\nfrom a@b.example\ntls off\n}":             "",
		"mail smtp mail.example:25 {\nfrom a@b.example\ntls off INSECURE\n}": "wrong argument count",
		"mail webhook http://gateway.example/ {\nsecret s\n}":                "mail: " + refused,
		"mail webhook http://gateway.example/ insecure {\nsecret s\n}":       "",
		"captcha siteverify http://captcha.example/ s":                       "captcha: " + refused,
		"captcha siteverify http://captcha.example/ insecure":                "captcha: " + refused, // here the word is the secret
		"captcha siteverify http://captcha.example/ insecure s":              "",
		"captcha siteverify http://captcha.example/ s insecure":              "",
		"captcha siteverify http://localhost:8000/ s":                        "",
		"captcha siteverify insecure http://captcha.example/ s":              "wrong argument count",
		oidc("http://id.example"):                                            "oauth 1: " + refused,
		oidc("http://id.example insecure"):                                   "",
		oidc("http://localhost:8000"):                                        "",
		oauth2("http://id.example/t", "https://id.example/u"):                "oauth 1: token_url: " + refused,
		oauth2("http://id.example/t insecure", "http://id.example/u"):        "oauth 1: userinfo_url: " + refused,
		oauth2("http://id.example/t insecure", "https://id.example/u"):       "",
		oauth2("http://me:pw@id.example/t insecure", "http://localhost/"):    "write it without credentials",
	} {
		guesttest.Environment(t)
		t.Setenv("MNEMOGATE_TEST_URL", "http://10.0.0.9/sms")
		if !strings.Contains(config, "captcha") {
			config += "\ncaptcha off"
		}
		_, err := adaptAndValidate("{\nmnemogate {\ncompany acme {\napi_key k\n" + config + "\n}\n}\n}")
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s\n\tgot %v, want %q", config, err, want)
		}
		if err != nil && !strings.Contains(err.Error(), "at Caddyfile:") {
			t.Errorf("%s\n\tthe error has no line: %v", config, err)
		}
	}
}

// The errors about a wrong count of arguments go to a terminal and perhaps a log, so they
// repeat no secret.
func TestErrorsAboutTheCountOfArgumentsRepeatNoSecret(t *testing.T) {
	guesttest.Environment(t)
	for _, config := range []string{
		"sms webhook https://gateway.example/sms {\nheader X-Key s3cret more\n}",
		"mail webhook https://gateway.example/mail {\nsecret \"\" s3cret\n}",
		"mail smtp mail.example:25 {\nfrom a@b.example\npassword s3cret more\n}",
		"otp {\nfixed s3cret\n}",
		"captcha static s3cret more",
		"captcha turnstile s3cret more",
		"captcha siteverify https://captcha.example/ s3cret more",
		"account a {\nquestion Who? s3cret more\n}",
	} {
		_, err := adaptAndValidate("{\nmnemogate {\ncompany acme {\napi_key off\n" + config + "\n}\n}\n}")
		if err == nil || !regexp.MustCompile(`: (wrong argument count|the value is empty|<phone> is missing); write [a-z]`).MatchString(err.Error()) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s\n\tgot %v", config, err)
		}
	}
}

// Redis on this machine requires neither TLS nor the word insecure.
func TestRedisWithoutTLS(t *testing.T) {
	guesttest.Environment(t)
	for _, urls := range []string{
		"redis://localhost", "redis://127.0.0.2:6379", "redis://[::1]:6379", "unix:///run/redis.sock",
		"rediss://redis.example.com", "redis://10.0.0.1 insecure", "{env.MNEMOGATE_TEST_REDIS} insecure",
	} {
		_, err := adaptAndValidate("{\nmnemogate {\nsessions redis " + urls + "\ncompany acme {\napi_key k\ncaptcha off\n}\n}\n}")
		if err != nil {
			t.Errorf("%s: %v", urls, err)
		}
	}
}
