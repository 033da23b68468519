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

// newCode makes a one-time code for the session under token and returns what
// sends it. The code counts towards the budgets (and the counters in more),
// also if the gateway then fails. A decoy gets a code that nothing equals, and
// no SMS; neither does a phone with a fixed one. An account without a phone, its
// second factor the backup codes, gets no code.
func (s *Service) newCode(ctx context.Context, c *call, st step, token string, more ...Counter) (*Code, func(context.Context) error, error) {
	nothing := func(context.Context) error { return nil }
	a := st.account
	if a.ID != 0 && a.Phone == "" {
		if a.BackupCodes == 0 {
			return nil, nil, ErrUserRestricted
		}
		return nil, nothing, nil
	}
	digits, fixed := c.company.OTPFixed[a.Phone]
	if !fixed {
		more = append(more, c.smsCounters(st)...)
		digits = randomDigits(c.company.OTPLength)
	}
	if err := s.refused(c, s.Sessions.Charge(ctx, c.now, more...)); err != nil {
		return nil, nil, err
	}
	expires := c.now.Add(c.company.OTPTTL)
	if a.ID == 0 {
		code := &Code{Expires: expires}
		rand.Read(code.Hash[:]) // never fails: it ends the process instead
		return code, nothing, nil
	}
	code := &Code{Hash: codeHash(token, st.state, a.Phone, digits), Phone: a.Phone, Expires: expires}
	if fixed {
		return code, nothing, nil
	}
	message := Message{Type: OTPLogin, To: a.Phone, Code: digits, Expires: expires}
	if st.state == RecoveryOTP {
		message.Type = OTPRecovery
	}
	send := func(ctx context.Context) error { return s.send(ctx, c.company, c.company.SMS, a, message) }
	return code, send, nil
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
	if a.ID != 0 && l.SMSPerCompany != (Rate{}) {
		counters = append(counters, c.counter("sms-per-company", "", l.SMSPerCompany))
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
