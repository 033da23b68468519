package policy

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/mnemogate/mnemogate/flows/tenant"
)

// Rate is a number of events within a time, written as in `5/10m`. The word
// `unlimited` is the zero Rate.
type Rate tenant.Rate

// maxEvents bounds a Rate.
const maxEvents = 1_000_000

const unlimited = "unlimited"

var errRate = errors.New("write a number and a time, as in 5/10m")

// MarshalText writes a rate as it stands in a Caddyfile.
func (r Rate) MarshalText() ([]byte, error) {
	if r == (Rate{}) {
		return []byte(unlimited), nil
	}
	return []byte(strconv.Itoa(r.N) + "/" + shortDuration(r.Per)), nil
}

// UnmarshalText reads a rate.
func (r *Rate) UnmarshalText(text []byte) error {
	if string(text) == unlimited {
		*r = Rate{}
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

// check refuses a rate that is unlimited where that would leave a limit out.
func (r *Rate) check(name string) error {
	if r != nil && *r == (Rate{}) {
		return fmt.Errorf("limits %s: it can't be unlimited; %w", name, errRate)
	}
	return nil
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
