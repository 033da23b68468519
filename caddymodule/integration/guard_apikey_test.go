package integration

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"testing"

	"github.com/mnemogate/mnemogate/flows/wire"
)

// Contract, section 2: a wrong key, two keys, another company's key and an unknown
// company get the same answer.
func TestAPIKeysOfProtectedPaths(t *testing.T) {
	t.Parallel()
	sum := sha256.Sum256([]byte("second-key"))
	s := startSite(t, siteConfig{company: people, handler: "require_api_key", more: strings.Replace(umbra, "other-key", "other-key sha256:"+hex.EncodeToString(sum[:]), 1)})
	token := s.login("alice@example.com")
	zoe := s.loginAt("umbra", "second-key", "zoe")
	unreached := s.unreached()
	ask := func(start, keys, token string) answer {
		s.t.Helper()
		return s.exchange(start + " HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 0\r\nAuthorization: Bearer " + token + "\r\n" + keys + "\r\n")
	}
	key := func(keys ...string) string {
		lines := ""
		for _, k := range keys {
			lines += "X-API-key: " + k + "\r\n"
		}
		return lines
	}
	refused := []struct {
		name, start, keys string
		want              *wire.Error
	}{
		{"none", "GET /acme/x", "", wire.ErrAPIKeyMissing},
		{"none, no company", "GET /x", "", wire.ErrAPIKeyMissing},
		{"none, auth route", "POST /acme/v2/auth/logout", "", wire.ErrAPIKeyMissing},
		{"none, unknown company's auth route", "POST /nobody/v2/auth/logout", "", wire.ErrAPIKeyMissing},
		{"in the query", "GET /acme/x?X-Api-Key=" + testKey, "", wire.ErrAPIKeyMissing},
		{"wrong", "GET /acme/x", key("wrong"), wire.ErrAPIKeyInvalid},
		{"empty", "GET /acme/x", key(""), wire.ErrAPIKeyInvalid},
		{"in another case", "GET /acme/x", key(strings.ToUpper(testKey)), wire.ErrAPIKeyInvalid},
		{"two", "GET /acme/x", key(testKey, testKey), wire.ErrAPIKeyInvalid},
		{"two in one", "GET /acme/x", key(testKey + ", " + testKey), wire.ErrAPIKeyInvalid},
		{"two, no company", "GET /x", key(testKey, testKey), wire.ErrAPIKeyInvalid},
		{"wrong, no company", "GET /x", key("wrong"), wire.ErrAPIKeyInvalid},
		{"another company's", "GET /acme/x", key("other-key"), wire.ErrAPIKeyInvalid},
		{"another company's, auth route", "POST /acme/v2/auth/logout", key("other-key"), wire.ErrAPIKeyInvalid},
		{"wrong, auth route", "POST /acme/v2/auth/logout", key("wrong"), wire.ErrAPIKeyInvalid},
		{"two, auth route", "POST /acme/v2/auth/logout", key(testKey, testKey), wire.ErrAPIKeyInvalid},
		{"the hash", "POST /umbra/v2/auth/logout", key("sha256:" + hex.EncodeToString(sum[:])), wire.ErrAPIKeyInvalid},
		{"unknown company", "POST /nobody/v2/auth/logout", key(testKey), wire.ErrAPIKeyInvalid},
		{"unknown company, wrong", "POST /nobody/v2/auth/logout", key("wrong"), wire.ErrAPIKeyInvalid},
		{"company in another case", "POST /ACME/v2/auth/logout", key(testKey), wire.ErrAPIKeyInvalid},
		{"another company's token", "GET /x", key("other-key"), wire.ErrTokenInvalid}, // the token must belong to the key's company
		{"TRACE", "TRACE /acme/x", "", wire.ErrMethod},
	}
	bodies := map[*wire.Error]string{}
	for _, test := range refused {
		s.run(test.name, func(t *testing.T) {
			a := ask(test.start, test.keys, token).want(test.want)
			a.wantChallenge()
			said := a.said()
			if body, ok := bodies[test.want]; ok && body != said {
				t.Errorf("got %s, others got %s", a.Body, body)
			}
			bodies[test.want] = said
		})
	}
	// The key is checked before the token.
	ask("GET /acme/x", "", "x").want(wire.ErrAPIKeyMissing)
	ask("GET /acme/x", key(testKey), "x").want(wire.ErrTokenInvalid)
	unreached()
	for _, test := range []struct{ start, key, token string }{
		{"GET /acme/x", testKey, token}, {"GET /x", testKey, token}, {"GET /", "other-key", zoe}, {"GET /umbra", "second-key", zoe},
	} {
		ask(test.start, key(test.key), test.token).wantStatus(200)
	}
	s.wantNoneLogged(testKey, token, "second-key")
}
