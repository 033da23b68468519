package flows_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/tenant"
)

// An unknown login id, an account without a password and a wrong password get the
// same answers: codes, captcha, locks and Retry-After.
func TestCheckCredentialsTreatsAllFailuresAlike(t *testing.T) {
	transcript := func(prepare func(*harness) string) []string {
		b := newHarness(t)
		b.company.Captcha = &captcha{}
		id := prepare(b)
		var answers []string
		for i := range 16 {
			body := object{"login_id": id, "password": "wrong"}
			switch {
			case i == 5:
				body["captcha_response"] = "bad"
			case i == 6:
				body["captcha_response"] = "down"
			case i > 3:
				body["captcha_response"] = fmt.Sprintf("good %d", i)
			}
			_, err := b.serve("auth/checkcredentials", "", body)
			r := refusal(err)
			answers = append(answers, fmt.Sprint(codeOf(err), r.Captcha, r.RetryAfter, r.Message))
		}
		_, err := b.serve("auth/login", "", object{"login_id": id})
		return append(answers, fmt.Sprint(codeOf(err), refusal(err).RetryAfter))
	}
	want := transcript(func(*harness) string { return email })
	if want[15] != fmt.Sprint("auth.restricted", false, time.Duration(tenant.DefaultPolicy().Limits.LockFor), "") {
		t.Fatalf("the last answer to a wrong password is %s", want[15])
	}
	for name, prepare := range map[string]func(*harness) string{
		"unknown":            func(*harness) string { return "nobody@example.com" },
		"without a password": func(b *harness) string { b.withoutPassword(); return email },
		"closed":             func(b *harness) string { b.status(record.StatusClosed); return email },
	} {
		for i, got := range transcript(prepare) {
			if got != want[i] {
				t.Errorf("%s: answer %d is %s, of a wrong password %s", name, i+1, got, want[i])
			}
		}
	}
}
