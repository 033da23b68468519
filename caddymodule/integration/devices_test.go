package integration

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/wire"
)

const deviceCookieName = "__Host-mnemogate-device"

// loginWith is credentials with more fields.
func (s *site) loginWith(login, password string, more fields) answer {
	return s.post("auth/checkcredentials", "", with(fields{"login_id": login, "password": password}, more))
}

func (s *site) remembered(login string) string {
	s.t.Helper()
	device := s.loginWith(login, testPassword, fields{"remember_device": true}).wantState(record.Authorized).str("device_token")
	if !strings.HasPrefix(device, "mgd_") || len(device) != len("mgd_")+43 {
		s.t.Fatalf("the device's token is %q", device)
	}
	return device
}

// lockedByStrangers locks an account.
func (s *site) lockedByStrangers(login string) {
	s.t.Helper()
	for range 10 {
		s.credentials(login, "wrong").want(wire.ErrCredentialsInvalid)
	}
	s.credentials(login, testPassword).want(wire.ErrRestricted)
}

// Contract, section 18, at the door of clients.
func TestKnownDevices(t *testing.T) {
	t.Parallel()
	s := startNodes(t, siteConfig{
		global:  "devices 90d skip_second_factor",
		company: roomy + account("alice", "") + account("carol", "second_factor\nphone +37060000003\nemail carol@example.com\nquestion Cat? Whiskers\n"),
		handler: "cookie\nself_service\n",
	})
	device := s.remembered("alice")
	s.lockedByStrangers("alice")
	s.run("it gets in while strangers have locked the account", func(*testing.T) {
		s.post("auth/login", "", fields{"login_id": "alice"}).want(wire.ErrRestricted)
		step := s.post("auth/login", "", fields{"login_id": "alice", "device_token": device}).wantState(record.CheckPassword)
		s.post("auth/checkpassword", step.token(), fields{"password": testPassword, "device_token": device}).wantState(record.Authorized)
		s.loginWith("alice", testPassword, fields{"device_token": device}).wantState(record.Authorized)
	})
	s.run("the cookie", func(t *testing.T) {
		token := s.loginWith("alice", testPassword, fields{"device_token": device}).token()
		r := s.request("POST", "/acme/v2/session", `{"device_token":"`+device+`"}`)
		r.Header = http.Header{"X-Api-Key": {testKey}, "Authorization": {"Bearer " + token}, "Content-Type": {"application/json"}}
		a := s.do(r).wantStatus(200)
		lines := a.Header["Set-Cookie"]
		i := slices.IndexFunc(lines, func(l string) bool { return strings.HasPrefix(l, deviceCookieName+"=") })
		if i < 0 || lines[i] != deviceCookieName+"="+device+"; Path=/; Max-Age=7776000; HttpOnly; Secure; SameSite=Lax" {
			t.Fatalf("got %q", lines)
		}
		login := func(body fields, headers ...string) answer {
			r := s.postRequest("acme", testKey, "auth/login", "", body)
			r.Header.Set("Cookie", "other=1; "+deviceCookieName+"="+device)
			for i := 0; i < len(headers); i += 2 {
				r.Header.Set(headers[i], headers[i+1])
			}
			return s.do(r)
		}
		alice := fields{"login_id": "alice"}
		login(alice, "Sec-Fetch-Site", "same-origin").wantState(record.CheckPassword)
		for _, site := range []string{"cross-site", "same-site"} {
			login(alice, "Sec-Fetch-Site", site).want(wire.ErrHeaderInvalid).wantReason(string(wire.CrossSite))
		}
		login(alice).want(wire.ErrHeaderInvalid) // no browser sends it without an origin
		login(alice, "Sec-Fetch-Site", "same-origin", "Cookie", deviceCookieName+"="+device+"; "+deviceCookieName+"="+device).want(wire.ErrHeaderInvalid)
		login(fields{"login_id": "alice", "device_token": device}, "Sec-Fetch-Site", "cross-site").wantState(record.CheckPassword) // the cookie is not read
		moved := strings.SplitN(lines[1-i], ";", 2)[0]
		got := s.ask("GET", "/app", "Cookie: a=1; "+moved+"; "+deviceCookieName+"="+device+"; b=2\r\n").wantStatus(200)
		if body := string(got.Body); !strings.Contains(body, "Cookie: a=1; b=2") || strings.Contains(body, device) {
			t.Errorf("the application got %s", got.Body)
		}
	})
	s.run("the user's own password", func(*testing.T) {
		token := s.loginWith("alice", testPassword, fields{"device_token": device}).token()
		change := func(current, wanted, cookie, site string) answer {
			r := s.request("POST", "/acme/v2/me/password", `{"current_password":"`+current+`","new_password":"`+wanted+`"}`)
			r.Header = http.Header{"X-Api-Key": {testKey}, "Authorization": {"Bearer " + token}, "Content-Type": {"application/json"}, "Cookie": {cookie}, "Sec-Fetch-Site": {site}}
			return s.do(r)
		}
		known := deviceCookieName + "=" + device
		change(testPassword, "a fine secret", "", "same-origin").want(wire.ErrRestricted).wantReason("lock.password")
		change(testPassword, "a fine secret", known, "cross-site").want(wire.ErrHeaderInvalid)
		change("wrong", "a fine secret", known, "same-origin").want(wire.ErrPasswordInvalid)
		change(testPassword, "a fine secret", known, "same-origin").wantStatus(200)
		change("a fine secret", testPassword, "", "same-origin").wantStatus(200) // it has ended the lock
		device = s.remembered("alice")
		s.lockedByStrangers("alice")
	})
	s.run("a second factor that was given is not asked for again", func(t *testing.T) {
		code := s.loginWith("carol", testPassword, fields{"remember_device": true}).wantState(record.CheckOTP)
		given := s.post("auth/checkotp", code.token(), fields{"otp": s.sms.last("otp.login", "code"), "remember_device": true}).wantState(record.Authorized)
		s.loginWith("carol", testPassword, fields{"device_token": given.str("device_token")}).wantState(record.Authorized)
		s.loginWith("carol", testPassword, fields{"device_token": device}).wantState(record.CheckOTP)
	})
	s.run("the user's list", func(t *testing.T) {
		a := s.loginWith("alice", testPassword, fields{"device_token": device, "remember_device": true}).wantState(record.Authorized)
		list := s.me("GET", "devices", a.token(), nil).wantStatus(200).JSON["devices"].([]any)
		if len(list) != 1 || list[0].(fields)["current"] != true { // it replaces the one that it was
			t.Fatalf("got %v", list)
		}
		device = a.str("device_token")
		other := s.loginWith("alice", testPassword, fields{"device_token": device}).token()
		s.me("DELETE", "devices/none", other, nil).want(wire.ErrNoRoute)
		s.me("DELETE", "devices/"+list[0].(fields)["device_id"].(string), other, nil).wantStatus(200)
		s.loginWith("alice", testPassword, fields{"device_token": device}).want(wire.ErrRestricted)
		if list := s.me("GET", "devices", other, nil).wantStatus(200).JSON["devices"].([]any); len(list) != 0 {
			t.Errorf("got %v", list)
		}
		s.me("DELETE", "devices", other, nil).wantStatus(200)
	})
	s.wantNoneLogged(device[4:])
	s.run("a stolen token", func(t *testing.T) { aStolenDeviceTokenEnds(t, s) })
}

