package integration

import (
	"crypto/rand"
	"net/http"
	"strings"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/tokens"
	"github.com/mnemogate/mnemogate/flows/wire"
)

func (l *leakTest) captcha() string {
	return l.note("a captcha response", "leakgood"+strings.ToLower(rand.Text()))
}

// exerciseLogins fails in all ways, and succeeds unless a service is broken.
func (l *leakTest) exerciseLogins(key, password string) {
	typed := l.secret("a password typed as login id")
	l.call("acme", key, "auth/login", "", fields{"login_id": typed})
	l.call("acme", key, "auth/checkcredentials", "", fields{"login_id": typed, "password": l.secret("a wrong password")})
	login := func() string { return l.call("acme", key, "auth/login", "", fields{"login_id": "carol"}).token() }
	token := login()
	l.call("acme", key, "auth/checkpassword", token, fields{"password": l.secret("a wrong password")})
	l.call("acme", key, "auth/checkpassword", token, fields{"password": l.secret("a wrong password"), "captcha_response": l.secret("a wrong captcha response")})
	l.call("acme", key, "auth/checkpassword", token, fields{"password": l.secret("a wrong password"), "captcha_response": l.captcha()})
	l.call("acme", key, "auth/checkcredentials", "", fields{"login_id": "alice", "password": l.secret("a wrong password"), "captcha_response": l.captcha()})
	a := l.call("acme", key, "auth/checkpassword", token, fields{"password": password, "captcha_response": l.captcha()})
	if a.str("session_token") == "" {
		return // the captcha or the gateway is broken
	}
	token = a.token()
	l.call("acme", key, "auth/checkotp", token, fields{"otp": l.note("a wrong code", "90909"+digits(5))})
	l.call("acme", key, "auth/checkotp", token, fields{"backup_code": l.note("a wrong backup code", rand.Text()[:10])})
	l.call("acme", key, "auth/renewotp", token, nil)
	token = l.call("acme", key, "auth/checkotp", token, fields{"otp": l.latest("otp.login")}).wantState(record.SetPassword).token()
	l.call("acme", key, "auth/setpassword", token, fields{"new_password": "no" + l.secret("a weak password")}).want(wire.ErrQuality)
	l.call("acme", key, "auth/setpassword", token, fields{"new_password": password}).want(wire.ErrPasswordSame)
	l.call("acme", key, "auth/logout", token, nil).wantState(record.None)
}

func digits(n int) string {
	b := make([]byte, n)
	rand.Read(b)
	for i := range b {
		b[i] = '0' + b[i]%10
	}
	return string(b)
}

func (l *leakTest) exerciseRecoveries(key, answer string) {
	recover := func(method string) string {
		a := l.call("acme", key, "auth/recovery/recover", "", fields{"login_id": "alice", "captcha_response": l.captcha(), "method": method})
		return a.str("session_token")
	}
	l.call("acme", key, "auth/recovery/recover", "", fields{"login_id": "alice", "captcha_response": l.secret("a wrong captcha response")})
	l.call("acme", key, "auth/recovery/checklink", "", fields{"token": l.note("a wrong link", "mgl_"+rand.Text()+rand.Text()[:17])})
	recover("MAIL")
	if token := recover("PHONE"); token != "" {
		l.call("acme", key, "auth/recovery/checkotp", token, fields{"otp": l.note("a wrong code", "80808"+digits(5))}).want(wire.ErrOTPInvalid)
		l.call("acme", key, "auth/recovery/renewotp", token, nil)
		l.call("acme", key, "auth/recovery/checkotp", token, fields{"otp": l.latest("otp.recovery")}).wantState(record.RecoveryPassword)
	}
	if token := recover("QUESTION"); token != "" {
		l.call("acme", key, "auth/recovery/checkquestion", token, fields{"control_answer": l.secret("a wrong answer")}).want(wire.ErrAnswerInvalid)
		l.call("acme", key, "auth/recovery/checkquestion", token, fields{"control_answer": answer}).wantState(record.RecoveryPassword)
	}
}

func (l *leakTest) exerciseProviders(key string) {
	login := func(code, redirect string) answer {
		return l.call("acme", key, "auth/oauth", "", fields{"provider_id": 1, "code": code, "redirect_uri": redirect,
			"code_verifier": l.note("a code verifier", rand.Text()+rand.Text()), "nonce": l.secret("a nonce")})
	}
	const callback = "https://app.example.com/callback"
	login(l.secret("a bad authorization code"), callback).want(wire.ErrOAuthFailed)
	login(l.secret("a bad authorization code"), "https://evil.example.com/?x="+l.secret("a redirect_uri")).want(wire.ErrOAuthFailed)
	login(l.note("an authorization code", "good"+rand.Text()), callback)
}

