package flows_test

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// docs/api.md explains each reason of an error exactly once, and states the default
// limits.
func TestThePageExplainsEveryReason(t *testing.T) {
	page, err := os.ReadFile("../docs/api.md")
	must(t, err)
	_, section, _ := strings.Cut(string(page), "\n### Reasons\n")
	_, section, _ = strings.Cut(section, "\n| --- |")
	section, _, _ = strings.Cut(section, "\n## ")
	rows := map[wire.Reason]string{}
	var shown []wire.Reason
	for line := range strings.Lines(section) {
		first, rest, _ := strings.Cut(strings.TrimPrefix(line, "| "), " | ")
		for _, name := range regexp.MustCompile("`([a-z_.]+)`").FindAllStringSubmatch(first, -1) {
			if strings.HasPrefix(line, "| `") {
				shown = append(shown, wire.Reason(name[1]))
				rows[wire.Reason(name[1])] = rest
			}
		}
	}
	var want []wire.Reason
	for _, of := range wire.Reasons {
		want = append(want, of...)
	}
	slices.Sort(shown)
	slices.Sort(want)
	if !slices.Equal(shown, want) {
		t.Errorf("the page explains %q, want %q", shown, want)
	}

	policy := tenant.DefaultPolicy()
	l := policy.Limits
	for reason, number := range map[wire.Reason]string{
		"lock.password":     fmt.Sprintf("%d wrong passwords in a row | %.0f minutes,", l.LockAfter, time.Duration(l.LockFor).Minutes()),
		"lock.disabled":     fmt.Sprintf("%d wrong passwords in a row", l.DisableAfter),
		"lock.codes":        inWords(l.WrongCodes),
		"lock.answers":      inWords(l.WrongAnswers),
		"limit.address":     inWords(l.FailuresPerAddress),
		"limit.logins":      inWords(l.LoginsPerAddress),
		"limit.renewals":    fmt.Sprintf("%d new codes", *policy.OTP.Renewals),
		"limit.sms_account": inWords(l.SMSPerAccount),
		"limit.sms_phone":   inWords(l.SMSPerPhone),
		"limit.sms_address": inWords(l.SMSPerAddress),
		"limit.mails":       inWords(l.MailsPerAccount),
		"limit.changes":     "30 in 1 hour:",
	} {
		if !strings.HasPrefix(rows[reason], number) {
			t.Errorf("of %s the page says %q, want %q", reason, rows[reason], number)
		}
	}
}

func inWords(r tenant.Rate) string {
	n, unit := int(r.Per/time.Minute), "minute"
	if r.Per >= time.Hour {
		n, unit = int(r.Per/time.Hour), "hour"
	}
	if n > 1 {
		unit += "s"
	}
	return fmt.Sprintf("%d in %d %s:", r.N, n, unit)
}
