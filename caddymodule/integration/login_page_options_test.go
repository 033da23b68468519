package integration

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// Contract, section 16: the links, the sign-up, the images, the style sheet and the
// choice to stay logged in are the operator's.
func TestTheLoginPageIsTheCompanysOwn(t *testing.T) {
	t.Parallel()
	s := startSite(t, siteConfig{company: people + `
		oauth 3 oauth2 {
			name Club
			icon testdata/logo.svg
			authorize_url https://club.example.com/authorize
			token_url https://club.example.com/token
			userinfo_url https://club.example.com/user
			subject id
			client_id ours
			client_secret hidden
			redirect_uri https://app.example.com/acme/login
		}`, site: `
		handle_path /own/* {
			mnemogate {
				login_page {
					logo testdata/logo.svg
					logo_dark testdata/logo.svg
					favicon testdata/logo.svg
					style testdata/style.css
					link Imprint https://example.com/imprint
					link Help tel:+37060000000 support
					link de Impressum https://example.com/de/impressum
					signup "Create an account" /join
					remember
				}
			}
			reverse_proxy BACKEND
		}
		handle {
			mnemogate {
				login_page
			}
			reverse_proxy BACKEND
		}`})
	_, english := s.loaded("/own/acme/login", "")
	for _, want := range []string{
		`<a href="https://example.com/imprint" dir="auto">Imprint</a>`, `<a href="tel:&#43;37060000000" dir="auto">Help</a>`, `/favicon">`, `/style/style.css">`,
		`/logo_dark" media="(prefers-color-scheme: dark)">`,
	} {
		if !strings.Contains(english, want) {
			t.Errorf("the page has no %s\n%s", want, english)
		}
	}
	if _, german := s.loaded("/own/acme/login?lang=de", ""); !strings.Contains(german, ">Impressum</a>") || strings.Contains(german, "Imprint") {
		t.Errorf("the German page is %s", german)
	}
	config := func(path string) (c struct {
		Links    []map[string]any
		SignUp   map[string]any
		Remember bool
		OAuth    []struct{ Icon string }
	}) {
		t.Helper()
		must(t, json.Unmarshal(s.ask("GET", path+"/acme/v2/client.json", sessionKey).wantStatus(200).Body, &c))
		return c
	}
	own := config("/own")
	if got := fmt.Sprint(own.Links, own.SignUp, own.Remember); got != "[map[text:Imprint url:https://example.com/imprint] map[support:true text:Help url:tel:+37060000000]] map[text:Create an account url:/join] true" {
		t.Errorf("client.json has %s", got)
	}
	s.ask("GET", own.OAuth[0].Icon, "").wantStatus(200).wantHeader("Content-Type", "image/svg+xml")
	if plain := config(""); len(plain.Links) != 0 || plain.SignUp != nil || plain.Remember {
		t.Errorf("the other site's client.json has %+v", plain)
	}
	const asks = "Content-Type: application/json\r\nContent-Length: %d\r\n"
	for _, c := range []struct{ site, body, want string }{
		{"/own", `{"remember":true}`, "; Max-Age=86400; "},
		{"/own", `{"remember":false}`, ""},
		{"/own", "", ""},
		{"", `{"remember":true}`, ""}, // this site does not offer it
	} {
		a := s.ask("POST", c.site+"/acme/v2/session", sessionKey+bearer(s.login("alice@example.com"))+fmt.Sprintf(asks, len(c.body))+"\r\n"+c.body)
		if set := a.wantStatus(200).Header.Get("Set-Cookie"); strings.Contains(set, "Max-Age") != (c.want != "") || !strings.Contains(set, c.want) {
			t.Errorf("%s %s: the cookie is %s", c.site, c.body, set)
		}
	}
	token := s.login("alice@example.com")
	s.ask("POST", "/acme/v2/session", sessionKey+bearer(token)+fmt.Sprintf(asks, 14)+"\r\n"+`{"remember":1}`).wantStatus(400)
	s.get("/", token).wantStatus(200) // it was not exchanged
}
