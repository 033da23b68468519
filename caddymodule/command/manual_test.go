package command

import (
	"bytes"
	"regexp"
	"testing"

	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	"github.com/spf13/cobra"
)

// Each command has a manual page that fits on a terminal.
func TestCommandsHaveManuals(t *testing.T) {
	registered := caddycmd.Commands()["mnemogate"]
	whole := &cobra.Command{Use: "mnemogate", Short: registered.Short, Long: registered.Long}
	registered.CobraFunc(whole)
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
