package integration

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// The commands in the runbook do what it says.
func TestConsolesOfTheRunbook(t *testing.T) {
	t.Parallel()
	need(t, "jq")
	s := adminSite(t, siteConfig{audit: true})
	for _, name := range []string{"alice", "bob"} {
		s.admin("POST", "accounts", fields{"profile_mnemocode": name, "primary_email": name + "@example.com", "password": testPassword,
			"status": "restricted", "oauth_identities": []fields{{"provider_id": 1, "subject": name}}, "control_question": "?", "control_answer": "!"}).wantStatus(201)
		s.credentials(name+"@example.com", testPassword).want(wire.ErrUserRestricted)
		s.admin("PATCH", "accounts/"+name, fields{"status": "active"}).wantStatus(200)
	}
	s.importAll("?update=true", `{"profile_mnemocode":"bob","totp_secret":"JBSWY3DPEHPK3PXPJBSWY3DPEHPK3PXP"}`)
	page := pages(t)["docs/runbook.md"]
	for _, heading := range []string{smsPumping, manyWrongPasswords, waveOfBreached, refusedTogether} {
		page = strings.Replace(page, section(t, "docs/runbook.md", heading), "", 1)
	}
	s.runConsoles(page, regexp.MustCompile(`^$`))
	for name, status := range map[string]string{"alice": "restricted", "bob": "active"} {
		if got := s.admin("GET", "accounts/"+name, nil); got.JSON["must_set_password"] != false || got.JSON["password_set"] != true || got.JSON["status"] != status {
			t.Errorf("got %s", got.Body)
		}
	}
	if got := s.admin("GET", "accounts/alice", nil); got.JSON["control_question"] != nil {
		t.Errorf("got %s", got.Body)
	}
	s.credentials("bob@example.com", testPassword).want(wire.ErrCredentialsInvalid)
}

// This follows the page "Coming from elsewhere": each export is converted by its jq
// program and imported, and its users log in with their old passwords.
func TestComingFromElsewhere(t *testing.T) {
	t.Parallel()
	need(t, "jq")
	s := adminSite(t, siteConfig{})
	patient := &http.Client{Timeout: 2 * time.Minute} // these hashes are expensive, and get little of a busy machine
	s.runConsoles(pages(t)["docs/coming-from.md"], regexp.MustCompile(`in [\d.]+m?s`))
	for login, password := range map[string]string{
		"lena@example.com":   "lètmein",
		"noor@example.com":   "user1password",
		"+37060077777":       "test",
		"kim":                "password",
		"wil":                "correct horse battery",
		"pia@example.com":    "correct horse battery",
		"ava@example.com":    "test",
		"euclid@example.com": "test",
		"uma":                "my password",
		"tom":                "correct horse battery",
	} {
		r := s.postRequest("acme", testKey, "auth/checkcredentials", "", fields{"login_id": login, "password": password})
		get(s.try(patient, r))(t).wantState(record.Authorized)
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

// runConsoles runs the commands that a page shows, in a directory where caddy is
// this program. It compares their output with the page, except for what differs in
// each run. A cat command creates the file that it shows.
func (s *site) runConsoles(page string, anew *regexp.Regexp) {
	s.t.Helper()
	for _, step := range consoleSteps(page) {
		if file, ok := strings.CutPrefix(step.command, "cat "); ok {
			must(s.t, os.WriteFile(filepath.Join(s.dir, file), []byte(step.shown), 0o600))
			continue
		}
		out, _ := s.shell(strings.ReplaceAll(step.command, "/var/log/mnemogate/", s.dir+"/")).CombinedOutput() // the page also shows commands that fail
		step.compare(s.t, string(out), anew)
	}
}

// shell returns a command that runs in a directory where caddy is this program, with
// the site's admin endpoint.
func (s *site) shell(command string) *exec.Cmd {
	s.t.Helper()
	caddy := "#!/bin/sh\nMNEMOGATE_TEST_CADDY=1 exec " + os.Args[0] + ` "$@"`
	must(s.t, os.WriteFile(filepath.Join(s.dir, "caddy"), []byte(caddy), 0o700))
	cmd := s.caddy()
	cmd.Path, cmd.Args = "/bin/sh", []string{"sh", "-c", command}
	cmd.Dir = s.dir
	cmd.Env = append(cmd.Env, "PATH="+s.dir+":"+os.Getenv("PATH"), "CADDY_ADMIN=unix/"+s.dir+"/admin.sock")
	return cmd
}
