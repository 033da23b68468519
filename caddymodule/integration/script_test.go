package integration

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// The scripts in testdata/script show what the commands do, as an operator sees it
// in a shell. Each script has a Caddy of its own, with the company acme and those in
// its file companies, and the commands connect to it. In addition to the commands of
// testscript, scripts can use
//
//	caddy <arg>...            runs the command; it must exit with 0, or with ! with 1
//	exits <n> caddy <arg>...  the same, but it must exit with n
//	reload                    makes Caddy read companies again
//	login <id> <password>     logs in to acme and sets $TOKEN; ! if it must fail
//	authorized <token>        the token must be valid; ! if it must not
//	capture <name> <regexp>   sets $name to the match of the group in standard output
func TestScripts(t *testing.T) {
	t.Parallel()
	siteOf := func(ts *testscript.TestScript) *site { return ts.Value("site").(*site) }
	testscript.RunT(scriptT{t}, testscript.Params{
		Dir:         "testdata/script",
		WorkdirRoot: t.TempDir(), // the default directory remains if -run excludes scripts
		Setup: func(env *testscript.Env) error {
			s := startSite(env.T().(scriptT).T, scriptConfig(env.WorkDir))
			env.Values["site"] = s
			env.Vars = append(env.Vars, "MNEMOGATE_TEST_CADDY=1", "CADDY_ADMIN=unix/"+s.dir+"/admin.sock")
			return nil
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"caddy": func(ts *testscript.TestScript, neg bool, args []string) {
				exit := 0
				if neg {
					exit = 1
				}
				caddyExits(ts, exit, args)
			},
			"exits": func(ts *testscript.TestScript, neg bool, args []string) {
				refuseNegation(ts, neg)
				exit, err := strconv.Atoi(args[0])
				ts.Check(err)
				caddyExits(ts, exit, args[2:])
			},
			"reload": func(ts *testscript.TestScript, neg bool, _ []string) {
				refuseNegation(ts, neg)
				ts.Check(siteOf(ts).reload(scriptConfig(ts.Getenv("WORK"))))
			},
			"login": func(ts *testscript.TestScript, neg bool, args []string) {
				a := siteOf(ts).post("auth/checkcredentials", "", fields{"login_id": args[0], "password": args[1]})
				if neg {
					a.want(wire.ErrCredentialsInvalid)
					return
				}
				ts.Setenv("TOKEN", a.wantState(record.Authorized).token())
			},
			"authorized": func(ts *testscript.TestScript, neg bool, args []string) {
				a := siteOf(ts).get("/", args[0])
				if neg {
					a.want(wire.ErrTokenInvalid)
					return
				}
				a.wantStatus(200)
			},
			"capture": func(ts *testscript.TestScript, neg bool, args []string) {
				refuseNegation(ts, neg)
				found := regexp.MustCompile(args[1]).FindStringSubmatch(ts.ReadFile("stdout"))
				if found == nil {
					ts.Fatalf("no match")
				}
				ts.Setenv(args[0], found[1])
			},
		},
	})
}

// scriptT makes each script's site use the test of that script.
type scriptT struct{ *testing.T }

func (t scriptT) Run(name string, f func(testscript.T)) {
	t.T.Run(name, func(t *testing.T) { f(scriptT{t}) })
}

func (scriptT) Verbose() bool { return testing.Verbose() }

// scriptConfig is the configuration of adminSite, with the companies of the script
// in dir.
func scriptConfig(dir string) siteConfig {
	more, _ := os.ReadFile(filepath.Join(dir, "companies")) // most scripts have none
	return siteConfig{company: "captcha off", more: string(more)}
}

func caddyExits(ts *testscript.TestScript, want int, args []string) {
	got, err := 0, ts.Exec(os.Args[0], args...)
	if ended, ok := errors.AsType[*exec.ExitError](err); ok {
		got = ended.ExitCode()
	} else {
		ts.Check(err)
	}
	if got != want {
		ts.Fatalf("exit status %d, want %d", got, want)
	}
}

func refuseNegation(ts *testscript.TestScript, neg bool) {
	if neg {
		ts.Fatalf("! is not for this")
	}
}
