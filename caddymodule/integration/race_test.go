package integration

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/flows/password"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/wire"
	"github.com/mnemogate/mnemogate/store/storetest"
)

// outcomes counts answers by error code; answers without one count as success.
func outcomes(answers []answer) map[string]int {
	counts := map[string]int{}
	for _, a := range answers {
		if a.Status == http.StatusOK && a.str("status") == "success" {
			counts["success"]++
		} else {
			counts[a.str("error_code")]++
		}
	}
	return counts
}

// wantOne checks that of n racers one is answered a success and that each other one is answered
// one of these errors, or service.unavailable because the machine is busy. If that may be what
// the winner was told, they race once more, for what begin makes anew. It returns the winner,
// and its answer.
func (s *site) wantOne(n int, begin func(), racer func(i int) answer, losers ...*wire.Error) (int, answer) {
	s.t.Helper()
	for tries := 1; ; tries++ {
		begin()
		answers := storetest.Together(n, racer)
		winner, winners, late := -1, 0, false
		for i, a := range answers {
			switch {
			case a.Status == http.StatusOK:
				winner, winners = i, winners+1
			case a.fails(wire.ErrUnavailable):
				late = true
			case !slices.ContainsFunc(losers, a.fails):
				s.t.Errorf("one answer is %d %s", a.Status, a.Body)
			}
		}
		if winners == 1 {
			return winner, answers[winner]
		}
		if winners > 1 || !late || tries == 3 {
			s.t.Fatalf("%v, want one success", outcomes(answers))
		}
	}
}

// sessions returns the sessions of an account of acme.
func (s *site) sessions(mnemocode string) []record.Session {
	s.t.Helper()
	return s.sessionsOf("acme", mnemocode)
}

func (s *site) sessionsOf(company, mnemocode string) []record.Session {
	s.t.Helper()
	db, ctx := s.store(), s.t.Context()
	a := get(db.Accounts().ByMnemocode(ctx, company, mnemocode))(s.t)
	return get(db.Sessions().List(ctx, time.Now(), company, a.ID))(s.t)
}

// failureCount returns an account's count of failures of a kind. The account is
// acme's.
func (s *site) failureCount(mnemocode string, kind record.FailureKind) int {
	s.t.Helper()
	a := get(s.accounts().ByMnemocode(s.t.Context(), "acme", mnemocode))(s.t)
	failures := get(s.accounts().FailureCounts(s.t.Context(), record.FailureKey{Company: "acme", Account: a.ID}))(s.t)
	return failures[kind].Count
}

// setBackupCodes sets the backup codes of an account of acme.
func (s *site) setBackupCodes(mnemocode string, codes ...string) {
	s.t.Helper()
	hashes := get(password.NewHasher(1).HashSet(s.t.Context(), password.Turn{Company: "acme"}, password.Argon2id{MemoryKiB: 64, Iterations: 1, Parallelism: 1}, codes))(s.t)
	a := get(s.accounts().ByMnemocode(s.t.Context(), "acme", mnemocode))(s.t)
	must(s.t, s.accounts().SetBackupCodes(s.t.Context(), a, hashes))
}

// account returns an account for a Caddyfile. Its login name is its mnemocode, and
// it has testPassword and the given lines.
func account(mnemocode, more string) string {
	return fmt.Sprintf("account %[1]s {\nlogin %[1]s\npassword %[2]q\n%[3]s\n}\n", mnemocode, testPassword, more)
}

const racers = 100

// roomy sets limits that tests do not reach by accident.
const roomy = `
	captcha off
	password {
		argon2id 64 1 1 insecure
	}
	limits {
		lock_after 10
		wrong_codes 100/24h
		wrong_answers 100/24h
		failures_per_address 100000/5m
		logins_per_address 100000/1m
		sms_per_account 1000/10m
		sms_per_phone 1000/24h
		sms_per_address 100000/1h
		mails_per_account 1000/1h
		sessions_per_account 10000
	}
`

// hurried is roomy with hashes that take a while. They are short enough for a busy
// machine to compute many of them within the time limit of an answer.
var hurried = strings.Replace(roomy, "argon2id 64 1 1 insecure", "argon2id 7168 2 1 insecure", 1)

