package session

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strconv"
	"time"

	"github.com/mnemogate/mnemogate/flows/limits"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/tokens"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// tryApp compares a code with the app's. A wrong one counts and spends nothing; a
// right one is spent by this, also if the disclaimers are then what fails.
func (c *Call) tryApp(ctx context.Context, a record.Account, code string) (Step, error) {
	keys, err := c.s.Keys(ctx)
	if err != nil {
		return Step{}, err
	}
	secret, err := keys.OpenTOTP(a.Company, a.TOTP)
	if err != nil {
		return Step{}, err
	}
	at, right := tokens.MatchTOTP(secret, code, c.Now)
	err = c.RecordWindow(ctx, c.FailureKey(a, ""), record.WrongCodes, c.Company.Limits.WrongCodes, right)
	if err == nil && !right {
		err = errAppCode
	}
	if err == nil {
		err = c.s.SpendTOTP(ctx, c.Now, a.Company, a.TOTP, at)
	}
	return Step{Account: a}, err
}

var errAppCode = &wire.Refusal{Err: wire.ErrOTPInvalid, Message: "The code is wrong or was used; send the next one that the authenticator app shows."}

// SpendTOTP lets the code of a step count once, in all sessions and on all nodes,
// for as long as it could be right. It is errAppCode for a code that was used:
// that is no guess, so it does not count as one.
func (s *Manager) SpendTOTP(ctx context.Context, now time.Time, company, sealed string, step int64) error {
	of := sha256.Sum256([]byte(sealed))
	err := s.Sessions.Charge(ctx, now, record.Counter{
		Key:    limits.Key(company, "totp", hex.EncodeToString(of[:16])+"/"+strconv.FormatInt(step, 10)),
		Limit:  1,
		Window: tokens.TOTPEnds(step).Sub(now),
	})
	if _, used := errors.AsType[*record.Full](err); used {
		return errAppCode
	}
	if err != nil {
		return wire.Unavailable("spending the code of an app", err)
	}
	return nil
}
