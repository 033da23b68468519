package integration

import (
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/oauth2"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/wire"
	"github.com/mnemogate/mnemogate/store/storetest"
)

const (
	peerCallback = "https://app.example.com/peerCallback"
	// RFC 6749, section 2.3.1 requires that these characters are encoded.
	peerSecret = "se cret:100%+/=&?~\""
)

// An openID is oidc-provider with one client, and the settings that browsers and the
// client need.
type openID struct {
	*peer
	Issuer  string `json:"issuer"`
	config  fields
	secrets []string
}

func startOpenID(t *testing.T, redirectURIs ...string) *openID {
	t.Helper()
	return startOpenIDLike(t, nil, redirectURIs...)
}

// startOpenIDLike starts an openID that is like another provider, in what oidc.mjs can be.
func startOpenIDLike(t *testing.T, like fields, redirectURIs ...string) *openID {
	t.Helper()
	p := &openID{config: fields{
		"like": like,
		"port": 0,
		"client": fields{
			"client_id":     "mnemogate",
			"client_secret": peerSecret,
			"redirect_uris": append(redirectURIs, peerCallback, peerCallback+"/2"),
		},
		"users": fields{
			"carol-at-provider": fields{"email": "Carol@EXAMPLE.com", "email_verified": true},
			"dave-at-provider":  fields{"email": "dave@example.com", "email_verified": false},
			"erin-at-provider":  fields{"email": "erin@example.com"},
			"sam-at-provider":   fields{"id": 583231, "email_verified": "true"},
		},
	}}
	p.peer = startPeer(t, "oidc.mjs", p.config, p)
	return p
}

// restart restarts it at the same address, with new keys and without its memory.
func (p *openID) restart() {
	p.t.Helper()
	p.config["port"] = get(strconv.Atoi(get(url.Parse(p.Issuer))(p.t).Port()))(p.t)
	p.peer = startPeer(p.t, "oidc.mjs", p.config, p)
}

// calls returns the number of requests to a path.
func (p *openID) calls(t *testing.T, call string) int {
	t.Helper()
	var all []string
	getJSON(t, p.Issuer+"/calls", &all)
	return len(slices.DeleteFunc(all, func(c string) bool { return c != call }))
}

// A peerGrant is the body that a client sends to auth/oauth.
type peerGrant struct {
	code, verifier, nonce string
}

func (g peerGrant) fields(provider int) fields {
	f := fields{"provider_id": provider, "code": g.code, "redirect_uri": peerCallback}
	if g.verifier != "" {
		f["code_verifier"] = g.verifier
	}
	if g.nonce != "" {
		f["nonce"] = g.nonce
	}
	return f
}

var formAction = regexp.MustCompile(`<form[^>]* action="([^"]+)" method="post">`)

// login acts as the user's browser: it sends the authorization request, fills in the
// login form, and follows the redirect to the client's redirect URI.
func (p *openID) login(t *testing.T, user string) peerGrant {
	t.Helper()
	g := peerGrant{verifier: oauth2.GenerateVerifier(), nonce: oauth2.GenerateVerifier()}
	g.code = p.authorize(t, user, url.Values{
		"nonce":                 {g.nonce},
		"code_challenge":        {oauth2.S256ChallengeFromVerifier(g.verifier)},
		"code_challenge_method": {"S256"},
	})
	p.secrets = append(p.secrets, g.verifier, g.nonce)
	return g
}

func (p *openID) authorize(t *testing.T, user string, params url.Values) string {
	t.Helper()
	state := oauth2.GenerateVerifier()
	for name, value := range map[string]string{"client_id": "mnemogate", "response_type": "code",
		"scope": "openid email", "redirect_uri": peerCallback, "state": state} {
		params.Set(name, value)
	}
	at := p.visit(t, user, p.Issuer+"/auth?"+params.Encode())
	code := at.Query().Get("code")
	if code == "" || at.Query().Get("state") != state {
		t.Fatalf("the browser was sent to %s", at)
	}
	p.secrets = append(p.secrets, code)
	return code
}