// exerciseMistakes sends secrets in the wrong places.
func (l *leakTest) exerciseMistakes(key string) {
	send := func(company, body string, header ...string) {
		r := l.request(http.MethodPost, "/"+company+"/v2/auth/checkpassword", body)
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("X-Api-Key", key)
		for i := 0; i < len(header); i += 2 {
			r.Header.Add(header[i], header[i+1])
		}
		l.do(r)
	}
	secret := func() string { return l.secret("a misplaced secret") }
	live := l.call("acme", key, "auth/login", "", fields{"login_id": "alice"}).token()
	bearer := []string{"Authorization", "Bearer " + live}
	send("acme", `{"password":"`+secret()+`"`, bearer...)
	send("acme", `{"password":["`+secret()+`"]}`, bearer...)
	send("acme", `{"Password":"`+secret()+`","`+secret()+`":1}`, bearer...)
	send("acme", `{"password":"`+secret()+`","password":"`+secret()+`"}`, bearer...)
	send("acme", secret(), bearer...)
	send("acme", `{"password":"x"}`, append(bearer, "X-Api-Key", l.secret("a second API key"))...)
	send("acme", `{"password":"x"}`, "Authorization", "Basic "+secret())
	send("acme", `{"password":"x"}`, "Authorization", "Bearer "+secret())
	l.call("acme", l.secret("a wrong API key"), "auth/login", "", fields{"login_id": "alice"})
	l.call("nobody", l.secret("a wrong API key"), "auth/login", "", fields{"login_id": "alice"})
	for _, path := range []string{"/", "/acme/x", "/dead"} {
		l.get(path, l.secret("a wrong token"))
		r := l.getRequest(path, live)
		r.Header.Set("X-Api-Key", l.secret("an API key on a protected path"))
		l.do(r)
	}
}

func (l *leakTest) exercisePanics(key string) {
	a := l.call("panics", key, "auth/login", "", fields{"login_id": "+37060000002"})
	a.want(wire.ErrService)
	l.note("what a panic holds", panicSecret)
}

// exerciseSuccesses completes every flow.
func (l *leakTest) exerciseSuccesses(key string) {
	fresh := l.secret("a new password")
	a := l.call("acme", key, "auth/recovery/recover", "", fields{"login_id": "alice", "captcha_response": l.captcha(), "method": "MAIL"})
	if a.str("verification") != "MAIL" {
		l.t.Fatalf("no link was mailed: %s", a.Body)
	}
	token := l.call("acme", key, "auth/recovery/checklink", "", fields{"token": l.latest("recovery.link")}).wantState(record.RecoveryPassword).token()
	l.call("acme", key, "auth/setpassword", token, fields{"new_password": fresh}).wantState(record.None)
	token = l.call("acme", key, "auth/checkcredentials", "", fields{"login_id": "alice", "password": fresh}).wantState(record.Authorized).token()
	l.get("/", token)
	r := l.getRequest("/dead", token)
	r.Header.Set("X-Api-Key", key)
	if a := l.do(r); a.Status != http.StatusBadGateway {
		l.t.Errorf("/dead: %d", a.Status)
	}
	r = l.getRequest("/check", token)
	for name, value := range map[string]string{"Method": "GET", "Host": "example.com", "Uri": "/orders"} {
		r.Header.Set("X-Forwarded-"+name, value)
	}
	if l.note("an assertion", l.do(r).wantStatus(http.StatusNoContent).Header.Get("X-Mnemogate-Assertion")) == "" {
		l.t.Error("nothing is asserted")
	}
	l.call("acme", key, "auth/logout", token, nil).wantState(record.None)
	token = l.call("acme", key, "auth/oauth", "", fields{"provider_id": 1, "code": l.note("an authorization code", "good"+rand.Text()),
		"redirect_uri": "https://app.example.com/callback"}).wantState(record.Authorized).token()
	l.get("/", token)
}

// exerciseCommands passes secrets to commands.
func (l *leakTest) exerciseCommands() {
	said := ""
	run := func(exit int, stdin string, args ...string) {
		l.t.Helper()
		o := l.cli(stdin, append(args, "--company", "acme")...).want(exit)
		said += o.out + o.errs
	}
	line := func(what string) string { return l.secret(what) + "\n" }
	run(0, line("a password typed at a command")+line("an answer typed at a command"),
		"account", "add", "kate", "--login", "kate", "--password", "--question", "Cat?", "--answer")
	run(0, line("a password typed at a command"), "account", "set", "kate", "--password")
	run(1, `{"profile_mnemocode":"lena","password":"`+l.secret("an imported password")+"\"}\n"+
		`{"profile_mnemocode":"mona","password_hash":"`+l.secret("a bad hash")+"\"}\n", "import")
	run(0, "", "account", "show", "kate")
	said += l.cli("", "doctor").out
	l.search("the output of commands", []byte(said), true)
}

