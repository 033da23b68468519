package integration

import (
	"fmt"
	"strconv"
	"testing"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/wire"
	"github.com/mnemogate/mnemogate/store/storetest"
)

// storm calls f n times, with as many concurrent calls as the machine can open
// connections.
func storm(n int, f func(i int) answer) []answer {
	const width = 100
	var answers []answer
	for begun := 0; begun < n; begun += width {
		answers = append(answers, storetest.Together(min(width, n-begun), func(i int) answer { return f(begun + i) })...)
	}
	return answers
}

// Nodes count attempts together, however many come at once.
func TestNodesCountTogether(t *testing.T) {
	t.Parallel()
	s := startNodes(t, siteConfig{company: roomy + "otp {\nrenewals 100\n}\n" +
		account("alice", "email alice@example.com\nphone +37060000001") +
		"account bob {\nphone +37060000002\n}\n" +
		account("carol", "phone +37060000003\nsecond_factor")})
	s.run("codes", func(*testing.T) { s.guessesAtOnceCompareOneCode() })
	s.run("passwords", func(*testing.T) { s.wrongPasswordsAreOneCount() })
}

// guessesAtOnceCompareOneCode checks that of many different guesses at the same time, one
// of them right, only one is compared. With renewals among them, one is compared for each
// code that was sent.
func (s *site) guessesAtOnceCompareOneCode() {
	const guesses = 100
	login := func() string {
		return s.post("auth/login", "", fields{"login_id": "+37060000002"}).wantState(record.CheckOTP).token()
	}
	// guess returns the i-th of many different guesses; number 0 is right.
	guess := func(code string, i int) fields {
		n, _ := strconv.Atoi(code) // Sscan would read 012345 as octal
		return fields{"otp": fmt.Sprintf("%06d", (n+i*4999+1_000_000)%1_000_000)}
	}
	s.run("one is right", func(t *testing.T) {
		for round := range 3 {
			before := s.failureCount("bob", record.WrongCodes)
			token := login()
			code := s.sms.last("otp.login", "code")
			got := outcomes(storetest.Together(guesses, func(i int) answer { return s.post("auth/checkotp", token, guess(code, i+(round-2)*7)) }))
			compared := got["success"] + s.failureCount("bob", record.WrongCodes) - before
			refused := got["auth.otp.invalid"] + got["auth.token.invalid"]
			busy := got["service.unavailable"] // the machine is too slow for so many
			if compared > 1 || compared+busy == 0 || got["success"]+refused+busy != guesses {
				t.Errorf("%v: %d were compared, want 1", got, compared)
			}
			s.endSessions("bob")
		}
	})
	s.run("renewals among them", func(t *testing.T) {
		before, sent := s.failureCount("bob", record.WrongCodes), len(s.sms.of("otp.login"))
		token := login()
		answers := storetest.Together(guesses, func(i int) answer {
			if i%20 == 0 {
				return s.post("auth/renewotp", token, nil)
			}
			return s.post("auth/checkotp", token, fields{"otp": "000000"})
		})
		// During a renewal there may be no code to compare with, so try once more.
		s.post("auth/checkotp", token, fields{"otp": "000000"}).want(wire.ErrOTPInvalid)
		compared := s.failureCount("bob", record.WrongCodes) - before
		if codes := len(s.sms.of("otp.login")) - sent; compared < 1 || compared > codes {
			t.Errorf("%v: %d guesses were compared with %d codes", outcomes(answers), compared, codes)
		}
	})
	s.run("of the second factor", func(t *testing.T) {
		token := s.credentials("carol", testPassword).wantState(record.CheckOTP).token()
		code := s.sms.last("otp.login", "code")
		got := outcomes(storetest.Together(guesses, func(i int) answer { return s.post("auth/checkotp", token, guess(code, i+1)) }))
		if wrong := s.failureCount("carol", record.WrongCodes); wrong != 1 || got["auth.otp.invalid"] != guesses {
			t.Errorf("%v: %d were compared, want 1", got, wrong)
		}
		s.post("auth/checkotp", token, guess(code, 0)).want(wire.ErrOTPInvalid)
	})
}

// Of a thousand simultaneous requests, as many send an SMS as the budget allows,
// whichever budget it is. The next request sends none.
func TestSMSBudgetsAreSpentExactly(t *testing.T) {
	t.Parallel()
	const budget = 7
	asked := fewer(1000)
	of := []string{"sms_per_account", "sms_per_phone", "sms_per_address", "sms_per_company", "sms_per_country", "renewals"}
	var companies string
	for _, narrow := range of {
		limits := map[string]string{"sms_per_account": "100000/1h", "sms_per_phone": "100000/1h", "sms_per_address": "100000/1h", "sms_per_company": "100000/1h", "sms_per_country": "100000/1h"}
		renewals := 100
		if narrow == "renewals" {
			renewals = budget
		} else {
			limits[narrow] = fmt.Sprint(budget, "/1h")
		}
		companies += fmt.Sprintf("company %s {\napi_key %s\notp {\nrenewals %d\n}\nlimits {\n", narrow, testKey, renewals)
		for name, rate := range limits {
			companies += name + " " + rate + "\n"
		}
		companies += "}\n"
		for i := range 5 {
			companies += fmt.Sprintf("account a%[1]d {\nphone +3706000001%[1]d\n}\n", i)
		}
		companies += "}\n"
	}
	s := startNodes(t, siteConfig{global: "captcha off\n", more: companies})
	for _, narrow := range of {
		shared := narrow == "sms_per_address" || narrow == "sms_per_company" || narrow == "sms_per_country" // by accounts
		s.run(narrow, func(t *testing.T) {
			before := len(s.sms.of("otp.login"))
			login := func(i int) answer {
				account := 0
				if shared {
					account = i % 5
				}
				return s.postTo(narrow, testKey, "auth/login", "", fields{"login_id": fmt.Sprint("+3706000001", account)})
			}
			token := login(0).wantState(record.CheckOTP).token()
			renew := func(int) answer { return s.postTo(narrow, testKey, "auth/renewotp", token, nil) }
			ask, first := login, 1
			if narrow == "renewals" {
				ask, first = renew, 0
			}
			got := outcomes(storm(asked, func(i int) answer {
				if i%3 == 0 && !shared {
					return renew(i)
				}
				return ask(i)
			}))
			sent := len(s.sms.of("otp.login")) - before
			// If a store is too slow to answer, an SMS may be counted but not sent.
			lost := got["service.unavailable"]
			if got["success"] > budget-first || got["success"]+lost < budget-first || got["auth.restricted"]+got["success"]+lost != asked {
				t.Errorf("%v, want %d successes", got, budget-first)
			}
			if sent != got["success"]+1 && lost == 0 || sent > budget+1-first {
				t.Errorf("%v: %d SMS were sent", got, sent)
			}
			if a := ask(asked).want(wire.ErrRestricted); a.Header.Get("Retry-After") == "" {
				t.Error("it has no Retry-After")
			}
		})
	}
}

