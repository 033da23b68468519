package integration

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// changed replaces the first of each pair with the second. The first must occur
// exactly once.
func changed(t *testing.T, text string, pairs ...string) string {
	t.Helper()
	for i := 0; i < len(pairs); i += 2 {
		if n := strings.Count(text, pairs[i]); n != 1 {
			t.Fatalf("the page shows %q %d times", pairs[i], n)
		}
		text = strings.Replace(text, pairs[i], pairs[i+1], 1)
	}
	return text
}

// The accounts API site that docs/backends.md shows, with a certificate of Caddy's
// own CA, answers as the page shows. It does not answer requests from other
// networks.
func TestConsolesOfTheBackendsPage(t *testing.T) {
	t.Parallel()
	need(t, "curl")
	shown := section(t, "docs/backends.md", "The accounts API")
	s := startCaddyfile(t, fmt.Sprintf(`{
	admin off
	skip_install_trust
	auto_https disable_redirects
	servers {
		protocols h1 h2
	}
	mnemogate {
		company acme {
			api_key %s
			captcha off%s
		}
	}
}
`, testKey, cheapHashing)+changed(t, blocks(shown, "caddyfile")[0], "bind 10.0.0.5\n", "bind fd/3\n", "10.0.0.0/24", "127.0.0.1/32"), []string{"SHOP_KEY=key-of-the-shop"})
	_, port, _ := net.SplitHostPort(s.addr)
	s.tells("certificate obtained successfully")
	root := get(os.ReadFile(s.dir + "/data/caddy/pki/authorities/local/root.crt"))(t)
	writeFile(t, s.dir+"/root.crt", string(root))
	writeFile(t, s.dir+"/.curlrc", "connect-to = accounts.internal:8443:127.0.0.1:"+port+"\n")
	shell := func(command string) (string, error) {
		cmd := exec.Command("sh", "-c", command)
		cmd.Dir = s.dir
		cmd.Env = append(os.Environ(), "SHOP_KEY=key-of-the-shop", "CURL_HOME="+s.dir)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	steps := consoleSteps(shown)
	anew := regexp.MustCompile(`\d{4}-\d\d-\d\dT[\d:.]+Z`)
	for _, step := range steps[1:] {
		out, err := shell(steps[0].command + "\n" + step.command)
		if err != nil {
			t.Fatalf("%s: %v\n%s", step.command, err, out)
		}
		step.compare(t, out, anew)
	}
	const look = ` https://accounts.internal:8443/ -H "Authorization: Bearer $SHOP_KEY"`
	if out, err := shell("curl -sS" + look); err == nil || !strings.Contains(out, "(60)") {
		t.Errorf("without the CA: %v %s", err, out)
	}
	if out, err := shell(steps[0].command + "\ncurl -sS --interface 127.0.0.2" + look); err == nil || strings.Contains(out, "acme") || strings.Contains(out, "(60)") {
		t.Errorf("another network: %v %s", err, out)
	}
}

// The header with the secret that docs/backends.md makes Caddy send arrives exactly
// once, whatever a client sends in a header of that name.
func TestTheGatewaysKeyIsCaddysAlone(t *testing.T) {
	t.Parallel()
	const key = "X-Gateway-Key"
	for _, shown := range blocks(section(t, "docs/backends.md", "Trusting the headers"), "caddyfile") {
		if !strings.Contains(shown, key) {
			continue
		}
		_, directives, _ := strings.Cut(shown, "{\n")
		directives = strings.TrimSuffix(strings.TrimSpace(directives), "}")
		s := startSite(t, siteConfig{company: people, site: changed(t, directives, "profile-api:9000", "BACKEND"), env: []string{"GATEWAY_KEY=of-the-gateway"}})
		token := bearer(s.login("frank"))
		for _, sent := range []string{"", key + ": forged\r\n", "x-gateway-key: forged\r\n" + key + ": of-the-gateway\r\n", "Connection: " + key + "\r\n"} {
			s.ask("GET", "/", token+sent).wantStatus(200)
			if got := linesNamed(s.backend.last(), key); !slices.Equal(got, []string{key + ": of-the-gateway"}) {
				t.Errorf("%q: the application got %q", sent, got)
			}
		}
		return
	}
	t.Error("the page does not show it")
}

// The manifests allow only these nodes to reach the application, at the port that
// the Caddyfile uses, only the Ingress to reach the nodes, and only Prometheus their metrics.
func TestDeployedPortsAreTheCaddyfiles(t *testing.T) {
	var caddyfile, labels, ports string
	policies := map[string]string{}
	for _, document := range documents(t, readDeploy(t, "kubernetes.yaml")) {
		spec, _ := document["spec"].(map[string]any)
		switch document["kind"] {
		case "ConfigMap":
			caddyfile = document["data"].(map[string]any)["Caddyfile"].(string)
		case "Deployment":
			template := spec["template"].(map[string]any)
			labels = fmt.Sprint(template["metadata"].(map[string]any)["labels"])
			ports = fmt.Sprint(template["spec"].(map[string]any)["containers"].([]any)[0].(map[string]any)["ports"])
		case "NetworkPolicy":
			policies[document["metadata"].(map[string]any)["name"].(string)] = fmt.Sprint(spec)
		}
	}
	for text, want := range map[string]string{
		policies["mnemogate"]: "ingress:[map[from:[map[namespaceSelector:map[matchLabels:map[kubernetes.io/metadata.name:ingress-nginx]]]] ports:[map[port:http]]] map[from:[map[namespaceSelector:map[matchLabels:map[kubernetes.io/metadata.name:monitoring]] " +
			"podSelector:map[matchLabels:map[app.kubernetes.io/name:prometheus]]]] ports:[map[port:metrics]]]] podSelector:map[matchLabels:" + labels + "] policyTypes:[Ingress]",
		policies["profile-api"]: "ingress:[map[from:[map[podSelector:map[matchLabels:" + labels + "]]] ports:[map[port:9000]]]] podSelector:map[matchLabels:map[app.kubernetes.io/name:profile-api]] policyTypes:[Ingress]",
		ports:                   "map[containerPort:9180 name:metrics]",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the manifests have %s, want %s", text, want)
		}
	}
	for _, line := range []string{"\treverse_proxy profile-api:9000\n", "\nhttp://:9180 {\n\tmetrics\n}\n"} {
		if !strings.Contains(caddyfile, line) {
			t.Errorf("the Caddyfile does not have %q", line)
		}
	}
}

