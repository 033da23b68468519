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

// What the commands do is told by testdata/script, as an operator's shell would show it.
// Each script has a Caddy of its own, with the company acme and those that its file
// companies configures, and the commands find it. Beside the words of testscript it has
//
//	caddy <arg>...            runs the command, which ends with 0, or behind ! with 1
//	exits <n> caddy <arg>...  the same, but it ends with n
//	reload                    has Caddy read companies again
//	login <id> <password>     logs in to acme, and $TOKEN is the session's; ! if it can't
//	authorized <token>        the token is taken; ! if it is none
//	capture <name> <regexp>   $name is what the group in it matches of standard output
func TestScripts(t *testing.T) {
	t.Parallel()
	siteOf := func(ts *testscript.TestScript) *site { return ts.Value("site").(*site) }
	testscript.RunT(scriptT{t}, testscript.Params{
		Dir:         "testdata/script",
		WorkdirRoot: t.TempDir(), // its own stays where -run leaves scripts out
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

// scriptT gives the site of a script that script's own test.
type scriptT struct{ *testing.T }

func (t scriptT) Run(name string, f func(testscript.T)) {
	t.T.Run(name, func(t *testing.T) { f(scriptT{t}) })
}

func (scriptT) Verbose() bool { return testing.Verbose() }

// scriptConfig is adminSite's, with the companies of the script in dir.
func scriptConfig(dir string) siteConfig {
	more, _ := os.ReadFile(filepath.Join(dir, "companies")) // most have none
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
