package caddymodule

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the JSON of testdata/*.caddyfiletest and openapi.json anew")

const (
	expects = "\n----------\n" // between a Caddyfile and what is expected of it
	another = "\n==========\n" // between such pairs
)

// testSecret is what no output may hold.
const testSecret = "whsec_c2VjcmV0IHNlY3JldCBzZWNyZXQ="

// testEnvironment sets what the files in testdata refer to, and returns the
// directory in which a database could have been created.
func testEnvironment(t *testing.T) string {
	dir := t.TempDir()
	t.Setenv("XDG_DATA_HOME", dir)
	t.Setenv("HOME", dir)
	t.Setenv("MNEMOGATE_TEST_DIR", dir)
	t.Setenv("MNEMOGATE_TEST_KEY", "key-of-acme")
	t.Setenv("MNEMOGATE_TEST_SECRET", testSecret)
	t.Setenv("MNEMOGATE_TEST_DSN", "postgres://mg:secret@10.0.0.9/mg?sslmode=require")
	t.Setenv("MNEMOGATE_TEST_EMPTY", "")
	return dir
}

// TestCaddyfiles adapts and validates each Caddyfile in testdata. What is
// expected is the JSON it adapts to, or a part of the error.
func TestCaddyfiles(t *testing.T) {
	files, err := filepath.Glob("testdata/*.caddyfiletest")
	if err != nil || len(files) == 0 {
		t.Fatalf("no files: %v", err)
	}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
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
				dir := testEnvironment(t)
				adapted, err := adaptAndValidate(config)
				if want = strings.TrimSpace(want); strings.HasPrefix(want, "{") || *update && want == "" {
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

func checkAdapted(t *testing.T, file, config, want string, adapted []byte, err error) {
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(file, []byte(config+expects+indented(t, adapted)+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(indented(t, []byte(want)), indented(t, adapted)); diff != "" {
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
	if strings.Contains(err.Error(), testSecret) {
		t.Errorf("the error tells a secret: %q", err)
	}
}

// adaptAndValidate does what caddy validate does.
func adaptAndValidate(config string) ([]byte, error) {
	adapted, _, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(config+"\n"), nil)
	if err != nil {
		return nil, err
	}
	var c caddy.Config
	if err := caddy.StrictUnmarshalJSON(adapted, &c); err != nil {
		return adapted, err
	}
	c.Logging = &caddy.Logging{Logs: map[string]*caddy.CustomLog{
		"default": {BaseLog: caddy.BaseLog{WriterRaw: json.RawMessage(`{"output":"discard"}`)}},
	}}
	return adapted, caddy.Validate(&c)
}

func indented(t *testing.T, raw []byte) string {
	t.Helper()
	var out bytes.Buffer
	if err := json.Indent(&out, raw, "", "\t"); err != nil {
		t.Fatalf("%v in %s", err, raw)
	}
	return out.String()
}

// TestExampleIsValid keeps the example from rotting.
func TestExampleIsValid(t *testing.T) {
	testEnvironment(t)
	example, err := os.ReadFile("../Caddyfile.example")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := adaptAndValidate(string(example)); err != nil {
		t.Error(err)
	}
}

// TestConfigKeepsPlaceholders: what the admin API and the autosaved config show
// holds no secret that came from the environment.
func TestConfigKeepsPlaceholders(t *testing.T) {
	testEnvironment(t)
	raw, err := os.ReadFile("testdata/complete.caddyfiletest")
	if err != nil {
		t.Fatal(err)
	}
	config, _, _ := strings.Cut(string(raw), expects)
	adapted, err := adaptAndValidate(config)
	if err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(adapted, []byte("{env.MNEMOGATE_TEST_SECRET}")); n != strings.Count(config, "{env.MNEMOGATE_TEST_SECRET}") {
		t.Errorf("%d placeholders are left in the JSON", n)
	}
	if bytes.Contains(adapted, []byte(testSecret)) || bytes.Contains(adapted, []byte("key-of-acme")) {
		t.Error("the JSON holds a secret")
	}
}
