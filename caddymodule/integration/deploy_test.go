package integration

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/mnemogate/mnemogate/caddymodule/guest/guesttest"
)

const deployDir = "../../docs/deploy"

func readDeploy(t *testing.T, name string) string {
	t.Helper()
	return string(get(os.ReadFile(filepath.Join(deployDir, name)))(t))
}

// secretFile matches the files with secrets that a Caddyfile reads.
var secretFile = regexp.MustCompile(`\{file\.(?:\{\$CREDENTIALS_DIRECTORY:)?(/run/[^}]+?)\}?/(\w+)\}`)

// checkSecrets validates a Caddyfile with files for the secrets that it reads,
// checks that all of them are in one directory, and returns their names.
func checkSecrets(t *testing.T, caddyfile, directory string) []string {
	t.Helper()
	dir := t.TempDir()
	names := map[string]bool{}
	config := secretFile.ReplaceAllStringFunc(caddyfile, func(placeholder string) string {
		parts := secretFile.FindStringSubmatch(placeholder)
		if parts[1]+"/" != directory {
			t.Errorf("%s is not in %s", placeholder, directory)
		}
		names[parts[2]] = true
		secret := map[string]string{"postgres": "postgres://mnemogate:pw@db/mnemogate?sslmode=verify-full", "redis": "rediss://redis:6379"}[parts[2]]
		if secret == "" {
			secret = guesttest.Secret
		}
		file := filepath.Join(dir, parts[2])
		must(t, os.WriteFile(file, []byte(secret+"\n"), 0o600))
		return "{file." + file + "}"
	})
	config = strings.ReplaceAll(config, "/var/log/mnemogate", dir)
	if _, err := adaptAndValidate(config); err != nil {
		t.Error(err)
	}
	return slices.Sorted(maps.Keys(names))
}

// systemd accepts the units and rates them as well sandboxed. They pass to
// the Caddyfile all the secrets that it reads.
func TestDeployedUnits(t *testing.T) {
	need(t, "systemd-analyze")
	dir := t.TempDir()
	verify := []string{"verify"}
	for _, name := range []string{"mnemogate.service", "mnemogate-backup.service", "mnemogate-backup.timer"} {
		unit := strings.ReplaceAll(readDeploy(t, name), "/usr/local/bin/caddy", "/bin/true") // it must exist
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(unit), 0o600))
		verify = append(verify, filepath.Join(dir, name))
	}
	analyze := func(args ...string) {
		t.Helper()
		output(t, exec.Command("systemd-analyze", args...))
	}
	analyze(verify...)
	analyze("security", "--no-pager", "--offline=true", "--threshold=20", filepath.Join(dir, "mnemogate.service"))
	analyze("security", "--no-pager", "--offline=true", "--threshold=10", filepath.Join(dir, "mnemogate-backup.service"))

	unit := readDeploy(t, "mnemogate.service")
	if !strings.Contains(unit, "\nLimitCORE=0\n") {
		t.Error("a core dump would show what docs/security.md says of the memory")
	}
	for _, name := range checkSecrets(t, readDeploy(t, "Caddyfile"), "/run/credentials/mnemogate.service/") {
		if !strings.Contains(unit, "LoadCredential="+name+":") {
			t.Errorf("the unit gives no %s", name)
		}
	}
}

// The backup unit deletes copies that are two weeks old before it makes one, which needs
// their room. It deletes none if the last backups have failed.
func TestDeployedBackupsAreDeleted(t *testing.T) {
	clean := regexp.MustCompile(`(?m)^ExecStartPre=-/bin/sh -c '(.* -delete)'$`).FindStringSubmatch(readDeploy(t, "mnemogate-backup.service"))
	if clean == nil {
		t.Fatal("the unit deletes nothing")
	}
	dir := t.TempDir()
	left := func() string {
		cmd := exec.Command("sh", "-c", strings.ReplaceAll(clean[1], "$$", "$"))
		cmd.Dir = dir
		output(t, cmd)
		var names []string
		for _, file := range get(os.ReadDir(dir))(t) {
			names = append(names, file.Name())
		}
		return strings.Join(names, " ")
	}
	copied := func(name string, age time.Duration) {
		file := filepath.Join(dir, name)
		must(t, os.WriteFile(file, nil, 0o600))
		must(t, os.Chtimes(file, time.Time{}, time.Now().Add(-age)))
	}
	copied("mnemogate-kept.db", 14*24*time.Hour-10*time.Minute)
	copied("mnemogate-old.db", 14*24*time.Hour+10*time.Minute)
	copied("mnemogate-yesterday.db", 25*time.Hour)
	copied(".mnemogate-part.db-1", time.Hour)
	if got := left(); !strings.Contains(got, "old") {
		t.Errorf("while backups fail, left are %s", got)
	}
	copied("mnemogate-last.db", 6*time.Hour)
	if got := left(); strings.Contains(got, "old") || !strings.Contains(got, "kept") {
		t.Errorf("left are %s", got)
	}
}

