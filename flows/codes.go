package flows

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"math/big"
	"strconv"
	"strings"
	"time"

	"github.com/mnemogate/mnemogate/flows/message"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// A newCode is a one-time code that is not yet sent.
type newCode struct {
	stored   *record.Code     // nil for none
	counters []record.Counter // the budgets that it uses up, also if the gateway then fails
	send     func(context.Context) error
}

// newCode makes a one-time code for the session under token. A decoy gets one
// that nothing equals, and no SMS; neither does a phone with a fixed one. An
// account without a phone, its second factor the backup codes, gets no code, and
// neither does a step that is codeless or byApp.
func (s *Service) newCode(c *call, st step, token string) (newCode, error) {
	nothing := func(context.Context) error { return nil }
	a := st.account
	if st.byApp {
		return newCode{send: nothing}, nil
	}
	if a.ID != 0 && (a.Phone == "" || st.codeless) {
		if a.BackupCodes == 0 {
			return newCode{}, errNoSecondFactor
		}
		return newCode{send: nothing}, nil
	}
	digits, fixed := c.company.OTPFixed[a.Phone]
	if !fixed {
		digits = randomDigits(c.company.OTPLength)
	}
	hidden := c.company.Hardened && st.state == record.RecoveryOTP
	var counters []record.Counter
	switch {
	case hidden:
		counters = c.smsCounters(step{decoyOf: st.decoyOf})
	case !fixed:
		country, err := c.countrySMS(a.Phone)
		if err != nil {
			return newCode{}, s.refused(c, err)
		}
		counters = append(c.smsCounters(st), country...)
	}
	expires := c.now.Add(c.company.OTPTTL)
	if a.ID == 0 {
		code := &record.Code{Expires: expires}
		rand.Read(code.Hash[:]) // never fails: it ends the process instead
		return newCode{code, counters, nothing}, nil
	}
	code := &record.Code{Hash: codeHash(token, st.state, a.Phone, digits), Phone: a.Phone, Expires: expires}
	if fixed {
		return newCode{code, counters, nothing}, nil
	}
	m := message.Message{Type: message.OTPLogin, To: a.Phone, Code: digits, Expires: expires}
	if st.state == record.RecoveryOTP {
		m.Type = message.OTPRecovery
	}
	send := func(ctx context.Context) error { return s.send(ctx, c.company, c.company.SMS, a, m) }
	if hidden {
		send = s.withinHidden(c, a, send)
	}
	return newCode{code, counters, send}, nil
}

// errNoSecondFactor is for an account whose next step would be a code, and that
// has neither a phone to send it to nor backup codes.
var errNoSecondFactor = &wire.Refusal{
	Err:     wire.ErrUserRestricted,
	Message: "The account has no phone that a code could be sent to; only an administrator can add one.",
	Reason:  wire.NoSecondFactor,
}

// codelessLogins bounds the sessions that strangers can begin for an account
// without a password once its SMS are used up.
var codelessLogins = tenant.Rate{N: 30, Per: 10 * time.Minute}

// awaitCode is the step to CheckOTP. Where no more SMS may be sent, an account
// that has backup codes left gets its session all the same (contract, 4, Second
// factor).
func (s *Service) awaitCode(ctx context.Context, c *call, st step) (Reply, error) {
	st.state, st.byApp = record.CheckOTP, st.account.HasApp()
	reply, err := s.enter(ctx, c, st)
	refusal, ok := errors.AsType[*wire.Refusal](err)
	if !ok || !strings.HasPrefix(refusal.Lock, record.LockPrefix+"sms_") || st.account.BackupCodes == 0 {
		return reply, err
	}
	st.codeless = true
	if st.account.PasswordHash == "" {
		of := strconv.FormatInt(st.account.ID, 10) + "/codeless"
		st.counters = append(st.counters, c.counter("sms-per-account", of, codelessLogins))
	}
	return s.enter(ctx, c, st)
}

// smsCounters are the budgets that one SMS uses up. The narrowest come first:
// it is theirs that the caller can wait for. A decoy runs dry as an account
// would, but for the company's.
func (c *call) smsCounters(st step) []record.Counter {
	var counters []record.Counter
	if a := st.account; a.ID != 0 {
		counters = c.accountSMS(strconv.FormatInt(a.ID, 10), a.Phone)
	} else {
		counters = c.accountSMS(decoyBudget(st.decoyOf), decoyBudget(st.decoyOf))
	}
	counters = append(counters, c.perAddress("sms-per-address", c.company.Limits.SMSPerAddress)...)
	company := c.companySMS()
	if st.account.ID == 0 {
		company = record.Look(company...)
	}
	return append(counters, company...)
}

func (c *call) accountSMS(account, phone string) []record.Counter {
	l := &c.company.Limits
	return []record.Counter{c.counter("sms-per-account", account, l.SMSPerAccount), c.counter("sms-per-phone", phone, l.SMSPerPhone)}
}

// companySMS is the company's own budget, if it has one.
func (c *call) companySMS() []record.Counter {
	rate := c.company.Limits.SMSPerCompany
	if rate == (tenant.Rate{}) {
		return nil
	}
	return []record.Counter{c.counter("sms-per-company", "", rate)}
}

// countryAgain is after what time an SMS to a country that is not allowed may be asked
// for again: only an operator can change that.
const countryAgain = 24 * time.Hour

// countrySMS is the budget of a phone's country, if it has one. Where the country is
// not allowed, it is full.
func (c *call) countrySMS(phone string) ([]record.Counter, error) {
	rate := c.company.Limits.SMSPerCountry
	prefix, allowed := c.company.Limits.Country(phone)
	if !allowed {
		return nil, &record.Full{Key: c.counter("sms-countries", prefix, rate).Key, Until: c.now.Add(countryAgain)}
	}
	if rate == (tenant.Rate{}) {
		return nil, nil
	}
	return []record.Counter{c.counter("sms-per-country", prefix, rate)}, nil
}

// randomDigits returns n digits, each drawn evenly.
func randomDigits(n int) string {
	bound := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(n)), nil)
	x, _ := rand.Int(rand.Reader, bound) // never fails
	return fmt.Sprintf("%0*d", n, x)
}

// codeHash binds a code to its session, purpose and phone. The token keys it:
// six digits alone could be found by trying all of them on a stolen store.
func codeHash(token string, purpose record.State, phone, digits string) [sha256.Size]byte {
	mac := hmac.New(sha256.New, []byte(token))
	fmt.Fprintf(mac, "%s\x00%s\x00%s", purpose, phone, digits)
	return [sha256.Size]byte(mac.Sum(nil))
}
