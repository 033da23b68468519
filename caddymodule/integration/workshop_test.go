package integration

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/mnemogate/mnemogate/store/storetest"
)

// A workshop is a directory in which Node finds the packages of the peers.
type workshop struct{ dir string }

// newWorkshop creates a workshop with the files made, by name, and copies of other
// files.
func newWorkshop(t *testing.T, made map[string]string, copied ...string) workshop {
	t.Helper()
	storetest.NeedPeers(t, peersDir)
	w := workshop{t.TempDir()}
	modules, err := filepath.Abs(peersDir + "/node_modules")
	err = errors.Join(err, os.Symlink(modules, w.dir+"/node_modules"))
	for name, content := range made {
		err = errors.Join(err, os.WriteFile(filepath.Join(w.dir, name), []byte(content), 0o600))
	}
	for _, file := range copied {
		content, missing := os.ReadFile(file)
		err = errors.Join(err, missing, os.WriteFile(filepath.Join(w.dir, filepath.Base(file)), content, 0o600))
	}
	must(t, err)
	return w
}

// output runs a command that must succeed, and returns what it writes.
func output(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %v\n%s", cmd.Args, err, out)
	}
	return string(out)
}

// node runs a script with arguments and returns its output.
func (w workshop) node(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.Command("node", args...)
	cmd.Dir = w.dir
	cmd.Env = append(os.Environ(), "HOME="+w.dir, "REDOCLY_TELEMETRY=off", "REDOCLY_SUPPRESS_UPDATE_NOTICE=true")
	return output(t, cmd)
}

// tsc checks a file with TypeScript in strict mode.
func (w workshop) tsc(t *testing.T, args ...string) {
	t.Helper()
	w.node(t, append([]string{"node_modules/typescript/bin/tsc", "--strict"}, args...)...)
}

// compile makes a program for Node of a file in TypeScript. Without the types of browsers
// that takes a second less.
func (w workshop) compile(t *testing.T, file string) {
	t.Helper()
	w.tsc(t, "--skipLibCheck", "--target", "es2022", "--lib", "es2022", "--module", "nodenext", "--types", "node", file)
}