// A node that is told to stop has the time for its last requests, and then for the messages
// on their way: with several gateways, 10 s for the attempt in progress and 10 s for a last one.
func TestDeployedNodesHaveTimeToStop(t *testing.T) {
	for file, c := range map[string]struct{ config, limit string }{
		"kubernetes.yaml":   {"kubernetes.yaml", `\bterminationGracePeriodSeconds: (\d+)\b`},
		"mnemogate.service": {"Caddyfile", `\nTimeoutStopSec=(\d+)s\b`},
		"compose.yaml":      {"compose.Caddyfile", `\bstop_grace_period: (\d+)s\b`},
	} {
		need := 21 * time.Second
		for _, found := range regexp.MustCompile(`\b(?:shutdown_delay|grace_period) (\d+s)\n`).FindAllStringSubmatch(readDeploy(t, c.config), -1) {
			need += get(time.ParseDuration(found[1]))(t)
		}
		limit := regexp.MustCompile(c.limit).FindStringSubmatch(readDeploy(t, file))
		if limit == nil {
			t.Errorf("%s has no limit", file)
		} else if got := get(time.ParseDuration(limit[1] + "s"))(t); got < need {
			t.Errorf("%s kills a node after %v, which may need %v", file, got, need)
		}
	}
}

// The Caddyfile for systemd names the same file for its store that it would have by
// default, in the unit's state directory.
func TestDeployedStoreIsNamed(t *testing.T) {
	unit := readDeploy(t, "mnemogate.service")
	if !strings.Contains(unit, "StateDirectory=mnemogate\n") || !strings.Contains(unit, "XDG_DATA_HOME=/var/lib/mnemogate ") {
		t.Error("the unit's state is elsewhere")
	}
	const line = "\n\t\tstore sqlite /var/lib/mnemogate/caddy/mnemogate/mnemogate.db\n"
	if !strings.Contains(readDeploy(t, "Caddyfile"), line) {
		t.Errorf("docs/deploy/Caddyfile lacks %q", line)
	}
}

// The commands of docs/deploy/README.md create all secrets before they start the
// unit, which does not start if one is missing.
func TestDeployedSecretsAreMadeFirst(t *testing.T) {
	made, _, ok := strings.Cut(pages(t)["docs/deploy/README.md"], "\nsystemctl daemon-reload\n")
	if !ok {
		t.Fatal("the page starts nothing")
	}
	for line := range strings.Lines(readDeploy(t, "mnemogate.service")) {
		if secret, ok := strings.CutPrefix(line, "LoadCredential="); ok {
			if name, _, _ := strings.Cut(secret, ":"); !strings.Contains(strings.Join(blocks(made, "sh"), ""), name) {
				t.Errorf("nothing makes the secret %s", name)
			}
		}
	}
}

