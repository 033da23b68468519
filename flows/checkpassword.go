package flows

import (
	"context"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/session"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/wire"
)

type checkPasswordRequest struct {
	Password          string   `json:"password" max:"128" need:"y"`
	CaptchaResponse   string   `json:"captcha_response" max:"4096"`
	AcceptDisclaimers []string `json:"accept_disclaimers" max:"64"`
	DeviceToken       string   `json:"device_token" max:"128"`
	RememberDevice    bool     `json:"remember_device"`
}

// checkPassword checks the password of a login (interface, Endpoints 2).
func (s *Service) checkPassword(ctx context.Context, c *session.Call, req *checkPasswordRequest) (Reply, error) {
	a, err := c.LoadAccount(ctx)
	if err != nil {
		return Reply{}, err
	}
	attempt := passwordAttempt{session.PasswordAttempt{Account: a, Password: req.Password, Wrong: wire.ErrPasswordInvalid}, c.Session().LoginID, c.Tells.Status(a)}
	return s.enterByPassword(ctx, c, attempt, req)
}

// A passwordAttempt is an attempt of checkpassword or checkcredentials.
type passwordAttempt struct {
	session.PasswordAttempt
	loginIDHash string
	before      error // what to return in place of comparing the password; nil to compare it
}

// enterByPassword takes the step after an attempt with a password.
func (s *Service) enterByPassword(ctx context.Context, c *session.Call, attempt passwordAttempt, req *checkPasswordRequest) (Reply, error) {
	if err := c.FindDevice(ctx, attempt.Account, req.DeviceToken); err != nil {
		return Reply{}, err
	}
	c.Remember(req.RememberDevice)
	if err := s.tryPassword(ctx, c, &attempt, req.CaptchaResponse); err != nil {
		return Reply{}, err
	}
	if err := tenant.CheckStatus(attempt.Account); err != nil {
		return Reply{}, err
	}
	accepted, err := c.Accept(ctx, attempt.Account, req.AcceptDisclaimers)
	if err != nil {
		return Reply{}, err
	}
	if err := c.CheckBreached(ctx, &attempt.Account, req.Password); err != nil {
		return Reply{}, err
	}
	return afterPassword(ctx, c, session.Step{Account: attempt.Account, By: record.ByPassword, Accepted: accepted})
}

// tryPassword checks limits and locks, then the captcha, then the password.
func (s *Service) tryPassword(ctx context.Context, c *session.Call, t *passwordAttempt, captcha string) (err error) {
	if t.Counts, err = c.PasswordCounts(ctx, t.Account, t.loginIDHash); err != nil {
		return err
	}
	wrong := t.Counts.Now[record.WrongPasswords]
	locked, due := c.CheckPasswords(wrong), c.CaptchaDue(wrong)
	if locked != nil || due || t.before != nil { // otherwise ComparePassword checks this in one step
		if err := c.CheckLogins(ctx); err != nil {
			return err
		}
	}
	if locked != nil {
		return locked
	}
	if due {
		if err := s.solveCaptcha(ctx, c, captcha); err != nil {
			return err
		}
	}
	if t.before != nil {
		return t.before
	}
	t.Solved = due
	return s.ComparePassword(ctx, &c.Attempt, &t.PasswordAttempt)
}
