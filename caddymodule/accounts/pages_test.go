package accounts

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/mnemogate/mnemogate/caddymodule/accounts/api"
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

// The OpenAPI document and docs/operators.md name all that only an import takes.
func TestTheFieldsOfAnImportAreNamed(t *testing.T) {
	page, err := os.ReadFile("../../docs/operators.md")
	if err != nil {
		t.Fatal(err)
	}
	document := openAPIDocument(t).Paths.Value("/{company}/import").Post.Description
	for _, name := range api.OnlyImported {
		if !strings.Contains(document, "`"+name+"`") || !strings.Contains(string(page), "`"+name+"`") {
			t.Errorf("the document or the page does not name %s", name)
		}
	}
}
