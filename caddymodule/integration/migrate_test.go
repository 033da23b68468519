package integration

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/wire"
)

func TestPasswordsAreAskedWhereTheAccountsCameFrom(t *testing.T) {
	t.Parallel()
	onEachDeployment(t, func(t *testing.T, start starter) {
		var asked, status atomic.Int64
		old := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			asked.Add(1)
			body, _ := io.ReadAll(r.Body)
			mac := hmac.New(sha256.New, []byte("secret of the tests"))
			fmt.Fprintf(mac, "%s.%s.%s", r.Header.Get("webhook-id"), r.Header.Get("webhook-timestamp"), body)
			var q struct {
				Type, Password string
				Company        string   `json:"company_code"`
				Mnemocode      string   `json:"profile_mnemocode"`
				LoginIDs       []string `json:"login_ids"`
			}
			switch err := json.Unmarshal(body, &q); {
			case err != nil || r.Header.Get("webhook-signature") != "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)) ||
				q.Type != "password.verify" || q.Company != "acme" || q.Mnemocode != "alice" || fmt.Sprint(q.LoginIDs) != "[alice@example.com]":
				t.Errorf("asked %s", body)
			case status.Load() != 0:
				w.WriteHeader(int(status.Load()))
			case q.Password != testPassword:
				w.WriteHeader(http.StatusForbidden)
			}
		}))
		defer old.Close()
		s := start(t, siteConfig{company: "captcha off\npassword {\nmigrate webhook " + old.URL + " {\nsecret " + smsSecret + "\n}\n}"})
		node := s
		if s.nodes != nil {
			node = s.nodes[0]
		}
		node.admin("POST", "accounts", fields{"profile_mnemocode": "alice", "primary_email": "alice@example.com", "password_hash": "$webhook$"}).wantStatus(201)
		login := func(password string) answer {
			return s.post("auth/checkcredentials", "", fields{"login_id": "alice@example.com", "password": password})
		}
		for _, outage := range []int64{500, 302, 404, 204} {
			status.Store(outage)
			login(testPassword).want(wire.ErrUnavailable)
		}
		status.Store(0)
		login("wrong horse battery").want(wire.ErrCredentialsInvalid)
		login(testPassword).wantState(record.Authorized)
		before := asked.Load()
		login(testPassword).wantState(record.Authorized)
		login("wrong horse battery").want(wire.ErrCredentialsInvalid)
		if asked.Load() != before {
			t.Error("asked again")
		}
		if strings.Contains(s.log(), "horse battery") {
			t.Error("the log holds a password")
		}
	})
}
