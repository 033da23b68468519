package caddymodule

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/caddymodule/guest/guesttest"
	"github.com/mnemogate/mnemogate/flows"
	"github.com/mnemogate/mnemogate/store/storetest"
)

// What docs/webhooks.md shows between mnemogate and a provider of SMS hands messages
// on, tells what became of them, and takes only signed ones.
func TestThePagesSMSReceiverHandsOn(t *testing.T) {
	t.Parallel()
	storetest.NeedPeers(t, peersDir)
	_, section, _ := strings.Cut(pages(t)["docs/webhooks.md"], "\n## SMS\n")
	receivers := blocks(section, "js")
	if len(receivers) != 1 {
		t.Fatalf("docs/webhooks.md shows %d receivers", len(receivers))
	}
	answer := make(chan int, 1)
	provider := guesttest.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer key" || r.Header.Get("Idempotency-Key") == "" ||
			r.FormValue("to") != "+37060012345" || !strings.Contains(r.FormValue("text"), "is your login code") {
			t.Errorf("the provider got %v %v", r.Header, r.Form)
		}
		w.WriteHeader(<-answer)
	}))
	port := storetest.FreePorts(t, 1)[0]
	cmd := exec.Command("node", "--input-type=module", "--eval", receivers[0])
	cmd.Dir = peersDir
	cmd.Env = append(os.Environ(), "SMS_SECRET="+smsSecret, "PROVIDER_URL="+provider.URL, "PROVIDER_KEY=key", fmt.Sprint("PORT=", port))
	cmd.Stderr = os.Stderr
	if _, err := storetest.Start(cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	url := fmt.Sprintf("http://127.0.0.1:%d/", port)
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
	s.post("auth/login", "", fields{"login_id": "+37060012345"}).wantState(flows.CheckOTP)
	answer <- http.StatusPaymentRequired
	s.post("auth/login", "", fields{"login_id": "+37060012345"}).want(flows.ErrUnavailable)
}
