package integration

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/tokens"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// The commands in the runbook do what it says.
func TestConsolesOfTheRunbook(t *testing.T) {
	t.Parallel()
	need(t, "jq")
	s := adminSite(t, siteConfig{audit: true})
	for mnemocode, name := range map[string]string{"alice": "alice", "-b": "bob"} {
		s.admin("POST", "accounts", fields{"profile_mnemocode": mnemocode, "primary_email": name + "@example.com", "password": testPassword,
			"status": "restricted", "oauth_identities": []fields{{"provider_id": 1, "subject": name}}, "control_question": "?", "control_answer": "!"}).wantStatus(201)
		s.credentials(name+"@example.com", testPassword).want(wire.ErrUserRestricted)
		s.admin("PATCH", "accounts/"+mnemocode, fields{"status": "active"}).wantStatus(200)
	}
	s.importAll("?update=true", `{"profile_mnemocode":"-b","totp_secret":"JBSWY3DPEHPK3PXPJBSWY3DPEHPK3PXP"}`)
	page := pages(t)["docs/runbook.md"]
	for _, heading := range []string{smsPumping, manyWrongPasswords, waveOfBreached, refusedTogether} {
		page = strings.Replace(page, section(t, "docs/runbook.md", heading), "", 1)
	}
	s.runConsoles(page, regexp.MustCompile(`failed in \S+`))
	for name, status := range map[string]string{"alice": "restricted", "-b": "active"} {
		s.admin("GET", "accounts/"+name, nil).wantField("must_set_password", false).wantField("password_set", true).wantField("totp", false).wantField("status", status)
	}
	s.admin("GET", "accounts/alice", nil).wantField("control_question", nil)
	s.credentials("bob@example.com", testPassword).want(wire.ErrCredentialsInvalid)
}