// The command of docs/deploy/README.md validates a new secret before the service has it. A stub of
// systemd-run passes credentials as systemd does.
func TestDeployedSecretsAreValidatedBeforeTheRestart(t *testing.T) {
	t.Parallel()
	_, page, _ := strings.Cut(pages(t)["docs/deploy/README.md"], "\nA changed secret needs")
	command, _, _ := strings.Cut(blocks(page, "sh")[0], "systemctl")
	dir := t.TempDir()
	here := strings.NewReplacer("/etc/systemd/system", dir, "/etc/mnemogate", dir, "/var/log/mnemogate", dir, "/var/lib/mnemogate", dir)
	stub := func(name, script string) {
		writeFile(t, filepath.Join(dir, name), "#!/bin/sh\n"+script)
		must(t, os.Chmod(filepath.Join(dir, name), 0o700))
	}
	stub("caddy", "MNEMOGATE_TEST_CADDY=1 exec "+os.Args[0]+` "$@"`)
	stub("systemd-run", `CREDENTIALS_DIRECTORY=$(mktemp -d `+dir+`/XXXXXX); export CREDENTIALS_DIRECTORY
while :; do
	case $1 in
	LoadCredential=*) c=${1#*=}; cp "${c#*:}" "$CREDENTIALS_DIRECTORY/${c%%:*}" || exit 1;;
	-*) ;;
	*) exec "$@";;
	esac
	shift
done`)
	must(t, os.Mkdir(dir+"/secrets", 0o700))
	for _, name := range []string{"acme_api_key", "turnstile_secret", "sms_secret", "mail_secret"} {
		writeFile(t, filepath.Join(dir, "secrets", name), guesttest.Secret+"\n")
	}
	caddyfile, unit := here.Replace(readDeploy(t, "Caddyfile")), here.Replace(readDeploy(t, "mnemogate.service"))
	validate := func() (string, error) {
		writeFile(t, dir+"/Caddyfile", caddyfile)
		writeFile(t, dir+"/mnemogate.service", unit)
		cmd := exec.Command("sh", "-ec", here.Replace(command))
		cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "HOME="+dir)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	if out, err := validate(); err != nil {
		t.Errorf("as deployed: %v: %s", err, out)
	}
	caddyfile = strings.Replace(caddyfile, "/sms_secret}", "/mail_secret}", 1)
	if out, err := validate(); err == nil || !strings.Contains(out, "mail_secret} can't be read") {
		t.Errorf("a secret that the unit does not load: %v: %s", err, out)
	}
	unit += "LoadCredential=mail_secret:" + dir + "/secrets/mail_secret\n"
	if out, err := validate(); err != nil {
		t.Errorf("a new secret: %v: %s", err, out)
	}
}

// A manifest holds the parts of a document of kubernetes.yaml that the tests check.
type manifest struct {
	Kind, APIVersion string
	Data             map[string]string
	Metadata         struct{ Name string }
	Spec             struct {
		Ports []struct {
			Port       int
			TargetPort string
		}
		Rules []struct {
			HTTP struct {
				Paths []struct {
					Backend struct {
						Service struct {
							Name string
							Port struct{ Number int }
						}
					}
				}
			}
		}
		Ingress []struct {
			From  []map[string]any
			Ports []struct{ Port any }
		}
		Template struct {
			Spec struct {
				Containers []struct {
					Env            []struct{ Name, Value string }
					Ports          []struct{ Name string }
					ReadinessProbe struct{ HTTPGet struct{ Path, Port string } }
					LivenessProbe  struct{ TCPSocket struct{ Port string } }
					VolumeMounts   []struct{ Name, MountPath string }
				}
				Volumes []struct {
					Name      string
					ConfigMap struct{ Name string }
					Secret    struct{ SecretName string }
				}
			}
		}
	}
}

