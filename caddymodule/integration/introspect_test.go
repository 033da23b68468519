package integration

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/flows/manage"
	"github.com/mnemogate/mnemogate/flows/record"
)

var zed = account("zed", "email zed@example.com")

// introspect asks for the state of a token (RFC 7662).
func (s *site) introspect(key, contentType, body string) answer {
	s.t.Helper()
	r := s.request("POST", "/api/acme/introspect", body)
	r.Header.Set("Content-Type", contentType)
	if key != "" {
		r.Header.Set("Authorization", "Bearer "+key)
	}
	return s.do(r)
}

const form = "application/x-www-form-urlencoded"

func (s *site) worth(token string) string {
	s.t.Helper()
	return string(s.introspect(keyOfAll, form, url.Values{"token": {token}}.Encode()).wantStatus(http.StatusOK).Body)
}

const inactive = `{"active":false}` + "\n"

func TestTokensAreIntrospected(t *testing.T) {
	t.Parallel()
	s := accountsSite(t, startNodes, allKeys, siteConfig{company: zed, more: umbra})
	began := time.Now()
	s.api(keyOfAll, "PATCH", "acme/accounts/zed", fields{"role": "Büro 100%"}).wantStatus(http.StatusOK)
	token := s.login("zed")
	session := s.sessions("zed")[0]
	want := fields{"active": true, "sub": "zed", "company": "acme", "state": "authorized", "sid": session.ID,
		"iat": float64(session.Created.Unix()), "exp": float64(session.Expires.Unix()), "auth_time": float64(session.Created.Unix()), "amr": []string{"pwd"}, "role": "Büro 100%"}
	for range 4 { // from the stores and from the memories of both nodes
		for contentType, body := range map[string]string{
			form:                              "token_type_hint=refresh_token&token=" + token,
			"application/json":                `{"x": 1, "token": "` + token + `"}`,
			"application/json; charset=utf-8": `{"token":"` + token + `"}`,
		} {
			a := s.introspect(keyOfAll, contentType, body).wantStatus(http.StatusOK)
			if got, _ := json.Marshal(a.JSON); string(got) != s.encoded(want) {
				t.Errorf("got %s, want %v", a.Body, want)
			}
		}
		s.get("/x", token).wantStatus(200)
	}
	if iat := session.Created.Unix(); iat < began.Unix() || iat > time.Now().Unix() {
		t.Errorf("it began at %v", session.Created)
	}
	if got := s.sessions("zed")[0].Expires; !got.Equal(session.Expires) {
		t.Errorf("it was extended from %v to %v", session.Expires, got)
	}

	step := s.post("auth/login", "", fields{"login_id": "zed"}).token()
	for how, token := range map[string]string{
		"a step's": step, "another company's": s.loginAt("umbra", "other-key", "zoe"), "unknown": "mgs_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
		"none at all": "x", "with a scheme": "Bearer " + token,
	} {
		if got := s.worth(token); got != inactive {
			t.Errorf("%s: got %s", how, got)
		}
	}
	s.post("auth/checkpassword", step, fields{"password": testPassword}).wantState(record.Authorized) // the token was not used up

	s.post("auth/logout", token, nil).wantState(record.None)
	s.eventually("the ended token is inactive on all nodes", func() bool {
		for range s.all() { // the nodes take turns
			if s.worth(token) != inactive {
				return false
			}
		}
		return true
	})

	s.introspect("reads-and-nothing-else", form, "token="+token).wantRefused(http.StatusForbidden, "")
	if a := s.introspect("", form, "token="+token).wantRefused(http.StatusUnauthorized, ""); a.Header.Get("WWW-Authenticate") == "" {
		t.Error("401 without a challenge")
	}
	s.introspect("not-a-key-at-all", form, "token="+token).wantRefused(http.StatusUnauthorized, "")
	asClient := func(path, user, secret, body string) answer {
		r := s.request("POST", "/api/acme/"+path, body)
		r.Header.Set("Content-Type", form)
		if user != "" {
			r.SetBasicAuth(user, secret)
		}
		return s.do(r)
	}
	asClient("introspect", "x", "key%2Dthat-may-do-all", "token="+token).wantStatus(http.StatusOK) // as RFC 6749 has it
	asClient("introspect", "x", keyOfAll, "token="+token+"&client_secret=x").wantStatus(http.StatusOK)
	if a := asClient("introspect", "x", "reads", "token="+token).wantRefused(http.StatusUnauthorized, ""); !strings.HasPrefix(a.Header.Get("WWW-Authenticate"), "Basic ") {
		t.Errorf("the challenge is %q", a.Header.Get("WWW-Authenticate"))
	}
	asClient("introspect", "", "", "token="+token+"&client_id=x&client_secret=reads-and-nothing-else").wantRefused(http.StatusForbidden, "")
	asClient("introspect", "", "", "token="+token+"&client_secret=").wantRefused(http.StatusUnauthorized, "")
	asClient("introspect", "", "", "token="+token+"&client_secret="+strings.Repeat("x", 1<<20)).wantRefused(http.StatusUnauthorized, "")
	asClient("accounts", "x", keyOfAll, `{"profile_mnemocode":"x"}`).wantRefused(http.StatusUnauthorized, "") // only introspect is OAuth's
	for body, contentType := range map[string]string{
		"": form, "token=": form, "token=a&token=b": form, "Token=a": form, "{}": "application/json", `{"token":null}`: "application/json",
		`{"token":"a","token":"b"}`: "application/json", `{"token":1}`: "application/json", `{"token":"a"}x`: "application/json",
	} {
		s.introspect(keyOfAll, contentType, body).wantRefused(http.StatusBadRequest, "token")
	}
	s.introspect(keyOfAll, form, "token=%zz").wantRefused(http.StatusBadRequest, "")
	s.introspect(keyOfAll, "text/plain", "token="+token).wantRefused(http.StatusUnsupportedMediaType, "")
	s.introspect(keyOfAll, form, "token="+strings.Repeat("x", 1<<20)).wantRefused(http.StatusRequestEntityTooLarge, "")
	s.wantNoneLogged(token)
	s.api(keyOfAll, "POST", "acme/introspect?token="+token, nil).wantRefused(http.StatusBadRequest, "token")
	s.api(keyOfAll, "GET", "acme/introspect", nil).wantRefused(http.StatusMethodNotAllowed, "")
	s.run("by an OAuth client", func(t *testing.T) {
		node := s.all()[0]
		token, ended := node.login("zed"), node.login("zed")
		node.post("auth/logout", ended, nil).wantState(record.None)
		config := s.encoded(fields{"api": node.URL + "/api", "company": "acme", "key": keyOfAll, "tokens": []string{ended, token, token}})
		out := newWorkshop(t, nil, peersDir+"/introspect.mjs").node(t, "introspect.mjs", config)
		var got []manage.Introspection
		if err := json.Unmarshal([]byte(out), &got); err != nil || len(got) != 3 {
			t.Fatalf("%v: %s", err, out)
		}
		if got[0].Active || !got[1].Active || got[1].Sub != "zed" || !got[2].Active {
			t.Errorf("the client says %s", out)
		}
	})
}
