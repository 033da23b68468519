package flows

import (
	"errors"
	"regexp"
	"strings"
	"testing"
)

func TestNewPasswordQuality(t *testing.T) {
	account := Account{Mnemocode: "u-77123", Phone: "+37061234534", Email: "John.Smith@example.com", LoginName: "Žižkov"}
	company := func(change func(*Company)) *Company {
		c := &Company{Code: "acme_corp", Policy: DefaultPolicy()}
		if change != nil {
			change(c)
		}
		return c
	}
	digit := func(c *Company) { c.Password.Regex = regexp.MustCompile(`[0-9]`) }
	described := func(c *Company) { digit(c); c.Password.RegexDescription = "At least one digit." }
	hardened := func(c *Company) { c.Hardened = true }

	for _, test := range []struct {
		name     string
		change   func(*Company)
		second   bool // the account's SecondFactor
		password string
		want     string // of the message; empty if it is good
	}{
		{"good", nil, false, "lopsided-teapot", ""},
		{"eight characters", nil, false, "ąčęėįšųū", ""},
		{"seven characters", nil, false, "ąčęėįšų", "at least 8 characters"},
		{"a longer minimum", func(c *Company) { c.Password.MinLength = 12 }, false, "lopsided-te", "at least 12 characters"},

		{"hardened, 14", hardened, false, "lopsided-teapo", "at least 15 characters"},
		{"hardened, 15", hardened, false, "lopsided-teapot", ""},
		{"hardened, the account's second factor", hardened, true, "lopsided", ""},
		{"hardened, second factor for all", func(c *Company) { hardened(c); c.SecondFactor = SecondFactorRequired }, false, "lopsided", ""},
		{"hardened, second factor off", func(c *Company) { hardened(c); c.SecondFactor = SecondFactorOff }, true, "lopsided", "no second factor"},
		{"hardened, 16 required", func(c *Company) { hardened(c); c.Password.MinLength = 16 }, false, "lopsided-teapot", "at least 16 characters"},

		{"common", nil, false, "Iloveyou1", "many people"},
		{"no list", func(c *Company) { c.Password.Blocklist = nil }, false, "iloveyou1", ""},

		{"the company", nil, false, "acme_corp", "own login ids"},
		{"the company, spelled otherwise", nil, false, "ACME-Corp", "own login ids"},
		{"the company and a year", nil, false, "!AcmeCorp2024", "own login ids"},
		{"the company in a sentence", nil, false, "acme corp pays late", ""},
		{"the company and many digits", nil, false, "acmecorp83650174", ""},
		{"the company and many signs", nil, false, "acmecorp$%*(]}~", ""},
		{"the mnemocode", nil, false, "U77123-U77123", "own login ids"},
		{"the email", nil, false, "john.smith@EXAMPLE.com", "own login ids"},
		{"its local part", nil, false, "johnsmith1990", "own login ids"},
		{"half of it", nil, false, "johnny-be-good", ""},
		{"the login name, folded", nil, false, "ŽIŽKOV99", "own login ids"},
		{"the login name twice", nil, false, "žižkovžižkov", "own login ids"},
		{"two of them", nil, false, "johnsmith@acmecorp!", "own login ids"},
		{"the phone", nil, false, "+37061234534", "own login ids"},
		{"the phone as people write it", nil, false, "(+370) 612-34534", "own login ids"},
		{"the phone with 00", nil, false, "0037061234534", "own login ids"},
		{"the phone nationally", nil, false, "861234534", "own login ids"},
		{"the phone in a sentence", nil, false, "call 61234534 now", ""},
		{"other digits", nil, false, "8365017492", ""},

		{"no match", digit, false, "lopsided-teapot", "does not match password_regex"},
		{"no match, described", described, false, "lopsided-teapot", "At least one digit."},
		{"match", described, false, "lopsided-teapot7", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			account := account
			account.SecondFactor = test.second
			err := company(test.change).checkQuality(normalizePassword(test.password), account)
			if test.want == "" {
				if err != nil {
					t.Errorf("%+v", err)
				}
				return
			}
			refusal, ok := errors.AsType[*Refusal](err)
			if !ok || refusal.Err != ErrQuality || !strings.Contains(refusal.Message, test.want) {
				t.Fatalf("%+v, want %q", err, test.want)
			}
			if strings.Contains(refusal.Message, test.password) {
				t.Error("the message repeats the password")
			}
		})
	}
}

func TestShortOwnWordsAndNoneAreNoReason(t *testing.T) {
	c := &Company{Code: "tea", Policy: DefaultPolicy()}
	for _, account := range []Account{{}, {Mnemocode: "t", LoginName: "pot", Email: "lop@x", Phone: "+"}, {LoginName: "----"}, {LoginName: "\xff\xfe\xfd\xfc\xfb"}} {
		if err := c.checkQuality("teateapottea", account); err != nil {
			t.Errorf("%+v: %v", account, err)
		}
	}
}
