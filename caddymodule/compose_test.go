package caddymodule

import (
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"go.yaml.in/yaml/v3"
)

// A composeFile is what the test looks at.
type composeFile struct {
	Services map[string]struct {
		Image     string
		Build     *composeBuild
		Command   string
		DependsOn []string          `yaml:"depends_on"`
		Env       map[string]string `yaml:"environment"`
		Volumes   []string
		Configs   []struct{ Source, Target string }
		Ports     []string
	}
	Configs map[string]struct{ Content string }
	Volumes map[string]any
}

type composeBuild struct {
	Context    string
	Dockerfile string `yaml:"dockerfile_inline"`
}

func readCompose(t *testing.T, file string) (c composeFile) {
	t.Helper()
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	decoder := yaml.NewDecoder(strings.NewReader(string(raw)))
	decoder.KnownFields(true)
	if err := decoder.Decode(&c); err != nil {
		t.Fatal(err)
	}
	return c
}

// Without an engine: the file is what Compose reads, all that it refers to is
// there, and the Caddyfiles in it are valid.
func TestComposeFile(t *testing.T) {
	const file = "../store/compose.yaml"
	c := readCompose(t, file)
	built := map[string]bool{}
	for name, service := range c.Services {
		if service.Build != nil {
			checkBuild(t, filepath.Join(filepath.Dir(file), service.Build.Context), service.Build.Dockerfile)
			built[service.Image] = true
		}
		for _, needed := range service.DependsOn {
			if _, ok := c.Services[needed]; !ok {
				t.Errorf("%s depends on %s, which is not there", name, needed)
			}
		}
		for _, volume := range service.Volumes {
			source, _, _ := strings.Cut(volume, ":")
			if _, ok := c.Volumes[source]; !ok {
				t.Errorf("%s: there is no volume %s", name, source)
			}
		}
		for _, config := range service.Configs {
			content, ok := c.Configs[config.Source]
			if !ok || strings.Contains(content.Content, "$") || !strings.Contains(service.Command, config.Target) {
				t.Errorf("%s: config %s is missing, unused or would be changed by Compose", name, config.Source)
			}
			testEnvironment(t)
			for name, value := range service.Env {
				t.Setenv(name, value)
			}
			if _, err := adaptAndValidate(content.Content); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	for _, upstream := range balancedNodes.FindAllString(c.Configs["balancer"].Content, -1) {
		if c.Services[strings.TrimSuffix(upstream, ":80")].Build == nil {
			t.Errorf("the balancer sends to %s, which is no node", upstream)
		}
	}
	if !built["mnemogate"] || c.Services["one"].Command != c.Services["two"].Command || len(c.Services["balancer"].Ports) != 1 {
		t.Errorf("it has %+v", c.Services)
	}
	if exec.Command("docker", "compose", "version").Run() == nil {
		if out, err := exec.Command("docker", "compose", "-f", file, "config", "--quiet").CombinedOutput(); err != nil {
			t.Errorf("docker compose config: %v: %s", err, out)
		}
	}
}

var balancedNodes = regexp.MustCompile(`\b(one|two):80\b`)

// A node that is stopped costs its users nothing: what can't be sent to it goes
// to the other, logins too.
func TestComposeBalancerTriesTheOtherNode(t *testing.T) {
	config := readCompose(t, "../store/compose.yaml").Configs["balancer"].Content
	node := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(node.Close)
	addresses := map[string]string{"one:80": strings.TrimPrefix(nobodyListens(t), "http://"), "two:80": node.Listener.Addr().String()}
	config = balancedNodes.ReplaceAllStringFunc(config, func(name string) string { return addresses[name] })
	config = strings.Replace(config, "auto_https off", "auto_https off\nadmin off", 1)
	config = strings.Replace(config, "http:// {", "http:// {\nbind fd/3", 1)

	s := &site{t: t, dir: shortTempDir(t), config: config}
	s.addr, s.ln = listener(t)
	s.URL = "http://" + s.addr
	s.writeCaddyfile()
	s.start()
	t.Cleanup(func() { s.stop(syscall.SIGTERM) })
	for range 20 {
		if a := s.do(s.request(http.MethodPost, "/", "{}")); a.Status != http.StatusOK {
			t.Errorf("got %d %s", a.Status, a.Body)
		}
	}
}

// checkBuild checks that what is copied is there.
func checkBuild(t *testing.T, context, dockerfile string) {
	t.Helper()
	copied := 0
	for line := range strings.Lines(dockerfile) {
		words := strings.Fields(line)
		if words[0] != "COPY" || strings.HasPrefix(words[1], "--from=") {
			continue
		}
		for _, source := range words[1 : len(words)-1] {
			if found, err := filepath.Glob(filepath.Join(context, source)); err != nil || len(found) == 0 {
				t.Errorf("there is no %s to copy", source)
			}
			copied++
		}
	}
	if copied == 0 || !strings.Contains(dockerfile, "RUN ./xcaddy.sh") {
		t.Errorf("mnemogate is not built by\n%s", dockerfile)
	}
}
