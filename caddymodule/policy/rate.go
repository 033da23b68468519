package policy

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/mnemogate/mnemogate/flows/tenant"
)

// Rate is a number of events within a time, written as in `5/10m`. The word
// `unlimited` is tenant.Unlimited.
type Rate tenant.Rate

// maxEvents bounds a Rate.
const maxEvents = 1_000_000

const unlimited = "unlimited"

var errRate = errors.New("write a number and a time, as in 5/10m")

// MarshalText writes a rate as it stands in a Caddyfile.
func (r Rate) MarshalText() ([]byte, error) {
	if r == Rate(tenant.Unlimited) {
		return []byte(unlimited), nil
	}
	return []byte(strconv.Itoa(r.N) + "/" + shortDuration(r.Per)), nil
}

// UnmarshalText reads a rate.
func (r *Rate) UnmarshalText(text []byte) error {
	if string(text) == unlimited {
		*r = Rate(tenant.Unlimited)
		return nil
	}
	number, per, ok := strings.Cut(string(text), "/")
	n, err := strconv.Atoi(number)
	if !ok || err != nil || n < 1 || n > maxEvents {
		return errRate
	}
	window, err := caddy.ParseDuration(per)
	if err != nil || window <= 0 || window > year {
		return errRate
	}
	*r = Rate{N: n, Per: window}
	return nil
}

// n is the number of events, 0 of a rate that is not set.
func (r *Rate) n() int {
	if r == nil {
		return 0
	}
	return r.N
}

// isUnlimited reports whether the rate is set, and unlimited.
func (r *Rate) isUnlimited() bool { return r != nil && *r == Rate(tenant.Unlimited) }

// checkGuesses refuses to leave the number of wrong guesses unlimited.
func (r *Rate) checkGuesses(name string) error {
	if r.isUnlimited() {
		return fmt.Errorf("limits %s: it can't be unlimited, since it bounds how much can be guessed; %w", name, errRate)
	}
	return nil
}

// Unlimited names the budgets that a company has set to unlimited, or its app for it, but
// for sms_per_company.
func Unlimited(app, company *Limits) (names []string) {
	for _, budget := range []struct {
		name string
		of   func(*Limits) *Rate
	}{
		{"logins_per_address", func(l *Limits) *Rate { return l.LoginsPerAddress }},
		{"sms_per_account", func(l *Limits) *Rate { return l.SMSPerAccount }},
		{"sms_per_phone", func(l *Limits) *Rate { return l.SMSPerPhone }},
		{"sms_per_address", func(l *Limits) *Rate { return l.SMSPerAddress }},
		{"sms_per_country", func(l *Limits) *Rate { return l.SMSPerCountry }},
		{"mails_per_account", func(l *Limits) *Rate { return l.MailsPerAccount }},
	} {
		if cmp.Or(budget.of(company), budget.of(app)).isUnlimited() {
			names = append(names, budget.name)
		}
	}
	return names
}

// shortDuration writes 10m for what time.Duration writes as 10m0s.
func shortDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}
