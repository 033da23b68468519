package integration

import (
	"net/http"
	"testing"

	"github.com/mnemogate/mnemogate/flows/record"
)

// titleFor sends a request with an Accept-Language header. It returns the title of
// the first disclaimer in the answer.
func (s *site) titleFor(accept string, r *http.Request) string {
	s.t.Helper()
	if accept != "" {
		r.Header.Set("Accept-Language", accept)
	}
	got := s.do(r)
	required, _ := got.JSON["disclaimers_required"].([]any)
	if all, ok := got.JSON["disclaimers"].([]any); ok {
		required = all
	}
	if len(required) == 0 {
		s.t.Fatalf("%d %s has no disclaimers_required", got.Status, got.Body)
	}
	return required[0].(map[string]any)["title"].(string)
}

// Every answer has its disclaimers in the language of Accept-Language.
func TestDisclaimersInTheLanguageOfTheRequest(t *testing.T) {
	t.Parallel()
	onEachDeployment(t, func(t *testing.T, start starter) {
		s := start(t, siteConfig{company: people + `
			disclaimer terms 1 {
				title "Terms"
				title lt "Sąlygos"
				title de "Bedingungen"
			}
		`})
		request := func(route, token string, body fields) *http.Request {
			return s.postRequest("acme", testKey, route, token, body)
		}
		alice := fields{"login_id": "alice@example.com", "password": testPassword}
		for accept, want := range map[string]string{
			"": "Terms", "fr": "Terms", "lt-LT,lt;q=0.9,en;q=0.8": "Sąlygos", "fr, de;q=0.1": "Bedingungen", "not a header\t": "Terms",
		} {
			token := s.post("auth/login", "", fields{"login_id": "alice@example.com"}).wantState(record.CheckPassword).token()
			session := s.getRequest("/acme/v2/session", token)
			session.Header.Set("X-Api-Key", testKey)
			client := s.getRequest("/acme/v2/client.json", "")
			client.Header.Set("X-Api-Key", testKey)
			for what, r := range map[string]*http.Request{
				"login":            request("auth/login", "", fields{"login_id": "alice@example.com"}),
				"checkcredentials": request("auth/checkcredentials", "", alice),
				"checkpassword":    request("auth/checkpassword", token, fields{"password": testPassword}),
				"session":          session,
				"client.json":      client,
			} {
				if got := s.titleFor(accept, r); got != want {
					t.Errorf("%s with %q: got %q, want %q", what, accept, got, want)
				}
			}
		}
		got := s.post("auth/checkcredentials", "", fields{"login_id": "alice@example.com", "password": testPassword, "accept_disclaimers": []string{"terms"}})
		got.wantState(record.Authorized)
	})
}
