package integration

import (
	"fmt"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/caddymodule/guest/guesttest"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/wire"
	"github.com/mnemogate/mnemogate/store/storetest"
)

// The commands in "Moving there" also move authenticator apps, and what users have
// set since the Caddyfile created their accounts.
func TestMovingKeepsPasswordsAndApps(t *testing.T) {
	t.Parallel()
	_, moving, _ := strings.Cut(pages(t)["docs/many-nodes.md"], "\n## Moving there\n")
	configured := account("alice", "phone +37060000001") + account("gone", "") + account("renamed", "")
	before := adminSite(t, siteConfig{company: configured})
	before.admin("PATCH", "accounts/alice", fields{"password": "a much better secret", "primary_phone": nil}).wantStatus(200)
	before.admin("DELETE", "accounts/gone", nil).wantStatus(204)
	before.admin("PATCH", "accounts/renamed", fields{"profile_mnemocode": "other"}).wantStatus(200)
	before.admin("POST", "accounts", fields{"profile_mnemocode": "bob", "login_name": "bob"}).wantStatus(201)
	const secret = "GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ"
	app := `{"profile_mnemocode": "bob", "totp_secret": "` + secret + `", "second_factor": true}`
	before.cli(app, "account", "import", "--update").want(0, "1 updated")
	lines := regexp.MustCompile(`(?m)^   (caddy .*)$`).FindAllString(moving, -1)
	if strings.Index(moving, "Remove every `account` block") < strings.Index(moving, lines[1]) {
		configured = ""
	}
	there := adminSite(t, siteConfig{company: configured})
	for i, line := range lines {
		s := []*site{before, nil, there}[i]
		if s == nil {
			continue // this is the reload
		}
		output(t, s.shell(strings.ReplaceAll(line, "acme.jsonl", before.dir+"/acme.jsonl")))
	}
	there.credentials("alice", testPassword).want(wire.ErrCredentialsInvalid)
	there.credentials("alice", "a much better secret").wantState(record.Authorized)
	if alice, bob := there.admin("GET", "accounts/alice", nil), there.admin("GET", "accounts/bob", nil); alice.JSON["primary_phone"] != nil || bob.JSON["totp"] != true {
		t.Errorf("got %s and %s", alice.Body, bob.Body)
	}
	there.credentials("gone", testPassword).want(wire.ErrCredentialsInvalid)
	there.wantProfile(there.credentials("renamed", testPassword), "other")
}

// The settings that docs/many-nodes.md makes PgBouncer ignore are set for the user
// instead, and nodes use no others.
func TestSettingsBehindPgBouncer(t *testing.T) {
	t.Parallel()
	_, section, _ := strings.Cut(pages(t)["docs/many-nodes.md"], "\n### PgBouncer\n")
	statements := blocks(section, "sql")[0]
	ignored := regexp.MustCompile("`ignore_startup_parameters = ([\\w,]+)`").FindStringSubmatch(section)[1]
	var given []string
	for _, found := range regexp.MustCompile(`SET (\w+) =`).FindAllStringSubmatch(statements, -1) {
		given = append(given, found[1])
	}
	if strings.Join(given, ",") != ignored {
		t.Errorf("PgBouncer ignores %s, and the user has %s", ignored, given)
	}
	source := get(os.ReadFile("../../store/postgres/postgres.go"))(t)
	asked := regexp.MustCompile(`(?:RuntimeParams\[|\n\t)"(\w+)"[]:]`).FindAllSubmatch(source, -1)
	for _, found := range asked {
		if name := string(found[1]); !slices.Contains(given, name) && name != "client_encoding" { // which PgBouncer passes on
			t.Errorf("nodes also ask for %s", name)
		}
	}
	if len(asked) != len(given)+1 {
		t.Errorf("nodes ask for %d settings", len(asked))
	}
}

// This checks what the runbook says about an SMS gateway that is down: a backup code works
// at once.
func TestBackupCodesWhileTheGatewayIsDown(t *testing.T) {
	t.Parallel()
	gateway := guesttest.Serve(t, guesttest.Answering(http.StatusBadGateway, ""))
	s := adminSite(t, siteConfig{company: "sms webhook " + gateway.URL + " {\nsecret " + smsSecret + "\n}\n" +
		account("carol", "phone +37060000003\nsecond_factor")})
	code := s.admin("POST", "accounts/carol/backup-codes", nil).wantStatus(200).JSON["backup_codes"].([]any)[0]
	asked := s.credentials("carol", testPassword).wantState(record.CheckOTP)
	s.post("auth/checkotp", asked.token(), fields{"backup_code": code}).wantState(record.Authorized)
}

