package gate_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	_ "github.com/caddyserver/caddy/v2/modules/standard"

	_ "github.com/mnemogate/mnemogate/caddymodule"
	"github.com/mnemogate/mnemogate/caddymodule/guest/guesttest"
)

// load runs Caddy with a Caddyfile until the test ends.
func load(t testing.TB, caddyfile string) {
	t.Helper()
	config, _, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(caddyfile), nil)
	must(t, err)
	must(t, caddy.Load(config, true))
	t.Cleanup(func() { _ = caddy.Stop() })
}

// Files are downloads that no proxy cuts; and what a browser keeps of them is its
// user's.
func TestFilesAreProtected(t *testing.T) {
	guesttest.Environment(t)
	dir, err := os.MkdirTemp("", "mg") // short, for the socket
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	must(t, os.Mkdir(dir+"/site", 0o700))
	plan := strings.Repeat("secret plan\n", 10_000)
	must(t, os.WriteFile(dir+"/site/plan.txt", []byte(plan), 0o600))
	load(t, `{
		admin off
		persist_config off
		auto_https off
		mnemogate {
			store sqlite `+dir+`/mnemogate.db
			company acme {
				api_key {env.MNEMOGATE_TEST_KEY}
				captcha off
				account alice {
					login alice@example.com
					password "correct horse battery"
				}
			}
		}
	}
	http:// {
		bind unix/`+dir+`/web.sock
		root * `+dir+`/site
		mnemogate
		file_server
	}`)
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", dir+"/web.sock")
	}}}
	ask := func(method, path, body string, headers ...string) (*http.Response, []byte) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, "http://files.example"+path, strings.NewReader(body))
		must(t, err)
		for pair := range slices.Chunk(headers, 2) {
			r.Header.Set(pair[0], pair[1])
		}
		answer, err := client.Do(r)
		must(t, err)
		defer answer.Body.Close()
		got, err := io.ReadAll(answer.Body)
		must(t, err)
		return answer, got
	}
	if a, got := ask("GET", "/plan.txt", ""); a.StatusCode != 401 || !bytes.Contains(got, []byte("auth.header.missing")) {
		t.Errorf("without a token: %s %s", a.Status, got)
	}
	var login struct {
		Token string `json:"session_token"`
	}
	a, got := ask("POST", "/acme/v2/auth/checkcredentials", `{"login_id": "alice@example.com", "password": "correct horse battery"}`,
		"Content-Type", "application/json", "X-Api-Key", "key-of-acme")
	if err := json.Unmarshal(got, &login); err != nil || login.Token == "" {
		t.Fatalf("checkcredentials: %s %s", a.Status, got)
	}
	bearer := "Bearer " + login.Token
	if a, got := ask("GET", "/plan.txt", "", "Authorization", bearer); a.StatusCode != 200 || string(got) != plan ||
		!slices.Equal(a.Header["Vary"], []string{"Accept-Encoding", "Authorization"}) {
		t.Errorf("a file: %s, %d bytes, Vary %q", a.Status, len(got), a.Header["Vary"])
	}
	if a, got := ask("GET", "/plan.txt", "", "Authorization", bearer, "Range", "bytes=0-5"); a.StatusCode != 206 || string(got) != "secret" {
		t.Errorf("a part of it: %s %q", a.Status, got)
	}
	if a, _ := ask("GET", "/none.txt", "", "Authorization", bearer); a.StatusCode != 404 {
		t.Errorf("no file: %s", a.Status)
	}
}