// This follows the page "Coming from elsewhere": each export of docs/examples/coming-from is
// converted by its jq program and imported, and its users log in with their old passwords.
func TestComingFromElsewhere(t *testing.T) {
	t.Parallel()
	need(t, "jq")
	s := adminSite(t, siteConfig{})
	patient := &http.Client{Timeout: 2 * time.Minute} // these hashes are expensive, and get little of a busy machine
	must(t, os.CopyFS(s.dir, os.DirFS("../../docs/examples/coming-from")))
	verifies := s.shell("sed 's/# primary_email/primary_email/' django.jq > verifies.jq && jq -cf verifies.jq django.jsonl")
	if out := output(t, verifies); !strings.Contains(out, `"primary_email":"lena@example.com","email_verified_at":"2024-05-01T09:00:00Z"`) {
		t.Errorf("Django with emails: %s", out)
	}
	writeFile(t, s.dir+"/.htpasswd", "tom:$apr1$Zdxv4/C7$BKglgcBr74uOKbrbShwZo0\n")
	imported := ""
	for _, block := range blocks(pages(t)["docs/coming-from.md"], "sh") {
		for line := range strings.Lines(block) {
			if strings.HasPrefix(line, "jq ") {
				out := get(s.shell(line + "caddy mnemogate account import accounts.jsonl").CombinedOutput())(t)
				imported += regexp.MustCompile(`\d+ created.* failed`).FindString(string(out)) + "\n"
			}
		}
	}
	const want = "2 created, 0 updated, 0 skipped, 0 failed\n"
	one, three := strings.Replace(want, "2", "1", 1), strings.Replace(want, "2", "3", 1)
	if all := want + three + want + want + want + one + three; imported != all {
		t.Errorf("got %s, want %s", imported, all)
	}
	get(s.shell("caddy mnemogate account import aspnet.csv").Output())(t)
	for login, c := range map[string]struct {
		password string
		state    record.State
	}{
		"lena":             {"lètmein", record.Authorized},
		"noor@example.com": {"user1password", record.CheckOTP},
		"+37060077777":     {"test", record.CheckOTP},
		"kim":              {"password", record.CheckOTP},
		"wil":              {"correct horse battery", record.Authorized},
		"pia@example.com":  {"correct horse battery", record.Authorized},
		"ava@example.com":  {"test", record.CheckOTP},
		"uma":              {"my password", record.Authorized},
		"tom":              {"correct horse battery", record.Authorized},
	} {
		step := s.postRequest("acme", testKey, "auth/login", "", fields{"login_id": login})
		r := s.postRequest("acme", testKey, "auth/checkpassword", s.do(step).token(), fields{"password": c.password})
		a := get(s.try(patient, r))(t).wantState(c.state)
		if secret := map[string]string{"+37060077777": "12345678901234567890", "kim": "Quohp7t2mrLMUwft3g90"}[login]; secret != "" {
			code := tokens.TOTPCode([]byte(secret), time.Now().Unix()/30)
			s.post("auth/checkotp", a.token(), fields{"otp": code}).wantState(record.Authorized)
		}
	}
	step := s.post("auth/login", "", fields{"login_id": "lou"}) // had an app that cannot be taken along
	s.post("auth/checkpassword", step.token(), fields{"password": "password"}).wantField("reason", string(wire.NoSecondFactor))
	identity := func(provider float64, subject string) map[string]any {
		return map[string]any{"provider_id": provider, "subject": subject}
	}
	none := []any{}
	for mnemocode, want := range map[string]fields{
		"django-7": {"role": "staff", "primary_email": nil, "status": "active"},
		"django-9": {"role": "superuser", "status": "closed", "login_name": "max", "created_at": "2024-06-02T10:30:00.25Z"},
		"XkT2p":    {"primary_phone": "+37060054329", "second_factor": true, "role": "editor", "oauth_identities": none},
		"Qm9ab": {"primary_phone": "+37060054321", "password_set": false, "second_factor": false, "created_at": "2024-05-01T09:00:00Z",
			"oauth_identities": []any{identity(1, "108765"), identity(2, "001.a")}},
		"Rn3cd":                                {"second_factor": true, "totp": false, "status": "closed"},
		"7d9f2c1e-0b6a-4c55-9d3e-5f1a8a1b2c3d": {"second_factor": true, "totp": true, "role": "editor", "oauth_identities": []any{identity(1, "2210")}},
		"8e0a3d2f-0b6a-4c55-9d3e-5f1a8a1b2c3d": {"second_factor": true, "totp": false, "primary_phone": "+37060077778", "status": "restricted"},
		"1f0c":                                 {"second_factor": true, "totp": true, "role": "editor", "locale": "lt", "primary_phone": "+37060088881", "oauth_identities": []any{identity(1, "4711")}},
		"3a2b":                                 {"second_factor": true, "totp": false, "role": nil, "must_set_password": true},
		"wp-3":                                 {"role": "editor"},
		"auth0|5dea9f9c82dd7c0e76e4ec93":       {"second_factor": true, "role": "editor", "primary_phone": "+37060099991", "oauth_identities": []any{identity(1, "1087")}},
		"auth0|euclid":                         {"primary_email": "euclid@example.com", "status": "closed", "password_set": true},
		"github|583231":                        {"primary_email": nil, "primary_phone": nil, "oauth_identities": []any{identity(3, "583231")}},
	} {
		got := s.admin("GET", "accounts/"+strings.ReplaceAll(mnemocode, "|", "%7C"), nil).wantStatus(200)
		for field, value := range want {
			if !reflect.DeepEqual(got.JSON[field], value) {
				t.Errorf("%s: %s is %v, want %v", mnemocode, field, got.JSON[field], value)
			}
		}
		for contact, proven := range map[string]string{"primary_email": "email_verified_at", "primary_phone": "phone_verified_at"} {
			if (got.JSON[contact] == nil) != (got.JSON[proven] == nil) {
				t.Errorf("%s: %s is %v, %s %v", mnemocode, contact, got.JSON[contact], proven, got.JSON[proven])
			}
		}
	}
	for _, mnemocode := range []string{"django-8", "Anonym", "9f1b4e3a-0b6a-4c55-9d3e-5f1a8a1b2c3d", "4b3c", "2e1d", "auth0%7Cnobody"} {
		s.admin("GET", "accounts/"+mnemocode, nil).wantStatus(404) // they have nothing to log in with
	}
	leaving := blocks(section(t, "docs/coming-from.md", "Leaving"), "sh")[0]
	out := string(get(s.shell(leaving).Output())(t))
	if !strings.Contains("\n"+out, "\nlena:$argon2id$v=19$m=") {
		t.Errorf("lena is not in\n%s", out)
	}
	for line := range strings.Lines(out) {
		if login, hash, _ := strings.Cut(line, ":"); login == "null" || login == "max" || !strings.HasPrefix(hash, "$argon2id$") {
			t.Errorf("%q is no active account with argon2id", line)
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
