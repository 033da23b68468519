package integration

import (
	"crypto/hmac"
	"crypto/sha1"
	"encoding/base32"
	"encoding/binary"
	"fmt"
	"net/http"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// appShows returns the code that an authenticator app shows at now plus from (RFC
// 6238).
func appShows(t *testing.T, secret string, from time.Duration) string {
	t.Helper()
	key := get(base32.StdEncoding.WithPadding(base32.NoPadding).DecodeString(secret))(t)
	mac := hmac.New(sha1.New, key)
	_ = binary.Write(mac, binary.BigEndian, time.Now().Add(from).Unix()/30)
	sum := mac.Sum(nil)
	return fmt.Sprintf("%06d", binary.BigEndian.Uint32(sum[sum[19]&15:])&0x7fffffff%1000000)
}

// oathtool is like appShows, but uses a third-party program.
func oathtool(t *testing.T, secret string, from time.Duration) string {
	t.Helper()
	cmd := exec.Command("oathtool", "--totp", "--base32", "--now", "@"+fmt.Sprint(time.Now().Add(from).Unix()), "-")
	cmd.Stdin = strings.NewReader(secret)
	return strings.TrimSpace(output(t, cmd))
}

// neverShown returns a code that the app does not show in the next minutes.
func neverShown(t *testing.T, secret string) string {
	t.Helper()
	for code := 0; ; code++ {
		shown := false
		for from := -2 * time.Minute; from <= 3*time.Minute; from += 30 * time.Second {
			shown = shown || appShows(t, secret, from) == fmt.Sprintf("%06d", code)
		}
		if !shown {
			return fmt.Sprintf("%06d", code)
		}
	}
}

// secondStep begins a login and returns the answer that asks for a code.
func (s *site) secondStep(login string) answer {
	s.t.Helper()
	return s.credentials(login, testPassword).wantState(record.CheckOTP)
}

var carol = fields{"profile_mnemocode": "carol", "login_name": "carol", "primary_phone": "+37060000003", "password": testPassword, "second_factor": true}

// The whole life of an app, with the codes of oathtool, on two nodes.
func authenticatorApp(t *testing.T, s *site) {
	need(t, "oathtool")
	s.api(keyOfAll, "POST", "acme/accounts", carol).wantStatus(http.StatusCreated)
	const path = "acme/accounts/carol/totp"
	session := s.post("auth/checkotp", s.secondStep("carol").token(), fields{"otp": s.sms.last("otp.login", "code")}).wantState(record.Authorized).token()
	sent := len(s.sms.of("otp.login"))

	s.api(keyOfAll, "POST", path+"/confirm", fields{"code": "123456"}).wantRefused(http.StatusConflict, "")
	made := s.api(keyOfAll, "POST", path, nil).wantStatus(http.StatusOK)
	secret := made.str("secret")
	// The Key URI Format of Google, which apps read from the QR code.
	if uri := made.str("uri"); uri != "otpauth://totp/acme:carol?secret="+secret+"&issuer=acme&algorithm=SHA1&digits=6&period=30" {
		t.Errorf("uri is %s", uri)
	}
	if s.secondStep("carol").str("user_phone") == "" {
		t.Error("an app that is not confirmed is asked for")
	}
	sent++
	s.api(keyOfAll, "POST", path+"/confirm", fields{}).wantRefused(http.StatusBadRequest, "code")
	s.api(keyOfAll, "POST", path+"/confirm", fields{"code": neverShown(t, secret)}).wantRefused(http.StatusUnprocessableEntity, "code")
	s.api(keyOfAll, "POST", path+"/confirm", fields{"code": 123456}).wantRefused(http.StatusBadRequest, "code")
	s.get("/", session).wantStatus(http.StatusOK)
	s.api(keyOfAll, "POST", path+"/confirm", fields{"code": oathtool(t, secret, 0)}).wantStatus(http.StatusOK).wantField("totp", true)
	s.gone(session)

	first, second := s.secondStep("carol"), s.secondStep("carol")
	if first.JSON["user_phone"] != nil || len(s.sms.of("otp.login")) != sent {
		t.Errorf("got %s, and %d SMS", first.Body, len(s.sms.of("otp.login"))-sent)
	}
	for _, out := range []time.Duration{-2 * time.Minute, 2 * time.Minute} {
		s.post("auth/checkotp", first.token(), fields{"otp": oathtool(t, secret, out)}).want(wire.ErrOTPInvalid)
	}
	code := oathtool(t, secret, 29*time.Second) // of the next time step, or of this one if it is about to end
	if code == oathtool(t, secret, 0) {
		code = oathtool(t, secret, 30*time.Second)
	}
	s.post("auth/checkotp", first.token(), fields{"otp": code}).wantState(record.Authorized)
	for range 2 { // on each node
		s.post("auth/checkotp", second.token(), fields{"otp": code}).want(wire.ErrOTPInvalid)
	}
	s.post("auth/renewotp", second.token(), nil).wantState(record.None).wantField("user_phone", "+37*******03")
	s.post("auth/checkotp", second.token(), fields{"otp": s.sms.last("otp.login", "code")}).wantState(record.Authorized)

	codes := s.api(keyOfAll, "POST", "acme/accounts/carol/backup-codes", nil).JSON["backup_codes"].([]any)
	s.post("auth/checkotp", s.secondStep("carol").token(), fields{"backup_code": codes[0]}).wantState(record.Authorized)
	s.api(keyOfAll, "PATCH", "acme/accounts/carol", fields{"primary_phone": nil}).wantStatus(http.StatusOK)
	s.post("auth/renewotp", s.secondStep("carol").token(), nil).want(wire.ErrValidation)

	// Until a new secret is confirmed, the previous one is valid.
	s.api(keyOfAll, "POST", path, nil).wantStatus(http.StatusOK)
	s.api(keyOfAll, "GET", "acme/accounts/carol", nil).wantField("totp", true)
	export := string(s.api(keyOfAll, "GET", "acme/export", nil).wantStatus(http.StatusOK).Body)
	if strings.Contains(export, secret) || strings.Contains(export, "totp") {
		t.Errorf("the export holds %s", export)
	}
	s.api(keyOfAll, "GET", "acme/export?secrets=yes", nil).wantRefused(http.StatusBadRequest, "secrets")
	line := string(s.api(keyOfAll, "GET", "acme/export?secrets=true", nil).wantStatus(http.StatusOK).Body)
	if !strings.Contains(line, `"totp_secret":"`+secret+`"`) {
		t.Errorf("the export with secrets holds %s", line)
	}
	s.audits(1, `"msg":"mnemogate.accounts.exported","company":"acme","address":"127.0.0.1","actor":"all"}`)
	s.audits(1, `"msg":"mnemogate.accounts.exported","company":"acme","address":"127.0.0.1","actor":"all","reason":"secrets"}`)
	session = s.post("auth/checkotp", s.secondStep("carol").token(), fields{"backup_code": codes[1]}).wantState(record.Authorized).token()
	s.api(keyOfAll, "DELETE", path, nil).wantStatus(http.StatusNoContent)
	s.gone(session)
	s.audits(2, `"msg":"mnemogate.account.totp","company":"acme","mnemocode":"carol"`)
	s.credentials("carol", testPassword).wantState(record.CheckOTP) // a backup code is still possible

	imported := func(want string) {
		t.Helper()
		r := s.request("POST", "/api/acme/import?update=true", line)
		r.Header.Set("Authorization", "Bearer "+keyOfAll)
		s.do(r).wantBody(want)
	}
	imported(`"updated":1`)
	imported(`"skipped":1`) // the secret is the same
	again, state := s.secondStep("carol").token(), record.None
	for _, from := range []time.Duration{-30 * time.Second, 0, 30 * time.Second} { // two of these may have been used before the export
		if a := s.post("auth/checkotp", again, fields{"otp": oathtool(t, secret, from)}); a.Status == 200 {
			state = record.State(a.str("session_state"))
			break
		}
	}
	if state != record.Authorized {
		t.Errorf("with the imported app: %q", state)
	}
	s.wantNoneLogged(secret)
	s.api("reads-and-nothing-else", "POST", path, nil).wantRefused(http.StatusForbidden, "")
	s.api("reads-and-nothing-else", "DELETE", path, nil).wantRefused(http.StatusForbidden, "")
	s.api(keyOfAll, "PATCH", "acme/accounts/carol", fields{"totp": false}).wantRefused(http.StatusBadRequest, "totp")
	s.api(keyOfAll, "PATCH", "acme/accounts/carol", fields{"totp_secret": secret}).wantRefused(http.StatusBadRequest, "totp_secret")
	s.api(keyOfAll, "POST", "acme/accounts/nobody/totp", nil).wantRefused(http.StatusNotFound, "")
}

// A user sets up an app at a terminal.
func TestCommandSetsUpAnApp(t *testing.T) {
	t.Parallel()
	s := adminSite(t, siteConfig{})
	s.admin("POST", "accounts", carol).wantStatus(201)
	s.cli("", "totp", "carol").want(1, "the code is empty")
	s.cli("abcdef\n", "totp", "carol").want(1, "it must have the 6 digits")
	s.cli("", "totp", "nobody").want(2)

	cmd := s.caddy("mnemogate", "--address", "unix/"+s.dir+"/admin.sock", "totp", "carol")
	in := get(cmd.StdinPipe())(t)
	out := get(cmd.StdoutPipe())(t)
	must(t, cmd.Start())
	var shown strings.Builder
	piece := make([]byte, 4096)
	for !strings.Contains(shown.String(), "or type ") || !strings.HasSuffix(shown.String(), "\n") {
		n, err := out.Read(piece)
		if shown.Write(piece[:n]); err != nil {
			t.Fatalf("%v after %s", err, shown.String())
		}
	}
	if !strings.Contains(shown.String(), "█") {
		t.Errorf("no QR code in %s", shown.String())
	}
	_, secret, _ := strings.Cut(shown.String(), "or type ")
	secret = strings.NewReplacer(" ", "", "\n", "").Replace(secret)
	code := appShows(t, secret, 0)
	fmt.Fprintf(in, "%s %s\n", code[:3], code[3:]) // in the format that apps show
	n, _ := out.Read(piece)
	if err := cmd.Wait(); err != nil || !strings.Contains(string(piece[:n]), "carol: the app is confirmed") {
		t.Errorf("got %v and %s", err, piece[:n])
	}
	s.post("auth/checkotp", s.secondStep("carol").token(), fields{"otp": appShows(t, secret, 30*time.Second)}).wantState(record.Authorized)
	if got := s.cli("", "account", "export").want(0); strings.Contains(got.out, secret) {
		t.Error("an export has the secret")
	}
	s.cli("", "account", "export", "--with-secrets").want(0, `"totp_secret":"`+secret+`"`)
	// These secrets can't be opened, as if the store's own secret had been changed.
	s.update("carol", func(a *record.Account) { a.TOTP, a.TOTPPending = "sealed", "sealed" })
	s.cli("", "account", "export", "--with-secrets").want(1, "totp_secret: account carol: ", "remove the account's app")
	s.admin("POST", "accounts/carol/totp/confirm", fields{"code": "123456"}).wantRefused(409, "")
	s.cli("", "totp", "remove", "carol").want(0, "carol: the app is removed")
	s.cli("", "account", "show", "carol").want(0, "totp                  no\n")
}
