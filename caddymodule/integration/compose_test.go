package integration

import (
	"cmp"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/mnemogate/mnemogate/caddymodule/guest/guesttest"
)

// A composeFile holds the parts of the file that the test checks.
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
		Secrets   []string
		ReadOnly  bool           `yaml:"read_only"`
		Rest      map[string]any `yaml:",inline"` // not checked
	}
	Configs map[string]struct{ Content, File string }
	Volumes map[string]any
	Secrets map[string]any
	Rest    map[string]any `yaml:",inline"` // not checked
}

type composeBuild struct {
	Context    string
	Dockerfile string
}

func readCompose(t *testing.T, file string) (c composeFile) {
	t.Helper()
	raw := get(os.ReadFile(file))(t)
	decoder := yaml.NewDecoder(strings.NewReader(string(raw)))
	decoder.KnownFields(true)
	must(t, decoder.Decode(&c))
	return c
}

// Without a container engine, this checks that Compose can read the files, that the
// files they refer to exist, and that the Caddyfiles in them are valid.
func TestComposeFiles(t *testing.T) {
	guesttest.Environment(t)
	for _, file := range []string{"../../store/compose.yaml", deployDir + "/compose.yaml"} {
		t.Run(file, func(t *testing.T) { checkCompose(t, file) })
	}
	c := readCompose(t, "../../store/compose.yaml")
	upstreams := balancedNodes.FindAllString(c.Configs["balancer"].Content, -1)
	if len(upstreams) != 2 {
		t.Errorf("the balancer sends to %v", upstreams)
	}
	for _, upstream := range upstreams {
		if c.Services[strings.TrimSuffix(upstream, ":80")].Build == nil {
			t.Errorf("the balancer sends to %s, which is no node", upstream)
		}
	}
	if c.Services["one"].Command != c.Services["two"].Command || len(c.Services["balancer"].Ports) != 1 {
		t.Errorf("it has %+v", c.Services)
	}
}

func checkCompose(t *testing.T, file string) {
	t.Helper()
	c := readCompose(t, file)
	built := 0
	for name, service := range c.Services {
		if b := service.Build; b != nil {
			context := filepath.Join(filepath.Dir(file), b.Context)
			checkBuild(t, context, filepath.Join(context, b.Dockerfile))
			built++
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
		for name, value := range service.Env {
			t.Setenv(name, value)
		}
		for _, config := range service.Configs {
			source, ok := c.Configs[config.Source]
			if !ok || strings.Contains(source.Content, "$") || !strings.Contains(cmp.Or(service.Command, "/etc/caddy/Caddyfile"), config.Target) {
				t.Errorf("%s: config %s is missing, unused or would be changed by Compose", name, config.Source)
			}
			// Compose copies the content into the container, which a read-only root refuses.
			if source.Content != "" && service.ReadOnly {
				t.Errorf("%s: config %s must be a file", name, config.Source)
			}
			if source.File != "" {
				source.Content = string(get(os.ReadFile(filepath.Join(filepath.Dir(file), source.File)))(t))
			}
			for _, secret := range checkSecrets(t, source.Content, "/run/secrets/") {
				if _, ok := c.Secrets[secret]; !ok || !slices.Contains(service.Secrets, secret) {
					t.Errorf("%s: there is no secret %s", name, secret)
				}
			}
		}
	}
	if built == 0 {
		t.Error("nothing is built")
	}
	if exec.Command("docker", "compose", "version").Run() == nil {
		output(t, exec.Command("docker", "compose", "-f", file, "config", "--quiet"))
	}
}

var balancedNodes = regexp.MustCompile(`\b(one|two):80\b`)

// Stopping a node does not affect users. The balancer sends requests to the other
// node if it can't send them to this one, logins too.
func TestComposeBalancerTriesTheOtherNode(t *testing.T) {
	t.Parallel()
	config := readCompose(t, "../../store/compose.yaml").Configs["balancer"].Content
	node := guesttest.Serve(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	addresses := map[string]string{"one:80": strings.TrimPrefix(nobodyListens(t), "http://"), "two:80": node.Listener.Addr().String()}
	config = balancedNodes.ReplaceAllStringFunc(config, func(name string) string { return addresses[name] })
	s := startWith(t, new(site), func(*site) string {
		return changed(t, config, "auto_https off", "auto_https off\nadmin off", "http:// {", "http:// {\nbind fd/3")
	})
	for range 20 {
		s.do(s.request(http.MethodPost, "/", "{}")).wantStatus(http.StatusOK)
	}
}

// An image that is not pinned by its digest can change after it was reviewed.
func TestImagesArePinned(t *testing.T) {
	t.Parallel()
	image := regexp.MustCompile(`(?m)^(?:FROM(?: --platform=\S+)?| +(?:- )?image:) (\S+)`)
	pinned := regexp.MustCompile(`:[\w.]+@sha256:[0-9a-f]{64}$`)
	files := append(get(filepath.Glob(deployDir+"/*"))(t), "../../store/compose.yaml")
	found := 0
	for _, file := range files {
		for _, m := range image.FindAllStringSubmatch(string(get(os.ReadFile(file))(t)), -1) {
			if own := regexp.MustCompile(`^(mnemogate|scratch|ghcr\.io/mnemogate/mnemogate:[\d.]+)$`); own.MatchString(m[1]) {
				continue
			}
			if found++; !pinned.MatchString(m[1]) {
				t.Errorf("%s: %s has no digest", file, m[1])
			}
		}
	}
	if found < 5 {
		t.Errorf("only %d images found", found)
	}
}

// checkBuild checks that the files to copy exist, and that ./xcaddy.sh reads no
// others.
func checkBuild(t *testing.T, context, dockerfile string) {
	t.Helper()
	text := get(os.ReadFile(dockerfile))(t)
	var copied []string
	for line := range strings.Lines(string(text)) {
		words := strings.Fields(line)
		if len(words) < 3 || words[0] != "COPY" || strings.HasPrefix(words[1], "--from=") {
			continue
		}
		copied = append(copied, words[1:len(words)-1]...)
	}
	for _, source := range copied {
		if _, err := os.Stat(filepath.Join(context, source)); err != nil {
			t.Error(err)
		}
	}
	script := get(os.ReadFile(filepath.Join(context, "xcaddy.sh")))(t)
	for _, read := range regexp.MustCompile(`"\$here/([\w.]+)"`).FindAllStringSubmatch(string(script), -1) {
		if !slices.Contains(copied, read[1]) {
			t.Errorf("./xcaddy.sh reads %s, which is not copied", read[1])
		}
	}
	if !strings.Contains(string(text), "RUN ./xcaddy.sh") {
		t.Errorf("mnemogate is not built by\n%s", text)
	}
}
