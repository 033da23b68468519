package integration

import (
	"compress/gzip"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/store/storetest"
)

// docs/personal-data.md mentions each table of the stores.
func TestPersonalDataNamesEveryTable(t *testing.T) {
	t.Parallel()
	page := pages(t)["docs/personal-data.md"]
	files := get(filepath.Glob("../../store/*/migrations/*.sql"))(t)
	tables := 0
	for _, file := range files {
		script := get(os.ReadFile(file))(t)
		for _, found := range regexp.MustCompile(`(?i)CREATE TABLE (\w+)`).FindAllSubmatch(script, -1) {
			tables++
			if !strings.Contains(page, "`"+string(found[1])+"`") {
				t.Errorf("the page does not say what the table %s has of a person", found[1])
			}
		}
	}
	if tables < 10 {
		t.Errorf("only %d tables were found", tables)
	}
}

// The commands in "When users ask" show what is stored about a person, erase it, and
// show who was erased.
func TestTheCommandsOfPersonalData(t *testing.T) {
	t.Parallel()
	need(t, "jq")
	s := adminSite(t, siteConfig{company: account("other", ""), audit: true})
	s.admin("POST", "accounts", fields{"profile_mnemocode": "alice", "primary_email": "alice@example.com", "password": testPassword}).wantStatus(201)
	s.login("alice@example.com")
	// Caddy names and compresses a rotated file like this.
	rotated := get(os.Create(s.dir + "/audit-2026-01-01T00-00-00.000-size.log.gz"))(t)
	compressed := gzip.NewWriter(rotated)
	fmt.Fprintln(compressed, `{"ts":1767225600,"msg":"mnemogate.account.deleted","company":"acme","mnemocode":"alice","address":"192.0.2.1"}`)
	must(t, errors.Join(compressed.Close(), rotated.Close()))
	var commands []string
	for _, block := range blocks(section(t, "docs/personal-data.md", "When users ask"), "sh") {
		commands = append(commands, strings.Split(strings.TrimSpace(block), "\n")...)
	}
	shown := []string{"alice@example.com", `"address":"127.0.0.1"`, "checkcredentials.success", "192.0.2.1.*(?s:.*)checkcredentials.success", "alice",
		`^\["2026-01-01T00:00:00Z","acme","alice",null\]\n(?s:.*)","acme","alice",null\]`}
	if len(commands) != len(shown) {
		t.Fatalf("the page has %d commands", len(commands))
	}
	for i, want := range shown {
		run := func() bool {
			out, err := s.shell(strings.ReplaceAll(commands[i], "/var/log/mnemogate/", s.dir+"/")).CombinedOutput()
			return err == nil && regexp.MustCompile(want).Match(out)
		}
		storetest.Eventually(t, 20*time.Second, want+" from "+commands[i], run) // events are written a moment later
	}
	s.admin("GET", "accounts/alice", nil).wantStatus(404)
}
