package integration

import (
	"net/http"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// The consoles of docs/backends.md about apps and users' own passwords, with the
// secret and the codes of an app that the test sets up.
func TestConsolesOfAppsAndOwnPasswords(t *testing.T) {
	t.Parallel()
	need(t, "curl")
	s := accountsSite(t, startSite, allKeys, siteConfig{})
	s.api(keyOfAll, "POST", "acme/accounts", fields{
		"profile_mnemocode": "alice-0001", "primary_email": "alice@example.com", "password": testPassword,
	}).wantStatus(http.StatusCreated)
	code, secret := regexp.MustCompile(`"code":"[1-9]\d{5}"`), regexp.MustCompile(`\b[A-Z2-7]{32}\b`)
	made := ""
	sections := section(t, "docs/backends.md", "An authenticator app") + section(t, "docs/backends.md", "A user's own change of password")
	for _, step := range consoleSteps(sections) {
		command := code.ReplaceAllStringFunc(step.command, func(string) string { return `"code":"` + appShows(t, made, 0) + `"` })
		out, err := exec.Command("sh", "-c", "api="+s.URL+"/api SHOP_KEY="+keyOfAll+"\n"+command).CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", command, err, out)
		}
		step.compare(t, string(out), secret)
		if found := secret.FindString(string(out)); found != "" {
			made = found
		}
	}
	if made == "" || strings.Contains(s.log(), made) {
		t.Error("the page shows no secret, or the log has it")
	}
}
