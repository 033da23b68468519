package accounts

import (
	"fmt"
	"strings"
	"testing"

	"github.com/mnemogate/mnemogate/store/storetest"
)

// What docs/backends.md lists is the table of the routes. After a change:
// go test ./caddymodule/accounts -run Page -update
func TestPageListsTheRoutes(t *testing.T) {
	want := "| Route | Right | |\n| --- | --- | --- |\n"
	for _, r := range Routes {
		right := "any key"
		if r.Right != "" {
			right = "`" + string(r.Right) + "`"
		}
		want += fmt.Sprintf("| `%s /%s` | %s | %s |\n", r.Method, r.Pattern, right, strings.TrimSuffix(r.Summary, "."))
	}
	storetest.Generated(t, "../../docs/backends.md", "accounts API", want)
}
