package bench

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/store/storetest"
)

// A caddy is a Caddy process that is measured.
type caddy struct {
	testing.TB
	dir    string            // holds the Caddyfile, the log and Caddy's own storage
	admin  string            // the URL of the admin endpoint
	http   map[string]string // the URLs of the sites over HTTP/1.1 and HTTP/2
	https  map[string]string // the URLs of the sites over HTTP/3
	cmd    *exec.Cmd
	exited chan struct{}
}

// startCaddy starts a Caddy. Each site has some lines of Caddyfile in front of the
// application at the URL backend. The global options replace those of the servers if
// they have some.
func startCaddy(b testing.TB, backend, global string, sites map[string]string) *caddy {
	b.Helper()
	ports := storetest.FreePorts(b, 1+2*len(sites))
	c := &caddy{TB: b, dir: b.TempDir(), admin: fmt.Sprint("http://127.0.0.1:", ports[0]), http: map[string]string{}, https: map[string]string{}}
	if !strings.Contains(global, "servers {") {
		global += "\nservers {\nprotocols h1 h2c\n}"
	}
	caddyfile := fmt.Sprintf(`{
		admin 127.0.0.1:%d
		persist_config off
		skip_install_trust
		auto_https disable_redirects
		%s
	}
	`, ports[0], global)
	for name, lines := range sites {
		lines += "\nreverse_proxy " + backend + " {\ntransport http {\nkeepalive_idle_conns_per_host 512\n}\n}\n"
		c.http[name], c.https[name] = fmt.Sprint("http://127.0.0.1:", ports[1]), fmt.Sprint("https://localhost:", ports[2])
		caddyfile += c.http[name] + " {\n" + lines + "}\n" + c.https[name] + " {\nbind 127.0.0.1 {\nprotocols h3\n}\n" + lines + "}\n"
		ports = ports[2:]
	}
	must(b, os.WriteFile(c.dir+"/Caddyfile", []byte(caddyfile), 0o600))
	b.Cleanup(c.kill)
	c.start()
	return c
}

// start starts the process and waits until it serves.
func (c *caddy) start() {
	c.Helper()
	log, err := os.OpenFile(c.dir+"/log", os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	must(c, err)
	defer log.Close()
	c.cmd = exec.Command(os.Args[0], "run", "--config", c.dir+"/Caddyfile")
	c.cmd.Env = append(os.Environ(), "MNEMOGATE_TEST_CADDY=1", "HOME="+c.dir, "XDG_DATA_HOME="+c.dir, "XDG_CONFIG_HOME="+c.dir)
	c.cmd.Stdout, c.cmd.Stderr = log, log
	c.exited, err = storetest.Start(c.cmd)
	must(c, err)
	for name := range c.http {
		for version, url := range map[string]string{"http1": c.http[name], "http3": c.https[name]} {
			client := newClient(version)
			// Caddy cleans its storage as it starts, which can take away the folder of a new
			// certificate; it tries again after a minute.
			storetest.Eventually(c, 90*time.Second, "Caddy that serves "+url, func() bool {
				response, err := client.Get(url)
				return err == nil && response.Body.Close() == nil
			})
			client.CloseIdleConnections()
		}
	}
}

func (c *caddy) kill() {
	_ = c.cmd.Process.Kill()
	<-c.exited
	if log, _ := os.ReadFile(c.dir + "/log"); c.Failed() {
		c.Logf("%s", log)
	}
}

// ask sends a request to the admin endpoint.
func (c *caddy) ask(method, path string, body []byte) []byte {
	c.Helper()
	r, err := http.NewRequestWithContext(c.Context(), method, c.admin+path, bytes.NewReader(body))
	must(c, err)
	r.Header.Set("Content-Type", "text/caddyfile")
	r.Header.Set("Cache-Control", "must-revalidate") // reload even if nothing has changed
	response, err := http.DefaultClient.Do(r)
	must(c, err)
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		c.Fatalf("%s %s: %d %s, %v", method, path, response.StatusCode, answer, err)
	}
	return answer
}

func (c *caddy) reload() {
	c.Helper()
	config, err := os.ReadFile(c.dir + "/Caddyfile")
	must(c, err)
	c.ask("POST", "/load", config)
}

// metric returns a metric without labels.
func (c *caddy) metric(name string) float64 {
	c.Helper()
	for line := range strings.Lines(string(c.ask("GET", "/metrics", nil))) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			number, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			must(c, err)
			return number
		}
	}
	c.Fatalf("there is no metric %s", name)
	return 0
}

// startBackend starts the application that Caddy protects, in this process. It answers
// /headers with the headers of the request.
func startBackend(b testing.TB) (url string) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Path == "/headers" {
			_ = json.NewEncoder(w).Encode(r.Header)
			return
		}
		_, _ = io.WriteString(w, `{"items": []}`)
	}))
	b.Cleanup(s.Close)
	return s.URL
}