// If any number of requests to two nodes race for one thing, one gets it. Of many guesses,
// one is compared for each code that was sent. Package flows shows it for all routes.
func TestOneOfManyWins(t *testing.T) {
	t.Parallel()
	s := startNodes(t, siteConfig{company: roomy + "otp {\nrenewals 100\n}\n" + account("alice", "") +
		account("carol", "phone +37060000003\nsecond_factor") + "account bob {\nphone +37060000002\n}\n" + account("erin", "question Cat? Whiskers")})
	login := func(loginID string) string {
		return s.post("auth/login", "", fields{"login_id": loginID}).token()
	}
	checkOTP := func(token string, n int) answer {
		return s.post("auth/checkotp", token, fields{"otp": fmt.Sprintf("%06d", n%1_000_000)})
	}

	s.run("one token", func(t *testing.T) {
		var token string
		begin := func() {
			s.endSessions("alice")
			token = login("alice")
		}
		password := func(int) answer { return s.post("auth/checkpassword", token, fields{"password": testPassword}) }
		_, won := s.wantOne(racers, begin, password, wire.ErrTokenInvalid)
		s.get("/", won.token()).wantStatus(200)
		if n := len(s.sessions("alice")); n != 1 {
			t.Errorf("%d sessions, want 1", n)
		}
		password(0).want(wire.ErrTokenInvalid)
	})
	s.run("one token, one SMS", func(t *testing.T) {
		var token string
		password := func(int) answer { return s.post("auth/checkpassword", token, fields{"password": testPassword}) }
		before := 0
		begin := func() {
			token = login("carol")
			s.sms.answer(http.StatusInternalServerError)
			password(0).want(wire.ErrUnavailable)
			s.sms.answer(http.StatusOK)
			before = len(s.sms.of("otp.login"))
		}
		_, won := s.wantOne(racers, begin, password, wire.ErrTokenInvalid)
		won.wantState(record.CheckOTP)
		if n := len(s.sms.of("otp.login")) - before; n != 1 {
			t.Errorf("%d SMS were sent, want 1", n)
		}
		s.post("auth/checkotp", won.token(), fields{"otp": s.sms.last("otp.login", "code")}).wantState(record.Authorized)
	})
	s.run("guesses, one of them right", func(t *testing.T) {
		for round := range 3 {
			before := s.failureCount("bob", record.WrongCodes)
			token := login("+37060000002")
			code, _ := strconv.Atoi(s.sms.last("otp.login", "code")) // Sscan would read 012345 as octal
			got := outcomes(storetest.Together(racers, func(i int) answer {
				return checkOTP(token, code+(i+(round-2)*7)*4999+1_000_000)
			}))
			compared := got["success"] + s.failureCount("bob", record.WrongCodes) - before
			refused := got["auth.otp.invalid"] + got["auth.token.invalid"]
			busy := got["service.unavailable"] // the machine is too slow for so many
			if compared > 1 || compared+busy == 0 || got["success"]+refused+busy != racers {
				t.Errorf("%v: %d were compared, want 1", got, compared)
			}
			s.endSessions("bob")
		}
	})
	s.run("guesses, renewals among them", func(t *testing.T) {
		before, sent := s.failureCount("bob", record.WrongCodes), len(s.sms.of("otp.login"))
		token := login("+37060000002")
		answers := storetest.Together(racers, func(i int) answer {
			if i%20 == 0 {
				return s.post("auth/renewotp", token, nil)
			}
			return checkOTP(token, 0)
		})
		// During a renewal there may be no code to compare with, so try once more.
		checkOTP(token, 0).want(wire.ErrOTPInvalid)
		compared := s.failureCount("bob", record.WrongCodes) - before
		if codes := len(s.sms.of("otp.login")) - sent; compared < 1 || compared > codes {
			t.Errorf("%v: %d guesses were compared with %d codes", outcomes(answers), compared, codes)
		}
	})
	s.run("one new password, four recoveries", func(t *testing.T) {
		var tokens [4]string
		begin := func() {
			for i := range tokens {
				asked := s.post("auth/recovery/recover", "", fields{"login_id": "erin", "captcha_response": "any", "method": "QUESTION"}).token()
				tokens[i] = s.post("auth/recovery/checkquestion", asked, fields{"control_answer": "Whiskers"}).token()
			}
		}
		password := func(i int) string { return fmt.Sprintf("another new secret, no. %d", i%racers) }
		i, _ := s.wantOne(racers, begin, func(i int) answer {
			return s.post("auth/setpassword", tokens[i%len(tokens)], fields{"new_password": password(i)})
		}, wire.ErrTokenInvalid)
		if n := len(s.sessions("erin")); n != 0 {
			t.Errorf("%d sessions, want none", n)
		}
		for _, wrong := range []string{password(i + 1), password(i + racers - 1), testPassword} {
			s.credentials("erin", wrong).want(wire.ErrCredentialsInvalid)
		}
		s.signedIn("erin", password(i))
	})
}

// endSessions revokes all sessions of an account of acme.
func (s *site) endSessions(mnemocode string) {
	s.t.Helper()
	s.admin("DELETE", "accounts/"+mnemocode+"/sessions", nil).wantStatus(204)
}
