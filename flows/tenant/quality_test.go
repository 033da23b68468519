package tenant

import (
	"errors"
	"regexp"
	"strings"
	"testing"

	"github.com/mnemogate/mnemogate/flows/password"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/wire"
)

func TestNewPasswordQuality(t *testing.T) {
	account := record.Account{Mnemocode: "u-77123", Phone: "+37061234534", Email: "John.Smith@example.com", LoginName: "Žižkov"}
	company := func(change func(*Company)) *Company {
		c := &Company{Code: "acme_corp", Policy: DefaultPolicy()}
		if change != nil {
			change(c)
		}
		return c
	}
	digit := func(c *Company) { c.Password.Regex, c.Regex = `[0-9]`, regexp.MustCompile(`[0-9]`) }
	described := func(c *Company) { digit(c); c.Password.RegexDescription = "At least one digit." }
	hardened := func(c *Company) { c.Hardened = true }

	for _, test := range []struct {
		name     string
		change   func(*Company)
		second   bool // the account's SecondFactor
		password string
		want     wire.Reason // empty if it is good
		says     string      // part of the message
	}{
		{"good", nil, false, "lopsided-teapot", "", ""},
		{"eight characters", nil, false, "ąčęėįšųū", "", ""},
		{"seven characters", nil, false, "ąčęėįšų", wire.PasswordTooShort, "8 to 128"},
		{"a longer minimum", func(c *Company) { c.Password.MinLength = 12 }, false, "lopsided-te", wire.PasswordTooShort, "12 to 128"},

		{"hardened, 14", hardened, false, "lopsided-teapo", wire.PasswordTooShort, "15 to 128"},
		{"hardened, 15", hardened, false, "lopsided-teapot", "", ""},
		{"hardened, the account's second factor", hardened, true, "lopsided", "", ""},
		{"hardened, second factor for all", func(c *Company) { hardened(c); c.SecondFactor = SecondFactorRequired }, false, "lopsided", "", ""},
		{"hardened, second factor off", func(c *Company) { hardened(c); c.SecondFactor = SecondFactorOff }, true, "lopsided", wire.PasswordTooShort, "no second factor"},
		{"hardened, 15 required", func(c *Company) { hardened(c); c.Password.MinLength = 15 }, false, "lopsided", wire.PasswordTooShort, "15 to 128 characters."},
		{"hardened, 16 required", func(c *Company) { hardened(c); c.Password.MinLength = 16 }, false, "lopsided-teapot", wire.PasswordTooShort, "16 to 128"},

		{"common", nil, false, "Iloveyou1", wire.PasswordCommon, ""},
		{"no list", func(c *Company) { c.Blocklist = new(password.Blocklist) }, false, "iloveyou1", "", ""},

		{"the company", nil, false, "acme_corp", wire.PasswordPersonal, ""},
		{"the company, spelled otherwise", nil, false, "ACME-Corp", wire.PasswordPersonal, ""},
		{"the company and a year", nil, false, "!AcmeCorp2024", wire.PasswordPersonal, ""},
		{"the company in a sentence", nil, false, "acme corp pays late", "", ""},
		{"the company and many digits", nil, false, "acmecorp83650174", "", ""},
		{"the company and many signs", nil, false, "acmecorp$%*(]}~", "", ""},
		{"the mnemocode", nil, false, "U77123-U77123", wire.PasswordPersonal, ""},
		{"the email", nil, false, "john.smith@EXAMPLE.com", wire.PasswordPersonal, ""},
		{"its local part", nil, false, "johnsmith1990", wire.PasswordPersonal, ""},
		{"half of it", nil, false, "johnny-be-good", "", ""},
		{"the login name, folded", nil, false, "ŽIŽKOV99", wire.PasswordPersonal, ""},
		{"the login name twice", nil, false, "žižkovžižkov", wire.PasswordPersonal, ""},
		{"two of them", nil, false, "johnsmith@acmecorp!", wire.PasswordPersonal, ""},
		{"the phone", nil, false, "+37061234534", wire.PasswordPersonal, ""},
		{"the phone as people write it", nil, false, "(+370) 612-34534", wire.PasswordPersonal, ""},
		{"the phone with 00", nil, false, "0037061234534", wire.PasswordPersonal, ""},
		{"the phone nationally", nil, false, "861234534", wire.PasswordPersonal, ""},
		{"its last seven digits", nil, false, "!1234534", wire.PasswordPersonal, ""},
		{"the phone in a sentence", nil, false, "call 61234534 now", "", ""},
		{"other digits", nil, false, "8365017492", "", ""},

		{"one character that NFKC makes 18 of", nil, false, "ﷺ", wire.PasswordTooShort, ""},
		{"eight characters that NFKC makes four of", nil, false, "e\u0301e\u0301e\u0301e\u0301", wire.PasswordTooShort, ""},

		{"no match", digit, false, "lopsided-teapot", wire.PasswordPattern, "the pattern [0-9]"},
		{"no match, described", described, false, "lopsided-teapot", wire.PasswordPattern, "At least one digit."},
		{"match", described, false, "lopsided-teapot7", "", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			account := account
			account.SecondFactor = test.second
			err := company(test.change).CheckPassword("new_password", test.password, account)
			if test.want == "" {
				if err != nil {
					t.Errorf("%+v", err)
				}
				return
			}
			refusal, ok := errors.AsType[*wire.Refusal](err)
			if !ok || refusal.Err != wire.ErrQuality || refusal.Reason != test.want || !strings.Contains(refusal.Message, test.says) {
				t.Fatalf("%+v, want %q", err, test.want)
			}
			if strings.Contains(refusal.Message, test.password) {
				t.Error("the message repeats the password")
			}
		})
	}
}

