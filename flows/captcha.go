package flows

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"time"
)

// captchaMemory is how long a used response is remembered. The providers' own
// are valid for two to five minutes.
const captchaMemory = time.Hour

// solveCaptcha verifies a captcha response, each of which is good once, on
// whichever node.
func (s *Service) solveCaptcha(ctx context.Context, c *call, response string) error {
	if response == "" {
		return &Refusal{Err: ErrCaptchaMissing, Captcha: true}
	}
	ok, err := c.company.Captcha.Verify(ctx, response, c.address)
	if err != nil {
		return unavailable("verifying the captcha response", err)
	}
	if !ok {
		return &Refusal{Err: ErrCaptchaInvalid, Captcha: true}
	}
	if _, ok := c.company.Captcha.(ReusableCaptcha); ok {
		return nil
	}
	hash := sha256.Sum256([]byte(response))
	used := Counter{Key: c.counterKey("captcha", hex.EncodeToString(hash[:])), Limit: 1, Window: captchaMemory}
	err = s.Sessions.Charge(ctx, c.now, used)
	if _, ok := errors.AsType[*Full](err); ok {
		return &Refusal{Err: ErrCaptchaInvalid, Captcha: true}
	}
	if err != nil {
		return unavailable("marking the captcha response as used", err)
	}
	return nil
}
