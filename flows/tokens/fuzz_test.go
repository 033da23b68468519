package tokens

import (
	"encoding/base64"
	"strings"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// FuzzTokenShape checks that a token has one spelling. Other spellings of the same
// bytes are not tokens.
func FuzzTokenShape(f *testing.F) {
	token, _ := New(Prefix, 0)
	for _, s := range []string{token, token[:46] + "B", token + "=", "MGS_" + token[4:], "mgl_" + token[4:], "mgs_" + strings.Repeat("+", 43), "mgs_" + strings.Repeat("\n", 43), ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if !IsWellFormed(Prefix, s) {
			return
		}
		b, err := base64.RawURLEncoding.DecodeString(s[len(Prefix):])
		if err != nil || Prefix+base64.RawURLEncoding.EncodeToString(b) != s {
			t.Errorf("%q is taken for a token", s)
		}
		if got, err := wire.ParseBearer([]string{"Bearer " + s}); err != nil || got != s {
			t.Errorf("%q is a token that no header can carry: %q, %v", s, got, err)
		}
	})
}

// FuzzStepUp checks that no text but a step-up's own token opens as one, in any spelling, and
// that it opens for its own session alone.
func FuzzStepUp(f *testing.F) {
	keys, err := NewKeys([]record.Secret{{Value: make([]byte, 32)}}, time.Now())
	must(f, err)
	now := time.Now()
	of := StepUp{Company: "acme", Session: "0123", Wanted: "mfa", Factor: record.BySMS}
	token := keys.NewStepUp(of, now.Add(time.Minute))
	for _, s := range []string{token, token + ".", token[4:], strings.ToUpper(token), strings.Replace(token, ".mfa", ".fresh", 1), strings.Replace(token, ".sms", "", 1), token[:len(token)-1], "mgu_..", ""} {
		f.Add("acme", "0123", s)
		f.Add("acme/0123", "mfa", s)
	}
	f.Fuzz(func(t *testing.T, company, session, s string) {
		got, ok := keys.OpenStepUp(company, session, s, now)
		if ok != (s == token && company == "acme" && session == "0123") || ok && got != of {
			t.Errorf("%q of %q and %q: %v, %+v", s, company, session, ok, got)
		}
		if _, ok := keys.OpenStepUp("acme", "0123", token, now.Add(time.Minute)); ok {
			t.Error("it opens when it has expired")
		}
	})
}
