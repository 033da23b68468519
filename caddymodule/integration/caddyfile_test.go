package integration

import (
	"bytes"
	"encoding/json"
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

const expects = "\n----------\n" // between a Caddyfile and the expected result

// TestCaddyfiles adapts and validates each Caddyfile in testdata. It expects the adapted
// JSON without lines (the tests of mistakes are about these).
func TestCaddyfiles(t *testing.T) {
	files := get(filepath.Glob("testdata/*.caddyfiletest"))(t)
	if len(files) < 5 {
		t.Error("there are only", files)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".caddyfiletest"), func(t *testing.T) {
			config, want, _ := strings.Cut(strings.ReplaceAll(string(get(os.ReadFile(file))(t)), "\r\n", "\n"), expects)
			dir := guesttest.Environment(t)
			got := lines.ReplaceAllString(indented(t, get(adaptAndValidate(config))(t)), `"Caddyfile"`)
			if *storetest.Update {
				must(t, os.WriteFile(file, []byte(config+expects+got+"\n"), 0o644))
			} else if diff := cmp.Diff(indented(t, []byte(strings.TrimSpace(want))), got); diff != "" {
				t.Errorf("the JSON differs (-want +got):\n%s", diff)
			}
			if entries, _ := os.ReadDir(dir); len(entries) > 0 {
				t.Errorf("validating created %s", entries[0].Name())
			}
		})
	}
}

// lines matches positions. An option that is added would move all that follow.
var lines = regexp.MustCompile(`"Caddyfile:[0-9]+"`)

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