// visit opens an address of the provider and fills in the login form. It returns the
// redirect to the client's redirect URI.
func (p *openID) visit(t *testing.T, user, address string) *url.URL {
	t.Helper()
	jar := get(cookiejar.New(nil))(t)
	browser := &http.Client{Jar: jar, Timeout: 20 * time.Second, CheckRedirect: func(r *http.Request, _ []*http.Request) error {
		if strings.HasPrefix(r.URL.String(), peerCallback) {
			return http.ErrUseLastResponse
		}
		return nil
	}}
	form := get(browser.Get(address))(t)
	defer form.Body.Close()
	page := get(io.ReadAll(form.Body))(t)
	action := formAction.FindSubmatch(page)
	if action == nil {
		t.Fatalf("%d, and no login form:\n%s", form.StatusCode, page)
	}
	to := get(form.Request.URL.Parse(string(action[1])))(t)
	back := get(browser.PostForm(to.String(), url.Values{"prompt": {"login"}, "login": {user}, "password": {"any"}}))(t)
	defer back.Body.Close()
	at, err := back.Location()
	if err != nil {
		t.Fatalf("%d: %v", back.StatusCode, err)
	}
	return at
}

// provider returns the provider's part of a Caddyfile.
func (p *openID) provider(number int, more string) string {
	return fmt.Sprintf(`
		oauth %d oidc %s {
			client_id mnemogate
			client_secret {env.MNEMOGATE_PEER_SECRET}
			redirect_uri %s %s/2
			%s
		}`, number, p.Issuer, peerCallback, peerCallback, more)
}

