package accounts

import (
	"fmt"
	"strings"
	"testing"

	"github.com/mnemogate/mnemogate/caddymodule/accounts/api"
	"github.com/mnemogate/mnemogate/store/storetest"
)

// What docs/backends.md lists is the table of the routes, by their rights. After a change:
// go test ./caddymodule/accounts -run Page -update
func TestPageListsTheRoutes(t *testing.T) {
	list := ""
	for _, right := range append([]Right{""}, Rights...) {
		var patterns []string
		methods := map[string]string{}
		for _, r := range Routes {
			if right != append(r.Rights, "")[0] {
				continue
			}
			if methods[r.Pattern] == "" {
				patterns = append(patterns, r.Pattern)
			} else {
				methods[r.Pattern] += ", "
			}
			methods[r.Pattern] += r.Method
		}
		var shown []string
		for _, pattern := range patterns {
			path, ok := strings.CutPrefix(pattern, "{company}/")
			if !ok {
				path = "/" + pattern
			}
			shown = append(shown, fmt.Sprintf("`%s %s`", methods[pattern], strings.Replace(path, "accounts/{mnemocode}", "…", 1)))
		}
		if shown == nil {
			continue // act opens the routes of issue
		}
		name := "any key"
		if right != "" {
			name = "`" + string(right) + "`"
		}
		list += fmt.Sprintf("- %s: %s\n", name, strings.Join(shown, ", "))
	}
	storetest.Generated(t, "../../docs/backends.md", "accounts API", list)
}

// The OpenAPI document names all that only an import takes, as TestTheImportNamesItsFields of
// package command says of the command.
func TestTheFieldsOfAnImportAreNamed(t *testing.T) {
	document := openAPIDocument(t).Paths.Value("/{company}/import").Post.Description
	for _, name := range api.OnlyImported {
		if !strings.Contains(document, "`"+name+"`") {
			t.Errorf("the document does not name %s", name)
		}
	}
}