// A stolen token, tried with the right password on either node after each thing that ends
// it: the second factor is asked for again. A logout ends no device.
func aStolenDeviceTokenEnds(t *testing.T, s *site) {
	operator := s.nodes[1]
	secret := testPassword
	login := func(device string) answer {
		t.Helper()
		return s.loginWith("carol", secret, fields{"device_token": device})
	}
	change := func(change fields) { operator.admin("PATCH", "accounts/carol", change).wantStatus(200) }
	for _, c := range []struct {
		what string
		end  func(token string)
		ends bool
	}{
		{"a logout", func(token string) { s.post("auth/logout", token, nil).wantStatus(200) }, false},
		{"the user's own password", func(token string) {
			s.me("POST", "password", token, fields{"current_password": secret, "new_password": "another fine secret"}).wantStatus(200)
			secret = "another fine secret"
		}, true},
		{"the end of other sessions", func(token string) { s.me("DELETE", "sessions", token, nil).wantStatus(200) }, false},
		{"the user's list", func(token string) { s.me("DELETE", "devices", token, nil).wantStatus(200) }, true},
		{"another role", func(string) { change(fields{"role": "other"}) }, true},
	} {
		s.run(c.what, func(*testing.T) {
			asked := s.loginWith("carol", secret, nil).wantState(record.CheckOTP)
			given := s.post("auth/checkotp", asked.token(), fields{"otp": s.sms.last("otp.login", "code"), "remember_device": true}).wantState(record.Authorized)
			stolen := given.str("device_token")
			login(stolen).wantState(record.Authorized)
			c.end(given.token())
			for range 2 { // on each node
				if c.ends {
					login(stolen).wantState(record.CheckOTP)
				} else {
					login(stolen).wantState(record.Authorized)
				}
			}
		})
	}
}

