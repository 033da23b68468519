package integration

import (
	"net/http"
	"os"
	"regexp"
	"slices"
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
		if out, err := s.shell(strings.ReplaceAll(line, "acme.jsonl", before.dir+"/acme.jsonl")).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", line, err, out)
		}
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
	for _, found := range regexp.MustCompile(`RuntimeParams\["(\w+)"\]`).FindAllSubmatch(source, -1) {
		if name := string(found[1]); !slices.Contains(given, name) && name != "application_name" {
			t.Errorf("nodes also ask for %s", name)
		}
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

// The receiver that docs/webhooks.md puts between mnemogate and an SMS gateway
// forwards messages, reports their result, and accepts only signed ones.
func TestThePagesSMSReceiverHandsOn(t *testing.T) {
	t.Parallel()
	storetest.NeedPeers(t, peersDir)
	_, section, _ := strings.Cut(pages(t)["docs/webhooks.md"], "\n## SMS\n")
	receivers := blocks(section, "js")
	if len(receivers) != 1 {
		t.Fatalf("docs/webhooks.md shows %d receivers", len(receivers))
	}
	answer := make(chan int, 1)
	gateway := guesttest.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer key" || r.Header.Get("Idempotency-Key") == "" ||
			r.FormValue("to") != "+37060012345" || !strings.Contains(r.FormValue("text"), "is your acme login code") {
			t.Errorf("the gateway got %v %v", r.Header, r.Form)
		}
		w.WriteHeader(<-answer)
	}))
	url, _ := runReceiver(t, receivers[0], "SMS_SECRET="+smsSecret, "GATEWAY_URL="+gateway.URL, "GATEWAY_KEY=key")
	storetest.Eventually(t, 20*time.Second, "the receiver", func() bool {
		response, err := client.Post(url, "application/json", strings.NewReader(`{"to":"+37060012345","text":"unsigned"}`))
		if err != nil {
			return false
		}
		defer response.Body.Close()
		if response.StatusCode != http.StatusUnauthorized {
			t.Errorf("a message without a signature: got %s, want 401", response.Status)
		}
		return true
	})
	s := adminSite(t, siteConfig{company: "sms webhook " + url + " {\nsecret " + smsSecret + "\n}\naccount alice {\nphone +37060012345\n}"})
	answer <- http.StatusCreated
	s.post("auth/login", "", fields{"login_id": "+37060012345"}).wantState(record.CheckOTP)
	answer <- http.StatusPaymentRequired
	s.post("auth/login", "", fields{"login_id": "+37060012345"}).want(wire.ErrUnavailable)
}