// Kubernetes knows every field of the manifests, and they agree with each other:
// names, ports, mounts, the probe's path, and the secrets that the Caddyfile reads.
func TestDeployedManifests(t *testing.T) {
	t.Parallel()
	text := readDeploy(t, "kubernetes.yaml")
	checkManifestTypes(t, text)
	byKind := map[string]manifest{}
	for _, document := range documents(t, text) {
		raw := get(json.Marshal(document))(t)
		var m manifest
		must(t, json.Unmarshal(raw, &m))
		byKind[m.Kind] = m
	}
	caddyfile := byKind["ConfigMap"].Data["Caddyfile"]
	pod := byKind["Deployment"].Spec.Template.Spec
	node := pod.Containers[0]
	mounted := map[string]string{}
	for _, m := range node.VolumeMounts {
		mounted[m.Name] = m.MountPath
	}
	for _, v := range pod.Volumes {
		if mounted[v.Name] == "" {
			t.Errorf("volume %s is not mounted", v.Name)
		}
	}
	if mounted["caddyfile"]+"/Caddyfile" != "/etc/caddy/Caddyfile" || !strings.Contains(readDeploy(t, "Dockerfile"), `"/etc/caddy/Caddyfile"`) {
		t.Error("the image does not run the Caddyfile that is mounted")
	}
	for _, name := range checkSecrets(t, caddyfile, mounted["secrets"]+"/") {
		if !strings.Contains(text, "--from-file="+name+" ") && !strings.Contains(text, "--from-file="+name+"\n") {
			t.Errorf("no command makes the secret %s", name)
		}
	}
	admin := slices.IndexFunc(node.Env, func(v struct{ Name, Value string }) bool { return v.Name == "CADDY_ADMIN" })
	if admin < 0 || filepath.Dir(strings.TrimPrefix(node.Env[admin].Value, "unix/")) != mounted["data"] || strings.Contains(caddyfile, "\tadmin ") {
		t.Error("other containers of the pod reach the admin endpoint")
	}
	port := node.Ports[0].Name
	p := node.ReadinessProbe.HTTPGet
	if path, ready := strings.CutSuffix(p.Path, "?ready"); p.Port != port || !ready || !strings.Contains(caddyfile, "health "+path+"\n") {
		t.Errorf("the readiness probe asks %+v", p)
	}
	if node.LivenessProbe.TCPSocket.Port != port || byKind["Service"].Spec.Ports[0].TargetPort != port {
		t.Errorf("not all use the port %s", port)
	}
	service, leads := byKind["Service"], byKind["Ingress"].Spec.Rules[0].HTTP.Paths[0].Backend.Service
	if leads.Name != service.Metadata.Name || leads.Port.Number != service.Spec.Ports[0].Port {
		t.Errorf("the Ingress leads to %+v", leads)
	}
	// The last one, of mnemogate itself. With trusted_proxies, any other pod could choose its client address.
	rules := byKind["NetworkPolicy"].Spec.Ingress
	for _, rule := range rules {
		if len(rule.Ports) != 1 || len(rule.From) != 1 || rule.From[0]["namespaceSelector"] == nil {
			t.Errorf("the NetworkPolicy has the rule %+v; only the Ingress may reach %s, and only Prometheus the metrics", rule, port)
		}
	}
	if len(rules) != 2 || rules[0].Ports[0].Port != port || rules[1].Ports[0].Port != "metrics" {
		t.Errorf("the NetworkPolicy has the rules %+v", rules)
	}
}

// The Caddyfile of each deployment has a site that serves the metrics, at the port
// that docs/deploy/README.md names.
func TestDeployedMetrics(t *testing.T) {
	t.Parallel()
	need(t, "curl")
	metrics := regexp.MustCompile(`(?m)^ *http://:9180 \{\n(?:\s*bind 127.0.0.1\n)?(\s*metrics\n\s*\})$`)
	files := []string{"Caddyfile", "compose.Caddyfile", "kubernetes.yaml"}
	s := startWith(t, &site{backend: newRawBackend(t), sms: newWebhookSink(t), unraced: true}, func(s *site) string {
		config := siteConfig{company: "captcha off"}.caddyfile(s.dir, s.sms.URL, s.backend.addr)
		for _, file := range files {
			found := metrics.FindStringSubmatch(readDeploy(t, file))
			if found == nil {
				t.Fatalf("%s has no site of the metrics", file)
			}
			config += "\nhttp:// {\nbind unix/" + s.dir + "/" + file + ".sock\n" + found[1] + "\n"
		}
		return config
	})
	for _, file := range files {
		out, err := exec.Command("curl", "-sS", "--unix-socket", filepath.Join(s.dir, file+".sock"), "http://localhost/metrics").Output()
		if err != nil || !bytes.Contains(out, []byte("\nmnemogate_up 1\n")) {
			t.Errorf("%s: %v: %s", file, err, out)
		}
	}
}

