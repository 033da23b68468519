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

// tryApp compares a code with that of the authenticator app. A wrong code counts and
// spends nothing. A right code is spent, even if the step then fails at the disclaimers.
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
	return Step{Account: a, By: record.ByApp}, err
}

var errAppCode = &wire.Refusal{Err: wire.ErrOTPInvalid, Message: "The code is wrong or was used; send the next one that the authenticator app shows."}

// SpendTOTP marks the code of a time step as used, in all sessions and on all nodes, for
// as long as the code could be valid. For a code that was used already it returns
// errAppCode. Such a code is not a guess, so it does not count as a wrong attempt.
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
