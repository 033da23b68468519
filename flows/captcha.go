package flows

import (
	"context"
	"math"
	"strings"
	"unicode"

	"github.com/mnemogate/mnemogate/flows/limits"
	"github.com/mnemogate/mnemogate/flows/session"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// solveCaptcha verifies a captcha response, if the company has a captcha. Each response
// is valid once, on all nodes and for all companies. A bad response counts as a failure
// of the address. The caller has counted the login or recovery, so an address over its limit
// causes no call to a provider.
func (s *Service) solveCaptcha(ctx context.Context, c *session.Call, response string) error {
	if c.Company.Captcha == nil {
		return nil
	}
	if response == "" {
		return &wire.Refusal{Err: wire.ErrCaptchaMissing, Captcha: true}
	}
	ctx = context.WithoutCancel(ctx) // the outcome counts even if the client hangs up
	ok, err := spendCaptcha(ctx, c, response)
	if err != nil || ok {
		return err
	}
	if err := c.CountAddressFailure(ctx); err != nil {
		return err
	}
	return &wire.Refusal{Err: wire.ErrCaptchaInvalid, Captcha: true}
}

// spendCaptcha reports whether a response is right, and marks it as used. It refuses
// surrounding white space: providers trim it, so a used response with a space added would
// be valid again. GiveBack makes the response unused. A provider verifies it only once, so
// the store remembers that it was right.
func spendCaptcha(ctx context.Context, c *session.Call, response string) (bool, error) {
	if strings.TrimFunc(response, isTrimmed) != response {
		return false, nil
	}
	once, ok, err := verifyCaptcha(ctx, c, response)
	if err != nil {
		return false, err
	}
	if _, reusable := c.Company.Captcha.(tenant.ReusableCaptcha); reusable {
		return ok, nil
	}
	right := limits.Mark("", "captcha-right", []byte(c.Company.Code+"/"+response))
	if !ok {
		if was, err := c.IsUsed(ctx, right); !was || err != nil {
			return false, err
		}
	}
	right.Limit = math.MaxInt32                                 // it may be marked again
	_, right.CheckOnly = c.Company.Captcha.(tenant.ProofOfWork) // whose responses stay right
	used := limits.Mark("", "captcha", []byte(once))
	first, err := c.MarkUsed(ctx, used, right)
	if first {
		c.Took(used)
	}
	return first, err
}

// verifyCaptcha reports whether a response is right. It also returns the string to mark
// as used: for proof of work the challenge, since it has many right responses.
func verifyCaptcha(ctx context.Context, c *session.Call, response string) (once string, ok bool, err error) {
	if work, ours := c.Company.Captcha.(tenant.ProofOfWork); ours {
		once, ok = c.Keys.VerifyWork(c.Company.Code, work.Bits(), response, c.Now)
		return once, ok, nil
	}
	ok, err = session.Ask(ctx, &c.Attempt, session.AskLimit, func(ctx context.Context) (bool, error) {
		return c.Company.Captcha.Verify(ctx, response, c.Address)
	})
	if err != nil {
		err = wire.Unavailable("verifying the captcha response", err)
	}
	return response, ok, err
}

// isTrimmed reports whether some programming language treats r as white space.
func isTrimmed(r rune) bool { return r == ' ' || !unicode.IsPrint(r) }
