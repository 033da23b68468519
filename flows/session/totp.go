package session

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"

	"github.com/mnemogate/mnemogate/flows/limits"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/tokens"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// tryApp compares a code with that of the authenticator app. A wrong code counts and
// spends nothing. A right code is spent, even if the step then fails at the disclaimers.
func (c *Call) tryApp(ctx context.Context, a record.Account, sent string) (Step, error) {
	code, counts, err := c.readCode(ctx, a, sent, tokens.TOTPDigits)
	if err != nil {
		return Step{}, err
	}
	secret, err := c.Keys.OpenTOTP(a.Company, a.TOTP)
	if err != nil {
		return Step{}, err
	}
	step, right := tokens.MatchTOTP(secret, code, c.Now)
	err = c.RecordWindow(ctx, counts.Key, record.WrongCodes, right)
	if err == nil && !right {
		err = ErrAppCode
	}
	if err == nil {
		err = SpendTOTP(ctx, &c.Attempt, a, secret, step)
	}
	return Step{Account: a, By: record.ByApp}, err
}

// ErrAppCode is the error for a code of an app that is wrong or was used.
var ErrAppCode = &wire.Refusal{Err: wire.ErrOTPInvalid, Message: "The code is wrong or was used before. Send the next one that the authenticator app shows."}

// SpendTOTP marks the code of a time step as used, in all sessions and on all nodes, for
// as long as the code could be valid. For a code that was used already it returns
// ErrAppCode. Such a code is not a guess, so it does not count as a wrong attempt.
func SpendTOTP(ctx context.Context, at *limits.Attempt, a record.Account, secret []byte, step int64) error {
	of := sha256.Sum256(fmt.Appendf(secret[:len(secret):len(secret)], "/%d", a.ID))
	rate := tenant.Rate{N: 1, Per: tokens.TOTPEnds(step).Sub(at.Now)}
	first, err := at.MarkUsed(ctx, at.Counter("totp", hex.EncodeToString(of[:16])+"/"+strconv.FormatInt(step, 10), rate))
	if err == nil && !first {
		err = ErrAppCode
	}
	return err
}
