package flows

import (
	"context"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/wire"
)

type checkCredentialsRequest struct {
	LoginID           string   `json:"login_id" max:"254" need:"y"`
	Password          string   `json:"password" max:"128" need:"y"`
	CaptchaResponse   string   `json:"captcha_response" max:"4096"`
	AcceptDisclaimers []string `json:"accept_disclaimers" max:"64"`
}

// checkCredentials is login and password in one call (interface, Endpoints 6).
// An unknown login id is treated as a wrong password in all that shows.
func (s *Service) checkCredentials(ctx context.Context, c *call, req *checkCredentialsRequest) (Reply, error) {
	a, alias, err := s.accountByLoginID(ctx, c, record.NormalizeLoginID(req.LoginID))
	if err != nil {
		return Reply{}, err
	}
	err = s.tryPassword(ctx, c, passwordAttempt{
		account:  a,
		alias:    alias,
		password: req.Password,
		captcha:  req.CaptchaResponse,
		wrong:    wire.ErrCredentialsInvalid,
	})
	if err != nil {
		return Reply{}, err
	}
	if err := tenant.Admitted(a); err != nil {
		return Reply{}, err
	}
	accepted, err := c.accept(a, req.AcceptDisclaimers)
	if err != nil {
		return Reply{}, err
	}
	return s.after(ctx, c, step{account: a, accepted: accepted}, false)
}
