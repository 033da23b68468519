package flows

import (
	"context"
	"crypto/rand"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/mnemogate/mnemogate/flows/message"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/tokens"
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
	digits, fixed := c.Company.OTP.FixedCode(a.Phone)
	c.aboutSMS(a.Phone)
	if !fixed {
		digits = tokens.NewDigits(c.Company.OTP.Length)
	}
	hidden := c.Company.Hardened && st.state == record.RecoveryOTP
	var counters []record.Counter
	switch {
	case hidden:
		counters = c.SMSCounters(record.Account{}, st.decoyOf)
	case !fixed:
		country, err := c.CountrySMS(a.Phone)
		if err != nil {
			return newCode{}, c.Refused(err)
		}
		counters = append(c.SMSCounters(st.account, st.decoyOf), country...)
	}
	expires := c.Now.Add(time.Duration(c.Company.OTP.TTL))
	if a.ID == 0 {
		code := &record.Code{Expires: expires}
		rand.Read(code.Hash[:]) // never fails: it ends the process instead
		return newCode{code, counters, nothing}, nil
	}
	code := &record.Code{Hash: tokens.HashCode(token, st.state, a.Phone, digits), Phone: a.Phone, Expires: expires}
	if fixed {
		return newCode{code, counters, nothing}, nil
	}
	m := message.Message{Type: message.OTPLogin, To: a.Phone, Code: digits, Expires: expires}
	if st.state == record.RecoveryOTP {
		m.Type = message.OTPRecovery
	}
	send := func(ctx context.Context) error { return s.send(ctx, c.Company, c.Company.SMS, a, m) }
	if hidden {
		send = s.withinHidden(c, a, send)
	}
	return newCode{code, counters, send}, nil
}

// aboutSMS notes the country of a phone, unless it gets no SMS.
func (c *call) aboutSMS(phone string) {
	if _, fixed := c.Company.OTP.FixedCode(phone); !fixed && phone != "" {
		c.country = tenant.CallingCode(phone)
	}
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

// awaitCode is the step to record.CheckOTP. Where no more SMS may be sent, an account
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
		st.counters = append(st.counters, c.Counter("sms-per-account", of, codelessLogins))
	}
	return s.enter(ctx, c, st)
}
