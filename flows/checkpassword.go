package flows

import (
	"context"
	"errors"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/session"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/wire"
)

type checkPasswordRequest struct {
	Password          string     `json:"password" max:"128" need:"y"`
	CaptchaResponse   string     `json:"captcha_response" max:"4096"`
	AcceptDisclaimers wire.Codes `json:"accept_disclaimers" max:"129"`
	DeviceToken       string     `json:"device_token" max:"128"`
	RememberDevice    bool       `json:"remember_device"`
}

// checkPassword checks the password of a login (interface, Endpoints 2).
func (s *Service) checkPassword(ctx context.Context, c *session.Call, req *checkPasswordRequest) (Reply, error) {
	a, err := c.LoadAccount(ctx)
	if err != nil {
		return Reply{}, err
	}
	try := session.PasswordAttempt{Account: a, Password: req.Password, Wrong: wire.ErrPasswordInvalid}
	return s.enterByPassword(ctx, c, try, c.Session().LoginID, c.Tells.Status(a), req)
}

// enterByPassword takes the step after an attempt of checkpassword or checkcredentials. told
// is what a client may learn of the account's status without the password; nil for nothing.
func (s *Service) enterByPassword(
	ctx context.Context, c *session.Call, try session.PasswordAttempt, loginIDHash string, told error, req *checkPasswordRequest,
) (Reply, error) {
	c.Remember(req.RememberDevice)
	if err := s.beforePassword(ctx, c, &try, loginIDHash, told, req); err != nil {
		return Reply{}, err
	}
	if err := s.ComparePassword(ctx, &c.Attempt, &try); err != nil {
		return Reply{}, err
	}
	if err := tenant.CheckStatus(try.Account); err != nil { // the password proves that the client may learn it
		return Reply{}, err
	}
	accepted, err := c.Accept(ctx, try.Account, req.AcceptDisclaimers)
	if refusal, ok := errors.AsType[*wire.Refusal](err); ok && refusal.Err == wire.ErrDisclaimerInvalid {
		refusal.Captcha = try.CaptchaDue
	}
	if err != nil {
		return Reply{}, err
	}
	if err := s.CheckBreached(ctx, &c.Attempt, &try.Account, req.Password); err != nil {
		return Reply{}, err
	}
	return afterPassword(ctx, c, session.Step{Account: try.Account, By: record.ByPassword, Accepted: accepted})
}

// beforePassword checks what may not depend on the password: limits, locks, the captcha and, at
// the end, told. The device comes first, because the counts of a known device are its own.
func (s *Service) beforePassword(
	ctx context.Context, c *session.Call, try *session.PasswordAttempt, loginIDHash string, told error, req *checkPasswordRequest,
) error {
	if err := c.FindDevice(ctx, try.Account, req.DeviceToken); err != nil {
		return err
	}
	var err error
	if try.Counts, err = c.PasswordCounts(ctx, try.Account, loginIDHash); err != nil {
		return err
	}
	wrong := try.Counts.Now[record.WrongPasswords]
	locked, captchaDue := c.CheckPasswords(wrong), c.Company.CaptchaDue(wrong)
	switch {
	case locked != nil, captchaDue && req.CaptchaResponse == "", !captchaDue && told != nil: // nobody is asked
		err = c.CheckLogins(ctx)
	default: // count the login first, so that an address can't ask the provider or the hasher without end
		err = c.BeginLogin(ctx)
	}
	if err != nil {
		return err
	}
	if locked != nil {
		return locked
	}
	if captchaDue {
		if err := s.solveCaptcha(ctx, c, req.CaptchaResponse); err != nil {
			return err
		}
		try.Solved = true
	}
	return told
}
