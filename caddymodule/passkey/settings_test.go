package passkey

import (
	"strings"
	"testing"
)

func TestSettings(t *testing.T) {
	for _, c := range []struct {
		id      string
		origins string
		want    string // the beginning of the error; empty for none
	}{
		{"example.com", "", ""},
		{"example.com", "https://example.com https://app.example.com:8443 android:apk-key-hash:AbCdEfGhIjKlMnOpQrStUvWxYz0123456789-_AbCdE", ""},
		{"localhost", "http://localhost:8080 https://localhost", ""},
		{"xn--bcher-kva.example", "https://xn--bcher-kva.example", ""},

		{"", "", "rp_id: it is missing"},
		{"https://example.com", "", "rp_id: "},
		{"example.com:443", "", "rp_id: "},
		{"example.com/login", "", "rp_id: "},
		{"*.example.com", "", "rp_id: "},
		{"192.0.2.1", "", "rp_id: 192.0.2.1 is an IP address"},
		{"[::1]", "", "rp_id: "},
		{"intranet", "", "rp_id: intranet is a public suffix"},
		{"com", "", "rp_id: com is a public suffix"},
		{"co.uk", "", "rp_id: co.uk is a public suffix"},
		{"github.io", "", "rp_id: github.io is a public suffix"},
		{"Example.com", "", `rp_id: "Example.com" is not how browsers write the domain; write example.com`},
		{"bücher.example", "", `rp_id: "bücher.example" is not how browsers write the domain; write xn--bcher-kva.example`},
		{"example.com.", "", "rp_id: "},
		{"exa mple.com", "", "rp_id: "},

		{"example.com", "https://example.net https://app.example.de https://notexample.com", ""},
		{"app.example.com", "https://example.com", ""},
		{"example.com", "https://a.example https://b.example https://c.example https://d.example https://e.example https://e.co.uk", ""},
		{"example.com", "https://a.example https://b.example https://c.example https://d.example https://e.example https://f.example", "origins: those elsewhere than rp_id have 6 different names"},
		{"example.com", "https://co.uk", `origins: "https://co.uk": its domain is neither rp_id`},
		{"example.com", "https://localhost", `origins: "https://localhost": its domain is neither rp_id`},
		{"example.com", "http://example.com", "origins: "},
		{"example.com", "http://localhost:8080", "origins: "},
		{"example.com", "https://example.com:443", `origins: "https://example.com:443": browsers write it as https://example.com; write that`},
		{"example.com", "https://münchen.example.com", `origins: "https://münchen.example.com": browsers write it as https://xn--mnchen-3ya.example.com; write that`},
		{"localhost", "http://localhost:80", `origins: "http://localhost:80": browsers write it as http://localhost; write that`},
		{"example.com", "https://example.com/", "origins: "},
		{"example.com", "https://example.com/login", "origins: "},
		{"example.com", "https://user@example.com", "origins: "},
		{"example.com", "https://Example.com", "origins: "},
		{"example.com", "example.com", "origins: "},
		{"example.com", "*", "origins: "},
		{"example.com", "https://*.example.com", "origins: "},
		{"example.com", "android:apk-key-hash:short", "origins: "},
		{"example.com", "android:com.example", "origins: "},
		{"example.com", "https://example.com https://example.com", `origins: "https://example.com" is named twice`},
	} {
		s := Settings{RPID: c.id, Origins: strings.Fields(c.origins)}
		err := s.Check()
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.HasPrefix(err.Error(), c.want)) {
			t.Errorf("%q %q: got %v, want %q", c.id, c.origins, err, c.want)
		}
		if err == nil {
			if _, err := New(s); err != nil {
				t.Errorf("%q %q: %v", c.id, c.origins, err)
			}
		}
	}
	for _, name := range []string{strings.Repeat("x", 65), "a\nb", "{env.NAME}"} {
		if err := (&Settings{RPID: "example.com", Name: name}).Check(); err == nil || !strings.HasPrefix(err.Error(), "name: ") {
			t.Errorf("%q: %v", name, err)
		}
	}
}
