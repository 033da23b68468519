package integration

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/wire"
	"github.com/mnemogate/mnemogate/store/storetest"
)

const peersDir = "testdata/peers"

// A peer is a Node server by a third party.
type peer struct {
	t      *testing.T
	cmd    *exec.Cmd
	stdin  io.Closer
	exited chan struct{}
	stderr bytes.Buffer // read it only after the peer has exited
}

// startPeer runs a script until the test ends, with config as its argument. It
// decodes the first line of JSON that the script prints into said.
func startPeer(t *testing.T, script string, config, said any) *peer {
	t.Helper()
	storetest.NeedPeers(t, peersDir)
	argument := get(json.Marshal(config))(t)
	// On a busy machine, Node sometimes hangs before it runs the script.
	for range 2 {
		p, line := runPeer(t, script, string(argument))
		if line == nil {
			p.kill()
			t.Logf("%s does not come up:\n%s", script, &p.stderr)
			continue
		}
		t.Cleanup(p.stop)
		if err := json.Unmarshal(line, said); err != nil {
			t.Fatalf("%s says %s: %v", script, line, err)
		}
		return p
	}
	t.FailNow()
	return nil
}

// runPeer runs a script and returns the first line of JSON that it prints. The line
// is nil if the script exits before or prints nothing for 30 s.
func runPeer(t *testing.T, script, argument string) (*peer, []byte) {
	t.Helper()
	cmd := exec.Command("node", script, argument)
	cmd.Dir = peersDir
	cmd.Env = append(os.Environ(), "DEBUG=", "NODE_ENV=production")
	return runPeerCommand(t, cmd)
}

// runPeerCommand is runPeer for any command that ends with its standard input.
func runPeerCommand(t *testing.T, cmd *exec.Cmd) (*peer, []byte) {
	t.Helper()
	p := &peer{t: t, cmd: cmd, exited: make(chan struct{})}
	p.cmd.Stderr = &p.stderr
	var err error
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	stdout := get(p.cmd.StdoutPipe())(t)
	must(t, p.cmd.Start())
	ready := make(chan []byte, 1)
	go func() {
		defer close(p.exited)
		for lines := bufio.NewScanner(stdout); lines.Scan(); {
			if bytes.HasPrefix(lines.Bytes(), []byte("{")) && len(ready) == 0 {
				ready <- bytes.Clone(lines.Bytes())
			}
		}
		_ = p.cmd.Wait()
	}()
	select {
	case line := <-ready:
		return p, line
	case <-p.exited:
	case <-time.After(30 * time.Second):
	}
	return p, nil
}

// runBackend runs a command that prints its port as JSON, and returns the port.
func runBackend(t *testing.T, cmd *exec.Cmd) int {
	t.Helper()
	p, line := runPeerCommand(t, cmd)
	var said struct{ Port int }
	if line == nil || json.Unmarshal(line, &said) != nil {
		p.kill()
		t.Fatalf("%v does not come up: %s\n%s", cmd.Args, line, &p.stderr)
	}
	t.Cleanup(p.stop)
	return said.Port
}

// stop closes the peer's standard input, as if its parent had exited.
func (p *peer) stop() {
	_ = storetest.Thaw(p.cmd.Process)
	_ = p.stdin.Close()
	select {
	case <-p.exited:
	case <-time.After(10 * time.Second):
		p.kill()
		p.t.Error("the peer did not end with its standard input")
	}
}

func (p *peer) kill() {
	_ = p.cmd.Process.Kill()
	<-p.exited
}

// frozen runs f while the peer accepts connections but does not answer.
func (p *peer) frozen(f func()) {
	if err := storetest.Freeze(p.cmd.Process); err != nil {
		storetest.SkipOrFail(p.t, fmt.Sprintf("a process can't be stopped for a while here: %v", err))
	}
	defer storetest.Thaw(p.cmd.Process)
	f()
}

// getJSON requests JSON from a peer, such as what it has received.
func getJSON(t *testing.T, address string, v any) {
	t.Helper()
	response := get(client.Get(address))(t)
	defer response.Body.Close()
	must(t, json.NewDecoder(response.Body).Decode(v))
}

// wantUnavailable checks that an outage of a gateway is reported in time.
func wantUnavailable(t *testing.T, ask func() answer) {
	t.Helper()
	watch := storetest.StartWatch()
	a := ask().want(wire.ErrUnavailable)
	if a.Header.Get("Retry-After") == "" {
		t.Error("service.unavailable without Retry-After")
	}
	if took := watch.Took(); took > 5*time.Second+time.Second {
		t.Errorf("the answer took %v, want 5 s at most", took)
	}
}

// wantProfile checks that the answer is an authorized login of the account, and that
// the backend receives its requests.
func (s *site) wantProfile(a answer, mnemocode string) {
	s.t.Helper()
	a = a.wantState(record.Authorized)
	if a.str("profile_mnemocode") != mnemocode {
		s.t.Errorf("profile_mnemocode is %q, want %q", a.str("profile_mnemocode"), mnemocode)
	}
	s.get("/profile", a.token()).wantStatus(http.StatusOK).wantBody("\r\nX-Profile-Mnemocode: " + mnemocode + "\r\n")
}

// wantNoneLogged checks that the log has none of these texts, even at level DEBUG.
func (s *site) wantNoneLogged(texts ...string) {
	s.t.Helper()
	log := s.log()
	for _, text := range texts {
		if at := strings.Index(log, text); at >= 0 {
			s.t.Errorf("%q is in the log: …%s", text, log[max(0, at-200):min(len(log), at+200)])
		}
	}
}
