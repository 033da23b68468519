package integration

import (
	"fmt"
	"net/http"
	"slices"
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

// wantOne checks that one answer is a success and that each other one is one of
// these errors, or service.unavailable because the machine is busy. It returns the
// index of the success.
func (s *site) wantOne(answers []answer, losers ...*wire.Error) int {
	s.t.Helper()
	losers = append(losers, wire.ErrUnavailable)
	winner, winners := -1, 0
	for i, a := range answers {
		lost := func(e *wire.Error) bool { return a.Status == e.Status && a.str("error_code") == e.Code }
		switch {
		case a.Status == http.StatusOK:
			winner, winners = i, winners+1
		case !slices.ContainsFunc(losers, lost):
			s.t.Errorf("one answer is %d %s", a.Status, a.Body)
		}
	}
	if winners != 1 {
		s.t.Fatalf("%v, want one success", outcomes(answers))
	}
	return winner
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

// wantSessions checks the states of the sessions of an account of acme.
func (s *site) wantSessions(mnemocode string, want ...record.State) {
	s.t.Helper()
	var got []record.State
	for _, session := range s.sessions(mnemocode) {
		got = append(got, session.State)
	}
	if !slices.Equal(got, want) {
		s.t.Errorf("%s has sessions in %q, want %q", mnemocode, got, want)
	}
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

// If any number of requests to two nodes race for one thing, one gets it. The result is
// the same as if they had come one after another. Package flows shows it for all routes.
func TestOneOfManyWins(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	s := startNodes(t, siteConfig{company: roomy + g.provider(3, "") +
		account("alice", "identity 3 alice") +
		"account bob {\nphone +37060000002\n}\n" +
		account("carol", "phone +37060000003\nsecond_factor") +
		account("erin", "question Cat? Whiskers"),
	})
	login := func(loginID string) string {
		return s.post("auth/login", "", fields{"login_id": loginID}).token()
	}
	password := func(token string) answer {
		return s.post("auth/checkpassword", token, fields{"password": testPassword})
	}
	// works checks that a token is valid and that the account has no other session.
	works := func(a answer, mnemocode string) {
		s.t.Helper()
		s.get("/", a.token()).wantStatus(200)
		s.wantSessions(mnemocode, record.Authorized)
	}

	s.run("one token", func(*testing.T) {
		token := login("alice")
		answers := storetest.Together(racers, func(int) answer { return password(token) })
		works(answers[s.wantOne(answers, wire.ErrTokenInvalid)], "alice")
		password(token).want(wire.ErrTokenInvalid)
	})
	s.run("one code", func(*testing.T) {
		token := login("+37060000002")
		code := fields{"otp": s.sms.last("otp.login", "code")}
		answers := storetest.Together(racers, func(int) answer { return s.post("auth/checkotp", token, code) })
		works(answers[s.wantOne(answers, wire.ErrOTPInvalid, wire.ErrTokenInvalid)], "bob")
	})
	s.run("one backup code, ten tokens", func(*testing.T) {
		s.setBackupCodes("carol", "AAAAABBBBB", "CCCCCDDDDD")
		var tokens [10]string
		for i := range tokens {
			tokens[i] = password(login("carol")).wantState(record.CheckOTP).token()
		}
		answers := storetest.Together(racers, func(i int) answer {
			return s.post("auth/checkotp", tokens[i%len(tokens)], fields{"backup_code": "AAAAABBBBB"})
		})
		winner := answers[s.wantOne(answers, wire.ErrBackupCodeInvalid, wire.ErrTokenInvalid, wire.ErrRestricted)]
		s.get("/", winner.token()).wantStatus(200)
		authorized := slices.DeleteFunc(s.sessions("carol"), func(session record.Session) bool { return session.State != record.Authorized })
		if len(authorized) != 1 {
			s.t.Errorf("%d sessions are authorized, want 1", len(authorized))
		}
		if a, err := s.accounts().ByMnemocode(s.t.Context(), "acme", "carol"); err != nil || a.BackupCodes != 1 {
			s.t.Errorf("%d backup codes are left, want 1: %v", a.BackupCodes, err)
		}
	})
	s.run("one code of an OAuth provider", func(t *testing.T) {
		s.endSessions("alice")
		body := fields{"provider_id": 3, "code": codeOf("alice"), "redirect_uri": callback}
		answers := storetest.Together(racers, func(int) answer { return s.post("auth/oauth", "", body) })
		works(answers[s.wantOne(answers, wire.ErrOAuthFailed)], "alice")
		if n := g.count("/token"); n != 1 {
			t.Errorf("it was exchanged %d times", n)
		}
	})
	s.run("one new password, four recoveries", func(*testing.T) {
		var tokens [4]string
		for i := range tokens {
			asked := s.post("auth/recovery/recover", "", fields{"login_id": "erin", "captcha_response": "any", "method": "QUESTION"}).token()
			tokens[i] = s.post("auth/recovery/checkquestion", asked, fields{"control_answer": "Whiskers"}).token()
		}
		var passwords [racers]string
		for i := range passwords {
			passwords[i] = fmt.Sprintf("another new secret, no. %d", i)
		}
		answers := storetest.Together(racers, func(i int) answer {
			return s.post("auth/setpassword", tokens[i%len(tokens)], fields{"new_password": passwords[i]})
		})
		i := s.wantOne(answers, wire.ErrTokenInvalid)
		s.wantSessions("erin")
		for _, wrong := range []string{passwords[(i+1)%racers], passwords[(i+racers-1)%racers], testPassword} {
			s.credentials("erin", wrong).want(wire.ErrCredentialsInvalid)
		}
		s.signedIn("erin", passwords[i])
	})
}

// endSessions revokes all sessions of an account of acme.
func (s *site) endSessions(mnemocode string) {
	s.t.Helper()
	s.admin("DELETE", "accounts/"+mnemocode+"/sessions", nil).wantStatus(204)
}