func (l *leakTest) exerciseAdmin(key string) {
	wrong, right := l.secret("a password set by an administrator"), l.secret("a password set by an administrator")
	l.admin("POST", "accounts", fields{"profile_mnemocode": "dave", "login_name": "dave", "password": wrong,
		"control_question": "Cat?", "control_answer": l.secret("an answer set by an administrator")}).wantStatus(http.StatusCreated)
	l.admin("PATCH", "accounts/dave", fields{"password": right, "primary_phone": "+37060000009"}).wantStatus(http.StatusOK)
	sent := l.admin("POST", "contacts", fields{"phone": "+37060000008"}).wantStatus(http.StatusAccepted)
	confirm := fields{"contact_token": l.note("a contact token", sent.str("contact_token")), "code": l.latest("contact.code")}
	proof := l.admin("POST", "contacts/confirm", confirm).wantStatus(http.StatusOK)
	l.admin("PATCH", "accounts/dave", fields{"primary_phone": "+37060000008", "phone_proof": l.note("a proof", proof.str("proof"))}).wantStatus(http.StatusOK)
	for _, bad := range []fields{
		{"password": []string{l.secret("a misplaced secret")}},
		{l.secret("a misplaced secret"): 1},
		{"password_hash": l.secret("a bad hash")},
		{"status": l.secret("a misplaced secret")},
	} {
		l.admin("PATCH", "accounts/dave", bad).wantStatus(http.StatusBadRequest)
	}
	l.call("acme", key, "auth/checkcredentials", "", fields{"login_id": "dave", "password": right}).wantState(record.Authorized)
	codes := l.admin("POST", "accounts/dave/backup-codes", nil).wantStatus(http.StatusOK).JSON["backup_codes"].([]any)
	for _, code := range codes {
		l.note("a backup code", code.(string))
		l.note("a backup code", strings.NewReplacer("-", "", " ", "").Replace(code.(string)))
	}
	l.admin("PATCH", "accounts/dave", fields{"second_factor": true}).wantStatus(http.StatusOK)
	token := l.call("acme", key, "auth/checkcredentials", "", fields{"login_id": "dave", "password": right}).wantState(record.CheckOTP).token()
	l.call("acme", key, "auth/checkotp", token, fields{"backup_code": codes[0]}).wantState(record.Authorized)
	l.exerciseApp(key, right)
	l.adminRaw("POST", "acme/import", `{"profile_mnemocode":"erin","login_name":"erin","password":"`+l.secret("an imported password")+`"}
{"profile_mnemocode":"frank","login_name":"frank","password_hash":"`+l.secret("a bad hash")+`"}
{"profile_mnemocode":"`+l.secret("a misplaced secret")+`{}","password":"`+l.secret("an imported password")+`"}
`+l.secret("a misplaced secret")+"\n").wantStatus(http.StatusOK)
	l.admin("POST", "accounts/dave/unlock", nil).wantStatus(http.StatusOK)
	l.admin("DELETE", "accounts/dave/sessions", nil).wantStatus(http.StatusNoContent)
	l.admin("DELETE", "accounts/dave", nil).wantStatus(http.StatusNoContent)
}

// exerciseApp logs in with an authenticator app.
func (l *leakTest) exerciseApp(key, password string) {
	secret := l.note("the secret of an app", l.admin("POST", "accounts/dave/totp", nil).wantStatus(http.StatusOK).str("secret"))
	raw := get(tokens.ParseTOTPSecret(secret))(l.t)
	l.note("the secret of an app", string(raw))
	l.admin("POST", "accounts/dave/totp/confirm", fields{"code": appShows(l.t, secret, 0)}).wantStatus(http.StatusOK)
	token := l.call("acme", key, "auth/checkcredentials", "", fields{"login_id": "dave", "password": password}).wantState(record.CheckOTP).token()
	l.call("acme", key, "auth/checkotp", token, fields{"otp": appShows(l.t, secret, 30*time.Second)}).wantState(record.Authorized)
	for path, body := range map[string]fields{
		"password":       {"current_password": l.secret("a wrong current password"), "new_password": l.secret("a new password")},
		"check-password": {"current_password": password, l.secret("a misplaced secret"): "x"},
	} {
		if a := l.admin("POST", "accounts/dave/"+path, body); a.Status < 400 {
			l.t.Errorf("%s: %d", path, a.Status)
		}
	}
}

// exerciseBadConfig loads configs with invalid secrets.
func (l *leakTest) exerciseBadConfig() string {
	var output strings.Builder
	good := l.config
	for _, change := range [][2]string{
		{"api_key {env.LEAK_KEY}", "api_key {env.LEAK_BAD}"},
		{"sms webhook", "locale ?\n\t\tsms webhook"},
	} {
		l.config = strings.Replace(good, change[0], change[1], 1)
		if err := l.load(); err != nil {
			output.WriteString(err.Error())
		} else {
			l.t.Errorf("%s was taken", change[1])
		}
	}
	l.config = good
	l.writeCaddyfile()
	return output.String()
}
