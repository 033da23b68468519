package caddymodule

import (
	"bytes"
	"encoding/json"
	"errors"
	"net"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// An outcome is what came of a command.
type outcome struct {
	t         *testing.T
	args      []string
	out, errs string
	exit      int
}

// cli runs caddy mnemogate against the site.
func (s *site) cli(stdin string, args ...string) outcome {
	s.t.Helper()
	return s.cliAt("unix/"+s.dir+"/admin.sock", stdin, args...)
}

func (s *site) cliAt(address, stdin string, args ...string) outcome {
	s.t.Helper()
	if address != "" {
		args = append([]string{"--address", address}, args...)
	}
	cmd := s.caddy(append([]string{"mnemogate"}, args...)...)
	cmd.Stdin = strings.NewReader(stdin)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	o := outcome{t: s.t, args: args, out: out.String(), errs: errs.String()}
	if ended, ok := errors.AsType[*exec.ExitError](err); ok {
		o.exit = ended.ExitCode()
	} else if err != nil {
		s.t.Fatal(err)
	}
	return o
}

func (o outcome) want(exit int, parts ...string) outcome {
	o.t.Helper()
	if o.exit != exit {
		o.t.Fatalf("%v: exit status %d, want %d\n%s%s", o.args, o.exit, exit, o.out, o.errs)
	}
	for _, part := range parts {
		if !strings.Contains(o.out+o.errs, part) {
			o.t.Fatalf("%v: no %q in\n%s%s", o.args, part, o.out, o.errs)
		}
	}
	return o
}

// object is the answer to a command with --json.
func (o outcome) object() fields {
	o.t.Helper()
	var object fields
	if err := json.Unmarshal([]byte(o.out), &object); err != nil {
		o.t.Fatalf("%v: %s: %v", o.args, o.out, err)
	}
	return object
}

func TestCommandsManageAccounts(t *testing.T) {
	t.Parallel()
	s := adminSite(t, siteConfig{})
	added := s.cli(testPassword+"\nTom\n", "account", "add", "alice", "--email", "Alice@example.com", "--phone", "0037060012345",
		"--login", "alice", "--role", "tester", "--password", "--question", "Cat?", "--answer", "--identity", "2:sub-2").
		want(0, "profile_mnemocode     alice\n", "primary_phone         +37060012345\n", "oauth_identities      2:sub-2\n", "password_set          yes\n")
	if strings.Contains(added.out+added.errs, testPassword) {
		t.Error("the password is shown")
	}
	s.login("alice")
	s.cli("", "account", "add", "alice").want(3, "profile_mnemocode is taken")
	s.cli("", "account", "add", "bob", "--login", "ALICE").want(3, "login_name is taken")
	s.cli("", "account", "add", "b b").want(1, "profile_mnemocode")
	s.cli("", "account", "add", "bob", "--identity", "x").want(1, "provider:subject")
	s.cli("\n", "account", "add", "bob", "--password").want(1, "the line is empty")
	s.cli("", "account", "add").want(1, "accepts 1 arg")
	s.cli("", "account", "add", "bob", "--nonsense").want(1, "unknown flag")
	s.cli(readyHash+"\n", "account", "add", "bob", "--login", "bob", "--password-hash").want(0)
	s.post("auth/checkcredentials", "", fields{"login_id": "bob", "password": "test"}).wantState(record.Authorized)

	s.run("show", func(t *testing.T) {
		for _, name := range []string{"alice", "ALICE@EXAMPLE.COM", "+370 600 12345"} {
			s.cli("", "account", "show", name).want(0, "primary_email         Alice@example.com\n")
		}
		s.cli("", "account", "show", "nobody").want(2, `Error: the company has no account "nobody"`)
		s.cli("", "account", "show", "nobody", "--by", "mnemocode", "--json").want(2, `{"error":`)
		if got := s.cli("", "account", "show", "alice", "--json").want(0).object(); got["login_name"] != "alice" || got["locked_until"] != nil {
			t.Errorf("got %v", got)
		}
	})
	s.run("an argument that names two accounts", func(t *testing.T) {
		s.cli("", "account", "add", "zed", "--login", "zoe").want(0)
		s.cli("", "account", "add", "zoe", "--login", "zed").want(0)
		s.cli("", "account", "delete", "zed", "--yes").want(3, "--by mnemocode")
		s.cli("", "account", "delete", "zed", "--yes", "--by", "nonsense").want(1, "--by is")
		s.cli("", "account", "delete", "zed", "--yes", "--by", "login-id").want(0, "zoe: deleted")
		s.cli("", "account", "delete", "zed", "--by", "mnemocode").want(1, "--yes")
		s.cli("", "account", "delete", "zed", "--by", "mnemocode", "--yes", "--json").want(0, `{"profile_mnemocode":"zed","result":"deleted"}`)
	})
	s.run("set", func(t *testing.T) {
		token := s.login("alice")
		s.cli("", "account", "set", "alice", "--login", "liz", "--locale", "de-ch", "--must-set-password").want(0, "login_name            liz\n", "locale                de-CH\n", "must_set_password     yes\n")
		s.get("/", token).wantStatus(200)
		s.cli("", "account", "set", "alice", "--login", "alice").want(0)
		s.cli("", "account", "set", "alice", "--role", "", "--must-set-password=false").want(0, "role                  -\n")
		s.get("/", token).want(wire.ErrTokenInvalid)
		s.cli("", "account", "set", "alice", "--status", "gone").want(1, "status: it must be active")
		s.cli("", "account", "set", "alice", "--status", "active", "--phone", "", "--identity", "").want(0, "primary_phone         -\n", "oauth_identities      -\n")
		s.cli("", "account", "set", "alice").want(1, "nothing to change")
		s.cli("", "account", "set", "alice", "--no-password").want(0, "password_set          no\n")
		s.cli(testPassword, "account", "set", "alice", "--password").want(0)
		s.login("alice")
	})
	s.run("list", func(t *testing.T) {
		list := s.cli("", "account", "list").want(0)
		if want := regexp.MustCompile(`^MNEMOCODE +STATUS +PHONE +EMAIL +LOGIN +PASSWORD +LOCKED UNTIL\nalice +active +- +Alice@example.com +alice +yes +-\nbob +active +- +- +bob +yes +-\n$`); !want.MatchString(list.out) {
			t.Errorf("got\n%s", list.out)
		}
		s.cli("", "account", "list", "--limit", "1").want(0, "There are more: --after alice")
		if all := s.cli("", "account", "list", "--limit", "1", "--all", "--json").want(0); strings.Count(all.out, "\n") != 2 || !strings.Contains(all.out, `"profile_mnemocode":"bob"`) {
			t.Errorf("got %s", all.out)
		}
		s.cli("", "account", "list", "--limit", "0").want(1, "limit")
	})
	s.run("sessions, backup codes and unlock", func(t *testing.T) {
		s.cli("", "sessions", "end", "alice").want(0)
		token := s.login("alice")
		s.cli("", "sessions", "list", "alice").want(0, "SESSION", "LAST USED", "authorized", "127.0.0.1  Go-http-client")
		one := s.cli("", "sessions", "list", "alice", "--json").want(0, `"session_state":"authorized"`, `"user_agent":"Go-http-client/1.1"`)
		other := s.login("alice")
		s.cli("", "sessions", "end", "alice", "none").want(2, "no such session")
		id := one.object()["session_id"].(string)
		s.cli("", "sessions", "end", "alice", id).want(0, "alice: session ended")
		s.cli("", "sessions", "end", "alice", id).want(2)
		s.get("/", token).want(wire.ErrTokenInvalid)
		s.get("/", other).wantStatus(200)
		s.cli("", "sessions", "end", "alice@example.com").want(0, "alice: all sessions ended")
		s.get("/", other).want(wire.ErrTokenInvalid)
		other = s.login("alice")
		s.cli("", "sessions", "end").want(1, "--all")
		s.cli("", "sessions", "end", "alice", "--all", "--company", "acme").want(1, "--all")
		s.cli("", "sessions", "end", "--all").want(1, "--company")
		s.cli("", "sessions", "end", "--all", "--company", "nobody").want(2, "no such company")
		s.get("/", other).wantStatus(200)
		s.cli("", "sessions", "end", "--all", "--company", "acme").want(0, "acme: all sessions ended")
		s.get("/", other).want(wire.ErrTokenInvalid)
		s.cli("", "sessions", "end", "--all", "--company", "acme", "--json").want(0, `{"company":"acme","result":"all sessions ended"}`)
		codes := s.cli("", "backup-codes", "alice").want(0)
		if !regexp.MustCompile(`^([A-Z2-7]{5}-[A-Z2-7]{5}\n){10}$`).MatchString(codes.out) {
			t.Errorf("got %s", codes.out)
		}
		s.cli("", "backup-codes", "alice", "--json").want(0, `{"backup_codes":["`)
		s.cli("", "account", "unlock", "alice").want(0, "alice: unlocked")
		s.cli("", "account", "unlock", "nobody").want(2)
	})
}

func TestCommandsImportAndExport(t *testing.T) {
	t.Parallel()
	s := adminSite(t, siteConfig{more: "company umbrella {\napi_key k\ncaptcha off\n}"})
	file := func(name, content string) string {
		t.Helper()
		path := s.dir + "/" + name
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	acme := []string{"--company", "acme"}
	s.cli("", "account", "list").want(1, "choose one with --company: acme, umbrella")
	s.cli("", "account", "list", "--company", "nobody").want(2, "no such company")

	var lines strings.Builder
	for i := range 4500 { // of several chunks
		line := importLine(i)
		if i == 4321 {
			line = strings.Replace(line, "+3706", "8-6", 1)
		}
		lines.WriteString(line + "\n")
	}
	users := file("users.jsonl", lines.String())
	s.cli("", append(acme, "account", "import", users)...).want(1, "line 4322: primary_phone: ", "4,499 created, 0 updated, 0 skipped, 1 failed")
	s.cli(importLine(0)+"\n"+importLine(9999), append(acme, "import", "-", "--json")...).want(0, `{"created":1,"updated":0,"skipped":1,"failed":0}`)
	s.cli(`{"profile_mnemocode":"user-000000","role":"x"}`, append(acme, "account", "import", "--update")...).want(0, "0 created, 1 updated, 0 skipped, 0 failed")

	s.run("CSV", func(t *testing.T) {
		users := file("users.csv", "\ufeffprofile_mnemocode,primary_email,second_factor,must_set_password,role,oauth_identities,disclaimers_accepted,password_hash\r\n"+
			"c1,c1@example.com,yes,,\"a, b\nc\",1:x 2:y,,"+readyHash+"\r\n"+
			"c2,c2@example.com,no,1,,\"[{\"\"provider_id\"\":1,\"\"subject\"\":\"\"z\"\"}]\",\"[{\"\"code\"\":\"\"terms\"\",\"\"version\"\":\"\"1\"\"}]\",\r\n"+
			"c3,too,few\r\n"+
			"c4,c4@example.com,perhaps,,,,,\r\n"+
			"c5,c5@example.com,,,,,,\"{\"\"credentialData\"\":\"\"{\\\"\"hashIterations\\\"\":27500,\\\"\"algorithm\\\"\":\\\"\"pbkdf2-sha256\\\"\"}\"\",\"\"secretData\"\":\"\"{\\\"\"value\\\"\":\\\"\"JsfNbCOIdZUbyBJ+BT+VoGI91Ec2rWLOvkLPDaX8e9k=\\\"\",\\\"\"salt\\\"\":\\\"\"P5rtFkGtPfoaryJ6PizUJw==\\\"\"}\"\"}\"\r\n")
		s.cli("", append(acme, "account", "import", users)...).want(1,
			"line 2: role: it contains a control character", "line 5: it has 3 cells, the first line 8", "line 6: second_factor: ", "2 created, 0 updated, 0 skipped, 3 failed")
		s.cli("", append(acme, "account", "show", "c2")...).want(0, "1:z", "must_set_password     yes", "terms 1 on ")
		s.post("auth/checkcredentials", "", fields{"login_id": "c5@example.com", "password": "password"}).wantState(record.Authorized)
		s.cli("profile_mnemocode,nonsense\n", append(acme, "account", "import", "--format", "csv")...).want(1, "nonsense")
		s.cli("", append(acme, "account", "import", "--format", "xml")...).want(1, "jsonl or csv")
		s.cli("", append(acme, "account", "import", s.dir+"/absent")...).want(1, "no such file")
	})
	s.run("export and import into another company", func(t *testing.T) {
		out := s.dir + "/export.jsonl"
		s.cli("", append(acme, "export", "--output", out)...).want(0)
		if info, err := os.Stat(out); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%v, %v", info, err)
		}
		s.cli("", append(acme, "account", "export", "--output", out)...).want(1, "exists")
		s.cli("", "--company", "umbrella", "account", "import", out).want(0, "4,502 created")
		first := s.cli("", append(acme, "export")...).want(0)
		second := s.cli("", "--company", "umbrella", "account", "export").want(0)
		if first.out != second.out || strings.Count(first.out, "\n") != 4502 {
			t.Error("the exports differ")
		}
	})
	s.run("an import outlives a reload", func(t *testing.T) {
		var lines strings.Builder
		for i := 100_000; i < 110_000; i++ {
			lines.WriteString(importLine(i) + "\n")
		}
		users := file("more.jsonl", lines.String())
		done := make(chan error, 1)
		go func() {
			for range 3 {
				if err := s.load(); err != nil {
					done <- err
					return
				}
				time.Sleep(200 * time.Millisecond)
			}
			done <- nil
		}()
		got := s.cli("", append(acme, "account", "import", users, "--json")...).want(0)
		if err := <-done; err != nil {
			t.Error(err)
		}
		counts := got.object()
		if counts["created"].(float64)+counts["skipped"].(float64) != 10_000 {
			t.Errorf("got %v", counts)
		}
	})
}

func TestDoctorTellsWhatIsWrong(t *testing.T) {
	t.Parallel()
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := closed.Addr().String()
	_ = closed.Close()
	s := adminSite(t, siteConfig{more: "company umbrella {\napi_key off\ncaptcha static right\nsms log\nmail smtp " + address + " {\nfrom a@example.com\ntls off\n}\n}"})
	s.cli("", "doctor").want(1,
		"ok       admin endpoint", "accounts store", "sessions store",
		"acme: captcha", "ok       acme: sms", "ok       acme: mail",
		"umbrella: api_key", "umbrella: captcha", "umbrella: sms", "failed   umbrella: mail", "is not reached", "→ ", "1 of ")
	if got := s.cli("", "doctor", "--json").want(1); !strings.Contains(got.out, `{"check":"mail","company":"umbrella","result":"failed","message":"`+address) {
		t.Errorf("got %s", got.out)
	}
	if err := s.reload(siteConfig{company: "captcha off"}); err != nil {
		t.Fatal(err)
	}
	s.cli("", "doctor").want(0, "warning  acme: captcha")
	s.cliAt("unix/"+s.dir+"/absent.sock", "", "doctor").want(4, "is Caddy running?")
	s.cliAt("127.0.0.1:1-5", "", "doctor").want(1, "no address")
}

func TestCommandsDocumentThemselves(t *testing.T) {
	t.Parallel()
	s := &site{t: t, dir: t.TempDir()}
	run := func(args ...string) string {
		t.Helper()
		out, err := s.caddy(args...).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
		return string(out)
	}
	for _, command := range []string{
		"account", "account add", "account show", "account list", "account set", "account delete", "account unlock", "account import",
		"account export", "import", "export", "backup-codes", "sessions", "sessions list", "sessions end", "doctor",
	} {
		help := run(append(append([]string{"mnemogate"}, strings.Fields(command)...), "--help")...)
		if !strings.Contains(help, "Usage:") || !strings.Contains(help, "--address") {
			t.Errorf("%s: %s", command, help)
		}
		for line := range strings.SplitSeq(help, "\n") {
			if before, _, ok := strings.Cut(line, "Usage:"); ok && before == "" {
				break
			}
			if len(line) > 80 {
				t.Errorf("%s: a line is longer than 80 characters: %s", command, line)
			}
		}
	}
	if got := run("__complete", "mnemogate", "account", "s"); !strings.Contains(got, "set\tChanges an account") || !strings.Contains(got, "show\t") {
		t.Errorf("completion: got %s", got)
	}
	if got := run("__complete", "mnemogate", "account", "set", "alice", "--status", ""); !strings.Contains(got, "restricted\n") {
		t.Errorf("completion: got %s", got)
	}
}
