package command

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/mnemogate/mnemogate/caddymodule/accounts/api"
	"github.com/mnemogate/mnemogate/flows/record"
)

// Operators can set and see each field of an account that is a text, a flag or a time.
func TestEachFieldHasAFlagAndALine(t *testing.T) {
	var shown bytes.Buffer
	c := &cli{cmd: new(cobra.Command)}
	c.cmd.SetOut(&shown)
	if err := c.showAccount(api.Account{}); err != nil {
		t.Fatal(err)
	}
	for _, f := range record.Fields {
		if f.Name == "" || f.Secret {
			continue
		}
		if !slices.ContainsFunc(slices.Concat(textFlags, boolFlags), func(flag fieldFlag) bool { return flag.field == f.Name }) {
			t.Errorf("no flag sets %s; add it to textFlags or boolFlags", f.Name)
		}
		if !strings.Contains("\n"+shown.String(), "\n"+f.Name+" ") {
			t.Errorf("account show has no %s; add it to showAccount", f.Name)
		}
	}
}
