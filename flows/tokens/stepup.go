package tokens

import (
	"crypto/sha256"
	"encoding/base64"
	"strings"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
)

// A StepUp is what the token of a step-up stands for. The token names Wanted and Factor, and
// is signed for the rest. It is StepUpPrefix, the ticket, a dot, Wanted, a dot and Factor.
type StepUp struct {
	Company string
	Session string // the ID of the session that it may raise
	Wanted  string // mfa or fresh
	Factor  record.AuthMethods
}

var stepUpTicket = ticket{random: 16, signature: sha256.Size}

// owner returns a name that no other StepUp has: none of its parts has a slash.
func (s StepUp) owner() string {
	return strings.Join([]string{s.Company, s.Session, s.Wanted, string(s.Factor)}, "/")
}

// NewStepUp returns the token of a step-up that is valid until expires.
func (k *Keys) NewStepUp(s StepUp, expires time.Time) string {
	ticket := base64.RawURLEncoding.EncodeToString(stepUpTicket.issue(k.stepUps, s.owner(), expires))
	return strings.Join([]string{StepUpPrefix + ticket, s.Wanted, string(s.Factor)}, ".")
}

// OpenStepUp returns what a token of the company and the session stands for. ok is false for
// any other token, and for one that has expired.
func (k *Keys) OpenStepUp(company, session, token string, now time.Time) (s StepUp, ok bool) {
	rest, ours := strings.CutPrefix(token, StepUpPrefix)
	parts := strings.Split(rest, ".")
	if !ours || len(parts) != 3 {
		return StepUp{}, false
	}
	s = StepUp{Company: company, Session: session, Wanted: parts[1], Factor: record.AuthMethods(parts[2])}
	_, ok = stepUpTicket.open(k.stepUps, s.owner(), parts[0], now)
	return s, ok
}
