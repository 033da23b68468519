package integration

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/mnemogate/mnemogate/store/storetest"
)

// The receiver of docs/examples/events accepts the events. The library of Standard
// Webhooks verifies them with either of two secrets.
func TestTheExampleReceivesEvents(t *testing.T) {
	t.Parallel()
	storetest.NeedPeers(t, peersDir)
	program := string(get(os.ReadFile("../../docs/examples/events/receiver.mjs"))(t))
	const newer = "whsec_YSBuZXdlciBzZWNyZXQgb2YgdGhlIGV2ZW50cw=="
	for name, known := range map[string]string{"the older secret": eventsSecret, "the newer secret": newer} {
		t.Run(name, func(t *testing.T) {
			url, out := runReceiver(t, program, "EVENTS_SECRET="+known)
			s := startSite(t, siteConfig{company: roomy + account("alice", "") + fmt.Sprintf(
				"events webhook %s {\nsecret %s %s\nretry 100ms\n}\n", url, newer, eventsSecret)})
			s.admin("PATCH", "accounts/alice", fields{"role": "editor"}).wantStatus(200)
			s.admin("DELETE", "accounts/alice", nil)
			lines := bufio.NewReader(out)
			for _, want := range []string{"account.created alice\n", "account.changed alice\n", "account.deleted alice\n"} {
				if got, err := lines.ReadString('\n'); got != want {
					t.Fatalf("the receiver got %q, want %q: %v", got, want, err)
				}
			}
			response := get(client.Post(url, "application/json", strings.NewReader(`{"type":"account.deleted","data":{}}`)))(t)
			_, _ = io.Copy(io.Discard, response.Body)
			_ = response.Body.Close()
			if response.StatusCode != 401 {
				t.Errorf("an event without a signature: got %s, want 401", response.Status)
			}
		})
	}
}

// runReceiver runs a receiver in Node and returns its URL and output.
func runReceiver(t *testing.T, script string, env ...string) (url string, out io.Reader) {
	t.Helper()
	port := storetest.FreePorts(t, 1)[0]
	cmd := exec.Command("node", "--input-type=module", "--eval", script)
	cmd.Dir = peersDir
	cmd.Env = append(append(os.Environ(), fmt.Sprint("PORT=", port)), env...)
	cmd.Stderr = os.Stderr
	out = get(cmd.StdoutPipe())(t)
	get(storetest.Start(cmd))(t)
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	return fmt.Sprintf("http://127.0.0.1:%d/", port), out
}