// header returns a header that the backend received, or "".
func (a answer) header(name string) string {
	lines := linesNamed(string(a.Body), name)
	if len(lines) != 1 {
		return ""
	}
	_, value, _ := strings.Cut(lines[0], ": ")
	return value
}

// Contract, section 15: forward session, auth_time and auth_methods, and the page of
// docs/backends.md that is built on them: it shows which device is this one, and
// changes of the second factor keep its session.
func TestThePageOfYourDevices(t *testing.T) {
	t.Parallel()
	s := accountsSite(t, startNodes, allKeys, siteConfig{handler: "cookie\nforward session auth_time auth_methods role"})
	s.api(keyOfAll, "POST", "acme/accounts", with(alice, fields{"role": "Büro"})).wantStatus(http.StatusCreated)
	began := time.Now()
	cookie := s.moved("alice")
	ended := time.Now()
	here, id := cookie, s.sessionID("alice")
	var since string
	for range 6 { // from the store and from memory, on each node
		a := s.ask("GET", "/devices", here).wantStatus(200)
		if a.header("X-Profile-Session") != id || a.header("X-Profile-Auth-Methods") != "pwd" || a.header("X-Profile-Role") != "B%C3%BCro" {
			t.Errorf("the application got %q, want the session %s", a.told(), id)
		}
		since = a.header("X-Profile-Auth-Time")
		if at, err := strconv.ParseInt(since, 10, 64); err != nil || at < began.Unix() || at > ended.Unix() {
			t.Errorf("the login was at %q, want %d to %d", since, began.Unix(), ended.Unix())
		}
	}

	const path = "acme/accounts/alice/totp"
	other := s.login("alice")
	s.remember(other)
	secret := s.api(keyOfAll, "POST", path, nil).wantStatus(http.StatusOK).str("secret")
	code := appShows(t, secret, 0)
	for _, bad := range []string{"none", other} {
		s.api(keyOfAll, "POST", path+"/confirm", fields{"code": code, "keep_session": bad}).wantRefused(http.StatusBadRequest, "keep_session")
		s.api(keyOfAll, "DELETE", path+"?keep_session="+bad, nil).wantRefused(http.StatusBadRequest, "keep_session")
	}
	s.api(keyOfAll, "DELETE", path+"?session="+id, nil).wantRefused(http.StatusBadRequest, "session")
	s.get("/", other).wantStatus(200)
	keeps := func(other string) {
		t.Helper()
		for _, node := range append(s.nodes, s) {
			s.hears(node, other)
			a := node.ask("GET", "/devices", here).wantStatus(200)
			if want := []string{"X-Profile-Auth-Methods: pwd", "X-Profile-Auth-Time: " + since, "X-Profile-Role: B%C3%BCro", "X-Profile-Session: " + id}; !slices.Equal(a.told(), want) {
				t.Errorf("the application got %q, want %q", a.told(), want)
			}
		}
	}
	s.api(keyOfAll, "POST", path+"/confirm", fields{"code": code, "keep_session": id}).wantStatus(http.StatusOK)
	keeps(other)
	s.api(keyOfAll, "PATCH", "acme/accounts/alice", fields{"second_factor": true}).wantStatus(http.StatusOK)

	next := appShows(t, secret, 30*time.Second)
	other = s.post("auth/checkotp", s.secondStep("alice").token(), fields{"otp": next}).wantState(record.Authorized).token()
	if got := s.get("/", other).wantStatus(200).header("X-Profile-Auth-Methods"); got != "pwd otp mfa" {
		t.Errorf("after a code of the app: %q", got)
	}
	s.api(keyOfAll, "PATCH", "acme/accounts/alice", fields{"second_factor": false}).wantStatus(http.StatusOK)
	here = s.moved("alice")
	id = s.sessionID("alice")
	since = s.ask("GET", "/", here).wantStatus(200).header("X-Profile-Auth-Time")
	lost := s.login("alice")
	s.api(keyOfAll, "DELETE", "acme/accounts/alice/sessions/"+s.get("/", lost).wantStatus(200).header("X-Profile-Session"), nil).wantStatus(http.StatusNoContent)
	keeps(lost)
	other = s.login("alice")
	s.remember(other)
	s.api(keyOfAll, "DELETE", path+"?keep_session="+id, nil).wantStatus(http.StatusNoContent)
	keeps(other)
	s.api(keyOfAll, "DELETE", path, nil).wantStatus(http.StatusNoContent) // there is none any more, so no session ends
	s.ask("GET", "/", here).wantStatus(200)
}
