package page

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"golang.org/x/text/language"
)

// What a visit of the login page costs, with the key of the visit before and with
// another.
func BenchmarkServeLogin(b *testing.B) {
	p, err := New(Options{Title: "Acme"})
	if err != nil {
		b.Fatal(err)
	}
	r := httptest.NewRequest(http.MethodGet, "/acme/login", nil)
	r.Header.Set("Accept-Encoding", "gzip, br")
	german := func() []language.Tag { return []language.Tag{language.German} }
	visit := func(key string) {
		p.Serve(httptest.NewRecorder(), r, View{Kind: "login", Company: "acme", Key: key, Languages: german})
	}
	b.Run("same key", func(b *testing.B) {
		for b.Loop() {
			visit("mgp_AAY")
		}
	})
	b.Run("new key", func(b *testing.B) {
		i := 0
		for b.Loop() {
			i++
			visit(fmt.Sprintf("mgp_%064d", i))
		}
	})
}