func TestPeersOpenIDProvider(t *testing.T) {
	t.Parallel()
	p := startOpenID(t)
	standard := startOpenIDLike(t, fields{"userinfo": true}) // where the emails are
	config := siteConfig{
		company: people + p.provider(1, "") + p.provider(2, "link_verified_email") + standard.provider(3, "link_verified_email") +
			strings.Replace(p.provider(4, ""), "{env.MNEMOGATE_PEER_SECRET}", "another-secret", 1),
		more: `company strict {
			api_key ` + testKey + `
			captcha off
			account sam {
				login sam
				identity 1 sam-at-provider
			}` + disclaimers + p.provider(1, "") + `
		}`,
		env: []string{"MNEMOGATE_PEER_SECRET=" + peerSecret},
	}
	s := startSite(t, config)
	oauth := func(provider int, g peerGrant) answer {
		s.t.Helper()
		return s.post("auth/oauth", "", g.fields(provider))
	}

	s.run("a code is a login, once", func(t *testing.T) {
		g := p.login(t, "alice-at-provider")
		a := oauth(1, g)
		s.wantProfile(a, "alice")
		oauth(1, g).want(wire.ErrOAuthFailed)
		s.wantProfile(a, "alice") // the login is still valid
	})
	s.run("the interface's fields suffice", func(t *testing.T) {
		code := p.authorize(t, "alice-at-provider", url.Values{})
		s.wantProfile(s.post("auth/oauth", "not looked at", peerGrant{code: code}.fields(1)), "alice")
	})
	s.run("the provider is asked no more than it must be", func(t *testing.T) {
		before := p.calls(t, "POST /token")
		for range 3 {
			s.wantProfile(oauth(1, p.login(t, "alice-at-provider")), "alice")
		}
		for call, want := range map[string]int{"GET /.well-known/openid-configuration": 1, "GET /jwks": 1, "POST /token": before + 3} {
			if got := p.calls(t, call); got != want {
				t.Errorf("%d times %s, want %d", got, call, want)
			}
		}
	})
	s.run("redirect_uri", func(t *testing.T) {
		g := p.login(t, "alice-at-provider")
		body := g.fields(1)
		body["redirect_uri"] = peerCallback + "/2" // configured, but not where the code was sent
		s.post("auth/oauth", "", body).want(wire.ErrOAuthFailed)
	})
	s.run("what does not belong together fails", func(t *testing.T) {
		other := oauth2.GenerateVerifier()
		for name, change := range map[string]func(*peerGrant){
			"wrong code":          func(g *peerGrant) { g.code = other },
			"wrong nonce":         func(g *peerGrant) { g.nonce = other },
			"wrong code_verifier": func(g *peerGrant) { g.verifier = other },
			"no code_verifier":    func(g *peerGrant) { g.verifier = "" },
			"a nonce the provider was not given": func(g *peerGrant) {
				g.code, g.verifier = p.authorize(t, "alice-at-provider", url.Values{}), ""
			},
			"a code_verifier the provider was given no challenge for": func(g *peerGrant) {
				g.code = p.authorize(t, "alice-at-provider", url.Values{"nonce": {g.nonce}})
			},
		} {
			s.run(name, func(t *testing.T) {
				g := p.login(t, "alice-at-provider")
				change(&g)
				oauth(1, g).want(wire.ErrOAuthFailed)
			})
		}
	})
	s.run("wrong client_secret", func(t *testing.T) {
		oauth(4, p.login(t, "alice-at-provider")).want(wire.ErrOAuthFailed)
	})
	s.run("a user without an account", func(t *testing.T) {
		oauth(1, p.login(t, "somebody-else")).want(wire.ErrOAuthNotFound)
	})
	s.run("a verified email binds on first use", func(t *testing.T) {
		s.wantProfile(oauth(2, p.login(t, "carol-at-provider")), "carol") // without a second factor
		a, err := s.accounts().ByMnemocode(t.Context(), "acme", "carol")
		if want := (record.Identity{Provider: 2, Subject: "carol-at-provider"}); err != nil || !slices.Contains(a.Identities, want) {
			t.Errorf("carol's identities are %v, %v; want %v", a.Identities, err, want)
		}
	})
	s.run("also one that only userinfo has", func(t *testing.T) {
		s.wantProfile(oauth(3, standard.login(t, "carol-at-provider")), "carol")
	})
	s.run("an email that is not verified does not", func(t *testing.T) {
		for _, name := range []string{"dave", "erin"} {
			oauth(2, p.login(t, name+"-at-provider")).want(wire.ErrOAuthNotFound)
			oauth(3, standard.login(t, name+"-at-provider")).want(wire.ErrOAuthNotFound)
		}
	})
	s.run("disclaimers come before authorized", func(t *testing.T) {
		strict := func(route, token string, body fields) answer { return s.postTo("strict", testKey, route, token, body) }
		a := strict("auth/oauth", "", p.login(t, "sam-at-provider").fields(1)).wantState(record.AcceptDisclaimers)
		if list, _ := a.JSON["disclaimers_required"].([]any); len(list) != 2 {
			t.Errorf("disclaimers_required is %v, want both", a.JSON["disclaimers_required"])
		}
		if _, ok := a.JSON["profile_mnemocode"]; ok {
			t.Error("profile_mnemocode before authorized")
		}
		s.get("/profile", a.token()).want(wire.ErrSessionInvalid)
		strict("auth/acceptdisclaimers", a.token(), fields{"accept_disclaimers": []string{"terms"}}).want(wire.ErrDisclaimerInvalid)
		s.wantProfile(strict("auth/acceptdisclaimers", a.token(), fields{"accept_disclaimers": []string{"terms", "privacy"}}), "sam")
		s.wantProfile(strict("auth/oauth", "", p.login(t, "sam-at-provider").fields(1)), "sam")
	})
	s.run("a provider that says nothing", func(t *testing.T) {
		g := p.login(t, "alice-at-provider")
		p.frozen(func() { wantUnavailable(t, func() answer { return oauth(1, g) }) })
		s.wantProfile(oauth(1, p.login(t, "alice-at-provider")), "alice")
	})
	s.run("a provider that is down, and comes back with other keys", func(t *testing.T) {
		g := p.login(t, "alice-at-provider")
		p.kill()
		wantUnavailable(t, func() answer { return oauth(1, g) })
		p.restart()
		oauth(1, g).want(wire.ErrOAuthFailed) // the provider has forgotten the code
		s.wantProfile(oauth(1, p.login(t, "alice-at-provider")), "alice")
	})
	s.run("a provider that is down when it is first asked", func(t *testing.T) {
		g := p.login(t, "alice-at-provider")
		p.kill()
		must(t, s.reload(config))
		wantUnavailable(t, func() answer { return oauth(1, g) })
		p.restart()
		var back answer
		storetest.Eventually(t, 10*time.Second, "provider that is asked again", func() bool {
			back = oauth(1, p.login(t, "alice-at-provider"))
			return back.Status == 200
		})
		s.wantProfile(back, "alice")
	})
	s.stop(syscall.SIGTERM) // now the log is complete
	if !strings.Contains(s.log(), "invalid_client") {
		t.Error("the log does not tell of the wrong client_secret")
	}
	s.wantNoneLogged(append(append(p.secrets, standard.secrets...), peerSecret, url.QueryEscape(peerSecret), "another-secret")...)
}
