package integration

import (
	"context"
	"crypto/pbkdf2"
	"crypto/sha512"
	"encoding/base64"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// salted returns hashes of backup codes with different salts. Checking a code needs a
// hash for each salt. With 600,000 iterations, this takes a minute.
func salted(iterations int) (hashes []string) {
	for i := range 100 {
		hashes = append(hashes, fmt.Sprintf("$pbkdf2-sha256$%d$MDEyMzQ1N%03d$%043d", iterations, i, 0))
	}
	return hashes
}

// A hash that takes more than about a second of a CPU is refused wherever hashes can
// be set. The error names the line and says what to do.
func TestExpensiveHashesAreRefused(t *testing.T) {
	t.Parallel()
	s := adminSite(t, siteConfig{})
	const key = "EH3db6XWEF3n9fsrwHbnCqN7+QWH4nsUZqWS3H0zQ4w"
	pbkdf2 := func(iterations int) string {
		return fmt.Sprintf("$pbkdf2-sha256$%d$MDEyMzQ1Njc4OTAx$%s", iterations, key)
	}
	const advice = "the hash takes too long to check: pbkdf2-sha256 with 3000000 iterations and a key of 32 bytes is the most; leave it out, and let the user set a new one"
	tooExpensive := salted(600_000)
	const together = "together the hashes take too long to check, because each salt among them costs a hash; use one salt for all, or leave them out and let the user get new ones"

	s.run("import", func(t *testing.T) {
		failures, counts := s.importAll("", strings.Join([]string{
			fmt.Sprintf(`{"profile_mnemocode":"a","password_hash":%q}`, pbkdf2(3_000_000)),
			fmt.Sprintf(`{"profile_mnemocode":"b","password_hash":%q}`, pbkdf2(3_000_001)),
			fmt.Sprintf(`{"profile_mnemocode":"c","control_question":"?","control_answer_hash":%q}`, pbkdf2(3_000_001)),
			fmt.Sprintf(`{"profile_mnemocode":"d","backup_code_hashes":["%s"]}`, strings.Join(tooExpensive, `","`)),
			fmt.Sprintf(`{"profile_mnemocode":"e","backup_code_hashes":["%s"]}`, strings.Join(tooExpensive[:5], `","`)),
		}, "\n"))
		if counts.Created != 2 || counts.Failed != 3 {
			t.Errorf("got %+v", counts)
		}
		for line, want := range map[int][2]string{2: {"password_hash", advice}, 3: {"control_answer_hash", advice}, 4: {"backup_code_hashes", together}} {
			if got := failures[line]; got.Field != want[0] || got.Error != want[1] {
				t.Errorf("line %d: got %+v, want %q", line, got, want)
			}
		}
	})
	s.run("accounts API", func(t *testing.T) {
		expensive := fields{"password_hash": pbkdf2(3_000_001)}
		for _, a := range []answer{
			s.admin("POST", "accounts", with(alice, fields{"password": nil, "password_hash": pbkdf2(3_000_001)})),
			s.admin("PATCH", "accounts/a", expensive),
		} {
			a.wantStatus(http.StatusBadRequest)
			if a.str("field") != "password_hash" || a.str("error") != "password_hash: "+advice {
				t.Errorf("got %s", a.Body)
			}
		}
	})
	s.run("command line", func(t *testing.T) {
		got := s.cli(pbkdf2(3_000_001)+"\n", "account", "set", "a", "--password-hash")
		if got.exit == 0 || !strings.Contains(got.errs, advice) {
			t.Errorf("got %+v", got)
		}
	})
}

// hashSlots is the number of hashes that Caddy computes at once.
var hashSlots = max(1, runtime.NumCPU()-1)

// A company whose accounts have expensive hashes, imported by an older version,
// delays its own logins. It delays another company's logins by one hash at most.
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
	calm := func() {
		t.Helper()
		s.postTo("calm", testKey, "auth/checkcredentials", "", fields{"login_id": "bea", "password": testPassword}).wantState(record.Authorized)
	}
	calm() // the first hash starts a process

	s.run("backup codes, each with a salt of its own", func(t *testing.T) {
		bob, err := s.accounts().ByMnemocode(t.Context(), "acme", "bob")
		if err != nil {
			t.Fatal(err)
		}
		if err := s.accounts().SetBackupCodes(t.Context(), "acme", bob.ID, salted(600_000/raceSlows)); err != nil {
			t.Fatal(err)
		}
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
			calm()
			s.login("alice") // of the same company and even the same address
		}
		cancel()
		all.Wait()
		s.eventually("end of the hashing when the clients were gone", func() bool { return s.scrape()["mnemogate_hash_queue"] == 0 })
	})

	s.run("passwords", func(t *testing.T) {
		const iterations = 200_000 / raceSlows
		key, err := pbkdf2.Key(sha512.New, testPassword, []byte("0123456789abcdef"), iterations, sha512.Size)
		if err != nil {
			t.Fatal(err)
		}
		base64 := base64.RawStdEncoding.EncodeToString
		s.update("alice", false, func(a *record.Account) {
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
