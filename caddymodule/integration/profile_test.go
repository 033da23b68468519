package integration

import (
	"slices"
	"testing"

	"github.com/mnemogate/mnemogate/flows/wire"
)

// told returns the header lines with the user's profile that the backend received.
func (a answer) told() []string { return linesNamed(string(a.Body), profileHeaders...) }

func TestTheApplicationIsToldOfTheAccount(t *testing.T) {
	t.Parallel()
	without := siteConfig{company: people, more: umbra}
	s := startSite(t, without)
	early := s.login("alice@example.com")
	tells := func(token string, want ...string) {
		t.Helper()
		r := s.getRequest("/", token)
		for _, name := range profileHeaders {
			r.Header.Set(name, "mallory")
		}
		if got := s.do(r).wantStatus(200).told(); !slices.Equal(got, want) {
			t.Errorf("the application got %q, want %q", got, want)
		}
	}
	tells(early)
	forward := without
	forward.handler = "forward role email phone"
	must(t, s.reload(forward))
	tells(early) // its login stored no profile
	token := s.login("alice@example.com")
	for _, change := range []struct {
		fields fields
		want   []string
	}{
		{fields{"role": "Büro 100%", "login_name": "alice"}, []string{"X-Profile-Email: alice@example.com", "X-Profile-Phone: +37060000001", "X-Profile-Role: B%C3%BCro%20100%25"}},
		{fields{"role": "admin", "primary_phone": nil}, []string{"X-Profile-Email: alice@example.com", "X-Profile-Role: admin"}},
		{fields{"role": nil, "primary_email": "al@example.com"}, []string{"X-Profile-Email: al@example.com"}},
	} {
		s.admin("PATCH", "accounts/alice", change.fields).wantStatus(200)
		s.get("/", token).want(wire.ErrTokenInvalid)
		token = s.login("alice")
		for range 3 { // from the store and from memory
			tells(token, change.want...)
		}
	}
	tells(s.loginAt("umbra", "other-key", "zoe")) // she has none
	must(t, s.reload(without))
	tells(token)
}
