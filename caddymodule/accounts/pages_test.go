package accounts

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the table of docs/backends.md anew")

// What docs/backends.md lists is the table of the routes. After a change:
// go test ./caddymodule/accounts -run Page -update
func TestPageListsTheRoutes(t *testing.T) {
	const page = "../../docs/backends.md"
	raw, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	want := "| Route | Right | |\n| --- | --- | --- |\n"
	for _, r := range Routes {
		right := "any key"
		if r.Right != "" {
			right = "`" + string(r.Right) + "`"
		}
		want += fmt.Sprintf("| `%s /%s` | %s | %s |\n", r.Method, r.Pattern, right, strings.TrimSuffix(r.Summary, "."))
	}
	head, rest, ok := strings.Cut(string(raw), "<!-- accounts API -->\n")
	got, tail, ended := strings.Cut(rest, "<!-- end of accounts API -->")
	switch {
	case !ok || !ended:
		t.Errorf("%s has no place for the routes", page)
	case *update:
		text := head + "<!-- accounts API -->\n" + want + "<!-- end of accounts API -->" + tail
		if err := os.WriteFile(page, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	case got != want:
		t.Errorf("%s does not list the routes; run go test ./caddymodule/accounts -run Page -update", page)
	}
}
