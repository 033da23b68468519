package guest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/mnemogate/mnemogate/caddymodule/guest/guesttest"
	"github.com/mnemogate/mnemogate/store/storetest"
)

func TestSecretsAreResolvedOrRefusedWithoutBeingTold(t *testing.T) {
	t.Setenv("MNEMOGATE_TEST_SECRET", "s3cr3t")
	t.Setenv("MNEMOGATE_TEST_EMPTY", "")
	file, empty := filepath.Join(t.TempDir(), "secret"), filepath.Join(t.TempDir(), "empty")
	storetest.Must(t, os.WriteFile(empty, []byte("\n"), 0o600))
	storetest.Must(t, os.WriteFile(file, []byte("from-file\n"), 0o600))
	for in, want := range map[string]string{
		"plain":                              "plain",
		"":                                   "",
		"{env.MNEMOGATE_TEST_SECRET}":        "s3cr3t",
		"pre-{env.MNEMOGATE_TEST_SECRET}":    "pre-s3cr3t",
		"{file." + file + "}":                "from-file",
		`a\{b\}c`:                            "a{b}c",
		"{env.MNEMOGATE_TEST_SECRET}{}" + "": "",
	} {
		got := in
		err := ResolveInto("sms webhook: secret", &got)
		if strings.HasSuffix(in, "{}") {
			guesttest.NoSecrets(t, err, "s3cr3t", "{}")
			continue
		}
		if err != nil || got != want {
			t.Errorf("%s: got %q, %v, want %q", in, got, err, want)
		}
	}
	for in, want := range map[string]string{
		"{env.MNEMOGATE_TEST_ABSENT}":  "{env.MNEMOGATE_TEST_ABSENT} is not set; set the variable",
		"{env.MNEMOGATE_TEST_EMPTY}":   "{env.MNEMOGATE_TEST_EMPTY} is empty; give the variable its value",
		"{file.absent-file}":           "{file.absent-file} can't be read (open absent-file: no such file or directory); correct the path",
		"{file." + empty + "}":         "is empty; write the secret into the file",
		"{file." + t.TempDir() + "}":   "is a directory); correct the path",
		"pass{word}":                   "sms webhook: secret",
		"x{env.MNEMOGATE_TEST_ABSENT}": "sms webhook: secret",
	} {
		err := ResolveInto("sms webhook: secret", &in)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "sms webhook: secret") {
			t.Errorf("%s: got %v, want an error with %q", in, err, want)
		}
	}
	for _, in := range []string{"s3cr3t\n", "s3cr3t\r\n\r\n", "\ufeffs3cr3t", "s3c\tr3t"} { // of a variable, since one line break of a file is dropped
		t.Setenv("MNEMOGATE_TEST_SECRET", in)
		secret := "{env.MNEMOGATE_TEST_SECRET}"
		err := ResolveInto("sms webhook: secret", &secret)
		guesttest.NoSecrets(t, err, "s3c")
		if err == nil || !strings.HasPrefix(err.Error(), "sms webhook: secret: it has a line break, ") {
			t.Errorf("%q: got %v", in, err)
		}
	}
	t.Setenv("MNEMOGATE_TEST_SECRET", "-----BEGIN PRIVATE KEY-----\nAA==\n-----END PRIVATE KEY-----\n")
	key := "{env.MNEMOGATE_TEST_SECRET}"
	if err := ResolveInto("assertion: key", &key); err != nil {
		t.Errorf("a key of several lines: %v", err)
	}
	braces := "pass{word}"
	err := ResolveInto("sms webhook: secret", &braces)
	guesttest.NoSecrets(t, err, "word}", "pass")
}

func TestScrubLeavesOneShortLineWithoutSecrets(t *testing.T) {
	got := Scrub("a\r\nb \xff s3cr3t c"+strings.Repeat("ü", 400), "s3cr3t", "")
	if !strings.HasPrefix(got, `a\r\nb \xff (removed) cü`) || len(got) > maxQuoted+3 {
		t.Errorf("got %q", got)
	}
}

// A secret that was written without its quotes is not in the error, which logs may keep.
func TestASecretOfSeveralWordsIsNotTold(t *testing.T) {
	d := caddyfile.NewTestDispenser("password hunter2 horse")
	d.Next()
	var password string
	if err := Syntax(d, "password <secret>", Text(&password)); err == nil || strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), "horse") {
		t.Errorf("got %v", err)
	}
}