// The consoles of docs/backends.md about introspection, apps and users' own passwords, with
// the secret and the codes of an app that the test sets up.
func TestConsolesOfUsersAndTheirTokens(t *testing.T) {
	t.Parallel()
	need(t, "curl")
	s := accountsSite(t, startSite, allKeys+"\nkey stats key-of-statistics {\nmay introspect\n}", siteConfig{company: strings.ReplaceAll(zed, "zed", "alice")})
	setup := "api=" + s.URL + "/api SHOP_KEY=" + keyOfAll + " STATS_KEY=key-of-statistics token=" + s.login("alice") + "\n"
	secret, made := regexp.MustCompile(`\b[A-Z2-7]{32}\b`), ""
	run := func(command string) string {
		out := output(t, exec.Command("sh", "-c", setup+command))
		if found := secret.FindString(out); found != "" {
			made = found
		}
		return out
	}
	for _, step := range consoleSteps(section(t, "docs/backends.md", "Introspection")) {
		step.compare(t, run(step.command), regexp.MustCompile(`\b[0-9a-f]{32}\b|\b\d{10}\b`))
	}
	s.admin("DELETE", "accounts/alice", nil).wantStatus(http.StatusNoContent)
	s.api(keyOfAll, "POST", "acme/accounts", fields{
		"profile_mnemocode": "alice-0001", "primary_email": "alice@example.com", "password": testPassword,
	}).wantStatus(http.StatusCreated)
	code := regexp.MustCompile(`"code":"[1-9]\d{5}"`)
	for _, step := range consoleSteps(section(t, "docs/backends.md", "An authenticator app") + section(t, "docs/backends.md", "A user's own change of password")) {
		command := code.ReplaceAllStringFunc(step.command, func(string) string { return `"code":"` + appShows(t, made, 0) + `"` })
		step.compare(t, run(command), secret)
	}
	if made == "" {
		t.Fatal("the page shows no secret")
	}
	s.wantNoneLogged(made)
}
