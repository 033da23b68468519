package store

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/mnemogate/mnemogate/flows/record"
)

// crashFile is the environment variable that names the file in which the child
// process of TestSQLiteKeepsWhatItAcknowledged writes.
const crashFile = "MNEMOGATE_TEST_CRASH_FILE"

func TestSQLiteKeepsWhatItAcknowledged(t *testing.T) {
	if file := os.Getenv(crashFile); file != "" {
		writeForEver(t, file)
	}
	file := tempFile(t)
	cmd := exec.Command(os.Args[0], "-test.run=^TestSQLiteKeepsWhatItAcknowledged$")
	cmd.Env = append(os.Environ(), crashFile+"="+file)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	var acknowledged []string
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		acknowledged = append(acknowledged, lines.Text())
		if len(acknowledged) == 300 {
			must(t, cmd.Process.Kill()) // then read the rest of its output
		}
	}
	cmd.Wait()
	if len(acknowledged) < 300 {
		t.Fatalf("the child wrote %d sessions only: %q", len(acknowledged), acknowledged)
	}
	s := startSQLite(t, file)
	for _, name := range acknowledged {
		if _, err := s.Sessions().Get(bg, hash(name)); err != nil {
			t.Errorf("session %s was acknowledged, but: %v", name, err)
		}
	}
}

// writeForEver creates sessions and prints the name of each acknowledged one. All
// names have the same length, so that the test recognizes one that was cut off.
func writeForEver(t *testing.T, file string) {
	s := OpenSQLite(file)
	must(t, s.Start(bg))
	for i := range 8 {
		go func() {
			for n := range 1_000_000 {
				name := fmt.Sprintf("%d-%06d", i, n)
				if err := s.Sessions().Create(bg, t0, session(name, 1, 1, record.CheckOTP)); err != nil {
					panic(err)
				}
				os.Stdout.WriteString(name + "\n")
			}
		}()
	}
	select {}
}