// wrongPasswordsAreOneCount checks that an account has one count of wrong passwords, for
// all spellings of its login ids, all routes and all nodes. An unknown login id has one, too.
func (s *site) wrongPasswordsAreOneCount() {
	for name, spellings := range map[string][]string{
		"known": {"alice", "ALICE", " Alice\t", "ａｌｉｃｅ", "alice@example.com", "Alice@EXAMPLE.com", "+37060000001",
			"0037060000001", "+370 (600) 00-001", "＋３７０６００００００１"},
		"unknown": {"nobody@example.com", "NOBODY@example.com", " nobody@example.com", "ｎobody@example.com", "Nobody@Example.Com"},
	} {
		s.run(name, func(t *testing.T) {
			var token string
			for i := range 10 { // the default of lock_after
				loginID := spellings[i%len(spellings)]
				if i%2 == 0 || name == "unknown" {
					s.credentials(loginID, "a wrong one").want(wire.ErrCredentialsInvalid)
					continue
				}
				token = s.post("auth/login", "", fields{"login_id": loginID}).wantState(record.CheckPassword).token()
				s.post("auth/checkpassword", token, fields{"password": "a wrong one"}).want(wire.ErrPasswordInvalid)
			}
			for range s.nodes { // on each node
				for _, loginID := range spellings {
					s.credentials(loginID, testPassword).want(wire.ErrRestricted)
					s.post("auth/login", "", fields{"login_id": loginID}).want(wire.ErrRestricted)
				}
			}
			if name == "known" {
				s.post("auth/checkpassword", token, fields{"password": testPassword}).want(wire.ErrRestricted)
				if n := s.failureCount("alice", record.WrongPasswords); n != 10 {
					t.Errorf("%d were counted, want 10", n)
				}
			}
		})
	}
}

// Nothing reduces the count of wrong codes: no renewal, no new login, no other
// purpose or node, no success and no restart of all processes.
func TestNothingResetsWrongCodes(t *testing.T) {
	t.Parallel()
	s := startNodes(t, siteConfig{company: `
		captcha off
		limits {
			wrong_codes 9/24h
			sms_per_account 1000/10m
			sms_per_phone 1000/24h
		}
		` + account("carol", "phone +37060000003\nsecond_factor")})
	one, two := s.nodes[0], s.nodes[1]
	count := 0
	wrong := func(node *site, route, token string) {
		t.Helper()
		node.post(route, token, fields{"otp": "000000"}).want(wire.ErrOTPInvalid)
		count++
		if n := s.failureCount("carol", record.WrongCodes); n != count {
			t.Fatalf("%d wrong codes were counted, want %d", n, count)
		}
	}
	login := func(node *site) string {
		t.Helper()
		return node.credentials("carol", testPassword).wantState(record.CheckOTP).token()
	}
	phone := fields{"login_id": "carol", "captcha_response": "any", "method": "PHONE"}

	token := login(one)
	wrong(two, "auth/checkotp", token)
	one.post("auth/renewotp", token, nil).wantState(record.None)
	wrong(one, "auth/checkotp", token)
	two.post("auth/renewotp", token, nil).wantState(record.None)
	wrong(one, "auth/checkotp", token)
	token = login(two)
	wrong(one, "auth/checkotp", token)
	recovery := one.post("auth/recovery/recover", "", phone).wantState(record.RecoveryOTP).token()
	wrong(two, "auth/recovery/checkotp", recovery)
	two.post("auth/recovery/renewotp", recovery, nil).wantState(record.None)
	wrong(one, "auth/recovery/checkotp", recovery)
	two.post("auth/checkotp", token, fields{"backup_code": "AAAAABBBBB"}).want(wire.ErrBackupCodeInvalid)
	count++
	token = login(one)
	code := s.sms.last("otp.login", "code")
	one.post("auth/checkotp", token, fields{"otp": code}).wantState(record.Authorized)
	one.restart()
	two.restart()
	wrong(two, "auth/checkotp", login(one))
	wrong(one, "auth/checkotp", login(two))
	for _, node := range s.nodes {
		node.post("auth/checkotp", token, fields{"otp": code}).want(wire.ErrTokenInvalid)
		node.credentials("carol", testPassword).want(wire.ErrRestricted)
		node.post("auth/recovery/recover", "", phone).want(wire.ErrRestricted)
	}
}
