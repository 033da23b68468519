package flows

import (
	"context"

	"github.com/mnemogate/mnemogate/flows/session"
	"github.com/mnemogate/mnemogate/flows/wire"
)

type checkCredentialsRequest struct {
	LoginID           string     `json:"login_id" max:"254" need:"y"`
	Password          string     `json:"password" max:"128" need:"y"`
	CaptchaResponse   string     `json:"captcha_response" max:"4096"`
	AcceptDisclaimers wire.Codes `json:"accept_disclaimers" max:"129"`
	DeviceToken       string     `json:"device_token" max:"128"`
	RememberDevice    bool       `json:"remember_device"`
}

// checkCredentials checks login id and password in one call (interface, Endpoints 6). An
// unknown login id looks like a wrong password to the client.
func (s *Service) checkCredentials(ctx context.Context, c *session.Call, req *checkCredentialsRequest) (Reply, error) {
	a, loginIDHash, err := c.FindAccount(ctx, req.LoginID)
	if err != nil {
		return Reply{}, err
	}
	try := session.PasswordAttempt{Account: a, Password: req.Password, Wrong: wire.ErrCredentialsInvalid}
	return s.enterByPassword(ctx, c, try, loginIDHash, nil, &checkPasswordRequest{
		Password: req.Password, CaptchaResponse: req.CaptchaResponse, AcceptDisclaimers: req.AcceptDisclaimers,
		DeviceToken: req.DeviceToken, RememberDevice: req.RememberDevice,
	})
}
