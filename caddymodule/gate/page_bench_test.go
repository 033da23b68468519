package gate_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// The login page and its style sheet, served by login_page and, compressed in advance, by
// Caddy's file_server. Only Caddy's work is measured, without the network.
func BenchmarkLoginPage(b *testing.B) {
	b.Setenv("MNEMOGATE_TEST_KEY", "key-of-acme")
	dir := b.TempDir()
	load(b, `{
		admin off
		persist_config off
		auto_https off
		mnemogate {
			store sqlite `+dir+`/mnemogate.db
			company acme {
				api_key {env.MNEMOGATE_TEST_KEY}
				captcha off
			}
		}
	}
	http://127.0.0.1:0 {
		handle /files/* {
			root `+dir+`
			file_server {
				precompressed gzip
			}
		}
		handle {
			mnemogate {
				login_page
			}
			respond 404
		}
	}`)
	app, err := caddy.ActiveContext().App("http")
	if err != nil {
		b.Fatal(err)
	}
	server := app.(*caddyhttp.App).Servers["srv0"]
	get := func(b *testing.B, path string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(http.MethodGet, "http://127.0.0.1"+path, nil)
		r.Header.Set("Accept-Encoding", "gzip, br")
		w := httptest.NewRecorder()
		server.ServeHTTP(w, r)
		if w.Code != http.StatusOK || w.Header().Get("Content-Encoding") != "gzip" {
			b.Fatalf("%s: %d %v", path, w.Code, w.Header())
		}
		return w
	}
	page := get(b, "/acme/login")
	r := httptest.NewRequest(http.MethodGet, "http://127.0.0.1/acme/login", nil)
	plain := httptest.NewRecorder()
	server.ServeHTTP(plain, r)
	style := regexp.MustCompile(`/acme/v2/page/[^"]+page\.css`).FindString(plain.Body.String())
	if err := os.Mkdir(dir+"/files", 0o700); err != nil {
		b.Fatal(err)
	}
	for name, content := range map[string][]byte{"page.html": nil, "page.html.gz": page.Body.Bytes(), "page.css": nil, "page.css.gz": get(b, style).Body.Bytes()} {
		if err := os.WriteFile(dir+"/files/"+name, content, 0o600); err != nil {
			b.Fatal(err)
		}
	}
	for _, c := range []struct{ name, path string }{
		{"page/login_page", "/acme/login"}, {"page/file_server", "/files/page.html"},
		{"style/login_page", style}, {"style/file_server", "/files/page.css"},
	} {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				get(b, c.path)
			}
		})
	}
}
