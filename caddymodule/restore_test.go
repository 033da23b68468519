package caddymodule

import (
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/mnemogate/mnemogate/caddymodule/guest/guesttest"
	"github.com/mnemogate/mnemogate/flows"
)

// Where a configuration names no file for its store, that lies where the service's
// environment says, which need not be that of whoever restores: restore then puts a
// backup nowhere unless it is told where.
func TestRestoreGuessesNoFile(t *testing.T) {
	t.Parallel()
	s := adminSite(t, siteConfig{company: account("alice", "")})
	backup := filepath.Join(s.dir, "backup.db")
	s.cli("", "backup", "--output", backup).want(0)
	store := "store sqlite " + s.dir + "/mnemogate.db"
	for name, line := range map[string]string{"no file": "store sqlite", "no store": ""} {
		s.run(name, func(t *testing.T) {
			config := filepath.Join(t.TempDir(), "Caddyfile")
			if err := os.WriteFile(config, []byte(strings.Replace(s.config, store, line, 1)), 0o600); err != nil {
				t.Fatal(err)
			}
			restore := func(args ...string) outcome {
				return s.cliAt("", "", append([]string{"restore", backup, "--config", config, "--force"}, args...)...)
			}
			restore().want(1, config+" names no file", "--to")
			if _, err := os.Stat(filepath.Join(s.dir, "data", "caddy", "mnemogate")); err == nil {
				t.Error("it restored into the data directory")
			}
			restore("--to", filepath.Join(t.TempDir(), "to.db")).want(0, "1 accounts restored")
		})
	}
	s.run("no configuration", func(*testing.T) {
		s.cliAt("", "", "restore", backup).want(0, filepath.Join(s.dir, "data", "caddy", "mnemogate", "mnemogate.db")+": 1 accounts restored")
	})
}

// The store of the Caddyfile for systemd is where that of a Caddyfile without its
// line would be, and in the unit's state.
func TestDeployedStoreIsNamed(t *testing.T) {
	unit := readDeploy(t, "mnemogate.service")
	if !strings.Contains(unit, "StateDirectory=mnemogate\n") || !strings.Contains(unit, "XDG_DATA_HOME=/var/lib/mnemogate ") {
		t.Error("the unit's state is elsewhere")
	}
	const line = "\n\t\tstore sqlite /var/lib/mnemogate/caddy/mnemogate/mnemogate.db\n"
	if !strings.Contains(readDeploy(t, "Caddyfile"), line) {
		t.Errorf("docs/deploy/Caddyfile lacks %q", line)
	}
}

// The lines of "Moving there" bring along what users have set since the Caddyfile
// made their accounts, and their apps.
func TestMovingKeepsPasswordsAndApps(t *testing.T) {
	t.Parallel()
	_, moving, _ := strings.Cut(pages(t)["docs/many-nodes.md"], "\n## Moving there\n")
	before := adminSite(t, siteConfig{company: account("alice", "")})
	before.cli("a much better secret\n", "account", "set", "alice", "--password").want(0)
	before.cli("", "account", "add", "bob", "--login", "bob").want(0)
	const secret = "GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ"
	app := `{"profile_mnemocode": "bob", "totp_secret": "` + secret + `", "second_factor": true}`
	before.cli(app, "account", "import", "--update").want(0, "1 updated")
	there := adminSite(t, siteConfig{company: account("alice", "")})
	for i, line := range strings.Split(strings.TrimSpace(blocks(moving, "sh")[0]), "\n") {
		s := []*site{before, nil, there}[i]
		if s == nil {
			continue // the reload
		}
		if out, err := s.shell(strings.ReplaceAll(line, "acme.jsonl", before.dir+"/acme.jsonl")).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", line, err, out)
		}
	}
	there.credentials("alice", testPassword).want(flows.ErrCredentialsInvalid)
	there.credentials("alice", "a much better secret").wantState(flows.Authorized)
	there.cli("", "account", "show", "bob").want(0, "totp                  yes")
}

// What the runbook says of a gateway for SMS that is down: a backup code is good once
// the budget is used up.
func TestBackupCodesWhileTheGatewayIsDown(t *testing.T) {
	t.Parallel()
	gateway := guesttest.Serve(t, guesttest.Answering(http.StatusBadGateway, ""))
	s := adminSite(t, siteConfig{company: "sms webhook " + gateway.URL + " {\nsecret " + smsSecret + "\n}\n" +
		account("carol", "phone +37060000003\nsecond_factor")})
	code, _, _ := strings.Cut(s.cli("", "backup-codes", "carol").want(0).out, "\n")
	for range 5 {
		s.credentials("carol", testPassword).want(flows.ErrUnavailable)
	}
	asked := s.credentials("carol", testPassword).wantState(flows.CheckOTP)
	s.post("auth/checkotp", asked.token(), fields{"backup_code": code}).wantState(flows.Authorized)
}

// What docs/deploy/README.md makes before the unit is started has all of its secrets:
// without the file of one it does not start.
func TestDeployedSecretsAreMadeFirst(t *testing.T) {
	made, _, ok := strings.Cut(pages(t)["docs/deploy/README.md"], "\nsystemctl daemon-reload\n")
	if !ok {
		t.Fatal("the page starts nothing")
	}
	for line := range strings.Lines(readDeploy(t, "mnemogate.service")) {
		if secret, ok := strings.CutPrefix(line, "LoadCredential="); ok {
			if name, _, _ := strings.Cut(secret, ":"); !strings.Contains(strings.Join(blocks(made, "sh"), ""), name) {
				t.Errorf("nothing makes the secret %s", name)
			}
		}
	}
}

// What docs/many-nodes.md has PgBouncer ignore it gives to the user, and it is all that
// nodes ask for.
func TestSettingsBehindPgBouncer(t *testing.T) {
	t.Parallel()
	_, section, _ := strings.Cut(pages(t)["docs/many-nodes.md"], "\n### PgBouncer\n")
	statements := blocks(section, "sql")[0]
	ignored := regexp.MustCompile("`ignore_startup_parameters = ([\\w,]+)`").FindStringSubmatch(section)[1]
	var given []string
	for _, found := range regexp.MustCompile(`SET (\w+) =`).FindAllStringSubmatch(statements, -1) {
		given = append(given, found[1])
	}
	if strings.Join(given, ",") != ignored {
		t.Errorf("PgBouncer ignores %s, and the user has %s", ignored, given)
	}
	source, err := os.ReadFile("../store/postgres.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, found := range regexp.MustCompile(`RuntimeParams\["(\w+)"\]`).FindAllSubmatch(source, -1) {
		if name := string(found[1]); !slices.Contains(given, name) && name != "application_name" {
			t.Errorf("nodes also ask for %s", name)
		}
	}
}
