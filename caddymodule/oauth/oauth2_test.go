package oauth

import (
	"encoding/base64"
	"errors"
	"net/http"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/mnemogate/mnemogate/caddymodule/guest/guesttest"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// newOAuth2 is an OAuth2 module for a provider with these two endpoints.
func newOAuth2(t *testing.T, token, userinfo http.HandlerFunc) *OAuth2 {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("/token", token)
	mux.HandleFunc("/me", userinfo)
	mux.HandleFunc("/elsewhere", func(http.ResponseWriter, *http.Request) { t.Error("the redirect was followed") })
	provider := guesttest.Serve(t, mux)
	return guesttest.MustStart(t, &OAuth2{TokenURL: provider.URL + "/token", UserinfoURL: provider.URL + "/me", Subject: "id",
		Email: "email", Verified: "verified", oauthClient: us})
}

var goodToken = guesttest.Answering(200, `{"access_token":"hidden-access","token_type":"bearer"}`)

func TestOAuth2LogsIn(t *testing.T) {
	for name, c := range map[string]struct {
		style, secret  string
		wantAuth       string
		wantID, wantIn string
	}{
		"basic":  {"", "a:b&c", "Basic " + base64.StdEncoding.EncodeToString([]byte("me:a%3Ab%26c")), "", ""},
		"post":   {"post", "a:b&c", "", "me", "a:b&c"},
		"public": {"", "", "", "me", ""},
	} {
		t.Run(name, func(t *testing.T) {
			var form url.Values
			var auth, bearer string
			calls := 0
			p := newOAuth2(t, func(w http.ResponseWriter, r *http.Request) {
				r.ParseForm()
				form, auth, calls = r.PostForm, r.Header.Get("Authorization"), calls+1
				goodToken(w, r)
			}, func(w http.ResponseWriter, r *http.Request) {
				bearer = r.Header.Get("Authorization")
				w.Write([]byte(`{"id":9007199254740993,"email":"ana@example.com","verified":"true"}`))
			})
			p.ClientSecret = c.secret
			if c.style != "" {
				p.AuthStyle = c.style
			}
			user, err := p.Exchange(t.Context(), grant)
			if want := (tenant.OAuthUser{Subject: "9007199254740993", Email: "ana@example.com", EmailVerified: true}); user != want || err != nil {
				t.Errorf("got %+v, %v, want %+v", user, err, want)
			}
			if auth != c.wantAuth || form.Get("client_id") != c.wantID || form.Get("client_secret") != c.wantIn || calls != 1 ||
				form.Get("code") != grant.Code || form.Get("code_verifier") != grant.CodeVerifier || form.Get("redirect_uri") != grant.RedirectURI {
				t.Errorf("sent %s %v, %d times", auth, form, calls)
			}
			if bearer != "Bearer hidden-access" {
				t.Errorf("userinfo got %s", bearer)
			}
		})
	}
}

// A provider that closes the connection may have taken the code before.
func TestOAuth2SendsACodeOnceWhateverBecomesOfTheConnection(t *testing.T) {
	var taken atomic.Int32 // how often the code that is taken came
	p := newOAuth2(t, func(w http.ResponseWriter, r *http.Request) {
		if r.ParseForm(); r.PostForm.Get("code") == "taken" {
			taken.Add(1)
			conn, _, _ := http.NewResponseController(w).Hijack()
			conn.Close()
			return
		}
		goodToken(w, r)
	}, func(w http.ResponseWriter, r *http.Request) { w.Write([]byte(`{"id":"ana"}`)) })
	if _, err := p.Exchange(t.Context(), grant); err != nil { // which leaves a connection
		t.Fatal(err)
	}
	again := grant
	again.Code = "taken"
	if _, err := p.Exchange(t.Context(), again); err == nil || errors.Is(err, wire.ErrOAuthFailed) || taken.Load() != 1 {
		t.Errorf("sent %d times: %v", taken.Load(), err)
	}
}

func TestOAuth2PicksTheUser(t *testing.T) {
	for name, c := range map[string]struct {
		subject, body string
		want          tenant.OAuthUser
		fails         bool
	}{
		"string":         {"id", `{"id":"abc"}`, tenant.OAuthUser{Subject: "abc"}, false},
		"number":         {"id", `{"id":123}`, tenant.OAuthUser{Subject: "123"}, false},
		"mark":           {"id", "\ufeff" + `{"id":"abc"}`, tenant.OAuthUser{Subject: "abc"}, false},
		"zero":           {"id", `{"id":0}`, tenant.OAuthUser{Subject: "0"}, false},
		"path":           {"data.user.id", `{"data":{"user":{"id":"x"}}}`, tenant.OAuthUser{Subject: "x"}, false},
		"list":           {"response.0.id", `{"response":[{"id":7}]}`, tenant.OAuthUser{Subject: "7"}, false},
		"outside list":   {"response.1.id", `{"response":[{"id":7}]}`, tenant.OAuthUser{}, true},
		"no index":       {"response.x.id", `{"response":[{"id":7}]}`, tenant.OAuthUser{}, true},
		"negative index": {"response.-1.id", `{"response":[{"id":7}]}`, tenant.OAuthUser{}, true},
		"through string": {"id.x", `{"id":"abc"}`, tenant.OAuthUser{}, true},
		"missing":        {"id", `{"login":"abc"}`, tenant.OAuthUser{}, true},
		"null":           {"id", `{"id":null}`, tenant.OAuthUser{}, true},
		"empty":          {"id", `{"id":""}`, tenant.OAuthUser{}, true},
		"bool":           {"id", `{"id":true}`, tenant.OAuthUser{}, true},
		"object":         {"id", `{"id":{}}`, tenant.OAuthUser{}, true},
		"fraction":       {"id", `{"id":1.5}`, tenant.OAuthUser{}, true},
		"exponent":       {"id", `{"id":1e3}`, tenant.OAuthUser{}, true},
		"control":        {"id", `{"id":"a\u0000b"}`, tenant.OAuthUser{}, true},
		"trailing":       {"id", `{"id":"a"}{"id":"b"}`, tenant.OAuthUser{}, true},
		"verified":       {"id", `{"id":"a","email":"b@c","verified":true}`, tenant.OAuthUser{Subject: "a", Email: "b@c", EmailVerified: true}, false},
		"unverified":     {"id", `{"id":"a","email":"b@c","verified":false}`, tenant.OAuthUser{Subject: "a", Email: "b@c"}, false},
		"verified 1":     {"id", `{"id":"a","email":"b@c","verified":1}`, tenant.OAuthUser{Subject: "a", Email: "b@c"}, false},
		"no word":        {"id", `{"id":"a","email":"b@c"}`, tenant.OAuthUser{Subject: "a", Email: "b@c"}, false},
		"odd email":      {"id", `{"id":"a","email":["b@c"],"verified":true}`, tenant.OAuthUser{Subject: "a"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			p := newOAuth2(t, goodToken, guesttest.Answering(200, c.body))
			p.Subject = c.subject
			user, err := p.Exchange(t.Context(), grant)
			if user != c.want || errors.Is(err, wire.ErrOAuthFailed) != c.fails || !c.fails && err != nil {
				t.Errorf("got %+v, %v", user, err)
			}
		})
	}
}

// Some providers answer a form, as GitHub does if it is not asked for JSON. What is no answer of
// a token endpoint is a fault, not a refusal.
func TestOAuth2ReadsAForm(t *testing.T) {
	for answer, ok := range map[string]bool{
		"access_token=hidden-access&token_type=bearer": true, "error=bad_verification_code": false,
		`{"access_token":"hidden-access","id_token":false}`: true, // which OAuth 2.0 does not have
	} {
		p := newOAuth2(t, guesttest.Answering(200, answer), guesttest.Answering(200, `{"id":"x"}`))
		if user, err := p.Exchange(t.Context(), grant); (user.Subject == "x") != ok || errors.Is(err, wire.ErrOAuthFailed) == ok {
			t.Errorf("%s: got %+v, %v", answer, user, err)
		}
	}
	p := newOAuth2(t, guesttest.Answering(200, `<html><a href="?state=x&error=invalid_grant&hint">`), guesttest.Answering(200, `{"id":"x"}`))
	if _, err := p.Exchange(t.Context(), grant); err == nil || errors.Is(err, wire.ErrOAuthFailed) {
		t.Errorf("a page: got %v", err)
	}
}

func TestOAuth2TellsARefusalFromAnOutage(t *testing.T) {
	good := guesttest.Answering(200, `{"id":"x"}`)
	for name, c := range misbehaviours {
		for endpoint, p := range map[string]*OAuth2{
			"token":    newOAuth2(t, c.handler, good),
			"userinfo": newOAuth2(t, goodToken, c.handler),
		} {
			t.Run(name+"/"+endpoint, func(t *testing.T) {
				t.Parallel()
				if c.says == silence { // the others answer, however busy this machine is
					p.Timeout = caddy.Duration(500 * time.Millisecond)
				}
				_, err := p.Exchange(t.Context(), grant)
				guesttest.NoSecrets(t, err, "hidden")
				if refused := c.says.refuses(endpoint == "token"); errors.Is(err, wire.ErrOAuthFailed) != refused || err == nil || !c.says.blames(err, endpoint == "token") {
					t.Errorf("got %v, refused: %v", err, refused)
				}
			})
		}
	}
	p := newOAuth2(t, guesttest.Answering(200, `{"access_token":"hidden\nX: y"}`), good)
	_, err := p.Exchange(t.Context(), grant)
	if guesttest.NoSecrets(t, err, "hidden"); !errors.Is(err, wire.ErrOAuthFailed) {
		t.Errorf("got %v", err)
	}
}
