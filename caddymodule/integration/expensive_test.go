package integration

import (
	"context"
	"crypto/pbkdf2"
	"crypto/sha512"
	"encoding/base64"
	"fmt"
	"net/http"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/wire"
	"github.com/mnemogate/mnemogate/store/storetest"
)

// salted returns hashes of backup codes with different salts. Checking a code needs a
// hash for each salt. With 600,000 iterations, this takes a minute.
func salted(iterations int) (hashes []string) {
	for i := range 100 {
		hashes = append(hashes, fmt.Sprintf("$pbkdf2-sha256$%d$MDEyMzQ1N%03d$%043d", iterations, i, 0))
	}
	return hashes
}

// hashSlots is the number of hashes that Caddy computes at once.
var hashSlots = max(1, runtime.NumCPU()-1)

// A company whose accounts have expensive hashes delays its own logins. It delays another company's logins by one hash at most.
func TestExpensiveHashesHoldUpNoOtherCompany(t *testing.T) {
	s := startSite(t, siteConfig{
		company: hurried + account("alice", "") + "account bob {\nphone +37060000002\n}\n",
		more:    "company calm {\napi_key " + testKey + roomy + account("bea", "") + "}\n",
	})
	// busy waits until n logins wait for a hash or have one computed.
	busy := func(n int) {
		t.Helper()
		s.eventually(fmt.Sprint(n, " hashes at work or waiting"), func() bool { return s.scrape()["mnemogate_hash_queue"] >= float64(n) })
	}
	try := func(company, loginID string) answer {
		t.Helper()
		return s.postTo(company, testKey, "auth/checkcredentials", "", fields{"login_id": loginID, "password": testPassword})
	}
	calm := func() {
		t.Helper()
		try("calm", "bea").wantState(record.Authorized)
	}
	calm() // the first hash starts a process

	s.run("backup codes, each with a salt of its own", func(t *testing.T) {
		bob := get(s.accounts().ByMnemocode(t.Context(), "acme", "bob"))(t)
		must(t, s.accounts().SetBackupCodes(t.Context(), bob, salted(600_000/raceSlows)))
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var all sync.WaitGroup
		for range hashSlots {
			token := s.post("auth/login", "", fields{"login_id": "+37060000002"}).wantState(record.CheckOTP).token()
			r := s.postRequest("acme", testKey, "auth/checkotp", token, fields{"backup_code": "ABCDE-FGHIJ"})
			all.Go(func() {
				if a, err := s.try(client, r.WithContext(ctx)); err == nil {
					t.Errorf("an answer before its client gave up: %d %s", a.Status, a.Body)
				}
			})
		}
		busy(hashSlots)
		for range 8 {
			for company, loginID := range map[string]string{"calm": "bea", "acme": "alice"} { // alice has bob's company and even his address
				storetest.Eventually(t, 5*time.Second, "login of "+loginID, func() bool { return try(company, loginID).Status == http.StatusOK })
			}
		}
		cancel()
		all.Wait()
		s.eventually("end of the hashing when the clients were gone", func() bool { return s.scrape()["mnemogate_hash_queue"] == 0 })
	})

	s.run("passwords", func(t *testing.T) {
		iterations := 200_000 / raceSlows
		key := get(pbkdf2.Key(sha512.New, testPassword, []byte("0123456789abcdef"), iterations, sha512.Size))(t)
		base64 := base64.RawStdEncoding.EncodeToString
		s.update("alice", func(a *record.Account) {
			a.PasswordHash = fmt.Sprintf("$pbkdf2-sha512$%d$%s$%s", iterations, base64([]byte("0123456789abcdef")), base64(key))
		})
		logins := 24 * hashSlots // if each had to wait for all of these, most would time out
		var all sync.WaitGroup
		for range logins {
			all.Go(func() {
				a := s.post("auth/checkcredentials", "", fields{"login_id": "alice", "password": testPassword})
				if a.str("session_state") != string(record.Authorized) && a.str("error_code") != wire.ErrUnavailable.Code {
					t.Errorf("got %d %s", a.Status, a.Body)
				}
			})
		}
		busy(2 * hashSlots)
		for range logins {
			all.Go(calm)
		}
		all.Wait()
	})
}