func TestTheDescriptionTellsAllRules(t *testing.T) {
	c := &Company{Code: "acme", Policy: DefaultPolicy()}
	rules := "8 to 128 characters. Not a commonly used password. " +
		"Not just the account's own login ids or the company's name."
	hardened := strings.Replace(rules, "8 to 128 characters.", "15 to 128 characters, because the account has no second factor.", 1)
	for _, test := range []struct {
		hardened           bool
		regex, description string
		want               string
	}{
		{false, "", "", rules},
		{true, "", "", hardened},
		{false, "[0-9]", "", rules + " Matches the pattern [0-9]."},
		{true, "[0-9]", "At least one digit", hardened + " At least one digit."},
		{false, "[0-9]", "At least one digit.", rules + " At least one digit."},
	} {
		c.Hardened = test.hardened
		c.Regex, c.Password.Regex, c.Password.RegexDescription = nil, test.regex, test.description
		if test.regex != "" {
			c.Regex = regexp.MustCompile(test.regex)
		}
		got := c.Quality(record.Account{})
		if got.Description != test.want || (got.Regex == nil) != (test.regex == "") || got.Regex != nil && *got.Regex != test.regex {
			t.Errorf("%+v: got %q", test, got.Description)
		}
	}
}

func TestSingleLettersAndNoneAreNoReason(t *testing.T) {
	c := &Company{Code: "t", Policy: DefaultPolicy()}
	for _, account := range []record.Account{{}, {Mnemocode: "t", LoginName: "e", Email: "e@x", Phone: "+"}, {LoginName: "----"}, {LoginName: "\xff\xfe\xfd\xfc\xfb"}} {
		if err := c.CheckPassword("new_password", "teeteetteete", account); err != nil {
			t.Errorf("%+v: %v", account, err)
		}
	}
}

func TestShortLoginNamesCountToo(t *testing.T) {
	c := &Company{Code: "acme", Policy: DefaultPolicy()}
	for wanted, login := range map[string]string{"leoleoleo": "leo", "Bo-Bo-Bo-2026": "bo"} {
		if err := c.CheckPassword("new_password", wanted, record.Account{LoginName: login}); !errors.Is(err, wire.ErrQuality) {
			t.Errorf("%s of %s: %v", wanted, login, err)
		}
	}
}