// The receiver that docs/webhooks.md puts between mnemogate and Twilio hands on only signed
// messages, each once, and answers so that the next gateway gets what another could send.
func TestThePagesSMSReceiverHandsOn(t *testing.T) {
	t.Parallel()
	storetest.NeedPeers(t, peersDir)
	// Twilio's answers, as its documentation shows them.
	type said struct {
		status int
		code   int // of its error
	}
	answers := make(chan said, 1)
	twilio := guesttest.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sid, token, _ := r.BasicAuth()
		if r.Method != "POST" || r.URL.Path != "/2010-04-01/Accounts/AC1/Messages.json" || sid != "AC1" || token != "token" ||
			r.FormValue("To") != "+37060012345" || r.FormValue("From") != "+37060000000" || !strings.Contains(r.FormValue("Body"), "acme") {
			t.Errorf("Twilio got %s %s %v %v", r.Method, r.URL, r.Header, r.Form)
		}
		if valid, _ := strconv.Atoi(r.FormValue("ValidityPeriod")); r.FormValue("Body") != "for acme" && (valid < 60 || valid > 300) || r.FormValue("Body") == "for acme" && valid != 0 {
			t.Errorf("Twilio may keep %q for %d s", r.FormValue("Body"), valid)
		}
		answer := <-answers
		w.Header().Set("Content-Type", "application/json")
		if answer.status == http.StatusTooManyRequests {
			w.Header().Set("Retry-After", "7")
		}
		w.WriteHeader(answer.status)
		if answer.code == 0 {
			fmt.Fprint(w, `{"sid":"SM1","status":"queued","error_code":null}`)
		} else {
			fmt.Fprintf(w, `{"code":%d,"message":"…","more_info":"https://www.twilio.com/docs/errors/%[1]d","status":%d}`, answer.code, answer.status)
		}
	}))
	program := get(os.ReadFile("../../docs/examples/sms/twilio.mjs"))(t)
	url, _ := runReceiver(t, string(program), "SMS_SECRET="+smsSecret, "TWILIO="+twilio.URL, "ACCOUNT_SID=AC1", "AUTH_TOKEN=token", "FROM=+37060000000")
	const body = `{"type":"test","company_code":"acme","to":"+37060012345","text":"for acme"}`
	send := func(id, signature string) (*http.Response, error) {
		r := signedRequest(t, url, smsSecret, id, body)
		if signature != "" {
			r.Header.Set("Webhook-Signature", signature)
		}
		response, err := client.Do(r)
		if err == nil {
			response.Body.Close()
		}
		return response, err
	}
	storetest.Eventually(t, 20*time.Second, "the receiver", func() bool {
		response, err := send("forged", "v1,"+strings.Repeat("A", 43)+"=")
		if err == nil && response.StatusCode != http.StatusUnauthorized {
			t.Errorf("a forged message: got %s, want 401", response.Status)
		}
		return err == nil
	})
	for i, c := range []struct {
		said
		want int
		wait string
	}{
		{said{201, 0}, 204, ""},
		{said{429, 20429}, 429, "7"},
		{said{400, 21211}, 422, ""},
		{said{400, 21614}, 422, ""},
		{said{400, 21408}, 422, ""}, // a country against fraud
		{said{400, 21606}, 502, ""}, // FROM sends no SMS
		{said{401, 20003}, 502, ""},
		{said{500, 20500}, 502, ""},
	} {
		answers <- c.said
		if response := get(send(fmt.Sprint("id-", i), ""))(t); response.StatusCode != c.want || response.Header.Get("Retry-After") != c.wait {
			t.Errorf("%v: got %s %v", c.said, response.Status, response.Header)
		}
	}
	survivesStrangers(t, url, smsSecret)
	if response := get(send("id-0", ""))(t); response.StatusCode != http.StatusNoContent { // Twilio would wait for answers
		t.Errorf("a repeated message: got %s", response.Status)
	}

	backup := newWebhookSink(t)
	hook := func(name, url string) string {
		return fmt.Sprintf("sms webhook %s {\nname %s\nsecret %s\n}\n", url, name, smsSecret)
	}
	s := startSite(t, siteConfig{company: hook("twilio", url) + hook("backup", backup.URL) + "captcha off\naccount alice {\nphone +37060012345\n}"})
	login := func(twilio said) answer {
		answers <- twilio
		return s.post("auth/login", "", fields{"login_id": "+37060012345"})
	}
	login(said{201, 0}).wantState(record.CheckOTP)
	login(said{400, 21211}).want(wire.ErrUnavailable)
	if n := len(backup.of("otp.login")); n != 0 {
		t.Errorf("the other gateway got %d messages, want none", n)
	}
	login(said{429, 20429}).wantState(record.CheckOTP)
	if n := len(backup.of("otp.login")); n != 1 {
		t.Errorf("the other gateway got %d messages, want 1", n)
	}
}
