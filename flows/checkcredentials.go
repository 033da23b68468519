package flows

import (
	"context"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/session"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/wire"
)

type checkCredentialsRequest struct {
	LoginID           string   `json:"login_id" max:"254" need:"y"`
	Password          string   `json:"password" max:"128" need:"y"`
	CaptchaResponse   string   `json:"captcha_response" max:"4096"`
	AcceptDisclaimers []string `json:"accept_disclaimers" max:"64"`
	DeviceToken       string   `json:"device_token" max:"128"`
	RememberDevice    bool     `json:"remember_device"`
}

// checkCredentials checks login id and password in one call (interface, Endpoints 6). An
// unknown login id looks like a wrong password to the client.
func (s *Service) checkCredentials(ctx context.Context, c *session.Call, req *checkCredentialsRequest) (Reply, error) {
	a, loginIDHash, err := c.FindAccount(ctx, req.LoginID)
	if err != nil {
		return Reply{}, err
	}
	if err := c.KnowDevice(ctx, a, req.DeviceToken); err != nil {
		return Reply{}, err
	}
	c.Remember(req.RememberDevice)
	attempt := session.PasswordAttempt{Account: a, LoginIDHash: loginIDHash, Password: req.Password, Wrong: wire.ErrCredentialsInvalid}
	if err := s.tryPassword(ctx, c, &attempt, req.CaptchaResponse, nil); err != nil {
		return Reply{}, err
	}
	if err := tenant.Admitted(a); err != nil {
		return Reply{}, err
	}
	accepted, err := c.Accept(a, req.AcceptDisclaimers)
	if err != nil {
		return Reply{}, err
	}
	if err := c.CheckBreached(ctx, &attempt.Account, req.Password); err != nil {
		return Reply{}, err
	}
	return afterPassword(ctx, c, session.Step{Account: attempt.Account, By: record.ByPassword, Accepted: accepted})
}