// docs/deploy/prometheus.yaml is valid for Prometheus, and the job has the name that the alerts
// expect. Of the pods, the job for Kubernetes has the nodes that live. Debian's Prometheus does
// not support Kubernetes.
func TestDeployedScrapeConfigs(t *testing.T) {
	text := readDeploy(t, "prometheus.yaml")
	if !strings.Contains(text, "\n  - job_name: mnemogate\n") {
		t.Errorf("the alerts expect another job than\n%s", text)
	}
	var inKubernetes struct {
		Configs []struct {
			Pods []struct {
				Role       string
				Namespaces struct{ Names []string }
			} `yaml:"kubernetes_sd_configs"`
			Relabel []struct {
				Source        []string `yaml:"source_labels"`
				Regex, Action string
			} `yaml:"relabel_configs"`
		} `yaml:"scrape_configs"`
	}
	must(t, yaml.Unmarshal([]byte(regexp.MustCompile(`(?m)^    # (.*[^.])$`).ReplaceAllString(text, "    $1")), &inKubernetes))
	second := inKubernetes.Configs[0]
	if pods := second.Pods[0]; pods.Role != "pod" || !slices.Equal(pods.Namespaces.Names, []string{"mnemogate"}) {
		t.Errorf("got %+v", pods)
	}
	for _, pod := range []struct {
		name, port, phase string
		kept              bool
	}{
		{"mnemogate", "metrics", "Running", true}, {"mnemogate", "metrics", "Pending", true},
		{"mnemogate", "http", "Running", false}, {"profile-api", "metrics", "Running", false},
		{"mnemogate", "metrics", "Failed", false}, {"mnemogate", "metrics", "Succeeded", false},
	} {
		labels := map[string]string{"label_app_kubernetes_io_name": pod.name, "container_port_name": pod.port, "phase": pod.phase}
		kept := true
		for _, rule := range second.Relabel {
			value := labels[strings.TrimPrefix(rule.Source[0], "__meta_kubernetes_pod_")]
			matches := regexp.MustCompile("^(?:" + rule.Regex + ")$").MatchString(value)
			kept = kept && matches == (rule.Action == "keep")
		}
		if kept != pod.kept {
			t.Errorf("%+v: kept is %v", pod, kept)
		}
	}
	need(t, "promtool")
	output(t, exec.Command("promtool", "check", "config", filepath.Join(deployDir, "prometheus.yaml")))
}

// The audit log has the same path in all files and pages. Commands read all of it: the
// rotated files are compressed.
func TestTheAuditLogHasOnePath(t *testing.T) {
	path := regexp.MustCompile(`/[\w/-]*audit\.log`)
	partial := regexp.MustCompile(`(?m)^(\$ )?(cat|grep|jq|tail|zcat|zgrep)\b.*audit\.log`)
	texts := pages(t)
	texts["docs/deploy/Caddyfile"] = readDeploy(t, "Caddyfile")
	for name, text := range texts {
		for _, found := range path.FindAllString(text, -1) {
			if found != "/var/log/mnemogate/audit.log" {
				t.Errorf("%s has the audit log at %s", name, found)
			}
		}
		for _, found := range partial.FindAllString(text, -1) {
			t.Errorf("%s does not read the rotated files: %s", name, found)
		}
	}
}

// A change of the Caddyfile changes an annotation of the pods, and so replaces them.
func TestDeployedCaddyfileChangesThePods(t *testing.T) {
	text := readDeploy(t, "kubernetes.yaml")
	line := regexp.MustCompile(`# (sed .*)\n +checksum/caddyfile: (\w+)\n`).FindStringSubmatch(text)
	if line == nil {
		t.Fatal("the manifests do not say how the checksum is made")
	}
	cmd := exec.Command("sh", "-c", line[1])
	cmd.Dir = deployDir
	out := get(cmd.Output())(t)
	if sum, _, _ := strings.Cut(string(out), " "); line[2] != sum {
		t.Errorf("the annotation checksum/caddyfile is %s; write %s", line[2], sum)
	}
}

func documents(t *testing.T, text string) (all []map[string]any) {
	t.Helper()
	for decoder := yaml.NewDecoder(strings.NewReader(text)); ; {
		var document map[string]any
		err := decoder.Decode(&document)
		if err == io.EOF {
			return all
		}
		must(t, err)
		all = append(all, document)
	}
}

// checkManifestTypes compares the documents with the API of Kubernetes, using
// TypeScript.
func checkManifestTypes(t *testing.T, text string) {
	t.Helper()
	var source bytes.Buffer
	for i, document := range documents(t, text) {
		raw := get(json.Marshal(document))(t)
		group, version, found := strings.Cut(document["apiVersion"].(string), "/")
		if !found {
			group, version = "core", group
		}
		group, _, _ = strings.Cut(group, ".") // drops the domain of networking.k8s.io
		fmt.Fprintf(&source, "import * as group%d from 'kubernetes-types/%s/%s'\nexport const document%[1]d: group%[1]d.%[4]s = %[5]s\n",
			i, group, version, document["kind"], raw)
	}
	newWorkshop(t, map[string]string{"manifests.ts": source.String()}).
		tsc(t, "--noEmit", "--skipLibCheck", "--moduleResolution", "bundler", "--module", "esnext", "manifests.ts")
}

