package routes

import (
	"fmt"
	"strings"
	"testing"
)

func TestFind(t *testing.T) {
	type route struct{ method, pattern string }
	table := []route{
		{"GET", ""}, {"GET", "{company}/accounts"}, {"POST", "{company}/accounts"}, {"GET", "{company}/{kind}/{id}"},
		{"POST", "passkeys/options"}, {"PATCH", "passkeys/{id}"}, {"DELETE", "passkeys/{id}"},
	}
	for request, want := range map[string]string{
		"GET ":                    "{GET } map[] ",
		"POST ":                   "none map[] GET",
		"GET /":                   "none map[] ",
		"GET acme/accounts":       "{GET {company}/accounts} map[company:acme] ",
		"POST acme/accounts":      "{POST {company}/accounts} map[company:acme] ",
		"PUT acme/accounts":       "none map[] GET, POST",
		"GET /accounts":           "none map[] ",
		"GET acme/accounts/":      "none map[] ",
		"GET acme/Accounts":       "none map[] ",
		"GET {company}/accounts":  "{GET {company}/accounts} map[company:{company}] ",
		"GET a/b/c":               "{GET {company}/{kind}/{id}} map[company:a id:c kind:b] ",
		"GET a/b/c/d":             "none map[] ",
		"POST passkeys/options":   "{POST passkeys/options} map[] ",
		"DELETE passkeys/options": "{DELETE passkeys/{id}} map[id:options] ",
		"GET passkeys/options":    "none map[] DELETE, PATCH, POST",
	} {
		method, path, _ := strings.Cut(request, " ")
		found, params, allow := Find(table, func(r *route) (string, string) { return r.method, r.pattern }, method, strings.Split(path, "/"))
		at := "none"
		if found != nil {
			at = fmt.Sprint(*found)
		}
		if got := fmt.Sprint(at, " ", params, " ", allow); got != want {
			t.Errorf("%s: got %s, want %s", request, got, want)
		}
	}
}
