package caddymodule

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/mnemogate/mnemogate/flows"
	"github.com/mnemogate/mnemogate/store/storetest"
)

// What the page "Coming from elsewhere" shows is done: each export is changed by its
// jq, imported, and its users log in with the passwords that they have.
func TestComingFromElsewhere(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("jq"); err != nil {
		storetest.SkipOrFail(t, "no jq")
	}
	s := adminSite(t, siteConfig{})
	if err := os.WriteFile(filepath.Join(s.dir, "caddy"), []byte("#!/bin/sh\nMNEMOGATE_TEST_CADDY=1 exec "+os.Args[0]+` "$@"`), 0o700); err != nil {
		t.Fatal(err)
	}
	anew := regexp.MustCompile(`in [\d.]+m?s`)
	for _, step := range consoleSteps(pages(t)["docs/coming-from.md"]) {
		if file, ok := strings.CutPrefix(step.command, "cat "); ok {
			if err := os.WriteFile(filepath.Join(s.dir, file), []byte(step.shown), 0o600); err != nil {
				t.Fatal(err)
			}
			continue
		}
		cmd := s.caddy()
		cmd.Path, cmd.Args = "/bin/sh", []string{"sh", "-c", step.command}
		cmd.Dir = s.dir
		cmd.Env = append(cmd.Env, "PATH="+s.dir+":"+os.Getenv("PATH"), "CADDY_ADMIN=unix/"+s.dir+"/admin.sock")
		out, _ := cmd.CombinedOutput() // the page shows what failed
		step.compare(t, string(out), anew)
	}
	for login, password := range map[string]string{
		"lena@example.com":   "lètmein",
		"noor@example.com":   "user1password",
		"+37060077777":       "test",
		"kim":                "password",
		"wil":                "correct horse battery",
		"pia@example.com":    "correct horse battery",
		"ava@example.com":    "test",
		"euclid@example.com": "test",
	} {
		s.post("auth/checkcredentials", "", fields{"login_id": login, "password": password}).wantState(flows.Authorized)
	}
	for mnemocode, want := range map[string]fields{
		"django-8":     {"status": "closed", "login_name": "mo", "password_set": false, "primary_email": nil},
		"Qm9ab":        {"primary_phone": "+37060054321", "password_set": false, "created_at": "2024-05-01T09:00:00Z"},
		"auth0|euclid": {"primary_email": "euclid@example.com"},
	} {
		got := s.admin("GET", "accounts/"+strings.ReplaceAll(mnemocode, "|", "%7C"), nil).wantStatus(200)
		for field, value := range want {
			if got.JSON[field] != value {
				t.Errorf("%s: %s is %v, want %v", mnemocode, field, got.JSON[field], value)
			}
		}
	}
}