// With --source, xcaddy.sh deletes nothing: it only writes into a directory that is empty.
func TestXcaddySourceDeletesNothing(t *testing.T) {
	t.Parallel()
	need(t, "sh", "go")
	dir := t.TempDir()
	write := func(to string) (string, error) {
		out, err := exec.Command("../../xcaddy.sh", "--source", to).CombinedOutput()
		return string(out), err
	}
	must(t, os.WriteFile(dir+"/precious", []byte("x"), 0o600))
	for _, used := range []string{dir, dir + "/precious", "."} {
		if out, err := write(used); err == nil || !strings.Contains(out, "is not an empty directory") {
			t.Errorf("%s: %v, %s", used, err, out)
		}
	}
	if names := get(os.ReadDir(dir))(t); len(names) != 1 {
		t.Errorf("the directory has %v", names)
	}
	must(t, os.Mkdir(dir+"/empty", 0o700))
	for _, free := range []string{dir + "/empty", dir + "/new"} {
		if out, err := write(free); err != nil {
			t.Errorf("%v: %s", err, out)
		} else if _, err := os.Stat(free + "/main.go"); err != nil {
			t.Error(err)
		}
	}
}

// The modules that xcaddy.sh adds are words. It says so if a path has several.
func TestXcaddyRefusesASpace(t *testing.T) {
	t.Parallel()
	need(t, "sh", "go")
	for _, with := range []string{"example.com/module=./a module", "example.com/module=/a/b module"} {
		out, err := exec.Command("../../xcaddy.sh", "--with", with, "--source", t.TempDir()).CombinedOutput()
		if err == nil || !strings.Contains(string(out), "module; move the module to a path without one") {
			t.Errorf("%s: %v, %s", with, err, out)
		}
	}
}

// A release is the latest, and its image has this tag, only if its version is the highest
// and no prerelease.
func TestOnlyTheNewestReleaseIsLatest(t *testing.T) {
	t.Parallel()
	need(t, "git")
	var workflow struct {
		Jobs map[string]struct{ Steps []struct{ Run string } }
	}
	must(t, yaml.Unmarshal(get(os.ReadFile("../../.github/workflows/release.yml"))(t), &workflow))
	var script string
	for _, step := range workflow.Jobs["release"].Steps {
		if strings.Contains(step.Run, "LATEST=") {
			script = step.Run
		}
	}
	dir := t.TempDir()
	run := func(command string, env ...string) {
		t.Helper()
		cmd := exec.Command("bash", "-ec", command)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
		output(t, cmd)
	}
	run("git init -q && git -c user.name=x -c user.email=x@example.com commit -q --allow-empty -m x")
	for _, c := range []struct{ tag, latest string }{
		{"v0.3.0-rc1", "false"}, // the first, so there is no release
		{"v0.9.0", "true"}, {"v0.10.0", "true"}, {"v0.9.1", "false"}, {"v0.11.0-rc1", "false"}, {"v0.10.1", "true"},
	} {
		file := filepath.Join(dir, c.tag+".env")
		run("git tag "+c.tag+"\n"+script, "GITHUB_REF_NAME="+c.tag, "GITHUB_ENV="+file)
		if got := string(get(os.ReadFile(file))(t)); got != "LATEST="+c.latest+"\n" {
			t.Errorf("%s: got %q, want %s", c.tag, got, c.latest)
		}
	}
	if config := string(get(os.ReadFile("../../.ci/goreleaser.yaml"))(t)); !strings.Contains(config, `make_latest: "{{ .Env.LATEST }}"`) || !strings.Contains(config, `(envOrDefault "LATEST" "false")`) {
		t.Error("the release does not use LATEST")
	}
}

// The path that docs/deploy/README.md makes public is served to strangers by respond, as
// RFC 9116 demands. All else needs a session.
func TestSecurityTxtOfThePage(t *testing.T) {
	t.Parallel()
	public := regexp.MustCompile("`(public [^`]+)`").FindStringSubmatch(section(t, "docs/deploy/README.md", "security.txt"))
	s := startSite(t, siteConfig{company: "captcha off", site: "mnemogate {\n" + public[1] + "\n}\nrespond /.well-known/security.txt \"Contact: mailto:security@example.com\"\nreverse_proxy BACKEND"})
	a := s.ask("GET", "/.well-known/security.txt", "").wantStatus(200)
	a.wantHeader("Content-Type", "text/plain; charset=utf-8").wantBody("Contact: mailto:")
	s.ask("GET", "/.well-known/other", "").wantStatus(401)
}
