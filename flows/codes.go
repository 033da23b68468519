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
)

// A newCode is a one-time code that is not yet sent.
type newCode struct {
	stored   *Code     // nil for none
	counters []Counter // the budgets that it uses up, also if the gateway then fails
	send     func(context.Context) error
}

// newCode makes a one-time code for the session under token. A decoy gets one
// that nothing equals, and no SMS; neither does a phone with a fixed one. An
// account without a phone, its second factor the backup codes, gets no code.
func (s *Service) newCode(c *call, st step, token string) (newCode, error) {
	nothing := func(context.Context) error { return nil }
	a := st.account
	if a.ID != 0 && a.Phone == "" {
		if a.BackupCodes == 0 {
			return newCode{}, ErrUserRestricted
		}
		return newCode{send: nothing}, nil
	}
	digits, fixed := c.company.OTPFixed[a.Phone]
	var counters []Counter
	if !fixed {
		counters = c.smsCounters(st)
		digits = randomDigits(c.company.OTPLength)
	}
	expires := c.now.Add(c.company.OTPTTL)
	if a.ID == 0 {
		code := &Code{Expires: expires}
		rand.Read(code.Hash[:]) // never fails: it ends the process instead
		return newCode{code, counters, nothing}, nil
	}
	code := &Code{Hash: codeHash(token, st.state, a.Phone, digits), Phone: a.Phone, Expires: expires}
	if fixed {
		return newCode{code, counters, nothing}, nil
	}
	message := Message{Type: OTPLogin, To: a.Phone, Code: digits, Expires: expires}
	if st.state == RecoveryOTP {
		message.Type = OTPRecovery
	}
	send := func(ctx context.Context) error { return s.send(ctx, c.company, c.company.SMS, a, message) }
	return newCode{code, counters, send}, nil
}

func (s *Service) deliver(ctx context.Context, code newCode) error {
	if err := code.send(ctx); err != nil {
		return unavailable("sending the code", err)
	}
	return nil
}

// smsCounters are the budgets that one SMS uses up. The narrowest come first:
// it is theirs that the caller can wait for.
func (c *call) smsCounters(st step) []Counter {
	l, a := &c.company.Limits, st.account
	account, phone := strconv.FormatInt(a.ID, 10), a.Phone
	if a.ID == 0 { // a decoy runs dry as an account would
		account = "decoy/" + st.decoyOf
		phone = account
	}
	counters := []Counter{
		c.counter("sms-per-account", account, l.SMSPerAccount),
		c.counter("sms-per-phone", phone, l.SMSPerPhone),
		c.counter("sms-per-address", c.address, l.SMSPerAddress),
	}
	if l.SMSPerCompany != (Rate{}) {
		company := c.counter("sms-per-company", "", l.SMSPerCompany)
		company.Look = a.ID == 0
		counters = append(counters, company)
	}
	return counters
}

// send fills in a message's text and hands it to the gateway.
func (s *Service) send(ctx context.Context, company *Company, sender Sender, a Account, m Message) error {
	if sender == nil {
		return errors.New("the company has no sender for it: configure sms or mail")
	}
	m.ID, m.Company, m.Mnemocode = newID(), company.Code, a.Mnemocode
	if err := company.Texts.render(&m, s.Now()); err != nil {
		return fmt.Errorf("filling in the text of %s: %w", m.Type, err)
	}
	return sender.Send(ctx, m)
}

// randomDigits returns n digits, each drawn evenly.
func randomDigits(n int) string {
	bound := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(n)), nil)
	x, _ := rand.Int(rand.Reader, bound) // never fails
	return fmt.Sprintf("%0*d", n, x)
}

// codeHash binds a code to its session, purpose and phone. The token keys it:
// six digits alone could be found by trying all of them on a stolen store.
func codeHash(token string, purpose State, phone, digits string) [sha256.Size]byte {
	mac := hmac.New(sha256.New, []byte(token))
	fmt.Fprintf(mac, "%s\x00%s\x00%s", purpose, phone, digits)
	return [sha256.Size]byte(mac.Sum(nil))
}
