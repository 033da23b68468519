package command

import (
	"bytes"
	"regexp"
	"strings"
	"testing"

	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	"github.com/spf13/cobra"

	"github.com/mnemogate/mnemogate/caddymodule/accounts/api"
)

// wholeCommand returns caddy mnemogate with its commands.
func wholeCommand() *cobra.Command {
	registered := caddycmd.Commands()["mnemogate"]
	whole := &cobra.Command{Use: "mnemogate", Short: registered.Short, Long: registered.Long}
	registered.CobraFunc(whole)
	return whole
}

// The manual of the import names all that only an import takes.
func TestTheImportNamesItsFields(t *testing.T) {
	found, _, err := wholeCommand().Find([]string{"account", "import"})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range api.OnlyImported {
		if !strings.Contains(found.Long, name) {
			t.Errorf("it does not name %s", name)
		}
	}
}

// Each command has a manual page that fits on a terminal.
func TestCommandsHaveManuals(t *testing.T) {
	whole := wholeCommand()
	manual := regexp.MustCompile(`\A(.{0,80}\n)+\n?Usage:\n(.*\n)*.*--address`)
	seen := 0
	var check func(*cobra.Command)
	check = func(command *cobra.Command) {
		seen++
		var page bytes.Buffer
		command.SetOut(&page)
		err := command.Help()
		if err != nil || !manual.MatchString(page.String()) {
			t.Errorf("%s: %v: %s", command.CommandPath(), err, page.String())
		}
		for _, under := range command.Commands() {
			check(under)
		}
	}
	check(whole)
	if seen < 33 {
		t.Errorf("there are only %d commands", seen)
	}
}
