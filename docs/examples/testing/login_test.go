//go:build ignore

// Tests a login with a sandbox of its own: go test login_test.go
package app_test

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// A sandbox is what caddy mnemogate sandbox --json prints first.
type sandbox struct {
	URL    string `json:"url"`
	APIKey string `json:"api_key"`
}

// startSandbox starts a sandbox at a free port, which ends with the test.
func startSandbox(t *testing.T, args ...string) (s sandbox) {
	cmd := exec.Command("caddy", append([]string{"mnemogate", "sandbox", "--json", "--listen", "localhost:0"}, args...)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		killed := cmd.Process.Signal(os.Interrupt) != nil && cmd.Process.Kill() == nil // Windows has no interrupt
		_, _ = io.Copy(io.Discard, out)
		if err := cmd.Wait(); err != nil && !killed {
			t.Error(err)
		}
	})
	if err := json.NewDecoder(out).Decode(&s); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s sandbox) do(t *testing.T, method, path, token, body string) string {
	r, err := http.NewRequest(method, s.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("X-Api-Key", s.APIKey)
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("%s %s: %d %s %v", method, path, response.StatusCode, text, err)
	}
	return string(text)
}

func TestLogin(t *testing.T) {
	s := startSandbox(t) // with your application: startSandbox(t, "--backend", its URL)
	var login struct {
		Token string `json:"session_token"`
	}
	answer := s.do(t, "POST", "/acme/v2/auth/checkcredentials", "", `{"login_id": "alice@example.com", "password": "correct horse battery"}`)
	if err := json.Unmarshal([]byte(answer), &login); err != nil {
		t.Fatal(err)
	}
	if page := s.do(t, "GET", "/", login.Token, ""); !strings.Contains(page, "\nX-Profile-Mnemocode: alice-0001\n") {
		t.Errorf("the backend got\n%s", page)
	}
}
