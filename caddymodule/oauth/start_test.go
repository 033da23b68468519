package oauth

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/caddymodule/guest/guesttest"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/store/storetest"
)

func TestClientsAreToldOfAProvider(t *testing.T) {
	linking, named := us, us
	linking.LinkVerifiedEmail = true
	named.Name, named.Scope = "Example ID", []string{"openid", "profile"}
	oauth2 := OAuth2{TokenURL: "https://id.example:8443/token", UserinfoURL: "https://id.example/me", Subject: "id", oauthClient: us}
	asked := oauth2
	asked.AuthorizeURL, asked.Scope = "https://login.example/auth", []string{"read:user"}
	for _, c := range []struct {
		settings tenant.OAuth
		name     string
		scopes   []string
	}{
		{guesttest.MustStart(t, &OIDC{Issuer: "https://id.example/tenant", oauthClient: us}).Settings(), "id.example", []string{"openid"}},
		{guesttest.MustStart(t, &OIDC{Issuer: "https://id.example", oauthClient: linking}).Settings(), "id.example", []string{"openid", "email"}},
		{guesttest.MustStart(t, &OIDC{Issuer: "https://id.example", oauthClient: named}).Settings(), "Example ID", []string{"openid", "profile"}},
		{guesttest.MustStart(t, &oauth2).Settings(), "id.example", nil},
		{guesttest.MustStart(t, &asked).Settings(), "login.example", []string{"read:user"}},
	} {
		if got := c.settings; got.Name != c.name || !slices.Equal(got.Scopes, c.scopes) || got.ClientID != "me" {
			t.Errorf("got %+v, want %s with %q", got, c.name, c.scopes)
		}
	}
}

func TestWhereALoginBegins(t *testing.T) {
	f := newIssuer(t)
	for name, c := range map[string]struct {
		challenges, iss any
		pkce, named     bool
	}{
		"not said": {nil, nil, false, false},
		"plain":    {[]string{"plain"}, false, false, false},
		"S256":     {[]string{"plain", "S256"}, true, true, true},
	} {
		f.discovery = func(doc map[string]any) {
			doc["code_challenge_methods_supported"], doc["authorization_response_iss_parameter_supported"] = c.challenges, c.iss
		}
		want := tenant.OAuthStart{URL: f.URL + "/auth", PKCE: c.pkce, Issuer: f.URL, Iss: c.named}
		if got, err := f.client(t).Start(t.Context()); err != nil || got != want {
			t.Errorf("%s: got %+v, %v", name, got, err)
		}
	}
	oauth2 := guesttest.MustStart(t, &OAuth2{AuthorizeURL: "https://id.example/auth?a=b", TokenURL: "https://id.example/token",
		UserinfoURL: "https://id.example/me", Subject: "id", oauthClient: us})
	if got, err := oauth2.Start(t.Context()); err != nil || got != (tenant.OAuthStart{URL: "https://id.example/auth?a=b"}) {
		t.Errorf("got %+v, %v", got, err)
	}
}

// A provider's word is where a browser goes: to the web, and nowhere else.
func TestALoginBeginsOnTheWeb(t *testing.T) {
	for _, endpoint := range []any{nil, "", "javascript:alert(1)", "/auth", "//id.example/auth", "http://id.example/auth", "data:text/html,x", "https://u:p@id.example/auth"} {
		f := newIssuer(t)
		f.discovery = func(doc map[string]any) { doc["authorization_endpoint"] = endpoint }
		p := f.client(t)
		if got, err := p.Start(t.Context()); err == nil || got.URL != "" {
			t.Errorf("%v: got %+v", endpoint, got)
		}
		if _, err := p.Exchange(t.Context(), grant); err != nil {
			t.Errorf("%v: logins of clients that know it: %v", endpoint, err)
		}
	}
}

// A provider that does not answer holds a caller up for no longer than it likes,
// and is left alone for a while.
func TestAProviderThatDoesNotAnswerIsLeftAlone(t *testing.T) {
	const path = "/.well-known/openid-configuration"
	f := newIssuer(t)
	f.handlers[path] = guesttest.Answering(503, "")
	p := f.client(t)
	now := time.Now()
	p.now = func() time.Time { return now }
	for range 3 {
		if _, err := p.Start(t.Context()); err == nil || !strings.Contains(err.Error(), "discovery") {
			t.Errorf("got %v", err)
		}
	}
	if f.requests[path] != 1 {
		t.Errorf("%d requests", f.requests[path])
	}
	f.change(func() { delete(f.handlers, path) })
	now = now.Add(askAgain)
	if _, err := p.Start(t.Context()); err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := p.Start(ctx); err != nil {
		t.Errorf("what is known needs nobody: %v", err)
	}

	silent, done := newIssuer(t), make(chan struct{})
	defer close(done)
	q := silent.client(t)
	q.now = p.now
	if _, err := q.Start(t.Context()); err != nil {
		t.Error(err)
	}
	silent.change(func() { silent.handlers[path] = func(http.ResponseWriter, *http.Request) { <-done } })
	now = now.Add(startAge)
	ctx, cancel = context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := q.Start(ctx); err != nil || ctx.Err() == nil {
		t.Errorf("the first page that wants a newer document waits for it: got %v", err)
	}
	watch := storetest.StartWatch()
	if _, err := q.Start(t.Context()); err != nil || watch.Took() > time.Second {
		t.Errorf("the next one does not wait: got %v", err)
	}
	if _, err := silent.client(t).Start(ctx); err == nil {
		t.Error("a caller who has left is answered")
	}
}
